import NIOCore

/// A value to write: bytes that are valid JSON by construction.
package struct JSONFragment: Hashable, Sendable {
    package let bytes: [UInt8]

    private init(valid bytes: [UInt8]) { self.bytes = bytes }

    package static let null = JSONFragment(valid: Array("null".utf8))

    package static func boolean(_ value: Bool) -> JSONFragment {
        JSONFragment(valid: Array((value ? "true" : "false").utf8))
    }

    package static func integer(_ value: Int) -> JSONFragment { JSONFragment(valid: Array(String(value).utf8)) }

    /// A number as written; nil if the text is not a number (RFC 8259 section 6).
    package init?(number text: String) {
        let bytes = Array(text.utf8)
        guard let first = bytes.first, first == UInt8(ascii: "-") || UInt8(ascii: "0")...UInt8(ascii: "9") ~= first,
            let document = try? JSONDocument(ByteBuffer(bytes: bytes)),
            document.range(document.root) == 0..<bytes.count
        else { return nil }
        self.bytes = bytes
    }

    /// Text in its shortest valid form: only mandatory escapes are used.
    package static func string(_ text: String) -> JSONFragment {
        var bytes: [UInt8] = []
        JSONStringWriter.append(text.utf8, to: &bytes)
        return JSONFragment(valid: bytes)
    }

    /// Text in Base64 (RFC 4648, either alphabet), which needs no escapes.
    ///
    /// - Precondition: the text has characters of Base64 only.
    package static func base64(_ text: some Collection<UInt8>) -> JSONFragment {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count + 2)
        bytes.append(UInt8(ascii: "\""))
        bytes.append(contentsOf: text)
        // Checked in the array: an unspecialised `text` would be called for each byte.
        precondition(
            bytes.dropFirst().allSatisfy { 0x2B...0x7A ~= $0 && $0 != UInt8(ascii: "\\") }, "this is not Base64")
        bytes.append(UInt8(ascii: "\""))
        return JSONFragment(valid: bytes)
    }

    /// The bytes of a value in a document. Parsed strings inside it are strings again.
    package init(_ document: JSONDocument, _ place: JSONPlace) {
        bytes =
            document.strings.isEmpty ? Array(document.slice(place).readableBytesView) : document.restored(place)
    }

    package static func array(_ elements: [JSONFragment]) -> JSONFragment {
        var bytes = [UInt8(ascii: "[")]
        for (index, element) in elements.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            bytes.append(contentsOf: element.bytes)
        }
        bytes.append(UInt8(ascii: "]"))
        return JSONFragment(valid: bytes)
    }

    /// Makes an object.
    ///
    /// - Precondition: all names are different.
    package static func object(_ members: [(name: String, value: JSONFragment)]) -> JSONFragment {
        precondition(Set(members.map(\.name)).count == members.count, "duplicate name")
        var bytes = [UInt8(ascii: "{")]
        for (index, member) in members.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            JSONStringWriter.append(member.name.utf8, to: &bytes)
            bytes.append(UInt8(ascii: ":"))
            bytes.append(contentsOf: member.value.bytes)
        }
        bytes.append(UInt8(ascii: "}"))
        return JSONFragment(valid: bytes)
    }
}

/// Writes strings by RFC 8259 section 7.
enum JSONStringWriter {
    /// - Parameter text: UTF-8.
    static func append(_ text: some Collection<UInt8>, to output: inout [UInt8]) {
        output.reserveCapacity(output.count + text.count + 2)
        output.append(UInt8(ascii: "\""))
        for byte in text {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): output.append(contentsOf: [UInt8(ascii: "\\"), byte])
            case 0x08: output.append(contentsOf: "\\b".utf8)
            case 0x09: output.append(contentsOf: "\\t".utf8)
            case 0x0A: output.append(contentsOf: "\\n".utf8)
            case 0x0C: output.append(contentsOf: "\\f".utf8)
            case 0x0D: output.append(contentsOf: "\\r".utf8)
            case ..<0x20:
                output.append(contentsOf: byte < 0x10 ? "\\u000".utf8 : "\\u001".utf8)
                output.append(hexadecimal(byte & 15))
            default: output.append(byte)
            }
        }
        output.append(UInt8(ascii: "\""))
    }

    private static func hexadecimal(_ digit: UInt8) -> UInt8 {
        digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
    }
}
