// Options of the adapters: where to listen, where to connect, and how.

package import NIOCore
package import NIOPosix
package import NIOSSL

/// One address to listen on.
package struct ListenerOptions: Sendable {
    package var host: String
    package var port: Int
    /// Whether connections use TLS from the first byte.
    package var usesTLS: Bool
    /// Whether clients of a protocol that has another transport connect by WebSocket.
    package var usesWebSocket: Bool

    package init(host: String, port: Int, usesTLS: Bool = false, usesWebSocket: Bool = false) {
        (self.host, self.port, self.usesTLS, self.usesWebSocket) = (host, port, usesTLS, usesWebSocket)
    }
}

/// The origins of pages that may connect by WebSocket. RFC 6454; RFC 6455 section 10.2.
package struct WebOrigins: Sendable, Equatable {
    private let origins: Set<String>

    /// - Parameter origins: such as `https://chat.example.org`; `*` is every page.
    package init(_ origins: [String]) { self.origins = Set(origins.map { $0.lowercased() }) }

    package func allows(_ origin: String) -> Bool { origins.contains("*") || origins.contains(origin.lowercased()) }
}

/// Options for connections from clients.
package struct DownstreamOptions: Sendable {
    package var listeners: [ListenerOptions]
    /// The certificate for TLS listeners and STARTTLS.
    package var tls: NIOSSLContext?
    /// Whether clients are asked for a certificate in TLS. The context has to allow clients without one.
    package var asksForCertificates = false
    /// Whether a PROXY header is expected from trusted peers.
    package var acceptsProxyProtocol = false
    /// The password of the WEBIRC command from trusted peers; nil if they may not use it.
    package var webIRCPassword: String?
    /// The pages that may connect by WebSocket.
    package var webOrigins = WebOrigins([])
    /// Whether a peer is trusted to send the client's address.
    package var trusts: @Sendable (SocketAddress) -> Bool = { _ in false }
    /// Holds what connections read and write while the gateway may not act; nil if it always may.
    package var gate: ActGate?
    /// Maximum number of connections. Further ones are refused with a notice.
    package var connectionLimit: Int

    package init(listeners: [ListenerOptions], tls: NIOSSLContext? = nil, connectionLimit: Int) {
        (self.listeners, self.tls, self.connectionLimit) = (listeners, tls, connectionLimit)
    }
}

/// Options for connections to the backend.
package struct UpstreamOptions: Sendable {
    package var host: String
    package var port: Int
    package var tls: NIOSSLContext?
    /// The name that the backend's certificate must have; nil if the backend is given by its address.
    package var serverName: String?
    /// The `Host` of the gateway's own HTTP requests, and of requests without one; nil for the address.
    package var hostField: String?
    package var proxyProtocol: ProxyProtocol.Version?
    package var webIRCPassword: String?
    package var connectTimeout: TimeAmount
    /// See ``DownstreamOptions/gate``.
    package var gate: ActGate?
    /// Returns the addresses of ``host``; nil for those of the system.
    package var resolver: (any Resolver & Sendable)?

    package init(
        host: String, port: Int, tls: NIOSSLContext? = nil, serverName: String? = nil, connectTimeout: TimeAmount
    ) {
        self.host = host
        self.port = port
        self.tls = tls
        self.serverName = serverName
        self.connectTimeout = connectTimeout
    }

    /// Whether the first bytes to the backend say whether the client has TLS.
    package var announcesTLS: Bool { webIRCPassword != nil || proxyProtocol == .v2 }

    /// The value of `Host` for the backend. RFC 9110 section 7.2.
    package var authority: String {
        if let hostField { return hostField }
        let name = serverName ?? (host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host)
        return port == (tls == nil ? 80 : 443) ? name : "\(name):\(port)"
    }
}
