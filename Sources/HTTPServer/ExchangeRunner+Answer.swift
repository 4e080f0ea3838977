// The answer of an exchange to the client, from the backend or the gateway.

import HTTPCodec
import JSONGateway
import NIOCore
import Reports
import Vault

extension ExchangeRunner {
    var takesAnswer: Bool {
        switch answer {
        case .none, .passing, .collecting, .beginning: !isCancelled
        case .deciding, .over: false
        }
    }

    package var readsAnswer: Bool { if case .passing = answer { client.isWritable } else { true } }

    package func answered(_ response: ReceivedResponse) {
        let status = response.head.status
        if status < 200, status != 101 { return inform(response.head) }
        if status == 101, outgoing.map({ Forwarding.upgradesToWebSocket($0.head) }) != true {
            services.upstreamFailed(UpstreamError.unaskedUpgrade)
            return broke(.upstreamUnreachable)
        }
        self.response = response
        guard reportsAnswer else {
            if status == 101 { return upgrade(response.head, nil) }
            return passAnswer(response.head)
        }
        answer = .deciding
        take(.response(response.head))
    }

    /// Forwards an informational response, for instance 100 or 103, if the client's own request is forwarded.
    private func inform(_ head: ResponseHead) {
        guard case .forwarding = request, received.minorVersion > 0 else { return }
        guard head.status != 100 || received.expectsContinue else { return }
        client.inform(Forwarding.response(head, isChunked: false))
    }

    package func answered(_ bytes: ByteBuffer) {
        client.touch()
        switch answer {
        case .passing: pass(bytes)
        case .beginning(let count):
            answerBody.writeImmutableBuffer(bytes)
            guard answerBody.readableBytes >= count else { return }
            answer = .deciding
            take(.responseBeginning(answerBody))
        case .collecting(let limit):
            answerBody.writeImmutableBuffer(bytes)
            guard answerBody.readableBytes <= limit else {
                answer = .deciding
                return take(.responseTooLong)
            }
            guard !reserveRoom(for: .answer) else { return }
            answer = .deciding
            take(.noRoom)
        case .none, .deciding, .over: break
        }
    }

    func answerEnded(_ trailers: HeaderFields) {
        isAnswerWhole = true
        switch answer {
        case .passing: passEnd(trailers)
        case .beginning:
            answer = .deciding
            releaseUpstream()
            take(.responseBeginning(answerBody))
        case .collecting:
            answer = .deciding
            // The answer is complete, so the connection is no longer needed.
            releaseUpstream()
            take(.responseBody(answerBody))
        case .deciding, .none, .over:
            releaseUpstream()
        }
    }

    package func passAnswer(_ head: ResponseHead) {
        guard let response, !hasBegunAnswer else { return fail(.upstreamUnreachable) }
        var head = head
        if case .length(let length) = response.framing {
            if head.headers["content-length"] != ["\(length)"] { head.headers.set("Content-Length", to: "\(length)") }
        } else if response.framing != .none {
            head.headers.remove("content-length")
        }
        client.begin(head, framing: response.framing)
        answer = .passing
        passOn()
    }

    /// Forwards what was collected of the answer, and the rest as it comes.
    private func passOn() {
        let collected = answerBody
        answerBody = ByteBuffer()
        if collected.readableBytes > 0 {
            if opener == nil {
                client.send(collected, room: passOnRoom(for: collected.readableBytes))
            } else {
                pass(collected)
            }
        }
        guard case .passing = answer, !isCancelled else { return }
        if let upstream { return upstream.resume() }
        // The whole answer was collected, and its connection released.
        guard isAnswerWhole else { return client.abort() }
        passEnd(HeaderFields())
    }

    /// Forwards a piece of the answer's body, opened if it is sealed.
    private func pass(_ bytes: ByteBuffer) {
        guard opener != nil else { return client.send(bytes) }
        open { opener, output in try bytes.withUnsafeReadableBytes { try opener.open($0, into: &output) } }
        guard opener?.isComplete == true else { return }
        // The rest of the file is not asked for.
        opener = nil
        client.end(HeaderFields())
        finish()
    }

    private func passEnd(_ trailers: HeaderFields) {
        if opener != nil {
            open { try $0.end(into: &$1) }
            guard opener.take() != nil else { return }
        }
        client.end(trailers)
        finish()
    }

    private func open(_ open: (inout SealedFile.Opener, inout [UInt8]) throws -> Void) {
        guard var opener = opener.take() else { return }
        var output: [UInt8] = []
        do {
            try open(&opener, &output)
        } catch {
            // The client sees that the answer is incomplete.
            services.environment.tally.add(.openNotAuthentic)
            client.abort()
            return cancel()
        }
        self.opener = opener
        if !output.isEmpty { client.send(ByteBuffer(bytes: output)) }
    }

    /// Forwards the answer with this head, its body opened.
    func openAnswer(_ head: ResponseHead, _ opener: SealedFile.Opener, length: Int?) {
        guard response != nil, !hasBegunAnswer else { return fail(.upstreamUnreachable) }
        var head = head
        head.headers.remove("transfer-encoding")
        head.headers.remove("content-length")
        if let length { head.headers.set("Content-Length", to: "\(length)") }
        self.opener = opener
        client.begin(head, framing: length.map { .length($0) } ?? .chunked)
        answer = .passing
        passOn()
    }

    /// Collects the beginning of the answer.
    func collectBeginning(_ count: Int) {
        guard response != nil else { return fail(.upstreamUnreachable) }
        answer = .beginning(count: count)
        upstream?.resume()
    }

    func collectAnswer(_ limit: Int) {
        guard let response else { return fail(.upstreamUnreachable) }
        if case .length(let length) = response.framing, length > limit { return take(.responseTooLong) }
        answer = .collecting(limit: limit)
        upstream?.resume()
    }

    package func respond(_ head: ResponseHead, _ body: ByteBuffer) {
        guard !hasBegunAnswer else { return client.abort() }
        guard reserveRoom(forAnswer: body.readableBytes) else { return refuseForWantOfRoom() }
        client.respond(head, body, room: passOnRoom(for: body.readableBytes))
        finish()
    }

    /// Answers in place of a longer answer for which there is no room.
    private func refuseForWantOfRoom() {
        guard ControlRoute.isReserved(received.head.path) else { return fail(.noRoom) }
        let (head, body) = ControlAnswer(.noRoom).response
        client.respond(services.environment.mapping.readable(head, for: received.head.headers), body)
        finish()
    }

    /// Sends an answer of the backend that was read, compressed if the client accepts it and it is worth it.
    func deliver(_ head: ResponseHead, _ body: ByteBuffer, hiding hidden: [Range<Int>]?) {
        let compression = Compression(head, body.readableBytes, above: origin.limits.compressAbove)
        guard let hidden, let compression else { return respond(head, body) }
        let head = compression.selected(head)
        guard received.head.headers.acceptsGzip else { return respond(head, body) }
        // The machine has ended, and waits for no time.
        wake?.cancel()
        answer = .deciding
        guard body.readableBytes > Compression.sizeAtOnce else {
            return respond(head, body, compressed: Gzip.compress(body, hiding: hidden))
        }
        compression.compress(body, hiding: hidden, on: origin.eventLoop) { [weak self] compressed in
            guard let self, !isOver else { return }
            respond(head, body, compressed: compressed)
            client.settle()
        }
    }

    /// - Parameter compressed: nil if the body is sent as it is.
    private func respond(_ head: ResponseHead, _ body: ByteBuffer, compressed: ByteBuffer?) {
        guard let compressed else { return respond(head, body) }
        respond(Compression.compressed(head), compressed)
    }

    /// Sends the gateway's own answer for a fault.
    package func fail(_ fault: GatewayFault) {
        guard !hasBegunAnswer else { return client.abort() }
        let (head, body) = fault.answer(services.environment.mapping, toRequest: received.head)
        client.respond(head, body)
        finish()
    }

    package func upgrade(_ head: ResponseHead, _ socketMachine: WebSocketMachine?) {
        guard let upstream, let connection = client.upgradable, !hasBegunAnswer, response?.head.status == 101 else {
            return fail(.upstreamUnreachable)
        }
        handOver()
        connection.upgrade(head, socketMachine, upstream, self)
    }
}
