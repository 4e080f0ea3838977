/// The bounds of a queue, which protect it against floods of requests.
public struct QueueLimits: Hashable, Sendable {
    /// Requests that wait or are in flight, in total. They are kept in memory.
    public var requests = 100_000
    /// The same for one tenant.
    public var requestsPerTenant = 10_000
    /// Bytes of these requests, in total.
    public var bytes = 256 << 20
    /// The same for one tenant.
    public var bytesPerTenant = 64 << 20
    /// Bytes of one request.
    public var requestSize = 1 << 20
    /// Entities that one request may name, and requests that it may depend on.
    public var references = 64
    /// Requests in flight, in total.
    public var inFlight = 256
    /// Requests in flight to one host.
    public var inFlightPerHost = 64
    /// Requests in flight for one tenant.
    public var inFlightPerTenant = 32
    /// Requests in flight in one lane.
    public var inFlightPerLane = 8
    /// Requests of a lane that are searched for one that may be sent while those before it wait.
    public var lookahead = 64
    /// Failed attempts in one process after which a request is dead. Only attempts count that may have reached the backend
    /// and were not refused for their login, see ``AttemptFailure/isVerdict``. Default: no bound other than ``age``.
    public var attempts = Int.max
    /// Crashes in a row with only this request in flight, after which it is held.
    public var crashes = 3
    /// Milliseconds after which a request that is not done is dead.
    public var age: Int64 = 21 * 86_400_000
    /// Milliseconds for which done and cancelled requests are kept.
    public var retention: Int64 = 86_400_000
    /// Maximum number of dead requests that are kept; the oldest are removed first.
    public var deadLetters = 100_000
    /// Milliseconds for which dead requests are kept. Default: until they are removed.
    public var deadRetention = Int64.max
    /// Maximum number of done and cancelled requests that are kept, whatever their age.
    public var finished = 100_000
    /// Maximum number of remote identifiers that are kept. They are kept for the longer of ``retention`` and ``age``.
    public var mappings = 1_000_000
    /// Bytes of one response that are kept for handlers and for repetitions of an idempotency key.
    public var responseSize = 1 << 20
    /// Bytes of all responses that are kept. The oldest are dropped first; the results of their requests stay.
    public var responses = 256 << 20

    /// The default bounds.
    public init() {}
}
