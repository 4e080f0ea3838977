import Foundation
import HTTPServer
import NIOCore
import NIOHPACK
import NIOPosix
import NIOSSL
import PeerKit
import TestThreads
import Testing

/// A client of HTTP/2 that sends the frames it is told to, right or wrong. Every wait is bounded.
final class FrameClient: @unchecked Sendable {
    /// Types of frames: RFC 9113 section 6.
    enum Kind: UInt8 {
        case data, headers, priority, reset, settings, pushPromise, ping, goAway, windowUpdate, continuation
    }

    /// What has come on one stream.
    struct Answer: Sendable {
        var heads: [[(name: String, value: String)]] = []
        var body: [UInt8] = []
        var isEnded = false
        var reset: UInt32?

        var status: String? { heads.last { $0.first?.name == ":status" }?.first?.value }
        var text: String { String(decoding: body, as: UTF8.self) }
        var isOver: Bool { isEnded || reset != nil }

        func first(_ name: String) -> String? { heads.joined().first { $0.name == name }?.value }
    }

    /// What has come, all in all.
    struct Seen: Sendable {
        var answers: [Int: Answer] = [:]
        var goAways: [(last: UInt32, code: UInt32)] = []
        var settings = 0
        var acknowledgements = 0
        var isClosed = false
        /// By stream; 0 is the connection.
        fileprivate var windows: [Int: Int] = [0: 65535]

        subscript(_ stream: Int) -> Answer { answers[stream] ?? Answer() }
    }

    static let endStream: UInt8 = 1
    static let endHeaders: UInt8 = 4
    static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)
    static let patience = 600.0

    private let channel: any Channel
    /// Guards everything below.
    private let condition = NSCondition()
    private var state = Seen()
    private var decoder = HPACKDecoder(allocator: ByteBufferAllocator())
    private var bytes: [UInt8] = []
    private var block: (stream: Int, flags: UInt8, bytes: [UInt8])?
    private let acknowledges: Bool
    private var credits: Bool

    /// A gateway in front of this backend, and a client of it.
    static func with(
        _ backend: RawServer, credits: Bool = true, limits: (inout HTTPLimits) -> Void = { _ in },
        _ body: @escaping @Sendable (FrameClient) async throws -> Void
    ) async throws {
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { limits(&$0.limits) }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await connect(proxy.port, trust, credits: credits)
            try await body(client)
        }
        #expect(backend.complaints.isEmpty)
        await proxy.stop()
    }

    /// - Parameters:
    ///   - before: what goes ahead of TLS.
    ///   - begins: whether the preface and empty settings are sent.
    ///   - acknowledges: whether the gateway's settings are.
    ///   - credits: whether what has been read may be sent anew.
    static func connect(
        _ port: Int, _ tls: NIOSSLContext, before: String = "", begins: Bool = true, acknowledges: Bool = true,
        credits: Bool = true
    ) async throws -> FrameClient {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.autoRead, value: false)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if !before.isEmpty { try channel.pipeline.syncOperations.addHandler(Opening(before, tls)) }
                    if before.isEmpty {
                        try channel.pipeline.syncOperations.addHandler(
                            try NIOSSLClientHandler(context: tls, serverHostname: "localhost"))
                    }
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
        let client = FrameClient(channel, acknowledges: acknowledges, credits: credits)
        if begins { client.send(preface + frame(.settings)) }
        // Nothing is read before there is somebody to read it.
        try await channel.eventLoop.submit { try channel.pipeline.syncOperations.addHandler(Reader(client)) }.get()
        try await client.reads(true)
        return client
    }

    private init(_ channel: any Channel, acknowledges: Bool, credits: Bool) {
        (self.channel, self.acknowledges, self.credits) = (channel, acknowledges, credits)
    }

    deinit { channel.close(promise: nil) }

    /// Whether anything is taken from the socket.
    func reads(_ reads: Bool) async throws { try await channel.setOption(.autoRead, value: reads).get() }

    func close() { channel.close(promise: nil) }

    // MARK: Sending

    func send(_ bytes: [UInt8]) { channel.writeAndFlush(ByteBuffer(bytes: bytes), promise: nil) }

    func send(_ kind: Kind, _ flags: UInt8 = 0, _ stream: Int = 0, _ payload: [UInt8] = []) {
        send(Self.frame(kind, flags, stream, payload))
    }

    static func frame(_ kind: Kind, _ flags: UInt8 = 0, _ stream: Int = 0, _ payload: [UInt8] = []) -> [UInt8] {
        let length = UInt32(payload.count)
        return Array(number(length).dropFirst()) + [kind.rawValue, flags] + number(UInt32(stream)) + payload
    }

    static func number(_ value: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: value >> (24 - $0 * 8)) } }

    /// Literals that are new to the decoder's table and stay out of it: RFC 7541 section 6.2.2.
    static func block(_ fields: [(String, String)]) -> [UInt8] {
        fields.flatMap { field in [0] + string(Array(field.0.utf8)) + string(Array(field.1.utf8)) }
    }

    static func string(_ bytes: [UInt8]) -> [UInt8] {
        guard bytes.count >= 127 else { return [UInt8(bytes.count)] + bytes }
        var length: [UInt8] = [127]
        var rest = bytes.count - 127
        while rest >= 128 {
            length.append(UInt8(rest & 127 | 128))
            rest >>= 7
        }
        return length + [UInt8(rest)] + bytes
    }

    static func head(_ method: String, _ path: String, _ more: [(String, String)] = []) -> [(String, String)] {
        [(":method", method), (":scheme", "https"), (":path", path), (":authority", "chat")] + more
    }

    func request(_ stream: Int, _ fields: [(String, String)], isEnd: Bool = true) {
        let flags = isEnd ? Self.endStream : 0
        let block = Self.block(fields)
        guard block.count > 16384 else { return send(.headers, Self.endHeaders | flags, stream, block) }
        send(
            Self.frame(.headers, flags, stream, Array(block[..<16384]))
                + Self.frame(.continuation, Self.endHeaders, stream, Array(block[16384...])))
    }

    func get(_ stream: Int, _ path: String = "/") { request(stream, Self.head("GET", path)) }

    func data(_ stream: Int, _ text: String, isEnd: Bool = true) {
        send(.data, isEnd ? Self.endStream : 0, stream, Array(text.utf8))
    }

    /// As much as the gateway's windows let through, and the rest when they open.
    func body(_ stream: Int, _ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let size: Int = try wait("a window") { seen in
                let size = min(seen.windows[0] ?? 0, seen.windows[stream] ?? 65535, 16384, rest.count)
                guard size > 0 else { return nil }
                seen.windows[0, default: 0] -= size
                seen.windows[stream, default: 65535] -= size
                return size
            }
            send(.data, 0, stream, Array(rest.prefix(size)))
            rest = rest.dropFirst(size)
        }
    }

    /// A frame with padding, as soon as the gateway's windows let it through.
    func padded(_ stream: Int, _ bytes: [UInt8], padding: UInt8) throws {
        let size = 1 + bytes.count + Int(padding)
        let _: Bool = try wait("a window") { seen in
            guard min(seen.windows[0] ?? 0, seen.windows[stream] ?? 65535) >= size else { return nil }
            seen.windows[0, default: 0] -= size
            seen.windows[stream, default: 65535] -= size
            return true
        }
        send(.data, 8, stream, [padding] + bytes + [UInt8](repeating: 0, count: Int(padding)))
    }

    /// Lets the gateway send so much more.
    func credit(_ stream: Int, _ size: Int) {
        condition.withLock { credits = true }
        for stream in [0, stream] { send(.windowUpdate, 0, stream, Self.number(UInt32(size))) }
    }

    // MARK: Waiting

    /// Waits until there is an answer.
    func wait<Value>(_ what: String, _ find: (inout Seen) -> Value?) throws -> Value {
        let end = Date(timeIntervalSinceNow: Self.patience)
        condition.lock()
        defer { condition.unlock() }
        while true {
            if let value = find(&state) { return value }
            guard condition.wait(until: end) else {
                let known = state.answers.mapValues { "\($0.status ?? "-") \($0.body.count) \($0.reset ?? 999)" }
                throw RawError("no \(what); \(known), \(state.goAways), closed: \(state.isClosed)")
            }
        }
    }

    func answer(_ stream: Int) throws -> Answer {
        try wait("answer \(stream)") { $0[stream].isOver ? $0[stream] : nil }
    }

    func reset(_ stream: Int) throws -> UInt32 { try wait("reset of \(stream)") { $0[stream].reset } }

    func closed() throws -> Seen { try wait("end of the connection") { $0.isClosed ? $0 : nil } }

    var seen: Seen { condition.withLock { state } }

    // MARK: Reading

    fileprivate func read(_ new: [UInt8]) {
        var replies: [UInt8] = []
        condition.lock()
        bytes += new
        var start = 0
        while bytes.count - start >= 9 {
            let head = Array(bytes[start..<(start + 9)])
            let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
            guard bytes.count - start >= 9 + length else { break }
            let payload = Array(bytes[(start + 9)..<(start + 9 + length)])
            take(Kind(rawValue: head[3]), head[4], Int(Self.number(head[5...])), payload, &replies)
            start += 9 + length
        }
        bytes.removeFirst(start)
        condition.broadcast()
        condition.unlock()
        if !replies.isEmpty { send(replies) }
    }

    private static func number(_ bytes: some Collection<UInt8>) -> UInt32 {
        bytes.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }

    private func take(
        _ kind: Kind?, _ flags: UInt8, _ stream: Int, _ payload: [UInt8], _ replies: inout [UInt8]
    ) {
        switch kind {
        case .data:
            state.answers[stream, default: Answer()].body += payload
            if flags & Self.endStream != 0 { state.answers[stream]?.isEnded = true }
            guard credits, !payload.isEmpty else { return }
            let size = Self.number(UInt32(payload.count))
            replies += Self.frame(.windowUpdate, 0, 0, size) + Self.frame(.windowUpdate, 0, stream, size)
        case .headers:
            block = (stream, flags, payload)
            if flags & Self.endHeaders != 0 { takeBlock() }
        case .continuation:
            block?.bytes += payload
            if flags & Self.endHeaders != 0 { takeBlock() }
        case .reset: state.answers[stream, default: Answer()].reset = Self.number(payload)
        case .settings where flags & 1 == 0:
            state.settings += 1
            if acknowledges { replies += Self.frame(.settings, 1) }
        case .ping where flags & 1 == 1: state.acknowledgements += 1
        case .goAway: state.goAways.append((Self.number(payload), Self.number(payload.dropFirst(4))))
        case .windowUpdate: state.windows[stream, default: 65535] += Int(Self.number(payload))
        default: break
        }
    }

    private func takeBlock() {
        guard let block else { return }
        self.block = nil
        var buffer = ByteBuffer(bytes: block.bytes)
        let fields = (try? decoder.decodeHeaders(from: &buffer)) ?? [:]
        state.answers[block.stream, default: Answer()].heads.append(fields.map { ($0.name, $0.value) })
        if block.flags & Self.endStream != 0 { state.answers[block.stream]?.isEnded = true }
    }

    fileprivate func ended() {
        condition.withLock { state.isClosed = true }
        condition.broadcast()
    }

    private final class Reader: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        private weak var client: FrameClient?
        init(_ client: FrameClient) { self.client = client }
        func handlerAdded(context: ChannelHandlerContext) { if !context.channel.isActive { client?.ended() } }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            client?.read(Array(unwrapInboundIn(data).readableBytesView))
        }
        func channelInactive(context: ChannelHandlerContext) { client?.ended() }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    /// Says something in the clear, and begins TLS behind it.
    private final class Opening: ChannelInboundHandler, RemovableChannelHandler {
        typealias InboundIn = ByteBuffer
        private let text: String
        private let tls: NIOSSLContext
        init(_ text: String, _ tls: NIOSSLContext) { (self.text, self.tls) = (text, tls) }
        func channelActive(context: ChannelHandlerContext) {
            context.writeAndFlush(NIOAny(ByteBuffer(string: text)), promise: nil)
            guard let handler = try? NIOSSLClientHandler(context: tls, serverHostname: "localhost") else { return }
            try? context.pipeline.syncOperations.addHandler(handler, position: .first)
        }
    }
}
