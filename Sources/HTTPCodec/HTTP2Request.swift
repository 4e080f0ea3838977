// Converts an HTTP/2 request to HTTP/1.1, so that the gateway handles one form of requests. RFC 9113 section 8.

package import NIOCore

/// Converts the frames of one stream to HTTP/1.1. The caller ends the stream on an error. Section 8.1.1.
package struct HTTP2Request: Sendable {
    private enum State: Equatable {
        case head
        /// The bytes of the body that have not arrived yet.
        case counted(Int)
        /// The head has no `Content-Length`: the body is sent in chunks.
        case chunked
        case over
    }

    private var state = State.head
    /// Whether the request is a HEAD, whose response has no body. Valid after the head.
    package private(set) var isToHead = false

    package init() {}

    /// Whether the client has ended the request.
    package var isOver: Bool { state == .over }

    /// Converts the fields of a HEADERS frame: the head, or the trailers after the body.
    package mutating func take(_ fields: HeaderFields, isEnd: Bool) throws(HTTPFault) -> ByteBuffer {
        guard state == .head else {
            // Section 8.1: trailers end the stream.
            guard isEnd else { throw .malformed }
            return try trailers(fields)
        }
        var head = try Self.head(fields)
        isToHead = head.method == "HEAD"
        let lengths = head.headers["content-length"]
        guard lengths.count <= 1 else { throw .malformed }
        if let text = lengths.first {
            guard !text.isEmpty, text.utf8.count <= 18, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
                let length = Int(text), length == 0 || !isEnd
            else { throw .malformed }
            state = isEnd ? .over : .counted(length)
        } else if isEnd {
            state = .over
        } else {
            state = .chunked
            head.headers.add("transfer-encoding", "chunked")
        }
        // One stream, one request.
        head.headers.add("connection", "close")
        var bytes = ByteBuffer()
        bytes.write(head)
        return bytes
    }

    /// Converts the content of a DATA frame, without its padding.
    package mutating func take(_ bytes: ByteBuffer, isEnd: Bool) throws(HTTPFault) -> ByteBuffer {
        switch state {
        case .counted(let count):
            // Section 8.1.1: the sum of all DATA frames has to equal `Content-Length`.
            let rest = count - bytes.readableBytes
            guard rest >= 0, rest == 0 || !isEnd else { throw .malformed }
            state = isEnd ? .over : .counted(rest)
            return bytes
        case .chunked:
            var text = ByteBuffer()
            // An empty chunk would end the body.
            if bytes.readableBytes > 0 {
                text.writeChunkLine(bytes.readableBytes)
                text.writeImmutableBuffer(bytes)
                text.writeStaticString("\r\n")
            }
            if isEnd {
                state = .over
                text.writeLastChunk(HeaderFields())
            }
            return text
        case .head, .over: throw .malformed
        }
    }

    private mutating func trailers(_ fields: HeaderFields) throws(HTTPFault) -> ByteBuffer {
        var plain: [HeaderFields.Field] = []
        for field in fields.fields {
            guard !field.name.utf8.starts(with: ":".utf8) else { throw .malformed }
            plain.append(try Self.checked(field))
        }
        defer { state = .over }
        var text = ByteBuffer()
        switch state {
        // HTTP/1.1 allows no trailers after a counted body; RFC 9110 section 6.5.1 allows dropping them.
        case .counted(0): break
        case .chunked: text.writeLastChunk(HeaderFields(plain))
        case .counted, .head, .over: throw .malformed
        }
        return text
    }

    // MARK: Heads

    /// Builds the head from the pseudo-header fields and the fields. Section 8.3.1.
    private static func head(_ fields: HeaderFields) throws(HTTPFault) -> RequestHead {
        var pseudo: [String: String] = [:]
        var host: String?
        var cookie: Int?
        var plain: [HeaderFields.Field] = []
        var isPseudoOver = false
        for field in fields.fields {
            if field.name.utf8.starts(with: ":".utf8) {
                guard !isPseudoOver, pseudo[field.name] == nil, isValue(field.value),
                    [":method", ":scheme", ":path", ":authority"].contains(field.name)
                else { throw .malformed }
                pseudo[field.name] = try exact(field.value)
                continue
            }
            isPseudoOver = true
            let field = try checked(field)
            switch field.name {
            case "host":
                guard host == nil else { throw .malformed }
                host = field.value
            case "cookie":
                // Section 8.2.3: several cookie fields are joined to one.
                if let cookie {
                    plain[cookie].value += "; " + field.value
                } else {
                    cookie = plain.count
                    plain.append(field)
                }
            default: plain.append(field)
            }
        }
        guard let method = pseudo[":method"], isMethod(method), let scheme = pseudo[":scheme"],
            ["http", "https"].contains(scheme), let path = pseudo[":path"], isTarget(path, of: method)
        else { throw .malformed }
        if let authority = pseudo[":authority"] {
            guard !authority.isEmpty, host.map({ HeaderFields.areAlike($0, authority) }) ?? true else {
                throw .malformed
            }
            host = authority
        }
        if let host { plain.insert(HeaderFields.Field("host", host), at: 0) }
        return RequestHead(method, path, headers: HeaderFields(plain))
    }

    /// Whether the method is a token. CONNECT is rejected: the gateway carries no tunnels.
    private static func isMethod(_ method: String) -> Bool {
        !method.isEmpty && method != "CONNECT"
            && method.utf8.allSatisfy { byte in isNameByte(byte) || (0x41...0x5A).contains(byte) }
    }

    private static func isTarget(_ path: String, of method: String) -> Bool {
        guard path.utf8.first == UInt8(ascii: "/") else { return path == "*" && method == "OPTIONS" }
        return path.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F && $0 != UInt8(ascii: "#") }
    }

    /// Returns the field if it is valid. Throws `malformed` otherwise. Sections 8.2.1 and 8.2.2.
    private static func checked(_ field: HeaderFields.Field) throws(HTTPFault) -> HeaderFields.Field {
        guard !field.name.isEmpty, field.name.utf8.allSatisfy(isNameByte), isValue(field.value),
            !HTTP2Answer.isForOneHop(field.name), field.name != "te" || field.value == "trailers"
        else { throw .malformed }
        return HeaderFields.Field(field.name, try exact(field.value))
    }

    /// Whether the byte is a token character, and not an upper-case letter. RFC 9110 section 5.6.2.
    private static func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }

    /// Whether the value has no control characters and no white space at its ends.
    private static func isValue(_ value: String) -> Bool {
        let bytes = value.utf8
        guard let first = bytes.first, let last = bytes.last else { return true }
        return first != 0x20 && first != 0x09 && last != 0x20 && last != 0x09
            && bytes.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }
    }

    /// Returns the value in the form that ``FieldText`` writes back byte by byte.
    ///
    /// Throws `malformed` if the value was not UTF-8: the HPACK decoder has replaced such bytes already.
    private static func exact(_ value: String) throws(HTTPFault) -> String {
        guard value.utf8.contains(where: { $0 >= 0x80 }) else { return value }
        guard !value.unicodeScalars.contains("\u{FFFD}") else { throw .malformed }
        var value = value
        return value.withUTF8 { FieldText.read(UnsafeRawBufferPointer($0), isASCII: false) }
    }
}
