extension PawlConfiguration {
    /// One side of the gateway as a URL: `irc://127.0.0.1:6667`, `ircs://irc.example.org`, `irc+insecure://[::]:6667`, and
    /// likewise `http`, `https` and `http+insecure`. Clients of IRC may also connect by WebSocket, to `ws://127.0.0.1:8067`,
    /// `wss://irc.example.org` or `ws+insecure://[::]:8067`.
    ///
    /// Plain text beyond loopback has a scheme of its own, so that an operator has to choose it explicitly.
    package struct Endpoint: Sendable, Hashable {
        /// The protocol, and how its bytes are carried.
        package struct Scheme: Sendable, Hashable {
            /// How the bytes are carried.
            package enum Transport: Sendable, CaseIterable {
                /// Plain text on loopback.
                case loopback
                case tls
                /// Plain text anywhere.
                case insecure
            }

            package let chat: ChatProtocol
            package let transport: Transport
            /// Whether the bytes are the messages of a WebSocket. Only clients connect so.
            package let isWebSocket: Bool

            package init(_ chat: ChatProtocol, _ transport: Transport, isWebSocket: Bool = false) {
                (self.chat, self.transport, self.isWebSocket) = (chat, transport, isWebSocket)
            }

            /// Finds the scheme of a name; nil if no protocol has it.
            init?(_ name: String, of protocols: [ChatProtocol]) {
                let schemes = protocols.flatMap { chat in
                    Transport.allCases.map { Self(chat, $0) }
                        + (chat.webSocketScheme == nil
                            ? [] : Transport.allCases.map { Self(chat, $0, isWebSocket: true) })
                }
                guard let scheme = schemes.first(where: { $0.name == name }) else { return nil }
                self = scheme
            }

            /// The scheme as URLs have it.
            package var name: String {
                let plain = self.isWebSocket ? self.chat.webSocketScheme ?? self.chat.scheme : self.chat.scheme
                return switch self.transport {
                case .loopback: plain
                case .tls: "\(plain)s"
                case .insecure: "\(plain)+insecure"
                }
            }

            /// The port of a URL without a port. RFC 6455 section 3 for WebSockets.
            var defaultPort: Int {
                switch self.transport {
                case .loopback, .insecure: self.isWebSocket ? 80 : self.chat.plainPort
                case .tls: self.isWebSocket ? 443 : self.chat.tlsPort
                }
            }
        }

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
        package var isEncrypted: Bool { self.scheme.transport == .tls }
        /// The host and the port.
        package var address: Address { Address(host: self.host, port: self.port) }
    }
}

extension PawlConfiguration.Endpoint: CustomStringConvertible {
    package var description: String { "\(self.scheme.name)://\(self.address)" }
}

extension PawlConfiguration.Endpoint {
    /// Reads a URL to listen on.
    init(listening text: String, of protocols: [ChatProtocol]) throws(Mismatch) {
        try self.init(text, of: protocols)
    }

    /// Reads a URL to connect to.
    init(connecting text: String, of protocols: [ChatProtocol]) throws(Mismatch) {
        try self.init(text, of: protocols)
        guard self.port != 0 else { throw Mismatch("whose port is 0, to which no client can connect") }
        guard !self.scheme.isWebSocket else {
            let chat = self.scheme.chat
            throw Mismatch(
                "a scheme for `listen` alone: the gateway connects with `\(chat.scheme)://` or `\(chat.scheme)s://`")
        }
    }

    private init(_ text: String, of protocols: [ChatProtocol]) throws(Mismatch) {
        guard let separator = text.firstRange(of: "://") else { throw Mismatch("without a scheme") }
        guard let scheme = Scheme(text[..<separator.lowerBound].lowercased(), of: protocols) else {
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
        guard scheme.transport != .loopback || address.isLoopback else {
            throw Mismatch(
                "which is plain text beyond loopback; write `\(scheme.name)s://` for TLS, or "
                    + "`\(scheme.name)+insecure://` if plain text is meant")
        }
    }
}
