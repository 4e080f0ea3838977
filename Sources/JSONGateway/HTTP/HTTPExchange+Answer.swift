// Forwards the backend's answer, or opens its messages for a client that cannot.
//
// An answer is streamed unread only if nothing in it can be sealed or marked for its reader: no conversation is
// latched, no device is published, the vault has no keys of earlier messages, and the policies demand no mark. Such
// history passes unbuffered. Live messages are read all the same, because the head of a long poll may be older than a
// protection that rises meanwhile. All other answers may be `limits.answer_bytes` long.

import HTTPCodec
import JSONCodec
import NIOCore
import Protection
import Reports
import Vault

extension HTTPExchange {
    func answered(_ forwarded: Forwarded, _ head: ResponseHead, _ actions: inout [ExchangeAction]) -> State {
        let request = forwarded.request
        forgetMembers(after: request.match)
        if request.isUpgrade, head.status == 101 {
            actions.append(.upgrade(head, webSocket(of: forwarded)))
            return .over
        }
        if head.status == 401, let credential = forwarded.credential {
            environment.credentials.forget(credential.digest)
        }
        if let (conversation, message) = forwarded.sealed, head.isFinalRefusal {
            actions.append(.submit(.refused(ConversationID(conversation, conversation), message)))
        }
        guard let reader = forwarded.reader else { return passAnswer(head, &actions) }
        switch content(of: head, to: request.head, request.match, for: reader.account) {
        case .nothing: return passAnswer(head, &actions)
        // The head of a long poll may arrive before a conversation is protected, so live messages are always inspected.
        case .document(let match)
        where match.route.label.isHistory && environment.hasNothingSealed(for: reader.account):
            return passAnswer(head, &actions)
        case .document(let match):
            actions.append(.collectResponse(limit: settings.answerLimit))
            return .collectingAnswer(ReadAnswer(request: request.head, match: match, client: reader, head: head))
        case .unreadable: return withhold(request.head, &actions)
        }
    }

    /// Forwards the answer unchanged, beginning with the collected part.
    private func passAnswer(_ head: ResponseHead, _ actions: inout [ExchangeAction]) -> State {
        actions.append(.passResponse(head))
        return .over
    }

    /// Handles an answer that exceeds ``JSONEnvironment/Settings/answerLimit``, or for which there is no memory.
    func answerIsNotCollected(
        _ answer: ReadAnswer, _ no: ExchangeRefusal, _ actions: inout [ExchangeAction]
    ) -> State {
        guard environment.hasNothingSealed(for: answer.client.account) else {
            return refuse(no, to: answer.request, &actions)
        }
        return passAnswer(answer.head, &actions)
    }

    /// Drops the cached members of the conversation, which a control request may have changed.
    func forgetMembers(after match: RouteMatch?) {
        guard let match, match.route.label == .control, !match.conversation.isEmpty else { return }
        environment.conversations.forget(match.conversation)
    }

    /// The machine of a WebSocket that is inspected; nil if it is not.
    private func webSocket(of forwarded: Forwarded) -> WebSocketMachine? {
        if let client = forwarded.reader {
            var machine = WebSocketMachine(
                environment: environment, connection: connection, account: client.account,
                credential: client.credential)
            machine.isOfForeignPage =
                client.credential.isAmbient && mapping.isOfForeignPage(forwarded.request.head.headers)
            return machine
        }
        return forwarded.awaitedLogin.map {
            WebSocketMachine(
                environment: environment, connection: connection, software: $0.software,
                asksForEncryption: $0.asksForEncryption)
        }
    }

    /// The content of an answer, judged by its head.
    enum AnswerContent {
        /// No messages.
        case nothing
        /// JSON, which may contain messages where the route says.
        case document(RouteMatch)
        /// A format in which the gateway cannot find messages, but others may.
        case unreadable
    }

    func content(
        of head: ResponseHead, to request: RequestHead, _ match: RouteMatch?, for reader: AccountID
    ) -> AnswerContent {
        guard let match, !match.route.response.isEmpty, (200..<300).contains(head.status), head.status != 204,
            request.method != "HEAD", head.headers.first("Content-Length") != "0"
        else { return .nothing }
        if head.headers.arePlainJSON { return .document(match) }
        return environment.passesUnread(to: reader) ? .nothing : .unreadable
    }

    /// Refuses an answer that the gateway cannot read, because a client may find messages in it.
    func withhold(_ request: RequestHead, _ actions: inout [ExchangeAction]) -> State {
        environment.tally.add(.withheld)
        return refuse(.answerUnreadable, to: request, &actions)
    }

    /// Opens the messages of a whole answer.
    func read(_ answer: ReadAnswer, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) -> State {
        let (client, match) = (answer.client, answer.match)
        let document: JSONDocument
        do throws(JSONError) {
            let limits = JSONLimits(size: settings.answerLimit)
            document = try JSONDocument(body, limits: limits).parsing(for: match.route.response, limits: limits)
        } catch {
            let passesUnread = environment.passesUnread(to: client.account)
            if error.isTooMuch, !passesUnread { return refuse(.answerTooLong, to: answer.request, &actions) }
            guard body.readableBytes == 0 || passesUnread else { return withhold(answer.request, &actions) }
            environment.tally.add(.badLines)
            return respond(answer.head, body, &actions)
        }
        var messages = IncomingMessages(
            document, match.route.response, label: match.route.label, reader: client.account,
            readsEnvelopes: provenDevice(of: client) != nil, target: match.target,
            directory: environment.directory)
        for job in messages.jobs(connection, environment) { actions.append(.submit(.open(job))) }
        return messages.isComplete ? finish(answer, body, messages, &actions) : .opening(answer, body, messages)
    }

    /// Handles the outcomes of a job of the vault.
    ///
    /// - Returns: nil if the job does not belong to this answer.
    func opened(
        _ answer: ReadAnswer, _ body: ByteBuffer, _ messages: IncomingMessages, _ ticket: UInt64,
        _ outcomes: [OpenOutcome], _ actions: inout [ExchangeAction]
    ) -> State? {
        var messages = messages
        guard messages.take(outcomes, for: ticket) else { return nil }
        return messages.isComplete ? finish(answer, body, messages, &actions) : .opening(answer, body, messages)
    }

    private func finish(
        _ answer: ReadAnswer, _ body: ByteBuffer, _ messages: IncomingMessages, _ actions: inout [ExchangeAction]
    ) -> State {
        do throws(MessageFault) {
            let opened = try messages.opened(environment)
            var head = answer.head
            if opened.bytes != body { head.headers.removeWhatDescribesTheBody() }
            actions.append(.deliver(head, opened.bytes, hiding: opened.written))
            return .over
        } catch {
            // A document without the required changes must not reach the client.
            return refuse(.answerUnreadable, to: answer.request, &actions)
        }
    }

    func respond(_ head: ResponseHead, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) -> State {
        actions.append(.respond(head, body))
        return .over
    }

    /// Sends the gateway's own answer, readable by web pages if the mapping allows it.
    func respondItself(
        _ head: ResponseHead, _ body: ByteBuffer, to request: RequestHead?, _ actions: inout [ExchangeAction]
    ) -> State {
        respond(mapping.readable(head, for: request?.headers ?? HeaderFields()), body, &actions)
    }

    // MARK: Refusals

    /// - Parameter recipient: the recipients in the words for people; nil if unknown.
    func refuse(
        _ no: ExchangeRefusal, to request: RequestHead?, recipient: NamedRecipient? = nil,
        _ actions: inout [ExchangeAction]
    ) -> State {
        environment.tally.add(no)
        let (head, body) = mapping.refusal.answer(to: no, words: no.words(recipient, environment.texts))
        return respondItself(head, body, to: request, &actions)
    }
}

extension HeaderFields {
    /// Whether the fields describe a body in JSON without encoding. RFC 9110 sections 8.3 and 8.4.
    fileprivate var arePlainJSON: Bool {
        tokens("Content-Encoding").allSatisfy { $0 == "identity" }
            && self["Content-Type"].allSatisfy { Self.namesJSON($0) }
    }

    /// Whether a media type has `json` in it, in any case.
    private static func namesJSON(_ type: String) -> Bool {
        let letters: StaticString = "json"
        var found = 0
        for byte in type.utf8 where found < letters.utf8CodeUnitCount {
            let letter = byte | 0x20
            found = letter == letters.utf8Start[found] ? found + 1 : letter == letters.utf8Start[0] ? 1 : 0
        }
        return found == letters.utf8CodeUnitCount
    }

    /// Removes fields that describe the received body and are wrong for the changed one.
    mutating func removeWhatDescribesTheBody() {
        for name in ["ETag", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"] { remove(name) }
    }
}
