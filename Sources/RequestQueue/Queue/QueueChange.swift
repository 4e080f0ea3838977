/// How a request ended, with the response of the backend.
public struct RequestOutcome: Sendable, Equatable {
    /// How a request ended.
    public enum Result: Sendable, Hashable {
        /// The backend has done it.
        case success(status: Int)
        /// It will not be done; the status is nil if the backend gave none.
        case failure(status: Int?)
        /// It was cancelled, or replaced by another request.
        case aborted
    }

    /// How it ended.
    public var result: Result
    /// Why it failed, in words; nil for a success, unless the backend's identifiers were rejected.
    public var cause: String?
    /// Header fields of the response.
    public var headers: [ResolvedRequest.Header]
    /// Body of the response.
    public var body: [UInt8]
    /// Whether part of the response is missing: it was larger than ``QueueLimits/responseSize``, or was dropped for
    /// newer responses, see ``QueueLimits/responses``.
    public var isCut: Bool

    /// An outcome, with the response if there is one.
    public init(
        _ result: Result, cause: String? = nil, headers: [ResolvedRequest.Header] = [], body: [UInt8] = [],
        isCut: Bool = false
    ) {
        (self.result, self.cause, self.headers, self.body) = (result, cause, headers, body)
        self.isCut = isCut
    }

    /// Size of the response in a store, in bytes.
    package var responseSize: Int {
        guard !headers.isEmpty || !body.isEmpty else { return 0 }
        return headers.reduce(4 + body.count) { $0 + 8 + $1.name.utf8.count + $1.value.utf8.count }
    }

    /// The state of a request with this outcome.
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
    /// Adds a request with its stored form, see ``RequestForm``.
    case insert(QueuedRequest, form: [UInt8])
    /// Begins an attempt and counts it, before a byte is sent. Its end is accepted only with this lease.
    case lease(id: UInt64, lease: UInt64)
    /// Makes a request wait again. Has no effect if the stored lease is another one.
    case requeue(id: UInt64, lease: UInt64, Wait)
    /// Finishes a request. Has no effect if the stored lease is another one; the lease is nil if the request is not in
    /// flight.
    ///
    /// The result and its cause are always stored.
    case finish(id: UInt64, lease: UInt64?, outcome: RequestOutcome, keeping: Keeping, at: Int64)
    /// Counts another delivery to the response handlers, because a process ended during an earlier one.
    case redeliver(id: UInt64, times: Int)
    /// The response handlers have finished with the outcome.
    case handled(id: UInt64)
    /// Removes the response and marks the outcome as cut. How the request ended stays.
    case forgetResponse(id: UInt64)
    /// Marks an unfinished row that cannot be read as dead. The row is kept.
    case quarantine(id: UInt64, cause: String, at: Int64)
    /// Stores the remote identifier of an entity, in place of an earlier one.
    case map(IdentifierMapping, at: Int64)
    /// Holds a request, or releases it. After a release its age counts from this time.
    case hold(id: UInt64, Bool, at: Int64)
    /// Replaces the stored form of a request, because its metadata has changed.
    case rewrite(id: UInt64, form: [UInt8])
    /// Makes a dead request wait again, without the attempts and crashes that it had.
    case revive(id: UInt64, at: Int64)
    case remove(id: UInt64)
    /// Stores the session key of a tenant, sealed by the application; nil removes it.
    case session(tenant: String, sealed: [UInt8]?)
    /// Removes old done and cancelled requests, and old mappings.
    ///
    /// That is, requests that ended before this time with an id below `below`, and mappings that were learnt before
    /// `names`, or before the same time if nil. Dead requests, and outcomes due to handlers, stay.
    ///
    /// All old requests have an id below `below`, so a store may search by id and needs no index of times.
    case prune(before: Int64, below: UInt64 = .max, names: Int64? = nil)

    /// The id of the request that the change is about; nil if it is about none, or about many.
    var request: UInt64? {
        switch self {
        case .insert(let request, _): request.id
        case .lease(let id, _), .requeue(let id, _, _), .finish(let id, _, _, _, _), .redeliver(let id, _),
            .handled(let id), .forgetResponse(let id), .quarantine(let id, _, _), .hold(let id, _, _),
            .rewrite(let id, _), .revive(let id, _), .remove(let id):
            id
        case .map, .session, .prune: nil
        }
    }

    /// What is stored of an outcome besides the result and its cause.
    public enum Keeping: Sendable, Hashable, CaseIterable {
        /// Nothing.
        case result
        /// The response. No handler is to get the outcome.
        case response
        /// The response, and that the outcome is due to the handlers until ``QueueChange/handled(id:)``.
        case delivery
    }

    /// How a request waits for its next attempt.
    public struct Wait: Sendable, Equatable {
        /// Milliseconds since 1970.
        public var notBefore: Int64
        /// Number of attempts that have begun.
        public var attempts: Int
        /// Crashes in a row with only this request in flight.
        public var crashes: Int
        /// Number of attempts that ended without an answer.
        public var doubts: Int
        /// Why the last attempt failed, in words.
        public var cause: String?

        /// A wait as it is stored.
        public init(notBefore: Int64, attempts: Int, crashes: Int, doubts: Int, cause: String?) {
            (self.notBefore, self.attempts, self.crashes) = (notBefore, attempts, crashes)
            (self.doubts, self.cause) = (doubts, cause)
        }
    }
}

/// The contents of a store at the start of a process.
public struct QueueContents: Sendable {
    /// A row that cannot be read. It is kept and reported.
    public struct Unreadable: Sendable, Equatable {
        /// The id of the request.
        public var id: UInt64
        /// Why it cannot be read, in words.
        public var reason: String

        /// Reports an unreadable row.
        public init(id: UInt64, reason: String) { (self.id, self.reason) = (id, reason) }
    }

    /// A finished request whose outcome the handlers have not confirmed.
    public struct Undelivered: Sendable, Equatable {
        /// The request.
        public var request: QueuedRequest
        /// How it ended.
        public var outcome: RequestOutcome
        /// Number of deliveries after the first.
        public var times: Int

        /// An unconfirmed outcome, as it is stored.
        public init(request: QueuedRequest, outcome: RequestOutcome, times: Int) {
            (self.request, self.outcome, self.times) = (request, outcome, times)
        }
    }

    /// The remote identifier of an entity, and when it was learnt.
    public struct Learnt: Sendable, Equatable {
        /// The entity and its identifier.
        public var mapping: IdentifierMapping
        /// Milliseconds since 1970.
        public var at: Int64

        /// A mapping, as it is stored.
        public init(mapping: IdentifierMapping, at: Int64) { (self.mapping, self.at) = (mapping, at) }
    }

    /// A finished request, kept for its idempotency key and for the entities that it was to create.
    public struct Finished: Sendable, Equatable {
        /// The request.
        public var request: QueuedRequest
        /// When it ended, in milliseconds since 1970.
        public var at: Int64
        /// Size of the stored response, in bytes.
        public var responseSize: Int

        /// A finished request, as it is stored.
        public init(request: QueuedRequest, at: Int64, responseSize: Int = 0) {
            (self.request, self.at, self.responseSize) = (request, at, responseSize)
        }
    }

    /// Requests that wait, or were in flight when the last process ended, in the order of acceptance.
    public var requests: [QueuedRequest] = []
    /// Unfinished rows that cannot be read.
    public var unreadable: [Unreadable] = []
    /// Remote identifiers of the entities of each tenant, the oldest first.
    public var learnt: [Learnt] = []
    /// The mappings of ``learnt``, without their times.
    public var mappings: [IdentifierMapping] { learnt.map(\.mapping) }
    /// Session keys by tenant, sealed.
    public var sessions: [ExactText: [UInt8]] = [:]
    /// Finished requests whose outcome the handlers have not confirmed.
    public var undelivered: [Undelivered] = []
    /// Finished requests that are kept, the oldest first.
    public var finished: [Finished] = []
    /// The highest id that was ever used.
    public var highest: UInt64 = 0

    /// The contents of a new store.
    public init() {}
}

/// Reads of the tables of a queue. They may run while the writer commits.
public protocol QueueReading: Sendable {
    /// Reads all that a process needs to start.
    ///
    /// - Throws: ``QueueStoreError``.
    func load() throws(QueueStoreError) -> QueueContents
    /// How a finished request ended; nil if it is not finished, or was pruned.
    ///
    /// - Throws: ``QueueStoreError``.
    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome?
    /// A request, finished or not; nil if it is unknown or was pruned.
    ///
    /// - Throws: ``QueueStoreError``.
    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest?
    /// Requests in these states with an id above `after`, in the order of their ids; for reports.
    ///
    /// - Throws: ``QueueStoreError``.
    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest]
    /// When a request ended, in milliseconds since 1970; nil if it has not, or was pruned.
    ///
    /// - Throws: ``QueueStoreError``.
    func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64?
}

/// The port to the database. Drivers: SQLite, memory.
public protocol QueueStore: QueueReading {
    /// Commits the changes in one transaction, and returns when it is synced.
    ///
    /// - Throws: ``QueueStoreError``; nothing has changed then.
    func commit(_ changes: [QueueChange]) throws(QueueStoreError)
}

/// Why an operation of a store failed.
public struct QueueStoreError: Error, Equatable, Sendable {
    /// What happened, in words.
    public let message: String
    /// Whether the stored data is damaged, so that a repair may save some of it.
    public let isDamage: Bool

    /// An error with a message in words.
    public init(_ message: String, isDamage: Bool = false) { (self.message, self.isDamage) = (message, isDamage) }
}
