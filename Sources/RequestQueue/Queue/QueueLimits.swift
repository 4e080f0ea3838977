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
    /// Attempts after which a request is dead, and crashes while under way, which are counted apart.
    public var attempts = 25
    /// Crashes while it is under way, after which a request is dead.
    public var crashes = 3
    /// Milliseconds after which a request that is not done is dead.
    public var age: Int64 = 7 * 86_400_000
    /// Milliseconds for which finished requests, and the map of identifiers, are kept.
    public var retention: Int64 = 86_400_000
    /// Finished requests that are kept at most, whatever the time; and mappings.
    public var finished = 100_000
    /// Entities of which it is remembered what the backend calls them.
    public var mappings = 1_000_000
    /// Bytes of a response that are kept for handlers and for repetitions of an idempotency key.
    public var responseSize = 1 << 20
    /// Bytes of all responses that are kept. The oldest are forgotten first; how their requests ended is not.
    public var responses = 256 << 20

    /// The bounds as they are said here.
    public init() {}
}
