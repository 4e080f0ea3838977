/// The bounds of a queue. Each is a number that a flood runs into, and says what it protects.
public struct QueueLimits: Hashable, Sendable {
    /// Requests that wait or are under way, in all: they are kept in memory.
    public var requests = 100_000
    /// The same for one tenant.
    public var requestsPerTenant = 10_000
    /// Bytes of the same, in all.
    public var bytes = 256 << 20
    /// The same for one tenant.
    public var bytesPerTenant = 64 << 20
    /// Bytes of one request.
    public var requestSize = 1 << 20
    /// Entities that one request may name, and requests that it may depend on.
    public var references = 64
    /// Under way at once in all, to one host, for one tenant, and in one lane.
    public var inFlight = 256
    /// Under way at once to one host.
    public var inFlightPerHost = 64
    /// Under way at once for one tenant.
    public var inFlightPerTenant = 32
    /// Under way at once in one lane.
    public var inFlightPerLane = 8
    /// How far behind the head of a lane a concurrent request is looked for while those before it wait.
    public var lookahead = 64
    /// Failed attempts in one process after which a request is dead. Only those count in which the backend judged the request,
    /// see ``AttemptFailure/isVerdict``. Default: no bound but the age.
    public var attempts = Int.max
    /// Crashes in a row during which this request alone was under way, after which it is held.
    public var crashes = 3
    /// Milliseconds after which a request that is not done is dead.
    public var age: Int64 = 21 * 86_400_000
    /// Milliseconds for which done and cancelled requests are kept.
    public var retention: Int64 = 86_400_000
    /// Dead requests that are kept at most; the oldest are removed first.
    public var deadLetters = 100_000
    /// Milliseconds for which dead requests are kept. Default: until they are removed.
    public var deadRetention = Int64.max
    /// Done and cancelled requests that are kept at most, whatever the time.
    public var finished = 100_000
    /// Remote identifiers of entities that are kept at most. They are kept for ``retention`` and at least for ``age``.
    public var mappings = 1_000_000
    /// Bytes of a response that are kept for handlers and for repetitions of an idempotency key.
    public var responseSize = 1 << 20
    /// Bytes of all responses that are kept. The oldest are forgotten first; how their requests ended is not.
    public var responses = 256 << 20

    /// The bounds as they are said here.
    public init() {}
}
