// The meaning of every failing status and of every failure of the network.

/// What the backend's answer, or its absence, means for a request.
public enum FailureKind: UInt8, Sendable {
    /// A repetition would get the same answer.
    case permanent = 0
    /// The backend may accept the request later; it has not done it.
    case transient = 1
    /// No connection was set up, or it could not be secured: the backend has not seen the request.
    case unreachable = 2
    /// The connection broke before the answer: the backend may have done it.
    case interrupted = 3
    /// No answer in time: the backend may have done it.
    case timedOut = 4
    /// The session key is not, or no longer, accepted.
    case unauthorized = 5
    /// An intermediary answered in place of the backend, which has not judged the request.
    case unexpected = 6

    /// Whether the backend may have done the request.
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
    /// The answer was not HTTP.
    case badServerResponse = 6
    /// The answer was larger than the client accepts.
    case responseTooLarge = 7
    /// The request's host is no URL.
    case badURL = 8
    case cancelled = 9
    /// All connections were in use for too long. Nothing was sent, and no attempt is counted.
    case noFreeConnection = 10
    /// The host's certificate is not accepted.
    case certificateRefused = 11
    /// The request goes over a connection that others open, and none is open. Nothing was sent.
    case noOpenConnection = 12

    /// What the failure means for the request.
    public var kind: FailureKind {
        switch self {
        case .notConnectedToInternet, .cannotFindHost, .cannotConnectToHost, .noFreeConnection, .secureConnectionFailed,
            .certificateRefused, .noOpenConnection:
            .unreachable
        case .networkConnectionLost, .badServerResponse: .interrupted
        case .timedOut: .timedOut
        case .responseTooLarge, .badURL, .cancelled: .permanent
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
        case .badServerResponse: "the host's answer is not HTTP"
        case .responseTooLarge: "the answer was too large"
        case .badURL: "the request's address is not a URL"
        case .cancelled: "it was cancelled"
        case .noFreeConnection: "it waited for a free connection and was not sent"
        case .certificateRefused:
            "the certificate of the host is not accepted: it has expired, is for another name, or is not signed by a known authority"
        case .noOpenConnection: "there is no open connection to send it over"
        }
    }
}

/// The meaning of every HTTP status (RFC 9110 section 15, RFC 6585, and those in the IANA registry).
public enum RetryTable {
    /// Whether the status means that the request was done: 2xx, and 304.
    public static func isSuccess(_ status: Int) -> Bool { (200..<300).contains(status) || status == 304 }

    /// Statuses that proxies and filters use as well. The body shows whether the backend answered.
    public static let ambiguousOrigin: Set = [403, 404, 407]
    /// Statuses of a gateway or load balancer without an answer of the backend.
    static let ofGateways: Set = [502, 503, 504]

    /// The kind of a failing status. Undefined statuses are treated as their class (RFC 9110 section 15).
    public static func kind(of status: Int) -> FailureKind {
        switch status {
        case 401: .unauthorized
        // Request Timeout, Locked, Too Early, Too Many Requests.
        case 408, 423, 425, 429: .transient
        // Not Implemented, HTTP Version Not Supported, Variant Also Negotiates, Not Extended, Network Authentication Required.
        case 501, 505, 506, 510, 511: .permanent
        // Bad Gateway, Service Unavailable: usually a proxy whose backend is down.
        case 502, 503: .unexpected
        // Gateway Timeout: the proxy has had no answer, so the backend may have done it.
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
    /// A status with a body that is not in the backend's form, such as the error page of a proxy.
    case unexpected(Int)
    case network(NetworkFailure)

    /// The status of the answer; nil if there was none.
    var status: Int? {
        switch self {
        case .status(let status), .unexpected(let status): status
        case .network: nil
        }
    }

    /// What the failure means for the request.
    public var kind: FailureKind {
        switch self {
        case .status(let status): RetryTable.kind(of: status)
        case .unexpected: .unexpected
        case .network(let failure): failure.kind
        }
    }

    /// Whether an intermediary between the client and the backend may have given the answer.
    public var isUnexpected: Bool {
        switch self {
        case .status(let status): RetryTable.ofGateways.contains(status)
        case .unexpected: true
        case .network: false
        }
    }

    /// Whether the failure counts toward ``QueueLimits/attempts``: the backend judged the request, or may have seen it, so
    /// that the request itself may be the reason.
    public var isVerdict: Bool { !isUnexpected && kind != .unreachable && kind != .unauthorized }

    /// Whether the backend may have done the request. After 500 and 502 only if the method is not idempotent.
    public func isAmbiguous(for method: HTTPMethod) -> Bool {
        if case .status(let status) = self, [500, 502].contains(status) { return !method.isIdempotent }
        return kind.isAmbiguous
    }

    /// For people.
    public var text: String {
        switch self {
        case .status(let status) where isUnexpected: "unexpected answer: status \(status), as from a proxy"
        case .status(let status): "the host answered with status \(status)"
        case .unexpected(let status): "unexpected answer: status \(status) with a body that is not the backend's"
        case .network(let failure): failure.text
        }
    }
}

extension QueueingStrategy {
    /// Whether the request is to be sent again after this failure.
    public func retries(after failure: AttemptFailure) -> Bool {
        // A cancellation is final, and so is an address that is no URL.
        if failure == .network(.cancelled) || failure == .network(.badURL) { return false }
        return retryPolicy.contains { policy in
            switch policy {
            case .onNetworkInterrupt: failure.kind == .unreachable || failure.kind == .interrupted
            case .onRequestTimeout: failure.kind == .timedOut
            case .onTransientStatus: failure.kind == .transient || failure.kind == .unexpected
            case .onCustomErrorCodes(let codes): failure.status.map { codes.contains($0) } ?? false
            case .onAllErrorCodesExcept(let codes): failure.status.map { !codes.contains($0) } ?? true
            }
        }
    }
}
