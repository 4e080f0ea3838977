// Executes the actions of one exchange's machine. Everything here runs on one event loop.

import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Vault

/// Runs one request and its answer.
final class ExchangeRunner: UpstreamUser, ReplyTarget {
    enum RequestMode {
        /// The machine has not decided about the body, or waits for no more of it.
        case undecided
        case forwarding
        case collecting(limit: Int)
    }

    enum AnswerMode {
        /// The backend has not answered, or has no request.
        case none
        /// The machine has the answer's head or body, and has not decided.
        case deciding
        case passing
        case collecting(limit: Int)
        /// The machine gets the beginning, and decides then.
        case beginning(count: Int)
        case over
    }

    package let client: any ExchangeClient
    let origin: ExchangeOrigin
    package let received: ReceivedRequest
    package let inbox: ExchangeInbox
    private var lookups: Lookups?
    package var machine: any ExchangeMachine
    package var events: [ExchangeEvent] = []
    package var isRunning = false
    package var request = RequestMode.undecided
    package var answer = AnswerMode.none
    var isRequestWhole: Bool
    /// The collected bytes of the request's body: the whole body, or its beginning.
    package var requestBody = ByteBuffer()
    var answerBody = ByteBuffer()
    /// The place of both bodies in the budget. The exchange releases it at its end, or passes it on with the answer.
    private var room: ByteReservation?
    /// The account for which a body was collected last.
    private var payer: AccountID?
    package var response: ReceivedResponse?
    var isAnswerWhole = false
    var reportsAnswer = true
    package var upstream: UpstreamConnection?
    /// The request sent to the backend, kept for a second attempt.
    package var outgoing: (head: RequestHead, body: ByteBuffer?)?
    /// Seals the request's body, and opens the answer's; nil if it passes as it is.
    var sealer: BodySealer?
    /// Whether the request's body is sent to the backend in chunks.
    private var sendsChunks = false
    package var opener: SealedFile.Opener?
    var hasStreamed = false
    var hasRetried = false
    var hasContinued = false
    package var wake: Scheduled<Void>?
    package var isCancelled = false
    /// The fault sent to the client if the machine returns no action after a failure.
    package var failure = GatewayFault.upstreamUnreachable

    /// The client keeps the runner until the exchange has ended, and the runner keeps its client.
    init(_ received: ReceivedRequest, client: any ExchangeClient) {
        self.received = received
        self.client = client
        origin = client.origin
        let id = origin.nextID()
        machine = origin.services.makeExchange(id)
        isRequestWhole = received.framing == .none
        inbox = ExchangeInbox(id: id, eventLoop: origin.eventLoop, services: origin.services)
        inbox.target = self
    }

    var services: HTTPServices { origin.services }

    package func start() {
        services.meters.requested()
        if client.servesCallsOnly, !ControlRoute.isReserved(received.head.path) { return fail(.noCall) }
        guard let refusal = origin.refusal else { return take(.request(received.head)) }
        client.endAfterThis()
        fail(.unavailable(refusal.reason))
        origin.eventLoop.execute(refusal.end)
    }

    // MARK: The machine

    /// Passes an event to the machine, and performs its actions.
    package func take(_ event: ExchangeEvent) {
        events.append(event)
        guard !isRunning else { return }
        isRunning = true
        var next = 0
        while next < events.count, !isOver {
            let event = events[next]
            next += 1
            var actions: [ExchangeAction] = []
            machine.take(event, at: services.clock(), &actions)
            payer = machine.payer ?? payer
            if actions.isEmpty, !hasBegunAnswer {
                if case .upstreamFailed = event { fail(failure) }
                if case .noRoom = event { fail(.noRoom) }
            }
            for action in actions where !isOver { perform(action) }
        }
        events.removeAll(keepingCapacity: true)
        isRunning = false
    }

    /// Takes an event from outside the read path, and then processes waiting input.
    package func receive(_ event: ExchangeEvent) {
        guard !isOver else { return }
        take(event)
        goOn()
    }

    /// Ends a call that waits for messages: the gateway is being stopped.
    func endWaiting() {
        if machine.endsWhenWoken { receive(.woken) }
    }

    package func answered(_ replies: [JSONReply]) {
        for reply in replies where !isOver { take(.vault(reply)) }
        goOn()
    }

    /// Processes waiting input: the machine may request the body only now, after all of it has arrived.
    private func goOn() {
        client.process()
        client.settle()
    }

    package var isOver: Bool { if case .over = answer { true } else { isCancelled } }

    var hasBegunAnswer: Bool {
        switch answer {
        case .passing, .over: true
        default: false
        }
    }

    private func perform(_ action: ExchangeAction) {
        switch action {
        case .pass(let head): forward(head, reportsAnswer: false)
        case .passRequest(let head): forward(head, reportsAnswer: true)
        case .sealRequest(let head, let sealer): seal(head, sealer)
        case .endRequest(let bytes):
            writeUpstream(bytes)
            finishUpstream(HeaderFields())
        case .collectRequest(let limit): collectRequest(limit)
        case .send(let head, let body): send(head, body)
        case .passResponse(let head): passAnswer(head)
        case .collectResponse(let limit): collectAnswer(limit)
        case .collectBeginning(let count): collectBeginning(count)
        case .openResponse(let head, let opener, let length): openAnswer(head, opener, length: length)
        case .respond(let head, let body): respond(head, body)
        case .deliver(let head, let body, let hidden): deliver(head, body, hiding: hidden)
        case .upgrade(let head, let socketMachine): upgrade(head, socketMachine)
        case .look(let lookup): look(lookup)
        case .submit(let job): inbox.submit(job)
        case .loggedIn(let account, let credential): services.loggedIn(account, credential)
        case .findWrite(let account, let key, let credential): inbox.findWrite(account, key, by: credential)
        case .enqueue(var write):
            write.head = origin.forwarded(write.head, isChunked: false)
            inbox.enqueue(write)
        case .await(let token): inbox.await(token)
        case .stopWaiting: inbox.stopWaiting()
        case .joinRelay(let call): if let fault = inbox.joinRelay(call) { take(.relayRefused(fault)) }
        case .beginRelay(let head, let call):
            guard let connection = client.upgradable, !hasBegunAnswer else { return fail(.upstreamUnreachable) }
            handOver()
            connection.beginRelay(head, call, self)
        case .beginMailSocket(let head, let machine):
            guard let connection = client.upgradable, !hasBegunAnswer else { return fail(.upstreamUnreachable) }
            handOver()
            connection.beginMailSocket(head, machine, self)
        case .wake(let time):
            wake?.cancel()
            wake = origin.schedule(at: time) { [weak self] in self?.receive(.woken) }
        case .report(let defect): services.defect(defect)
        }
    }

    private func look(_ lookup: Lookup) {
        let lookups = lookups ?? Lookups(origin)
        self.lookups = lookups
        lookups.send(lookup, for: machine.payer) { [unowned self] in receive($0) }
    }

    /// Ends the exchange's part before its connection becomes a WebSocket, which keeps the inbox.
    func handOver() {
        answer = .over
        upstream = nil
        wake?.cancel()
        lookups?.cancel()
        releaseRoom()
    }

    // MARK: The budget

    /// Reserves room for the collected bytes.
    ///
    /// - Returns: false if there is none; the bytes count all the same, until they are dropped.
    func reserveRoom(for use: ByteBudget.Use) -> Bool {
        let room = room ?? services.budget.reservation(of: machine.payer)
        self.room = room
        let count = requestBody.readableBytes + answerBody.readableBytes
        if room.resize(to: count, for: use) { return true }
        room.set(count)
        return false
    }

    /// Reserves room for the gateway's own answer if it is long. The client may leave many such answers unread.
    ///
    /// - Returns: false if there is none.
    func reserveRoom(forAnswer count: Int) -> Bool {
        guard count - (room?.count ?? 0) > origin.limits.window else { return true }
        let room = room ?? services.budget.reservation(of: payer)
        self.room = room
        return room.resize(to: count, for: .answer)
    }

    /// Drops the collected bytes, which are passed to the client or needed no more.
    ///
    /// - Parameter count: bytes that are passed to the client.
    /// - Returns: the room for these, which the client releases when it has them; nil if there is none to release.
    func passOnRoom(for count: Int) -> ByteReservation? {
        (requestBody, answerBody) = (ByteBuffer(), ByteBuffer())
        defer { room = nil }
        room?.set(count)
        return room
    }

    private func releaseRoom() {
        (requestBody, answerBody) = (ByteBuffer(), ByteBuffer())
        room?.release()
        room = nil
    }

    // MARK: The request

    /// Whether the exchange accepts received parts of the request's body.
    var takesRequest: Bool {
        switch request {
        case .undecided: false
        case .forwarding: upstream != nil
        case .collecting: true
        }
    }

    /// Whether the connection should read more of the request's body.
    var readsRequest: Bool {
        guard !isRequestWhole, !isOver else { return false }
        if case .forwarding = request { return upstream?.isWritable ?? false }
        return takesRequest
    }

    package func request(_ bytes: ByteBuffer) {
        switch request {
        case .forwarding:
            hasStreamed = true
            writeBody(bytes)
        case .collecting(let limit):
            requestBody.writeImmutableBuffer(bytes)
            guard requestBody.readableBytes <= limit else {
                request = .undecided
                return take(.requestTooLong)
            }
            guard !reserveRoom(for: .request) else { return }
            request = .undecided
            take(.noRoom)
        case .undecided: break
        }
    }

    func requestEnded(_ trailers: HeaderFields) {
        isRequestWhole = true
        switch request {
        case .forwarding: endUpstream(trailers)
        case .collecting:
            request = .undecided
            take(.requestBody(requestBody))
        case .undecided: break
        }
    }

    private func collectRequest(_ limit: Int) {
        if isRequestWhole { return take(.requestBody(requestBody)) }
        if case .length(let length) = received.framing, length > limit { return take(.requestTooLong) }
        request = .collecting(limit: limit)
        client.touch()
        if received.expectsContinue, !hasContinued {
            hasContinued = true
            client.inform(ResponseHead(100, reason: "Continue"))
        }
    }

    private func forward(_ head: RequestHead, reportsAnswer: Bool) {
        self.reportsAnswer = reportsAnswer
        // The length of a sealed form is known at its end.
        let isChunked = received.framing == .chunked || received.framing != .none && sealer?.keepsLength == false
        sendsChunks = isChunked
        var head = head
        if received.framing != .none || received.minorVersion == 0 { head.headers.remove("upgrade") }
        if hasContinued || received.minorVersion == 0 { head.headers.remove("expect") }
        if case .length(var length) = received.framing, !isChunked {
            if sealer != nil {
                guard let sealed = SealedFile.sealedSize(of: length) else { return fail(.requestTooLong) }
                length = sealed
            }
            if head.headers["content-length"] != ["\(length)"] { head.headers.set("Content-Length", to: "\(length)") }
        } else if isChunked {
            head.headers.remove("content-length")
            if head.headers.first("transfer-encoding") == nil { head.headers.add("Transfer-Encoding", "chunked") }
        }
        request = .forwarding
        lease(origin.forwarded(head, isChunked: isChunked), body: nil)
    }

    /// Forwards a request, its body sealed as it comes.
    private func seal(_ head: RequestHead, _ sealer: BodySealer) {
        self.sealer = sealer
        // What was sealed is not sealed again.
        hasStreamed = true
        forward(head, reportsAnswer: true)
    }

    private func send(_ head: RequestHead, _ body: ByteBuffer) {
        reportsAnswer = true
        request = .undecided
        var head = head
        for name in ["expect", "trailer", "upgrade"] { head.headers.remove(name) }
        if body.readableBytes > 0 || head.headers.first("content-length") != nil || received.framing != .none {
            head.headers.set("Content-Length", to: "\(body.readableBytes)")
        }
        lease(origin.forwarded(head, isChunked: false), body: body)
    }

    private func lease(_ head: RequestHead, body: ByteBuffer?) {
        // Under `off` even a call would be forwarded.
        guard !client.servesCallsOnly else { return fail(.noCall) }
        upstream?.close()
        upstream = nil
        (answer, response, isAnswerWhole) = (.none, nil, false)
        answerBody = ByteBuffer()
        room?.set(requestBody.readableBytes)
        outgoing = (head, body)
        origin.pool.lease(self, isFresh: false)
    }

    func leased(_ upstream: UpstreamConnection) {
        guard let outgoing, self.upstream == nil else { return upstream.release() }
        self.upstream = upstream
        var bytes = origin.scratch()
        bytes.write(outgoing.head)
        let isWhole = outgoing.body != nil || received.framing == .none
        let isToHead = outgoing.head.method == "HEAD"
        if let body = outgoing.body, body.readableBytes > 0 {
            bytes.writeImmutableBuffer(body)
        }
        upstream.begin(bytes, isToHead: isToHead, isWhole: isWhole)
        origin.giveBack(&bytes)
        if !isWhole {
            if sealer != nil { writeSealed { try $0.begin(into: &$1) } }
            if requestBody.readableBytes > 0 {
                writeBody(requestBody)
            }
            if isRequestWhole { endUpstream(HeaderFields()) }
        }
        client.process()
        client.touch()
        client.settle()
    }

    /// Writes a piece of the request's body, sealed if it has to be.
    private func writeBody(_ bytes: ByteBuffer) {
        guard sealer != nil else { return writeUpstream(bytes) }
        writeSealed { sealer, output in try bytes.withUnsafeReadableBytes { try sealer.seal($0, into: &output) } }
    }

    private func writeSealed(_ seal: (inout BodySealer, inout [UInt8]) throws -> Void) {
        guard var sealer = sealer.take() else { return }
        var output: [UInt8] = []
        do {
            try seal(&sealer, &output)
        } catch {
            // The backend gets an incomplete request, and keeps nothing of it.
            upstream?.close()
            upstream = nil
            guard let fault = error as? UploadFault else { return fail(.requestTooLong) }
            services.environment.tally.add(.refusedMedia)
            return fail(.upload(fault))
        }
        self.sealer = sealer
        if !output.isEmpty { writeUpstream(ByteBuffer(bytes: output)) }
    }

    private func writeUpstream(_ bytes: ByteBuffer) {
        guard let upstream else { return }
        guard sendsChunks else { return upstream.write(bytes) }
        var line = ByteBuffer()
        line.writeChunkLine(bytes.readableBytes)
        upstream.write(line)
        upstream.write(bytes)
        upstream.write(Self.lineEnd)
    }

    package static let lineEnd = ByteBuffer(string: "\r\n")

    private func endUpstream(_ trailers: HeaderFields) {
        if sealer != nil {
            writeSealed { try $0.end(into: &$1) }
            // Without it the request is incomplete, and has been answered.
            guard let sealer = sealer.take() else { return }
            if let texts = sealer.texts {
                // A backend that has answered does not get the rest.
                if case .none = answer { take(.formTexts(texts)) }
                return
            }
        }
        finishUpstream(trailers)
    }

    private func finishUpstream(_ trailers: HeaderFields) {
        if sendsChunks {
            var end = ByteBuffer()
            end.writeLastChunk(trailers)
            upstream?.write(end)
        }
        upstream?.requestEnded()
    }

    // MARK: Ends

    func releaseUpstream() {
        let upstream = upstream
        self.upstream = nil
        upstream?.release()
    }

    package func finish() {
        guard !isOver else { return }
        answer = .over
        isCancelled = true
        end()
        client.exchangeEnded(self)
    }

    /// Ends the exchange after the client has disconnected or reset its stream.
    package func cancel() {
        isCancelled = true
        end()
    }

    package func end() {
        wake?.cancel()
        inbox.close()
        lookups?.cancel()
        outgoing = nil
        releaseRoom()
        origin.pool.withdraw(self)
        releaseUpstream()
    }

    func leaseFailed(_ error: any Error) {
        if case ChannelError.connectTimeout = error { failure = .upstreamTimeout }
        if case UpstreamError.timeout = error { failure = .upstreamTimeout }
        receive(.upstreamFailed)
    }

    func upstreamBroke(_ error: any Error) {
        let upstream = upstream
        self.upstream = nil
        guard !isOver else { return }
        if isStale(upstream) {
            hasRetried = true
            origin.pool.lease(self, isFresh: true)
            return client.settle()
        }
        services.report(error)
        broke(.upstreamUnreachable)
        client.settle()
    }

    /// How long the next progress may take.
    var patience: TimeAmount { readsRequest || !client.isWritable ? origin.limits.stall : origin.limits.answer }

    /// Handles a deadline that has passed without progress.
    func expired() {
        if !client.isWritable { return client.abort() }
        if readsRequest {
            guard !hasBegunAnswer else { return client.abort() }
            client.endAfterThis()
            fail(.requestTimeout)
            return client.settle()
        }
        if awaitsUpstream { timedOut() }
        // Otherwise the machine waits for its own event, and has set its own timer.
        client.touch()
    }

    /// The backend has not answered in time.
    private func timedOut() {
        upstream?.close()
        upstream = nil
        services.report(UpstreamError.timeout)
        broke(.upstreamTimeout)
        client.settle()
    }

    func broke(_ fault: GatewayFault) {
        failure = fault
        upstream?.close()
        upstream = nil
        guard !hasBegunAnswer else { return client.abort() }
        answer = .none
        take(.upstreamFailed)
    }

    /// Whether the backend closed an idle connection just as it was reused, and the request may be sent again.
    ///
    /// Only idempotent requests are retried. RFC 9110 section 9.2.2.
    private func isStale(_ upstream: UpstreamConnection?) -> Bool {
        guard let upstream, let outgoing, case .none = answer, upstream.mayBeStale else { return false }
        return !hasRetried && !hasStreamed && outgoing.head.isIdempotent
    }

    /// Whether the exchange waits for the backend's answer, or for more of it.
    var awaitsUpstream: Bool {
        switch answer {
        case .none: outgoing != nil
        case .passing, .collecting, .beginning: upstream != nil
        case .deciding, .over: false
        }
    }

    package func upstreamReadComplete() { client.settle() }

    func upstreamIsWritable() {
        client.process()
        client.settle()
    }

    func upstreamBytes(_: ByteBuffer) {}
    package func upstreamInputEnded() {}
}
