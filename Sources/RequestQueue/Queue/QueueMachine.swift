// The queue as a state machine: events go in, batches come out. It uses no clock, socket or database.

import DequeModule
import HeapModule

/// Orders requests in lanes and tracks what each of them waits for.
///
/// There is one machine for each store; it must not be copied. Its owner calls ``turn(now:)``, commits the batch, and
/// then performs what the batch allows; see ``QueueBatch``.
public struct QueueMachine: Sendable {
    /// The configuration of a queue.
    public struct Settings: Sendable {
        /// Bounds of memory, storage and concurrency.
        public var limits = QueueLimits()
        /// Pauses between attempts.
        public var backoff = Backoff()
        /// When the circuit breaker of a host opens.
        public var breaker = CircuitBreaker.Rule()
        /// The host of requests that name none.
        public var host = ""
        /// Whether only requests of this queue create entities. If true, a request that names an unknown entity is
        /// refused; if false, it waits until the remote identifier of the entity is merged. If true and no handlers get
        /// outcomes, requests that wait for an entity fail if the answer to its creator does not have its identifier.
        public var createsAllEntities = false
        /// Whether outcomes are kept for response handlers; if false, they are dropped.
        public var keepsOutcomes = false
        /// Whether kept outcomes are due to response handlers, also those of the next process, until
        /// ``QueueMachine/handled(_:)``. If false, they are stored for callers that ask, and nothing has to be stored
        /// again after a request has ended.
        public var deliversOutcomes = true
        /// Whether batches name the requests that have ended also if their outcomes are not kept.
        public var reportsEnds = false
        /// Whether the connections of a tenant send its requests.
        ///
        /// A connection asks for waiting requests with ``QueueMachine/unpark(_:)`` and enforces holds itself, also for
        /// requests that it was given before the hold. So a hold stops nothing here but the ageing of a request.
        public var isCarried = false
        /// Milliseconds until an attempt fails, whether its sender answers or not, if the request has no timeout of its
        /// own; nil if attempts end only with their answer.
        public var attemptTimeout: Int64?

        /// The defaults, without a host.
        public init() {}

        /// Whether an entity has its remote identifier with the answer to the request that creates it, or never: no
        /// handler merges one later.
        var namesComeWithAnswers: Bool { createsAllEntities && !(keepsOutcomes && deliversOutcomes) }

        /// What is stored of outcomes.
        var keeping: QueueChange.Keeping { !keepsOutcomes ? .result : deliversOutcomes ? .delivery : .response }
    }

    /// Event counts since the start. Each request that was restored, appended or revived is done, dead, cancelled,
    /// pending or in flight.
    public struct Counts: Sendable, Equatable {
        /// Taken over from the previous process.
        public var restored = 0
        /// Accepted.
        public var appended = 0
        /// Refused by ``append(_:token:id:now:)``, or by a commit that failed.
        public var refused = 0
        /// Done by the backend.
        public var done = 0
        /// Given up.
        public var dead = 0
        /// Cancelled or replaced.
        public var cancelled = 0
        /// Dead requests that an operator queued again.
        public var revived = 0
        /// Failed attempts after which the request waits for another one.
        public var retried = 0
        /// Answers that arrived after their lease had ended.
        public var late = 0
        /// Done after an attempt without an answer: the backend may have done them twice.
        public var doubtful = 0
        /// Answers that an intermediary, such as a proxy, gave in place of the backend.
        public var unexpected = 0
        /// Outcomes that were given up because processes ended while handlers had them.
        public var undelivered = 0

        /// All counts are zero.
        public init() {}
    }

    private(set) var settings: Settings
    var entries: [UInt64: QueueEntry] = [:]
    var tokens: [RequestToken: UInt64] = [:]
    var lanes: [LaneID: LaneState] = [:]
    let tenants = Tenants()
    var hosts: [String: HostState] = [:]
    /// Tenants with a lane that may have something to send, in the order of their turns.
    var ring: Deque<TenantState> = []
    var timers: Heap<Timer> = []
    /// The live requests that create entities, and the causes for entities that were never created.
    var creators: [TenantReference: UInt64] = [:]
    var failedCreators: [TenantReference: String] = [:]
    /// Requests that wait for another request, or for the remote identifier of an entity.
    var waitingForRequest: [UInt64: [UInt64]] = [:]
    var waitingForReference: [TenantReference: [UInt64]] = [:]
    var coalescing: [TenantKey: UInt64] = [:]
    var keys: [KeyName: KeyRecord] = [:]
    /// The idempotency keys that were forgotten since they were last taken; nil if nobody takes them.
    var forgottenKeys: [KeyName]?
    /// Done and cancelled requests, the oldest first.
    var finished: Deque<FinishedRecord> = []
    /// Dead requests, and their order, which may contain requests that are no longer dead.
    var deadLetters: [UInt64: FinishedRecord] = [:]
    var deadOrder: Deque<(id: UInt64, at: Int64)> = []
    /// Sizes of the stored responses, in bytes; their order, which may contain responses no longer stored; their sum.
    var responses: [UInt64: Int] = [:]
    var responseOrder: Deque<UInt64> = []
    var responseBytes = 0
    /// Requests that were in flight when the previous process ended and have not been sent since.
    var suspects: [UInt64] = []
    /// The suspect that was sent last. No other request begins until it has ended or `until` has passed.
    var trial: (dispatch: UInt64, lease: UInt64, until: Int64)?
    var learnt: Deque<QueueContents.Learnt> = []
    /// Times at which requests expire; may contain requests that have ended or have a new deadline.
    var deadlines: Heap<Deadline> = []
    /// Times at which attempts in flight time out, by lease; may contain attempts that have ended.
    var leaseEnds: Heap<LeaseEnd> = []
    /// Requests that expired since the last turn.
    var expired: [QueuedRequest] = []
    var map = IdentifierMap()
    /// Dead requests whose outcome handlers have and have not confirmed.
    var unhandled: Set<UInt64> = []
    /// How many outcomes of a request handlers have not confirmed although it was queued again since.
    var superseded: [UInt64: Int] = [:]
    /// The steps since the last turn, and the stored forms of the requests that they insert.
    var steps: [QueueStep] = []
    var fresh: [UInt64: [UInt8]] = [:]
    /// Finished requests that later ones may depend on.
    var ended: [RequestToken: Ending] = [:]
    var nextPrune: Int64 = .min
    /// The highest id of the requests that were pruned.
    var highestPruned: UInt64 = 0
    var inFlight = 0
    var size = 0
    var nextID: UInt64 = 1
    var nextLease: UInt64
    var isClosed = false
    /// Whether no new attempt begins, because the handlers of outcomes do not keep up.
    public var isPaused = false
    /// Whether there is a network, as far as the owner knows; see ``setReachable(_:now:)``.
    public internal(set) var isReachable = true
    /// Event counts since the start.
    public internal(set) var counts = Counts()

    /// - Parameters:
    ///   - settings: the configuration.
    ///   - lease: 64 random bits. Leases are counted from this value, so that those of two processes differ.
    public init(_ settings: Settings, lease: UInt64) {
        var settings = settings
        // Bounded, so that times can be added to it without overflow.
        settings.limits.age = min(max(settings.limits.age, 0), Backoff.longest)
        self.settings = settings
        nextLease = lease
    }

    var limits: QueueLimits { settings.limits }

    /// Number of requests that wait or are in flight.
    public var depth: Int { entries.count }
    /// Number of requests in flight.
    public var underWay: Int { inFlight }
    /// Whether nothing is in flight, and nothing can be sent before an event or a later time.
    ///
    /// Without a network, or while handlers do not keep up, requests cannot be sent.
    public var isIdle: Bool { inFlight == 0 && (ring.isEmpty || isClosed || isPaused || !isReachable) }
    /// Size of the requests that wait or are in flight, in bytes.
    public var bytes: Int { size }
    /// The requests that wait or are in flight, in the order in which they were accepted.
    public var requests: [QueuedRequest] { entries.values.map(\.request).sorted { $0.id < $1.id } }

    /// The request; nil if it neither waits nor is in flight.
    public func request(_ token: RequestToken) -> QueuedRequest? { tokens[token].flatMap { entries[$0]?.request } }

    /// The token of the request that was accepted under an idempotency key; nil if the key is unknown or forgotten.
    public func token(idempotencyKey key: String, tenant: String) -> RequestToken? {
        keys[KeyName(tenant: tenant, key)]?.token
    }

    /// The remote identifier of an entity; nil if it is unknown or forgotten.
    public func remoteIdentifier(of reference: EntityReference, tenant: String) -> String? { map[tenant, reference] }

    /// Describes what a request waits for besides its turn.
    public func obstacles(_ token: RequestToken, now: QueueTime) -> [String] {
        guard let id = tokens[token], let entry = entries[id], entry.request.state == .pending else { return [] }
        var obstacles: [String] = isReachable ? [] : ["there is no network"]
        if isHeldAfterCrashes(entry.request) {
            obstacles.append(
                "held: the process ended \(entry.request.crashes) times while only this request was under way")
        } else if isHeld(entry) {
            obstacles.append("held by an operator")
        }
        if suspects.contains(id) { obstacles.append("was in flight at a crash; such requests are sent one at a time") }
        for blocker in entry.blockers {
            switch blocker {
            case .request(let other):
                obstacles.append("waits for request \(other)")
            case .reference(let reference): obstacles.append("waits for the backend's name of \(reference)")
            }
        }
        if entry.needsSession, !entry.lane.tenant.hasSession {
            obstacles.append("waits for the next login")
        }
        if entry.notBefore > now.uptime {
            obstacles.append("sent again in \((entry.notBefore - now.uptime).adding(999) / 1000) s")
        }
        if !entry.host.breaker.allows(now: now.uptime) {
            obstacles.append("the host cannot be reached")
        }
        if let until = entry.host.pause(of: entry.lane.tenant, now: now.uptime) {
            obstacles.append("the host asked its sender to wait \((until - now.uptime).adding(999) / 1000) s")
        }
        return obstacles.sorted()
    }

    // MARK: Turns

    /// Expires old requests, begins attempts, and returns all changes since the last turn.
    public mutating func turn(now: QueueTime) -> QueueBatch {
        endLeases(now: now)
        expire(now: now)
        dispatch(now: now)
        var batch = QueueBatch()
        swap(&batch.steps, &steps)
        swap(&batch.expired, &expired)
        batch.changes.reserveCapacity(batch.steps.count)
        for step in batch.steps {
            switch step {
            case .insert(let id):
                guard let entry = entries[id], let form = fresh[id] else { continue }
                batch.changes.append(.insert(entry.request, form: form))
                batch.accepted.append(entry.request.token)
            case .replace(let entry, let at):
                let outcome = RequestOutcome(.aborted, cause: QueueStep.replaced)
                batch.changes.append(finish(entry.request, lease: nil, outcome, at: at))
                if let result = result(entry.request, outcome) { batch.results.append(result) }
            case .lease(let dispatch):
                batch.dispatches.append(dispatch)
                // A request that this batch inserts is stored with its lease.
                if fresh[dispatch.id] == nil {
                    batch.changes.append(.lease(id: dispatch.id, lease: dispatch.lease))
                }
            case .change(let change, let result):
                batch.changes.append(change)
                if case .insert(let request, _) = change { batch.accepted.append(request.token) }
                if let result { batch.results.append(result) }
            case .result(let result): batch.results.append(result)
            case .withdraw(let lease): batch.withdrawn.append(lease)
            }
        }
        fresh.removeAll(keepingCapacity: true)
        if settings.deliversOutcomes {
            for result in batch.results where result.isKept && deadLetters[result.request.id] != nil {
                unhandled.insert(result.request.id)
            }
        }
        return batch
    }

    /// The result for a batch; nil if nobody needs it.
    func result(_ request: QueuedRequest, _ outcome: RequestOutcome) -> QueueBatch.Result? {
        guard settings.keepsOutcomes || settings.reportsEnds else { return nil }
        return QueueBatch.Result(request: request, outcome: outcome, isKept: settings.keepsOutcomes)
    }

    func finish(_ request: QueuedRequest, lease: UInt64?, _ outcome: RequestOutcome, at: Int64) -> QueueChange {
        .finish(id: request.id, lease: lease, outcome: outcome, keeping: settings.keeping, at: at)
    }

    /// Undoes a batch that could not be committed.
    ///
    /// Insertions and leases of the batch are undone, and so are those made since, because they may depend on it. A
    /// request that was inserted is forgotten even if it has ended since: its sender was told that it is not accepted, and
    /// may append it again under the same key. Other requests that have ended stay ended, and the next batch stores that.
    /// If further batches were returned after this one, call this for the last of them first.
    ///
    /// - Returns: the requests that are not accepted after all.
    public mutating func failed(_ batch: QueueBatch) -> [RequestToken] {
        var refused: [UInt64: RequestToken] = [:]
        // In reverse order, so that each step is undone in the state that it left.
        let open = steps
        steps = []
        fresh = [:]
        let later = undo(open, &refused)
        let earlier = undo(batch.steps, &refused)
        let leases = Set(batch.dispatches.map(\.lease))
        steps = (earlier + later).compactMap { step in
            if let id = step.request, refused[id] != nil { return nil }
            return step.withoutLease(among: leases)
        }
        counts.appended -= refused.count
        counts.refused += refused.count
        return refused.sorted { $0.key < $1.key }.map(\.value)
    }

    /// - Returns: the steps that are not undone.
    private mutating func undo(_ undone: [QueueStep], _ refused: inout [UInt64: RequestToken]) -> [QueueStep] {
        var kept: [QueueStep] = []
        for step in undone.reversed() {
            if let id = step.insertion {
                refused[id] = disown(id)
                continue
            }
            switch step {
            case .insert: break
            case .replace(let entry, _): reinstate(entry)
            case .lease(let dispatch): undo(dispatch)
            case .change, .result, .withdraw: kept.append(step)
            }
        }
        return kept.reversed()
    }

    /// When the next turn is due if no event comes first, in milliseconds of uptime; nil if none is due.
    public func nextWake() -> Int64? {
        let attempts = isClosed || isPaused || !isReachable ? [] : [timers.min?.at, trial?.until]
        return ([deadlines.min?.at, leaseEnds.min?.at] + attempts).compactMap { $0 }.min()
    }

    /// Notes whether there is a network, as the system reports it to an application.
    ///
    /// Without one, no attempt begins, and an attempt that could not reach its host is not counted. Once there is one,
    /// requests that failed without a network are sent at once, and hosts that could not be reached are tried again.
    public mutating func setReachable(_ isReachable: Bool, now: QueueTime) {
        guard isReachable != self.isReachable else { return }
        self.isReachable = isReachable
        guard isReachable else { return }
        for host in hosts.values {
            host.breaker.reconnected()
            wakeWaiting(for: host)
        }
        for entry in entries.values where entry.waitsForNetwork && entry.request.state == .pending {
            entry.notBefore = min(entry.notBefore, now.uptime)
            wake(entry.lane)
        }
    }

    /// Sends the requests of a tenant at once that have failed, or fail later in an attempt that has begun, because no
    /// connection to their host was open.
    public mutating func connected(host: String, tenant: String, now: QueueTime) {
        guard let host = hosts[host] else { return }
        for entry in live(of: tenant) where entry.host === host {
            // The failure of an attempt in flight may come after this, although it came about before.
            if entry.request.state == .inFlight { entry.wasConnected = true }
            guard entry.waitsForNetwork, entry.request.state == .pending else { continue }
            entry.notBefore = min(entry.notBefore, now.uptime)
            wake(entry.lane)
        }
    }

    /// Keeps outcomes for handlers from now on.
    public mutating func keepOutcomes() { (settings.keepsOutcomes, settings.deliversOutcomes) = (true, true) }

    /// Whether kept outcomes are due to handlers.
    package var deliversOutcomes: Bool { settings.deliversOutcomes }

    /// Counts a delivery of an outcome that an earlier process left. Handlers get it once the next batch is committed.
    ///
    /// - Parameters:
    ///   - id: the request.
    ///   - times: the value of ``QueueBatch/Result/deliveries``.
    public mutating func deliver(_ id: UInt64, times: Int) {
        steps.append(.change(.redeliver(id: id, times: times + 1), nil))
    }

    /// Notes that the response handlers have finished with the outcome.
    public mutating func handled(_ id: UInt64) {
        // The outcome of a dead request that was queued again is no longer stored. A later one is still due.
        if let count = superseded[id] {
            superseded[id] = count > 1 ? count - 1 : nil
            return
        }
        unhandled.remove(id)
        steps.append(.change(.handled(id: id), nil))
    }

    /// Accepts no more requests; those that wait stay for the next process.
    public mutating func close() { isClosed = true }
}

/// A time at which a lane may have something to send.
struct Timer: Comparable, Sendable {
    let at: Int64
    let lane: LaneState

    static func < (one: Timer, other: Timer) -> Bool { one.at < other.at }
    static func == (one: Timer, other: Timer) -> Bool { one.at == other.at && one.lane === other.lane }
}

/// The time at which a request expires. Equal times are ordered by acceptance.
struct Deadline: Comparable, Sendable {
    let at: Int64
    let id: UInt64

    static func < (one: Deadline, other: Deadline) -> Bool { (one.at, one.id) < (other.at, other.id) }
}

/// The time at which an attempt times out.
struct LeaseEnd: Comparable, Sendable {
    let at: Int64
    let id: UInt64
    let lease: UInt64

    static func < (one: LeaseEnd, other: LeaseEnd) -> Bool { (one.at, one.lease) < (other.at, other.lease) }
}

/// How a request has ended.
struct Ending: Sendable {
    let state: RequestState
    /// The cause if it is not done.
    let cause: String
}

struct KeyRecord: Sendable {
    let token: RequestToken
    let digest: RequestDigest
}

struct FinishedRecord: Sendable {
    let id: UInt64
    let token: RequestToken
    let state: RequestState
    /// Milliseconds since 1970.
    let at: Int64
    let key: KeyName
    let creates: [TenantReference]
}
