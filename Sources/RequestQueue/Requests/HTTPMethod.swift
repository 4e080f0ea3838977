/// The methods that a request may have (RFC 9110 section 9.3, RFC 5789).
public enum HTTPMethod: UInt8, Sendable, CaseIterable {
    case get = 0
    case head = 1
    case post = 2
    case put = 3
    case patch = 4
    case delete = 5

    /// The name on the wire.
    public var name: String {
        switch self {
        case .get: "GET"
        case .head: "HEAD"
        case .post: "POST"
        case .put: "PUT"
        case .patch: "PATCH"
        case .delete: "DELETE"
        }
    }

    /// Whether it only reads (RFC 9110 section 9.2.1).
    public var isSafe: Bool { self == .get || self == .head }

    /// Whether sending it twice has the same effect as sending it once (RFC 9110 section 9.2.2).
    public var isIdempotent: Bool { self != .post && self != .patch }
}
