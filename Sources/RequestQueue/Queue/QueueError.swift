/// Why a request was refused. A refusal changes nothing.
public enum QueueError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The tenant has reached its limit of requests or of their bytes.
    case tenantFull(limit: Limit)
    /// The queue has reached its limit of requests or of their bytes.
    case full(limit: Limit)
    /// The request is larger than the limit. Both sizes are in bytes.
    case tooLarge(size: Int, limit: Int)
    /// The request can never be sent, for this reason.
    case malformed(String)
    /// The idempotency key belongs to another request of the tenant.
    case keyReused
    /// It depends on a request, or names an entity, that the queue does not know.
    case unknownDependency
    /// A request that it depends on, or that was to create an entity it names, has failed.
    case failedDependency(String)
    /// The store could not commit it.
    case unavailable(String)
    /// The queue is being shut down.
    case closed

    /// A limit that has been reached.
    public enum Limit: Hashable, Sendable, CustomStringConvertible {
        /// Number of requests that wait or are in flight.
        case requests(Int)
        /// Size of the requests that wait or are in flight, in bytes.
        case bytes(Int)

        /// With its unit.
        public var description: String {
            switch self {
            case .requests(let count): "\(count) \(count == 1 ? "request" : "requests")"
            case .bytes(let size): "\(size) bytes of requests"
            }
        }
    }

    /// For people and logs.
    public var description: String {
        switch self {
        case .tenantFull(let limit):
            "The tenant has reached its limit of \(limit) that wait. Try again when some are done."
        case .full(let limit): "The queue has reached its limit of \(limit) that wait. Try again when some are done."
        case .tooLarge(let size, let limit): "The request has \(size) bytes; at most \(limit) are accepted."
        case .malformed(let what): "The request can never be sent: \(what)."
        case .keyReused: "The idempotency key was used for another request; a new request needs a new key."
        case .unknownDependency: "The request depends on one that is not in the queue."
        case .failedDependency(let cause): "The request depends on one that has failed: \(cause)"
        case .unavailable(let cause): "The request could not be stored: \(cause)"
        case .closed: "The queue is being shut down."
        }
    }
}
