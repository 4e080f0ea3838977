// Forms as documents: `to=c1&content=a+b` is read as `{"to":"c1","content":"a b"}`. Paths and edits are those of JSON.
// Written again, a field without a change keeps its bytes.
//
//     form  = [ pair *( "&" pair ) ]           application/x-www-form-urlencoded, WHATWG URL section 5.1
//     pair  = text "=" text                    percent-encoded UTF-8, a space as "+"
//
// Programs differ in what they accept besides. A form that some could read in another way is refused: a semicolon, which
// old ones read as "&", a percent sign without two digits, bytes that are not UTF-8, a pair without "=". Two fields
// with one name become two members with one name, which no path and no edit touches.
//
// The parts of a multipart form are read by another module. They are written here, each with its head as it was.

package import NIOCore

/// Why a body is not read as a form.
package struct FormError: Error, Equatable, Sendable {
    /// The offset of the pair, in bytes.
    package let offset: Int
}

/// A part of a multipart form that is no file.
package struct FormPart: Sendable {
    /// Names as they are written into a head: without quotes, backslashes and control characters.
    package let name: [UInt8]
    package let value: [UInt8]
    /// The lines of its head as received, each with its line end.
    package let head: [UInt8]

    package init(name: [UInt8], value: [UInt8], head: [UInt8]) {
        (self.name, self.value, self.head) = (name, value, head)
    }
}

/// The fields of a form as received.
struct FormFields: Sendable {
    struct Field: Sendable {
        let name: [UInt8]
        let value: [UInt8]
        /// The pair as received; in a multipart form the lines of the part's head.
        let received: ArraySlice<UInt8>
    }

    /// Ours: fields of a form.
    static let limit = 1024

    private(set) var all: [Field] = []
    /// What divides the parts of a multipart form; nil if the form is encoded as in an address.
    private let boundary: [UInt8]?

    /// The fields of a multipart form.
    init(_ parts: [FormPart], boundary: [UInt8]) {
        self.boundary = boundary
        all = parts.map { Field(name: $0.name, value: $0.value, received: $0.head[...]) }
    }

    init(_ bytes: [UInt8]) throws(FormError) {
        boundary = nil
        guard !bytes.isEmpty else { return }
        for pair in bytes.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: false) {
            guard all.count < Self.limit, let equals = pair.firstIndex(of: UInt8(ascii: "=")),
                let name = Self.decode(pair[..<equals]), let value = Self.decode(pair[(equals + 1)...])
            else { throw FormError(offset: pair.startIndex) }
            all.append(Field(name: name, value: value, received: pair))
        }
    }

    /// A document with the fields as members.
    var json: [UInt8] {
        var bytes = [UInt8(ascii: "{")]
        for (index, field) in all.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            JSONStringWriter.append(field.name, to: &bytes)
            bytes.append(UInt8(ascii: ":"))
            JSONStringWriter.append(field.value, to: &bytes)
        }
        bytes.append(UInt8(ascii: "}"))
        return bytes
    }

    /// The form of a document that was ``json`` before it was edited.
    func written(_ document: JSONDocument) -> [UInt8] {
        let known = Dictionary(all.map { ($0.name, $0) }) { first, _ in first }
        var output: [UInt8] = []
        for place in document.children(document.root) {
            let name = Array(((try? document.name(place)) ?? nil ?? "").utf8)
            let value = (try? document.utf8(place)) ?? Array(document.slice(place).readableBytesView)
            if let boundary {
                output += Array("--".utf8) + boundary + Self.lineEnd
                output += known[name]?.received ?? Self.head(name)[...]
                output += Self.lineEnd + value + Self.lineEnd
                continue
            }
            if !output.isEmpty { output.append(UInt8(ascii: "&")) }
            if let field = known[name], field.value == value {
                output += field.received
            } else {
                Self.encode(name, to: &output)
                output.append(UInt8(ascii: "="))
                Self.encode(value, to: &output)
            }
        }
        if let boundary { output += Array("--".utf8) + boundary + Array("--\r\n".utf8) }
        return output
    }

    private static let lineEnd = Array("\r\n".utf8)

    /// The head of an added part. Its name is one of the mapping.
    private static func head(_ name: [UInt8]) -> [UInt8] {
        Array("Content-Disposition: form-data; name=\"".utf8) + name + Array("\"\r\n".utf8)
    }

    /// - Returns: nil if programs could read it in different ways.
    private static func decode(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count)
        var index = text.startIndex
        while index < text.endIndex {
            switch text[index] {
            case UInt8(ascii: "+"): bytes.append(0x20)
            case UInt8(ascii: "%"):
                guard index + 2 < text.endIndex, let high = JSONEscape.digit(text[index + 1]),
                    let low = JSONEscape.digit(text[index + 2])
                else { return nil }
                bytes.append(UInt8(high << 4 | low))
                index += 2
            case ...0x20, 0x7F, UInt8(ascii: ";"): return nil
            case let byte: bytes.append(byte)
            }
            index += 1
        }
        return String(validating: bytes, as: UTF8.self) == nil ? nil : bytes
    }

    private static let digits = Array("0123456789ABCDEF".utf8)

    private static func encode(_ text: [UInt8], to output: inout [UInt8]) {
        for byte in text {
            switch byte {
            case 0x20: output.append(UInt8(ascii: "+"))
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "*"), UInt8(ascii: "-"), UInt8(ascii: "."),
                UInt8(ascii: "_"):
                output.append(byte)
            default: output += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }
}

extension JSONDocument {
    /// Reads a form as a document.
    ///
    /// - Throws: ``FormError`` if the form is not valid, ambiguous, or exceeds the limits.
    package init(form: ByteBuffer, limits: JSONLimits = .standard) throws(FormError) {
        guard form.readableBytes <= limits.size else { throw FormError(offset: limits.size) }
        let fields = try FormFields(Array(form.readableBytesView))
        guard let document = try? JSONDocument(ByteBuffer(bytes: fields.json), limits: limits) else {
            throw FormError(offset: 0)
        }
        self = document
        unparsedBytes = form
        self.fields = fields
    }

    /// Reads a multipart form as a document.
    ///
    /// - Parameters:
    ///   - body: the form as received.
    ///   - boundary: what divides the parts; not in any of them.
    /// - Throws: ``FormError`` if a part is not UTF-8, or the form exceeds the limits.
    package init(
        parts: [FormPart], boundary: [UInt8], of body: ByteBuffer, limits: JSONLimits = .standard
    ) throws(FormError) {
        let fields = FormFields(parts, boundary: boundary)
        guard body.readableBytes <= limits.size, parts.count <= FormFields.limit,
            parts.allSatisfy({ String(validating: $0.value, as: UTF8.self) != nil }),
            let document = try? JSONDocument(ByteBuffer(bytes: fields.json), limits: limits)
        else { throw FormError(offset: 0) }
        self = document
        unparsedBytes = body
        self.fields = fields
    }
}
