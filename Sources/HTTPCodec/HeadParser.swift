// The grammar of heads. RFC 9112 sections 3 to 6, RFC 9110 section 5.

/// Parses the bytes of one whole head, including its empty line.
struct HeadParser {
    private let bytes: UnsafeRawBufferPointer
    private let limits: HeadLimits
    private var index = 0
    // The values of fields that frame the message or control the connection.
    private var hosts = 0
    private var length: Int?
    private var codings = 0
    private var isChunked = false
    private var closes = false
    private var keepsAlive = false
    private var expectsContinue = false

    /// Runs `parse`. Returns errors as values, because the pointer's closure cannot throw typed errors.
    package static func parsed<Value>(
        _ bytes: UnsafeRawBufferPointer, _ limits: HeadLimits,
        _ parse: (inout HeadParser) throws(HTTPFault) -> Value
    ) -> Result<Value, HTTPFault> {
        var parser = HeadParser(bytes: bytes, limits: limits)
        do throws(HTTPFault) {
            return .success(try parse(&parser))
        } catch {
            return .failure(error)
        }
    }

    private init(bytes: UnsafeRawBufferPointer, limits: HeadLimits) { (self.bytes, self.limits) = (bytes, limits) }

    // MARK: Whole heads

    package mutating func request() throws(HTTPFault) -> ReceivedRequest {
        let method = try token(until: 0x20)
        // RFC 9112 section 3.2.3: its target is no path, and bytes behind its answer are no messages. There are no tunnels.
        guard method != "CONNECT" else { throw .malformed }
        let target = try target()
        let minor = try version(endingIn: 0x0D)
        try lineFeed()
        var head = RequestHead(method, target, headers: try fields())
        guard hosts == 1 || hosts == 0 && minor == 0 else { throw .host }
        guard codings == 0 || length == nil else { throw .lengthAndCoding }
        guard codings == 0 || minor > 0 else { throw .malformed }
        guard codings == 0 || isChunked && codings == 1 else { throw .codingUnknown }
        try Self.settle(&head)
        return ReceivedRequest(
            head: head, minorVersion: minor,
            framing: isChunked ? .chunked : length.map { $0 == 0 ? .none : .length($0) } ?? .none,
            keepsAlive: !closes && (minor > 0 || keepsAlive), expectsContinue: expectsContinue && minor > 0)
    }

    package mutating func response(isToHead: Bool) throws(HTTPFault) -> ReceivedResponse {
        let minor = try version(endingIn: 0x20)
        var status = 0
        for _ in 0..<3 {
            guard let digit = next(), (0x30...0x39).contains(digit) else { throw .malformed }
            status = status * 10 + Int(digit - 0x30)
        }
        guard status >= 100 else { throw .malformed }
        var reason = ""
        // Old servers omit the space together with the reason phrase.
        if peek() == 0x20 {
            index += 1
            reason = try value(trims: false)
        } else {
            guard next() == 0x0D else { throw .malformed }
            try lineFeed()
        }
        let fields = try fields()
        guard codings == 0 || length == nil else { throw .lengthAndCoding }
        guard codings == 0 || isChunked && codings == 1 else { throw .codingUnknown }
        let hasNoBody = isToHead || status < 200 || status == 204 || status == 304
        let framing: BodyFraming =
            hasNoBody ? .none : isChunked ? .chunked : length.map { $0 == 0 ? .none : .length($0) } ?? .untilClose
        return ReceivedResponse(
            head: ResponseHead(status, reason: reason, headers: fields), framing: framing,
            keepsAlive: framing != .untilClose && !closes && (minor > 0 || keepsAlive))
    }

    package mutating func trailers() throws(HTTPFault) -> HeaderFields { try fields() }

    // MARK: Parts

    private func peek() -> UInt8? { index < bytes.count ? bytes[index] : nil }

    private mutating func next() -> UInt8? {
        guard index < bytes.count else { return nil }
        defer { index += 1 }
        return bytes[index]
    }

    private mutating func lineFeed() throws(HTTPFault) {
        guard next() == 0x0A else { throw .lineEnd }
    }

    private mutating func token(until end: UInt8) throws(HTTPFault) -> String {
        let start = index
        while index < bytes.count, Self.isTokenByte(bytes[index]) { index += 1 }
        guard index > start, peek() == end else { throw .malformed }
        defer { index += 1 }
        return String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<index]), as: UTF8.self)
    }

    /// Reads the target. Rejects spaces, control characters and fragments, which clients never send. Section 3.2.
    private mutating func target() throws(HTTPFault) -> String {
        let start = index
        var union: UInt8 = 0
        while index < bytes.count, bytes[index] > 0x20, bytes[index] != 0x7F, bytes[index] != 0x23 {
            union |= bytes[index]
            index += 1
        }
        guard index > start, peek() == 0x20 else { throw .malformed }
        guard index - start <= limits.target else { throw .targetTooLong }
        defer { index += 1 }
        return FieldText.read(UnsafeRawBufferPointer(rebasing: bytes[start..<index]), isASCII: union < 0x80)
    }

    /// Reads the version and returns its minor part: 0 for HTTP/1.0, else 1.
    private mutating func version(endingIn end: UInt8) throws(HTTPFault) -> Int {
        let start = index
        guard index + 9 <= bytes.count else { throw .malformed }
        index += 9
        guard bytes[start..<(start + 5)].elementsEqual("HTTP/".utf8), bytes[start + 6] == 0x2E,
            (0x30...0x39).contains(bytes[start + 5]), (0x30...0x39).contains(bytes[start + 7]),
            bytes[start + 8] == end
        else { throw .malformed }
        guard bytes[start + 5] == 0x31 else { throw .versionUnknown }
        return bytes[start + 7] == 0x30 ? 0 : 1
    }

    private mutating func fields() throws(HTTPFault) -> HeaderFields {
        var result: [HeaderFields.Field] = []
        result.reserveCapacity(16)
        while peek() != 0x0D {
            guard result.count < limits.fields else { throw .headTooLong }
            let name = try token(until: 0x3A)
            let field = HeaderFields.Field(name, try value(trims: true))
            try note(field)
            result.append(field)
        }
        index += 1
        try lineFeed()
        guard index == bytes.count else { throw .malformed }
        return HeaderFields(result)
    }

    /// Reads the rest of a line. Rejects control characters other than the tab. RFC 9110 section 5.5.
    private mutating func value(trims: Bool) throws(HTTPFault) -> String {
        if trims { while let byte = peek(), byte == 0x20 || byte == 0x09 { index += 1 } }
        let start = index
        var union: UInt8 = 0
        while index < bytes.count, bytes[index] >= 0x20 || bytes[index] == 0x09, bytes[index] != 0x7F {
            union |= bytes[index]
            index += 1
        }
        var end = index
        guard next() == 0x0D else { throw .malformed }
        try lineFeed()
        if trims { while end > start, bytes[end - 1] == 0x20 || bytes[end - 1] == 0x09 { end -= 1 } }
        return FieldText.read(UnsafeRawBufferPointer(rebasing: bytes[start..<end]), isASCII: union < 0x80)
    }

    /// Records the fields that frame the message or control the connection.
    private mutating func note(_ field: HeaderFields.Field) throws(HTTPFault) {
        switch field.name.utf8.count {
        case 4 where HeaderFields.areAlike(field.name, "host"):
            hosts += 1
            guard field.value.utf8.allSatisfy(Self.isHostByte) else { throw .host }
        case 6 where HeaderFields.areAlike(field.name, "expect"):
            guard HeaderFields.areAlike(field.value, "100-continue") else { throw .expectationUnknown }
            expectsContinue = true
        case 10 where HeaderFields.areAlike(field.name, "connection"):
            for member in HeaderFields([field]).tokens("connection") {
                if member == "close" { closes = true }
                if member == "keep-alive" { keepsAlive = true }
            }
        case 14 where HeaderFields.areAlike(field.name, "content-length"):
            // A repeated field is rejected even if the values agree.
            guard length == nil, let value = Self.length(field.value) else { throw .contentLength }
            length = value
        case 17 where HeaderFields.areAlike(field.name, "transfer-encoding"):
            codings += 1
            isChunked = HeaderFields.areAlike(field.value, "chunked")
        default: break
        }
    }

    /// Converts a target in absolute form to origin form. Its host has to equal `Host`. Section 3.2.2.
    private static func settle(_ head: inout RequestHead) throws(HTTPFault) {
        guard !head.target.utf8.starts(with: "/".utf8) else { return }
        if head.target == "*" {
            guard head.method == "OPTIONS" else { throw .malformed }
            return
        }
        for scheme in ["http://", "https://"]
        where HeaderFields.areAlike(String(head.target.prefix(scheme.count)), scheme) {
            let rest = head.target.dropFirst(scheme.count)
            let end = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
            guard let host = head.headers.first("host"), HeaderFields.areAlike(host, String(rest[..<end])) else {
                throw .malformed
            }
            let target = rest[end...]
            head.target = target.utf8.first == 0x2F ? String(target) : "/" + target
            return
        }
        throw .malformed
    }

    /// The characters of tokens. RFC 9110 section 5.6.2.
    static func isTokenByte(_ byte: UInt8) -> Bool { tokenBytes[Int(byte)] }

    private static let tokenBytes: [Bool] = (0..<256).map { byte in
        switch UInt8(byte) {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(UInt8(byte))
        }
    }

    /// Returns the value of `Content-Length`; nil if it is no number. 18 digits fit into an `Int`.
    static func length(_ text: String) -> Int? {
        guard !text.isEmpty, text.utf8.count <= 18, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int(text)
    }

    /// The characters of names, addresses and ports, without those of paths, lists and user information.
    static func isHostByte(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "-._~%!$&'()*+;=:[]".utf8.contains(byte)
        }
    }
}
