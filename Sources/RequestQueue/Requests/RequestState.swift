/// The states of a request. Each change of state is one transaction.
public enum RequestState: UInt8, Sendable, CaseIterable {
    /// Committed, and not known to have reached the backend.
    case pending = 0
    /// The backend has it, and the recipient has opened it if that can be known.
    case done = 1
    /// Given up, with a cause.
    case dead = 2
    /// An attempt has begun, and how it ended is not known yet.
    case inFlight = 3
    /// Cancelled, or replaced by another request.
    case cancelled = 4

    /// For people.
    public var name: String {
        switch self {
        case .pending: "pending"
        case .done: "done"
        case .dead: "dead"
        case .inFlight: "in flight"
        case .cancelled: "cancelled"
        }
    }

    /// Whether the state is final.
    public var isFinal: Bool { self == .done || self == .dead || self == .cancelled }
}
