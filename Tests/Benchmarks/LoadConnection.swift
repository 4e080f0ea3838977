import NIOCore

/// One unmodified client: it registers, says numbered texts to its peer, or in a room, and times those that arrive.
///
/// Belongs to one event loop.
final class LoadConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A power of two above the number of messages in flight, so that no send time is overwritten while it is needed.
    private static let sendTimes = 1024

    let nick: String
    private let record: LoadRecord
    private let registered: EventLoopPromise<Void>
    private var context: ChannelHandlerContext?
    private var reader = LineReader()
    private var outbound = ByteBuffer()
    private var owesFlush = false

    private unowned var peer: LoadConnection?
    private var answers = true
    private var template = ByteBuffer()
    private var sentAt: [UInt64] = []
    private var nextSent: UInt64 = 0
    private var nextExpected: UInt64 = 0
    /// The number of the last text of each speaker of the room.
    var received: [Int: UInt64] = [:]

    /// How many numbered texts have arrived.
    var arrived: UInt64 { self.nextExpected }
    /// How many numbered texts were said.
    var sent: UInt64 { self.nextSent }

    init(nick: String, record: LoadRecord, registered: EventLoopPromise<Void>) {
        self.nick = nick
        self.record = record
        self.registered = registered
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        self.write { $0.writeString("NICK \(self.nick)\r\nUSER bench 0 * :bench\r\n") }
        self.record.flush()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let now = NIODeadline.now().uptimeNanoseconds
        self.reader.read(Self.unwrapInboundIn(data)) { self.receive($0, now) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        self.record.flush()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.registered.fail(
            Failure("\(self.nick) was closed before it was registered; the last fault: \(self.record.lastFault)"))
        self.record.closed(self)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.record.fault("\(error)")
        self.registered.fail(error)
        context.close(promise: nil)
    }

    /// Names the other end of the conversation. Where `answers` is true each arrival is answered by the one that
    /// received it; otherwise the one that said it says the next.
    func talk(to peer: LoadConnection, answers: Bool) {
        self.peer = peer
        self.answers = answers
        self.sentAt = [UInt64](repeating: 0, count: Self.sendTimes)
        self.template.clear()
        self.template.writeString("PRIVMSG \(peer.nick) :")
        LoadText.writeFirst(to: &self.template)
        self.template.writeString("\r\n")
    }

    /// Says the next numbered text.
    func sendMessage(_ now: UInt64) {
        let number = self.nextSent
        self.nextSent += 1
        self.sentAt[Int(number) & (Self.sendTimes - 1)] = now
        let numberOffset = self.template.readableBytes - 2 - LoadText.length
        self.write { buffer in
            let start = buffer.writerIndex
            buffer.writeImmutableBuffer(self.template)
            LoadText.setNumber(number, in: &buffer, at: start + numberOffset)
        }
    }

    /// Says a numbered text in a room, or to somebody.
    func sendMessage(_ number: UInt64, to target: String) {
        self.write { buffer in
            buffer.writeString("PRIVMSG \(target) :")
            let start = buffer.writerIndex
            LoadText.writeFirst(to: &buffer)
            LoadText.setNumber(number, in: &buffer, at: start)
            buffer.writeStaticString("\r\n")
        }
    }

    /// Takes leave; the server closes.
    func quit() {
        self.write { $0.writeString("QUIT\r\n") }
    }

    /// Closes without waiting for the server.
    func close() {
        self.context?.close(promise: nil)
    }

    /// Sends what was written.
    func flush() {
        self.owesFlush = false
        self.context?.writeAndFlush(Self.wrapOutboundOut(self.outbound), promise: nil)
        self.outbound.clear()
    }

    private func write(_ body: (inout ByteBuffer) -> Void) {
        body(&self.outbound)
        if !self.owesFlush {
            self.owesFlush = true
            self.record.owesFlush(self)
        }
    }

    private func receive(_ line: UnsafeRawBufferPointer, _ now: UInt64) {
        var words = Words(line)
        _ = words.next(markedBy: UInt8(ascii: "@"))
        _ = words.next(markedBy: UInt8(ascii: ":"))
        guard let verb = words.next() else { return }
        if verb.equals("PRIVMSG") {
            _ = words.next()
            self.arrive(words.next() ?? UnsafeRawBufferPointer(start: nil, count: 0), line, now)
        } else if verb.equals("PING") {
            let token = words.next()?.string ?? ""
            self.write { $0.writeString("PONG :\(token)\r\n") }
        } else if verb.equals("422") || verb.equals("376") {
            guard let room = self.record.room else { return self.registered.succeed() }
            self.write { $0.writeString("JOIN \(room.name)\r\n") }
        } else if verb.equals("366") {
            self.registered.succeed()
        } else if verb.equals("ERROR") {
            if !self.record.isStopping { self.record.fault(line.string) }
        } else if verb.equals("FAIL") || (verb.count == 3 && (verb.first == 0x34 || verb.first == 0x35)) {
            self.record.fault(line.string)
        }
    }

    private func arrive(_ text: UnsafeRawBufferPointer, _ line: UnsafeRawBufferPointer, _ now: UInt64) {
        guard let number = LoadText.number(text) else { return self.record.fault(line.string) }
        if let room = self.record.room {
            return room.arrived(number, at: self, now, self.record)
        }
        if self.record.isRing {
            self.record.ringArrivals += 1
            return
        }
        guard let peer = self.peer else { return self.record.fault(line.string) }
        if number != self.nextExpected {
            self.record.disordered += 1
        }
        self.nextExpected = number + 1
        self.record.arrival(now &- peer.sentAt[Int(number) & (Self.sendTimes - 1)])
        if !self.record.isStopping {
            if self.answers { self.sendMessage(now) } else { peer.sendMessage(now) }
        }
    }
}
