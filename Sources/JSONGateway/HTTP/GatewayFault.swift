// Faults of requests and of the backend, independent of the policy.

package import HTTPCodec
package import NIOCore

/// The reason why the gateway cannot serve a request.
package enum GatewayFault: Equatable, Sendable {
    case message(HTTPFault)
    /// The client was too slow.
    case requestTimeout
    case requestTooLong
    /// The form of an upload cannot be sealed.
    case upload(UploadFault)
    /// The backend is unreachable, closed the connection, or sent an invalid answer.
    case upstreamUnreachable
    /// The backend did not answer in time.
    case upstreamTimeout
    /// Too many connections, or the gateway is being shut down.
    case unavailable(String)
    /// There is no memory for the body at present.
    case noRoom
    /// Only calls of the gateway are served here, and it is none; or the gateway takes no part.
    case noCall

    package var status: Int {
        switch self {
        case .message(let fault): fault.status
        case .noCall: 404
        case .requestTimeout: 408
        case .requestTooLong: 413
        case .upload: 400
        case .upstreamUnreachable: 502
        case .upstreamTimeout: 504
        case .unavailable, .noRoom: 503
        }
    }

    /// A stable code for programs.
    package var code: String {
        switch self {
        case .message: "PAWL_BAD_REQUEST"
        case .requestTimeout: "PAWL_REQUEST_TIMEOUT"
        case .requestTooLong: "PAWL_TOO_LARGE"
        case .upload: "PAWL_UNREADABLE_FORM"
        case .upstreamUnreachable: "PAWL_BAD_GATEWAY"
        case .upstreamTimeout: "PAWL_GATEWAY_TIMEOUT"
        case .unavailable: "PAWL_UNAVAILABLE"
        case .noRoom: "PAWL_NO_ROOM"
        case .noCall: "PAWL_NO_CALL"
        }
    }

    /// The fault in words, for people.
    package var reason: String {
        switch self {
        case .message(let fault): fault.reason
        case .requestTimeout: "The request did not arrive in time."
        case .requestTooLong: "The request is too long."
        case .upload(let fault): fault.words
        case .upstreamUnreachable: "The chat server cannot be reached through the gateway. Try again later."
        case .upstreamTimeout: "The chat server did not answer in time. Try again later."
        case .unavailable(let reason): reason
        case .noRoom: ExchangeRefusal.noRoomWords
        case .noCall: "Only calls of the gateway are served here, and none under the policy off."
        }
    }

    /// Returns the answer in the backend's own form.
    ///
    /// - Parameter request: the fields of the request; nil if no request could be read.
    package func answer(_ mapping: Mapping, to request: HeaderFields?) -> (ResponseHead, ByteBuffer) {
        let (head, body) = mapping.refusal.answer(
            code, status: status, reason: Self.words[status] ?? "", words: reason)
        return (mapping.readable(head, for: request), body)
    }

    /// Returns the answer to a request. The gateway answers a preflight that the backend has not answered.
    package func answer(_ mapping: Mapping, toRequest request: RequestHead) -> (ResponseHead, ByteBuffer) {
        if isOutage, request.isPreflight, let answer = mapping.crossOrigin?.standIn(for: request.headers) {
            return (answer, ByteBuffer())
        }
        return answer(mapping, to: request.headers)
    }

    /// Whether the backend has not answered, or was not asked.
    private var isOutage: Bool {
        switch self {
        case .upstreamUnreachable, .upstreamTimeout, .unavailable, .noRoom: true
        case .message, .requestTimeout, .requestTooLong, .upload, .noCall: false
        }
    }

    /// One fault of each code.
    static let all: [GatewayFault] = [
        .message(.malformed), .requestTimeout, .requestTooLong, .upload(.unknownPart), .upstreamUnreachable,
        .upstreamTimeout, .unavailable(""), .noRoom, .noCall,
    ]

    private static let words = [
        400: "Bad Request", 404: "Not Found", 408: "Request Timeout", 413: "Content Too Large", 414: "URI Too Long",
        417: "Expectation Failed", 431: "Request Header Fields Too Large", 501: "Not Implemented", 502: "Bad Gateway",
        503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
    ]
}
