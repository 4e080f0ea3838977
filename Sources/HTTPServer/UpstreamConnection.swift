// One HTTP/1.1 connection to the backend. It carries one request at a time.

package import HTTPCodec
import NIOCore
import NIOTLS

/// Uses a connection to the backend. Called on the connection's event loop.
protocol UpstreamUser: AnyObject {
    /// Whether the user no longer needs a connection.
    var isCancelled: Bool { get }
    /// Whether the user accepts received parts of the answer now.
    var takesAnswer: Bool { get }
    /// Whether the connection should read more: false while the user cannot forward as fast.
    var readsAnswer: Bool { get }
    /// The pool has assigned a connection.
    func leased(_ upstream: UpstreamConnection)
    /// The pool could not connect.
    func leaseFailed(_ error: any Error)
    func answered(_ response: ReceivedResponse)
    func answered(_ bytes: ByteBuffer)
    func answerEnded(_ trailers: HeaderFields)
    /// The connection failed, or the answer is invalid. The connection is closed already.
    func upstreamBroke(_ error: any Error)
    /// The connection has passed on all bytes of one read.
    func upstreamReadComplete()
    /// The connection accepts more of the request.
    func upstreamIsWritable()
    /// Bytes, and their end, after an upgrade.
    func upstreamBytes(_ bytes: ByteBuffer)
    func upstreamInputEnded()
}

/// The failure of a connection to the backend.
package enum UpstreamError: Error, CustomStringConvertible {
    case closed
    case timeout
    case notHTTP(HTTPFault)
    /// The request waited for a connection until its time was over. Connecting itself takes less.
    case noFreeConnection
    /// 101 to a request that did not ask for an upgrade.
    case unaskedUpgrade

    /// For logs.
    package var description: String {
        switch self {
        case .closed: "it closed the connection before its answer was complete"
        case .timeout: "it did not answer in time"
        case .noFreeConnection: "too many connections to it are in use"
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
        /// A request was sent; the head of its answer has not arrived.
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
    /// The first error of the transport; nil if there was none.
    private var cause: (any Error)?
    private var isPumping = false
    private var needsFlush = false
    /// Number of requests begun on this connection.
    private var uses = 0
    /// Whether it has carried no request yet.
    var isUnused: Bool { uses == 0 }
    /// Whether any byte of the answer to the current request has arrived.
    private var hasAnswered = false
    /// Whether it is reused, and the backend may have closed it before it received the current request.
    var mayBeStale: Bool { uses > 1 && !hasAnswered }
    /// When the connection became idle.
    var idleSince = NIODeadline.now()
    /// Called once, when TLS is established or has failed.
    var onSecured: ((_ failure: (any Error)?) -> Void)?

    /// - Parameter generation: that of the options with which the pool connects.
    init(pool: UpstreamPool, generation: Int) {
        self.pool = pool
        self.generation = generation
        reader = HeadReader(limits: pool.services.limits.head)
    }

    // MARK: Requests

    /// Whether the connection can carry a new request.
    package var isUsable: Bool {
        guard case .idle = state, isInputOpen, let channel, channel.isActive else { return false }
        return inbound.readableBytes == 0
    }

    package var isWritable: Bool { channel?.isWritable ?? false }

    /// Begins a request.
    ///
    /// - Parameters:
    ///   - bytes: the head, and the body if it is complete.
    ///   - isWhole: whether `bytes` is the whole request.
    package func begin(_ bytes: ByteBuffer, isToHead: Bool, isWhole: Bool) {
        state = .head
        uses += 1
        hasAnswered = false
        self.isToHead = isToHead
        isRequestSent = isWhole
        write(bytes)
        readMore()
    }

    /// - Parameter room: released when the bytes are written, or dropped with the connection.
    package func write(_ bytes: ByteBuffer, room: ByteReservation? = nil) {
        channel?.write(bytes, promise: room?.released(on: channel?.eventLoop))
        needsFlush = true
    }

    func requestEnded() { isRequestSent = true }

    package func flush() {
        guard needsFlush else { return }
        needsFlush = false
        channel?.flush()
    }

    /// Ends the use: returns the connection to the pool, or closes it if it cannot be reused.
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

    /// Closes after pending writes, which closing at once would discard.
    func closeWhenWritten() { close(.all) }

    func closeOutput() { close(.output) }

    private func close(_ mode: CloseMode) {
        flush()
        guard let channel else { return }
        channel.writeAndFlush(ByteBuffer()).whenComplete { _ in channel.close(mode: mode, promise: nil) }
    }

    /// Switches to raw bytes after a 101.
    func becomeRaw() { state = .raw }

    // MARK: Answers

    /// Continues after the user accepts the answer again.
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

    /// Passes on one part. Returns whether there may be another.
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

    /// Requests a read if the user accepts more.
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
            // Bytes without a request are invalid.
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

    /// Handles the end of the input, after all received bytes are passed on.
    private func inputEnded() {
        isInputOpen = false
        guard user != nil else {
            channel?.close(promise: nil)
            return
        }
        endIfDrained()
    }

    /// Passes on the end of the input after the user has accepted everything before it.
    private func endIfDrained() {
        guard !isInputOpen, !isPumping, user != nil else { return }
        pump()
        guard let user else { return }
        switch state {
        case .raw:
            if inbound.readableBytes == 0 { user.upstreamInputEnded() }
        case .body where body?.endsWithConnection == true:
            guard inbound.readableBytes == 0 else { return }
            // RFC 9112 section 9.8: without the closure alert of TLS the body may be truncated.
            guard cause == nil else { return fail(.closed) }
            state = .over
            keepsAlive = false
            user.answerEnded(HeaderFields())
            user.upstreamReadComplete()
        case .head, .body:
            // The buffer may contain a whole answer if the user does not accept it at the moment.
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
