// One HTTP/2 stream: the client of one exchange. RFC 9113 section 8.

import HTTPCodec
import JSONGateway
import NIOCore
import NIOHPACK
import NIOHTTP2

/// Receives the request of one stream, and writes its answer as frames.
///
/// The end of the exchange is mapped to the stream:
/// - After a complete answer: nothing, or RST_STREAM with NO_ERROR if the request is incomplete, so that the client
///   stops sending. Section 8.1.
/// - Before that: RST_STREAM with INTERNAL_ERROR, because a clean end would make the answer look complete.
/// - If the client does not read a complete answer in time: RST_STREAM with CANCEL.
///
/// NIOHTTP2 holds RST_STREAM back while the socket is full, so a client that has stopped reading closes no stream. The
/// exchange ends with the reset for this reason, and the connection if the stream is still open after another deadline.
final class HTTP2Stream: ExchangeClient {
    private enum Answer {
        case pending
        /// The head is sent.
        case begun
        /// The frame that ends it is passed to NIOHTTP2.
        case complete
        /// The frame that ends it is written.
        case written
    }

    let connection: HTTP2Connection
    private let id: HTTP2StreamID
    private var request: HTTP2Request
    private var exchange: ExchangeRunner?
    /// Received bytes of the body that the exchange has not accepted yet.
    private var body = ByteBuffer()
    /// The trailers after the last of these bytes; nil if more follow, or the exchange has accepted the end.
    private var bodyEnd: HeaderFields?
    private var hasBodyEnded: Bool
    private var window: ReceiveWindow
    private var answer = Answer.pending
    /// The last piece of the answer's body; its frame may have to end the stream.
    private var held: ByteBuffer?
    /// Bytes of the answer that wait in NIOHTTP2 for the client's window or its socket.
    private var unwritten = 0
    /// The place of these bytes in the budget, if they were collected.
    private var room: ByteReservation?
    private var isFull = false
    private var isProcessing = false
    private var isReset = false
    private var isClosed = false
    private(set) var deadline = NIODeadline.distantFuture

    var origin: ExchangeOrigin { connection.origin }
    private var limits: HTTPLimits { origin.limits }
    var upgradable: HTTPConnection? { nil }
    var isWritable: Bool { !isFull && connection.isWritable }

    init(_ id: HTTP2StreamID, _ request: HTTP2Request, connection: HTTP2Connection) {
        (self.id, self.request, self.connection) = (id, request, connection)
        hasBodyEnded = request.isWhole
        window = ReceiveWindow(target: connection.origin.limits.window)
    }

    func begin() {
        switch request.received {
        case .success(let received):
            let exchange = ExchangeRunner(received, client: self)
            self.exchange = exchange
            touch()
            exchange.start()
        case .failure(let fault): refuse(fault)
        }
        settle()
    }

    // MARK: The request

    func receive(_ bytes: ByteBuffer, isEnd: Bool) {
        do throws(HTTPFault) {
            try request.take(bytes.readableBytes, isEnd: isEnd)
        } catch {
            return reset(.protocolError)
        }
        // The rest of a request that has been answered.
        guard exchange != nil else { return }
        body.append(arrived: bytes)
        bodyArrived(HeaderFields())
    }

    func receive(trailers: HeaderFields, isEnd: Bool) {
        do throws(HTTPFault) {
            bodyArrived(try request.take(trailers, isEnd: isEnd))
        } catch .malformed {
            reset(.protocolError)
        } catch {
            broken(error)
        }
    }

    private func bodyArrived(_ trailers: HeaderFields) {
        if request.isWhole, !hasBodyEnded {
            hasBodyEnded = true
            bodyEnd = trailers
        }
        process()
        settle()
    }

    func process() {
        guard !isProcessing else { return }
        isProcessing = true
        defer { isProcessing = false }
        while !isClosed, let exchange, exchange.readsRequest {
            if body.readableBytes > 0 {
                let bytes = body
                body = ByteBuffer()
                touch()
                exchange.request(bytes)
            } else if let trailers = bodyEnd {
                bodyEnd = nil
                touch()
                exchange.requestEnded(trailers)
            } else {
                return
            }
        }
    }

    /// The client's window for this stream has changed.
    func windowChanged(_ size: Int) {
        window.changed(to: size)
        openWindow()
    }

    /// Ends a call that waits for messages: the gateway is being stopped.
    func endWaiting() { exchange?.endWaiting() }

    /// Lets the client send as much as the exchange has accepted.
    private func openWindow() {
        guard !isClosed, !request.isOver, exchange?.readsRequest == true,
            let increment = window.increment(holding: body.readableBytes)
        else { return }
        connection.write(.windowUpdate(windowSizeIncrement: increment), on: id)
    }

    /// Answers a request that did not become an exchange.
    private func refuse(_ fault: HTTPFault) {
        let (head, bytes) = GatewayFault.message(fault).answer(
            origin.services.environment.mapping, to: request.origins)
        respond(head, bytes)
        leave()
    }

    /// Answers a request whose trailers exceed a limit.
    private func broken(_ fault: HTTPFault) {
        guard let exchange else { return reset(.protocolError) }
        guard exchange.hasBegunAnswer else { return exchange.fail(.message(fault)) }
        abort()
    }

    // MARK: The answer

    func inform(_ head: ResponseHead) { write(head, isEnd: false) }

    func begin(_ head: ResponseHead, framing: BodyFraming) {
        origin.services.meters.answered(head.status)
        answer = .begun
        write(Forwarding.response(head, isChunked: false), isEnd: framing == .none)
    }

    func send(_ bytes: ByteBuffer, room: ByteReservation?) {
        writeHeld(isEnd: false)
        held = bytes
        keep(room)
    }

    /// Keeps the room of an answer until it is written, or dropped.
    private func keep(_ room: ByteReservation?) {
        guard let room else { return }
        self.room = room
        if isClosed || isReset { releaseRoom() }
    }

    private func releaseRoom() {
        room?.release()
        room = nil
    }

    func end(_ trailers: HeaderFields) {
        guard case .begun = answer else { return }
        guard !trailers.fields.isEmpty else { return writeHeld(isEnd: true) }
        writeHeld(isEnd: false)
        var headers = HPACKHeaders()
        trailers.forEachInHTTP2 { headers.add(name: $0, value: $1) }
        write(headers, isEnd: true)
    }

    func respond(_ head: ResponseHead, _ body: ByteBuffer, room: ByteReservation?) {
        origin.services.meters.answered(head.status)
        let head = head.complete(with: body)
        let isEmpty = head.hasNoBody || request.isToHead || body.readableBytes == 0
        answer = .begun
        write(head, isEnd: isEmpty)
        guard !isEmpty else { return room?.release() ?? () }
        held = body
        keep(room)
        writeHeld(isEnd: true)
    }

    private func write(_ head: ResponseHead, isEnd: Bool) {
        var headers = HPACKHeaders()
        headers.add(name: ":status", value: "\(head.status)")
        // RFC 9110 section 8.6: no `Content-Length` with 1xx and 204.
        let hasNoLength = head.status < 200 || head.status == 204
        head.headers.forEachInHTTP2 { name, value in
            if hasNoLength, name == "content-length" { return }
            // RFC 7541 section 7.1.3: secrets are not indexed, because an attacker could probe the table with guesses.
            headers.add(name: name, value: value, indexing: name == "set-cookie" ? .neverIndexed : .indexable)
        }
        write(headers, isEnd: isEnd)
    }

    private func write(_ headers: HPACKHeaders, isEnd: Bool) {
        write(.headers(.init(headers: headers, endStream: isEnd)), isEnd: isEnd)
    }

    private func writeHeld(isEnd: Bool) {
        let bytes = held
        held = nil
        guard isEnd || bytes != nil else { return }
        let data = bytes ?? ByteBuffer()
        unwritten += data.readableBytes
        if unwritten > limits.window, !isFull {
            isFull = true
            // From now on the client has to make progress, not the backend.
            touch()
        }
        write(.data(.init(data: .byteBuffer(data), endStream: isEnd)), isEnd: isEnd)
    }

    private func write(_ payload: HTTP2Frame.FramePayload, isEnd: Bool) {
        guard !isClosed, !isReset else { return }
        // Before the write, because the write may close the stream.
        if isEnd { answer = .complete }
        connection.write(payload, on: id)
    }

    /// NIOHTTP2 has written a frame of the answer, or a part of it.
    func wrote(_ count: Int, isEnd: Bool) {
        unwritten -= count
        if count > 0 { touch() }
        if isEnd { answer = .written }
        // What is left is not more than what every stream may hold.
        if room != nil, held == nil, unwritten <= limits.window { releaseRoom() }
        if isFull, unwritten <= limits.window / 2 {
            isFull = false
            connection.hasProgressed(self)
        } else if isEnd, !request.isOver {
            connection.hasProgressed(self)
        }
    }

    /// Continues after a write.
    func advance() {
        if case .written = answer { return request.isOver ? () : reset(.noError) }
        writabilityChanged()
    }

    /// The stream or the connection accepts more of the answer, or no more. That is no progress of this stream.
    func writabilityChanged() {
        if isWritable {
            exchange?.upstream?.readMore()
        } else if let exchange, unwritten > 0 {
            shorten(to: exchange.patience)
        }
    }

    func settle() {
        guard !isProcessing, !isClosed else { return }
        writeHeld(isEnd: false)
        exchange?.upstream?.flush()
        openWindow()
    }

    // MARK: Ends

    func exchangeEnded(_ ended: ExchangeRunner) {
        guard exchange === ended else { return }
        exchange = nil
        leave()
    }

    /// Gives the client time to read the answer.
    private func leave() {
        body = ByteBuffer()
        bodyEnd = nil
        touch()
    }

    func abort() {
        switch answer {
        case .pending, .begun: reset(.internalError)
        case .complete, .written: reset(.cancel)
        }
    }

    /// A stream carries one request.
    func endAfterThis() {}

    private func reset(_ code: HTTP2ErrorCode) {
        guard !isClosed, !isReset else { return }
        isReset = true
        (held, body, bodyEnd) = (nil, ByteBuffer(), nil)
        releaseRoom()
        exchange?.cancel()
        exchange = nil
        connection.write(.rstStream(code), on: id)
        arm(limits.stall)
    }

    /// The stream is closed, by both sides or by a reset, or its connection is.
    func closed() {
        isClosed = true
        held = nil
        releaseRoom()
        deadline = .distantFuture
        switch answer {
        case .pending, .begun:
            exchange?.cancel()
            exchange = nil
        // The exchange ends by itself, because its answer is complete.
        case .complete, .written: break
        }
    }

    // MARK: Deadlines

    func touch() {
        if let exchange { return arm(exchange.patience) }
        // The exchange has ended, and the client reads the rest of the answer. After a reset it gets no more time.
        if !isReset { arm(request.isOver ? limits.stall : limits.linger) }
    }

    /// Ends the wait earlier if the client keeps the rest of the answer waiting.
    private func shorten(to amount: TimeAmount) {
        guard .now() + amount < deadline else { return }
        arm(amount)
    }

    private func arm(_ amount: TimeAmount) {
        guard !isClosed else { return }
        deadline = .now() + amount
        connection.arm(deadline)
    }

    /// The deadline has passed.
    func expired() {
        deadline = .distantFuture
        if isReset { return connection.abandon() }
        if let exchange { exchange.expired() } else { abort() }
    }
}
