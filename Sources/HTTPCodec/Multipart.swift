// Bodies in several parts, as browsers and client libraries send forms with files: multipart/form-data. RFC 7578, with the
// grammar of RFC 2046 section 5.1.1.
//
//     body      = "--" boundary CRLF head CRLF content *( delimiter CRLF head CRLF content ) delimiter "--" [ CRLF ]
//     delimiter = CRLF "--" boundary
//     head      = 1*( name ":" value CRLF )      with exactly one Content-Disposition: form-data; name="..."
//
// Programs differ in what they accept besides. A body that some could divide in another way is rejected: a preamble, an
// epilogue, white space behind a delimiter, a line that begins with the boundary and goes on, bare line feeds in a head,
// parameters other than `name`, `filename` and `filename*`, encodings of the content, and parts within parts.

/// Why a multipart body is rejected.
package enum MultipartFault: Error, Equatable, Sendable, CaseIterable {
    /// `Content-Type` names no boundary, several, or one that cannot be used.
    case boundary
    /// The body does not begin with the boundary, or a line goes on after it.
    case delimiter
    /// The head of a part is not valid, or programs could read it in different ways.
    case head
    /// The head of a part is longer than ``MultipartReader/headLimit``.
    case headTooLong
    /// More parts than ``MultipartReader/partLimit``.
    case tooManyParts
    /// Bytes follow the last part.
    case trailing
    /// The body ends before its last part does.
    case incomplete

    /// The fault in words, for people.
    package var words: String {
        switch self {
        case .boundary: "its boundary is missing, or cannot be used"
        case .delimiter: "its parts are not divided by its boundary"
        case .head: "the head of a part is not valid, or is ambiguous"
        case .headTooLong: "the head of a part is too long"
        case .tooManyParts: "it has more than \(MultipartReader.partLimit) parts"
        case .trailing: "bytes follow its last part"
        case .incomplete: "it ends before its last part does"
        }
    }
}

/// The boundary between the parts of a body.
package struct MultipartBoundary: Equatable, Sendable {
    /// The lengths of a boundary, in bytes. The upper bound is that of RFC 2046.
    ///
    /// Ours: the lower bound. In the ciphertext of a file a shorter one could occur by chance.
    package static let lengths = 8...70

    package let bytes: [UInt8]
    /// Divides two parts.
    let delimiter: [UInt8]

    package init?(_ bytes: [UInt8]) {
        guard Self.lengths.contains(bytes.count), bytes.allSatisfy(Self.isBoundaryByte) else { return nil }
        self.bytes = bytes
        delimiter = Array("\r\n--".utf8) + bytes
    }

    /// Reads the fields of a request.
    ///
    /// - Throws: ``MultipartFault/boundary`` if they do not describe exactly one form with a usable boundary.
    package init(_ fields: HeaderFields) throws(MultipartFault) {
        let types = fields["Content-Type"]
        guard types.count == 1, let (type, parameters) = FieldParameters.parse(Array(types[0].utf8)),
            type == Array("multipart/form-data".utf8), parameters.allSatisfy({ Self.isKnown($0) }),
            let boundary = parameters.first(where: { $0.name == "boundary" }),
            let found = MultipartBoundary(boundary.value)
        else { throw .boundary }
        self = found
    }

    /// Whether the bytes hold the boundary with its dashes, as a program could see a delimiter in them.
    package func isIn(_ bytes: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { ByteSearch.first(delimiter[2...], in: $0, from: 0) != nil }
    }

    private static func isKnown(_ parameter: FieldParameters.Parameter) -> Bool {
        switch parameter.name {
        case "boundary": true
        case "charset": parameter.value.map { $0 | 0x20 } == Array("utf-8".utf8).map { $0 | 0x20 }
        default: false
        }
    }

    /// Section 5.1.1, without the space.
    private static func isBoundaryByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "A")...UInt8(ascii: "Z"):
            true
        default: "'()+_,-./:=?".utf8.contains(byte)
        }
    }
}

extension HeaderFields {
    /// Whether a line of these fields describes a body in several parts.
    package var describeParts: Bool { self["Content-Type"].contains { $0.lowercased().hasPrefix("multipart/") } }
}

/// The head of one part.
package struct MultipartHead: Equatable, Sendable {
    /// The name of the form's field, UTF-8 without control characters, quotes and backslashes.
    package let name: String
    /// The name of a file; nil if the part is no file. A byte that is not UTF-8 is replaced.
    package let fileName: String?
    /// The media type as received; nil if the part names none.
    package let type: String?
    /// The lines as received, each with its line end.
    package let received: [UInt8]

    /// - Parameter received: the lines, each with its line end.
    fileprivate init(_ received: [UInt8]) throws(MultipartFault) {
        var disposition: [UInt8]?
        var type: [UInt8]?
        var names: Set<String> = []
        var rest = received[...]
        while !rest.isEmpty {
            guard let end = rest.firstIndex(of: 0x0D), end + 1 < rest.endIndex, rest[end + 1] == 0x0A else {
                throw .head
            }
            let line = rest[..<end]
            rest = rest[(end + 2)...]
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > line.startIndex,
                line[..<colon].allSatisfy(HeadParser.isTokenByte),
                line.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 })
            else { throw .head }
            let name = String(decoding: line[..<colon], as: UTF8.self).lowercased()
            let value = FieldParameters.trimmed(line[(colon + 1)...])
            guard names.insert(name).inserted else { throw .head }
            switch name {
            case "content-disposition": disposition = Array(value)
            case "content-type": type = Array(value)
            // RFC 7578 section 4.7. Other encodings would be sealed, and written as none.
            case "content-transfer-encoding":
                let encoding = String(decoding: value, as: UTF8.self).lowercased()
                guard ["7bit", "8bit", "binary"].contains(encoding) else { throw .head }
            default: break
            }
        }
        guard let disposition, let (kind, parameters) = FieldParameters.parse(disposition),
            kind == Array("form-data".utf8),
            parameters.allSatisfy({ ["name", "filename", "filename*"].contains($0.name) }),
            let field = parameters.first(where: { $0.name == "name" })?.value, !field.contains(UInt8(ascii: "\\")),
            !field.contains(UInt8(ascii: "\"")), let name = String(validating: field, as: UTF8.self), !name.isEmpty
        else { throw .head }
        self.name = name
        self.type = type.map { String(decoding: $0, as: UTF8.self) }
        guard self.type?.lowercased().hasPrefix("multipart/") != true else { throw .head }
        self.received = received
        let plain = parameters.first { $0.name == "filename" }
        guard let coded = parameters.first(where: { $0.name == "filename*" }) else {
            fileName = plain.map { String(decoding: $0.value, as: UTF8.self) }
            return
        }
        // RFC 7578 section 4.2 forbids this form, and client libraries write it. RFC 8187 section 3.2.1.
        let parts = coded.value.split(separator: UInt8(ascii: "'"), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, String(decoding: parts[0], as: UTF8.self).lowercased() == "utf-8",
            let bytes = PercentCoding.decode(parts[2])
        else { throw .head }
        fileName = String(decoding: bytes, as: UTF8.self)
    }
}

/// Reads a body in several parts as it comes. Holds a head, or the beginning of a delimiter.
package struct MultipartReader: Sendable {
    /// Ours: maximum bytes of a part's head.
    package static let headLimit = 8 << 10
    /// Ours: maximum parts of a body.
    package static let partLimit = 128

    package enum Piece: Equatable, Sendable {
        /// A part begins.
        case head(MultipartHead)
        /// A piece of the part's content.
        case bytes([UInt8])
        /// The part is complete.
        case end
        /// So is the body.
        case over
    }

    private enum State {
        case beginning, head, content
        /// A part or nothing has ended with the boundary, and a head or the end follows.
        case delimited
        case over
        /// ``Piece/over`` was returned.
        case closed
    }

    package let boundary: MultipartBoundary
    private var state = State.beginning
    private var waiting: [UInt8] = []
    /// The first byte of `waiting` that is not read.
    private var position = 0
    private var parts = 0
    /// Bytes of the body before `waiting`.
    private var dropped = 0

    package init(_ boundary: MultipartBoundary) { self.boundary = boundary }

    /// The place of the next byte to read, in bytes from the beginning of the body.
    package var offset: Int { dropped + position }

    /// Takes the next bytes of the body. All pieces of the bytes before were read.
    package mutating func append(_ bytes: UnsafeRawBufferPointer) {
        dropped += position
        waiting.removeFirst(position)
        position = 0
        waiting.append(contentsOf: bytes)
    }

    /// Returns the next piece; nil if more of the body has to come first.
    package mutating func next() throws(MultipartFault) -> Piece? {
        switch state {
        case .beginning:
            let opening = boundary.delimiter[2...]
            guard rest.starts(with: opening.prefix(rest.count)) else { throw .delimiter }
            guard rest.count >= opening.count else { return nil }
            position += opening.count
            state = .delimited
            return try next()
        case .delimited:
            guard rest.count >= 2 else { return nil }
            switch (waiting[position], waiting[position + 1]) {
            case (0x0D, 0x0A): state = .head
            // Without any part it is no form.
            case (0x2D, 0x2D) where parts > 0: state = .over
            default: throw .delimiter
            }
            position += 2
            return try next()
        case .head: return try head()
        case .content: return content()
        case .over:
            guard Self.lineEnd.starts(with: rest) else { throw .trailing }
            state = .closed
            return .over
        case .closed:
            guard Self.lineEnd.starts(with: rest) else { throw .trailing }
            return nil
        }
    }

    /// Checks that the body may end here.
    package func finish() throws(MultipartFault) {
        guard case .closed = state else { throw .incomplete }
        guard rest.isEmpty || rest.elementsEqual(Self.lineEnd) else { throw .trailing }
    }

    private var rest: ArraySlice<UInt8> { waiting[position...] }
    private static let lineEnd = Array("\r\n".utf8)

    private mutating func head() throws(MultipartFault) -> Piece? {
        let found = waiting.withUnsafeBytes { ByteSearch.first(Self.headEnd[...], in: $0, from: position) }
        guard let found else {
            guard rest.count <= Self.headLimit else { throw .headTooLong }
            return nil
        }
        guard found + 2 - position <= Self.headLimit else { throw .headTooLong }
        guard parts < Self.partLimit else { throw .tooManyParts }
        let head = try MultipartHead(Array(waiting[position..<found + 2]))
        parts += 1
        position = found + Self.headEnd.count
        state = .content
        return .head(head)
    }

    private static let headEnd = Array("\r\n\r\n".utf8)

    private mutating func content() -> Piece? {
        let delimiter = boundary.delimiter
        let found = waiting.withUnsafeBytes { ByteSearch.first(delimiter[...], in: $0, from: position) }
        // The last bytes may begin a delimiter.
        let end = found ?? max(position, waiting.count - delimiter.count + 1)
        if end > position {
            defer { position = end }
            return .bytes(Array(waiting[position..<end]))
        }
        guard found != nil else { return nil }
        position += delimiter.count
        state = .delimited
        return .end
    }
}

/// The value of a field with parameters: `form-data; name="a"; filename="b"`. RFC 9110 section 5.6.6.
enum FieldParameters {
    struct Parameter {
        /// In lower case.
        let name: String
        let value: [UInt8]
    }

    /// Returns the value before the parameters, in lower case, and the parameters; nil if they are not valid, or if two
    /// have one name.
    ///
    /// A quoted value is taken as it is, but for `\"`, because browsers write a backslash in a file's name as it is.
    static func parse(_ text: [UInt8]) -> (value: [UInt8], parameters: [Parameter])? {
        var index = text.firstIndex(of: UInt8(ascii: ";")) ?? text.endIndex
        let value = trimmed(text[..<index]).map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 }
        var parameters: [Parameter] = []
        while index < text.endIndex {
            index = skipSpaces(text, index + 1)
            // Some clients end the line with a semicolon.
            if index == text.endIndex { break }
            let start = index
            while index < text.endIndex, HeadParser.isTokenByte(text[index]) { index += 1 }
            guard index > start, index < text.endIndex, text[index] == UInt8(ascii: "=") else { return nil }
            let name = String(decoding: text[start..<index], as: UTF8.self).lowercased()
            guard let (value, end) = self.value(text, index + 1), !parameters.contains(where: { $0.name == name })
            else {
                return nil
            }
            parameters.append(Parameter(name: name, value: value))
            index = skipSpaces(text, end)
            guard index == text.endIndex || text[index] == UInt8(ascii: ";") else { return nil }
        }
        return (value, parameters)
    }

    /// Reads the value that begins at an index, and returns the index behind it.
    private static func value(_ text: [UInt8], _ start: Int) -> ([UInt8], Int)? {
        var index = start
        guard index < text.endIndex, text[index] == UInt8(ascii: "\"") else {
            while index < text.endIndex, !" \t;\"".utf8.contains(text[index]) { index += 1 }
            return index > start ? (Array(text[start..<index]), index) : nil
        }
        var value: [UInt8] = []
        index += 1
        while index < text.endIndex, text[index] != UInt8(ascii: "\"") {
            if text[index] == UInt8(ascii: "\\"), index + 1 < text.endIndex, text[index + 1] == UInt8(ascii: "\"") {
                index += 1
            }
            value.append(text[index])
            index += 1
        }
        return index < text.endIndex ? (value, index + 1) : nil
    }

    private static func skipSpaces(_ text: [UInt8], _ start: Int) -> Int {
        var index = start
        while index < text.endIndex, text[index] == 0x20 || text[index] == 0x09 { index += 1 }
        return index
    }

    static func trimmed(_ text: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let start = text.drop { $0 == 0x20 || $0 == 0x09 }
        let end = start.lastIndex { $0 != 0x20 && $0 != 0x09 }
        return end.map { start[...$0] } ?? []
    }
}

/// Finds bytes in bytes.
enum ByteSearch {
    /// Returns the first place of a pattern that is not empty; nil if there is none.
    static func first(_ pattern: ArraySlice<UInt8>, in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        pattern.withUnsafeBytes { pattern in
            let (first, last) = (pattern[0], bytes.count - pattern.count)
            var index = start
            while index <= last {
                if bytes[index] == first,
                    UnsafeRawBufferPointer(rebasing: bytes[index..<index + pattern.count]).elementsEqual(pattern)
                {
                    return index
                }
                index += 1
            }
            return nil
        }
    }
}
