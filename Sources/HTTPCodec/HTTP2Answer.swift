// Converts an HTTP/1.1 response to HTTP/2. RFC 9113 section 8.

package import NIOCore

/// Splits a response in HTTP/1.1 into the parts of an HTTP/2 stream.
package struct HTTP2Answer: Sendable {
    /// The content of one frame.
    package enum Part: Equatable, Sendable {
        /// A 1xx response, for instance 100 or 103. The final response follows.
        case informational(HeaderFields)
        case head(HeaderFields, isEnd: Bool)
        case bytes(ByteBuffer)
        /// The trailers; usually empty.
        case end(HeaderFields)
    }

    private var reader: HeadReader
    private let limits: HeadLimits
    private var body: BodyReader?
    package private(set) var isOver = false

    /// - Parameter limits: the limits of the backend's heads. The gateway's own fields are allowed on top of them.
    package init(limits: HeadLimits) {
        var limits = limits
        limits.bytes += 1024
        limits.fields += 8
        self.limits = limits
        reader = HeadReader(limits: limits)
    }

    /// Returns the next part; nil if more bytes are needed or the response has ended.
    ///
    /// - Parameter isToHead: whether the request was a HEAD.
    package mutating func next(_ bytes: inout ByteBuffer, isToHead: Bool) throws(HTTPFault) -> Part? {
        guard !isOver else { return nil }
        guard body != nil else { return try head(&bytes, isToHead: isToHead) }
        switch try body?.next(&bytes) {
        case nil: return nil
        case .bytes(let piece): return .bytes(piece)
        case .end(let trailers):
            isOver = true
            return .end(Self.fields(trailers))
        }
    }

    private mutating func head(_ bytes: inout ByteBuffer, isToHead: Bool) throws(HTTPFault) -> Part? {
        guard let response = try reader.response(&bytes, isToHead: isToHead) else { return nil }
        let status = response.head.status
        // Section 8.6: HTTP/2 has no 101 and no upgrade.
        guard status != 101, response.framing != .untilClose else { throw .malformed }
        var fields = Self.fields(response.head.headers)
        // RFC 9110 section 8.6: no `Content-Length` with 1xx and 204.
        if status < 200 || status == 204 { fields.remove("content-length") }
        fields.fields.insert(.init(":status", "\(status)"), at: 0)
        if status < 200 { return .informational(fields) }
        isOver = response.framing == .none
        if !isOver { body = BodyReader(response.framing, limits: limits) }
        return .head(fields, isEnd: isOver)
    }

    /// Returns the fields with names in lower case and without hop-by-hop fields. Sections 8.2.1 and 8.2.2.
    private static func fields(_ headers: HeaderFields) -> HeaderFields {
        HeaderFields(
            headers.fields.compactMap { field in
                let name = field.name.lowercased()
                return isForOneHop(name) ? nil : .init(name, FieldText.unicode(field.value))
            })
    }

    /// Whether the field is a hop-by-hop field, which HTTP/2 forbids. Section 8.2.2.
    static func isForOneHop(_ name: String) -> Bool {
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"].contains(name)
    }
}
