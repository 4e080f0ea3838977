// The listeners for HTTP clients.

import JSONGateway
package import NIOCore
import NIOPosix
import NIOSSL
import NIOSupport
import Reports
import Synchronization

/// Accepts clients, and creates a connection for each.
package final class HTTPServer: ChatServer {
    private let services: HTTPServices
    private let group: MultiThreadedEventLoopGroup
    private let pools: UpstreamPools
    private let state = Mutex(State())
    private let connectionIDs: @Sendable () -> UInt64

    private struct State {
        package var listeners: [any Channel] = []
        package var connections: [ObjectIdentifier: any Channel] = [:]
        /// Connections over the limit whose first request is read before it is refused.
        var refused: [ObjectIdentifier: any Channel] = [:]
        /// Connections over the limit that get the refusal at once.
        var refusedAtOnce: [ObjectIdentifier: any Channel] = [:]
        package var isDraining = false
        var controlSocket: ControlSocket?

        var all: [any Channel] {
            Array(connections.values) + Array(refused.values) + Array(refusedAtOnce.values)
        }

        /// Counts a connection over the limit.
        mutating func refuse(_ channel: any Channel) -> Refusal {
            if refused.count < HTTPServer.refusedLimit {
                refused[ObjectIdentifier(channel)] = channel
                return .afterRequest
            }
            guard refusedAtOnce.count < HTTPServer.refusedAtOnceLimit else { return .withoutWords }
            refusedAtOnce[ObjectIdentifier(channel)] = channel
            return .atOnce
        }

        mutating func remove(_ channel: any Channel) {
            let id = ObjectIdentifier(channel)
            connections[id] = nil
            refused[id] = nil
            refusedAtOnce[id] = nil
        }
    }

    /// How a connection over the limit is refused.
    private enum Refusal { case afterRequest, atOnce, withoutWords }

    /// Ours: connections over the limit whose first request is read, so that web pages can read its refusal. Others get
    /// the refusal at once.
    package static let refusedLimit = 64
    /// Ours: connections over the limit that get the refusal at once. With TLS that takes a handshake, for which they have
    /// ``HTTPLimits/headTime``. Others are closed, so that clients do not use up the descriptors of the process.
    package static let refusedAtOnceLimit = 128

    /// The ALPN protocols of listeners with TLS, preferred first. RFC 7301. WebSockets need HTTP/1.1.
    package static let protocols = [HTTP2Connection.protocolName, "http/1.1"]

    /// - Parameters:
    ///   - pools: the connections to the backend; their group serves the clients too.
    ///   - connectionIDs: random numbers that are never used twice.
    package init(services: HTTPServices, pools: UpstreamPools, connectionIDs: @escaping @Sendable () -> UInt64) {
        self.services = services
        self.pools = pools
        self.connectionIDs = connectionIDs
        group = pools.group
    }

    /// Binds all listeners, or none: throws ``ListenFailure`` if one fails.
    ///
    /// - Returns: the bound addresses with their actual ports.
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
            if let options = services.controlSocket {
                let socket = ControlSocket(options, services: services, pools: pools, connectionIDs: connectionIDs)
                do {
                    try await socket.start()
                } catch {
                    throw ListenFailure(host: options.path, port: nil, error: error)
                }
                state.withLock { $0.controlSocket = socket }
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
            .transientReadBuffers()
            .childChannelOption(.socketOption(.so_keepalive), value: 1)
            .childChannelOption(.writeBufferWaterMark, value: .init(low: window / 2, high: window))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try self.accept(channel, usesTLS: usesTLS) }
            }
    }

    private func accept(_ channel: any Channel, usesTLS: Bool) throws {
        let options = services.downstream()
        let tls = usesTLS ? options.tls : nil
        // A TLS listener without a certificate accepts nothing.
        guard tls != nil || !usesTLS, let pool = pools[channel.eventLoop] else {
            throw ChannelError.operationUnsupported
        }
        let (refusal, manner): (String?, Refusal?) = state.withLock { state in
            if state.isDraining {
                return ("The gateway is being shut down. Try again later.", state.refuse(channel))
            }
            guard state.connections.count < options.connectionLimit else {
                return ("The gateway is full. Try again later.", state.refuse(channel))
            }
            state.connections[ObjectIdentifier(channel)] = channel
            return (nil, nil)
        }
        channel.closeFuture.whenComplete { _ in self.state.withLock { $0.remove(channel) } }
        services.environment.tally.add(refusal == nil ? .connectionsAccepted : .connectionsRefused)
        if manner == .withoutWords { throw ChannelError.operationUnsupported }
        try channel.pipeline.syncOperations.addGate(options.gate, dropsAtClose: false)
        if let refusal, manner == .atOnce { return try refuse(channel, refusal, tls) }
        let origin = ExchangeOrigin(
            channel, services: services, pool: pool, isSecure: usesTLS, firstID: connectionIDs())
        if let refusal {
            origin.refusal = (
                refusal, { channel.pipeline.fireUserInboundEventTriggered(HTTPServerEvent.drain) }
            )
        }
        let connection = HTTPConnection(channel: channel, origin: origin)
        if let tls, !connection.expectsHeaderBeforeTLS {
            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls))
        }
        try channel.pipeline.syncOperations.addHandler(HTTPHandler(connection))
    }

    /// Refuses a client before it has sent a request.
    private func refuse(_ channel: any Channel, _ reason: String, _ tls: NIOSSLContext?) throws {
        if let tls { try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls)) }
        let (head, body) = GatewayFault.unavailable(reason).answer(services.environment.mapping, to: nil)
        try channel.pipeline.syncOperations.addHandler(
            HTTPRefusal(head, body, waitsForTLS: tls != nil, limit: services.limits.headTime))
    }

    /// Number of open connections.
    package var connectionCount: Int { state.withLock { $0.connections.count } }

    package var isDraining: Bool { state.withLock { $0.isDraining } }

    /// Applies new upstream options: closes idle connections to the backend at once, others after use.
    package func renewUpstream() { pools.renew() }

    /// Stops accepting clients. Completes requests in progress and then closes their connections; WebSockets stay.
    ///
    /// Returns when every connection has received the event: each answer that begins later ends its connection.
    package func drain() async {
        let (listeners, connections) = state.withLock { state in
            state.isDraining = true
            defer { state.listeners = [] }
            return (state.listeners, state.all)
        }
        for listener in listeners { try? await listener.close() }
        state.withLock { $0.controlSocket }?.drain()
        await notify(connections, .drain)
    }

    private func notify(_ connections: [any Channel], _ event: HTTPServerEvent) async {
        let notified = connections.map { channel in
            channel.eventLoop.submit { channel.pipeline.fireUserInboundEventTriggered(event) }
        }
        // A submission fails only after the end of its event loop, which ends the connections too.
        for future in notified { try? await future.get() }
    }

    /// Ends all connections: WebSockets at once, requests in progress after ``HTTPLimits/stopTime`` at most, also while the
    /// gate is closed.
    package func stop() async {
        await drain()
        let channels = state.withLock { $0.all }
        let gate = services.downstream().gate
        await notify(channels, .stop)
        let ending = group.next().scheduleTask(in: services.limits.stopTime) {
            // A closed gate would hold the closes too.
            gate?.end()
            for channel in channels { channel.close(promise: nil) }
        }
        for channel in channels { try? await channel.closeFuture.get() }
        ending.cancel()
        gate?.end()
        await state.withLock { $0.controlSocket }?.stop()
        await pools.stop()
    }
}
