/// What a process leaves behind about a request that has been answered.
public struct RequestOutcome: Sendable, Equatable {
    /// How a request ended.
    public enum Result: Sendable, Hashable {
        /// The backend has done it.
        case success(status: Int)
        /// It will not be done; the status is the backend's, where it gave one.
        case failure(status: Int?)
        /// Nobody wants it any more: cancelled, or replaced by another.
        case aborted
    }

    /// How it ended.
    public var result: Result
    /// In words; nothing where it succeeded.
    public var cause: String?
    /// What the backend answered.
    public var headers: [ResolvedRequest.Header]
    /// Its bytes.
    public var body: [UInt8]
    /// Whether some of what the backend answered is missing here: it was larger than ``QueueLimits/responseSize``, or others have
    /// taken its place since, see ``QueueLimits/responses``.
    public var isCut: Bool

    /// An end, with the answer that brought it where there was one.
    public init(
        _ result: Result, cause: String? = nil, headers: [ResolvedRequest.Header] = [], body: [UInt8] = [],
        isCut: Bool = false
    ) {
        (self.result, self.cause, self.headers, self.body) = (result, cause, headers, body)
        self.isCut = isCut
    }

    /// What the answer takes in a store, in bytes.
    package var responseSize: Int {
        guard !headers.isEmpty || !body.isEmpty else { return 0 }
        return headers.reduce(4 + body.count) { $0 + 8 + $1.name.utf8.count + $1.value.utf8.count }
    }

    /// The state of a request that ended so.
    public var state: RequestState {
        switch result {
        case .success: .done
        case .failure: .dead
        case .aborted: .cancelled
        }
    }
}

/// One change of the store. A batch of them is one transaction.
public enum QueueChange: Sendable, Equatable {
    /// With its stored form, see ``RequestForm``.
    case insert(QueuedRequest, form: [UInt8])
    /// Its sending begins: counted before a byte is sent. The lease is needed to say how it went.
    case lease(id: UInt64, lease: UInt64)
    /// It waits again. Under another lease than the stored one this changes nothing.
    case requeue(id: UInt64, lease: UInt64, Wait)
    /// It is finished. Under another lease than the stored one this changes nothing; without one, it had not been under way.
    /// With `keepsOutcome` the handlers are owed the outcome until ``handled(id:)``, and what the backend answered is kept with the
    /// row; else only how it ended is.
    case finish(id: UInt64, lease: UInt64?, outcome: RequestOutcome, keepsOutcome: Bool, at: Int64)
    /// The response handlers are given the outcome once more, because a process ended while they had it.
    case redeliver(id: UInt64, times: Int)
    /// The response handlers have had the outcome.
    case handled(id: UInt64)
    /// What the backend answered is forgotten, and that it was. How the request ended is not.
    case forgetResponse(id: UInt64)
    /// A row that cannot be read and is not finished becomes dead and is kept.
    case quarantine(id: UInt64, cause: String, at: Int64)
    /// What the backend calls an entity, instead of what was known of it.
    case map(IdentifierMapping, at: Int64)
    case hold(id: UInt64, Bool)
    /// A dead one waits again, as new.
    case revive(id: UInt64, at: Int64)
    case remove(id: UInt64)
    /// Keeps a tenant's session key, sealed by whoever gave it, or forgets it.
    case session(tenant: String, sealed: [UInt8]?)
    /// Removes what was done or cancelled before this time and has a smaller id, and mappings that were learnt before `names`,
    /// or before the same time. Dead requests stay. All that is old has a smaller id; a store that looks at no others has no need
    /// to find what is old by its time.
    case prune(before: Int64, below: UInt64 = .max, names: Int64? = nil)

    /// How a request waits for its next attempt.
    public struct Wait: Sendable, Equatable {
        /// Milliseconds since 1970.
        public var notBefore: Int64
        /// How often its sending was begun.
        public var attempts: Int
        /// How often in a row a process ended while it alone was under way.
        public var crashes: Int
        /// How many attempts ended without an answer.
        public var doubts: Int
        /// Why the last attempt failed, in words.
        public var cause: String?

        /// As it stands in a store, or is to.
        public init(notBefore: Int64, attempts: Int, crashes: Int, doubts: Int, cause: String?) {
            (self.notBefore, self.attempts, self.crashes) = (notBefore, attempts, crashes)
            (self.doubts, self.cause) = (doubts, cause)
        }
    }
}

/// What stands in the store when a process starts.
public struct QueueContents: Sendable {
    /// A row that cannot be read: kept, and said.
    public struct Unreadable: Sendable, Equatable {
        /// The request's number.
        public var id: UInt64
        /// Why it cannot be read, in words.
        public var reason: String

        /// What a store has to say of such a row.
        public init(id: UInt64, reason: String) { (self.id, self.reason) = (id, reason) }
    }

    /// A finished request whose outcome no handler is known to have had.
    public struct Undelivered: Sendable, Equatable {
        /// The request.
        public var request: QueuedRequest
        /// How it ended.
        public var outcome: RequestOutcome
        /// How often it was given to handlers again.
        public var times: Int

        /// As it stands in a store.
        public init(request: QueuedRequest, outcome: RequestOutcome, times: Int) {
            (self.request, self.outcome, self.times) = (request, outcome, times)
        }
    }

    /// What the backend calls an entity, and since when that is known.
    public struct Learnt: Sendable, Equatable {
        /// The name.
        public var mapping: IdentifierMapping
        /// Milliseconds since 1970.
        public var at: Int64

        /// As it stands in a store.
        public init(mapping: IdentifierMapping, at: Int64) { (self.mapping, self.at) = (mapping, at) }
    }

    /// What is remembered of a finished request: its key, and the entities that it was to create.
    public struct Finished: Sendable, Equatable {
        /// The request.
        public var request: QueuedRequest
        /// Milliseconds since 1970.
        public var at: Int64
        /// Bytes of the answer that are kept.
        public var responseSize: Int

        /// As it stands in a store.
        public init(request: QueuedRequest, at: Int64, responseSize: Int = 0) {
            (self.request, self.at, self.responseSize) = (request, at, responseSize)
        }
    }

    /// Those that wait, or were under way when the last process ended, in the order in which they were accepted.
    public var requests: [QueuedRequest] = []
    /// Rows that wait and cannot be read.
    public var unreadable: [Unreadable] = []
    /// What the backend calls the entities of each tenant, the oldest first.
    public var learnt: [Learnt] = []
    /// The same without their times.
    public var mappings: [IdentifierMapping] { learnt.map(\.mapping) }
    /// Session keys by tenant, sealed.
    public var sessions: [ExactText: [UInt8]] = [:]
    /// Finished ones whose outcome no handler has had.
    public var undelivered: [Undelivered] = []
    /// Finished ones that are kept, the oldest first.
    public var finished: [Finished] = []
    /// The highest id that was ever used.
    public var highest: UInt64 = 0

    /// Nothing: what a new store has.
    public init() {}
}

/// The port to the database. Drivers: SQLite, memory.
public protocol QueueStore: Sendable {
    /// Commits the changes in one transaction, synced when this returns.
    ///
    /// - Throws: ``QueueStoreError`` when nothing has been changed.
    func commit(_ changes: [QueueChange]) throws(QueueStoreError)
    func load() throws(QueueStoreError) -> QueueContents
    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome?
    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest?
    /// By id; for reports.
    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest]
}

/// Why the store did not do it.
public struct QueueStoreError: Error, Equatable, Sendable {
    /// What happened, in words.
    public let message: String
    /// Whether the stored bytes are not what they should be, so that a repair may save some of them.
    public let isDamage: Bool

    /// In words.
    public init(_ message: String, isDamage: Bool = false) { (self.message, self.isDamage) = (message, isDamage) }
}
