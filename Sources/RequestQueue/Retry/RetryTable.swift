// What a failure means: an answer for every status and every failure of the network.

/// What the backend's answer, or its absence, says about a request.
public enum FailureKind: UInt8, Sendable {
    /// Saying it again would be answered in the same way.
    case permanent = 0
    /// The backend says that it may work later; it has not done it.
    case transient = 1
    /// No connection was had: the backend has not seen the request.
    case unreachable = 2
    /// The connection broke before the answer: the backend may have done it.
    case interrupted = 3
    /// No answer in time: the backend may have done it.
    case timedOut = 4
    /// The session key is not, or no longer, accepted.
    case unauthorized = 5

    /// Whether the backend may have done what was asked.
    public var isAmbiguous: Bool { self == .interrupted || self == .timedOut }
}

/// What can go wrong between the gateway and a host.
public enum NetworkFailure: UInt8, Error, Sendable, CaseIterable {
    case notConnectedToInternet = 0
    case cannotFindHost = 1
    case cannotConnectToHost = 2
    case secureConnectionFailed = 3
    case networkConnectionLost = 4
    case timedOut = 5
    /// What came was no HTTP.
    case badServerResponse = 6
    /// The answer was larger than the client accepts.
    case responseTooLarge = 7
    /// The request's host is no URL.
    case badURL = 8
    case cancelled = 9
    /// All connections were in use for too long. Nothing was sent: this is no attempt.
    case noFreeConnection = 10

    /// What it says about the request.
    public var kind: FailureKind {
        switch self {
        case .notConnectedToInternet, .cannotFindHost, .cannotConnectToHost, .noFreeConnection: .unreachable
        case .networkConnectionLost, .badServerResponse: .interrupted
        case .timedOut: .timedOut
        case .secureConnectionFailed, .responseTooLarge, .badURL, .cancelled: .permanent
        }
    }

    /// For people.
    public var text: String {
        switch self {
        case .notConnectedToInternet: "there is no network"
        case .cannotFindHost: "the host's name could not be resolved"
        case .cannotConnectToHost: "the host did not accept a connection"
        case .secureConnectionFailed: "no secure connection to the host could be set up"
        case .networkConnectionLost: "the connection broke before the answer came"
        case .timedOut: "no answer came in time"
        case .badServerResponse: "what the host answered is not HTTP"
        case .responseTooLarge: "the answer was too large"
        case .badURL: "the request's address is not a URL"
        case .cancelled: "it was cancelled"
        case .noFreeConnection: "it waited for a free connection and was not sent"
        }
    }
}

/// The meaning of every HTTP status (RFC 9110 section 15, RFC 6585, and those in the IANA registry).
public enum RetryTable {
    /// Whether the status means that the request was done: 2xx, and 304.
    public static func isSuccess(_ status: Int) -> Bool { (200..<300).contains(status) || status == 304 }

    /// What a status that is no success means. Statuses that nobody has defined are taken for their class (RFC 9110 section 15).
    public static func kind(of status: Int) -> FailureKind {
        switch status {
        case 401: .unauthorized
        // Request Timeout, Locked, Too Early, Too Many Requests.
        case 408, 423, 425, 429: .transient
        // Not Implemented, HTTP Version Not Supported, Variant Also Negotiates, Not Extended, Network Authentication Required.
        case 501, 505, 506, 510, 511: .permanent
        // Gateway Timeout: who stands between has had no answer, so that the backend may have done it.
        case 504: .timedOut
        case 500..<600: .transient
        // 1xx are never final, 3xx are not followed, 4xx are the sender's fault.
        default: .permanent
        }
    }
}

/// Why an attempt failed.
public enum AttemptFailure: Hashable, Sendable {
    case status(Int)
    case network(NetworkFailure)

    /// What it says about the request.
    public var kind: FailureKind {
        switch self {
        case .status(let status): RetryTable.kind(of: status)
        case .network(let failure): failure.kind
        }
    }

    /// For people.
    public var text: String {
        switch self {
        case .status(let status): "the host answered with status \(status)"
        case .network(let failure): failure.text
        }
    }
}

extension QueueingStrategy {
    /// Whether the request is to be sent again after this failure.
    public func retries(after failure: AttemptFailure) -> Bool {
        // A person's word, or a request that can never be written, is final.
        if failure == .network(.cancelled) || failure == .network(.badURL) { return false }
        return retryPolicy.contains { policy in
            switch (policy, failure) {
            case (.onNetworkInterrupt, .network): failure.kind == .unreachable || failure.kind == .interrupted
            case (.onRequestTimeout, _): failure.kind == .timedOut
            case (.onTransientStatus, .status): failure.kind == .transient
            case (.onCustomErrorCodes(let codes), .status(let status)): codes.contains(status)
            case (.onAllErrorCodesExcept(let codes), .status(let status)): !codes.contains(status)
            case (.onAllErrorCodesExcept, .network): true
            default: false
            }
        }
    }
}
