/// The states of a request. There is nothing in between: each change is one transaction.
public enum RequestState: UInt8, Sendable, CaseIterable {
    /// Committed, not yet known to be with the backend.
    case pending = 0
    /// With the backend, and opened where that can be known.
    case done = 1
    /// Given up; the reason says why.
    case dead = 2
    /// Its sending has begun, and how it ended is not known yet.
    case inFlight = 3
    /// Nobody wants it any more.
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

    /// Whether nothing more will become of it.
    public var isFinal: Bool { self == .done || self == .dead || self == .cancelled }
}
