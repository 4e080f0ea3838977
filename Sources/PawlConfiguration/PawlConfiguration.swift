package import Protection

/// The complete and validated configuration of one gateway.
///
/// If the file, the environment or the command line has a problem, ``load(file:environment:overrides:)`` throws a
/// ``ConfigurationError`` and returns no configuration. The names of the keys, their defaults and the reasons for them
/// are in ``ConfigurationKey/table``.
///
/// This module does not know the gateway: it opens no socket, and the only files it reads are the configuration
/// itself and the password files that the configuration names.
package struct PawlConfiguration: Sendable, Equatable {
    /// Where clients connect; never empty.
    package var listen: [Endpoint]
    /// The sites whose pages may connect by WebSocket to a protocol with another transport; `*` is every site.
    package var webSocketOrigins: [String]
    /// The backend.
    package var upstream: Upstream
    /// The mapping of a JSON backend, or `nil` in front of an IRC backend.
    package var mapping: String?
    /// Where the credentials of waiting writes to a JSON backend are kept.
    package var queueCredentials: QueueCredentials
    /// How long a write to a JSON backend may wait.
    package var queueRequestAge: Duration
    /// The push hook of a JSON backend.
    package var push: Push
    /// The socket for calls of programs on the same machine.
    package var controlPlane: ControlPlane
    /// What becomes of reactions, polls and other content at a JSON backend where messages are protected.
    package var kinds: KindTreatments
    /// What happens to the texts of IRC commands where messages are protected.
    package var commands: CommandTexts
    /// The certificate for clients, or `nil` if none is configured.
    package var tls: Identity?
    /// Whether clients are asked for certificates.
    package var clientCertificates: ClientCertificates
    /// How the gateway handles the backend's STARTTLS.
    package var starttls: StartTLS
    /// Whether clients' addresses may be announced with PROXY or WEBIRC.
    package var accept: Accept
    /// The policy of everyone without one of their own, until an operator sets another at run time.
    package var policy: Policy
    /// The directory of the store.
    package var data: String
    /// The location of the key that seals private keys at rest.
    package var storageKey: StorageKey
    /// The database of the store, if it is not a file in the directory.
    package var store: Store
    /// Services of the network, which are exempt from the policy.
    package var services: [ServicePattern]
    /// Bots, which are exempt in the same way.
    package var bots: [ServicePattern]
    /// The notices to senders of refused messages.
    package var refusal: Refusal
    /// How long message keys are kept.
    package var history: History
    /// The limits that an operator can change.
    package var limits: Limits
    /// The Prometheus, liveness and readiness port.
    package var metrics: Metrics
    /// The control socket.
    package var admin: Admin
    /// How the gateway detects client software.
    package var detection: Detection
    /// The settings of a sidecar.
    package var sidecar: Sidecar
    /// The log settings.
    package var log: Log
}

extension PawlConfiguration {
    /// The database of the store.
    package struct Store: Sendable, Equatable {
        /// Its URI; nil if the store is a file in ``data``.
        package var url: String?
        /// Whether a pooler in transaction mode may stand between.
        package var pooled: Bool
        /// Whether this gateway stands by while another one serves.
        package var standby: Bool
        /// The name of this gateway; nil for that of the host.
        package var gateway: String?

        package init(url: String? = nil, pooled: Bool = false, standby: Bool = true, gateway: String? = nil) {
            (self.url, self.pooled) = (url, pooled)
            (self.standby, self.gateway) = (standby, gateway)
        }
    }

    /// Where the credential for a waiting write is kept.
    package enum QueueCredentials: String, Sendable, CaseIterable {
        /// In memory, until the process ends.
        case memory
        /// In the store, under the storage key.
        case sealed
    }

    /// How the gateway handles the backend's STARTTLS.
    package enum StartTLS: String, Sendable, CaseIterable {
        /// The gateway hides it from clients.
        case hide
        /// The gateway answers it with its own certificate.
        case terminate
    }

    /// Whether clients are asked for certificates.
    package enum ClientCertificates: String, Sendable, CaseIterable {
        /// No client is asked.
        case ignore
        /// Each client is asked, and may have none.
        case ask
    }

    /// The certificate and private key of the downstream side.
    package struct Identity: Sendable, Equatable {
        /// A PEM file with the certificate and its chain.
        package var certificate: String
        /// A PEM file with the private key.
        package var key: String
    }

    /// Whether clients' addresses may be announced with PROXY or WEBIRC.
    package struct Accept: Sendable, Equatable {
        /// Whether trusted proxies announce the client's address with the PROXY protocol.
        package var proxyProtocol: Bool
        /// The password of trusted gateways that use WEBIRC, or `nil` if none may.
        package var webircPassword: Secret?
        /// The addresses from which PROXY and WEBIRC are accepted.
        package var trusted: [CIDR]

        /// Whether a peer at `address` may announce another address.
        package func trusts(_ address: IPAddress) -> Bool {
            self.trusted.contains { $0.contains(address) }
        }
    }

    /// The location of the storage key.
    package enum StorageKey: Sendable, Equatable {
        /// In a file of mode 0600, created at the first start.
        case file(String)
        /// In the environment variable of this name.
        case environment(String)
    }

    /// How long message keys are kept if the backend stores messages.
    package struct History: Sendable, Equatable {
        /// How long the key of a message is stored; zero keeps keys in memory only.
        package var retention: Duration
    }

    /// The metrics port.
    package struct Metrics: Sendable, Equatable {
        /// A loopback address, or `nil` for no port.
        package var listen: Address?
    }

    /// The socket for calls of the control plane.
    package struct ControlPlane: Sendable, Equatable {
        /// The path of the Unix socket, or `nil` if there is none.
        package var socket: String?
        /// Who may open it.
        package var socketMode: SocketMode
    }

    /// Who may open a Unix socket.
    package enum SocketMode: String, Sendable, CaseIterable {
        /// The user who runs the gateway.
        case owner = "0600"
        /// Also the members of the gateway's group.
        case group = "0660"
        /// Everybody on the machine.
        case everybody = "0666"

        /// The mode as for `chmod`.
        package var bits: UInt16 {
            switch self {
            case .owner: 0o600
            case .group: 0o660
            case .everybody: 0o666
            }
        }
    }

    /// The control socket of the admin commands.
    package struct Admin: Sendable, Equatable {
        /// The path of the Unix socket.
        package var socket: String
    }

    /// How the gateway detects client software.
    package struct Detection: Sendable, Equatable {
        /// Whether the gateway asks each client for its software with CTCP VERSION.
        package var askVersion: Bool
    }

    /// The settings of a sidecar.
    package struct Sidecar: Sendable, Equatable {
        /// How end-to-end encrypted messages are marked.
        package var marks: Marks
        /// Whether messages that are not end-to-end encrypted are refused and withheld.
        package var require: Bool

        /// The form of the mark.
        package enum Marks: String, Sendable, CaseIterable {
            case text, tags, off
        }
    }

    /// The log settings.
    package struct Log: Sendable, Equatable {
        /// The least severe level that is written.
        package var level: Level
        /// The form of each line.
        package var format: Format

        /// The forms of a line.
        package enum Format: String, Sendable, CaseIterable {
            /// The time, the level and the message, for people.
            case text
            /// One JSON object a line.
            case json
        }

        /// The levels, from the most to the least verbose.
        package enum Level: String, Sendable, CaseIterable {
            case trace, debug, info, notice, warning, error, critical
        }
    }
}
