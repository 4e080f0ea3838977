extension PawlConfiguration {
    /// The backend, and how the gateway speaks to it.
    package struct Upstream: Sendable, Equatable {
        /// Where the backend listens.
        package var url: Endpoint
        /// The name under which an HTTP backend is asked who somebody is, or `nil` for the one it is reached by.
        package var host: String?
        /// The name of the network, or `nil` for the one that the store holds.
        package var network: String?
        /// Names that the network had before.
        package var earlierNetworks: [String]
        /// How the backend's certificate is checked.
        package var tls: TLS
        /// How the backend learns the address of the client.
        package var proxyProtocol: ProxyProtocol
        /// The password for telling the backend the client's address with WEBIRC, or `nil` for not telling it so.
        package var webircPassword: Secret?
        /// How long a connection to the backend may take to open.
        package var connectTimeout: Duration
        /// How long clients are kept after the backend has gone.
        package var outagePatience: Duration
        /// How fast lines may be written to the backend.
        package var flood: Flood
    }
}

extension PawlConfiguration.Upstream {
    /// Ours: earlier names of the network. Each costs an attempt to open for each message that none before it opens.
    static let earlierNetworkLimit = 8

    /// How the backend's certificate is checked; without effect on a plain connection.
    package struct TLS: Sendable, Equatable {
        /// A PEM file of certificate authorities, or `nil` for those of the system.
        package var authorities: String?
        /// Whether the certificate is checked at all.
        package var verify: Bool
        /// The name the certificate must carry, or `nil` for the host of the URL.
        package var serverName: String?
    }

    /// The version of the PROXY protocol that is spoken to the backend.
    package enum ProxyProtocol: String, Sendable, CaseIterable {
        case none, v1, v2
    }

    /// The flood limits of the backend: a bucket of `burst` lines that refills at `linesPerSecond`.
    package struct Flood: Sendable, Equatable {
        /// How many lines may follow each other at once.
        package var burst: Int
        /// How many lines a second after that; zero means that lines are not paced.
        package var linesPerSecond: Double
        /// How many bytes a second; zero means that bytes are not paced.
        package var bytesPerSecond: Int
    }
}
