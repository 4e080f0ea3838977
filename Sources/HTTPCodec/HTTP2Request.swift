// The requests of HTTP/2 streams. RFC 9113 section 8.

/// The head of one stream's request, and the check of the body behind it.
///
/// It throws ``HTTPFault/malformed`` for a malformed request, whose stream the caller resets. Section 8.1.1.
package struct HTTP2Request: Sendable {
    /// The part of the body that has not arrived.
    private enum Rest: Equatable {
        /// `Content-Length` bytes, less those that have arrived.
        case counted(Int)
        /// The head has no `Content-Length`.
        case uncounted
        /// The client has ended the stream.
        case over
    }

    /// The request as an exchange receives it. A failure is not malformed, but exceeds a limit or a rule of HTTP.
    package let received: Result<ReceivedRequest, HTTPFault>
    /// Whether the request is a HEAD, whose response has no body.
    package let isToHead: Bool
    /// The `Origin` fields, for the refusal of a request that exceeds a limit.
    package let origins: HeaderFields
    private let limits: HeadLimits
    private var rest: Rest

    /// Whether the client has ended the stream.
    package var isOver: Bool { rest == .over }

    /// Whether the body has arrived completely.
    package var isWhole: Bool { rest == .over || rest == .counted(0) }

    /// - Parameters:
    ///   - fields: the fields of the first HEADERS frame.
    ///   - isEnd: whether the frame ends the stream.
    package init(_ fields: HeaderFields, isEnd: Bool, limits: HeadLimits) throws(HTTPFault) {
        var parts = HeadParts(fields.fields.count)
        for field in fields.fields { try parts.take(field) }
        var head = try parts.head()
        let length = try parts.length(isEnd: isEnd)
        rest = isEnd ? .over : length.map(Rest.counted) ?? .uncounted
        isToHead = head.method == "HEAD"
        origins = HeaderFields(head.headers.fields.filter { $0.name == "origin" })
        self.limits = limits
        let framing: BodyFraming =
            switch rest {
            case .over, .counted(0): .none
            case .counted(let length): .length(length)
            case .uncounted: .chunked
            }
        let fault = parts.fault(head, limits)
        // As in HTTP/1.1, the head says that a body follows: what needs no protection has none. A client cannot send the
        // field.
        if rest == .uncounted { head.headers.add("Transfer-Encoding", "chunked") }
        if let fault {
            received = .failure(fault)
        } else {
            // One stream carries one request.
            received = .success(
                ReceivedRequest(
                    head: head, minorVersion: 1, framing: framing, keepsAlive: false,
                    expectsContinue: parts.expectsContinue))
        }
    }

    /// Counts the content of a DATA frame. The sum of all frames has to equal `Content-Length`. Section 8.1.1.
    ///
    /// - Parameter count: bytes without the padding.
    package mutating func take(_ count: Int, isEnd: Bool) throws(HTTPFault) {
        switch rest {
        case .counted(let expected):
            let left = expected - count
            guard left >= 0, left == 0 || !isEnd else { throw .malformed }
            rest = isEnd ? .over : .counted(left)
        case .uncounted: if isEnd { rest = .over }
        case .over: throw .malformed
        }
    }

    /// Checks trailers, which end the stream. Returns those that the backend may receive.
    package mutating func take(_ trailers: HeaderFields, isEnd: Bool) throws(HTTPFault) -> HeaderFields {
        guard isEnd else { throw .malformed }
        var bytes = 2
        let checked = try trailers.fields.map { field throws(HTTPFault) in
            bytes += field.name.utf8.count + field.value.utf8.count + 4
            return try HeadParts.checked(field)
        }
        guard checked.count <= limits.fields, bytes <= limits.bytes else { throw .headTooLong }
        defer { rest = .over }
        switch rest {
        // HTTP/1.1 allows no trailers after a counted body; RFC 9110 section 6.5.1 allows dropping them.
        case .counted(0): return HeaderFields()
        case .uncounted: return HeaderFields(checked).trailers
        case .counted, .over: throw .malformed
        }
    }
}

/// Builds a head from pseudo-header fields and fields. Section 8.3.1.
private struct HeadParts {
    private var method: String?
    private var scheme: String?
    private var path: String?
    private var authority: String?
    private var host: String?
    private var plain: [HeaderFields.Field] = []
    /// The position of the `cookie` field.
    private var cookie: Int?
    private var lengthText: String?
    private var pseudoFields = 0
    private var isPseudoOver = false
    private var hasUnknownExpectation = false
    private(set) var expectsContinue = false

    init(_ count: Int) { plain.reserveCapacity(count) }

    mutating func take(_ field: HeaderFields.Field) throws(HTTPFault) {
        guard field.name.utf8.first != UInt8(ascii: ":") else { return try takePseudo(field) }
        isPseudoOver = true
        let field = try Self.checked(field)
        switch field.name {
        case "host":
            guard host == nil else { throw .malformed }
            host = field.value
            return
        case "cookie":
            // Section 8.2.3: several cookie fields are joined to one.
            if let cookie {
                plain[cookie].value += "; " + field.value
                return
            }
            cookie = plain.count
        case "content-length":
            guard lengthText == nil else { throw .malformed }
            lengthText = field.value
        case "expect":
            if HeaderFields.areAlike(field.value, "100-continue") {
                expectsContinue = true
            } else {
                hasUnknownExpectation = true
            }
        default: break
        }
        plain.append(field)
    }

    private mutating func takePseudo(_ field: HeaderFields.Field) throws(HTTPFault) {
        guard !isPseudoOver else { throw .malformed }
        let value = try Self.exact(field.value)
        switch field.name {
        case ":method" where method == nil: method = value
        case ":scheme" where scheme == nil: scheme = value
        case ":path" where path == nil: path = value
        case ":authority" where authority == nil: authority = value
        default: throw .malformed
        }
        pseudoFields += 1
    }

    mutating func head() throws(HTTPFault) -> RequestHead {
        guard let method, Self.isMethod(method), let scheme, scheme == "https" || scheme == "http", let path,
            Self.isTarget(path, of: method)
        else { throw .malformed }
        if let authority {
            guard !authority.isEmpty, host.map({ HeaderFields.areAlike($0, authority) }) ?? true else {
                throw .malformed
            }
            host = authority
        }
        if let host { plain.insert(HeaderFields.Field("host", host), at: 0) }
        return RequestHead(method, path, headers: HeaderFields(plain))
    }

    /// Returns the value of `Content-Length`; nil if there is none.
    func length(isEnd: Bool) throws(HTTPFault) -> Int? {
        guard let lengthText else { return nil }
        guard let length = HeadParser.length(lengthText), length == 0 || !isEnd else { throw .malformed }
        return length
    }

    /// Returns the fault of a well-formed head that HTTP/1.1 rejects too; nil if there is none.
    func fault(_ head: RequestHead, _ limits: HeadLimits) -> HTTPFault? {
        if head.target.utf8.count > limits.target { return .targetTooLong }
        var bytes = head.method.utf8.count + head.target.utf8.count + 14
        for field in head.headers.fields { bytes += field.name.utf8.count + field.value.utf8.count + 4 }
        // Pseudo-header fields count as in SETTINGS_MAX_HEADER_LIST_SIZE; the authority is one of the fields already.
        let fields = head.headers.fields.count + pseudoFields - (authority == nil ? 0 : 1)
        if bytes > limits.bytes || fields > limits.fields { return .headTooLong }
        guard let host, host.utf8.allSatisfy(HeadParser.isHostByte) else { return .host }
        return hasUnknownExpectation ? .expectationUnknown : nil
    }

    // MARK: Values

    /// Whether the method is a token. CONNECT is rejected: the gateway carries no tunnels.
    private static func isMethod(_ method: String) -> Bool {
        !method.isEmpty && method != "CONNECT" && method.utf8.allSatisfy(HeadParser.isTokenByte)
    }

    private static func isTarget(_ path: String, of method: String) -> Bool {
        guard path.utf8.first == UInt8(ascii: "/") else { return path == "*" && method == "OPTIONS" }
        return path.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F && $0 != UInt8(ascii: "#") }
    }

    /// Returns the field if it is valid. Throws `malformed` otherwise. Sections 8.2.1 and 8.2.2.
    static func checked(_ field: HeaderFields.Field) throws(HTTPFault) -> HeaderFields.Field {
        guard !field.name.isEmpty, field.name.utf8.allSatisfy(isNameByte),
            !HeaderFields.isForOneHopInHTTP2(field.name), field.name != "te" || field.value == "trailers"
        else { throw .malformed }
        return HeaderFields.Field(field.name, try exact(field.value))
    }

    /// Whether the byte is a token character, and not an upper-case letter.
    private static func isNameByte(_ byte: UInt8) -> Bool {
        HeadParser.isTokenByte(byte) && !(0x41...0x5A).contains(byte)
    }

    /// Returns the value in the form that ``FieldText`` writes back byte by byte.
    ///
    /// Throws `malformed` if it has control characters or white space at its ends, or if it was not UTF-8: the HPACK
    /// decoder has replaced such bytes already.
    private static func exact(_ value: String) throws(HTTPFault) -> String {
        let bytes = value.utf8
        guard let first = bytes.first, let last = bytes.last else { return value }
        guard first != 0x20, first != 0x09, last != 0x20, last != 0x09 else { throw .malformed }
        var union: UInt8 = 0
        for byte in bytes {
            guard byte >= 0x20 && byte != 0x7F || byte == 0x09 else { throw .malformed }
            union |= byte
        }
        guard union >= 0x80 else { return value }
        guard !value.unicodeScalars.contains("\u{FFFD}") else { throw .malformed }
        var value = value
        return value.withUTF8 { FieldText.read(UnsafeRawBufferPointer($0), isASCII: false) }
    }
}
