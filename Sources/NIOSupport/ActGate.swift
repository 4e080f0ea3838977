// Holds what connections read and write while a gateway may not act on what it knows: it has not read for a while whether
// another gateway has taken over.
//
// The question is asked when bytes are flushed towards the socket. What remains: bytes that were flushed before and wait in
// the buffers of the connection or of the kernel, because the peer does not read; and a thread that is stopped between the
// question and the system call.

package import NIOCore
import Synchronization

/// The gate of all connections of a process.
package final class ActGate: Sendable {
    private struct State {
        var isEnded = false
        var waiting: [@Sendable () -> Void] = []
    }

    private let ask: @Sendable () -> Bool
    private let state = Mutex(State())

    /// - Parameter isOpen: whether the gateway may act; called for each act, on any thread.
    package init(isOpen: @escaping @Sendable () -> Bool) { ask = isOpen }

    package var isOpen: Bool { ask() }

    fileprivate var isEnded: Bool { state.withLock { $0.isEnded } }

    /// Wakes the connections that hold something, after the gate has opened.
    package func open() { wake() }

    /// From now on what would be held is dropped, so that connections can be closed.
    package func end() {
        state.withLock { $0.isEnded = true }
        wake()
    }

    private func wake() {
        let waiting = state.withLock { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        for wake in waiting { wake() }
    }

    /// Calls a closure once, after the next ``open()`` or ``end()``. The gate may have opened meanwhile: the next answer to a
    /// beat calls it.
    fileprivate func wait(_ body: @escaping @Sendable () -> Void) {
        let isEnded = state.withLock { state in
            if !state.isEnded { state.waiting.append(body) }
            return state.isEnded
        }
        if isEnded { body() }
    }
}

extension ChannelPipeline.SynchronousOperations {
    /// Adds the handler of a gate, if there is one. It is the first handler, next to the socket.
    ///
    /// - Parameter dropsAtClose: whether a close drops what is held, as to a backend: what a request that was given up has
    ///   not sent yet must not be sent later. Otherwise a close waits, so that a client gets what was written before.
    package func addGate(_ gate: ActGate?, dropsAtClose: Bool) throws {
        if let gate { try addHandler(ActGateHandler(gate, dropsAtClose: dropsAtClose), position: .first) }
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
    private var outputs: [Output] = []
    private var inputs: [Input] = []
    private var isReadHeld = false
    private var isWaiting = false

    init(_ gate: ActGate, dropsAtClose: Bool) { (self.gate, self.dropsAtClose) = (gate, dropsAtClose) }

    // MARK: Input

    func read(context: ChannelHandlerContext) {
        guard inputs.isEmpty, gate.isOpen else {
            isReadHeld = true
            return wait(context)
        }
        context.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard inputs.isEmpty, gate.isOpen else { return hold(.read(data), context) }
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        guard inputs.isEmpty else { return hold(.complete, context) }
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // The end of the input comes after the input.
        guard inputs.isEmpty else { return hold(.event(event), context) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelInactive(context: ChannelHandlerContext) {
        drop()
        inputs = []
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { drop() }

    // MARK: Output

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard outputs.isEmpty, gate.isOpen else { return hold(.write(data, promise), context) }
        context.write(data, promise: promise)
    }

    func flush(context: ChannelHandlerContext) {
        guard outputs.isEmpty, gate.isOpen else { return hold(.flush, context) }
        context.flush()
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        // A connection is closed at once if nothing has to be sent before.
        guard !outputs.isEmpty, !gate.isEnded, mode == .output || !dropsAtClose else {
            drop()
            return context.close(mode: mode, promise: promise)
        }
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
        guard !isWaiting else { return }
        isWaiting = true
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let eventLoop = context.eventLoop
        gate.wait { eventLoop.execute { bound.value.0.resume(bound.value.1) } }
    }

    private func resume(_ context: ChannelHandlerContext) {
        isWaiting = false
        guard context.channel.isActive else { return }
        guard gate.isOpen else {
            guard gate.isEnded else { return wait(context) }
            return drop { context.close(mode: $0, promise: $1) }
        }
        let (held, arrived) = (outputs, inputs)
        (outputs, inputs) = ([], [])
        for output in held {
            switch output {
            case .write(let data, let promise): context.write(data, promise: promise)
            case .flush: context.flush()
            case .close(let mode, let promise): context.close(mode: mode, promise: promise)
            }
        }
        for input in arrived {
            switch input {
            case .read(let data): context.fireChannelRead(data)
            case .complete: context.fireChannelReadComplete()
            case .event(let event): context.fireUserInboundEventTriggered(event)
            }
        }
        guard isReadHeld else { return }
        isReadHeld = false
        context.read()
    }

    /// Drops what is held.
    ///
    /// - Parameter close: ends a close that was held.
    private func drop(_ close: (CloseMode, EventLoopPromise<Void>?) -> Void = { $1?.succeed() }) {
        let held = outputs
        outputs = []
        for output in held {
            switch output {
            case .write(_, let promise): promise?.fail(ChannelError.ioOnClosedChannel)
            case .flush: break
            case .close(let mode, let promise): close(mode, promise)
            }
        }
    }
}
