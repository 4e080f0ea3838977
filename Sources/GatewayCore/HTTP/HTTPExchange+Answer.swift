// What comes back: passed on, or opened for a client that cannot.

import Envelope
import JSONCodec
import NIOCore

extension HTTPExchange {
    /// Ours: bytes of an answer whose messages are opened. JSONLimits takes no more either.
    static var answerLimit: Int { 16 << 20 }

    mutating func answered(_ head: ResponseHead, _ actions: inout [ExchangeAction]) {
        responseHead = head
        forgetConversation()
        if isUpgrade, head.status == 101 {
            stage = .done
            let session = readsAnswer ? account.map { webSocket(of: $0) } : nil
            return actions.append(.upgrade(head, session))
        }
        if head.status == 401, let credential { environment.credentials.forget(credential.digest) }
        guard readsAnswer, wantsToRead(head) else {
            stage = .done
            return actions.append(.passResponse(head))
        }
        stage = .responseBody
        actions.append(.collectResponse(limit: Self.answerLimit))
    }

    /// What carries no text may have changed who is in the conversation.
    func forgetConversation() {
        guard match?.route.label == .control, !conversationOfHead.isEmpty else { return }
        environment.conversations.forget(conversationOfHead)
    }

    private func webSocket(of account: AccountID) -> WebSocketSession {
        WebSocketSession(
            environment: environment, connection: connection, account: account, credential: credential)
    }

    /// Whether an answer may hold messages.
    func wantsToRead(_ head: ResponseHead) -> Bool {
        guard let match, !match.route.response.isEmpty, (200..<300).contains(head.status), head.status != 204
        else { return false }
        return head.headers.first("Content-Type").map { $0.lowercased().contains("json") } ?? true
    }

    mutating func answered(_ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        self.body = body
        guard let match, let account else { return }
        guard let document = try? JSONDocument(body) else {
            // What is no document cannot be read as messages by anybody; it goes as it came.
            environment.tally.add(.badLines)
            return respond(responseHead, body, &actions)
        }
        var messages = IncomingMessages(
            document, match.route.response, label: match.route.label, reader: account,
            readsEnvelopes: provenDevice != nil, captures: match.captures, query: match.query,
            directory: environment.directory)
        stage = .opening
        for job in messages.jobs(connection, environment) { actions.append(.submit(.read(job))) }
        incoming = messages
        if messages.isComplete { finish(messages, &actions) }
    }

    mutating func opened(_ ticket: UInt64, _ outcomes: [ReadOutcome], _ actions: inout [ExchangeAction]) {
        guard incoming?.take(outcomes, for: ticket) == true, let incoming, incoming.isComplete else { return }
        finish(incoming, &actions)
    }

    private mutating func finish(_ incoming: IncomingMessages, _ actions: inout [ExchangeAction]) {
        do throws(MessageFault) {
            let edited = try incoming.opened(environment).bytes
            var head = responseHead
            if edited != body { head.headers.removeWhatDescribesTheBody() }
            respond(head, edited, &actions)
        } catch {
            // A document that cannot be changed where it has to be is not shown.
            refuse(.answerUnreadable, &actions)
        }
    }

    mutating func respond(_ head: ResponseHead, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        stage = .done
        actions.append(.respond(head, body))
    }

    // MARK: No

    mutating func refuse(_ no: ExchangeRefusal, _ actions: inout [ExchangeAction]) {
        if case .refused(let refusal) = no { environment.tally.add(TallyKind(refusal)) }
        let target = conversation
        let (head, body) = mapping.refusal.answer(
            to: no, words: no.words(target: target.isEmpty ? "this conversation" : target, environment.texts))
        respond(head, body, &actions)
    }
}

extension HeaderFields {
    /// Takes away what is true of the body that came and not of the one that goes.
    mutating func removeWhatDescribesTheBody() {
        for name in ["ETag", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"] { remove(name) }
    }
}
