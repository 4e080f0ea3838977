// Reasons to reject an HTTP/1.1 message. RFC 9112.
//
// The parser takes the strict option wherever the RFC leaves a choice: request smuggling relies on two parsers that
// read the same bytes as different requests.

/// An error in an HTTP/1.1 message.
package enum HTTPFault: Error, Equatable, Sendable {
    /// The bytes are no HTTP message, or parsers could read them as different ones.
    case malformed
    /// A line that does not end in CR LF.
    case lineEnd
    /// `Content-Length` is repeated, or is not a number of at most 18 digits.
    case contentLength
    /// The head has both `Content-Length` and `Transfer-Encoding`.
    case lengthAndCoding
    /// `Host` is missing, repeated, or has an invalid character.
    case host
    /// The target is longer than ``HeadLimits/target``.
    case targetTooLong
    /// The head or the trailer section exceeds ``HeadLimits/bytes`` or ``HeadLimits/fields``.
    case headTooLong
    /// `Expect` has a value other than `100-continue`. RFC 9110 section 10.1.1.
    case expectationUnknown
    /// A transfer coding other than `chunked`. RFC 9112 section 6.1.
    case codingUnknown
    /// The version is not HTTP/1.x.
    case versionUnknown

    /// The status of the response to a request with this fault.
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

    /// The fault in words, for the person at the client.
    package var reason: String {
        switch self {
        case .malformed, .lineEnd, .contentLength, .lengthAndCoding, .host:
            "The request is not valid HTTP, or is ambiguous."
        case .targetTooLong: "The address of the request is too long."
        case .expectationUnknown: "The gateway does not support the request's Expect header."
        case .headTooLong: "The head of the request is too long."
        case .codingUnknown: "The gateway does not support the request's transfer coding."
        case .versionUnknown: "The gateway does not support this version of HTTP."
        }
    }

    /// The rule that a message breaks, for logs.
    package var rule: String {
        switch self {
        case .malformed: "it is not HTTP/1.1"
        case .lineEnd: "a line does not end in CR LF"
        case .contentLength: "Content-Length is repeated, or is not a number"
        case .lengthAndCoding: "it has both Content-Length and Transfer-Encoding"
        case .host: "Host is missing, repeated, or has an invalid character"
        case .targetTooLong: "its target is longer than \(HeadLimits.standard.target >> 10) KiB"
        case .headTooLong:
            """
            its head is longer than \(HeadLimits.standard.bytes >> 10) KiB, or has more than \
            \(HeadLimits.standard.fields) fields
            """
        case .expectationUnknown: "it expects something other than 100-continue"
        case .codingUnknown: "its Transfer-Encoding is not chunked"
        case .versionUnknown: "its version is not HTTP/1"
        }
    }
}

/// Maximum size of a head. Ours: several times the limits of browsers and similar servers.
package struct HeadLimits: Sendable, Equatable {
    /// The head with its empty line, and likewise the trailer section. In bytes.
    package var bytes = 64 << 10
    /// Number of field lines.
    package var fields = 128
    /// The target, in bytes.
    package var target = 16 << 10
    /// The line before a chunk with its extensions, which are hardly ever used. In bytes.
    package static let chunkLine = 1024

    /// The limits of the gateway; only tests have others.
    package static let standard = HeadLimits()

    package init() {}
}

/// How a body is delimited. RFC 9112 section 6.3.
package enum BodyFraming: Equatable, Sendable {
    case none
    /// The body has this many bytes.
    case length(Int)
    case chunked
    /// The end of the connection ends the body; responses only.
    case untilClose
}
