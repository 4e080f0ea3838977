// What an assembly tells the adapters: where to listen, where to connect, and how.

package import NIOCore
package import NIOSSL

/// One place to listen at.
package struct ListenerOptions: Sendable {
    package var host: String
    package var port: Int
    /// TLS from the first byte.
    package var usesTLS: Bool

    package init(host: String, port: Int, usesTLS: Bool = false) {
        (self.host, self.port, self.usesTLS) = (host, port, usesTLS)
    }
}

/// How downstream connections are taken.
package struct DownstreamOptions: Sendable {
    package var listeners: [ListenerOptions]
    /// The certificate for TLS listeners and STARTTLS.
    package var tls: NIOSSLContext?
    /// Whether a PROXY header is expected from trusted peers.
    package var acceptsProxyProtocol = false
    /// The password of the WEBIRC command, where trusted peers may use it.
    package var webIRCPassword: String?
    /// Whether a peer may say who the client is.
    package var trusts: @Sendable (SocketAddress) -> Bool = { _ in false }
    /// Connections at one time; more are told to come back later.
    package var connectionLimit = 10_000

    package init(listeners: [ListenerOptions], tls: NIOSSLContext? = nil) {
        (self.listeners, self.tls) = (listeners, tls)
    }
}

/// How the backend is reached.
package struct UpstreamOptions: Sendable {
    package var host: String
    package var port: Int
    package var tls: NIOSSLContext?
    /// The name that the backend's certificate has to bear; nothing where it is an address.
    package var serverName: String?
    /// The `Host` of the gateway's own questions over HTTP, and of requests that have none; nothing for the address.
    package var hostField: String?
    package var proxyProtocol: ProxyProtocol.Version?
    package var webIRCPassword: String?
    package var connectTimeout = TimeAmount.seconds(10)

    package init(host: String, port: Int, tls: NIOSSLContext? = nil, serverName: String? = nil) {
        self.host = host
        self.port = port
        self.tls = tls
        self.serverName = serverName
    }

    /// The backend's name as a `Host` says it. RFC 9110 section 7.2.
    package var authority: String {
        if let hostField { return hostField }
        let name = serverName ?? (host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host)
        return port == (tls == nil ? 80 : 443) ? name : "\(name):\(port)"
    }
}
