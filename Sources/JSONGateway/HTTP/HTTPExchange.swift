// Handles one request of a client and its answer, by mapping, account and policy.

import DeviceDirectory
package import HTTPCodec
import NIOCore
package import Protection
import Reports
import Vault

/// The machine of one exchange. Events go in, actions come out.
///
///     passthrough, off     request ──────────────────────────────────────────────────────▶ pass
///     content              request ▶ account ▶ body ▶ members ▶ seal and queue ▶ answer
///     history, sync        request ▶ account ▶ backend's answer ▶ its body ▶ open ▶ answer
///
/// Each handler returns the state after it, so none can be forgotten. The states and their data are in
/// `HTTPExchange+State.swift`.
package struct HTTPExchange: Sendable {
    /// Ours: maximum body of a request with a text, in bytes. More than an envelope can hold.
    package static let requestLimit = 256 << 10
    /// Ours: maximum body of a request whose body repeats a segment of its path, in bytes. It may hold a small picture.
    package static let repeatingLimit = 4 << 20
    /// Ours: how long a client waits for a queued write, in nanoseconds. It may repeat the request, which is recognised
    /// by its id.
    package static let patience: Int64 = 60_000_000_000

    let environment: JSONEnvironment
    let connection: ConnectionID
    let settings: JSONEnvironment.Settings
    package var mapping: Mapping { settings.mapping }
    private(set) var policies: PolicySnapshot
    private var policyVersion: UInt64
    private var state = State.beginning

    package init(environment: JSONEnvironment, connection: ConnectionID) {
        self.environment = environment
        self.connection = connection
        settings = environment.settings
        policyVersion = environment.policies.version
        policies = environment.policies.snapshot
    }

    /// What the exchange waits for.
    package var stage: Stage { state.stage }

    package var payer: AccountID? { state.payer }

    /// Loads the present policies. They may change while the exchange waits for the client or the backend.
    private mutating func renewPolicies() {
        guard environment.policies.version != policyVersion else { return }
        policyVersion = environment.policies.version
        policies = environment.policies.snapshot
    }

    /// Whether requests may have to be sealed.
    var protects: Bool { policies.strictest.seeksProtection || !environment.latches.isEmpty }

    /// Whether answers may have to be opened.
    var readsAnswers: Bool { protects || environment.holdsKeys }

    /// Handles an event.
    ///
    /// - Parameter actions: receives the actions, in order.
    package mutating func take(_ event: ExchangeEvent, at now: Timestamp, _ actions: inout [ExchangeAction]) {
        renewPolicies()
        state = state(after: event, now, &actions)
    }

    private func state(
        after event: ExchangeEvent, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        switch (state, event) {
        case (.beginning, .request(let head)): begin(head, now, &actions)
        case (.identifying(let subject, let credential), .found(.account, let head, let body)):
            identified(subject, credential, head, body, now, &actions)
        case (.identifying(let subject, let credential), .notFound(.account)):
            unanswered(subject, credential, now, &actions)
        case (.collectingCall(let call), .requestBody(let body)): carryOut(call, body, now, &actions)
        case (.collectingCall(let call), .requestTooLong): answer(call.head, ControlAnswer(.tooLong), &actions)
        case (.collectingCall(let call), .noRoom): answer(call.head, ControlAnswer(.noRoom), &actions)
        case (.calling(let call, let head), .vault(let reply)):
            if call.waits(after: reply) {
                wait(call, head, now, &actions)
            } else if let result = call.take(reply, now) {
                answer(head, result, &actions)
            } else {
                unexpected(event, &actions)
            }
        case (.waitingForMail(let call, let head), .vault(let reply)):
            if let result = call.take(reply, now) {
                answer(head, result, &actions)
            } else {
                unexpected(event, &actions)
            }
        case (.waitingForMail(let call, let head), .woken): answer(head, call.emptyAnswer, &actions)
        case (.waitingForRelay(let call, _), .relayMet): begin(call, &actions)
        case (.waitingForRelay(_, let head), .relayRefused(let fault)): answer(head, ControlAnswer(fault), &actions)
        case (.waitingForRelay(_, let head), .woken): answer(head, ControlAnswer(.notMet), &actions)
        case (.findingConversation(let request, let placed), .found(.message, let head, let body)):
            conversationFound(request, placed, mapping.messagesByID?.conversation(in: head, body), now, &actions)
        case (.findingConversation(let request, let placed), .notFound(.message)):
            conversationFound(request, placed, nil, now, &actions)
        case (.findingConversation(let request, let placed?), .found(.conversation, let head, let body)):
            confirmed(request, placed, mapping.conversationsByID?.id(in: head, body), now, &actions)
        case (.findingConversation(let request, let placed?), .notFound(.conversation)):
            confirmed(request, placed, nil, now, &actions)
        case (.collecting(let request), .requestBody(let body)): collected(request, body, now, &actions)
        case (.collecting(let request), .requestTooLong): cannotRead(request, .tooLong, now, &actions)
        case (.collecting(let request), .noRoom): refuse(.noRoom, to: request.head, &actions)
        case (.findingWrite(let write, let key), .vault(.foundWrite(let known))):
            foundWrite(write, key, known, now, &actions)
        case (.askingMembers(let request, let content, let key, let pages), .found(.members, let head, let body)):
            membersFound(request, content, key, pages, head, body, now, &actions)
        case (.askingMembers(let request, let content, let key, _), .notFound(.members)):
            judge(request, content, key, nil, now, &actions)
        case (.queueing(let write), .vault(.queued(_, let result))),
            (.awaitingOutcome(let write), .vault(.queued(_, let result))):
            queued(write, result, now, &actions)
        case (.awaitingOutcome(let write), .written(let outcome)): written(write, outcome, &actions)
        case (.awaitingOutcome(let write), .woken): stopWaiting(write, &actions)
        case (.forwarding(let forwarded), .response(let head)): answered(forwarded, head, &actions)
        case (.collectingAnswer(let answer), .responseBody(let body)): read(answer, body, &actions)
        case (.collectingAnswer(let answer), .responseTooLong): answerIsNotCollected(answer, .answerTooLong, &actions)
        case (.collectingAnswer(let answer), .noRoom): answerIsNotCollected(answer, .noRoom, &actions)
        case (.opening(let answer, let body, let messages), .vault(.opened(let ticket, let outcomes))):
            if let next = opened(answer, body, messages, ticket, outcomes, &actions) {
                next
            } else {
                unexpected(event, &actions)
            }
        case (.sealingFile(let upload), .vault(.fileKey(let key))): seal(upload, key, &actions)
        case (.sendingForm(let form), .formTexts(let texts)): seal(texts, of: form, &actions)
        case (.sendingForm(let form), .response(let head)): answered(form.forwarded, head, &actions)
        case (.sealingTexts(let form, let outgoing, let ticket, nil), .response(let head)):
            .sealingTexts(form, outgoing, ticket: ticket, answer: head)
        case (.sealingTexts(let form, let outgoing, let ticket, let answer), .vault(.sealed(let other, let sealed)))
        where ticket == other:
            finish(form, outgoing, sealed, answer, &actions)
        case (.sealingTexts(let form, let outgoing, let ticket, _), .vault(.sealFailed(let other, let failure)))
        where ticket == other:
            refuse(ExchangeRefusal(failure, of: outgoing), to: form.request.head, recipient: form.recipient, &actions)
        case (.askingForFile(let file), .response(let head)): answered(file, head, &actions)
        case (.beginningFile(let file, let head), .responseBeginning(let beginning)):
            begun(file, head, beginning, &actions)
        case (.openingFile(let file, let head, let beginning), .vault(.fileKey(let key))):
            open(file, head, beginning, key, &actions)
        // The patience with a write may end while its answer is being opened.
        case (.opening, .woken): state
        // The adapter answers, because the exchange sees nothing of what it forwards.
        case (.passed, .upstreamFailed): state
        case (_, .upstreamFailed) where !stage.isAnswered: refuse(.backendUnreachable, to: state.request, &actions)
        default: unexpected(event, &actions)
        }
    }

    /// Answers an event that cannot come in a state: a defect of the gateway, which is counted and logged.
    private func unexpected(_ event: ExchangeEvent, _ actions: inout [ExchangeAction]) -> State {
        environment.tally.add(.unexpectedEvents)
        actions.append(.report(UnexpectedEvent(event.name, of: "an exchange, \(stage)")))
        // The client has its answer, or gets it from the backend.
        guard !stage.isAnswered else { return state }
        return refuse(.unexpected, to: state.request, &actions)
    }

    // MARK: The request's head

    private func begin(_ head: RequestHead, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        // Under `off` everything is forwarded unread.
        let isOn = policies.strictest.takesPart || !environment.latches.isEmpty
        if isOn, ControlRoute.isReserved(head.path) { return beginCall(head, now, &actions) }
        guard isOn, !head.isPreflight else { return pass(Request(head), credential: nil, &actions) }
        let request = Request(head, mapping.route(for: head))
        if request.match == nil {
            environment.tally.add(.unlabelled)
            environment.unmatched.note(head.method, String(head.path), at: now.wall)
        }
        return identify(.request(request), now, &actions)
    }

    /// Forwards request and answer unchanged, but for the gateway's own subprotocol, which would disclose the gateway.
    func pass(_ request: Request, credential: Credential?, _ actions: inout [ExchangeAction]) -> State {
        guard request.isUpgrade else {
            actions.append(.pass(request.head))
            return .passed
        }
        return forward(request, credential, &actions)
    }

    /// Forwards a request whose answer is looked at, without the gateway's own subprotocol.
    private func forward(
        _ request: Request, _ credential: Credential?, readBy reader: Client? = nil,
        awaiting login: AwaitedLogin? = nil, _ actions: inout [ExchangeAction]
    ) -> State {
        var request = request
        if request.asksForEncryption { request.head.headers.removeSubprotocol(Self.subprotocol) }
        actions.append(.passRequest(request.head))
        return .forwarding(
            Forwarded(request: request, credential: credential, reader: reader, awaitedLogin: login))
    }

    // MARK: Account

    func identify(_ subject: Subject, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        let source = mapping.account
        guard let credential = Credential(of: subject.head, at: source.credentials, actingAs: source.actingAs) else {
            return unidentified(subject, nil, nil, .notLoggedIn, &actions)
        }
        if case .call(let head) = subject, credential.isAmbient, mapping.isOfForeignPage(head.headers) {
            return answer(head, ControlAnswer(.foreignPage), &actions)
        }
        switch environment.credentials.owner(of: credential.digest, now: now.monotonic, within: memory(for: subject)) {
        case .account(let known):
            return proceed(subject, Client(account: known, credential: credential), now, &actions)
        case .rejected: return unidentified(subject, credential, nil, .loginRejected, &actions)
        case .nobody: return unidentified(subject, credential, nil, .notLoggedIn, &actions)
        case .unknown:
            actions.append(.look(credential.question(to: source)))
            return .identifying(subject, credential)
        }
    }

    /// Maximum age of a cached credential check. Shorter for requests that the backend does not check again.
    private func memory(for subject: Subject) -> Int64 {
        guard case .request(let request) = subject else { return CredentialCache.memoryForCalls }
        switch request.label {
        case .content where protects, .control where protects: return CredentialCache.memoryForWrites
        default: return CredentialCache.memory
        }
    }

    private func identified(
        _ subject: Subject, _ credential: Credential, _ head: ResponseHead, _ body: ByteBuffer, _ now: Timestamp,
        _ actions: inout [ExchangeAction]
    ) -> State {
        let owner = mapping.account.owner(in: head, body)
        environment.credentials.remember(owner, of: credential.digest, now: now.monotonic)
        switch owner {
        case .account(let name):
            actions.append(.loggedIn(name, credential))
            return proceed(subject, Client(account: name, credential: credential), now, &actions)
        case .rejected: return unidentified(subject, credential, (head, body), .loginRejected, &actions)
        case .nobody: return unidentified(subject, credential, nil, .notLoggedIn, &actions)
        case .unknown: return unanswered(subject, credential, now, &actions)
        }
    }

    /// Handles a lookup without an answer: an older cached result is used, so that people can write during an outage.
    ///
    /// Calls are refused.
    private func unanswered(
        _ subject: Subject, _ credential: Credential, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        if case .call(let head) = subject { return answer(head, ControlAnswer(.backendUnreachable), &actions) }
        guard case .account(let known) = environment.credentials.owner(of: credential.digest, now: now.monotonic)
        else { return unidentified(subject, credential, nil, .backendUnreachable, &actions) }
        return proceed(subject, Client(account: known, credential: credential), now, &actions)
    }

    /// Handles a request without a credential, or with one whose account is unknown.
    ///
    /// - Parameters:
    ///   - refusal: the backend's answer to the lookup; nil if there is none to forward.
    ///   - no: the gateway's own answer.
    private func unidentified(
        _ subject: Subject, _ credential: Credential?, _ refusal: (ResponseHead, ByteBuffer)?,
        _ no: ExchangeRefusal, _ actions: inout [ExchangeAction]
    ) -> State {
        let request: Request
        switch subject {
        case .call(let head): return answer(head, ControlAnswer(.notLoggedIn), &actions)
        case .request(let subject): request = subject
        }
        noteUnprotectable(request, by: nil)
        // Only everyone's policy applies to pages that clients open before a login, not the policies of single
        // accounts.
        if request.match == nil, !policies.everyone.demandsProtection,
            request.head.isAnonymousRead(mapping.account.credentials)
        {
            return pass(request, credential: credential, &actions)
        }
        if policies.strictest.demandsProtection, let refusal = request.refusal {
            return refuse(refusal, to: request.head, &actions)
        }
        if credential == nil, logsInLater(request) { return awaitLogin(request, &actions) }
        switch request.label {
        case .content where environment.isProtecting: break
        // A WebSocket without an account cannot be inspected.
        case _ where request.isUpgrade && environment.isProtecting: break
        case .upload where policies.strictest.demandsProtection: break
        case .upload where request.match?.route.request != nil && environment.isProtecting: break
        // Their bodies are looked at for known accounts only.
        case _ where request.match?.route.repeated != nil && environment.isProtecting: break
        case _ where request.match?.route.parts.isEmpty == false && policies.strictest.demandsProtection: break
        case .download where request.match?.route.file.needsNoLogin == true && opensFile(request):
            return download(request, nil, &actions)
        default: return pass(request, credential: credential, &actions)
        }
        guard let (head, body) = refusal else { return refuse(no, to: request.head, &actions) }
        return respondItself(head, body, to: request.head, &actions)
    }

    /// Whether the request opens a WebSocket without a credential, and a message on it will carry one.
    private func logsInLater(_ request: Request) -> Bool {
        request.isUpgrade && request.label == .passthrough && mapping.logsInByFrames
            && (readsAnswers || mapping.looksAtFrames)
            && CredentialValues(in: request.head, at: mapping.account.credentials).isEmpty
    }

    /// Forwards the upgrade of a WebSocket that is inspected although its account is unknown.
    private func awaitLogin(_ request: Request, _ actions: inout [ExchangeAction]) -> State {
        var request = request
        let login = AwaitedLogin(
            software: request.head.headers.first("User-Agent"), asksForEncryption: request.asksForEncryption)
        request.head.headers.remove("Sec-WebSocket-Extensions")
        return forward(request, nil, awaiting: login, &actions)
    }

    private func proceed(
        _ subject: Subject, _ client: Client, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let isProven = provenDevice(of: client) != nil
        let request: Request
        switch subject {
        case .call(let head):
            noteEvidence(of: client, head, asked: isProven, now, &actions)
            return collect(Call(head: head, client: client), &actions)
        case .request(let subject): request = subject
        }
        noteEvidence(of: client, request.head, asked: isProven || request.asksForEncryption, now, &actions)
        noteUnprotectable(request, by: client.account)
        noteKeywords(request, by: client.account)
        let policy = policy(of: client.account, for: request)
        if policy.demandsProtection, let refusal = request.refusal {
            return refuse(refusal, to: request.head, &actions)
        }
        if request.isUpgrade, readsAnswers || mapping.looksAtFrames { return read(request, for: client, &actions) }
        guard let match = request.match else { return pass(request, credential: client.credential, &actions) }
        if match.route.repeated != nil, environment.isProtecting {
            return collect(WriteRequest(request, match, client), limit: Self.repeatingLimit, &actions)
        }
        switch match.route.label {
        case .content where match.messageToFind != nil, .control where match.messageToFind != nil:
            return findConversation(WriteRequest(request, match, client), now, &actions)
        case .content: return write(WriteRequest(request, match, client), now, &actions)
        case .history where readsAnswers, .search where readsAnswers, .sync where readsAnswers,
            // Of a refused kind, by an account that may send it.
            .refused where readsAnswers && !match.route.response.isEmpty:
            return read(request, for: client, &actions)
        case .control: return control(WriteRequest(request, match, client), &actions)
        case .passthrough where protects && match.route.chosenMembers != nil,
            .passthrough where !match.route.parts.isEmpty && policy.demandsProtection:
            return collect(WriteRequest(request, match, client), &actions)
        case .upload where match.route.request != nil && protects:
            return writeFiles(WriteRequest(request, match, client), now, &actions)
        case .upload where policy.demandsProtection: return upload(request, client, policy, &actions)
        case .download where opensFile(request):
            return download(request, client, &actions)
        case .history, .search, .sync, .media, .upload, .download, .passthrough, .refused:
            return pass(request, credential: client.credential, &actions)
        }
    }

    /// The policy for a request of an account.
    ///
    /// For files, and content of a refused kind, the policy and the latch of the conversation count too if the request names
    /// it: in a protected one they are sealed or refused.
    private func policy(of account: AccountID, for request: Request) -> Policy {
        guard let match = request.match, match.route.label.isUnprotected, !match.conversation.isEmpty else {
            return policies.policy(of: account)
        }
        return Judgement(policies, environment.latches)
            .command(by: account, shownIn: [.room(match.conversation)])
    }

    /// Whether the request asks for a file that may be sealed.
    private func opensFile(_ request: Request) -> Bool { request.head.asksForFile && readsAnswers }

    /// Counts an unprotectable request for `pawl policy simulate`.
    ///
    /// - Parameter account: nil if it is unknown.
    private func noteUnprotectable(_ request: Request, by account: AccountID?) {
        guard let kind = request.observed(isKnown: account != nil) else { return }
        let head = request.head
        let route =
            request.match.map { "\(head.method) \($0.route.path.text)" }
            ?? UnmatchedRequests.name(head.method, String(head.path))
        environment.observations.note(route, kind, by: account ?? WebSocketMachine.unknownAccount)
    }

    /// Counts a keyword of which the backend is to notify the account: it finds none in a sealed text.
    private func noteKeywords(_ request: Request, by account: AccountID) {
        guard let route = request.match?.route, route.label != .refused, route.writesKeywords(request.head.method)
        else { return }
        environment.observations.note("\(request.head.method) \(route.path.text)", .keywords, by: account)
    }

    /// Forwards the request and reads its answer, which therefore must have no encoding.
    private func read(_ request: Request, for client: Client, _ actions: inout [ExchangeAction]) -> State {
        var request = request
        if let chosen = request.match?.route.chosenMembers, let target = chosen.added(to: request.head) {
            request.head.target = target
        }
        request.head.headers.set("Accept-Encoding", to: "identity")
        if request.isUpgrade { request.head.headers.remove("Sec-WebSocket-Extensions") }
        return forward(request, client.credential, readBy: client, &actions)
    }

    /// Handles a request that changes something without a text.
    ///
    /// The request is queued if it refers to a message without a backend id, or if earlier writes of the account in the
    /// conversation wait. Otherwise it is forwarded at once, and its answer drops the conversation's cached members.
    func control(_ request: WriteRequest, _ actions: inout [ExchangeAction]) -> State {
        let conversation = request.match.conversation
        if environment.writes.waiting.holds(request.client.account, in: conversation)
            || !references(of: request, nil).isEmpty
        {
            return collect(request, &actions)
        }
        if conversation.isEmpty { return pass(request.request, credential: request.client.credential, &actions) }
        return forward(request.request, request.client.credential, &actions)
    }
}

extension Mapping.Label {
    /// Whether requests carry content that is not sealed as a text.
    fileprivate var isUnprotected: Bool {
        switch self {
        case .media, .upload, .refused: true
        case .content, .history, .sync, .search, .control, .download, .passthrough: false
        }
    }
}

extension HTTPExchange.Request {
    /// The kind of a request that cannot be sealed, and that `hosted` refuses; nil for others.
    fileprivate var unprotectable: UnprotectableRequest? {
        switch label {
        // The backend has the file already, so refusing to read it would protect nothing.
        case .media: head.isRead ? nil : .media
        case .upload: isSealableFile ? nil : .media
        case .search: .search
        case .refused, nil: .verb
        case .content, .history, .sync, .control, .download, .passthrough: nil
        }
    }

    /// What is counted of it; nil if every policy lets it pass, or the conversation of its text decides.
    fileprivate func observed(isKnown: Bool) -> ObservedRecipient? {
        if let unprotectable { return ObservedRecipient(unprotectable) }
        guard label == .upload else { return nil }
        // A file is sealed for a known account only.
        return isKnown ? .file : .media
    }

    /// The refusal of a request that cannot be sealed; nil for others.
    fileprivate var refusal: ExchangeRefusal? {
        guard let unprotectable else { return nil }
        guard let match else { return .noRoute }
        return match.route.kinds.first.map { .kind($0) } ?? .refused(unprotectable.refusal)
    }
}

extension RequestHead {
    /// Whether the request asks for a WebSocket. RFC 6455 section 4.1.
    var isWebSocketUpgrade: Bool {
        method == "GET" && headers.tokens("Connection").contains("upgrade")
            && headers.tokens("Upgrade").contains("websocket")
    }

    /// Whether a body follows the head. RFC 9112 section 6.3.
    var announcesBody: Bool {
        headers.first("Transfer-Encoding") != nil || headers["Content-Length"].contains { $0 != "0" }
    }

    /// Whether the request only reads. RFC 9110 section 9.2.1.
    package var isRead: Bool {
        (method == "GET" || method == "HEAD") && !announcesBody && !Mapping.isRewritten(headers)
    }

    /// Whether the request only reads a page, without credential and query. A query could hold text or a credential.
    ///
    /// - Parameter places: the places of credentials in the mapping.
    func isAnonymousRead(_ places: [AccountSource.Credential]) -> Bool {
        guard isRead, query == nil, !isWebSocketUpgrade, RequestPath(path) != nil else { return false }
        return !headers.fields.contains { HeaderFields.areOneBehindCGI($0.name, "authorization") }
            && CredentialValues(in: self, at: places).isEmpty
    }

    /// Whether the request is a browser's preflight, which has no credential and no content.
    var isPreflight: Bool { method == "OPTIONS" && !announcesBody && !Mapping.isRewritten(headers) }

    /// The head that is stored with a queued write: without credentials, connection fields and framing of the body.
    ///
    /// - Parameter places: the places of credentials in the mapping.
    package func stored(without credential: Credential, at places: [AccountSource.Credential]) -> RequestHead {
        var dropped = Self.neverStored
        for case .header(let name) in places { dropped.insert(name.lowercased()) }
        let fields = headers.fields.filter { !dropped.contains($0.name.lowercased()) && $0.isText }
        return RequestHead(method, target(without: credential), headers: HeaderFields(fields))
    }

    private static let neverStored: Set<String> = [
        "accept-encoding", "authorization", "content-length", "cookie", "expect", "proxy-authorization", "te",
        "trailer",
        "transfer-encoding", "upgrade",
    ]

    /// The target without the credential.
    package func target(without credential: Credential) -> String {
        guard let parts = query?.split(separator: "&"), parts.contains(where: credential.isQueryPart) else {
            return target
        }
        let rest = parts.filter { !credential.isQueryPart($0) }.joined(separator: "&")
        return path + (rest.isEmpty ? "" : "?" + rest)
    }
}
