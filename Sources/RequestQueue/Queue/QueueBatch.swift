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
    }

    /// To be committed in one transaction.
    public internal(set) var changes: [QueueChange] = []
    /// Those that are accepted with the commit.
    public internal(set) var accepted: [RequestToken] = []
    /// Attempts that may begin.
    public internal(set) var dispatches: [Dispatch] = []
    /// Outcomes for the response handlers.
    public internal(set) var results: [Result] = []
    /// Attempts whose answers nobody waits for any more, by lease.
    public internal(set) var withdrawn: [UInt64] = []
    /// What it takes to go back.
    var steps: [QueueStep] = []

    /// Whether there is nothing to do.
    public var isEmpty: Bool { changes.isEmpty && withdrawn.isEmpty }
}

/// A change that has been made in memory and is not committed yet.
enum QueueStep: Sendable {
    case insert(UInt64)
    /// It took the place of another one.
    case replace(QueueEntry, at: Int64)
    case lease(QueueBatch.Dispatch)
    case change(QueueChange, QueueBatch.Result?)
    case withdraw(UInt64)
}

/// A request in memory. An object, because it is changed in place many times and is too large to be copied each time.
///
/// `@unchecked`: only the machine touches it, and a batch carries it only to give it back to its machine.
final class QueueEntry: @unchecked Sendable {
    var request: QueuedRequest
    /// On the clock that only goes on.
    var notBefore: Int64
    var deadline: Int64
    /// What it waits for: requests, and entities without a name.
    var blockers: Set<Blocker>
    let lane: LaneID

    init(request: QueuedRequest, notBefore: Int64 = 0, deadline: Int64 = 0, blockers: Set<Blocker> = []) {
        self.request = request
        self.notBefore = notBefore
        self.deadline = deadline
        self.blockers = blockers
        lane = LaneID(tenant: request.tenant, lane: request.lane)
    }

    enum Blocker: Hashable, Sendable {
        case request(UInt64)
        case reference(EntityReference)
    }

    var id: UInt64 { request.id }
    var isBarrier: Bool { request.config.queueingStrategy.synchronization == .barrier }
}

/// Names a lane. The one without a name is the tenant's common lane.
struct LaneID: Hashable, Sendable {
    let tenant: String
    let lane: String?
}

/// Names an entity of a tenant.
struct TenantReference: Hashable, Sendable {
    let tenant: String
    let reference: EntityReference
}

/// Names a request by a key that its sender has chosen.
struct TenantKey: Hashable, Sendable {
    let tenant: String
    let key: String
}
