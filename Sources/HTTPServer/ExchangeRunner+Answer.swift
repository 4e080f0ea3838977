// The answer of an exchange to the client, from the backend or the gateway.

import HTTPCodec
import JSONGateway
import NIOCore

extension ExchangeRunner {
    var takesAnswer: Bool {
        switch answer {
        case .none, .passing, .collecting: !isCancelled
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
        case .passing: client.send(bytes)
        case .collecting(let limit):
            answerBody.writeImmutableBuffer(bytes)
            guard answerBody.readableBytes > limit else { return }
            answer = .deciding
            take(.responseTooLong)
        case .none, .deciding, .over: break
        }
    }

    func answerEnded(_ trailers: HeaderFields) {
        isAnswerWhole = true
        switch answer {
        case .passing:
            client.end(trailers)
            finish()
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
        if answerBody.readableBytes > 0 { client.send(answerBody) }
        if let upstream { return upstream.resume() }
        // The whole answer was collected, and its connection released.
        guard isAnswerWhole else { return client.abort() }
        client.end(HeaderFields())
        finish()
    }

    func collectAnswer(_ limit: Int) {
        guard let response else { return fail(.upstreamUnreachable) }
        if case .length(let length) = response.framing, length > limit { return take(.responseTooLong) }
        answer = .collecting(limit: limit)
        upstream?.resume()
    }

    package func respond(_ head: ResponseHead, _ body: ByteBuffer) {
        guard !hasBegunAnswer else { return client.abort() }
        client.respond(head, body)
        finish()
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
