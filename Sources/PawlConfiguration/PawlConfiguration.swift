package import Protection

/// Everything an operator may decide about one gateway, checked and complete.
///
/// A value of this type is only ever good: whatever is wrong with a file, the environment or the command line is a
/// ``ConfigurationError`` of ``load(file:environment:overrides:)``, and no half-read configuration exists.
/// What the keys are called, what they default to and why stands in ``ConfigurationKey/table``.
///
/// This module does not know the gateway: it opens no socket, and the only files it reads are the configuration
/// itself and the password files that the configuration names.
package struct PawlConfiguration: Sendable, Equatable {
    /// Where clients connect; never empty.
    package var listen: [Endpoint]
    /// The backend.
    package var upstream: Upstream
    /// The file that maps a JSON backend, or `nil` in front of one that needs none.
    package var mapping: String?
    /// Where credentials of waiting writes to a JSON backend are kept.
    package var queueCredentials: QueueCredentials
    /// How long a write to a JSON backend may wait.
    package var queueRequestAge: Duration
    /// The certificate shown to clients, or `nil` when nothing here speaks TLS.
    package var tls: Identity?
    /// What happens to a backend's STARTTLS.
    package var starttls: StartTLS
    /// What clients and proxies in front of this gateway may say about themselves.
    package var accept: Accept
    /// The policy of everyone without a narrower one, until an operator sets another at run time.
    package var policy: Policy
    /// The directory of the store.
    package var data: String
    /// Where the key is that seals private keys at rest.
    package var storageKey: StorageKey
    /// Services of the network: exempt, counted and shown.
    package var services: [ServicePattern]
    /// Named bots, exempt in the same way.
    package var bots: [ServicePattern]
    /// What a person reads when a message is refused.
    package var refusal: Refusal
    /// What is kept of what was said.
    package var history: History
    /// The limits an operator may move.
    package var limits: Limits
    /// The Prometheus, liveness and readiness port.
    package var metrics: Metrics
    /// The control socket.
    package var admin: Admin
    /// How clients are recognised.
    package var detection: Detection
    /// What only a sidecar looks at.
    package var sidecar: Sidecar
    /// What is logged.
    package var log: Log
}

extension PawlConfiguration {
    /// Where the credential is kept that a waiting write is sent with.
    package enum QueueCredentials: String, Sendable, CaseIterable {
        /// Until the process ends.
        case memory
        /// In the store, under the storage key.
        case sealed
    }

    /// What happens to a backend's STARTTLS when this gateway is in front of it.
    package enum StartTLS: String, Sendable, CaseIterable {
        /// Clients do not learn of it.
        case hide
        /// The gateway answers it with its own certificate.
        case terminate
    }

    /// The certificate and private key of the downstream side.
    package struct Identity: Sendable, Equatable {
        /// A PEM file with the certificate and its chain.
        package var certificate: String
        /// A PEM file with the private key.
        package var key: String
    }

    /// What those who connect may say about themselves.
    package struct Accept: Sendable, Equatable {
        /// Whether trusted proxies announce the client's address with the PROXY protocol.
        package var proxyProtocol: Bool
        /// The password of trusted gateways that use WEBIRC, or `nil` when nobody may.
        package var webircPassword: Secret?
        /// From where PROXY and WEBIRC are believed.
        package var trusted: [CIDR]

        /// Whether somebody at `address` may announce another address.
        package func trusts(_ address: IPAddress) -> Bool {
            self.trusted.contains { $0.contains(address) }
        }
    }

    /// Where the storage key is.
    package enum StorageKey: Sendable, Equatable {
        /// In a file of mode 0600, made at the first start.
        case file(String)
        /// In the environment variable of this name.
        case environment(String)
    }

    /// What is kept of what was said, where the backend keeps it too.
    package struct History: Sendable, Equatable {
        /// How long the key of a message is kept; zero for not at all.
        package var retention: Duration
    }

    /// The port of the metrics.
    package struct Metrics: Sendable, Equatable {
        /// A loopback address, or `nil` for no port at all.
        package var listen: Address?
    }

    /// The control socket of `pawl status` and its sisters.
    package struct Admin: Sendable, Equatable {
        /// The path of the Unix socket.
        package var socket: String
    }

    /// How clients are recognised.
    package struct Detection: Sendable, Equatable {
        /// Whether a connection is asked for its software with CTCP VERSION.
        package var askVersion: Bool
    }

    /// What only a sidecar looks at.
    package struct Sidecar: Sendable, Equatable {
        /// How the protection of a message is shown.
        package var marks: Marks
        /// Whether what is not end-to-end is refused.
        package var require: Bool

        /// Where the mark goes.
        package enum Marks: String, Sendable, CaseIterable {
            case text, tags, off
        }
    }

    /// What is logged.
    package struct Log: Sendable, Equatable {
        /// The least severe level that is written.
        package var level: Level

        /// The levels, from the most talkative to the quietest.
        package enum Level: String, Sendable, CaseIterable {
            case trace, debug, info, notice, warning, error, critical
        }
    }
}
