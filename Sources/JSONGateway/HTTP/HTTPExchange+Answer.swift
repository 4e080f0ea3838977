// Forwards the backend's answer, or opens its messages for a client that cannot.
//
// An answer is streamed unread only if nothing in it can be sealed or marked for its reader: no conversation is
// latched, no device is published, and the policies demand no mark. Such history passes unbuffered. Live messages are
// read all the same, because the head of a long poll may be older than a protection that rises meanwhile. All other
// answers may be `limits.answer_bytes` long.

import Envelope
package import HTTPCodec
import JSONCodec
package import NIOCore
import Protection
import Reports
package import Vault

extension HTTPExchange {
    package mutating func answered(_ head: ResponseHead, _ actions: inout [ExchangeAction]) {
        responseHead = head
        forgetConversation()
        if isUpgrade, head.status == 101 {
            stage = .done
            let socketMachine = readsAnswer ? account.map { webSocket(of: $0) } : nil
            return actions.append(.upgrade(head, socketMachine))
        }
        if head.status == 401, let credential { environment.credentials.forget(credential.digest) }
        switch readsAnswer ? content(of: head) : .nothing {
        case .nothing: passAnswer(&actions)
        // The head of a long poll may arrive before a conversation is protected, so live messages are always inspected.
        case .document where match?.route.label.isHistory == true && hasNothingSealed: passAnswer(&actions)
        case .document:
            stage = .responseBody
            actions.append(.collectResponse(limit: settings.answerLimit))
        case .unreadable: withhold(&actions)
        }
    }

    /// Forwards the answer unchanged, beginning with the collected part.
    private mutating func passAnswer(_ actions: inout [ExchangeAction]) {
        stage = .done
        actions.append(.passResponse(responseHead))
    }

    private var hasNothingSealed: Bool { account.map(environment.hasNothingSealed) ?? false }

    /// Handles an answer that exceeds ``JSONEnvironment/Settings/answerLimit``.
    mutating func answerIsTooLong(_ actions: inout [ExchangeAction]) {
        if hasNothingSealed { passAnswer(&actions) } else { refuse(.answerTooLong, &actions) }
    }

    /// Drops the cached members of the conversation, which a control request may have changed.
    func forgetConversation() {
        guard match?.route.label == .control, !conversationOfHead.isEmpty else { return }
        environment.conversations.forget(conversationOfHead)
    }

    private func webSocket(of account: AccountID) -> WebSocketMachine {
        WebSocketMachine(
            environment: environment, connection: connection, account: account, credential: credential)
    }

    /// The content of an answer, judged by its head.
    package enum AnswerContent {
        /// No messages.
        case nothing
        /// JSON, which may contain messages.
        case document
        /// A format in which the gateway cannot find messages, but others may.
        case unreadable
    }

    package func content(of head: ResponseHead) -> AnswerContent {
        guard let match, !match.route.response.isEmpty, (200..<300).contains(head.status), head.status != 204,
            self.head.method != "HEAD", head.headers.first("Content-Length") != "0"
        else { return .nothing }
        if head.headers.arePlainJSON { return .document }
        return passesUnread ? .nothing : .unreadable
    }

    private var passesUnread: Bool { account.map(environment.passesUnread) ?? true }

    /// Refuses an answer that the gateway cannot read, because a client may find messages in it.
    package mutating func withhold(_ actions: inout [ExchangeAction]) {
        environment.tally.add(.withheld)
        refuse(.answerUnreadable, &actions)
    }

    package mutating func answered(_ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        self.body = body
        guard let match, let account else { return }
        let document: JSONDocument
        do throws(JSONError) {
            document = try JSONDocument(body, limits: JSONLimits(size: settings.answerLimit))
        } catch {
            if error.isTooMuch, !passesUnread { return refuse(.answerTooLong, &actions) }
            guard body.readableBytes == 0 || passesUnread else { return withhold(&actions) }
            environment.tally.add(.badLines)
            return respond(responseHead, body, &actions)
        }
        var messages = IncomingMessages(
            document, match.route.response, label: match.route.label, reader: account,
            readsEnvelopes: provenDevice != nil, target: match.target,
            directory: environment.directory)
        stage = .opening
        for job in messages.jobs(connection, environment) { actions.append(.submit(.open(job))) }
        incoming = messages
        if messages.isComplete { finish(messages, &actions) }
    }

    package mutating func opened(_ ticket: UInt64, _ outcomes: [OpenOutcome], _ actions: inout [ExchangeAction]) {
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
            // A document without the required changes must not reach the client.
            refuse(.answerUnreadable, &actions)
        }
    }

    package mutating func respond(_ head: ResponseHead, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        stage = .done
        actions.append(.respond(head, body))
    }

    /// Sends the gateway's own answer, readable by web pages if the mapping allows it.
    mutating func respondItself(_ head: ResponseHead, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        respond(mapping.readable(head, for: self.head.headers), body, &actions)
    }

    // MARK: Refusals

    package mutating func refuse(_ no: ExchangeRefusal, _ actions: inout [ExchangeAction]) {
        switch no {
        case .refused(let refusal): environment.tally.add(TallyKind(refusal))
        case .notStored, .notQueued: environment.tally.add(.failed)
        default: break
        }
        let (head, body) = mapping.refusal.answer(
            to: no, words: no.words(target: recipientName ?? Notices.thisConversation, environment.texts))
        respondItself(head, body, &actions)
    }
}

extension HeaderFields {
    /// Whether the fields describe a body in JSON without encoding. RFC 9110 sections 8.3 and 8.4.
    fileprivate var arePlainJSON: Bool {
        tokens("Content-Encoding").allSatisfy { $0 == "identity" }
            && self["Content-Type"].allSatisfy { $0.lowercased().contains("json") }
    }

    /// Removes fields that describe the received body and are wrong for the changed one.
    mutating func removeWhatDescribesTheBody() {
        for name in ["ETag", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"] { remove(name) }
    }
}
