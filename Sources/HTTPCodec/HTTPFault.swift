// Why a message of HTTP/1.1 is refused. RFC 9112; where it leaves a choice, the strict one is taken, because two readers
// that take the same bytes for different requests are how requests are smuggled.

/// What is wrong with a message.
package enum HTTPFault: Error, Equatable, Sendable {
    /// The bytes are no message, or could be read as two different ones.
    case malformed
    /// A line that does not end in CR LF.
    case lineEnd
    /// `Content-Length` stands twice, or is no number of at most 18 digits.
    case contentLength
    /// `Content-Length` stands beside `Transfer-Encoding`.
    case lengthAndCoding
    /// `Host` stands not exactly once, or holds what is no name.
    case host
    /// The target is longer than ``HeadLimits/target``.
    case targetTooLong
    /// The head or the trailer section is longer than ``HeadLimits/bytes``, or has more fields than ``HeadLimits/fields``.
    case headTooLong
    /// `Expect` asks for something else than `100-continue`. RFC 9110 section 10.1.1.
    case expectationUnknown
    /// A transfer coding other than `chunked`. RFC 9112 section 6.1.
    case codingUnknown
    /// Not HTTP/1.
    case versionUnknown

    /// The status to answer a request with.
    package var status: Int {
        switch self {
        case .malformed, .lineEnd, .contentLength, .lengthAndCoding, .host: 400
        case .targetTooLong: 414
        case .expectationUnknown: 417
        case .headTooLong: 431
        case .codingUnknown: 501
        case .versionUnknown: 505
        }
    }

    /// The same for people.
    package var reason: String {
        switch self {
        case .malformed, .lineEnd, .contentLength, .lengthAndCoding, .host:
            "The request is not valid HTTP, or can be understood in two ways."
        case .targetTooLong: "The address of the request is too long."
        case .expectationUnknown: "The request expects something that the gateway does not know."
        case .headTooLong: "The head of the request is too long."
        case .codingUnknown: "The request's transfer coding is not known to the gateway."
        case .versionUnknown: "The gateway speaks HTTP/1.1."
        }
    }

    /// The rule that a message breaks, for logs.
    package var rule: String {
        switch self {
        case .malformed: "it is not HTTP/1.1"
        case .lineEnd: "a line does not end in CR LF"
        case .contentLength: "Content-Length stands twice, or is no number"
        case .lengthAndCoding: "Content-Length stands beside Transfer-Encoding"
        case .host: "Host stands not exactly once, or holds what is no name"
        case .targetTooLong: "its target is longer than 16 KiB"
        case .headTooLong: "its head is longer than 64 KiB, or has more than 128 fields"
        case .expectationUnknown: "it expects something other than 100-continue"
        case .codingUnknown: "its Transfer-Encoding is another one than chunked"
        case .versionUnknown: "it is of another version than HTTP/1"
        }
    }
}

/// How long a head may be. Ours: several times what browsers and the servers of this kind allow.
package struct HeadLimits: Sendable, Equatable {
    /// All of the head with its empty line, and likewise the trailer section. In bytes.
    package var bytes = 64 << 10
    /// Field lines.
    package var fields = 128
    /// The target, in bytes.
    package var target = 16 << 10
    /// The line before a chunk, with its extensions, which nobody uses. In bytes.
    package static let chunkLine = 1024

    package init() {}
}

/// How the end of a body is known. RFC 9112 section 6.3.
package enum BodyFraming: Equatable, Sendable {
    case none
    /// So many bytes.
    case length(Int)
    case chunked
    /// The connection's end is the body's; answers only.
    case untilClose
}
