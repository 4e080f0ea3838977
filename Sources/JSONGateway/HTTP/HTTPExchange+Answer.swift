// What comes back: passed on, or opened for a client that cannot.

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
            let session = readsAnswer ? account.map { webSocket(of: $0) } : nil
            return actions.append(.upgrade(head, session))
        }
        if head.status == 401, let credential { environment.credentials.forget(credential.digest) }
        switch readsAnswer ? content(of: head) : .nothing {
        case .nothing: passAnswer(&actions)
        // The head of a long poll may come before a conversation is protected, so live messages are looked at all the same.
        case .document where match?.route.label.isHistory == true && hasNothingSealed: passAnswer(&actions)
        case .document:
            stage = .responseBody
            actions.append(.collectResponse(limit: settings.answerLimit))
        case .unreadable: withhold(&actions)
        }
    }

    /// The answer goes through as it comes, what has been collected of it first.
    private mutating func passAnswer(_ actions: inout [ExchangeAction]) {
        stage = .done
        actions.append(.passResponse(responseHead))
    }

    private var hasNothingSealed: Bool { account.map(environment.hasNothingSealed) ?? false }

    /// The answer is longer than what is opened.
    mutating func answerIsTooLong(_ actions: inout [ExchangeAction]) {
        if hasNothingSealed { passAnswer(&actions) } else { refuse(.answerTooLong, &actions) }
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

    /// What an answer holds, as far as its head tells.
    package enum AnswerContent {
        /// No messages.
        case nothing
        /// JSON, which may have messages in it.
        case document
        /// Something in which others may find messages, and the gateway cannot.
        case unreadable
    }

    package func content(of head: ResponseHead) -> AnswerContent {
        guard let match, !match.route.response.isEmpty, (200..<300).contains(head.status), head.status != 204,
            self.head.method != "HEAD", head.headers.first("Content-Length") != "0"
        else { return .nothing }
        if head.headers.sayPlainJSON { return .document }
        return passesUnread ? .nothing : .unreadable
    }

    private var passesUnread: Bool { account.map(environment.passesUnread) ?? true }

    /// A client may read more into an answer than the gateway can.
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
        for job in messages.jobs(connection, environment) { actions.append(.submit(.read(job))) }
        incoming = messages
        if messages.isComplete { finish(messages, &actions) }
    }

    package mutating func opened(_ ticket: UInt64, _ outcomes: [ReadOutcome], _ actions: inout [ExchangeAction]) {
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

    package mutating func respond(_ head: ResponseHead, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        stage = .done
        actions.append(.respond(head, body))
    }

    /// An answer of the gateway's own, which pages in browsers can read if the mapping lets them.
    mutating func respondItself(_ head: ResponseHead, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) {
        respond(mapping.readable(head, for: self.head.headers), body, &actions)
    }

    // MARK: No

    package mutating func refuse(_ no: ExchangeRefusal, _ actions: inout [ExchangeAction]) {
        switch no {
        case .refused(let refusal): environment.tally.add(TallyKind(refusal))
        case .notStored, .notQueued: environment.tally.add(.failed)
        default: break
        }
        let (head, body) = mapping.refusal.answer(
            to: no, words: no.words(target: recipientName ?? Remarks.thisConversation, environment.texts))
        respondItself(head, body, &actions)
    }
}

extension HeaderFields {
    /// Whether a body is JSON as it is, as far as its fields say. RFC 9110 sections 8.3 and 8.4.
    fileprivate var sayPlainJSON: Bool {
        tokens("Content-Encoding").allSatisfy { $0 == "identity" }
            && self["Content-Type"].allSatisfy { $0.lowercased().contains("json") }
    }

    /// Takes away what is true of the body that came and not of the one that goes.
    mutating func removeWhatDescribesTheBody() {
        for name in ["ETag", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"] { remove(name) }
    }
}
