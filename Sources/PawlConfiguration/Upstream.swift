extension PawlConfiguration {
    /// The backend, and how the gateway connects to it.
    package struct Upstream: Sendable, Equatable {
        /// Where the backend listens.
        package var url: Endpoint
        /// The `Host` for lookups of logins and members at an HTTP backend, or `nil` for the one of the URL or of `tls`.
        package var host: String?
        /// The name of the network, or `nil` for the one that the store holds.
        package var network: String?
        /// Earlier names of the network.
        package var earlierNetworks: [String]
        /// How the backend's certificate is checked.
        package var tls: TLS
        /// How the backend learns the address of the client.
        package var proxyProtocol: ProxyProtocol
        /// The password for announcing clients' addresses with WEBIRC, or `nil` to use no WEBIRC.
        package var webircPassword: Secret?
        /// How long the gateway waits for a connection to the backend to open.
        package var connectTimeout: Duration
        /// How long clients stay connected after the backend has become unreachable.
        package var outagePatience: Duration
        /// How fast the gateway may write lines to the backend.
        package var flood: Flood
    }
}

extension PawlConfiguration.Upstream {
    /// Ours: number of earlier names. Each costs one attempt for every message that no name before it opens.
    static let earlierNetworkLimit = 8

    /// How the backend's certificate is checked; without effect on a plain connection.
    package struct TLS: Sendable, Equatable {
        /// A PEM file of certificate authorities, or `nil` for those of the system.
        package var authorities: String?
        /// Whether the certificate is checked at all.
        package var verify: Bool
        /// The name that the certificate must contain, or `nil` for the host of the URL.
        package var serverName: String?
        /// The certificate that is shown to the backend, with its key; nil for none.
        package var identity: PawlConfiguration.Identity?
    }

    /// The version of the PROXY protocol towards the backend.
    package enum ProxyProtocol: String, Sendable, CaseIterable {
        case none, v1, v2
    }

    /// The flood limits of the backend: a token bucket of `burst` lines that refills at `linesPerSecond`.
    package struct Flood: Sendable, Equatable {
        /// The number of lines that may be sent at once.
        package var burst: Int
        /// Lines per second after the burst; zero disables pacing by lines.
        package var linesPerSecond: Double
        /// Bytes per second; zero disables pacing by bytes.
        package var bytesPerSecond: Int
    }
}
