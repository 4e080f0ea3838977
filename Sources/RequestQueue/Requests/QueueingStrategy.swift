/// How a request stands in the queue, and after which failures it may go back into it.
public struct QueueingStrategy: Hashable, Sendable {
    /// How it stands to others of its lane.
    public enum Synchronization: UInt8, Sendable {
        /// May be under way at the same time as others of its lane that are concurrent.
        case concurrent = 0
        /// Waits for all that were accepted before it in its lane, runs alone, then the lane goes on.
        case barrier = 1
    }

    /// One kind of failure after which the request is sent again. What is permanent, such as a 404, stays so unless it is named.
    public enum RetryPolicy: Hashable, Sendable {
        /// No connection to the host was had, or it broke.
        case onNetworkInterrupt
        /// The host did not answer within the request's timeout.
        case onRequestTimeout
        /// The host answered that it may work later: 408, 423, 425, 429 and the 5xx that ``RetryTable`` calls transient or
        /// unexpected; or something else answered in its place, see ``AttemptFailure/unexpected(_:)``.
        case onTransientStatus
        /// HTTP statuses besides.
        case onCustomErrorCodes([Int])
        /// Every HTTP status that is a failure, and every failure of the network, except these statuses. With none: every one.
        case onAllErrorCodesExcept([Int])
    }

    /// How it stands to others of its lane.
    public var synchronization: Synchronization
    /// After which failures it is sent again.
    public var retryPolicy: [RetryPolicy]

    /// For a request that is not to be queued as its method would have it.
    public init(synchronization: Synchronization, retryPolicy: [RetryPolicy]) {
        (self.synchronization, self.retryPolicy) = (synchronization, retryPolicy)
    }

    /// What a method has where the request says nothing: reads are concurrent and are not repeated, since who asked will ask
    /// again; writes are barriers and are repeated after everything that is not permanent.
    public static func standard(for method: HTTPMethod) -> QueueingStrategy {
        method.isSafe
            ? QueueingStrategy(synchronization: .concurrent, retryPolicy: [])
            : QueueingStrategy(
                synchronization: .barrier, retryPolicy: [.onNetworkInterrupt, .onRequestTimeout, .onTransientStatus])
    }
}
