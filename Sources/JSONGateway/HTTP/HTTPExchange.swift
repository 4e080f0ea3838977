// Handles one request of a client and its answer, by mapping, account and policy.

package import Envelope
package import HTTPCodec
package import NIOCore
package import Protection
import Reports
import Vault

/// The machine of one exchange. Events go in, actions come out.
///
///     passthrough, off     request ───────────────────────────────────────────────────▶ pass
///     content              request ▶ account ▶ body ▶ recall ▶ members ▶ seal and queue ▶ answer
///     history, sync        request ▶ account ▶ backend's answer ▶ its body ▶ open ▶ answer
package struct HTTPExchange: Sendable {
    /// Ours: maximum body of a request with a text, in bytes. More than an envelope can hold.
    package static let requestLimit = 256 << 10
    /// Ours: how long a client waits for a queued write, in nanoseconds. It may repeat the request, which is recognised
    /// by its id.
    package static let patience: Int64 = 60_000_000_000

    /// The event that the exchange waits for.
    package enum Stage: Sendable {
        case beginning
        case account
        case requestBody
        case findWrite
        case members
        case queue
        case outcome
        case response
        case responseBody
        case opening
        /// A call of the control plane.
        case call
        case done
    }

    package let environment: JSONEnvironment
    package let connection: ConnectionID
    package var stage = Stage.beginning
    package let settings: JSONEnvironment.Settings
    package var mapping: Mapping { settings.mapping }
    private(set) var policies: PolicySnapshot
    private var policyVersion: UInt64
    package var head = RequestHead("", "")
    package var match: RouteMatch?
    package var credential: Credential?
    package var account: AccountID?
    var isUpgrade = false
    /// Whether the gateway reads the messages in the answer.
    package var readsAnswer = false
    /// The client's message, after its body was collected.
    package var outgoing: OutgoingMessage?
    /// The reason why the collected body cannot be read; nil if there is none.
    package var obstacle: ExchangeRefusal?
    package var body = ByteBuffer()
    var responseHead = ResponseHead(0)
    package var incoming: IncomingMessages?
    /// The local id in an answer that does not wait for the backend.
    package var localID: String?
    /// Whether the request is for the gateway itself.
    var isCall = false
    package var call: ControlCall?
    /// Whether the client's message is an envelope of its own device.
    var isOwnEnvelope = false
    /// The id of the sealed message.
    package var message: MessageID?
    /// The key that distinguishes a repeated write from a new one.
    var writeKey: WriteKey?
    /// The other member of a conversation of two; nil if there are more, or the members are unknown.
    package var recipientName: String?

    package init(environment: JSONEnvironment, connection: ConnectionID) {
        self.environment = environment
        self.connection = connection
        settings = environment.settings
        policyVersion = environment.policies.version
        policies = environment.policies.snapshot
    }

    /// Loads the present policies. They may change while the exchange waits for the client or the backend.
    private mutating func renewPolicies() {
        guard environment.policies.version != policyVersion else { return }
        policyVersion = environment.policies.version
        policies = environment.policies.snapshot
    }

    /// Whether anything may have to be sealed or opened.
    package var protects: Bool { policies.strictest.seeksProtection || !environment.latches.isEmpty }

    /// Handles an event.
    ///
    /// - Parameter actions: receives the actions, in order.
    package mutating func take(_ event: ExchangeEvent, at now: Timestamp, _ actions: inout [ExchangeAction]) {
        renewPolicies()
        switch (stage, event) {
        case (.beginning, .request(let head)): begin(head, now, &actions)
        case (.account, .found(.account, let head, let body)): identified(head, body, now, &actions)
        case (.account, .notFound(.account)): unanswered(now, &actions)
        case (.requestBody, .requestBody(let body)) where isCall: carryOutCall(body, now, &actions)
        case (.requestBody, .requestBody(let body)): collected(body, now, &actions)
        case (.requestBody, .requestTooLong) where isCall: answerCall(ControlAnswer(.tooLong), &actions)
        case (.requestBody, .requestTooLong): cannotRead(.tooLong, now, &actions)
        case (.findWrite, .vault(.foundWrite(let writeMatch))): foundWrite(writeMatch, now, &actions)
        case (.members, .found(.members, let head, let body)): membersFound(head, body, now, &actions)
        case (.members, .notFound(.members)): judge(nil, &actions)
        case (.queue, .vault(.queued(_, let result))): enqueued(result, now, &actions)
        case (.outcome, .written(let outcome)): written(outcome, &actions)
        case (.outcome, .woken): refuse(.stillWaiting, &actions)
        case (.response, .response(let head)): answered(head, &actions)
        case (.responseBody, .responseBody(let body)): answered(body, &actions)
        case (.responseBody, .responseTooLong): answerIsTooLong(&actions)
        case (.opening, .vault(.opened(let ticket, let outcomes))): opened(ticket, outcomes, &actions)
        case (.call, .vault(let reply)):
            if let answer = call?.take(reply, now) { answerCall(answer, &actions) }
        case (.done, _): break
        case (_, .upstreamFailed): refuse(.backendUnreachable, &actions)
        default: break
        }
    }

    // MARK: The request's head

    private mutating func begin(_ head: RequestHead, _ now: Timestamp, _ actions: inout [ExchangeAction]) {
        self.head = head
        isUpgrade = head.isWebSocketUpgrade
        // Under `off` everything is forwarded unread.
        let isOn = policies.strictest.takesPart || !environment.latches.isEmpty
        if isOn, ControlRoute.isReserved(head.path) { return beginCall(now, &actions) }
        guard isOn, !head.isPreflight else { return pass(&actions) }
        match = mapping.route(for: head)
        if match == nil {
            environment.tally.add(.unlabelled)
            environment.unmatched.note(head.method, String(head.path), at: now.wall)
        }
        identify(now, &actions)
    }

    /// Forwards request and answer unchanged, but for the gateway's own subprotocol, which would disclose the gateway.
    package mutating func pass(_ actions: inout [ExchangeAction]) {
        guard isUpgrade else {
            stage = .done
            return actions.append(.pass(head))
        }
        stage = .response
        if asksForEncryption { head.headers.removeSubprotocol(Self.subprotocol) }
        actions.append(.passRequest(head))
    }

    /// The conversation that the request's head names; empty if it names none.
    var conversationOfHead: String {
        guard let match, let source = match.route.conversation ?? match.route.request?.conversation else { return "" }
        return match.target[source] ?? ""
    }

    /// The conversation of the client's message, or that of the head.
    package var conversation: String { outgoing?.conversation ?? conversationOfHead }

    /// The request's references to messages that may have no backend id yet.
    var localReferences: [QueuedReference] {
        guard let match else { return [] }
        return match.route.references.compactMap { source in
            switch source {
            case .capture(let name):
                guard let index = match.route.path.segments.firstIndex(of: .capture(name)),
                    let id = match.target[source],
                    let local = local(id)
                else { return nil }
                return QueuedReference(.segment(index), local: local)
            case .message(let path):
                return outgoing?.identifier(path).flatMap(local).map { QueuedReference(.body(path), local: $0) }
            case .query, .container, .containerName: return nil
            }
        }
    }

    /// The queue's reference for a client's id; nil if it is an id of the backend.
    private func local(_ id: String) -> String? {
        if LocalMessageID.isOne(id) { return id }
        guard let account else { return nil }
        return environment.writes.waiting.reference(of: WaitingWrites.name(id, of: account, in: conversation))
    }

    // MARK: Account

    mutating func identify(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        credential = Credential(of: head, at: mapping.account.credentials, actingAs: mapping.account.actingAs)
        guard let credential else { return unidentified(nil, now, &actions) }
        switch environment.credentials.owner(of: credential.digest, now: now.monotonic, within: credentialMemory) {
        case .account(let known):
            account = known
            return proceed(now, &actions)
        case .nobody: return unidentified(nil, now, &actions)
        case .unknown: break
        }
        stage = .account
        actions.append(.look(credential.question(to: mapping.account)))
    }

    /// Maximum age of a cached credential check. Shorter for requests that the backend does not check again.
    private var credentialMemory: Int64 {
        guard !isCall else { return CredentialCache.memoryForCalls }
        switch match?.route.label {
        case .content where protects, .control where protects: return CredentialCache.memoryForWrites
        default: return CredentialCache.memory
        }
    }

    private mutating func identified(
        _ answer: ResponseHead, _ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) {
        guard let credential else { return }
        let owner = mapping.account.owner(in: answer, body)
        environment.credentials.remember(owner, of: credential.digest, now: now.monotonic)
        switch owner {
        case .account(let name):
            actions.append(.loggedIn(name, credential))
            account = name
            proceed(now, &actions)
        case .nobody: unidentified(answer.status == 401 ? (answer, body) : nil, now, &actions)
        case .unknown: unanswered(now, &actions)
        }
    }

    /// Handles a lookup without an answer: an older cached result is used, so that people can write during an outage.
    ///
    /// Calls are refused.
    private mutating func unanswered(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        guard !isCall else { return answerCall(ControlAnswer(.backendUnreachable), &actions) }
        guard let credential,
            case .account(let known) = environment.credentials.owner(of: credential.digest, now: now.monotonic)
        else { return unidentified(nil, now, &actions) }
        account = known
        proceed(now, &actions)
    }

    /// Handles a request without a credential, or with one that the backend rejects.
    ///
    /// - Parameter refusal: the backend's answer to the lookup; nil if there is none to forward.
    private mutating func unidentified(
        _ refusal: (ResponseHead, ByteBuffer)?, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) {
        guard !isCall else { return answerCall(ControlAnswer(.notLoggedIn), &actions) }
        noteUnprotectable(by: AccountID(text: "(not logged in)"))
        // Only everyone's policy applies to pages that clients open before a login, not the policies of single
        // accounts.
        if match == nil, !policies.everyone.demandsProtection, head.isAnonymousRead(mapping.account.credentials) {
            return pass(&actions)
        }
        if policies.strictest.demandsProtection, let unprotectable {
            return refuse(.refused(unprotectable.refusal), &actions)
        }
        switch match?.route.label {
        case .content where environment.isProtecting: break
        // A WebSocket without an account cannot be inspected.
        case _ where isUpgrade && environment.isProtecting: break
        default: return pass(&actions)
        }
        guard let refusal else { return refuse(.notLoggedIn, &actions) }
        respondItself(refusal.0, refusal.1, &actions)
    }

    private mutating func proceed(_ now: Timestamp, _ actions: inout [ExchangeAction]) {
        guard let account else { return }
        noteEvidence(asked: asksForEncryption || provenDevice != nil, now, &actions)
        if isCall { return collectCall(&actions) }
        noteUnprotectable(by: account)
        if policies.policy(of: account).demandsProtection, let unprotectable {
            return refuse(.refused(unprotectable.refusal), &actions)
        }
        switch match?.route.label {
        case _ where isUpgrade && (protects || mapping.looksAtFrames): read(&actions)
        case .content: write(now, &actions)
        case .history where protects, .search where protects, .sync where protects: read(&actions)
        case .control: control(&actions)
        default: pass(&actions)
        }
    }

    /// The kind of a request that cannot be sealed, and that `hosted` refuses; nil for others.
    private var unprotectable: UnprotectableRequest? {
        switch match?.route.label {
        // The backend has the file already, so refusing to read it would protect nothing.
        case .media: head.isRead ? nil : .media
        case .search: .search
        case .refused, nil: .verb
        case .content, .history, .sync, .control, .passthrough: nil
        }
    }

    /// Counts an unprotectable request for `pawl policy simulate`.
    private func noteUnprotectable(by account: AccountID) {
        guard let unprotectable else { return }
        let route =
            match.map { "\(head.method) \($0.route.path.text)" }
            ?? UnmatchedRequests.name(head.method, String(head.path))
        environment.observations.note(route, ObservedRecipient(unprotectable), by: account)
    }

    /// Forwards the request and reads its answer, which therefore must have no encoding.
    private mutating func read(_ actions: inout [ExchangeAction]) {
        readsAnswer = true
        stage = .response
        head.headers.set("Accept-Encoding", to: "identity")
        if isUpgrade { head.headers.remove("Sec-WebSocket-Extensions") }
        if asksForEncryption { head.headers.removeSubprotocol(Self.subprotocol) }
        actions.append(.passRequest(head))
    }

    /// Handles a request that changes something without a text.
    ///
    /// The request is queued if it refers to a message without a backend id, or if earlier writes of the account in the
    /// conversation wait. Otherwise it is forwarded at once, and its answer drops the conversation's cached members.
    private mutating func control(_ actions: inout [ExchangeAction]) {
        let isBehind = account.map { environment.writes.waiting.holds($0, in: conversationOfHead) } ?? false
        if !localReferences.isEmpty || isBehind {
            collect(&actions)
        } else if conversationOfHead.isEmpty {
            pass(&actions)
        } else {
            stage = .response
            actions.append(.passRequest(head))
        }
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
        return !headers.fields.contains { field in
            HeaderFields.areOneBehindCGI(field.name, "authorization")
                || places.contains {
                    if case .header(let name) = $0 { HeaderFields.areOneBehindCGI(field.name, name) } else { false }
                }
        } && !places.contains { if case .cookie = $0 { Credential(of: self, at: [$0]) != nil } else { false } }
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
        guard let query = credential.query, let all = self.query else { return target }
        let rest = all.split(separator: "&").filter { $0 != query }.joined(separator: "&")
        return path + (rest.isEmpty ? "" : "?" + rest)
    }
}
