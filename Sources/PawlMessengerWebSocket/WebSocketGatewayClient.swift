// WebSockets to a gateway, on SwiftNIO.

import HTTPCodec
public import NIOCore
public import NIOPosix
public import NIOSSL
public import PawlMessenger
import Synchronization

/// Opens the WebSocket of a `GatewayTransportClient`, over which messages come as soon as the gateway has them.
///
/// ```swift
/// GatewayTransportClient(url: gateway, for: request, sockets: WebSocketGatewayClient()) { ... }
/// ```
public struct WebSocketGatewayClient: GatewaySocketClient {
    /// Ours: how long connection and upgrade may take together.
    private static let openTime = TimeAmount.seconds(15)

    private let group: any EventLoopGroup
    private let tls: TLSConfiguration

    /// - Parameters:
    ///   - group: the threads of the sockets.
    ///   - tls: trusted certificates.
    public init(
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton,
        tls: TLSConfiguration = .makeClientConfiguration()
    ) { (self.group, self.tls) = (group, tls) }

    /// Opens a WebSocket.
    ///
    /// - Throws: ``WebSocketError``, or an error of SwiftNIO.
    public func open(_ request: GatewaySocketRequest) async throws -> any GatewaySocket {
        let address = try GatewayAddress(request.url)
        var head = try address.request(address.path, upgrade: "websocket", request.credential)
        let key = WebSocketKey.key((0..<WebSocketKey.size).map { _ in .random(in: .min ... .max) })
        head.headers.add("Sec-WebSocket-Version", "13")
        head.headers.add("Sec-WebSocket-Key", key)
        let (socket, sent) = (WebSocket(limit: request.waitingLimit), head)
        let channel = try await address.connect(on: group, within: Self.openTime, tls: tls) { channel in
            try channel.pipeline.syncOperations.addHandler(
                WebSocketHandler(socket, sent, accept: WebSocketKey.accept(key), request))
        }
        socket.use(channel)
        let late = channel.eventLoop.scheduleTask(in: Self.openTime) {
            socket.opened(.failure(WebSocketError.timedOut))
        }
        defer { late.cancel() }
        try await withTaskCancellationHandler {
            try await socket.waitUntilOpen()
        } onCancel: {
            socket.opened(.failure(CancellationError()))
        }
        return socket
    }
}

/// Why there is no WebSocket.
public enum WebSocketError: Error, Equatable {
    /// The server has answered with this status.
    case refused(status: Int)
    /// The answer is no upgrade to a WebSocket.
    case malformed
    case timedOut
    case closed
}

/// What was received, and where to send.
private final class WebSocket: GatewaySocket {
    private struct State {
        var channel: (any Channel)?
        /// Nil until it is known whether there is a WebSocket.
        var opened: Result<Void, any Error>?
        var opening: CheckedContinuation<Void, any Error>?
        var messages: [[UInt8]] = []
        var receiver: CheckedContinuation<[UInt8]?, Never>?
        var hasEnded = false
    }

    private let limit: Int
    private let state = Mutex(State())

    init(limit: Int) { self.limit = limit }

    func use(_ channel: any Channel) {
        let isOver = state.withLock { state in
            state.channel = channel
            return state.hasEnded
        }
        if isOver { channel.close(promise: nil) }
    }

    // MARK: Opening

    func waitUntilOpen() async throws {
        try await withCheckedThrowingContinuation { continuation in
            let result = state.withLock { state in
                if state.opened == nil { state.opening = continuation }
                return state.opened
            }
            if let result { continuation.resume(with: result) }
        }
    }

    /// Takes note of the answer to the upgrade. The first call counts.
    func opened(_ result: Result<Void, any Error>) {
        let (isFirst, waiting) = state.withLock { state -> (Bool, CheckedContinuation<Void, any Error>?) in
            guard state.opened == nil else { return (false, nil) }
            state.opened = result
            defer { state.opening = nil }
            return (true, state.opening)
        }
        waiting?.resume(with: result)
        if isFirst, case .failure = result { close() }
    }

    // MARK: Messages

    func receive() async -> [UInt8]? {
        await withCheckedContinuation { continuation in
            let message = state.withLock { state -> [UInt8]?? in
                if !state.messages.isEmpty { return .some(state.messages.removeFirst()) }
                if state.hasEnded || state.receiver != nil { return .some(nil) }
                state.receiver = continuation
                return nil
            }
            if let message { continuation.resume(returning: message) }
        }
    }

    /// Takes a message of the gateway.
    ///
    /// - Returns: false if too many wait.
    func received(_ message: [UInt8]) -> Bool {
        let (receiver, fits) = state.withLock { state -> (CheckedContinuation<[UInt8]?, Never>?, Bool) in
            guard !state.hasEnded else { return (nil, true) }
            if let receiver = state.receiver {
                state.receiver = nil
                return (receiver, true)
            }
            guard state.messages.count < limit else { return (nil, false) }
            state.messages.append(message)
            return (nil, true)
        }
        receiver?.resume(returning: message)
        return fits
    }

    func send(_ text: [UInt8]) async throws {
        guard let channel = state.withLock({ $0.hasEnded ? nil : $0.channel }) else { throw WebSocketError.closed }
        var frame = ByteBuffer()
        frame.write(.data(ByteBuffer(bytes: text), isText: true), mask: .random(in: .min ... .max))
        try await channel.writeAndFlush(frame)
    }

    func close() {
        let channel = ended()
        guard let channel else { return }
        var frame = ByteBuffer()
        frame.write(.close(ByteBuffer(integer: UInt16(1000))), mask: .random(in: .min ... .max))
        channel.writeAndFlush(frame).whenComplete { _ in channel.close(promise: nil) }
    }

    /// Ends reception. What has come can still be received.
    ///
    /// - Returns: the channel, if it is to be closed.
    @discardableResult
    func ended() -> (any Channel)? {
        opened(.failure(WebSocketError.closed))
        let (receiver, channel) = state.withLock { state -> (CheckedContinuation<[UInt8]?, Never>?, (any Channel)?) in
            defer { (state.hasEnded, state.receiver) = (true, nil) }
            return (state.receiver, state.hasEnded ? nil : state.channel)
        }
        receiver?.resume(returning: nil)
        return channel
    }
}

/// Asks for the WebSocket, and reads its messages.
private final class WebSocketHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let socket: WebSocket
    private let request: RequestHead
    private let accept: String
    private let silence: TimeAmount
    private var heads = HeadReader()
    private var frames: FrameReader
    private var buffer = ByteBuffer()
    private var isOpen = false
    private var isOver = false
    private var lastRead = NIODeadline.now()
    private var check: Scheduled<Void>?

    init(_ socket: WebSocket, _ request: RequestHead, accept: String, _ limits: GatewaySocketRequest) {
        (self.socket, self.request, self.accept) = (socket, request, accept)
        frames = FrameReader(isMasked: false, limit: limits.messageLimit)
        silence = TimeAmount(limits.silence)
    }

    func channelActive(context: ChannelHandlerContext) {
        var bytes = context.channel.allocator.buffer(capacity: 512)
        bytes.write(request)
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        watch(context)
        context.fireChannelActive()
    }

    /// Ends a WebSocket over which nothing comes.
    private func watch(_ context: ChannelHandlerContext) {
        let channel = context.channel
        check = context.eventLoop.assumeIsolated().scheduleTask(deadline: lastRead + silence) { [self] in
            if lastRead + silence <= .now() { channel.close(promise: nil) } else { watch(context) }
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        lastRead = .now()
        buffer.writeImmutableBuffer(unwrapInboundIn(data))
        do {
            if !isOpen {
                guard let answer = try heads.response(&buffer, isToHead: false)?.head else { return }
                try take(answer)
            }
            while !isOver, let message = try frames.next(&buffer) { take(message, context) }
            buffer.discardReadBytes()
        } catch {
            end(error, context)
        }
    }

    private func take(_ answer: ResponseHead) throws {
        guard answer.status == 101 else { throw WebSocketError.refused(status: answer.status) }
        guard answer.headers.tokens("Upgrade") == ["websocket"], answer.headers["Sec-WebSocket-Accept"] == [accept],
            answer.headers["Sec-WebSocket-Extensions"].isEmpty, answer.headers["Sec-WebSocket-Protocol"].isEmpty
        else { throw WebSocketError.malformed }
        isOpen = true
        socket.opened(.success(()))
    }

    private func take(_ message: WebSocketMessage, _ context: ChannelHandlerContext) {
        switch message {
        case .data(let bytes, isText: true):
            if !socket.received(Array(buffer: bytes)) { end(WebSocketError.malformed, context) }
        case .data(_, isText: false): end(WebSocketError.malformed, context)
        case .ping(let bytes):
            // A server that does not read is sent no more.
            if context.channel.isWritable { write(.pong(bytes), context) }
        case .pong: break
        case .close(let bytes):
            write(.close(bytes), context)
            end(WebSocketError.closed, context)
        }
    }

    private func write(_ message: WebSocketMessage, _ context: ChannelHandlerContext) {
        var frame = context.channel.allocator.buffer(capacity: 128)
        frame.write(message, mask: .random(in: .min ... .max))
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
    }

    private func end(_ error: any Error, _ context: ChannelHandlerContext) {
        isOver = true
        socket.opened(.failure(error))
        socket.ended()
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        isOver = true
        check?.cancel()
        socket.ended()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { end(error, context) }
}
