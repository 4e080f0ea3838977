// A gateway in front of a JSON backend.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import Envelope
import HTTPServer
import JSONGateway
import NIOCore
import NIOPosix
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import Reports
import RequestQueue
import RequestQueueClient
import StorePort

extension JSONJob: DirectoryFrontJob {}

/// The JSON side of a running gateway.
///
/// An account has no connection that could be missing.
struct JSONFront: ChatFront, WithExactNames, WithoutSidecar, WithoutCommandTexts {
    typealias Thread = CommitThread<JSONParticipants>

    let thread: Thread
    let backend: JSONBackend
    let gate: RequestGate

    private var writes: WriteQueue { backend.writes }

    /// Nothing: a request over HTTP ends with its answer, and a WebSocket carries the backend's frames only.
    func notify(_: AccountID, _: String) {}

    /// Nothing: each call checks the directory.
    func revokeProofs(of _: AccountID, _: String) {}

    // MARK: Names

    func conversation(_ first: String, with second: String?) throws -> ConversationID {
        guard second == nil else {
            throw AdminFailure(.conversationNotNamed, "Name one conversation, as pawl conversations list shows it.")
        }
        return .ofRoom(first)
    }

    func knownNames(_ observations: [ObservationRow]) -> [AccountID] {
        let kinds = [ObservedRecipient.legacy, .room, .outsider].map(\.rawValue)
        return Array(backend.environment.accounts.all) + backend.environment.conversations.known.map { .room($0) }
            + observations.filter { kinds.contains($0.recipient) }.map { .room($0.target) }
    }

    /// WebSockets of an account; who is in a conversation, only the backend knows.
    func connectionCount(of scope: AccountID) -> Int { backend.environment.writes.sockets.count(of: scope) }

    func peopleCount(in room: String, _ observations: [ObservationRow], among accounts: Set<AccountID>) -> Int {
        let writers = observations.filter { $0.target == room }.map { AccountID.services($0.sender) }
        let members = backend.environment.conversations.lastMembers(of: room) ?? []
        return Set(writers + members).intersection(accounts).count
    }

    func knownConversations(_ observations: [ObservationRow]) -> KnownConversations {
        let environment = backend.environment
        var known = KnownConversations(everyIsPrivate: environment.mapping.members == nil)
        for row in observations.sorted(by: { $0.lastSeen < $1.lastSeen }) {
            let isPrivate: Bool
            switch ObservedRecipient(rawValue: row.recipient) {
            case .legacy: isPrivate = true
            case .room: isPrivate = false
            // Messages to outsiders are refused, so they protect no conversation.
            case .outsider, .exempt, .media, .file, .verb, .search, .directConnection, .notInRoom, .name, .keywords,
                .commandText, nil:
                continue
            }
            known.add(.ofRoom(row.target), row.target, isPrivate: isPrivate, [AccountID.services(row.sender)])
        }
        let now = SystemClock.now().monotonic
        for outsider in environment.conversations.outsiders(
            now: now, limit: .max, isBehind: environment.accounts.contains)
        {
            known.addOutsider(displayName(outsider.account), to: .ofRoom(outsider.conversation))
        }
        return known
    }

    // MARK: Reports

    func takeObservations(at time: Int64) -> [StoreChange] { backend.environment.observations.take(wall: time) }
    func giveBack(_ changes: [StoreChange]) { backend.environment.observations.giveBack(changes) }

    func complete(_ report: inout StatusReport) async throws {
        let counts = await writes.queue.report()
        report.requests = requests(counts)
        report.queue = [
            RequestState.pending.name: report.requests.waiting, RequestState.done.name: report.requests.done,
            RequestState.dead.name: report.requests.dead,
        ]
        addQueueWarnings(to: &report, counts)
        let environment = backend.environment
        report.accounts.behind = environment.accounts.count
        report.blockers += environment.conversations.outsiders(
            now: SystemClock.now().monotonic, limit: 20, isBehind: environment.accounts.contains
        ).map {
            StatusReport.Blocker(
                what: "outsider in a conversation", name: "\($0.account.name) in \($0.conversation)", messages: 0)
        }
        if let failure = backend.push?.failure {
            report.warnings.append(
                "The push hook fails (\(failure)): devices that are not connected are not woken. Look at push.url and its "
                    + "server.")
        }
        if let doubtful = report.requests.doubtful, doubtful > 0 {
            report.warnings.append(
                "\(doubtful) \(doubtful == 1 ? "message" : "messages") may be stored twice at the backend: an answer was lost, and "
                    + "the message was sent again. People behind this gateway see each once.")
        }
        let waiting = await writes.queue.waitingForSession()
        if !waiting.isEmpty {
            let names = Set(waiting.map(\.tenant)).sorted()
            report.warnings.append(
                "\(waiting.count) \(waiting.count == 1 ? "write waits" : "writes wait") for the next login of "
                    + names.prefix(10).joined(separator: ", ") + (names.count > 10 ? " and others." : "."))
        }
    }

    /// The totals of requests, as the queue knows them.
    private func requests(_ report: APIClientQueue.Report) -> StatusReport.Requests {
        var requests = StatusReport.Requests(RequestCounts(report.counts, waiting: report.depth))
        requests.held = report.census.held
        requests.heldAccounts = gate.heldAccounts.map(\.name).sorted()
        requests.setAge(sinceOldest: report.census.oldest)
        requests.doubtful = report.counts.doubtful + report.census.doubtful
        requests.withoutLogin = report.census.withoutSession
        return requests
    }

    private func addQueueWarnings(to report: inout StatusReport, _ queue: APIClientQueue.Report) {
        let dead = queue.census.deadLetters
        if dead > 0 {
            report.warnings.append(
                "\(dead) \(dead == 1 ? "write was" : "writes were") given up and \(dead == 1 ? "is" : "are") kept: pawl queue list "
                    + "--state dead. To send again: pawl queue retry --dead. To remove: pawl queue purge.")
        }
        let held = queue.census.heldAfterCrashes
        if !held.isEmpty {
            report.warnings.append(
                "This gateway ended several times in a row while only one write was in progress, so it is held: request "
                    + held.map { "\($0)" }.joined(separator: ", ")
                    + ". Look at it with pawl queue show, then release or drop it.")
        }
        let unexpected = queue.counts.unexpected
        if unexpected > 0 {
            report.warnings.append(
                "\(unexpected) unexpected \(unexpected == 1 ? "answer" : "answers") since the start: 502, 503, 504, or a refusal that "
                    + "does not have the backend's form, as from a proxy. Such writes wait and are sent again.")
        }
    }

    func addMetrics(to page: inout MetricsPage) async {
        let report = await writes.queue.report()
        page.add(requests(report))
        page.family(
            "pawl_requests_in_flight", "Requests that were sent to the backend and are not answered.", "gauge",
            [("", report.inFlight)])
        page.family("pawl_requests_bytes", "Bytes of the requests that wait.", "gauge", [("", report.bytes)])
        page.family(
            "pawl_requests_retried_total", "Attempts that were followed by another.", "counter",
            [("", report.counts.retried)])
        page.family(
            "pawl_requests_unexpected_answers_total",
            "Answers that a proxy may have given: 502, 503, 504, or a refusal of another form than the backend's.",
            "counter", [("", report.counts.unexpected)])
        page.family(
            "pawl_requests_dead_letters", "Dead requests that are kept.", "gauge", [("", report.census.deadLetters)]
        )
        page.family(
            "pawl_requests_doubtful", "Requests that the backend may have done twice.", "gauge",
            [("", report.counts.doubtful + report.census.doubtful)])
        page.family(
            "pawl_requests_without_login", "Requests that wait for their sender's next login.", "gauge",
            [("", report.census.withoutSession)])
        page.family(
            "pawl_accounts_behind", "Accounts that have shown a credential.", "gauge",
            [("", backend.environment.accounts.count)])
        page.family("pawl_http_requests_total", "Requests of clients.", "counter", [("", backend.meters.requests)])
        page.family(
            "pawl_http_answers_total", "Answers to clients by the class of their status.", "counter",
            backend.meters.answers.map { ("{class=\"\($0.name)\"}", $0.count) })
        page.family(
            "pawl_collected_bytes", "Bytes of bodies and WebSocket messages that are held.", "gauge",
            [("", backend.budget.used)])
        page.family(
            "pawl_collected_bytes_limit", "The most of these: limits.collected_bytes.", "gauge",
            [("", backend.budget.limit)])
        page.family(
            "pawl_collected_refusals_total", "Bodies and WebSockets that were refused because of this limit.",
            "counter", backend.budget.refusals.map { ("{use=\"\($0.use.name)\"}", $0.count) })
        if let push = backend.environment.push {
            let state = push.state
            page.family("pawl_push_pending", "Devices with a push notice that waits.", "gauge", [("", state.depth)])
            page.family("pawl_push_tokens", "Devices with a push token.", "gauge", [("", state.tokens)])
            let counts = state.counts
            page.family(
                "pawl_push_notices_total", "What became of push notices, and attempts that were followed by another.",
                "counter",
                [
                    ("{outcome=\"delivered\"}", counts.delivered), ("{outcome=\"retried\"}", counts.retried),
                    ("{outcome=\"given_up\"}", counts.givenUp), ("{outcome=\"gone\"}", counts.gone),
                    ("{outcome=\"dropped\"}", counts.dropped),
                ])
        }
        page.family(
            "pawl_upstream_connections", "Connections to the backend.", "gauge",
            [("", backend.meters.upstreamConnections)])
    }

    func presence() -> Presence { Presence(devices: backend.environment.devices.seen.proven) }
    var sealingDevices: Set<DeviceID> { backend.environment.devices.seen.sealing }
    func unmatchedRequests() throws -> [Unmatched.Row] {
        backend.environment.unmatched.all.map {
            Unmatched.Row(method: $0.method, path: $0.path, requests: $0.count, lastSeen: Table.time($0.lastSeen))
        }
    }

    var resetNotice: String { "The gateway cannot notify people over HTTP: tell them yourself." }

    // MARK: Writes

    func requestRows(states: [RequestState], limit: Int) async throws -> [RequestRow] {
        try await writes.rows(states: states, limit: limit, isHeld: holdsAll)
    }

    /// Whether an operator holds all writes of an account.
    private func holdsAll(of tenant: String) -> Bool { gate.holds.contains(.account(AccountID(text: tenant))) }

    func requestReport(_ id: UInt64) async throws -> RequestReport {
        let request = try writes.request(id)
        return try await RequestReport(request, writes, isHeld: request.isHeld || holdsAll(of: request.tenant))
    }

    func trace(_ id: UInt64) async throws -> Trace.Report {
        try await Trace.Report(try writes.request(id), writes)
    }

    func waitingWrites() async -> Int { await writes.queue.report().depth }

    func whyNotDropped(_ id: UInt64) throws -> ActRefusal? { writes.whyNotDropped(try writes.request(id)) }

    func isInFlight(_ id: UInt64) throws -> Bool { try writes.request(id).state == .inFlight }

    func carryOut(_ kind: RequestAct.Kind, on gateway: Gateway) async throws -> ActRefusal? {
        switch kind {
        case .hold(.account(let account)):
            if let refusal = hold(.account(account), true, on: gateway) { return refusal }
            return try await writes.carryOut(kind)
        case .release(.account(let account)):
            if let refusal = hold(.account(account), false, on: gateway) { return refusal }
            return try await writes.carryOut(kind)
        case .drop(let id), .retry(let id), .purge(let id), .hold(.request(let id)), .release(.request(let id)):
            let request = try writes.request(id)
            if let refusal = try await writes.carryOut(kind) { return refusal }
            try gateway.commit([gateway.audit("queue.\(kind.name)", "\(id) of \(request.tenant)")])
            return nil
        }
    }

    /// Holds or releases all writes of an account. The hold is stored; its writes obey at once.
    ///
    /// - Returns: why it was not done; nil if it was.
    private func hold(_ scope: RequestScope, _ isHeld: Bool, on gateway: Gateway) -> ActRefusal? {
        let wasHeld = gate.holds.contains(scope)
        guard isHeld || wasHeld else { return .nothingHeld }
        let change = isHeld ? scope.held(at: SystemClock.now().wall) : scope.released
        do {
            try gateway.commit([change, gateway.audit("queue.\(isHeld ? "hold" : "release")", scope.name)])
        } catch {
            return .notStored
        }
        if isHeld { _ = gate.hold(scope) } else { gate.release(scope) }
        return nil
    }

    func deadRequests() throws -> [UInt64] { try writes.deadLetters() }

    func retryDead(on gateway: Gateway) async throws -> (retried: Int, refused: Int) {
        let ids = try deadRequests()
        var retried = 0
        for id in ids where try await writes.carryOut(.retry(id)) == nil { retried += 1 }
        try gateway.commit([gateway.audit("queue.retry", "all dead: \(retried) of \(ids.count)")])
        return (retried, ids.count - retried)
    }

    func endPauses() async throws -> Int { try await writes.queue.hurryAll() }

    func purgeDead(on gateway: Gateway) async throws -> Int {
        let count = try await writes.queue.purgeDead()
        try gateway.commit([gateway.audit("queue.purge", "all dead: \(count)")])
        return count
    }

    // MARK: Configuration and end

    func reload(_ configuration: PawlConfiguration) throws -> @Sendable () -> Void { try backend.reload(configuration) }
    func dismiss() { writes.dismiss() }
    func close() async {
        await backend.push?.close()
        await writes.close()
    }
}
