/// The result of one turn: changes to commit in one transaction, and what may be done after the commit.
public struct QueueBatch: Sendable {
    /// One attempt that may begin.
    public struct Dispatch: Sendable {
        /// The id of the request.
        public var id: UInt64
        /// The lease of the attempt; its answer must carry it.
        public var lease: UInt64
        /// The request.
        public var request: QueuedRequest
        /// Remote identifiers of the entities that the request names.
        public var names: [EntityReference: String]

        /// The request as it goes to the backend, without what the client adds.
        ///
        /// - Throws: ``UnresolvedReference``, never for a request as the queue returned it.
        public func resolved() throws(UnresolvedReference) -> ResolvedRequest {
            let names = names
            return try request.config.resolved { names[$0] }
        }
    }

    /// An outcome for the response handlers.
    public struct Result: Sendable, Equatable {
        /// The request.
        public var request: QueuedRequest
        /// How it ended.
        public var outcome: RequestOutcome
        /// Number of redeliveries that earlier processes began; nil for a request that ended in this process. If it is
        /// not nil, call ``QueueMachine/deliver(_:times:)`` before the handlers.
        public var deliveries: Int?
        /// Whether the store keeps the outcome for handlers.
        public var isKept = true
    }

    /// Changes to commit in one transaction.
    public internal(set) var changes: [QueueChange] = []
    /// Requests that are accepted with the commit.
    public internal(set) var accepted: [RequestToken] = []
    /// Attempts that may begin.
    public internal(set) var dispatches: [Dispatch] = []
    /// Outcomes for the response handlers.
    public internal(set) var results: [Result] = []
    /// Requests that expired, whether the batch is committed or not.
    public internal(set) var expired: [QueuedRequest] = []
    /// Attempts whose answers are no longer needed, by lease.
    public internal(set) var withdrawn: [UInt64] = []
    /// The steps that are undone if the commit fails.
    var steps: [QueueStep] = []

    /// An empty batch.
    package init() {}

    /// Leaves out attempts of requests that were discarded after their turn.
    package mutating func withhold(_ tokens: Set<RequestToken>) {
        dispatches.removeAll { tokens.contains($0.request.token) }
    }

    /// Whether there is nothing to do.
    public var isEmpty: Bool { changes.isEmpty && withdrawn.isEmpty && results.isEmpty }
}

/// A change that has been made in memory and is not committed yet.
enum QueueStep: Sendable {
    /// The cause of a request that another one replaced.
    static let replaced = "replaced by a later request"

    case insert(UInt64)
    /// A new request replaced this one.
    case replace(QueueEntry, at: Int64)
    case lease(QueueBatch.Dispatch)
    case change(QueueChange, QueueBatch.Result?)
    /// An outcome that an earlier process left.
    case result(QueueBatch.Result)
    case withdraw(UInt64)

    /// The step after leases were undone, which the store does not have: a request that has ended under one of them
    /// ends as one that waits.
    func withoutLease(among undone: Set<UInt64>) -> QueueStep {
        guard case .change(.finish(let id, let lease?, let outcome, let keeping, let at), let result) = self,
            undone.contains(lease)
        else { return self }
        return .change(.finish(id: id, lease: nil, outcome: outcome, keeping: keeping, at: at), result)
    }

    /// The id of the request that the step inserts; nil if it inserts none.
    var insertion: UInt64? {
        switch self {
        case .insert(let id): id
        case .change(.insert(let request, _), _): request.id
        case .replace, .lease, .change, .result, .withdraw: nil
        }
    }

    /// The id of the request that the step is about; nil if it is about none.
    var request: UInt64? {
        switch self {
        case .insert(let id): id
        case .replace(let entry, _): entry.id
        case .lease(let dispatch): dispatch.id
        case .change(let change, _): change.request
        case .result(let result): result.request.id
        case .withdraw: nil
        }
    }
}

/// A request in memory. A class, because it is changed in place many times and is too large to be copied each time.
///
/// `@unchecked`: only the machine accesses it, and a batch carries it only to return it to its machine.
final class QueueEntry: @unchecked Sendable {
    var request: QueuedRequest
    /// Whether it waits until its tenant asks for it.
    var isParked = false
    /// When it may be sent, in milliseconds of uptime.
    var notBefore: Int64 = 0
    /// Whether its last attempt did not reach the host, so that a network ends its pause.
    var waitsForNetwork = false
    /// Whether a connection to its host was opened for its tenant while the attempt was in flight.
    var wasConnected = false
    /// Failed attempts of this process that count toward the limit.
    var verdicts = 0
    var deadline: Int64
    /// What it waits for: requests, and entities without a remote identifier.
    var blockers: Set<Blocker>
    /// The entities that it names.
    let references: [EntityReference]
    let isBarrier: Bool
    let isBackground: Bool
    let needsSession: Bool
    let method: HTTPMethod
    let strategy: QueueingStrategy
    /// In milliseconds; nil for the queue's own timeout.
    let timeoutInterval: Int64?
    var lane: LaneState
    var host: HostState

    init(request: QueuedRequest, lane: LaneState, host: HostState, deadline: Int64, blockers: Set<Blocker>) {
        self.request = request
        self.deadline = deadline
        self.blockers = blockers
        self.lane = lane
        self.host = host
        // Read once: each reading copies the whole request.
        let config = request.config
        (method, strategy, timeoutInterval) = (config.method, config.queueingStrategy, config.timeoutInterval)
        references = config.references
        isBarrier = config.queueingStrategy.synchronization == .barrier
        // Someone waits for a read; otherwise the application would not ask.
        isBackground = config.background && !config.method.isSafe
        needsSession = config.includeSessionKey
    }

    enum Blocker: Hashable, Sendable {
        case request(UInt64)
        case reference(EntityReference)
    }

    var id: UInt64 { request.id }
}

/// Names a lane. The one without a name is the tenant's common lane.
struct LaneID: Hashable, Sendable {
    private let tenant: ExactText
    private let lane: ExactText?

    init(tenant: String, lane: String?) { (self.tenant, self.lane) = (ExactText(tenant), lane.map { ExactText($0) }) }
}

/// Names an entity of a tenant.
struct TenantReference: Hashable, Sendable {
    let tenant: ExactText
    let reference: EntityReference

    init(tenant: String, reference: EntityReference) { (self.tenant, self.reference) = (ExactText(tenant), reference) }
}

/// Names a request by its idempotency key, which is its token by default.
struct KeyName: Hashable, Sendable {
    private let tenant: ExactText
    /// The key if it has the form of a token.
    let token: RequestToken?
    private let text: ExactText?

    init(_ request: QueuedRequest) {
        self.init(tenant: request.tenant, token: request.ownKey == nil ? request.token : nil, text: request.ownKey)
    }

    init(tenant: String, _ key: String) { self.init(tenant: tenant, token: nil, text: key) }

    /// A key in the form of a token is that token.
    private init(tenant: String, token: RequestToken?, text: String?) {
        self.tenant = ExactText(tenant)
        self.token = token ?? text.flatMap(RequestToken.init)
        self.text = self.token == nil ? text.map { ExactText($0) } : nil
    }

    func hash(into hasher: inout Hasher) {
        if let token { return hasher.combine(token) }
        hasher.combine(tenant)
        hasher.combine(text)
    }
}

/// Names a request by its coalescing key.
struct TenantKey: Hashable, Sendable {
    private let tenant: ExactText
    private let key: ExactText

    init(tenant: String, key: String) { (self.tenant, self.key) = (ExactText(tenant), ExactText(key)) }
}
