/// How a request is ordered in its lane, and after which failures it is sent again.
public struct QueueingStrategy: Hashable, Sendable, Codable {
    /// How a request is ordered among others of its lane.
    public enum Synchronization: UInt8, Sendable {
        /// May be in flight together with other concurrent requests of its lane.
        case concurrent = 0
        /// Waits for all requests of its lane that were accepted before it, and runs alone.
        case barrier = 1
    }

    /// One kind of failure after which the request is sent again. Permanent ones, such as 404, are final unless they
    /// are named.
    public enum RetryPolicy: Hashable, Sendable {
        /// The host could not be reached, or the connection broke.
        case onNetworkInterrupt
        /// The host did not answer within the request's timeout.
        case onRequestTimeout
        /// The host answered that it may work later: 408, 423, 425, 429 and the 5xx that ``RetryTable`` calls transient
        /// or unexpected; or an intermediary answered in its place, see ``AttemptFailure/unexpected(_:)``.
        case onTransientStatus
        /// These HTTP statuses as well.
        case onCustomErrorCodes([Int])
        /// Every failing HTTP status except these, and every failure of the network.
        case onAllErrorCodesExcept([Int])
    }

    /// How it is ordered among others of its lane.
    public var synchronization: Synchronization
    /// After which failures it is sent again.
    public var retryPolicy: [RetryPolicy]

    /// A strategy other than the standard one of the method.
    public init(synchronization: Synchronization, retryPolicy: [RetryPolicy]) {
        (self.synchronization, self.retryPolicy) = (synchronization, retryPolicy)
    }

    /// The default of a method. Reads are concurrent and not repeated, since the caller will ask again; writes are
    /// barriers and are repeated after every failure that is not permanent.
    public static func standard(for method: HTTPMethod) -> QueueingStrategy {
        method.isSafe
            ? QueueingStrategy(synchronization: .concurrent, retryPolicy: [])
            : QueueingStrategy(
                synchronization: .barrier, retryPolicy: [.onNetworkInterrupt, .onRequestTimeout, .onTransientStatus])
    }
}
