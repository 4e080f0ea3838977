// Handles writes of a client: judges, seals and queues them, and answers when they are stored or done.
//
// Unreadable bodies are allowed only in conversations where plaintext is allowed. A body without a text, or one that is
// too long, is judged by its conversation if the path names it; otherwise it is refused as soon as anything is
// protected.

import HTTPCodec
import JSONCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import Vault

extension HTTPExchange {
    /// Begins a request with a text. Its body is not read if the text can only be sent as plaintext.
    func write(_ request: WriteRequest, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        if !protects, !request.match.conversation.isEmpty, !environment.isCapable(request.account) {
            return askMembers(request, .unread, nil, now, &actions)
        }
        return collect(request, &actions)
    }

    // MARK: Conversation

    /// Finds the conversation of a request that names a message only.
    func findConversation(_ request: WriteRequest, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        guard let id = request.match.messageToFind else { return placed(request, now, &actions) }
        switch environment.messages.find(id, for: request.account) {
        case .conversation(let conversation):
            var request = request
            request.match.target.conversationOfMessage = conversation
            return placed(request, now, &actions)
        case .ambiguous: return placed(request, now, &actions)
        case .unknown:
            guard let source = mapping.messagesByID, FoundMessage.isUsable(id) else {
                return placed(request, now, &actions)
            }
            actions.append(.look(source.question(about: id, by: request.client.credential)))
            return .findingConversation(request, nil)
        }
    }

    /// Takes the backend's answer.
    ///
    /// - Parameters:
    ///   - placed: the message if its body has been read; nil if the target names the earlier message.
    ///   - conversation: nil if the backend does not know the earlier message.
    func conversationFound(
        _ request: WriteRequest, _ placed: Placed?, _ conversation: String?, _ now: Timestamp,
        _ actions: inout [ExchangeAction]
    ) -> State {
        if let placed {
            guard let conversation else { return refuse(.unreadable(.unknownMessage), to: request.head, &actions) }
            guard ExactText(conversation) == ExactText(placed.message.outgoing.conversation) else {
                return refuse(.unreadable(.otherConversation), to: request.head, &actions)
            }
            return confirm(request, placed, now, &actions)
        }
        var request = request
        request.match.target.conversationOfMessage = conversation
        request.isPlacedByBackend = true
        return self.placed(request, now, &actions)
    }

    /// Asks for the members when the message that an edit changes is known to be in the conversation that the edit names.
    ///
    /// The conversation decides about the text, and the backend may go by the earlier message alone.
    private func checkConversation(
        _ request: WriteRequest, _ placed: Placed, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let outgoing = placed.message.outgoing
        switch environment.place(ofEdited: outgoing.found, by: request.account) {
        case .here: return confirm(request, placed, now, &actions)
        case .elsewhere: return refuse(.unreadable(.otherConversation), to: request.head, &actions)
        case .unknown(let id):
            guard let source = mapping.messagesByID else {
                return refuse(.unreadable(.unknownMessage), to: request.head, &actions)
            }
            actions.append(.look(source.question(about: id, by: request.client.credential)))
            return .findingConversation(request, placed)
        }
    }

    /// Asks for the members when the backend has confirmed that the name of the conversation is its id.
    ///
    /// By another name the conversation would have neither its policy nor its latch.
    private func confirm(
        _ request: WriteRequest, _ placed: Placed, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        guard environment.isUnconfirmed(placed.message.outgoing.found) else {
            return askMembers(request, .message(placed.message), placed.key, now, &actions)
        }
        guard let source = mapping.conversationsByID else {
            return refuse(.unreadable(.unknownConversation), to: request.head, &actions)
        }
        let conversation = placed.message.outgoing.conversation
        actions.append(.look(source.question(about: conversation, by: request.client.credential)))
        return .findingConversation(request, placed)
    }

    /// Takes the backend's answer.
    ///
    /// - Parameter id: nil if the backend knows no such conversation.
    func confirmed(
        _ request: WriteRequest, _ placed: Placed, _ id: String?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let conversation = placed.message.outgoing.conversation
        guard let id, ExactText(id) == ExactText(conversation) else {
            return refuse(.unreadable(.unknownConversation), to: request.head, &actions)
        }
        environment.confirmed.add(conversation)
        return askMembers(request, .message(placed.message), placed.key, now, &actions)
    }

    /// Goes on when the conversation is found, or cannot be.
    private func placed(_ request: WriteRequest, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        request.match.route.label == .content ? write(request, now, &actions) : control(request, &actions)
    }

    func collect(
        _ request: WriteRequest, limit: Int = requestLimit, _ actions: inout [ExchangeAction]
    ) -> State {
        actions.append(.collectRequest(limit: limit))
        return .collecting(request)
    }

    func collected(
        _ request: WriteRequest, _ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let match = request.match
        if let repeated = match.route.repeated {
            let limits = JSONLimits(size: Self.repeatingLimit)
            guard repeated.isSame(in: body, of: request.head, limits: limits) else {
                return refuse(.noRoute, to: request.head, &actions)
            }
            return sendRepeating(request, body, &actions)
        }
        if match.route.label == .passthrough {
            let document = try? JSONDocument(body)
            if policies.policy(of: request.account).demandsProtection,
                let no = match.route.refusal(of: document, body, request.head.headers)
            {
                return refuse(no, to: request.head, &actions)
            }
            return send(request, document.flatMap { match.route.chosenMembers?.added(to: $0) } ?? body, &actions)
        }
        guard match.route.label == .content else {
            let key = key(of: request, id: request.clientID(nil), Array(body.readableBytesView))
            return findWrite(Write(request: request, body: .control(body)), key, now, &actions)
        }
        let outgoing: OutgoingMessage
        do throws(MessageFault) {
            guard let shape = match.route.request else { throw MessageFault.noMessage }
            let document = try shape.document(body, request.head.headers)
            outgoing = try OutgoingMessage(document, [shape], target: match.target)
        } catch {
            return cannotRead(request, .unreadable(error), now, &actions)
        }
        let isOwnEnvelope: Bool
        switch environment.envelope(in: outgoing.found, of: request.account) {
        case .own(let device):
            isOwnEnvelope = true
            environment.devices.noteEnvelope(of: device)
            noteEvidence(of: request.client, request.head, asked: true, now, &actions)
        case .foreign where policies.policy(of: request.account).demandsProtection:
            environment.tally.add(.openWrongSource)
            return refuse(.otherDevice, to: request.head, &actions)
        case .foreign, .none: isOwnEnvelope = false
        }
        var message = Message(outgoing: outgoing, body: body, isOwnEnvelope: isOwnEnvelope)
        guard protects else { return askMembers(request, .message(message), nil, now, &actions) }
        message.plaintext = try? outgoing.plaintext()
        let key = key(
            of: request, id: request.clientID(message), message.plaintext ?? Array(body.readableBytesView))
        return findWrite(Write(request: request, body: .message(message)), key, now, &actions)
    }

    /// Handles an unreadable body: sends it only if plaintext is allowed in its conversation, or nothing is protected.
    func cannotRead(
        _ request: WriteRequest, _ no: ExchangeRefusal, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        guard request.match.route.label == .content else { return refuse(no, to: request.head, &actions) }
        if request.match.namesRecipients, !request.match.conversation.isEmpty {
            return askMembers(request, .unreadable(no), nil, now, &actions)
        }
        if environment.isProtecting { return refuse(no, to: request.head, &actions) }
        return pass(request.request, credential: request.client.credential, &actions)
    }

    // MARK: Repeated writes

    /// The key that distinguishes a repeated write from a new one; nil if the message has no client id.
    private func key(of request: WriteRequest, id: String?, _ content: @autoclosure () -> [UInt8]) -> WriteKey? {
        guard let id else { return nil }
        return environment.writes.keys.key(
            of: request.account, request.head.method, request.head.target(without: request.client.credential), id: id,
            content: content())
    }

    /// Asks the queue for an earlier write if it knows this key. Usually the write is new.
    private func findWrite(
        _ write: Write, _ key: WriteKey?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        guard let key, environment.writes.known.contains(key) else { return isNew(write, key, now, &actions) }
        actions.append(.findWrite(write.request.account, key, by: write.request.client.credential))
        return .findingWrite(write, key)
    }

    func foundWrite(
        _ write: Write, _ key: WriteKey, _ known: KnownWrite?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        guard let known else { return isNew(write, key, now, &actions) }
        let pending: PendingWrite =
            switch write.body {
            case .control: PendingWrite(write.request, nil)
            case .message(let message): PendingWrite(write.request, message)
            }
        return accepted(pending, known, now, &actions)
    }

    private func isNew(
        _ write: Write, _ key: WriteKey?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        switch write.body {
        case .control(let body): enqueue(write.request, body, nil, key, nil, now, &actions)
        case .message(let message):
            checkConversation(write.request, Placed(message: message, key: key), now, &actions)
        }
    }

    // MARK: Recipients

    func askMembers(
        _ request: WriteRequest, _ content: Content, _ key: WriteKey?, _ now: Timestamp,
        _ actions: inout [ExchangeAction]
    ) -> State {
        if let recipients = content.message?.outgoing.recipients, !recipients.isEmpty {
            return judge(request, content, key, recipients.map { .services($0) }, now, &actions)
        }
        let conversation = request.conversation(content.message)
        let account = request.account
        if let known = environment.conversations.members(of: conversation, for: account, now: now.monotonic) {
            return judge(request, content, key, known, now, &actions)
        }
        guard let source = mapping.members else { return judge(request, content, key, nil, now, &actions) }
        let pages = MemberPages(source, of: conversation, by: request.client.credential)
        actions.append(.look(pages.lookup))
        return .askingMembers(request, content, key, pages)
    }

    func membersFound(
        _ request: WriteRequest, _ content: Content, _ key: WriteKey?, _ pages: MemberPages, _ head: ResponseHead,
        _ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        var pages = pages
        switch pages.take(head, body) {
        case .ask(let lookup):
            actions.append(.look(lookup))
            return .askingMembers(request, content, key, pages)
        case .found(let members):
            environment.conversations.remember(
                members, of: request.conversation(content.message), toldTo: request.account, now: now.monotonic)
            return judge(request, content, key, members, now, &actions)
        case .unknown: return judge(request, content, key, nil, now, &actions)
        }
    }

    /// Decides whether the text is sent as plaintext, sealed or refused.
    ///
    /// - Parameter members: the members of the conversation; nil if unknown.
    func judge(
        _ request: WriteRequest, _ content: Content, _ key: WriteKey?, _ members: [AccountID]?, _ now: Timestamp,
        _ actions: inout [ExchangeAction]
    ) -> State {
        let (account, message) = (request.account, content.message)
        let room = AccountID.room(request.conversation(message))
        let name = environment.recipient(members, besides: account)
        if let message, message.isOwnEnvelope {
            return judgeEnvelope(request, message, key, to: room, members, name, now, &actions)
        }
        let capability: Capability = provenDevice(of: request.client) == nil ? .hosted : .client
        switch environment.verdict(on: room, by: account, capability, members, policies) {
        // The backend could name an unprotected conversation in order to read the text.
        case .plaintext where request.isPlacedByBackend && environment.isProtecting:
            return refuse(.unreadable(.unknownMessage), to: request.head, recipient: name, &actions)
        case .plaintext:
            environment.tally.add(.sentPlaintext)
            guard let message else {
                return pass(request.request, credential: request.client.credential, &actions)
            }
            return send(request, message.body, &actions)
        case .refuse(let refusal):
            let people = environment.recipient(of: refusal, members, besides: account, capability)
            return refuse(.refused(refusal), to: request.head, recipient: people, &actions)
        case .seal: break
        }
        switch content {
        case .unread: return collect(request, &actions)
        case .withFiles: return seal(filesOf: request, members, name, &actions)
        case .unreadable(let no): return refuse(no, to: request.head, recipient: name, &actions)
        case .message(let message):
            var outgoing = message.outgoing
            outgoing.fillMentions(members, besides: account)
            return seal(request, message, outgoing, key, for: room, name, now, &actions)
        }
    }

    private func judgeEnvelope(
        _ request: WriteRequest, _ message: Message, _ key: WriteKey?, to room: AccountID, _ members: [AccountID]?,
        _ name: NamedRecipient?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        switch environment.verdictOnEnvelope(to: room, by: request.account, members, policies) {
        case .refuse(let refusal):
            let people = environment.recipient(of: refusal, members, besides: request.account, .client)
            return refuse(.refused(refusal), to: request.head, recipient: people, &actions)
        case .pass(let conversation?): actions.append(.submit(.protect(conversation, names: ("", ""))))
        case .pass(nil): break
        }
        environment.tally.add(.sentDevice)
        guard protects else { return send(request, message.body, &actions) }
        return enqueue(request, message.body, message, key, name, now, &actions)
    }

    /// Sends the request as received, with its collected body.
    private func send(_ request: WriteRequest, _ body: ByteBuffer, _ actions: inout [ExchangeAction]) -> State {
        actions.append(.send(request.head, body))
        return .forwarding(Forwarded(request: request.request, credential: request.client.credential))
    }

    /// Sends the request as received, with its collected body, and reads its answer if messages are in it.
    private func sendRepeating(
        _ request: WriteRequest, _ body: ByteBuffer, _ actions: inout [ExchangeAction]
    ) -> State {
        guard readsAnswers, !request.match.route.response.isEmpty else { return send(request, body, &actions) }
        var sent = request.request
        sent.head.headers.set("Accept-Encoding", to: "identity")
        actions.append(.send(sent.head, body))
        return .forwarding(
            Forwarded(request: sent, credential: request.client.credential, reader: request.client))
    }

    // MARK: Queued writes

    private func seal(
        _ request: WriteRequest, _ message: Message, _ outgoing: OutgoingMessage, _ key: WriteKey?,
        for room: AccountID, _ name: NamedRecipient?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let plaintext: [UInt8]
        do throws(MessageFault) {
            if let known = message.plaintext { plaintext = known } else { plaintext = try message.outgoing.plaintext() }
        } catch {
            return refuse(.unreadable(error), to: request.head, recipient: name, &actions)
        }
        let text = QueuedWrite.Text(plaintext, in: outgoing, of: room)
        return enqueue(request, message.body, message, text: text, key, name, now, &actions)
    }

    /// Queues the write.
    ///
    /// - Parameters:
    ///   - message: nil if the request has no text.
    ///   - text: the text to seal; nil if the body is sent as it is.
    private func enqueue(
        _ request: WriteRequest, _ body: ByteBuffer, _ message: Message?, text: QueuedWrite.Text? = nil,
        _ key: WriteKey?, _ name: NamedRecipient?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let (credential, route) = (request.client.credential, request.match.route)
        let pending = PendingWrite(request, message, recipient: name)
        let createsMessage = route.remoteID != nil
        var write = QueuedWrite(
            account: request.account, credential: credential, lane: pending.conversation, key: key,
            head: request.head.stored(without: credential, at: mapping.account.credentials), body: body, text: text,
            answersAtOnce: createsMessage && text != nil && route.answersAtOnce,
            ownName: createsMessage
                ? pending.clientID.map { WaitingWrites.name($0, of: request.account, in: pending.conversation) } : nil,
            remoteID: route.remoteIDSource, references: references(of: request, message))
        write.cookies = request.head.headers["Cookie"]
        actions.append(.enqueue(write))
        if write.answersAtOnce { return .queueing(pending) }
        actions.append(.wake(at: now.monotonic + Self.patience))
        return .awaitingOutcome(pending)
    }

    func queued(
        _ write: PendingWrite, _ result: Result<KnownWrite, ExchangeRefusal>, _ now: Timestamp,
        _ actions: inout [ExchangeAction]
    ) -> State {
        switch result {
        // Of equal concurrent writes only the first is queued. All get its local id.
        case .success(let known): return accepted(write, known, now, &actions)
        case .failure(let no): return refuse(no, to: write.head, recipient: write.recipient, &actions)
        }
    }

    /// Continues after the write is stored, by this request or an earlier one.
    private func accepted(
        _ write: PendingWrite, _ known: KnownWrite, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        // For a lost write the client gets its outcome, not the local id.
        if case .atOnce(let status, let body) = write.request.match.route.answer, !known.isLost,
            let localID = known.localID
        {
            if mapping.findsMessages {
                environment.messages.remember(write.conversation, of: localID, for: write.request.account)
            }
            let text = RefusalForm.filled(body, ["local_id": localID, "client_id": write.clientID ?? ""])
            let head = ResponseHead(status, headers: ["Content-Type": "application/json"])
            return respondItself(head, ByteBuffer(string: text), to: write.head, &actions)
        }
        actions.append(.await(known.token))
        actions.append(.wake(at: now.monotonic + Self.patience))
        return .awaitingOutcome(write)
    }

    /// Handles the end of the client's patience. The client is told that its write is kept only once that is so.
    func stopWaiting(_ write: PendingWrite, _ actions: inout [ExchangeAction]) -> State {
        actions.append(.stopWaiting)
        return .awaitingOutcome(write)
    }

    func written(
        _ write: PendingWrite, _ outcome: WriteOutcome, _ actions: inout [ExchangeAction]
    ) -> State {
        let (match, client, name) = (write.request.match, write.request.client, write.recipient)
        switch outcome {
        case .answered(let head, let body, let message):
            forgetMembers(after: match)
            noteConversation(of: write, head, body)
            if let message, head.isFinalRefusal {
                let room = AccountID.room(write.conversation)
                actions.append(.submit(.refused(ConversationID(room, room), message)))
            }
            switch content(of: head, to: write.head, match, for: client.account) {
            case .nothing: return respond(head, body, &actions)
            case .document(let match):
                let answer = ReadAnswer(request: write.head, match: match, client: client, head: head)
                return read(answer, body, &actions)
            case .unreadable: return withhold(write.head, &actions)
            }
        case .dropped: return refuse(.dropped, to: write.head, recipient: name, &actions)
        case .waits: return refuse(.stillWaiting, to: write.head, recipient: name, &actions)
        case .failed(let reason): return refuse(.failed(reason), to: write.head, recipient: name, &actions)
        }
    }

    /// Remembers the conversation of a written message under the backend's id.
    private func noteConversation(of write: PendingWrite, _ head: ResponseHead, _ body: ByteBuffer) {
        guard mapping.findsMessages, (200..<300).contains(head.status),
            let source = write.request.match.route.remoteIDSource, let document = try? JSONDocument(body),
            let id = source.id(in: document)
        else { return }
        environment.messages.remember(write.conversation, of: id, for: write.request.account)
    }

    // MARK: References

    /// The request's references to messages that may have no backend id yet.
    ///
    /// - Parameter message: nil if the body was not read.
    func references(of request: WriteRequest, _ message: Message?) -> [QueuedReference] {
        let match = request.match
        let conversation = request.conversation(message)
        return match.route.references.compactMap { source in
            switch source {
            case .capture(let name):
                guard let index = match.route.path.segments.firstIndex(of: .capture(name)),
                    let id = match.target[source], let local = local(id, of: request.account, in: conversation)
                else { return nil }
                return QueuedReference(.segment(index), local: local)
            case .message(let path):
                return message?.outgoing.identifier(path).flatMap { local($0, of: request.account, in: conversation) }
                    .map { QueuedReference(.body(path), local: $0) }
            case .query, .container, .containerName, .ofMessage: return nil
            }
        }
    }

    /// The queue's reference for a client's id; nil if it is an id of the backend.
    private func local(_ id: String, of account: AccountID, in conversation: String) -> String? {
        if LocalMessageID.isOne(id) { return id }
        return environment.writes.waiting.reference(of: WaitingWrites.name(id, of: account, in: conversation))
    }
}

extension HTTPExchange.WriteRequest {
    /// The conversation of the message, or that of the head if there is no message.
    fileprivate func conversation(_ message: HTTPExchange.Message?) -> String {
        message?.outgoing.conversation ?? match.conversation
    }

    /// The client's id of the written message; nil if it has none.
    fileprivate func clientID(_ message: HTTPExchange.Message?) -> String? {
        message?.outgoing.localID ?? match.route.localID.flatMap { match.target[$0] }
    }
}

extension HTTPExchange.PendingWrite {
    fileprivate init(
        _ request: HTTPExchange.WriteRequest, _ message: HTTPExchange.Message?, recipient: NamedRecipient? = nil
    ) {
        self.init(
            request: request, conversation: request.conversation(message), clientID: request.clientID(message),
            recipient: recipient)
    }
}

extension RouteMatch {
    /// The conversation that the target names; empty if it names none.
    var conversation: String {
        guard let source = route.conversationSource else { return "" }
        return target[source] ?? ""
    }
}

extension Mapping.Route {
    /// The refusal of a body that holds content of a refused kind, or that cannot be read; nil if it may pass.
    fileprivate func refusal(
        of document: JSONDocument?, _ body: ByteBuffer, _ headers: HeaderFields
    ) -> ExchangeRefusal? {
        guard !parts.isEmpty, body.readableBytes > 0 else { return nil }
        guard let document else { return .unreadable(.noMessage) }
        if let offset = headers.formSeparator(in: body) { return .unreadable(.notAForm(at: offset)) }
        for part in parts {
            guard !document.hasLookalike(of: part.path) else { return .unreadable(.similarNames(at: 0)) }
            guard let found = try? document.search(part.path), found.ofWrongKind.isEmpty else {
                return .kind(part.kind)
            }
            if found.places.contains(where: { !document.isNull($0) }) { return .kind(part.kind) }
        }
        return nil
    }

    /// Whether the client is answered before the backend.
    fileprivate var answersAtOnce: Bool { if case .atOnce = answer { true } else { false } }
}

extension ResponseHead {
    /// Whether the backend has rejected the request for good. RFC 9110 section 15.5, RFC 6585 section 4, RFC 8470.
    var isFinalRefusal: Bool { (400..<500).contains(status) && ![408, 425, 429].contains(status) }
}
