public import NIOCore
import NIOHTTP1
public import NIOPosix
public import NIOSSL
import NIOWebSocket
public import TransportsCore

/// Reaches a service over a Unix socket.
public final class UnixTransport: Transport {
    /// The name.
    public let id: String
    private let stream: StreamTransport

    /// - Parameters:
    ///   - path: The socket's path, at most 107 bytes on Linux.
    ///   - id: The name of this transport.
    ///   - group: The threads of the connections.
    public init(
        path: String, id: String = "unix", limits: TransportLimits = TransportLimits(),
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) {
        self.id = id
        stream = StreamTransport(limits: limits) { addHandler in
            try await ClientBootstrap(group: group)
                .channelInitializer { channel in channel.eventLoop.makeCompletedFuture { try addHandler(channel) } }
                .connect(unixDomainSocketPath: path).get()
        }
    }

    /// Connects and asks the service.
    public func status(proto: ProtocolID) async -> Status { await stream.status(proto) }

    /// A connection that connects with its first request.
    public func connect(proto: ProtocolID) -> any Connection { stream.connect(proto) }
}

/// Reaches a service over TCP with TLS. There is no TCP without TLS.
public final class TCPTransport: Transport {
    /// The name.
    public let id: String
    private let stream: StreamTransport

    /// - Parameters:
    ///   - host: A name or an address. The service's certificate has to be for it.
    ///   - tls: Trusted certificates, and the client's own certificate if the service asks for one.
    ///   - id: The name of this transport.
    ///   - group: The threads of the connections.
    /// - Throws: an error of NIOSSL if the TLS configuration cannot be used.
    public init(
        host: String, port: Int, tls: TLSConfiguration = .makeClientConfiguration(), id: String = "tcp",
        limits: TransportLimits = TransportLimits(),
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) throws {
        self.id = id
        let security = try ClientSecurity(tls, host: host)
        stream = StreamTransport(limits: limits) { addHandler in
            try await ClientBootstrap(group: group)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try security.addHandler(channel)
                        try addHandler(channel)
                    }
                }
                .connect(host: host, port: port).get()
        }
    }

    /// Connects and asks the service.
    public func status(proto: ProtocolID) async -> Status { await stream.status(proto) }

    /// A connection that connects with its first request.
    public func connect(proto: ProtocolID) -> any Connection { stream.connect(proto) }
}

/// Reaches a service over WebSocket (RFC 6455).
public final class WebSocketTransport: Transport {
    /// The name.
    public let id: String
    private let stream: StreamTransport

    /// - Parameters:
    ///   - host: A name or an address.
    ///   - path: The path of the request, with query.
    ///   - tls: nil for a connection without TLS. Use that on loopback only: requests and replies are readable.
    ///   - id: The name of this transport.
    ///   - group: The threads of the connections.
    /// - Throws: an error of NIOSSL if the TLS configuration cannot be used.
    public convenience init(
        host: String, port: Int, path: String = "/", tls: TLSConfiguration?, id: String = "websocket",
        limits: TransportLimits = TransportLimits(),
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) throws {
        try self.init(
            host: host, port: port, path: path, tls: tls, id: id, limits: limits, group: group, resolver: nil)
    }

    /// - Parameter resolver: Returns the addresses of the host; nil for those of the system.
    package init(
        host: String, port: Int, path: String, tls: TLSConfiguration?, id: String, limits: TransportLimits,
        group: any EventLoopGroup, resolver: (any Resolver & Sendable)?
    ) throws {
        self.id = id
        let security = try tls.map { try ClientSecurity($0, host: host) }
        stream = StreamTransport(limits: limits) { addHandler in
            // A host with several addresses gets a channel for each attempt (RFC 8305). Each has a result of its own,
            // so that the end of one that fails does not count as the end of the one that is used.
            let (channel, upgraded) = try await ClientBootstrap(group: group)
                .resolver(resolver)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .connect(host: host, port: port) { channel in
                    channel.eventLoop.makeCompletedFuture {
                        let upgraded = Once<Result<Void, TesseractError>>()
                        try security?.addHandler(channel)
                        try Self.upgrade(channel, "\(host):\(port)", path, upgraded, addHandler)
                        return (channel, upgraded)
                    }
                }
            do {
                try await upgraded.value { upgraded.fulfil(.failure(.cancelled)) }.get()
                return channel
            } catch {
                channel.close(promise: nil)
                throw error
            }
        }
    }

    private static func upgrade(
        _ channel: any Channel, _ host: String, _ path: String, _ upgraded: Once<Result<Void, TesseractError>>,
        _ addHandler: @escaping @Sendable (any Channel) throws -> Void
    ) throws {
        let upgrader = NIOTypedWebSocketClientUpgrader<Void>(
            maxFrameSize: WebSocketStreamHandler.frameLimit,
            upgradePipelineHandler: { channel, _ in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(WebSocketStreamHandler(isClient: true))
                    try addHandler(channel)
                }
            })
        let head = HTTPRequestHead(
            version: .http1_1, method: .GET, uri: path, headers: ["Host": host, "Content-Length": "0"])
        let configuration = NIOTypedHTTPClientUpgradeConfiguration(
            upgradeRequestHead: head, upgraders: [upgrader],
            notUpgradingCompletionHandler: { channel in
                channel.eventLoop.makeFailedFuture(
                    TesseractError.unavailable(reason: "the server does not offer a WebSocket there"))
            })
        channel.closeFuture.whenComplete { _ in
            upgraded.fulfil(.failure(.closed(reason: "the server closed the connection")))
        }
        try channel.pipeline.syncOperations.configureUpgradableHTTPClientPipeline(
            configuration: .init(upgradeConfiguration: configuration)
        ).whenComplete { result in
            switch result {
            case .success: upgraded.fulfil(.success(()))
            case .failure(let error as TesseractError): upgraded.fulfil(.failure(error))
            case .failure(let error): upgraded.fulfil(.failure(.unavailable(reason: "cannot connect: \(error)")))
            }
        }
    }

    /// Connects and asks the service.
    public func status(proto: ProtocolID) async -> Status { await stream.status(proto) }

    /// A connection that connects with its first request.
    public func connect(proto: ProtocolID) -> any Connection { stream.connect(proto) }
}

/// What the transports over sockets share.
private struct StreamTransport: Sendable {
    private let limits: TransportLimits
    private let dialer: Dialer

    init(
        limits: TransportLimits,
        _ connect:
            @escaping @Sendable (_ addHandler: @escaping @Sendable (any Channel) throws -> Void) async throws ->
            any Channel
    ) {
        self.limits = limits
        dialer = Dialer(connect: connect)
    }

    private func line(_ proto: ProtocolID) -> (line: StreamLine, table: ExchangeTable) {
        let table = ExchangeTable(limits: limits)
        return (StreamLine(dialer: dialer, proto: proto, table: table, limits: limits), table)
    }

    func status(_ proto: ProtocolID) async -> Status {
        let line = line(proto).line
        defer { line.close() }
        return Status(await line.open())
    }

    func connect(_ proto: ProtocolID) -> any Connection {
        let (line, table) = line(proto)
        return ExchangeConnection(line: line, table: table, limits: limits)
    }
}

/// The TLS of a client.
private struct ClientSecurity: Sendable {
    private let context: NIOSSLContext
    /// nil for an address: it is no name of a server (RFC 6066, section 3).
    private let name: String?

    init(_ configuration: TLSConfiguration, host: String) throws {
        context = try NIOSSLContext(configuration: configuration)
        name = (try? SocketAddress(ipAddress: host, port: 0)) == nil ? host : nil
    }

    func addHandler(_ channel: any Channel) throws {
        try channel.pipeline.syncOperations.addHandler(NIOSSLClientHandler(context: context, serverHostname: name))
    }
}
