// Holds what connections read and write while a gateway may not act on what it knows: it has not read for a while whether
// another gateway has taken over.
//
// The question is asked when bytes are flushed towards the socket. The rules:
//
// - What is held passes in its order, after the gate has opened.
// - A stream has no holes: a connection that loses something of what it holds is closed.
// - A connection that ends, by its peer or by the gateway, is held for a bounded time.
// - Once the gate is ended, a connection that holds something is closed.
//
// What remains: bytes that were flushed before and wait in the buffers of the connection or of the kernel, because the peer
// does not read; and a thread that is stopped between the question and the system call.

import DequeModule
package import NIOCore
import Synchronization

/// The gate of all connections of a process.
package final class ActGate: Sendable {
    private struct State {
        var isEnded = false
        /// The connections that hold something, or that want to read.
        var waiting: [ObjectIdentifier: @Sendable () -> Void] = [:]
    }

    /// Ours: how long a connection that ends is held. Its peer may have gone, and a database that is away may never answer.
    package static let endPatience = TimeAmount.seconds(60)

    private let ask: @Sendable () -> Bool
    private let state = Mutex(State())

    /// - Parameter isOpen: whether the gateway may act; called for each act, on any thread.
    package init(isOpen: @escaping @Sendable () -> Bool) { ask = isOpen }

    package var isOpen: Bool { ask() }

    fileprivate var isEnded: Bool { state.withLock { $0.isEnded } }

    /// The number of connections that wait for the gate.
    package var waitingCount: Int { state.withLock { $0.waiting.count } }

    /// Wakes the connections that hold something, after the gate has opened.
    package func open() { wake() }

    /// From now on a connection that would hold something is closed, so that none outlives the server.
    package func end() {
        state.withLock { $0.isEnded = true }
        wake()
    }

    private func wake() {
        let waiting = state.withLock { state in
            defer { state.waiting = [:] }
            return state.waiting.values
        }
        for wake in waiting { wake() }
    }

    /// Calls a closure once, after the next ``open()`` or ``end()``; at once if the gate is ended. The gate may have opened
    /// meanwhile: the next answer to a beat calls it.
    fileprivate func wait(_ connection: ObjectIdentifier, _ body: @escaping @Sendable () -> Void) {
        let isEnded = state.withLock { state in
            if !state.isEnded { state.waiting[connection] = body }
            return state.isEnded
        }
        if isEnded { body() }
    }

    fileprivate func forget(_ connection: ObjectIdentifier) { state.withLock { $0.waiting[connection] = nil } }
}

extension ChannelPipeline.SynchronousOperations {
    /// Adds the handler of a gate, if there is one. It is the first handler, next to the socket.
    ///
    /// - Parameter dropsAtClose: whether a close drops what is held, as to a backend: what a request that was given up has
    ///   not sent yet must not be sent later. Otherwise a close waits, so that a client gets what was written before.
    package func addGate(_ gate: ActGate?, dropsAtClose: Bool) throws {
        if let gate { try addHandler(ActGateHandler(gate, dropsAtClose: dropsAtClose), position: .first) }
    }

    /// Adds a handler in front of all others, behind the gate if there is one.
    ///
    /// What the gate holds was written before: it must not pass through this handler.
    package func addBehindGate(_ handler: some ChannelHandler) throws {
        if let gate = try? self.handler(type: ActGateHandler.self) {
            try addHandler(handler, position: .after(gate))
        } else {
            try addHandler(handler, position: .first)
        }
    }
}

/// The gate of one connection.
private final class ActGateHandler: ChannelDuplexHandler {
    typealias InboundIn = Any
    typealias InboundOut = Any
    typealias OutboundIn = Any
    typealias OutboundOut = Any

    private enum Output {
        case write(NIOAny, EventLoopPromise<Void>?)
        case flush
        case close(CloseMode, EventLoopPromise<Void>?)
    }

    private enum Input {
        case read(NIOAny)
        case complete
        case event(Any)
    }

    private let gate: ActGate
    private let dropsAtClose: Bool
    /// In their order. What a connection holds is bounded by what its peers had sent before: nothing more is read.
    private var outputs: Deque<Output> = []
    private var inputs: Deque<Input> = []
    private var isReadHeld = false
    private var isWaiting = false
    /// Whether the peer has ended its input, or a close is held.
    private var isEnding = false
    /// The end of patience with a connection that ends.
    private var deadline: Scheduled<Void>?
    private var isClosed = false

    init(_ gate: ActGate, dropsAtClose: Bool) { (self.gate, self.dropsAtClose) = (gate, dropsAtClose) }

    /// Whether nothing has to be held. A closed channel fails what is written to it.
    private var isOpen: Bool { gate.isOpen || isClosed }

    // MARK: Input

    func read(context: ChannelHandlerContext) {
        guard inputs.isEmpty, isOpen else {
            isReadHeld = true
            return wait(context)
        }
        context.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard inputs.isEmpty, isOpen else { return hold(.read(data), context) }
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        guard inputs.isEmpty else { return hold(.complete, context) }
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case ChannelEvent.inputClosed = event {
            isEnding = true
            // Its outputs may be held already.
            if isWaiting { wait(context) }
        }
        // The end of the input comes after the input.
        guard inputs.isEmpty else { return hold(.event(event), context) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        closed()
        context.fireChannelInactive()
    }

    // A channel that never was active does not become inactive.
    func handlerRemoved(context: ChannelHandlerContext) { closed() }

    // MARK: Output

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard outputs.isEmpty, isOpen else { return hold(.write(data, promise), context) }
        context.write(data, promise: promise)
    }

    func flush(context: ChannelHandlerContext) {
        guard outputs.isEmpty, isOpen else { return hold(.flush, context) }
        context.flush()
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        // A connection is closed at once if nothing has to be sent before.
        guard !outputs.isEmpty, mode == .output || !dropsAtClose else {
            return context.close(mode: mode, promise: promise)
        }
        isEnding = true
        hold(.close(mode, promise), context)
    }

    // MARK: What is held

    private func hold(_ output: Output, _ context: ChannelHandlerContext) {
        outputs.append(output)
        wait(context)
    }

    private func hold(_ input: Input, _ context: ChannelHandlerContext) {
        inputs.append(input)
        wait(context)
    }

    private func wait(_ context: ChannelHandlerContext) {
        let eventLoop = context.eventLoop
        if isEnding, deadline == nil {
            deadline = eventLoop.assumeIsolated().scheduleTask(in: ActGate.endPatience) { self.end(context) }
        }
        guard !isWaiting else { return }
        isWaiting = true
        let bound = NIOLoopBound((self, context), eventLoop: eventLoop)
        gate.wait(ObjectIdentifier(self)) { eventLoop.execute { bound.value.0.resume(bound.value.1) } }
    }

    /// Passes on what is held while the gate is open. What handlers write meanwhile comes after it.
    private func resume(_ context: ChannelHandlerContext) {
        while isOpen {
            if let output = outputs.popFirst() {
                pass(output, context)
            } else if let input = inputs.popFirst() {
                pass(input, context)
            } else {
                return resumed(context)
            }
        }
        isWaiting = false
        if gate.isEnded { end(context) } else { wait(context) }
    }

    private func resumed(_ context: ChannelHandlerContext) {
        isWaiting = false
        deadline?.cancel()
        deadline = nil
        guard isReadHeld else { return }
        isReadHeld = false
        context.read()
    }

    private func pass(_ output: Output, _ context: ChannelHandlerContext) {
        switch output {
        case .write(let data, let promise): context.write(data, promise: promise)
        case .flush: context.flush()
        case .close(let mode, let promise): context.close(mode: mode, promise: promise)
        }
    }

    private func pass(_ input: Input, _ context: ChannelHandlerContext) {
        switch input {
        case .read(let data): context.fireChannelRead(data)
        case .complete: context.fireChannelReadComplete()
        case .event(let event): context.fireUserInboundEventTriggered(event)
        }
    }

    /// Closes the connection. ``closed()`` drops what is held.
    private func end(_ context: ChannelHandlerContext) { context.close(mode: .all, promise: nil) }

    private func closed() {
        isClosed = true
        isReadHeld = false
        if isWaiting { gate.forget(ObjectIdentifier(self)) }
        deadline?.cancel()
        deadline = nil
        inputs = []
        while let output = outputs.popFirst() {
            switch output {
            case .write(_, let promise): promise?.fail(ChannelError.ioOnClosedChannel)
            case .flush: break
            case .close(_, let promise): promise?.succeed()
            }
        }
    }
}
