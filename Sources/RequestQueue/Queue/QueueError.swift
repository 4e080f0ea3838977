/// Why a request is not accepted. Nothing has changed then.
public enum QueueError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The tenant has as many requests, or bytes, waiting as it may have.
    case tenantFull(limit: Int)
    /// The queue has as many requests, or bytes, waiting as it may have.
    case full(limit: Int)
    /// One request is larger than any may be, in bytes.
    case tooLarge(size: Int, limit: Int)
    /// Something in it can never be sent.
    case malformed(String)
    /// The idempotency key belongs to another request of the tenant.
    case keyReused
    /// It depends on a request that nobody knows, or that has failed.
    case unknownDependency
    /// A request that it depends on, or that was to create an entity it names, has failed.
    case failedDependency(String)
    /// The store could not keep it.
    case unavailable(String)
    /// The queue is being shut down.
    case closed

    /// For people and logs.
    public var description: String {
        switch self {
        case .tenantFull(let limit): "The tenant has \(limit) waiting already, its limit. Try again when some are done."
        case .full(let limit): "The queue has \(limit) waiting already, its limit. Try again when some are done."
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
