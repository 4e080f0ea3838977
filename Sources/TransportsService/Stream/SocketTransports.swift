import Foundation
public import NIOCore
import NIOHTTP1
public import NIOPosix
public import NIOSSL
import NIOWebSocket
import Synchronization
public import TransportsCore

/// Serves clients over a Unix socket. Unless a mode says otherwise, only its owner may open it.
public final class UnixTransport: Transport {
    private let path: String
    private let mode: UInt16
    private let limits: TransportLimits
    private let group: any EventLoopGroup

    /// - Parameters:
    ///   - path: The socket's path, at most 107 bytes on Linux. A socket that a dead process left is replaced; one that
    ///     answers is not.
    ///   - mode: Who may open it, as for `chmod`; the file belongs to the user and the group of the process. With 0660
    ///     that is also everybody in the group.
    ///   - group: The threads of the connections.
    public init(
        path: String, mode: UInt16 = 0o600, limits: TransportLimits = TransportLimits(),
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) {
        (self.path, self.mode, self.limits, self.group) = (path, mode, limits, group)
    }

    /// Starts listening; `ready()` of the bound transport returns why it does not.
    public func bind(processor: TransportProcessor) -> any BoundTransport {
        let service = StreamService(processor.processing, limits: limits)
        let (path, mode, group) = (path, mode, group)
        let identity = Mutex<UnixSocketFile?>(nil)
        return SocketBound(
            service,
            listen: {
                let (socket, file) = try UnixSocketFile.bind(path, mode: mode)
                identity.withLock { $0 = file }
                return try await ServerBootstrap(group: group)
                    .childChannelInitializer { channel in
                        channel.eventLoop.makeCompletedFuture {
                            guard let handler = service.accept(channel) else { throw TesseractError.busy }
                            try channel.pipeline.syncOperations.addHandler(handler)
                        }
                    }
                    .withBoundSocket(socket).get()
            },
            cleanUp: { identity.withLock { $0 }?.remove() })
    }
}

/// Serves clients over TCP with TLS. There is no TCP without TLS.
public final class TCPTransport: Transport {
    private let address: (host: String, port: Int)
    private let security: NIOSSLContext
    private let limits: TransportLimits
    private let group: any EventLoopGroup

    /// - Parameters:
    ///   - port: 0 for a free one, which ``port(of:)`` returns.
    ///   - tls: Certificate and key, and whether clients need certificates of their own.
    ///   - group: The threads of the connections.
    /// - Throws: an error of NIOSSL if the TLS configuration cannot be used.
    public init(
        host: String, port: Int, tls: TLSConfiguration, limits: TransportLimits = TransportLimits(),
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) throws {
        security = try NIOSSLContext(configuration: tls)
        (address, self.limits, self.group) = ((host, port), limits, group)
    }

    /// Starts listening; `ready()` of the bound transport returns why it does not.
    public func bind(processor: TransportProcessor) -> any BoundTransport {
        let service = StreamService(processor.processing, limits: limits)
        let (address, security, group) = (address, security, group)
        return SocketBound(service) {
            try await ServerBootstrap(group: group)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        guard let handler = service.accept(channel) else { throw TesseractError.busy }
                        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: security))
                        try channel.pipeline.syncOperations.addHandler(handler)
                    }
                }
                .bind(host: address.host, port: address.port).get()
        }
    }

    /// The port on which a bound transport listens; nil if it does not listen on a port.
    public static func port(of bound: any BoundTransport) async -> Int? { await (bound as? SocketBound)?.port() }
}

/// Serves clients over WebSocket (RFC 6455).
public final class WebSocketTransport: Transport {
    private let address: (host: String, port: Int)
    private let path: String
    private let origins: Set<String>
    private let security: NIOSSLContext?
    private let limits: TransportLimits
    private let group: any EventLoopGroup

    /// - Parameters:
    ///   - port: 0 for a free one, which ``port(of:)`` returns.
    ///   - path: The path of the request; others are refused.
    ///   - origins: Web pages that may connect, as in the `Origin` field. Requests without that field come from
    ///     programs and are accepted; a browser always sends it.
    ///   - tls: nil for connections without TLS. Use that on loopback only: requests and replies are readable.
    ///   - group: The threads of the connections.
    /// - Throws: an error of NIOSSL if the TLS configuration cannot be used.
    public init(
        host: String, port: Int, path: String = "/", origins: Set<String> = [], tls: TLSConfiguration?,
        limits: TransportLimits = TransportLimits(),
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) throws {
        security = try tls.map { try NIOSSLContext(configuration: $0) }
        (address, self.path, self.origins, self.limits, self.group) = ((host, port), path, origins, limits, group)
    }

    /// Starts listening; `ready()` of the bound transport returns why it does not.
    public func bind(processor: TransportProcessor) -> any BoundTransport {
        let service = StreamService(processor.processing, limits: limits)
        let (address, security, group, path, origins) = (address, security, group, path, origins)
        return SocketBound(service) {
            try await ServerBootstrap(group: group)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        guard let handler = service.accept(channel) else { throw TesseractError.busy }
                        if let security {
                            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: security))
                        }
                        try Self.upgrade(channel, path, origins, handler)
                    }
                }
                .bind(host: address.host, port: address.port).get()
        }
    }

    private static func upgrade(
        _ channel: any Channel, _ path: String, _ origins: Set<String>, _ handler: any ChannelInboundHandler & Sendable
    ) throws {
        let upgrader = NIOTypedWebSocketServerUpgrader<Void>(
            maxFrameSize: WebSocketStreamHandler.frameLimit,
            shouldUpgrade: { channel, head in
                let isAllowed = head.uri == path && head.headers["Origin"].allSatisfy(origins.contains)
                return channel.eventLoop.makeSucceededFuture(isAllowed ? HTTPHeaders() : nil)
            },
            upgradePipelineHandler: { channel, _ in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(WebSocketStreamHandler(isClient: false))
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            })
        let configuration = NIOTypedHTTPServerUpgradeConfiguration(
            upgraders: [upgrader], notUpgradingCompletionHandler: { channel in channel.close() })
        _ = try channel.pipeline.syncOperations.configureUpgradableHTTPServerPipeline(
            configuration: .init(upgradeConfiguration: configuration))
    }

    /// The port on which a bound transport listens; nil if it does not listen on a port.
    public static func port(of bound: any BoundTransport) async -> Int? { await (bound as? SocketBound)?.port() }
}
