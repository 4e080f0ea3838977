// The queue as a state machine: events go in, batches come out. It knows neither clocks nor sockets nor the database.

import DequeModule
import HeapModule

/// Requests in lanes, with what they wait for. There is one for each store, and it is not to be copied. Whoever runs it calls
/// ``turn(now:)``, commits the batch, and then does what the batch allows; see ``QueueBatch``.
public struct QueueMachine: Sendable {
    /// What a queue is made with.
    public struct Settings: Sendable {
        /// Its bounds.
        public var limits = QueueLimits()
        /// Its pauses.
        public var backoff = Backoff()
        /// When it leaves a host alone.
        public var breaker = CircuitBreaker.Rule()
        /// The host of requests that name none.
        public var host = ""
        /// Whether entities come into being by requests of this queue only. Then one that names another is refused; else it waits
        /// until somebody says what the backend calls it.
        public var createsAllEntities = false
        /// Whether there is somebody who wants outcomes; else they are dropped.
        public var keepsOutcomes = false
        /// Whether connections of the tenants send, and not anybody. They ask for what waits, see ``QueueMachine/unpark(_:)``; and they
        /// keep back what is held, among what they were handed before the hold and after, so that a hold stops nothing here but
        /// a request's age.
        public var isCarried = false
        /// Milliseconds until an attempt whose request names no timeout has failed, whether its sender has answered or not; nil if
        /// attempts end by their answer alone.
        public var attemptTimeout: Int64?

        /// The defaults, without a host.
        public init() {}
    }

    /// What has happened since the start. What was appended or restored is done, dead, cancelled, pending or in flight.
    public struct Counts: Sendable, Equatable {
        /// Taken over from the process before.
        public var restored = 0
        /// Accepted.
        public var appended = 0
        /// Not accepted.
        public var refused = 0
        /// Done by the backend.
        public var done = 0
        /// Given up.
        public var dead = 0
        /// Cancelled or replaced.
        public var cancelled = 0
        /// Brought back from the dead by an operator.
        public var revived = 0
        /// Attempts that were followed by another.
        public var retried = 0
        /// Answers that came when their lease was over.
        public var late = 0
        /// Done after an attempt whose answer never came: the backend may have done them twice.
        public var doubtful = 0
        /// Answers that something between gave in place of the backend.
        public var unexpected = 0
        /// Outcomes that are given up because processes ended while handlers had them.
        public var undelivered = 0

        /// Nothing yet.
        public init() {}
    }

    private(set) var settings: Settings
    var entries: [UInt64: QueueEntry] = [:]
    var tokens: [RequestToken: UInt64] = [:]
    var lanes: [LaneID: LaneState] = [:]
    let tenants = Tenants()
    var hosts: [String: HostState] = [:]
    /// Tenants that have a lane in which something may be sent, in the order of their turns.
    var ring: Deque<TenantState> = []
    var timers: Heap<Timer> = []
    /// The live requests that bring entities into being, and why they did not.
    var creators: [TenantReference: UInt64] = [:]
    var failedCreators: [TenantReference: String] = [:]
    /// Who waits for a request, or for an entity's name.
    var waitingForRequest: [UInt64: [UInt64]] = [:]
    var waitingForReference: [TenantReference: [UInt64]] = [:]
    var coalescing: [TenantKey: UInt64] = [:]
    var keys: [KeyName: KeyRecord] = [:]
    /// Done and cancelled, the oldest first.
    var finished: Deque<FinishedRecord> = []
    /// Dead, and their order, which may name requests that are dead no more.
    var deadLetters: [UInt64: FinishedRecord] = [:]
    var deadOrder: Deque<(id: UInt64, at: Int64)> = []
    /// Sizes of the answers that are kept, in bytes; their order, which may name answers that are not kept any more; their sum.
    var responses: [UInt64: Int] = [:]
    var responseOrder: Deque<UInt64> = []
    var responseBytes = 0
    /// Requests that were under way when the last process ended and have not been sent since.
    var suspects: [UInt64] = []
    /// The suspect that was sent last. Nothing else begins before it has ended, or this time has come.
    var trial: (dispatch: UInt64, lease: UInt64, until: Int64)?
    var learnt: Deque<QueueContents.Learnt> = []
    /// When requests are given up, those among them that have ended or have got another time.
    var deadlines: Heap<Deadline> = []
    /// When attempts that are under way end without an answer, by lease; some of them have ended.
    var leaseEnds: Heap<LeaseEnd> = []
    /// Given up for their age since the last turn.
    var expired: [QueuedRequest] = []
    var map = IdentifierMap()
    /// What one turn hands out, and the stored forms of the requests that it stores.
    var steps: [QueueStep] = []
    var fresh: [UInt64: [UInt8]] = [:]
    /// Finished requests that others may still depend on: why they failed, or nothing.
    var ended: [RequestToken: String] = [:]
    var nextPrune: Int64 = .min
    /// The highest id of those that were forgotten.
    var highestPruned: UInt64 = 0
    var inFlight = 0
    var size = 0
    var nextID: UInt64 = 1
    var nextLease: UInt64
    var isClosed = false
    /// Nothing new is begun while this is set: whoever takes the outcomes does not keep up.
    public var isPaused = false
    /// What has happened so far.
    public internal(set) var counts = Counts()

    /// - Parameter lease: 64 random bits; leases are counted from there, so that those of two processes differ.
    public init(_ settings: Settings, lease: UInt64) {
        var settings = settings
        // Times are added to it.
        settings.limits.age = min(max(settings.limits.age, 0), Backoff.longest)
        self.settings = settings
        nextLease = lease
    }

    var limits: QueueLimits { settings.limits }

    /// Requests that wait or are under way.
    public var depth: Int { entries.count }
    /// Requests that are under way.
    public var underWay: Int { inFlight }
    /// Bytes of the same.
    public var bytes: Int { size }
    /// What is known of those that wait or are under way, in the order in which they were accepted.
    public var requests: [QueuedRequest] { entries.values.map(\.request).sorted { $0.id < $1.id } }

    /// A request that waits or is under way.
    public func request(_ token: RequestToken) -> QueuedRequest? { tokens[token].flatMap { entries[$0]?.request } }

    /// The request that was accepted under an idempotency key, for as long as that is remembered.
    public func token(idempotencyKey key: String, tenant: String) -> RequestToken? {
        keys[KeyName(tenant: tenant, key)]?.token
    }

    /// What the backend calls an entity; nil if that is not known, or no longer.
    public func remoteIdentifier(of reference: EntityReference, tenant: String) -> String? { map[tenant, reference] }

    /// What a request waits for besides its turn, in words.
    public func obstacles(_ token: RequestToken, now: QueueTime) -> [String] {
        guard let id = tokens[token], let entry = entries[id], entry.request.state == .pending else { return [] }
        var obstacles: [String] = []
        if isHeldAfterCrashes(entry.request) {
            obstacles.append(
                "held: the process ended \(entry.request.crashes) times while only this request was under way")
        } else if isHeld(entry) {
            obstacles.append("held by an operator")
        }
        if suspects.contains(id) { obstacles.append("was under way at a crash: such requests go one at a time") }
        for blocker in entry.blockers {
            switch blocker {
            case .request(let other):
                obstacles.append("waits for request \(other)")
            case .reference(let reference): obstacles.append("waits for the backend's name of \(reference)")
            }
        }
        if entry.request.config.includeSessionKey, !entry.lane.tenant.hasSession {
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

    /// Gives up what is too old, begins what may begin, and hands out all that has changed since the last turn.
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
                if settings.keepsOutcomes { batch.results.append(.init(request: entry.request, outcome: outcome)) }
            case .lease(let dispatch):
                batch.dispatches.append(dispatch)
                // A request that is stored with this batch is stored as one that is under way.
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
        return batch
    }

    func finish(_ request: QueuedRequest, lease: UInt64?, _ outcome: RequestOutcome, at: Int64) -> QueueChange {
        .finish(id: request.id, lease: lease, outcome: outcome, keepsOutcome: settings.keepsOutcomes, at: at)
    }

    /// The batch could not be committed. What it began is undone, and so is what has begun since, because it may stand on that;
    /// what ended is kept for the next batch. Where more batches have been handed out behind it, the last of them fails first.
    ///
    /// - Returns: the requests that are not accepted after all.
    public mutating func failed(_ batch: QueueBatch) -> [RequestToken] {
        var refused: [RequestToken] = []
        // The last first, each on what it was done to.
        let open = steps
        steps = []
        fresh = [:]
        let later = undo(open, &refused) { _ in nil }
        let earlier = undo(batch.steps, &refused) { id in
            batch.changes.first { change in
                if case .insert(let request, _) = change { return request.id == id }
                return false
            }
        }
        steps = earlier + later
        counts.appended -= refused.count
        counts.refused += refused.count
        return refused
    }

    /// - Returns: the steps that are not undone.
    private mutating func undo(
        _ undone: [QueueStep], _ refused: inout [RequestToken], insertion: (UInt64) -> QueueChange?
    ) -> [QueueStep] {
        var kept: [QueueStep] = []
        for step in undone.reversed() {
            switch step {
            case .insert(let id):
                if let request = remove(id) {
                    refused.append(request.token)
                } else if let insertion = insertion(id) {
                    // It has ended since: stored before it ends, so that whoever appended it finds it.
                    kept.append(.change(insertion, nil))
                }
            case .replace(let entry, _): reinstate(entry)
            case .lease(let dispatch): undo(dispatch)
            case .change, .result, .withdraw: kept.append(step)
            }
        }
        return kept.reversed()
    }

    /// When the machine wants its next turn even if nothing happens, in milliseconds of uptime.
    public func nextWake() -> Int64? {
        [timers.min?.at, deadlines.min?.at, leaseEnds.min?.at, trial?.until].compactMap { $0 }.min()
    }

    /// Outcomes are kept for handlers from now on.
    public mutating func keepOutcomes() { settings.keepsOutcomes = true }

    /// Handlers are about to be given an outcome that a process before this one did not get rid of. They are given it when the
    /// next batch is committed.
    ///
    /// - Parameter times: of ``QueueBatch/Result/deliveries``.
    public mutating func deliver(_ id: UInt64, times: Int) {
        steps.append(.change(.redeliver(id: id, times: times + 1), nil))
    }

    /// The response handlers have had the outcome.
    public mutating func handled(_ id: UInt64) { steps.append(.change(.handled(id: id), nil)) }

    /// Accepts nothing more; what waits stays for the next process.
    public mutating func close() { isClosed = true }
}

/// A time at which a lane may have something to send.
struct Timer: Comparable, Sendable {
    let at: Int64
    let lane: LaneState

    static func < (one: Timer, other: Timer) -> Bool { one.at < other.at }
    static func == (one: Timer, other: Timer) -> Bool { one.at == other.at && one.lane === other.lane }
}

/// A time at which a request is given up; of those with the same, the first that was accepted comes first.
struct Deadline: Comparable, Sendable {
    let at: Int64
    let id: UInt64

    static func < (one: Deadline, other: Deadline) -> Bool { (one.at, one.id) < (other.at, other.id) }
}

/// A time at which an attempt ends without an answer.
struct LeaseEnd: Comparable, Sendable {
    let at: Int64
    let id: UInt64
    let lease: UInt64

    static func < (one: LeaseEnd, other: LeaseEnd) -> Bool { (one.at, one.lease) < (other.at, other.lease) }
}

struct KeyRecord: Sendable {
    let token: RequestToken
    let digest: RequestDigest
}

struct FinishedRecord: Sendable {
    let id: UInt64
    let token: RequestToken
    /// Milliseconds since 1970.
    let at: Int64
    let key: KeyName
    let creates: [TenantReference]
}
