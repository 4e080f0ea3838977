import NIOCore
import NIOPosix

/// Many HTTP or WebSocket clients on one event loop, each with a number of requests or frames under way.
struct WebLoad {
    /// Bytes of an answer's body, and of a frame's payload.
    static let answerSize = 1000
    static let frameSize = 100

    /// What the clients do.
    struct Plan {
        var isWebSocket: Bool
        var connections: Int
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
    }

    let group: MultiThreadedEventLoopGroup

    /// `interval` is called when the measured time begins and when it ends.
    func measure(_ port: Int, _ plan: Plan, interval: () throws -> Void) throws -> Measurement {
        let loop = self.group.next()
        let record = try loop.submit { NIOLoopBound(Record(), eventLoop: loop) }.wait()
        let channels = try (0..<plan.connections).map { _ in
            try ClientBootstrap(group: loop)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(WebLoadConnection(plan, record.value))
                    }
                }
                .connect(host: "127.0.0.1", port: port).wait()
        }
        pause(plan.warmUp)
        try interval()
        let begin = NIODeadline.now()
        try loop.submit { record.value.isMeasuring = true }.wait()
        pause(plan.duration)
        let (latencies, faults) = try loop.submit {
            record.value.isMeasuring = false
            record.value.isStopping = true
            return (record.value.latencies, record.value.faults)
        }.wait()
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        try interval()
        for channel in channels { try? channel.close().wait() }
        var measurement = Measurement()
        measurement.messagesPerSecond = Double(latencies.count) / elapsed
        measurement.medianLatency = latencies.microseconds(atShare: 0.5)
        measurement.tailLatency = latencies.microseconds(atShare: 0.99)
        if faults > 0 { measurement.complaint = "\(faults) faults" }
        return measurement
    }
}

private final class WebLoadConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let request = ByteBuffer(
        string: "GET /_matrix/client/v3/rooms/a/state HTTP/1.1\r\nHost: chat.example\r\nUser-Agent: bench/1.0\r\n"
            + "Accept: application/json\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\r\n"
            + "Accept-Language: en-GB\r\nCookie: session=0123456789abcdef\r\n\r\n")
    private static let upgrade = ByteBuffer(
        string: "GET /socket HTTP/1.1\r\nHost: chat.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
    private static let frame = ByteBuffer(
        bytes: [0x82, 0x80 | UInt8(WebLoad.frameSize), 1, 2, 3, 4] + [UInt8](repeating: 7, count: WebLoad.frameSize))

    private let plan: WebLoad.Plan
    private let record: WebLoad.Record
    private var unread = ByteBuffer()
    private var sentAt = CircularBuffer<UInt64>()
    private var isUpgraded = false

    init(_ plan: WebLoad.Plan, _ record: WebLoad.Record) { (self.plan, self.record) = (plan, record) }

    func channelActive(context: ChannelHandlerContext) {
        context.writeAndFlush(
            Self.wrapOutboundOut(self.plan.isWebSocket ? Self.upgrade : Self.request), promise: nil)
        self.sentAt.append(NIODeadline.now().uptimeNanoseconds)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        self.unread.writeBuffer(&bytes)
        while self.takeAnswer() { self.answered(context) }
        self.unread.discardReadBytes()
    }

    private func takeAnswer() -> Bool {
        guard !self.isUpgraded else {
            guard self.unread.readableBytes >= 2 + WebLoad.frameSize else { return false }
            self.unread.moveReaderIndex(forwardBy: 2 + WebLoad.frameSize)
            return true
        }
        guard let head = self.unread.lengthOfHead else { return false }
        if self.unread.getString(at: self.unread.readerIndex + 9, length: 3) != (self.plan.isWebSocket ? "101" : "200")
        {
            self.record.faults += 1
        }
        let length = head + (self.plan.isWebSocket ? 0 : WebLoad.answerSize)
        guard self.unread.readableBytes >= length else { return false }
        self.unread.moveReaderIndex(forwardBy: length)
        return true
    }

    private func answered(_ context: ChannelHandlerContext) {
        let now = NIODeadline.now().uptimeNanoseconds
        if let sent = self.sentAt.popFirst(), self.record.isMeasuring {
            self.record.latencies.record(nanoseconds: now - sent)
        }
        guard !self.record.isStopping else { return }
        let count = self.plan.isWebSocket && !self.isUpgraded ? self.plan.window : 1
        self.isUpgraded = self.plan.isWebSocket
        for _ in 0..<count {
            self.sentAt.append(now)
            context.write(Self.wrapOutboundOut(self.plan.isWebSocket ? Self.frame : Self.request), promise: nil)
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) { context.flush() }

    func channelInactive(context: ChannelHandlerContext) {
        if !self.record.isStopping { self.record.faults += 1 }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if !self.record.isStopping { self.record.faults += 1 }
        context.close(promise: nil)
    }
}
