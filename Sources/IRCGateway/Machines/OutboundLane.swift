// The machine of what goes to the backend: lines and committed requests in order, requests that wait beside the lane for
// their recipient or an operator, messages that the vault is sealing, and requests that the backend has not
// acknowledged.
//
// Nothing overtakes a reserved position. A request that is held leaves the lane, so that nothing else waits for it, and
// no later request to the same recipient overtakes it. Lines that other people cause, such as introductions, wait behind
// everything else, so that nobody can delay the client's own lines. The machine knows no names of people and no
// capabilities: the connection says which recipients can be reached, and writes the lines.

import DequeModule
import IRCCodec
import NIOCore
import RequestQueue
import StorePort

/// The outbound side of one connection.
struct OutboundLane {
    typealias Ticket = OrderedQueue<OutboundEntry>.Ticket

    /// The end of a recovery.
    struct Recovery {
        /// The position of the waiting lines in the inbound lane.
        let lines: Ticket
        /// The requests that this connection had sent or sealed, by id, with the client's text and label.
        let known: [UInt64: OutboundRequest]
    }

    /// Whether a held request can be sent.
    enum Reach {
        case reachable, unreachable
        /// An operator holds it. Later requests to the same recipient wait too.
        case stopped
    }

    /// What was not sent when the gateway stopped.
    struct Unsent {
        var entries: [OutboundEntry]
        var held: [OutboundRequest]
        var unacknowledged: [OutboundRequest]
        var seals: [PendingSeal]
    }

    /// Ours: how long held requests wait for their recipient, in nanoseconds.
    private static let heldPatience: Int64 = 60_000_000_000
    /// Ours: how often held requests are tried, in nanoseconds.
    private static let heldInterval: Int64 = 250_000_000
    /// Ours: the shortest pause before the same request is tried again, in nanoseconds.
    private static let requestPause: Int64 = 5_000_000

    /// Ours: lines that wait behind the lane; an introduction has about eight.
    private static let linesBehind = 256

    private var queue = OrderedQueue<OutboundEntry>()
    /// Lines that are sent when nothing in the lane can be.
    private var behind: Deque<ByteBuffer> = []
    private var pacer: Pacer
    private var seals: [Ticket: PendingSeal] = [:]
    /// Requests that were taken back in an outage, with the client's text and label, until the vault has returned them.
    private var remembered: [UInt64: OutboundRequest] = [:]
    /// Positions for an account's waiting requests, each with the position of its waiting lines in the inbound lane.
    private var recoveries: [Ticket: Ticket] = [:]
    private var held: [OutboundRequest] = []
    private var heldDeadline: Int64?
    /// Requests that the backend has not acknowledged.
    var outstanding = OutstandingRequests()

    init(_ limit: Pacer.Limit) { pacer = Pacer(limit) }

    // MARK: The lane

    /// Whether nothing is in the lane. Held requests are beside it.
    var isEmpty: Bool { queue.isEmpty }

    /// The number of entries in the lane and beside it.
    var count: Int { queue.count + held.count }

    /// Ours: how long an answer of the backend is waited for before the client is read again, in nanoseconds.
    private static let answerPatience: Int64 = 60_000_000_000

    /// Whether at least so many entries wait in the lane or for the backend's answer, without held ones.
    func hasUnderWay(_ limit: Int, now: Int64) -> Bool {
        guard queue.count + outstanding.count >= limit else { return false }
        return queue.count + outstanding.count(since: now - Self.answerPatience) >= limit
    }

    /// Whether everything is sent and acknowledged, except held requests.
    var isSettled: Bool { queue.isEmpty && seals.isEmpty && outstanding.isSettled }

    /// The front entry, if it is ready to be sent.
    var first: OutboundEntry? { queue.first }

    mutating func append(_ entry: OutboundEntry) { queue.append(entry) }

    mutating func popFirst() { _ = queue.popFirst() }

    /// Replaces the front request: some of its lines are sent.
    mutating func replaceFirst(_ request: OutboundRequest) { queue.replaceFirst(.request(request)) }

    /// Reserves the next position.
    mutating func reserve() -> Ticket { queue.reserve() }

    /// Reserves the position in front of everything.
    mutating func reserveFirst() -> Ticket { queue.reserveFirst() }

    /// Fills a reserved position; an empty array removes it.
    mutating func resolve(_ ticket: Ticket, with entries: [OutboundEntry]) { queue.resolve(ticket, with: entries) }

    /// When to look at the lane again; nil if it waits for no time.
    mutating func nextWake(now: Int64) -> Int64? {
        let next = held.isEmpty ? nil : now + Self.heldInterval
        let slot: Int64
        switch queue.first {
        case nil where behind.isEmpty: return next
        case nil: slot = pacer.nextSlot(now: now)
        case .line: slot = pacer.nextSlot(now: now)
        case .request: slot = max(pacer.nextSlot(now: now), now + Self.requestPause)
        }
        return min(next ?? slot, slot)
    }

    // MARK: Behind the lane

    /// Whether so many lines wait behind the lane that no more should.
    var isFullBehind: Bool { behind.count >= Self.linesBehind }

    /// Adds a line that waits for everything in the lane.
    mutating func appendBehind(_ line: ByteBuffer) { behind.append(line) }

    /// The next line behind the lane; nil if there is none, or the lane comes first.
    var firstBehind: ByteBuffer? { queue.first == nil ? behind.first : nil }

    mutating func popBehind() { behind.removeFirst() }

    // MARK: Pace

    var isUnlimited: Bool { pacer.isUnlimited }

    /// Counts bytes that were sent past the lane.
    mutating func charge(_ bytes: Int, now: Int64) { pacer.charge(bytes, now: now) }

    /// Whether so many bytes may be sent now; if so, counts them.
    mutating func spend(_ bytes: Int, now: Int64) -> Bool { pacer.spend(bytes, now: now) }

    mutating func renewPace(_ limit: Pacer.Limit) { pacer.renew(limit) }

    /// Begins the pace of a new connection to the backend.
    mutating func restartPace(_ limit: Pacer.Limit) { pacer = Pacer(limit) }

    // MARK: Sealing

    /// Reserves the position of a message that the vault seals.
    mutating func beginSeal(_ seal: PendingSeal) -> Ticket {
        let ticket = queue.reserve()
        seals[ticket] = seal
        return ticket
    }

    /// Removes and returns a sealed message. Its position stays reserved until it is resolved.
    mutating func endSeal(_ ticket: Ticket) -> PendingSeal? { seals.removeValue(forKey: ticket) }

    /// Removes and returns a message that was not sealed, with its position.
    mutating func cancelSeal(_ ticket: Ticket) -> PendingSeal? {
        guard let seal = seals.removeValue(forKey: ticket) else { return nil }
        queue.resolve(ticket, with: [])
        return seal
    }

    // MARK: Waiting requests of an account

    /// Notes that an account's waiting requests go to a reserved position.
    ///
    /// - Parameter lines: the position of the account's waiting lines in the inbound lane.
    mutating func beginRecovery(at ticket: Ticket, lines: Ticket) { recoveries[ticket] = lines }

    /// Removes a recovery. Forgets the requests that the vault returned from where they are now: one that was being
    /// sealed when the backend was lost is in both places.
    ///
    /// - Returns: nil if there is no such recovery.
    mutating func endRecovery(_ ticket: Ticket, returned: Set<UInt64>) -> Recovery? {
        guard let lines = recoveries.removeValue(forKey: ticket) else { return nil }
        var known = remembered
        remembered = [:]
        let sealed = queue.removeReady { $0.asRequest.map { returned.contains($0.request.id) } ?? false }
        for request in sealed.compactMap(\.asRequest) + held where returned.contains(request.request.id) {
            known[request.request.id] = request
        }
        held.removeAll { returned.contains($0.request.id) }
        return Recovery(lines: lines, known: known)
    }

    // MARK: Held requests

    /// Holds a request until its recipient is back.
    mutating func hold(_ request: OutboundRequest, now: Int64) {
        held.append(request)
        extendHolding(now: now)
    }

    /// Begins the recipients' time again.
    mutating func extendHolding(now: Int64) { heldDeadline = now + Self.heldPatience }

    /// Whether a request to a recipient is held.
    func isHolding(for peer: String) -> Bool { held.contains { $0.request.peer == peer } }

    /// Whether an earlier request to the same recipient is held, which this one must not overtake.
    func isBehindHeld(_ request: Request) -> Bool {
        held.contains { $0.request.peer == request.peer && $0.request.id < request.id }
    }

    /// Moves held requests whose recipients can be reached into the lane, before later ones to the same recipients.
    ///
    /// - Returns: the requests whose recipients have not come back in time.
    mutating func releaseHeld(now: Int64, _ reach: (OutboundRequest) -> Reach) -> [OutboundRequest] {
        guard !held.isEmpty, recoveries.isEmpty else { return [] }
        let isOverdue = heldDeadline.map { $0 <= now } ?? false
        var waiting: [OutboundRequest] = []
        var released: [OutboundRequest] = []
        var expired: [OutboundRequest] = []
        var stopped: Set<ExactText> = []
        for entry in held {
            let state: Reach = stopped.contains(entry.request.peer) ? .stopped : reach(entry)
            switch state {
            case .stopped:
                stopped.insert(entry.request.peer)
                waiting.append(entry)
            case .reachable: released.append(entry)
            case .unreachable: if isOverdue { expired.append(entry) } else { waiting.append(entry) }
            }
        }
        held = waiting
        // The recipient's time does not run while an operator holds a request.
        if !stopped.isEmpty { extendHolding(now: now) }
        guard !released.isEmpty else { return expired }
        // Later requests to the same recipients are in the lane, behind entries that wait for the pacer.
        let peers = Set(released.map(\.request.peer))
        let later = queue.removeReady {
            $0.asRequest.map { $0.next == 0 && peers.contains($0.request.peer) } ?? false
        }
        released += later.compactMap(\.asRequest)
        queue.insertFirst(released.sorted { $0.request.id < $1.request.id }.map { .request($0) }) {
            $0.asRequest.map { $0.next > 0 } ?? false
        }
        return expired
    }

    // MARK: Removing

    /// Removes requests of which nothing was sent: their account has logged out.
    mutating func removeUnsent(where fits: (OutboundRequest) -> Bool) {
        held.removeAll(where: fits)
        _ = queue.removeReady { $0.asRequest.map { $0.next == 0 && fits($0) } ?? false }
    }

    /// Removes and returns a request that an operator has dropped; nil if it is not here.
    mutating func drop(_ id: UInt64) -> OutboundRequest? {
        let dropped =
            held.filter { $0.request.id == id }
            + queue.removeReady { $0.asRequest.map { $0.request.id == id } ?? false }.compactMap(\.asRequest)
        held.removeAll { $0.request.id == id }
        return dropped.first
    }

    /// Removes and returns all requests that are not acknowledged: the backend was lost.
    ///
    /// - Parameter willReturn: whether the vault returns a request after the outage.
    mutating func takeBack(_ willReturn: (OutboundRequest) -> Bool) -> [OutboundRequest] {
        let requests =
            held + outstanding.unacknowledged + queue.removeReady { $0.asRequest != nil }.compactMap(\.asRequest)
        held = []
        outstanding = OutstandingRequests()
        for request in requests where willReturn(request) { remembered[request.request.id] = request }
        return requests.sorted { $0.request.id < $1.request.id }
    }

    /// Removes the ready entries, and returns everything that was not sent or not acknowledged.
    mutating func takeUnsent() -> Unsent {
        Unsent(
            entries: queue.removeReady { _ in true }, held: held, unacknowledged: outstanding.unacknowledged,
            seals: Array(seals.values))
    }
}

/// Requests that were sent to the backend and are not yet acknowledged.
struct OutstandingRequests: Sendable {
    struct Entry: Sendable {
        var outbound: OutboundRequest
        /// The folded target, as it appears in error numerics.
        var target: String
        /// The number of fragments whose echo has not arrived.
        var echoesMissing: Int
        var isLabelled: Bool
        /// In nanoseconds of the monotonic clock.
        let sentAt: Int64
        /// Whether the client was shown an answer of the backend to it.
        var hasReplies: Bool { !repliesShown.isEmpty }
        /// Whether the backend has refused it, and further answers to it may arrive.
        fileprivate(set) var failed = false
        /// Numerics that were forwarded once, so that further fragments do not repeat them.
        fileprivate var repliesShown: Set<Int> = []

        init(outbound: OutboundRequest, target: String, isLabelled: Bool, at now: Int64) {
            (self.outbound, self.target, self.isLabelled, sentAt) = (outbound, target, isLabelled, now)
            echoesMissing = outbound.request.bodies.count
        }
    }

    /// Ours: maximum number of open batches. Those above it are shown to the client as they are.
    static let batchLimit = 512

    private var entries: [UInt64: Entry] = [:]
    private var unlabelledTargets: [ExactText: UInt64] = [:]
    /// Batches of the backend that answer a label of the gateway, with the request.
    private var batches: [String: UInt64] = [:]
    /// Whether the gateway is being stopped and the backend has not answered the last PING.
    private var awaitsLastPong = false

    var isEmpty: Bool { entries.isEmpty }

    var count: Int { entries.count }

    /// The number of requests that were sent at this time or later.
    func count(since time: Int64) -> Int { entries.values.count { $0.sentAt >= time } }

    /// Whether no acknowledgement is awaited.
    var isSettled: Bool { !awaitsLastPong && entries.allSatisfy(\.value.failed) }

    /// The requests that were not refused.
    var unacknowledged: [OutboundRequest] { entries.values.filter { !$0.failed }.map(\.outbound) }

    subscript(id: UInt64) -> Entry? { entries[id] }

    // MARK: Sending

    /// Whether an unlabelled request to a target waits. Its answers name the target only.
    func isBusy(_ target: String) -> Bool { unlabelledTargets[target] != nil }

    mutating func begin(_ entry: Entry) {
        entries[entry.outbound.request.id] = entry
        if !entry.isLabelled { unlabelledTargets[entry.target] = entry.outbound.request.id }
    }

    /// A last PING is sent, whose answer is ``lastPong()``.
    mutating func askForLastPong() { awaitsLastPong = true }

    mutating func lastPong() { awaitsLastPong = false }

    // MARK: Answers

    /// The unlabelled request to a target; nil if there is none.
    func unlabelled(_ target: String) -> UInt64? { unlabelledTargets[target] }

    /// The unlabelled request with a body from an echo; nil if there is none.
    func unlabelled(body: [UInt8]) -> UInt64? {
        entries.first { !$0.value.isLabelled && $0.value.outbound.request.bodies.contains(body) }?.key
    }

    /// Notes an answer to a request.
    ///
    /// - Returns: whether it is the first with this numeric.
    mutating func answered(_ id: UInt64, numeric: Int) -> Bool {
        entries[id]?.repliesShown.insert(numeric).inserted ?? false
    }

    /// Notes the echo of a request, or of one of its fragments.
    ///
    /// - Returns: whether all have arrived.
    mutating func echoed(_ id: UInt64) -> Bool {
        guard let entry = entries.index(forKey: id) else { return false }
        if entries.values[entry].echoesMissing == 1 { return true }
        entries.values[entry].echoesMissing -= 1
        return entries.values[entry].echoesMissing <= 0
    }

    /// The backend, or a filter of it, has refused a request.
    ///
    /// - Returns: whether it is the first refusal.
    mutating func refused(_ id: UInt64) -> Bool {
        guard let entry = entries[id], !entry.failed else { return false }
        if entry.isLabelled { end(id) } else { entries[id]?.failed = true }
        return true
    }

    /// Removes and returns a request, with the answers that are due to it.
    @discardableResult
    mutating func end(_ id: UInt64) -> Entry? {
        guard let entry = entries.removeValue(forKey: id) else { return nil }
        if unlabelledTargets[entry.target] == id { unlabelledTargets[entry.target] = nil }
        return entry
    }

    // MARK: Batches

    /// The backend opens a batch that answers a request.
    mutating func beginBatch(_ reference: String, of id: UInt64) {
        if batches.count < Self.batchLimit { batches[reference] = id }
    }

    /// The request that a batch answers; nil if it answers none.
    func request(ofBatch reference: String) -> UInt64? { batches[reference] }

    /// The backend ends a batch.
    ///
    /// - Returns: whether it answers a request.
    mutating func endBatch(_ reference: String) -> Bool { batches.removeValue(forKey: reference) != nil }
}
