// An IRC gateway, in front of a backend or beside a client.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import Envelope
import IRCGateway
import NIOCore
import NIOPosix
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import Reports
import RequestQueue
import StorePort

extension IRCJob: DirectoryFrontJob {}

/// The IRC side of a running gateway.
///
/// Sessions store their observations themselves, connections prove their devices before envelopes of them come and pace
/// themselves, and the gate refuses acts on requests that were sent.
struct IRCFront: ChatFront, PlainListeners, WithoutMapping, WithoutObservations {
    typealias Thread = CommitThread<IRCParticipants>

    let thread: Thread
    let environment: IRCEnvironment
    let store: any Store
    let role: Role
    /// What a sidecar's person writes to the sidecar itself.
    let chat: SidecarChat

    func notify(_ account: AccountID, _ text: String) { send(.notice(text), to: connections(of: account)) }

    func revokeProofs(of account: AccountID, _ reason: String) {
        send(.directory(id: 0, .refused(reason)), to: connections(of: account))
    }

    func send(_ reply: IRCReply, to connections: [ConnectionID]) {
        thread.send(connections.map { AddressedReply(connection: $0, reply: reply) })
    }

    /// The connections of an account, or in a room.
    private func connections(of scope: AccountID) -> [ConnectionID] {
        scope.roomName.map(environment.rooms.connections) ?? environment.roster.connections(of: scope)
    }

    // MARK: Names

    var foldsCase: Bool { true }

    /// For a connection without a login its nick, also after it has left.
    func displayName(_ account: AccountID) -> String {
        guard !account.isVerified else { return account.roomName ?? account.name }
        if let nick = environment.roster.nicks(of: account).first { return nick }
        return environment.roster.nickOfLeft(account).map { "\($0) (left)" } ?? account.name
    }

    func names() -> any NameResolver { ConnectedNames(environment) }
    func services(_ name: String) -> AccountID { .services(name.lowercased()) }

    func conversation(_ first: String, with second: String?) throws -> ConversationID {
        let names = names()
        if let second { return ConversationID(names.account(first), names.account(second)) }
        guard isRoomName(first) else {
            throw AdminFailure(
                .conversationNotNamed, "Name both people, or one room with its prefix.")
        }
        return ConversationID(names.room(first), names.room(first))
    }

    func hint(for account: AccountID) -> String {
        connections(of: account).isEmpty ? " Nobody of that name is connected now." : ""
    }

    /// Whether a name begins as the names of rooms do.
    private func isRoomName(_ name: String) -> Bool { name.first.map { !$0.isLetter && !$0.isNumber } == true }

    func checkNames(account: String?, room: String?) throws {
        if let account, let first = account.first, "#&+!".contains(first) {
            throw AdminFailure(.nameOfRoom, "\(account) is the name of a room: use --room '\(account)'.")
        }
        if let room, !isRoomName(room) {
            throw AdminFailure(.nameOfNoRoom, "\(room) is not the name of a room: give it with its prefix, as '#room'.")
        }
    }

    func knownNames(_: [ObservationRow]) -> [AccountID] {
        environment.roster.entries.map(\.account) + environment.rooms.sizes.keys.map { .room($0.text) }
    }

    func connectionCount(of scope: AccountID) -> Int { connections(of: scope).count }

    func peopleCount(in room: String, _: [ObservationRow], among _: Set<AccountID>) -> Int {
        let here = Set(environment.rooms.connections(in: room))
        return Set(environment.roster.entries.filter { here.contains($0.connection) }.map(\.account)).count
    }

    func knownConversations(_ observations: [ObservationRow]) -> KnownConversations {
        var known = KnownConversations(everyIsPrivate: false)
        let names = ConnectedNames(environment)
        for row in observations {
            let sender = names.account(row.sender)
            switch ObservedRecipient(rawValue: row.recipient) {
            case .room:
                let room = names.room(row.target)
                known.add(ConversationID(room, room), displayName(room), isPrivate: false, [sender])
            case .legacy:
                let peer = names.account(row.target)
                let names = [displayName(sender), displayName(peer)].sorted()
                known.add(
                    ConversationID(sender, peer), "\(names[0]) and \(names[1])", isPrivate: true, [sender, peer])
            case .outsider, .exempt, .media, .file, .verb, .search, .directConnection, .notInRoom, .name, .keywords,
                .commandText, nil:
                break
            }
        }
        for name in environment.rooms.sizes.keys {
            let people = environment.rooms.verifiedAccounts(in: name.text)
            known.add(.ofRoom(name.text), name.text, isPrivate: false, people)
        }
        for outsider in outsiders {
            known.addOutsider(outsider.nick, to: .ofRoom(outsider.room))
        }
        return known
    }

    /// Room members who receive envelopes but no key.
    private var outsiders: [(room: String, nick: String)] {
        environment.rooms.outsiders { environment.roster.owner(ofFoldedNick: $0)?.participates == true }
    }

    // MARK: Reports

    var commandTexts: CommandTexts { environment.settings.commandTexts }

    func complete(_ report: inout StatusReport) async throws {
        report.accounts.connectedNow = environment.roster.count
        report.blockers += outsiders.prefix(20).map {
            StatusReport.Blocker(what: "outsider in a room", name: "\($0.nick) in \($0.room)", messages: 0)
        }
        let counts = try store.requestCounts()
        report.queue = Dictionary(
            uniqueKeysWithValues: [RequestState.pending, .done, .dead].map { ($0.name, counts[$0] ?? 0) })
        report.requests = try requests()
        if let dead = report.queue[RequestState.dead.name], dead > 0 {
            report.warnings.append(
                "\(dead) \(dead == 1 ? "message was" : "messages were") given up within the last hour: pawl queue list --state dead"
            )
        }
    }

    /// The counts of requests. They are from one moment, so they add up.
    private func requests() throws -> StatusReport.Requests {
        let (gate, counts) = (environment.requests.gate, environment.requests.counters.counts)
        let held =
            gate.holds.isEmpty ? 0 : try store.requests(states: [.pending], limit: 100_000).count(where: gate.isHeld)
        var requests = StatusReport.Requests(counts)
        requests.held = min(held, counts.waiting)
        requests.heldAccounts = gate.heldAccounts.map { environment.roster.nicks(of: $0).first ?? $0.name }.sorted()
        requests.setAge(sinceOldest: try store.requests(states: [.pending], limit: 1).first?.acceptedAt)
        return requests
    }

    func addMetrics(to page: inout MetricsPage) async {
        page.family(
            "pawl_people_present", "Registered people behind the gateway now.", "gauge",
            [("", environment.roster.count)])
        if let counts = try? store.requestCounts() {
            page.family(
                "pawl_requests", "Writes to the backend by state.", "gauge",
                counts.map { ("{state=\"\($0.key.name)\"}", $0.value) }.sorted { $0.0 < $1.0 })
        }
        if let requests = try? requests() { page.add(requests) }
    }

    func presence() -> Presence {
        let entries = environment.roster.entries
        return Presence(
            accounts: Set(entries.map(\.account)), nicks: Set(entries.map { $0.nick.lowercased() }),
            devices: Set(entries.compactMap(\.device)))
    }

    var resetNotice: String { "Connected members have been notified." }

    // MARK: Requests

    func requestRows(states: [RequestState], limit: Int) async throws -> [RequestRow] {
        let gate = environment.requests.gate
        return try store.requests(states: states, limit: limit).map {
            RequestRow(
                id: "\($0.id)", state: $0.state.name, held: $0.state == .pending && gate.isHeld($0),
                account: displayName(AccountID(text: $0.account)), target: $0.target, lines: $0.bodies.count,
                accepted: Table.time($0.acceptedAt), remoteID: $0.remoteID, reason: $0.reason)
        }
    }

    func requestReport(_ id: UInt64) async throws -> RequestReport {
        let request = try request(id)
        let isPending = request.state == .pending
        return RequestReport(
            id: "\(id)", state: request.state.name, held: isPending && environment.requests.gate.isHeld(request),
            account: displayName(AccountID(text: request.account)),
            recipient: displayName(AccountID(text: request.peer)), target: request.target, verb: request.verb,
            lines: request.bodies.count, bytes: request.bodies.reduce(0) { $0 + $1.count },
            accepted: Table.time(request.acceptedAt), finished: request.finishedAt.map(Table.time),
            attempts: environment.requests.traces[id]?.attempts ?? 0, doubts: 0, remoteID: request.remoteID,
            reason: request.reason, failures: [], waitsFor: isPending ? try waitsFor(request) : nil)
    }

    func trace(_ id: UInt64) async throws -> Trace.Report {
        let request = try request(id)
        let trace = environment.requests.traces[id]
        return Trace.Report(
            id: "\(id)", state: request.state.name, account: displayName(AccountID(text: request.account)),
            target: request.target, events: Trace.events(request, trace),
            waitsFor: request.state == .pending ? try waitsFor(request) : nil,
            notes: Trace.notes(request, trace, role: role))
    }

    /// - Throws: ``AdminFailure`` if this data directory has no such request.
    private func request(_ id: UInt64) throws -> Request {
        guard let request = try store.request(id) else { throw AdminFailure(.noSuchRequest(id)) }
        return request
    }

    /// What a waiting request waits for, in words.
    private func waitsFor(_ request: Request) throws -> String {
        let outbox = environment.requests
        let holds = outbox.gate.holds
        let account = AccountID(text: request.account)
        if let trace = outbox.traces[request.id], trace.acknowledgedAt != nil {
            return "its recipient's device: the backend has it, and it has not been opened"
        }
        if outbox.gate.hasBegun(request.id) { return "the backend, which has not confirmed it yet" }
        if holds.contains(.request(request.id)) { return "an operator, who holds it: pawl queue release \(request.id)" }
        if holds.contains(.account(account)) {
            return "an operator, who holds all of \(displayName(account)): "
                + "pawl queue release --account \(displayName(account))"
        }
        if let before = try store.waitingRequests(of: account).first(where: {
            $0.peer == request.peer && $0.id < request.id && holds.contains(.request($0.id))
        }) {
            return "request \(before.id), which an operator holds and which must be sent first"
        }
        let entries = environment.roster.entries.filter { $0.account == account }
        guard !entries.isEmpty else { return "its sender, who is not connected" }
        guard entries.contains(where: \.isPresent) else { return "the backend, which cannot be reached" }
        let peer = AccountID(text: request.peer)
        switch role {
        case .front where peer.roomName == nil && !environment.roster.isPresent(peer):
            return "its recipient, who is not connected"
        case .front, .sidecar: break
        }
        return "its turn: the connection is paced, and earlier messages are sent first"
    }

    func whyNotDropped(_ id: UInt64) throws -> ActRefusal? {
        guard let request = try store.request(id) else { return .noSuchRequest(id) }
        switch request.state {
        case .pending: return nil
        case .inFlight: return .inFlight(id)
        case .done: return .done(id)
        case .dead: return .dead(id, cause: request.reason)
        case .cancelled: return .cancelled(id, cause: request.reason)
        }
    }

    func carryOut(_ kind: RequestAct.Kind, on gateway: Gateway) async throws -> ActRefusal? {
        var subject: Request?
        let detail: String
        switch kind {
        case .drop(let id), .retry(let id), .purge(let id):
            subject = try store.request(id)
            detail = "\(id)" + (subject.map { " of \($0.account)" } ?? "")
        case .hold(let scope), .release(let scope): detail = scope.name
        }
        let outcome = await withCheckedContinuation { continuation in
            let act = RequestAct(kind, audit: gateway.auditRow("queue.\(kind.name)", detail)) {
                continuation.resume(returning: $0)
            }
            thread.submit([.act(act)])
        }
        switch outcome {
        case .refused(let why): return why
        case .done(let isNotified):
            guard let subject else { return nil }
            let account = AccountID(text: subject.account)
            switch kind {
            case .drop where !isNotified: notify(account, Notices.dropped(target: subject.target))
            case .retry: send(.requestsWaiting, to: Array(environment.roster.connections(of: account).prefix(1)))
            default: break
            }
            return nil
        }
    }

    func deadRequests() throws -> [UInt64] {
        try store.requests(states: [.dead], limit: 1_000_000).map(\.id)
    }

    func retryDead(on gateway: Gateway) async throws -> (retried: Int, refused: Int) {
        let ids = try deadRequests()
        var retried = 0
        for id in ids where try await carryOut(.retry(id), on: gateway) == nil { retried += 1 }
        return (retried, ids.count - retried)
    }

    func purgeDead(on gateway: Gateway) async throws -> Int {
        var count = 0
        for id in try deadRequests() where try await carryOut(.purge(id), on: gateway) == nil { count += 1 }
        return count
    }

    /// What waits is in the store, and its sender's connection sends it.
    func waitingWrites() async -> Int { 0 }
    /// A request that was sent cannot be dropped, so no act needs this.
    func isInFlight(_: UInt64) throws -> Bool { false }
    /// Requests wait for connections and not for a time.
    func endPauses() async throws -> Int { 0 }

    // MARK: Configuration and end

    /// Connections prove their devices before their envelopes are accepted.
    var sealingDevices: Set<DeviceID> { [] }
    func dismiss() {}
    func close() async {}

    func reload(_ configuration: PawlConfiguration) throws -> @Sendable () -> Void {
        let settings = Self.settings(configuration, as: role, network: environment.settings.network)
        return { [environment] in environment.replace(settings) }
    }
}
