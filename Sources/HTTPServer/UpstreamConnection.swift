// One connection to the backend: HTTP/1.1 as a client, one request at a time.

import HTTPCodec
import NIOCore
import NIOTLS

/// Who uses a connection to the backend. Called on its event loop.
protocol UpstreamUser: AnyObject {
    /// Whether nobody waits any more.
    var isCancelled: Bool { get }
    /// Whether what has arrived of the answer can be taken now.
    var takesAnswer: Bool { get }
    /// Whether more of it should be read: not while it cannot be passed on as fast.
    var readsAnswer: Bool { get }
    /// A connection is there.
    func leased(_ upstream: UpstreamConnection)
    /// There will be none.
    func leaseFailed(_ error: any Error)
    func answered(_ response: ReceivedResponse)
    func answered(_ bytes: ByteBuffer)
    func answerEnded(_ trailers: HeaderFields)
    /// The connection has broken, or what came is no answer. It is closed already.
    func upstreamBroke(_ error: any Error)
    /// All that had arrived has been handed over.
    func upstreamReadComplete()
    /// More of the request can be taken.
    func upstreamIsWritable()
    /// After an upgrade: bytes, and their end.
    func upstreamBytes(_ bytes: ByteBuffer)
    func upstreamInputEnded()
}

/// Why a connection to the backend is no good any more.
enum UpstreamError: Error, CustomStringConvertible {
    case closed
    case timeout
    case notHTTP(HTTPFault)
    /// 101 to a request that has not asked for it.
    case unaskedUpgrade

    /// For logs.
    package var description: String {
        switch self {
        case .closed: "it closed the connection before its answer was whole"
        case .timeout: "it did not answer in time"
        case .notHTTP(let fault): "its answer is refused: \(fault.rule)"
        case .unaskedUpgrade: "its answer is refused: it changes the protocol without being asked"
        }
    }
}

/// Confined to its event loop.
final class UpstreamConnection: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer

    private enum State {
        case idle
        /// A request is on its way; its answer's head is waited for.
        case head
        case body
        /// The answer has ended.
        case over
        case raw
        case closed
    }

    package unowned let pool: UpstreamPool
    package let generation: Int
    package private(set) var channel: (any Channel)?
    private var state = State.idle
    package weak var user: (any UpstreamUser)?
    private var inbound = ByteBuffer()
    private var reader: HeadReader
    private var body: BodyReader?
    private var isToHead = false
    private var keepsAlive = true
    private var isRequestSent = true
    private var isInputOpen = true
    /// Why the transport has failed, where it has.
    private var cause: (any Error)?
    private var isPumping = false
    private var needsFlush = false
    /// Requests that were sent over it.
    private(set) var uses = 0
    /// Whether anything of the answer to the current request has arrived.
    private(set) var hasAnswered = false
    /// When it was put aside.
    var idleSince = NIODeadline.now()
    /// Called once, when TLS is established or cannot be.
    var onSecured: ((_ failure: (any Error)?) -> Void)?

    init(pool: UpstreamPool) {
        self.pool = pool
        generation = pool.generation
        reader = HeadReader(limits: pool.services.limits.head)
    }

    // MARK: Requests

    /// Whether a request can be sent over it.
    package var isUsable: Bool {
        guard case .idle = state, isInputOpen, let channel, channel.isActive else { return false }
        return inbound.readableBytes == 0
    }

    package var isWritable: Bool { channel?.isWritable ?? false }

    /// Begins a request.
    ///
    /// - Parameters:
    ///   - bytes: its head, and its body where that is there.
    ///   - isWhole: whether nothing else comes.
    package func begin(_ bytes: ByteBuffer, isToHead: Bool, isWhole: Bool) {
        state = .head
        uses += 1
        hasAnswered = false
        self.isToHead = isToHead
        isRequestSent = isWhole
        write(bytes)
        readMore()
    }

    package func write(_ bytes: ByteBuffer) {
        channel?.write(bytes, promise: nil)
        needsFlush = true
    }

    func requestEnded() { isRequestSent = true }

    package func flush() {
        guard needsFlush else { return }
        needsFlush = false
        channel?.flush()
    }

    /// Ends the use: the connection waits for the next request, or is closed where that is not possible.
    package func release() {
        user = nil
        flush()
        if case .over = state, keepsAlive, isRequestSent, isInputOpen, inbound.readableBytes == 0 {
            state = .idle
            pool.takeBack(self)
            channel?.read()
        } else {
            close()
        }
    }

    package func close() {
        user = nil
        channel?.close(promise: nil)
    }

    /// Pending bytes would be lost if the channel were closed at once.
    func closeWhenWritten() { close(.all) }

    func closeOutput() { close(.output) }

    private func close(_ mode: CloseMode) {
        flush()
        guard let channel else { return }
        channel.writeAndFlush(ByteBuffer()).whenComplete { _ in channel.close(mode: mode, promise: nil) }
    }

    /// What the answer was 101 to.
    func becomeRaw() { state = .raw }

    // MARK: Answers

    /// Goes on where the user could not take more.
    package func resume() {
        pump()
        endIfDrained()
        readMore()
    }

    private func pump() {
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        do throws(HTTPFault) {
            while let user, user.takesAnswer, try step(user) {}
        } catch {
            fail(.notHTTP(error))
        }
    }

    /// - Returns: whether there may be more.
    private func step(_ user: any UpstreamUser) throws(HTTPFault) -> Bool {
        switch state {
        case .head:
            guard let response = try reader.response(&inbound, isToHead: isToHead) else { return false }
            let status = response.head.status
            if status < 200, status != 101 {
                user.answered(response)
                return true
            }
            keepsAlive = response.keepsAlive
            body = BodyReader(response.framing, limits: pool.services.limits.head)
            state = .body
            user.answered(response)
            return true
        case .body:
            switch try body?.next(&inbound) {
            case nil: return false
            case .bytes(let bytes):
                user.answered(bytes)
                return true
            case .end(let trailers):
                state = .over
                user.answerEnded(trailers)
                return false
            }
        case .raw:
            guard inbound.readableBytes > 0 else { return false }
            let bytes = inbound
            inbound = ByteBuffer()
            user.upstreamBytes(bytes)
            return false
        case .idle, .over, .closed: return false
        }
    }

    /// Reads where the user can take more.
    func readMore() {
        guard isInputOpen, let user, user.takesAnswer, user.readsAnswer else { return }
        channel?.read()
    }

    private func fail(_ error: UpstreamError) {
        if case .closed = state { return }
        state = .closed
        let user = user
        self.user = nil
        channel?.close(promise: nil)
        user?.upstreamBroke(cause ?? error)
    }

    package func secured(_ failure: (any Error)?) {
        let callback = onSecured
        onSecured = nil
        callback?(failure)
    }

    // MARK: Channel

    func handlerAdded(context: ChannelHandlerContext) { channel = context.channel }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        inbound.append(arrived: unwrapInboundIn(data))
        hasAnswered = true
        pump()
    }

    package func channelReadComplete(context: ChannelHandlerContext) {
        guard let user else {
            // Nothing was asked for.
            if inbound.readableBytes > 0 || !isInputOpen { context.close(promise: nil) }
            return
        }
        user.upstreamReadComplete()
        readMore()
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { user?.upstreamIsWritable() }
    }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { inputEnded() }
        if case .some(.handshakeCompleted) = event as? TLSUserEvent { secured(nil) }
    }

    /// What has arrived is handed over before the end is.
    private func inputEnded() {
        isInputOpen = false
        guard user != nil else {
            channel?.close(promise: nil)
            return
        }
        endIfDrained()
    }

    /// Passes the end of the input on once everything before it has been taken.
    private func endIfDrained() {
        guard !isInputOpen, !isPumping, user != nil else { return }
        pump()
        guard let user else { return }
        switch state {
        case .raw:
            if inbound.readableBytes == 0 { user.upstreamInputEnded() }
        case .body where body?.endsWithConnection == true:
            guard inbound.readableBytes == 0 else { return }
            // RFC 9112 section 9.8: without the end of TLS the body may have been cut off.
            guard cause == nil else { return fail(.closed) }
            state = .over
            keepsAlive = false
            user.answerEnded(HeaderFields())
            user.upstreamReadComplete()
        case .head, .body:
            // While the user takes nothing, an answer may still be whole in what waits.
            if user.takesAnswer { fail(.closed) }
        case .idle, .over, .closed: break
        }
    }

    package func channelInactive(context: ChannelHandlerContext) {
        isInputOpen = false
        secured(UpstreamError.closed)
        pool.closed(self)
        endIfDrained()
        if case .raw = state, let user {
            self.user = nil
            state = .closed
            user.upstreamBroke(UpstreamError.closed)
        }
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        cause = cause ?? error
        secured(error)
        context.close(promise: nil)
    }
}
