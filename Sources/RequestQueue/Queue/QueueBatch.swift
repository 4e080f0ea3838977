/// What one turn of the machine wants: changes to be committed in one transaction, and what may be done when they are.
public struct QueueBatch: Sendable {
    /// One attempt that may begin.
    public struct Dispatch: Sendable {
        /// The request's number.
        public var id: UInt64
        /// What an answer to this attempt has to be given with.
        public var lease: UInt64
        /// The request.
        public var request: QueuedRequest
        /// What the backend calls the entities that the request names.
        public var names: [EntityReference: String]

        /// What goes to the backend, without what its client adds.
        ///
        /// - Throws: ``UnresolvedReference``, never for a request as it came out of the queue.
        public func resolved() throws(UnresolvedReference) -> ResolvedRequest {
            let names = names
            return try request.config.resolved { names[$0] }
        }
    }

    /// A request whose outcome the response handlers are to be given.
    public struct Result: Sendable, Equatable {
        /// The request.
        public var request: QueuedRequest
        /// How it ended.
        public var outcome: RequestOutcome
        /// How often processes before this one were about to give it to handlers again; nil for one that ended in this process.
        /// One that is not nil is announced with ``QueueMachine/deliver(_:times:)`` before it is given.
        public var deliveries: Int?
    }

    /// To be committed in one transaction.
    public internal(set) var changes: [QueueChange] = []
    /// Those that are accepted with the commit.
    public internal(set) var accepted: [RequestToken] = []
    /// Attempts that may begin.
    public internal(set) var dispatches: [Dispatch] = []
    /// Outcomes for the response handlers.
    public internal(set) var results: [Result] = []
    /// What was given up because of its age, whether the batch is committed or not.
    public internal(set) var expired: [QueuedRequest] = []
    /// Attempts whose answers nobody waits for any more, by lease.
    public internal(set) var withdrawn: [UInt64] = []
    /// What it takes to go back.
    var steps: [QueueStep] = []

    /// Nothing.
    package init() {}

    /// Whether there is nothing to do.
    public var isEmpty: Bool { changes.isEmpty && withdrawn.isEmpty && results.isEmpty }
}

/// A change that has been made in memory and is not committed yet.
enum QueueStep: Sendable {
    /// The cause of a request that another one has replaced.
    static let replaced = "replaced by a later request"

    case insert(UInt64)
    /// It took the place of another one.
    case replace(QueueEntry, at: Int64)
    case lease(QueueBatch.Dispatch)
    case change(QueueChange, QueueBatch.Result?)
    /// An outcome of a process before this one.
    case result(QueueBatch.Result)
    case withdraw(UInt64)
}

/// A request in memory. An object, because it is changed in place many times and is too large to be copied each time.
///
/// `@unchecked`: only the machine touches it, and a batch carries it only to give it back to its machine.
final class QueueEntry: @unchecked Sendable {
    var request: QueuedRequest
    /// Whether it waits until its tenant asks for it.
    var isParked = false
    /// On the clock that only goes on.
    var notBefore: Int64 = 0
    /// Failed attempts of this process that count toward the limit.
    var verdicts = 0
    var deadline: Int64
    /// What it waits for: requests, and entities without a name.
    var blockers: Set<Blocker>
    /// The entities that it names.
    let references: [EntityReference]
    let isBarrier: Bool
    let isBackground: Bool
    let needsSession: Bool
    var lane: LaneState
    var host: HostState

    init(request: QueuedRequest, lane: LaneState, host: HostState, deadline: Int64, blockers: Set<Blocker>) {
        self.request = request
        self.deadline = deadline
        self.blockers = blockers
        self.lane = lane
        self.host = host
        let config = request.config
        references = config.references
        isBarrier = config.queueingStrategy.synchronization == .barrier
        isBackground = config.background
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

/// Names a request by its idempotency key, which is its token where nobody has chosen one.
struct KeyName: Hashable, Sendable {
    private let tenant: ExactText
    private let token: RequestToken?
    private let text: ExactText?

    init(_ request: QueuedRequest) {
        self.init(tenant: request.tenant, token: request.ownKey == nil ? request.token : nil, text: request.ownKey)
    }

    init(tenant: String, _ key: String) { self.init(tenant: tenant, token: nil, text: key) }

    /// A key that reads like a token is that token.
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

/// Names a request by a key that its sender has chosen.
struct TenantKey: Hashable, Sendable {
    private let tenant: ExactText
    private let key: ExactText

    init(tenant: String, key: String) { (self.tenant, self.key) = (ExactText(tenant), ExactText(key)) }
}
