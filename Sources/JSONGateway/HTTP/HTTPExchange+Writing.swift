// Handles writes of a client: judges, seals and queues them, and answers when they are stored or done.
//
// Unreadable bodies are allowed only in conversations where plaintext is allowed. A body without a text, or one that is
// too long, is judged by its conversation if the path names it; otherwise it is refused as soon as anything is
// protected.

import HTTPCodec
import JSONCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
import Vault

extension HTTPExchange {
    /// Begins a request with a text. Its body is not read if the text can only be sent as plaintext.
    package mutating func write(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        if !protects, !conversationOfHead.isEmpty, account.map(environment.isCapable) != true {
            return askMembers(now, &actions)
        }
        collect(&actions)
    }

    package mutating func collect(_ actions: inout [ExchangeAction]) {
        stage = .requestBody
        actions.append(.collectRequest(limit: Self.requestLimit))
    }

    mutating func collected(_ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        self.body = body
        guard let match, let account else { return }
        if match.route.label == .control { return findWrite(account, now, &actions) }
        do throws(MessageFault) {
            guard let shape = match.route.request else { throw MessageFault.noMessage }
            guard let document = try? JSONDocument(body) else { throw MessageFault.noMessage }
            outgoing = try OutgoingMessage(document, [shape], target: match.target)
        } catch {
            return cannotRead(.unreadable(error), now, &actions)
        }
        if !recognise(now, &actions) { return }
        if protects { findWrite(account, now, &actions) } else { askMembers(now, &actions) }
    }

    /// Asks the queue whether this is a repeated write.
    private mutating func findWrite(_ account: AccountID, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        guard let key = key(of: account), let credential else { return isNew(now, &actions) }
        stage = .findWrite
        actions.append(.findWrite(account, key, by: credential))
    }

    private mutating func isNew(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        if match?.route.label == .control { enqueue(&actions) } else { askMembers(now, &actions) }
    }

    /// Handles an unreadable body: sends it only if plaintext is allowed in its conversation, or nothing is protected.
    mutating func cannotRead(_ no: ExchangeRefusal, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        guard let match, match.route.label == .content else { return refuse(no, &actions) }
        obstacle = no
        if match.namesRecipients, !conversation.isEmpty { return askMembers(now, &actions) }
        if environment.isProtecting { refuse(no, &actions) } else { pass(&actions) }
    }

    /// The client's id of the written message; nil if it has none.
    private var clientID: String? {
        outgoing?.localID ?? match.flatMap { match in match.route.localID.flatMap { match.target[$0] } }
    }

    /// The key that distinguishes a repeated write from a new one; nil if the message has no client id.
    private func key(of account: AccountID) -> WriteKey? {
        guard let id = clientID, let credential else { return nil }
        let content = (try? outgoing?.plaintext()) ?? Array(body.readableBytesView)
        return environment.writes.keys.key(
            of: account, head.method, head.target(without: credential), id: id, content: content)
    }

    package mutating func foundWrite(_ writeMatch: WriteMatch, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        switch writeMatch {
        case .known(let known):
            // For a lost write the client gets its outcome, not the local id.
            localID = known.isLost ? nil : known.localID
            accepted(known.token, now, &actions)
        case .new(let key):
            writeKey = key
            isNew(now, &actions)
        }
    }

    // MARK: Recipients

    private mutating func askMembers(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        if let recipients = outgoing?.recipients, !recipients.isEmpty {
            return judge(recipients.map { .services($0) }, &actions)
        }
        if let known = environment.conversations.members(of: conversation, now: now.monotonic) {
            return judge(known, &actions)
        }
        guard let source = mapping.members, let credential else { return judge(nil, &actions) }
        stage = .members
        actions.append(.look(source.question(of: conversation, by: credential)))
    }

    mutating func membersFound(
        _ answer: ResponseHead, _ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) {
        guard let members = mapping.members?.members(in: answer, body) else { return judge(nil, &actions) }
        environment.conversations.remember(members, of: conversation, now: now.monotonic)
        judge(members, &actions)
    }

    /// Decides whether the text is sent as plaintext, sealed or refused.
    ///
    /// - Parameter members: the members of the conversation; nil if unknown.
    package mutating func judge(_ members: [AccountID]?, _ actions: inout [ExchangeAction]) {
        guard let account else { return }
        let room = AccountID.room(conversation)
        recipientName = environment.recipientName(members, besides: account)
        if isOwnEnvelope { return judgeEnvelope(to: room, members, &actions) }
        let capability: Capability = provenDevice == nil ? .hosted : .client
        switch environment.verdict(on: room, by: account, capability, members, policies) {
        case .plaintext:
            environment.tally.add(.sentPlaintext)
            if outgoing == nil { pass(&actions) } else { passCollected(&actions) }
        case .refuse(let refusal): refuse(.refused(refusal), &actions)
        case .seal: seal(for: room, &actions)
        }
    }

    /// Checks whether the client has sealed the message.
    ///
    /// - Returns: false if the message is refused: its envelope is not of the account's device, and the policy demands
    ///   protection.
    private mutating func recognise(_ now: Timestamp, _ actions: inout [ExchangeAction]) -> Bool {
        guard let outgoing, let account else { return true }
        switch environment.envelope(in: outgoing.found, of: account) {
        case .none: return true
        case .own(let device):
            isOwnEnvelope = true
            environment.devices.noteEnvelope(of: device)
        case .foreign where policies.policy(of: account).demandsProtection:
            environment.tally.add(.openWrongSource)
            refuse(.otherDevice, &actions)
            return false
        case .foreign: return true
        }
        noteEvidence(asked: true, now, &actions)
        return true
    }

    private mutating func judgeEnvelope(
        to room: AccountID, _ members: [AccountID]?, _ actions: inout [ExchangeAction]
    ) {
        guard let account else { return }
        switch environment.verdictOnEnvelope(to: room, by: account, members, policies) {
        case .refuse(let refusal): return refuse(.refused(refusal), &actions)
        case .pass(let conversation?): actions.append(.submit(.protect(conversation, names: ("", ""))))
        case .pass(nil): break
        }
        environment.tally.add(.sentDevice)
        if protects { enqueue(&actions) } else { passCollected(&actions) }
    }

    /// Sends the request as received, with its collected body.
    private mutating func passCollected(_ actions: inout [ExchangeAction]) {
        stage = .response
        actions.append(.send(head, body))
    }

    // MARK: Sealed

    private mutating func seal(for room: AccountID, _ actions: inout [ExchangeAction]) {
        guard let outgoing else {
            if let obstacle { return refuse(obstacle, &actions) }
            // The body has not been collected yet.
            return collect(&actions)
        }
        let plaintext: [UInt8]
        do throws(MessageFault) {
            plaintext = try outgoing.plaintext()
        } catch {
            return refuse(.unreadable(error), &actions)
        }
        enqueue(&actions, text: QueuedWrite.Text(plaintext, in: outgoing, of: room))
    }

    /// Queues the write.
    ///
    /// - Parameter text: the text to seal; nil if the body is sent as it is.
    private mutating func enqueue(_ actions: inout [ExchangeAction], text: QueuedWrite.Text? = nil) {
        guard let account, let credential else { return }
        let isNew = match?.route.remoteID != nil
        stage = .queue
        var write = QueuedWrite(
            account: account, credential: credential, lane: conversation, key: writeKey,
            head: head.stored(without: credential, at: mapping.account.credentials), body: body,
            text: text, answersAtOnce: isNew && text != nil && answersAtOnce,
            ownName: isNew ? clientID.map { WaitingWrites.name($0, of: account, in: conversation) } : nil,
            remoteID: match?.route.remoteID, references: localReferences)
        write.cookies = head.headers["Cookie"]
        actions.append(.enqueue(write))
    }

    /// Whether the client is answered before the backend.
    private var answersAtOnce: Bool { if case .atOnce = match?.route.answer { true } else { false } }

    package mutating func enqueued(
        _ result: Result<KnownWrite, ExchangeRefusal>, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) {
        switch result {
        case .success(let write):
            message = write.message
            if message != nil { environment.tally.add(.sentGateway) }
            // Of equal concurrent writes only the first is queued. All get its local id.
            localID = write.isLost ? nil : write.localID
            accepted(write.token, now, &actions)
        case .failure(let refusal): refuse(refusal, &actions)
        }
    }

    /// Continues after the write is stored, by this request or an earlier one.
    private mutating func accepted(_ token: RequestToken, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        if case .atOnce(let status, let body) = match?.route.answer, let localID {
            let text = RefusalForm.filled(
                body, ["local_id": localID, "client_id": clientID ?? ""])
            let head = ResponseHead(status, headers: ["Content-Type": "application/json"])
            return respondItself(head, ByteBuffer(string: text), &actions)
        }
        stage = .outcome
        actions.append(.await(token))
        actions.append(.wake(at: now.monotonic + Self.patience))
    }

    package mutating func written(_ outcome: WriteOutcome, _ actions: inout [ExchangeAction]) {
        switch outcome {
        case .answered(let head, let body):
            forgetConversation()
            if let message, head.isFinalRefusal {
                let room = AccountID.room(conversation)
                actions.append(.submit(.refused(ConversationID(room, room), message)))
            }
            responseHead = head
            readsAnswer = true
            switch content(of: head) {
            case .nothing: respond(head, body, &actions)
            case .document: answered(body, &actions)
            case .unreadable: withhold(&actions)
            }
        case .dropped: refuse(.dropped, &actions)
        case .waits: refuse(.stillWaiting, &actions)
        case .failed(let reason):
            environment.tally.add(.failed)
            refuse(.failed(reason), &actions)
        }
    }
}

extension ResponseHead {
    /// Whether the backend has rejected the request for good. RFC 9110 section 15.5, RFC 6585 section 4, RFC 8470.
    fileprivate var isFinalRefusal: Bool { (400..<500).contains(status) && ![408, 425, 429].contains(status) }
}
