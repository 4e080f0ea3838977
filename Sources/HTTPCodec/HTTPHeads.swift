// What stands before a body. RFC 9112 sections 3 and 4, without the versions, which belong to a connection.

/// The head of a request.
package struct RequestHead: Equatable, Sendable {
    /// As it came; methods are told apart by case.
    package var method: String
    /// As it came: path and query, still percent-encoded.
    package var target: String
    package var headers: HeaderFields

    package init(_ method: String, _ target: String, headers: HeaderFields = HeaderFields()) {
        (self.method, self.target, self.headers) = (method, target, headers)
    }

    /// The target up to its query, still percent-encoded.
    package var path: Substring { target[..<(target.firstIndex(of: "?") ?? target.endIndex)] }

    /// What stands behind the question mark, still percent-encoded; nothing where there is none.
    package var query: Substring? {
        guard let mark = target.firstIndex(of: "?") else { return nil }
        return target[target.index(after: mark)...]
    }
}

/// The head of an answer.
package struct ResponseHead: Equatable, Sendable {
    package var status: Int
    /// The words behind the status; often empty.
    package var reason: String
    package var headers: HeaderFields

    package init(_ status: Int, reason: String = "", headers: HeaderFields = HeaderFields()) {
        (self.status, self.reason, self.headers) = (status, reason, headers)
    }
}
