// An answer of HTTP/1.1 as one of HTTP/2. RFC 9113 section 8.

package import NIOCore

/// Takes an answer apart that was written for a client of HTTP/1.1.
package struct HTTP2Answer: Sendable {
    /// What goes into a frame.
    package enum Part: Equatable, Sendable {
        /// 100 or 103, for instance: the answer itself comes behind it.
        case informational(HeaderFields)
        case head(HeaderFields, isEnd: Bool)
        case bytes(ByteBuffer)
        /// Trailers; mostly none.
        case end(HeaderFields)
    }

    private var reader: HeadReader
    private let limits: HeadLimits
    private var body: BodyReader?
    package private(set) var isOver = false

    /// - Parameter limits: for the backend's heads; what the gateway has added to them comes on top.
    package init(limits: HeadLimits) {
        var limits = limits
        limits.bytes += 1024
        limits.fields += 8
        self.limits = limits
        reader = HeadReader(limits: limits)
    }

    /// The next part; nothing while there are too few bytes, and behind the end.
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
        // Section 8.6: there is nothing that a stream could change to.
        guard status != 101, response.framing != .untilClose else { throw .malformed }
        var fields = Self.fields(response.head.headers)
        // RFC 9110 section 8.6.
        if status < 200 || status == 204 { fields.remove("content-length") }
        fields.fields.insert(.init(":status", "\(status)"), at: 0)
        if status < 200 { return .informational(fields) }
        isOver = response.framing == .none
        if !isOver { body = BodyReader(response.framing, limits: limits) }
        return .head(fields, isEnd: isOver)
    }

    /// Names in lower case, without what is for one hop: sections 8.2.1 and 8.2.2.
    private static func fields(_ headers: HeaderFields) -> HeaderFields {
        HeaderFields(
            headers.fields.compactMap { field in
                let name = field.name.lowercased()
                return isForOneHop(name) ? nil : .init(name, FieldText.unicode(field.value))
            })
    }

    /// Section 8.2.2.
    static func isForOneHop(_ name: String) -> Bool {
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"].contains(name)
    }
}
