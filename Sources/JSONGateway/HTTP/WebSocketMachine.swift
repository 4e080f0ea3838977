// Handles one inspected WebSocket connection. Each direction keeps its order: a message that waits for the vault delays
// all later messages of its direction.
//
// A write over a WebSocket is queued if the mapping names the backend's answer to it; see WebSocketMachine+Queue.swift. Any
// other is not: nothing would complete it. The client repeats it.

package import DequeModule
import DeviceDirectory
import Envelope
package import HTTPCodec
import JSONCodec
package import NIOCore
package import Protection
import Reports
package import RequestQueue
import Vault

/// An action of a WebSocket session. The relay performs actions in order.
///
/// Large cases are indirect, because most actions are messages that pass.
package enum WebSocketAction: Sendable {
    case toBackend(ByteBuffer, isText: Bool)
    case toClient(ByteBuffer, isText: Bool)
    /// Sends the client the answer to a call of the control plane.
    case answer(ByteBuffer)
    indirect case look(Lookup)
    case submit(JSONJob)
    /// Queues a write. ``JSONReply/queuedFrame(ticket:_:)`` follows.
    indirect case enqueue(QueuedWrite)
    /// Requests ``WebSocketEvent/written(ticket:_:)`` when a write ends.
    case await(RequestToken, ticket: UInt64)
    /// Reports a defect of the gateway, for the log.
    case report(UnexpectedEvent)
    /// Reports that the backend accepts this credential of the account, which a message carried.
    indirect case loggedIn(AccountID, Credential)
    /// Closes both sides, with a code of RFC 6455 section 7.4 and a reason.
    case close(code: UInt16, reason: String)
}

/// An event of a WebSocket connection. Messages are whole; the relay assembles fragments and forwards control frames.
package enum WebSocketEvent: Sendable {
    case fromClient(ByteBuffer, isText: Bool)
    case fromBackend(ByteBuffer, isText: Bool)
    indirect case found(Lookup.ID, ResponseHead, ByteBuffer)
    case notFound(Lookup.ID)
    case vault(JSONReply)
    /// News about a message that this account knows by a local id.
    case news(MessageNews)
    /// How a queued message has ended.
    case written(ticket: UInt64, WriteOutcome)
    /// A queued message that this connection is to send.
    case carry(SocketWrite)
    /// The connection to the backend has ended.
    case backendEnded
}

/// The machine of one WebSocket connection.
package struct WebSocketMachine: Sendable {
    /// Ours: maximum messages of one direction that wait. One more closes the connection with code 1008.
    package static let waitingLimit = 1024

    /// A message's position in the order of one direction.
    package struct Slot: Sendable {
        package var ticket: UInt64
        package var message: (bytes: ByteBuffer, isText: Bool)?
        /// Whether the slot can be processed: its message is sent, or dropped if nil.
        package var isReady = false
        /// Whether it is the answer to a call.
        var isAnswer = false
    }

    /// A text of the client that is not sent yet.
    struct Sending: Sendable {
        var outgoing: OutgoingMessage
        var room: AccountID
        /// Whether it is an envelope of the account's own device.
        var isOwnEnvelope = false
        /// Nil if the members are unknown.
        var recipient: NamedRecipient?
        /// The backend's answer to it; nil if the mapping names none.
        var acknowledgement: Acknowledgement?
        /// The message that it edits, about whose conversation the backend is asked; nil if that is known.
        var edited: String?
    }

    package let environment: JSONEnvironment
    package let connection: ConnectionID
    package internal(set) var account: AccountID
    var credential: Credential?
    /// Whether the account is known.
    package internal(set) var isLoggedIn: Bool
    /// The credential about which the backend is asked.
    var identifying: Credential?
    /// Whether the backend is asked about a login. The relay delivers no message of either side meanwhile.
    package var isIdentifying: Bool { identifying != nil }
    /// Whether a page of another origin has opened the socket with a login that the browser added. The backend decides
    /// about its messages; the gateway refuses its calls.
    package var isOfForeignPage = false
    /// The `User-Agent` of the upgrade.
    let software: String?
    /// Whether the upgrade announced that the client can encrypt.
    let asksForEncryption: Bool
    package var toBackend = Deque<Slot>()
    package var toClient = Deque<Slot>()
    var sending: [UInt64: Sending] = [:]
    /// Texts of the client that are in the queue, by ticket.
    var queued: [UInt64: QueuedText] = [:]
    /// Queued messages of the account that were sent over this connection and are not answered.
    var carried: [CarriedText] = []
    /// Messages of the backend whose envelopes are being opened, with their slots.
    package var opening: [(slot: UInt64, messages: IncomingMessages)] = []
    /// Texts that wait for a lookup, of the conversation of the message that they edit or of members. One lookup at a time.
    private var asking = Deque<UInt64>()
    /// The lookup of members for the first of them.
    private var pages: MemberPages?
    /// Calls of the control plane.
    var calls = InBandCalls()
    /// The credential about which the backend is asked for a call. A later message may carry another login.
    private var asked: Credential?
    /// Messages of the client like those that need not be read.
    var passing = PassingMessages()

    package init(
        environment: JSONEnvironment, connection: ConnectionID, account: AccountID, credential: Credential?
    ) {
        self.environment = environment
        self.connection = connection
        self.account = account
        self.credential = credential
        (isLoggedIn, software, asksForEncryption) = (true, nil, false)
    }

    /// Creates the machine of a socket whose account a message will name.
    package init(
        environment: JSONEnvironment, connection: ConnectionID, software: String?, asksForEncryption: Bool
    ) {
        self.environment = environment
        self.connection = connection
        account = Self.unknownAccount
        isLoggedIn = false
        (self.software, self.asksForEncryption) = (software, asksForEncryption)
    }

    /// Handles an event.
    package mutating func take(_ event: WebSocketEvent, at now: Timestamp, _ actions: inout [WebSocketAction]) {
        switch event {
        case .fromClient(let bytes, true) where !mayPass(bytes), .fromBackend(let bytes, true) where !mayPass(bytes):
            return actions.append(.close(code: 1007, reason: "A text is not valid UTF-8."))
        case .fromClient(let bytes, let isText): receivedFromClient(bytes, isText, now, &actions)
        case .fromBackend(let bytes, let isText): receivedFromBackend(bytes, isText, now, &actions)
        case .found(.members, let head, let body): pageFound(head, body, now, &actions)
        case .notFound(.members): membersFound(nil, now, &actions)
        case .found(.account, let head, let body):
            identified(environment.mapping.account.owner(in: head, body), now, &actions)
        case .notFound(.account): identified(.unknown, now, &actions)
        case .found(.login, let head, let body):
            loginAnswered(environment.mapping.account.owner(in: head, body), now, &actions)
        case .notFound(.login): loginAnswered(.unknown, now, &actions)
        case .found(.message, let head, let body):
            conversationFound(environment.mapping.messagesByID?.conversation(in: head, body), now, &actions)
        case .notFound(.message): conversationFound(nil, now, &actions)
        case .found(.conversation, _, _), .notFound(.conversation): unexpected("conversation", &actions)
        case .vault(.sealed(let ticket, let written)): sealed(ticket, written.bytes, &actions)
        case .vault(.sealFailed(let ticket, let failure)):
            refuse(ticket, ExchangeRefusal(failure, of: sending[ticket]?.outgoing), &actions)
        case .vault(.queuedFrame(let ticket, let result)): stored(ticket, result, &actions)
        case .written(let ticket, let outcome): written(ticket, outcome, now, &actions)
        case .carry(let write): carry(write)
        case .backendEnded: tellOfUnanswered()
        case .vault(.opened(let ticket, let outcomes)): opened(ticket, outcomes, &actions)
        case .news(.merged(let merge)): notify(merge)
        case .news(.lost(let localID, let reason)):
            notify(reason.map(ExchangeRefusal.failed) ?? .dropped, about: localID)
        case .vault(let reply):
            if let steps = calls.take(reply, by: caller, now) {
                handle(steps, &actions)
            } else {
                unexpected(reply.name, &actions)
            }
        }
        flush(&actions)
    }

    /// Counts and reports an answer for which nothing waits. No message of the connection depends on it.
    mutating func unexpected(_ event: String, _ actions: inout [WebSocketAction]) {
        environment.tally.add(.unexpectedEvents)
        actions.append(.report(UnexpectedEvent(event, of: "a WebSocket")))
    }

    /// The device that the connection's credential has proven; nil if none.
    var provenDevice: DeviceID? {
        guard let credential else { return nil }
        return environment.devices.device(of: account, by: credential.digest, in: environment.directory)
    }

    /// Bytes of the messages that wait for the vault, or for a message before them, and of calls.
    package var waitingBytes: Int {
        guard !toBackend.isEmpty || !toClient.isEmpty || !queued.isEmpty || calls.isInUse else { return 0 }
        func bytes(_ slots: Deque<Slot>) -> Int { slots.reduce(0) { $0 + ($1.message?.bytes.readableBytes ?? 0) } }
        return bytes(toBackend) + bytes(toClient) + queued.values.reduce(0) { $0 + $1.request.readableBytes }
            + calls.waitingBytes
    }

    /// Whether a text has a form that may pass.
    ///
    /// RFC 6455 section 8.1 closes the connection otherwise. While nothing is protected the gateway leaves that to the
    /// other side: InspIRCd takes lines of any bytes in text messages.
    private func mayPass(_ text: ByteBuffer) -> Bool { !environment.isProtecting || text.isUTF8 }

    /// Whether messages of the client may have to be sealed.
    package var protects: Bool {
        environment.policies.strictest.seeksProtection || !environment.latches.isEmpty
    }

    /// Whether messages of the backend may have to be opened, or kept from a client that opens them itself.
    var opensMessages: Bool { protects || environment.holdsKeys || calls.isInUse }

    /// Whether messages of the backend are read: a login can be in them too.
    var readsBackend: Bool { opensMessages || environment.mapping.logsInByFrames }

    /// Whether a message that is too long to be read passes.
    ///
    /// Under `opportunistic` only people's own devices seal. What a client sends is not opened with keys that are held.
    package func passesLongMessages(fromClient isFromClient: Bool) -> Bool {
        (!protects || !environment.isProtecting && environment.directory.isEmpty)
            && (isFromClient || !environment.holdsKeys) && !calls.isInUse
    }

    /// Lets such a message pass. `hosted` would refuse it, so it is counted.
    ///
    /// - Returns: false as long as messages before it wait.
    package mutating func beginLongMessage(fromClient isFromClient: Bool, at now: Timestamp) -> Bool {
        guard isFromClient ? toBackend.isEmpty : toClient.isEmpty else { return false }
        let name = "(too long to be read, over a WebSocket)"
        environment.tally.add(.unlabelled)
        environment.unmatched.note("frame", name, at: now.wall)
        if isFromClient { environment.observations.note("frame " + name, .verb, by: account) }
        return true
    }

    // MARK: From the client

    private mutating func receivedFromClient(
        _ bytes: ByteBuffer, _ isText: Bool, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard toBackend.count < Self.waitingLimit else {
            return actions.append(.close(code: 1008, reason: "Too many messages wait for the gateway."))
        }
        let document = isText ? try? JSONDocument(bytes) : nil
        if let call = document.flatMap(InBandCall.init) { return called(call, now, &actions) }
        let versions = versions
        let demands = environment.policies.snapshot.policy(of: account).demandsProtection || isGated
        guard let document, let frame = environment.mapping.frame(for: document, .fromClient)
        else {
            // The frame's content is unknown.
            environment.tally.add(.unlabelled)
            environment.unmatched.note("frame", "(from a client, over a WebSocket)", at: now.wall)
            environment.observations.note("frame (from a client, over a WebSocket)", .verb, by: account)
            return demands ? notify(.refused(.verb), answering: document) : pass(bytes, isText, &actions)
        }
        if environment.isProtecting, environment.mapping.isAmbiguous(document, as: frame) {
            return notify(.unreadable(.similarNames(at: 0)), answering: document)
        }
        if let login = frame.login, !logIn(login, document, now, &actions), environment.isProtecting {
            return notify(.unreadable(.noMessage), answering: document)
        }
        if isGated, frame.label != .passthrough { return notify(.notLoggedIn, answering: document) }
        switch frame.label {
        // No frame is a file: the mapping cannot say so.
        case .passthrough, .control, .history, .search, .sync, .download:
            remember(document, frame, versions, at: now)
            pass(bytes, isText, &actions)
        case .media, .upload, .refused:
            let kind = UnprotectableRequest(isFile: frame.label != .refused)
            environment.observations.note("frame \(frame.when?.text ?? "")", ObservedRecipient(kind), by: account)
            guard demands else { return pass(bytes, isText, &actions) }
            notify(frame.kinds.first.map { .kind($0) } ?? .refused(kind.refusal), answering: document)
        case .content: content(bytes, document, frame, versions, now, &actions)
        }
    }

    /// Passes a message of the client unchanged, behind those that wait.
    private mutating func pass(_ bytes: ByteBuffer, _ isText: Bool, _ actions: inout [WebSocketAction]) {
        guard !toBackend.isEmpty else { return actions.append(.toBackend(bytes, isText: isText)) }
        toBackend.append(Slot(ticket: environment.nextTicket(), message: (bytes, isText), isReady: true))
    }

    private mutating func content(
        _ bytes: ByteBuffer, _ document: JSONDocument, _ frame: FrameRoute, _ versions: PassingMessages.Versions,
        _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        let outgoing: OutgoingMessage
        do throws(MessageFault) {
            guard let document = try? document.parsing(for: frame.shapes) else { throw MessageFault.noMessage }
            outgoing = try OutgoingMessage(document, frame.shapes)
        } catch {
            guard environment.isProtecting else { return pass(bytes, true, &actions) }
            let ticket = environment.nextTicket()
            toBackend.append(Slot(ticket: ticket, message: (bytes, true)))
            return refuse(ticket, .unreadable(error), &actions)
        }
        let room = AccountID.room(outgoing.conversation)
        let known =
            outgoing.recipients.isEmpty
            ? environment.conversations.members(of: outgoing.conversation, for: account, now: now.monotonic)
            : outgoing.recipients.map { .services($0) }
        let envelope = environment.envelope(in: outgoing.found, of: account)
        let isOwnEnvelope = if case .own = envelope { true } else { false }
        let place = environment.place(ofEdited: outgoing.found, by: account)
        let isPlaced = place == .here && !environment.isUnconfirmed(outgoing.found)
        let verdict = isOwnEnvelope || !isPlaced ? nil : known.map { self.verdict(on: room, $0) }
        // Where nothing is protected, a message waits for nothing, unless its members have to be asked for.
        if verdict == .plaintext {
            environment.tally.add(.sentPlaintext)
            remember(document, frame, versions, outgoing.found, known, at: now)
            return pass(bytes, true, &actions)
        }
        let ticket = environment.nextTicket()
        toBackend.append(Slot(ticket: ticket, message: (bytes, true)))
        if envelope == .foreign, environment.policies.snapshot.policy(of: account).demandsProtection {
            environment.tally.add(.openWrongSource)
            return refuse(ticket, .otherDevice, &actions)
        }
        if case .own(let device) = envelope { environment.devices.noteEnvelope(of: device) }
        let reference = frame.acknowledgement?.reference(in: document)
        sending[ticket] = Sending(
            outgoing: outgoing, room: room, isOwnEnvelope: isOwnEnvelope,
            acknowledgement: reference == nil ? nil : frame.acknowledgement)
        switch place {
        case .here where !isPlaced: return refuse(ticket, .unreadable(.unknownConversation), &actions)
        case .here:
            if let known { return judge(ticket, known, decided: verdict, &actions) }
            guard environment.mapping.members != nil, credential != nil else { return judge(ticket, nil, &actions) }
        case .elsewhere: return refuse(ticket, .unreadable(.otherConversation), &actions)
        case .unknown(let id):
            guard environment.mapping.messagesByID != nil, credential != nil else {
                return refuse(ticket, .unreadable(.unknownMessage), &actions)
            }
            sending[ticket]?.edited = id
        }
        asking.append(ticket)
        if asking.count == 1 { ask(now, &actions) }
    }

    /// Asks the backend for what the first of the texts that wait needs. Those that need nothing any more are judged.
    private mutating func ask(_ now: Timestamp, _ actions: inout [WebSocketAction]) {
        while let ticket = asking.first {
            guard let text = sending[ticket] else {
                asking.removeFirst()
                continue
            }
            if let id = text.edited {
                if let source = environment.mapping.messagesByID, let credential {
                    return actions.append(.look(source.question(about: id, by: credential)))
                }
                asking.removeFirst()
                refuse(ticket, .unreadable(.unknownMessage), &actions)
                continue
            }
            let (conversation, recipients) = (text.outgoing.conversation, text.outgoing.recipients)
            let known =
                recipients.isEmpty
                ? environment.conversations.members(of: conversation, for: account, now: now.monotonic)
                : recipients.map { .services($0) }
            if known == nil, let source = environment.mapping.members, let credential {
                let pages = MemberPages(source, of: conversation, by: credential)
                self.pages = pages
                return actions.append(.look(pages.lookup))
            }
            asking.removeFirst()
            judge(ticket, known, &actions)
        }
    }

    /// Takes the backend's answer about the message that the first of the texts edits.
    ///
    /// - Parameter conversation: nil if the backend does not know the message.
    private mutating func conversationFound(
        _ conversation: String?, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard let ticket = asking.first, let text = sending[ticket], text.edited != nil else {
            return unexpected("message", &actions)
        }
        sending[ticket]?.edited = nil
        if conversation.map({ ExactText($0) != ExactText(text.outgoing.conversation) }) ?? true {
            asking.removeFirst()
            refuse(ticket, .unreadable(conversation == nil ? .unknownMessage : .otherConversation), &actions)
        }
        ask(now, &actions)
    }

    private mutating func pageFound(
        _ head: ResponseHead, _ body: ByteBuffer, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        switch pages?.take(head, body) {
        case .ask(let lookup): actions.append(.look(lookup))
        case .found(let members): membersFound(members, now, &actions)
        case .unknown, nil: membersFound(nil, now, &actions)
        }
    }

    private mutating func membersFound(
        _ members: [AccountID]?, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        pages = nil
        guard let ticket = asking.popFirst() else { return unexpected("members", &actions) }
        if let members, let sending = sending[ticket] {
            environment.conversations.remember(
                members, of: sending.outgoing.conversation, toldTo: account, now: now.monotonic)
        }
        judge(ticket, members, &actions)
        // Other texts may wait for the same answer.
        ask(now, &actions)
    }

    private var capability: Capability { provenDevice == nil ? .hosted : .client }

    /// Decides about a text, and counts it for reports.
    private func verdict(on room: AccountID, _ members: [AccountID]?) -> Verdict {
        environment.verdict(on: room, by: account, capability, members, environment.policies.snapshot)
    }

    /// Does what is due to a text that waits.
    ///
    /// - Parameter verdict: the decision about it; nil if there is none yet.
    private mutating func judge(
        _ ticket: UInt64, _ members: [AccountID]?, decided verdict: Verdict? = nil, _ actions: inout [WebSocketAction]
    ) {
        sending[ticket]?.recipient = environment.recipient(members, besides: account)
        guard let text = sending[ticket] else { return }
        if text.isOwnEnvelope { return judgeEnvelope(ticket, text, members, &actions) }
        switch verdict ?? self.verdict(on: text.room, members) {
        case .plaintext:
            environment.tally.add(.sentPlaintext)
            sending[ticket] = nil
            ready(ticket)
        case .refuse(let refusal):
            let recipient = environment.recipient(of: refusal, members, besides: account, capability)
            sending[ticket]?.recipient = recipient
            refuse(ticket, .refused(refusal), &actions)
        case .seal:
            do {
                let plaintext = try text.outgoing.plaintext()
                sending[ticket]?.outgoing.fillMentions(members, besides: account)
                guard !enqueue(ticket, plaintext, &actions) else { return }
                actions.append(
                    .submit(
                        .seal(
                            SealMessageJob(
                                connection: connection, ticket: ticket, sender: account, conversation: text.room,
                                plaintext: plaintext, maximumLength: text.outgoing.longestEnvelope))))
            } catch {
                refuse(ticket, .unreadable(error), &actions)
            }
        }
    }

    private mutating func judgeEnvelope(
        _ ticket: UInt64, _ text: Sending, _ members: [AccountID]?, _ actions: inout [WebSocketAction]
    ) {
        switch environment.verdictOnEnvelope(
            to: text.room, by: account, members, environment.policies.snapshot)
        {
        case .refuse(let refusal):
            sending[ticket]?.recipient = environment.recipient(of: refusal, members, besides: account, .client)
            return refuse(ticket, .refused(refusal), &actions)
        case .pass(let conversation?): actions.append(.submit(.protect(conversation, names: ("", ""))))
        case .pass(nil): break
        }
        environment.tally.add(.sentDevice)
        guard !protects || !enqueue(ticket, nil, &actions) else { return }
        sending[ticket] = nil
        ready(ticket)
    }

    private mutating func sealed(_ ticket: UInt64, _ envelope: [UInt8], _ actions: inout [WebSocketAction]) {
        guard let text = sending.removeValue(forKey: ticket) else { return unexpected("sealed", &actions) }
        do {
            let bytes = try text.outgoing.sealed(envelope)
            environment.tally.add(.sentGateway)
            settle(ticket, in: \.toBackend, bytes)
        } catch {
            refuse(ticket, .unreadable(error), &actions)
        }
    }

    mutating func refuse(_ ticket: UInt64, _ no: ExchangeRefusal, _ actions: inout [WebSocketAction]) {
        let text = sending.removeValue(forKey: ticket)
        let refused = toBackend.first { $0.ticket == ticket }?.message.flatMap { try? JSONDocument($0.bytes) }
        settle(ticket, in: \.toBackend, nil)
        notify(no, about: text?.outgoing.localID, to: text?.recipient, answering: refused)
    }

    /// Appends a refusal in the backend's form to the messages for the client, and counts it.
    ///
    /// - Parameter request: the client's message that is refused; nil if it is not JSON.
    private mutating func notify(
        _ no: ExchangeRefusal, about localID: String? = nil, to name: NamedRecipient? = nil,
        answering request: JSONDocument?
    ) {
        environment.tally.add(no)
        let form = environment.mapping.refusal
        let text = form.frame(no, words: no.words(name, environment.texts), localID: localID)
        give(form.replyTo?.put(request, into: text) ?? text)
    }

    /// Appends a refusal about a message that was accepted before.
    private mutating func notify(_ no: ExchangeRefusal, about localID: String?) {
        give(environment.mapping.refusal.frame(no, words: no.words(nil, environment.texts), localID: localID))
    }

    /// The refusal of a message that was queued, in the backend's form. It is counted.
    func refusal(_ no: ExchangeRefusal, of text: QueuedText) -> String {
        environment.tally.add(no)
        let form = environment.mapping.refusal
        let frame = form.frame(no, words: no.words(text.recipient, environment.texts), localID: text.localID)
        return form.replyTo?.put(try? JSONDocument(text.request), into: frame) ?? frame
    }

    /// Appends a message of the gateway's own to those for the client.
    mutating func give(_ text: String) {
        toClient.append(
            Slot(ticket: environment.nextTicket(), message: (ByteBuffer(string: text), true), isReady: true))
    }

    /// Appends the notice about a backend id to the messages for the client.
    private mutating func notify(_ merge: MessageMerge) {
        guard let form = environment.mapping.merged else { return }
        give(RefusalForm.filled(form, ["local_id": merge.localID, "message_id": merge.remoteID]))
    }

    // MARK: Calls

    /// The client with its present login; nil if it has none.
    private var caller: ControlCaller? {
        credential.map {
            ControlCaller(environment: environment, connection: connection, account: account, credential: $0.digest)
        }
    }

    private mutating func called(_ call: InBandCall, _ now: Timestamp, _ actions: inout [WebSocketAction]) {
        if isOfForeignPage { return handle([.answer(call.answer(ControlAnswer(.foreignPage)))], &actions) }
        handle(calls.take(call, by: caller, now), &actions)
    }

    private mutating func identified(
        _ owner: CredentialCache.Owner, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard let credential = asked.take() else { return unexpected("account", &actions) }
        environment.credentials.remember(owner, of: credential.digest, now: now.monotonic)
        guard let steps = calls.identified(owner, by: caller, now) else { return unexpected("account", &actions) }
        handle(steps, &actions)
    }

    private mutating func handle(_ steps: [InBandCalls.Step], _ actions: inout [WebSocketAction]) {
        for step in steps {
            switch step {
            case .ask:
                guard let credential else { break }
                asked = credential
                actions.append(.look(credential.question(to: environment.mapping.account)))
            case .submit(let job): actions.append(.submit(job))
            case .answer(let text):
                toClient.append(
                    Slot(ticket: environment.nextTicket(), message: (text, true), isReady: true, isAnswer: true))
            }
        }
    }

    // MARK: Order

    /// Marks a slot as ready, with its message unchanged.
    private mutating func ready(_ ticket: UInt64) {
        if let index = toBackend.firstIndex(where: { $0.ticket == ticket }) { toBackend[index].isReady = true }
    }

    package mutating func settle(
        _ ticket: UInt64, in direction: WritableKeyPath<Self, Deque<Slot>>, _ bytes: ByteBuffer?
    ) {
        guard let index = self[keyPath: direction].firstIndex(where: { $0.ticket == ticket }) else { return }
        let isText = self[keyPath: direction][index].message?.isText ?? true
        self[keyPath: direction][index].message = bytes.map { ($0, isText) }
        self[keyPath: direction][index].isReady = true
    }

    private mutating func flush(_ actions: inout [WebSocketAction]) {
        while let slot = toBackend.first, slot.isReady {
            toBackend.removeFirst()
            if let message = slot.message { actions.append(.toBackend(message.bytes, isText: message.isText)) }
        }
        while let slot = toClient.first, slot.isReady {
            toClient.removeFirst()
            guard let message = slot.message else { continue }
            let isAnswer = slot.isAnswer
            actions.append(isAnswer ? .answer(message.bytes) : .toClient(message.bytes, isText: message.isText))
        }
    }
}
