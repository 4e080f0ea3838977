// One connection with an IRC server: bytes and timers for the machine, and its actions for the channel.

import Envelope
import IRCCodec
import NIOCore

/// What a connection reports, in order.
enum IRCConnectionEvent: Sendable {
    case ready
    /// The server does not accept nick or login.
    case refused(String)
    case envelope([UInt8], from: String)
    case text(String, from: String, announces: Bool)
}

/// An event that counts for the bound was taken: the connection may read on.
struct IRCEventTaken: Sendable {}

/// Runs the machine of one connection on its event loop.
final class IRCChatHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = IRCOutgoing
    typealias OutboundOut = ByteBuffer

    /// Ours: events that wait for the messenger before the connection is no longer read.
    static let eventLimit = 32

    private let settings: IRCChatMachine.Settings
    private let events: AsyncStream<IRCConnectionEvent>.Continuation
    private var machine: IRCChatMachine?
    private var splitter = LineSplitter(limit: IRCLimits.tagsLength + IRCLimits.lineLength)
    private var promises: [UInt64: EventLoopPromise<Void>] = [:]
    private var lastTicket: UInt64 = 0
    private var waitingEvents = 0
    private var isReadHeld = false
    private var timer: Scheduled<Void>?

    init(_ settings: IRCChatMachine.Settings, _ events: AsyncStream<IRCConnectionEvent>.Continuation) {
        (self.settings, self.events) = (settings, events)
    }

    private var now: Int64 { Int64(clamping: NIODeadline.now().uptimeNanoseconds) }

    // MARK: Channel

    func channelActive(context: ChannelHandlerContext) {
        var machine = IRCChatMachine(settings, now: now)
        let actions = machine.opened()
        self.machine = machine
        perform(actions, context)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        while let piece = splitter.next(&bytes) {
            guard case .line(let line, let content) = piece,
                let line = line.getSlice(at: line.readerIndex, length: content)
            else { continue }
            perform(machine?.received(line, now: now) ?? [], context)
        }
    }

    func read(context: ChannelHandlerContext) {
        guard waitingEvents < Self.eventLimit else {
            isReadHeld = true
            return
        }
        context.read()
    }

    func triggerUserOutboundEvent(context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?) {
        guard event is IRCEventTaken else { return context.triggerUserOutboundEvent(event, promise: promise) }
        waitingEvents -= 1
        if isReadHeld, waitingEvents < Self.eventLimit {
            isReadHeld = false
            context.read()
        }
        promise?.succeed()
    }

    /// Sends to a nick. The promise is kept until the server has taken the message.
    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let outgoing = unwrapOutboundIn(data)
        guard machine != nil else {
            promise?.fail(IRCSendFailure.offline)
            return
        }
        var ticket: UInt64?
        if let promise {
            lastTicket += 1
            promises[lastTicket] = promise
            ticket = lastTicket
        }
        perform(machine?.send(outgoing, ticket, now: now) ?? [], context)
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        perform(machine?.closed() ?? [], context)
        machine = nil
        events.finish()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    // MARK: Actions

    private func perform(_ actions: [IRCChatMachine.Action], _ context: ChannelHandlerContext) {
        var writes = false
        for action in actions {
            switch action {
            case .write(let line):
                context.write(wrapOutboundOut(line), promise: nil)
                writes = true
            case .ready: events.yield(.ready)
            case .refused(let reason): events.yield(.refused(reason))
            case .close: context.close(promise: nil)
            case .envelope(let bytes, let nick): report(.envelope(bytes, from: nick))
            case .text(let text, let nick, let announces): report(.text(text, from: nick, announces: announces))
            case .sent(let ticket): promises.removeValue(forKey: ticket)?.succeed()
            case .failed(let ticket, let failure): promises.removeValue(forKey: ticket)?.fail(failure)
            }
        }
        if writes { context.flush() }
        schedule(context)
    }

    private func report(_ event: IRCConnectionEvent) {
        waitingEvents += 1
        events.yield(event)
    }

    private func schedule(_ context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        guard context.channel.isActive, let deadline = machine?.nextDeadline(now: now) else { return }
        let loopBound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        timer = context.eventLoop.scheduleTask(deadline: .uptimeNanoseconds(UInt64(max(deadline, now + 1_000_000)))) {
            let (handler, context) = loopBound.value
            handler.perform(handler.machine?.wake(now: handler.now) ?? [], context)
        }
    }
}
