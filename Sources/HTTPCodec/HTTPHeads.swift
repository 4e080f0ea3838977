// Heads of requests and responses. RFC 9112 sections 3 and 4, without the version, which belongs to the connection.

/// The head of a request.
package struct RequestHead: Equatable, Sendable {
    /// The method as received. Methods are case-sensitive.
    package var method: String
    /// Path and query as received, still percent-encoded.
    package var target: String
    package var headers: HeaderFields

    package init(_ method: String, _ target: String, headers: HeaderFields = HeaderFields()) {
        (self.method, self.target, self.headers) = (method, target, headers)
    }

    /// The target up to its query, still percent-encoded.
    package var path: Substring { target[..<(queryMark ?? target.endIndex)] }

    /// The query after the question mark, still percent-encoded; nil if the target has none.
    package var query: Substring? {
        queryMark.map { target[target.utf8.index(after: $0)...] }
    }

    /// The first question mark. Compared by byte, as a server does: as a character it would not be found before a mark that
    /// combines with it.
    private var queryMark: String.Index? { target.utf8.firstIndex(of: UInt8(ascii: "?")) }
}

/// The head of a response.
package struct ResponseHead: Equatable, Sendable {
    package var status: Int
    /// The reason phrase; often empty.
    package var reason: String
    package var headers: HeaderFields

    package init(_ status: Int, reason: String = "", headers: HeaderFields = HeaderFields()) {
        (self.status, self.reason, self.headers) = (status, reason, headers)
    }
}
