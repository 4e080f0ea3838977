extension PawlConfiguration {
    /// One side of the gateway as a URL: `irc://127.0.0.1:6667`, `ircs://irc.example.org`, `irc+insecure://[::]:6667`, and
    /// likewise `http`, `https` and `http+insecure`.
    ///
    /// Plain text beyond loopback has a scheme of its own, so that an operator has to choose it explicitly.
    package struct Endpoint: Sendable, Hashable {
        /// The protocol, and whether it runs over TLS.
        package enum Scheme: String, Sendable, CaseIterable {
            /// Plain text on loopback.
            case irc
            /// TLS.
            case ircs
            /// Plain text anywhere.
            case ircInsecure = "irc+insecure"

            /// HTTP and WebSocket as plain text on loopback.
            case http
            /// HTTP and WebSocket in TLS.
            case https
            /// HTTP and WebSocket as plain text anywhere.
            case httpInsecure = "http+insecure"

            /// The port of a URL without a port.
            package var defaultPort: Int {
                switch self {
                case .irc, .ircInsecure: 6667
                case .ircs: 6697
                case .http, .httpInsecure: 80
                case .https: 443
                }
            }

            /// The chat protocol of the scheme.
            package var chat: Chat {
                switch self {
                case .irc, .ircs, .ircInsecure: .irc
                case .http, .https, .httpInsecure: .json
                }
            }

            /// Whether the scheme is refused for addresses beyond loopback.
            var isLoopbackOnly: Bool { self == .irc || self == .http }
        }

        /// A chat protocol.
        package enum Chat: Sendable, CaseIterable { case irc, json }

        /// The scheme.
        package var scheme: Scheme
        /// A name or an address, without brackets.
        package var host: String
        /// The port; zero, where it is allowed, lets the system choose.
        package var port: Int

        /// Creates an endpoint.
        package init(scheme: Scheme, host: String, port: Int) {
            self.scheme = scheme
            self.host = host
            self.port = port
        }

        /// Whether the connection uses TLS.
        package var isEncrypted: Bool { self.scheme == .ircs || self.scheme == .https }
        /// The host and the port.
        package var address: Address { Address(host: self.host, port: self.port) }
    }
}

extension PawlConfiguration.Endpoint: CustomStringConvertible {
    package var description: String { "\(self.scheme.rawValue)://\(self.address)" }
}

extension PawlConfiguration.Endpoint {
    /// Reads a URL to listen on.
    init(listening text: String) throws(Mismatch) {
        try self.init(text)
    }

    /// Reads a URL to connect to.
    init(connecting text: String) throws(Mismatch) {
        try self.init(text)
        guard self.port != 0 else { throw Mismatch("whose port is 0, to which no client can connect") }
    }

    private init(_ text: String) throws(Mismatch) {
        guard let separator = text.firstRange(of: "://") else { throw Mismatch("without a scheme") }
        guard let scheme = Scheme(rawValue: text[..<separator.lowerBound].lowercased()) else {
            throw Mismatch("whose scheme is not known")
        }
        let rest = text[separator.upperBound...]
        guard !rest.contains("@") else { throw Mismatch("with a user, which has no place here") }
        guard !rest.contains(where: { "/?#".contains($0) }) else {
            throw Mismatch("with a path, which has no place here")
        }
        guard !rest.isEmpty else { throw Mismatch("without a host") }
        let address = try PawlConfiguration.Address(configuration: String(rest), defaultPort: scheme.defaultPort)
        self.init(scheme: scheme, host: address.host, port: address.port)
        guard !scheme.isLoopbackOnly || address.isLoopback else {
            throw Mismatch(
                "which is plain text beyond loopback; write `\(scheme.rawValue)s://` for TLS, or "
                    + "`\(scheme.rawValue)+insecure://` if plain text is meant")
        }
    }
}
