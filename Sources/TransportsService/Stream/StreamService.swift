// What all transports over sockets do with their connections. Requests run in tasks; replies leave in the order in which
// they are ready. A connection is counted from its accept, so clients that send nothing are bounded in number and time.

import Foundation
package import NIOCore
import Synchronization
import TransportCodec
package import TransportsCore

/// The connections of one bound transport.
package final class StreamService: Sendable {
    private struct State: Sendable {
        var processing: Processing?
        var connections: [ObjectIdentifier: ServiceConnection] = [:]
        var isDraining = false
        /// Set when the last connection is closed.
        var idle: Once<Void>?
    }

    package let limits: TransportLimits
    private let state: Mutex<State>

    package init(_ processing: Processing, limits: TransportLimits) {
        self.limits = limits
        state = Mutex(State(processing: processing))
    }

    /// Counts a new connection and gives it a time to greet. The caller adds the handler when the bytes of frames begin.
    ///
    /// - Returns: nil if there are too many connections or none is accepted any more; the caller closes the channel.
    package func accept(_ channel: any Channel) -> (any ChannelInboundHandler & Sendable)? {
        let connection = ServiceConnection(self, channel)
        let isAccepted = state.withLock { state in
            guard state.processing != nil, !state.isDraining, state.connections.count < limits.connections else {
                return false
            }
            state.connections[ObjectIdentifier(connection)] = connection
            return true
        }
        guard isAccepted else { return nil }
        channel.closeFuture.whenComplete { [self] _ in ended(connection) }
        return ServiceFrameHandler(connection, limits)
    }

    private func ended(_ connection: ServiceConnection) {
        connection.cancelAll()
        let idle = state.withLock { state in
            state.connections[ObjectIdentifier(connection)] = nil
            guard state.connections.isEmpty else { return nil as Once<Void>? }
            defer { state.idle = nil }
            return state.idle
        }
        idle?.fulfil(())
    }

    /// What processes requests; nil when the transport has stopped.
    fileprivate var processing: Processing? { state.withLock { $0.processing } }

    /// Accepts no more connections and requests, and returns when all connections are closed.
    package func drain() async {
        let (connections, idle) = state.withLock { state in
            state.isDraining = true
            if !state.connections.isEmpty, state.idle == nil { state.idle = Once() }
            return (Array(state.connections.values), state.connections.isEmpty ? nil : state.idle)
        }
        for connection in connections { connection.drain() }
        await idle?.value { idle?.fulfil(()) }
    }

    /// Stops at once: requests under way are cancelled, connections are closed, the processor is dropped.
    package func stop() {
        let connections = state.withLock { state in
            state.processing = nil
            return Array(state.connections.values)
        }
        for connection in connections { connection.stop() }
    }
}

/// One connection, for the event loop and for the tasks of its requests.
private final class ServiceConnection: Sendable {
    private struct State: Sendable {
        var running: [UInt64: Task<Void, Never>] = [:]
        var hasGreeted = false
        /// Whether the greeting was not accepted. The connection ends after the reason, and serves nothing before that.
        var isRefused = false
        var isDraining = false
    }

    let service: StreamService
    let outbox: FrameOutbox
    private let state = Mutex(State())

    init(_ service: StreamService, _ channel: any Channel) {
        self.service = service
        outbox = FrameOutbox(channel: channel)
        channel.eventLoop.scheduleTask(in: TimeAmount(service.limits.handshake)) { [weak self] in
            guard let self, !state.withLock({ $0.hasGreeted }) else { return }
            outbox.channel.close(promise: nil)
        }
    }

    /// - Returns: false if the client does not follow the protocol.
    func handle(_ frame: Frame) -> Bool {
        // The client may have sent requests before it could read that they are not served.
        guard !state.withLock({ $0.isRefused }) else { return true }
        return switch frame {
        case .hello(let version, let proto): greet(version, proto)
        case .request(let id, let request): start(id, request)
        case .cancel(let id): cancel(id)
        case .welcome, .unavailable, .reply, .failure, .drain: false
        }
    }

    private func greet(_ version: UInt8, _ proto: ByteBuffer) -> Bool {
        let isFirst = state.withLock { state in
            defer { state.hasGreeted = true }
            return !state.hasGreeted
        }
        guard isFirst else { return false }
        let name = proto.readableBytesView.withContiguousStorageIfAvailable { String(validating: $0, as: UTF8.self) }
        guard let name = name ?? nil, ProtocolID(name).isAllowed else { return false }
        let reason: String? =
            if version != Frame.version {
                "the service speaks version \(Frame.version) and not \(version)"
            } else if state.withLock({ $0.isDraining }) {
                "the service is closing"
            } else if service.processing?.supports(ProtocolID(name)) != true {
                "the service does not have the protocol \(name)"
            } else {
                nil
            }
        if let reason {
            state.withLock { $0.isRefused = true }
            outbox.append(.unavailable(reason: ByteBuffer(string: reason)))
            outbox.close()
        } else {
            outbox.append(.welcome(version: Frame.version))
        }
        return true
    }

    private func start(_ id: UInt64, _ request: ByteBuffer) -> Bool {
        guard let processing = service.processing else {
            fail(id, .closed(reason: "the service is closed"))
            return true
        }
        let data = Data(request.readableBytesView)
        let limits = service.limits
        enum Start { case started, notAllowed, refused(TesseractError) }
        let start: Start = state.withLock { state in
            guard state.hasGreeted, state.running[id] == nil else { return .notAllowed }
            guard !state.isDraining else { return .refused(.closed(reason: "the service is closing")) }
            guard state.running.count < limits.inFlight else { return .refused(.busy) }
            state.running[id] = Task { [self] in
                let reply = Task.isCancelled ? .failure(.cancelled) : await processing.process(data)
                finish(id, reply.bounded(limits))
            }
            return .started
        }
        switch start {
        case .started: return true
        case .notAllowed: return false
        case .refused(let error):
            fail(id, error)
            return true
        }
    }

    private func finish(_ id: UInt64, _ reply: Reply) {
        let (isWanted, isLast) = state.withLock { state in
            let isWanted = state.running.removeValue(forKey: id) != nil
            return (isWanted, isWanted && state.isDraining && state.running.isEmpty)
        }
        guard isWanted else { return }
        switch reply {
        case .success(let data): outbox.append(.reply(id: id, ByteBuffer(bytes: data)))
        case .failure(let error): fail(id, error)
        }
        if isLast { outbox.close() }
    }

    private func fail(_ id: UInt64, _ error: TesseractError) {
        outbox.append(.failure(id: id, code: error.code, reason: ByteBuffer(string: error.reason)))
    }

    /// The client does not wait for a reply: none is sent. An id that is not under way was answered before.
    private func cancel(_ id: UInt64) -> Bool {
        let (task, isLast) = state.withLock { state in
            let task = state.running.removeValue(forKey: id)
            return (task, task != nil && state.isDraining && state.running.isEmpty)
        }
        task?.cancel()
        if isLast { outbox.close() }
        return state.withLock { $0.hasGreeted }
    }

    func drain() {
        let (isIdle, hasGreeted) = state.withLock { state in
            state.isDraining = true
            return (state.running.isEmpty, state.hasGreeted)
        }
        // Before the greeting a WebSocket's pipeline may still speak HTTP.
        guard hasGreeted else { return outbox.channel.close(promise: nil) }
        outbox.append(.drain)
        if isIdle { outbox.close() }
    }

    func stop() {
        cancelAll()
        outbox.channel.close(promise: nil)
    }

    func cancelAll() {
        let tasks = state.withLock { state in
            defer { state.running = [:] }
            return Array(state.running.values)
        }
        for task in tasks { task.cancel() }
    }
}

/// Reads a client's frames.
private final class ServiceFrameHandler: ChannelInboundHandler, @unchecked Sendable {
    // Unchecked: the handler is made on its channel's event loop and used only there.
    typealias InboundIn = ByteBuffer

    private let connection: ServiceConnection
    private let limits: TransportLimits
    private var reader: FrameReader

    init(_ connection: ServiceConnection, _ limits: TransportLimits) {
        (self.connection, self.limits) = (connection, limits)
        // A stranger may send no more than a greeting.
        reader = FrameReader(limit: Frame.headSize + 1 + ProtocolID.sizeLimit)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        reader.append(unwrapInboundIn(data))
        do {
            while let frame = try reader.next() {
                guard connection.handle(frame) else { return context.close(promise: nil) }
                reader.limit = Frame.lengthLimit(message: limits.message)
            }
        } catch {
            context.close(promise: nil)
        }
    }

    /// A client that does not read its replies is not read for.
    func channelWritabilityChanged(context: ChannelHandlerContext) {
        try? context.channel.syncOptions?.setOption(.autoRead, value: context.channel.isWritable)
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
