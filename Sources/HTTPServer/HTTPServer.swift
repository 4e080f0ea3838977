// The listeners for HTTP clients.

import JSONGateway
package import NIOCore
package import NIOPosix
import NIOSSL
import NIOSupport
import Reports
import Synchronization

/// Accepts clients and gives each a connection. Listening and ending are the only things that others ask of it.
package final class HTTPServer: ChatServer {
    private let services: HTTPServices
    private let group: MultiThreadedEventLoopGroup
    private let pools: [ObjectIdentifier: UpstreamPool]
    private let state = Mutex(State())
    private let connectionIDs: @Sendable () -> UInt64

    private struct State {
        package var listeners: [any Channel] = []
        package var connections: [ObjectIdentifier: any Channel] = [:]
        package var isDraining = false
    }

    /// What listeners with TLS offer, the best first: RFC 7301. A WebSocket is asked for in the second.
    package static let protocols = [HTTP2Connection.protocolName, "http/1.1"]

    /// - Parameter connectionIDs: random numbers that are never used twice.
    package init(
        services: HTTPServices, group: MultiThreadedEventLoopGroup, connectionIDs: @escaping @Sendable () -> UInt64
    ) {
        self.services = services
        self.group = group
        self.connectionIDs = connectionIDs
        var pools: [ObjectIdentifier: UpstreamPool] = [:]
        for loop in group.makeIterator() {
            pools[ObjectIdentifier(loop)] = UpstreamPool(services: services, eventLoop: loop)
        }
        self.pools = pools
    }

    /// Begins to listen everywhere, or nowhere.
    ///
    /// - Returns: the addresses, ports filled in.
    package func start() async throws -> [SocketAddress] {
        var channels: [any Channel] = []
        do {
            for listener in services.downstream().listeners {
                do {
                    channels.append(
                        try await bootstrap(usesTLS: listener.usesTLS).bind(host: listener.host, port: listener.port)
                            .get())
                } catch {
                    throw ListenFailure(host: listener.host, port: listener.port, error: error)
                }
            }
        } catch {
            for channel in channels { try? await channel.close() }
            throw error
        }
        let bound = channels
        state.withLock { $0.listeners = bound }
        return channels.compactMap(\.localAddress)
    }

    private func bootstrap(usesTLS: Bool) -> ServerBootstrap {
        let window = services.limits.window
        return ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelOption(.socketOption(.so_keepalive), value: 1)
            .childChannelOption(.writeBufferWaterMark, value: .init(low: window / 2, high: window))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try self.accept(channel, usesTLS: usesTLS) }
            }
    }

    private func accept(_ channel: any Channel, usesTLS: Bool) throws {
        let options = services.downstream()
        let refusal: String? = state.withLock { state in
            guard !state.isDraining else { return "The gateway is being shut down. Try again later." }
            guard state.connections.count < options.connectionLimit else {
                return "The gateway is full. Try again later."
            }
            state.connections[ObjectIdentifier(channel)] = channel
            return nil
        }
        let tls = usesTLS ? options.tls : nil
        // A listener for TLS without a certificate speaks nothing.
        guard tls != nil || !usesTLS, let pool = pools[ObjectIdentifier(channel.eventLoop)] else {
            throw ChannelError.operationUnsupported
        }
        if let refusal { return try refuse(channel, refusal, tls) }
        services.environment.tally.add(.connectionsAccepted)
        channel.closeFuture.whenComplete { _ in
            self.state.withLock { $0.connections[ObjectIdentifier(channel)] = nil }
        }
        let connection = HTTPConnection(channel: channel, pool: pool, isSecure: usesTLS, firstID: connectionIDs())
        if let tls, !connection.expectsHeaderBeforeTLS {
            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls))
        }
        try channel.pipeline.syncOperations.addHandler(HTTPHandler(connection))
    }

    private func refuse(_ channel: any Channel, _ reason: String, _ tls: NIOSSLContext?) throws {
        services.environment.tally.add(.connectionsRefused)
        if let tls { try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls)) }
        let (head, body) = GatewayFault.unavailable(reason).answer(services.environment.mapping, to: nil)
        try channel.pipeline.syncOperations.addHandler(
            HTTPRefusal(head, body, waitsForTLS: tls != nil, limit: services.limits.headTime))
    }

    /// Connections that are open.
    package var connectionCount: Int { state.withLock { $0.connections.count } }

    package var isDraining: Bool { state.withLock { $0.isDraining } }

    /// The backend is reached another way from now on: connections that wait are closed, the others when they are done.
    package func renewUpstream() {
        for loop in group.makeIterator() {
            guard let pool = pools[ObjectIdentifier(loop)] else { continue }
            loop.execute { pool.renew() }
        }
    }

    /// Takes no more clients. Requests that are under way are answered, and their connections end with that; WebSockets stay.
    package func drain() async {
        let (listeners, connections) = state.withLock { state in
            state.isDraining = true
            defer { state.listeners = [] }
            return (state.listeners, Array(state.connections.values))
        }
        for listener in listeners { try? await listener.close() }
        for channel in connections { channel.pipeline.fireUserInboundEventTriggered(HTTPServerEvent.drain) }
    }

    /// Ends all connections: WebSockets with a word, requests that are under way after a while.
    package func stop() async {
        await drain()
        let channels = state.withLock { Array($0.connections.values) }
        let limit = services.limits.stopTime
        for channel in channels {
            channel.pipeline.fireUserInboundEventTriggered(HTTPServerEvent.stop)
            let ending = channel.eventLoop.scheduleTask(in: limit) { channel.close(promise: nil) }
            channel.closeFuture.whenComplete { _ in ending.cancel() }
        }
        for channel in channels { try? await channel.closeFuture.get() }
        for loop in group.makeIterator() {
            guard let pool = pools[ObjectIdentifier(loop)] else { continue }
            try? await loop.submit { pool.stop() }.get()
        }
    }
}
