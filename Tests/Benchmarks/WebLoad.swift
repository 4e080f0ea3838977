import NIOCore
import NIOPosix

/// Many HTTP or WebSocket clients on one event loop, each with a number of requests or frames under way. The one with number
/// 7 is a7, who writes to conversation c7.
struct WebLoad {
    /// Bytes of the answer to a request that has nothing to do with text, and of a text.
    static let answerSize = 1000
    static let textSize = 100
    /// How many people there are; each has one connection.
    static let people = 64

    /// What the clients ask for again and again.
    enum Kind: String {
        /// Something without text in it.
        case profile
        /// The newest messages of a conversation, which they write first.
        case history
        /// That a text be kept.
        case post
        /// That a text come back over a WebSocket.
        case frame
    }

    /// What the clients do.
    struct Plan {
        var kind: Kind
        /// Frames under way in each connection; requests go one after the other.
        var window: Int
        var warmUp: TimeAmount
        var duration: TimeAmount
    }

    /// What all clients have measured. Belongs to the event loop.
    final class Record {
        var latencies = Histogram()
        var isMeasuring = false
        var isStopping = false
        var faults = 0

        /// Nothing is asked for any more.
        func stop() -> (latencies: Histogram, faults: Int) {
            (self.isMeasuring, self.isStopping) = (false, true)
            return (self.latencies, self.faults)
        }
    }

    let group: MultiThreadedEventLoopGroup

    /// `interval` is called when the measured time begins and when it ends.
    func measure(_ port: Int, _ plan: Plan, interval: () throws -> Void) throws -> Measurement {
        let loop = self.group.next()
        let record = try loop.submit { NIOLoopBound(Record(), eventLoop: loop) }.wait()
        let channels = try (0..<Self.people).map { number in
            try self.connect(loop, port) { WebLoadConnection(number, plan, record.value) }
        }
        pause(plan.warmUp)
        try interval()
        let begin = NIODeadline.now()
        try loop.submit { record.value.isMeasuring = true }.wait()
        pause(plan.duration)
        let stopped = try loop.submit { record.value.stop() }.wait()
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        try interval()
        for channel in channels { try? channel.close().wait() }
        return Measurement(stopped.latencies, stopped.faults, elapsed)
    }

    /// One person writes now and then, and another one over many connections as fast as they are answered.
    ///
    /// - Returns: what the first has measured, and how many messages of the other one were answered, a second.
    func measure(_ port: Int, _ plan: Plan, beside flood: Int) throws -> (own: Measurement, flood: Double) {
        let loop = self.group.next()
        let own = try loop.submit { NIOLoopBound(Record(), eventLoop: loop) }.wait()
        let others = try loop.submit { NIOLoopBound(Record(), eventLoop: loop) }.wait()
        var channels = try (0..<flood).map { number in
            try self.connect(loop, port) {
                WebLoadConnection(1, plan, others.value, conversation: 1 + number * Self.people)
            }
        }
        channels.append(
            try self.connect(loop, port) { WebLoadConnection(0, plan, own.value, pause: .milliseconds(10)) })
        pause(plan.warmUp)
        let begin = NIODeadline.now()
        try loop.submit { for record in [own, others] { record.value.isMeasuring = true } }.wait()
        pause(plan.duration)
        let stopped = try loop.submit { [own, others].map { $0.value.stop() } }.wait()
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        for channel in channels { try? channel.close().wait() }
        let faults = stopped[0].faults + stopped[1].faults
        return (Measurement(stopped[0].latencies, faults, elapsed), Double(stopped[1].latencies.count) / elapsed)
    }

    private func connect(
        _ loop: any EventLoop, _ port: Int, _ connection: @escaping @Sendable () -> WebLoadConnection
    ) throws -> any Channel {
        try ClientBootstrap(group: loop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(connection())
                }
            }
            .connect(host: "127.0.0.1", port: port).wait()
    }
}

extension Measurement {
    fileprivate init(_ latencies: Histogram, _ faults: Int, _ elapsed: Double) {
        self.init()
        self.messagesPerSecond = Double(latencies.count) / elapsed
        self.medianLatency = latencies.microseconds(atShare: 0.5)
        self.tailLatency = latencies.microseconds(atShare: 0.99)
        if faults > 0 { self.complaint = "\(faults) faults" }
    }
}

private final class WebLoadConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let text = String(repeating: "t", count: WebLoad.textSize)

    private let number: Int
    private let plan: WebLoad.Plan
    private let record: WebLoad.Record
    private let conversation: Int
    /// Between an answer and the next request.
    private let pause: TimeAmount?
    private var unread = ByteBuffer()
    private var outbound = ByteBuffer()
    private var sentAt = CircularBuffer<UInt64>()
    private var isUpgraded = false
    private var sent = 0

    init(
        _ number: Int, _ plan: WebLoad.Plan, _ record: WebLoad.Record, conversation: Int? = nil,
        pause: TimeAmount? = nil
    ) {
        (self.number, self.plan, self.record) = (number, plan, record)
        (self.conversation, self.pause) = (conversation ?? number, pause)
    }

    func channelActive(context: ChannelHandlerContext) {
        // First of all everybody shows who they are.
        if self.plan.kind == .frame {
            self.write(
                "GET /socket",
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                    + "Sec-WebSocket-Version: 13\r\n")
        } else {
            self.write("GET /me")
        }
        self.flush(context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        self.unread.writeBuffer(&bytes)
        while self.takeAnswer() { self.answered(context) }
        self.unread.discardReadBytes()
    }

    private func takeAnswer() -> Bool {
        guard !self.isUpgraded else {
            guard let frame = WebFrame.read(&self.unread) else { return false }
            if frame.text.hasPrefix(HTTPBackend.acknowledgement) { return self.takeAnswer() }
            if !frame.text.holds(Self.text) { self.record.faults += 1 }
            return true
        }
        guard let answer = WebMessage(&self.unread) else { return false }
        let status = answer.words[1]
        var isGood = status == (self.plan.kind == .frame ? "101" : "200")
        // What was sealed on its way there has to be open again.
        if self.plan.kind == .history, self.sent > Self.written { isGood = isGood && answer.body.holds(Self.text) }
        if !isGood { self.record.faults += 1 }
        return true
    }

    /// Messages that are written before their history is read.
    private static let written = 21

    private func answered(_ context: ChannelHandlerContext) {
        let now = NIODeadline.now().uptimeNanoseconds
        if let sent = self.sentAt.popFirst(), self.record.isMeasuring {
            self.record.latencies.record(nanoseconds: now - sent)
        }
        guard !self.record.isStopping else { return }
        if let pause = self.pause {
            context.eventLoop.assumeIsolated().scheduleTask(in: pause) {
                self.ask()
                self.flush(context)
            }
            return
        }
        let count = self.plan.kind == .frame && !self.isUpgraded ? self.plan.window : 1
        self.isUpgraded = self.plan.kind == .frame
        for _ in 0..<count { self.ask() }
    }

    private func ask() {
        let message = "\"id\":\"\(self.conversation)-\(self.sent)\",\"text\":\"\(Self.text)\"}"
        switch self.plan.kind {
        case .profile: self.write("GET /users/a\(self.number)")
        case .history where self.sent >= Self.written: self.write("GET /conversations/c\(self.conversation)/messages")
        case .post, .history:
            self.write(
                "POST /conversations/c\(self.conversation)/messages",
                "Content-Type: application/json\r\nContent-Length: \(message.utf8.count + 1)\r\n", "{" + message)
        case .frame:
            self.sentAt.append(NIODeadline.now().uptimeNanoseconds)
            self.sent += 1
            WebFrame.write(
                "{\"type\":\"send\",\"conversation\":\"c\(self.conversation)\"," + message, isMasked: true,
                to: &self.outbound)
        }
    }

    private func write(_ request: String, _ fields: String = "", _ body: String = "") {
        self.sentAt.append(NIODeadline.now().uptimeNanoseconds)
        self.sent += 1
        self.outbound.writeString(
            "\(request) HTTP/1.1\r\nHost: chat.example\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\n"
                + "Authorization: Bearer a\(self.number)\r\nAccept-Language: en-GB\r\n\(fields)\r\n\(body)")
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard self.outbound.readableBytes > 0 else { return }
        context.writeAndFlush(Self.wrapOutboundOut(self.outbound), promise: nil)
        self.outbound.clear()
    }

    func channelReadComplete(context: ChannelHandlerContext) { self.flush(context) }

    func channelInactive(context: ChannelHandlerContext) {
        if !self.record.isStopping { self.record.faults += 1 }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if !self.record.isStopping { self.record.faults += 1 }
        context.close(promise: nil)
    }
}
