// The listeners for IRC clients.

import DequeModule
import IRCGateway
package import NIOCore
package import NIOPosix
import NIOSupport
import Protection
import Reports
import Synchronization

/// Accepts clients and creates an ``IRCConnection`` for each.
package final class IRCServer: ChatServer {
    private let services: ConnectionServices
    private let group: MultiThreadedEventLoopGroup
    private let state = Mutex(State())
    private let connectionIDs: @Sendable () -> UInt64

    private struct State {
        package var listeners: [any Channel] = []
        package var connections: [ObjectIdentifier: IRCConnection] = [:]
        /// The number of channels without a connection yet, for the limit.
        var accepting = 0
        package var outputs: [ObjectIdentifier: LoopOutput] = [:]
        package var isDraining = false
    }

    /// The output object of one event loop. `@unchecked Sendable`, because only that loop uses it.
    private struct LoopOutput: @unchecked Sendable { let output = MachineOutput() }

    /// - Parameter connectionIDs: random numbers that are never used twice.
    package init(
        services: ConnectionServices, group: MultiThreadedEventLoopGroup,
        connectionIDs: @escaping @Sendable () -> UInt64
    ) {
        self.services = services
        self.group = group
        self.connectionIDs = connectionIDs
    }

    /// Listens on all addresses; on none if one fails.
    ///
    /// - Returns: the bound addresses with their ports.
    /// - Throws: ``ListenFailure``.
    package func start() async throws -> [SocketAddress] {
        var channels: [any Channel] = []
        do {
            for listener in services.downstream().listeners { channels.append(try await bind(listener)) }
        } catch {
            for channel in channels { try? await channel.close() }
            throw error
        }
        let bound = channels
        state.withLock { $0.listeners = bound }
        return channels.compactMap(\.localAddress)
    }

    private func bind(_ listener: ListenerOptions) async throws -> any Channel {
        do {
            return try await bootstrap(listener).bind(host: listener.host, port: listener.port).get()
        } catch {
            throw ListenFailure(host: listener.host, port: listener.port, error: error)
        }
    }

    private func bootstrap(_ listener: ListenerOptions) -> ServerBootstrap {
        ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .transientReadBuffers()
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try self.accept(channel, listener) }
            }
    }

    private func accept(_ channel: any Channel, _ listener: ListenerOptions) throws {
        let limit = services.downstream().connectionLimit
        let (output, refusal): (MachineOutput?, String?) = state.withLock { state in
            guard !state.isDraining else { return (nil, "The gateway is being shut down. Try again later.") }
            guard state.connections.count + state.accepting < limit else {
                return (nil, "The gateway is full. Try again later.")
            }
            state.accepting += 1
            let key = ObjectIdentifier(channel.eventLoop)
            let output = state.outputs[key] ?? LoopOutput()
            state.outputs[key] = output
            return (output.output, nil)
        }
        try channel.pipeline.syncOperations.addGate(services.downstream().gate, dropsAtClose: false)
        let tls = listener.usesTLS ? services.downstream().tlsHandler() : nil
        guard let output else {
            if let tls { try channel.pipeline.syncOperations.addHandler(tls) }
            services.environment.tally.add(.connectionsRefused)
            let words = refusal ?? ""
            let line =
                listener.usesWebSocket
                ? WebSocketHandshake.refusal(words) : ByteBuffer(string: "ERROR :\(words)\r\n")
            channel.eventLoop.execute {
                channel.writeAndFlush(line).whenComplete { _ in channel.close(promise: nil) }
            }
            return
        }
        let connection = IRCConnection(
            id: ConnectionID(connectionIDs()), downstream: channel, output: output, listener: listener,
            services: services)
        state.withLock { state in
            state.accepting -= 1
            state.connections[ObjectIdentifier(channel)] = connection
        }
        channel.closeFuture.whenComplete { _ in
            self.state.withLock { $0.connections[ObjectIdentifier(channel)] = nil }
        }
        if let tls, !connection.expectsHeaderBeforeTLS {
            try channel.pipeline.syncOperations.addHandler(tls)
        }
        try channel.pipeline.syncOperations.addHandler(DownstreamHandler(connection))
    }

    /// The number of open connections.
    package var connectionCount: Int { state.withLock { $0.connections.count } }

    package var isDraining: Bool { state.withLock { $0.isDraining } }

    /// Stops accepting clients. Open connections stay.
    package func drain() async {
        let listeners = state.withLock { state in
            state.isDraining = true
            defer { state.listeners = [] }
            return state.listeners
        }
        for listener in listeners { try? await listener.close() }
    }

    /// Ours: how long paced messages are still sent when the gateway is stopped. The service file allows 60 s for
    /// everything.
    private static let stopPatience: Duration = .seconds(20)
    /// Ours: how long backends may then take to deliver their last messages.
    private static let lastPongPatience: Duration = .seconds(2)
    /// Ours: how long a closed gate is waited for. One answer of the database that is late closes it for a moment; nothing
    /// can be sent while the database is away.
    private static let gatePatience: Duration = .seconds(2)

    /// Ends all connections with a notice, after their accepted messages are sent or the time for that is over.
    package func stop() async {
        await drain()
        let connections = state.withLock { Array($0.connections.values) }
        let unsettled = await step(.quiet, connections)
        if !unsettled.isEmpty {
            _ = await step(.announce, unsettled)
            await settle(unsettled, within: Self.stopPatience)
        }
        // The backend has every message now; the readers may be connected here too.
        await settle(await step(.probe, connections), within: Self.lastPongPatience)
        // A closed gate would hold the ends of connections too.
        services.downstream().gate?.end()
        for connection in connections { connection.end() }
        for connection in connections { try? await connection.downstream.closeFuture.get() }
    }

    /// - Returns: the connections that are not settled.
    private func step(_ step: IRCConnection.Stop, _ connections: [IRCConnection]) async -> [IRCConnection] {
        let answers = connections.map { $0.takeStep(step) }
        var unsettled: [IRCConnection] = []
        for (connection, answer) in zip(connections, answers) {
            let isSettled = try? await answer.get()
            if isSettled == false { unsettled.append(connection) }
        }
        return unsettled
    }

    /// Waits until connections are settled. Behind a closed gate none can be.
    private func settle(_ connections: [IRCConnection], within patience: Duration) async {
        let gate = services.downstream().gate
        let end = ContinuousClock.now + patience
        var (rest, lastOpen) = (connections, ContinuousClock.now)
        while !rest.isEmpty, ContinuousClock.now < min(end, lastOpen + Self.gatePatience) {
            try? await Task.sleep(for: .milliseconds(20))
            rest = await step(.look, rest)
            if gate?.isOpen != false { lastOpen = .now }
        }
    }
}
