// How a connection of its own to a gateway begins: with a request for an upgrade, over TLS if the address says so.

package import Foundation
package import HTTPCodec
package import NIOCore
import NIOPosix
package import NIOSSL
package import PawlMessenger

/// The place of a gateway, and the requests for upgrades there.
package struct GatewayAddress: Sendable {
    /// The address or the login cannot be written in a request.
    package enum Malformed: Error { case address, login }

    private let host: String
    private let port: Int
    private let isSecure: Bool
    private let authority: String
    /// The path of the address, without a slash at its end.
    package let path: String

    /// - Parameter url: with `http` or `https`, and without a query.
    package init(_ url: URL) throws(Malformed) {
        isSecure = url.scheme?.lowercased() == "https"
        guard let host = url.host(), isSecure || url.scheme?.lowercased() == "http", url.query == nil else {
            throw .address
        }
        self.host = host
        port = url.port ?? (isSecure ? 443 : 80)
        var path = url.path(percentEncoded: true)
        while path.hasSuffix("/") { path.removeLast() }
        self.path = path
        authority = (host.contains(":") ? "[\(host)]" : host) + (url.port.map { ":\($0)" } ?? "")
    }

    /// A request for an upgrade.
    package func request(
        _ target: String, upgrade: String, _ login: GatewayCredential
    ) throws(Malformed) -> RequestHead {
        guard FieldText.isText(login.value), FieldText.isText(authority), FieldText.isText(target),
            login.header.utf8.allSatisfy({ Character(UnicodeScalar($0)).isLetter || $0 == 0x2D })
        else { throw .login }
        return RequestHead(
            "GET", target,
            headers: ["Host": authority, "Connection": "Upgrade", "Upgrade": upgrade, login.header: login.value])
    }

    /// Connects, and adds a handler behind TLS.
    package func connect(
        on group: any EventLoopGroup, within time: TimeAmount, tls: TLSConfiguration = .makeClientConfiguration(),
        _ addHandler: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> any Channel {
        let context = isSecure ? try NIOSSLContext(configuration: tls) : nil
        let host = host
        return try await ClientBootstrap(group: group)
            .connectTimeout(time)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let context {
                        let name = (try? SocketAddress(ipAddress: host, port: 0)) == nil ? host : nil
                        try channel.pipeline.syncOperations.addHandler(
                            NIOSSLClientHandler(context: context, serverHostname: name))
                    }
                    try addHandler(channel)
                }
            }
            .connect(host: host, port: port).get()
    }
}
