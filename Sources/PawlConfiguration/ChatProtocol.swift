/// A chat protocol as a configuration names it.
///
/// Each protocol has three URL schemes: `irc` is plain text on loopback, `ircs` is TLS, and `irc+insecure` is plain text
/// anywhere. The program defines which protocols exist, and hands them to ``PawlConfiguration/load(file:environment:overrides:protocols:)``.
package struct ChatProtocol: Sendable, Hashable {
    /// The text in a store. It never changes.
    package let stored: String
    /// The name for people.
    package let title: String
    /// A backend of this protocol with its article, such as "an IRC backend".
    let backend: String
    /// The scheme of plain text on loopback. The other two begin with it.
    let scheme: String
    /// The scheme of its listeners for WebSockets; nil if the protocol has none, or uses them under its own scheme.
    let webSocketScheme: String?
    /// The port of a URL without a port, for plain text.
    let plainPort: Int
    /// The port of a URL without a port, for TLS.
    let tlsPort: Int
    /// Whether a backend needs a `mapping` of its requests; others have none.
    let usesMapping: Bool

    package init(
        stored: String, title: String, backend: String, scheme: String, ports: (plain: Int, tls: Int),
        webSocketScheme: String? = nil, usesMapping: Bool = false
    ) {
        (self.stored, self.title, self.backend, self.scheme) = (stored, title, backend, scheme)
        self.webSocketScheme = webSocketScheme
        (plainPort, tlsPort) = ports
        self.usesMapping = usesMapping
    }

    package static let irc = ChatProtocol(
        stored: "irc", title: "IRC", backend: "an IRC backend", scheme: "irc", ports: (6667, 6697),
        webSocketScheme: "ws")
    /// JSON over HTTP and WebSocket.
    package static let json = ChatProtocol(
        stored: "json", title: "HTTP", backend: "an HTTP backend", scheme: "http", ports: (80, 443), usesMapping: true)
}
