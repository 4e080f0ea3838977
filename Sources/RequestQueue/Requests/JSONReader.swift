// Reads JSON (RFC 8259) into values that keep the digits of numbers and the order of members.

extension JSONValue {
    /// Bytes that are no JSON document.
    public struct Malformed: Error, Equatable, Sendable, CustomStringConvertible {
        /// Where reading ended, in bytes from the beginning.
        public let offset: Int

        /// For people and logs.
        public var description: String { "Byte \(offset) is not that of a JSON document." }
    }

    /// Reads a JSON document. Any bytes are safe to pass.
    ///
    /// - Throws: ``Malformed``, also if it is nested more than ``maximumDepth`` times.
    public init(parsing bytes: [UInt8]) throws(Malformed) {
        var reader = JSONReader(bytes: bytes)
        self = try reader.document()
    }
}

private struct JSONReader {
    let bytes: [UInt8]
    var index = 0

    init(bytes: [UInt8]) { self.bytes = bytes }

    private var next: UInt8? { index < bytes.count ? bytes[index] : nil }
    private var malformed: JSONValue.Malformed { JSONValue.Malformed(offset: index) }

    mutating func document() throws(JSONValue.Malformed) -> JSONValue {
        let value = try value(JSONValue.maximumDepth)
        skipSpace()
        guard index == bytes.count else { throw malformed }
        return value
    }

    private mutating func skipSpace() {
        while let byte = next, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { index += 1 }
    }

    private mutating func take(_ byte: Character) -> Bool {
        guard let value = byte.asciiValue, next == value else { return false }
        index += 1
        return true
    }

    private mutating func word(_ word: String, _ value: JSONValue) throws(JSONValue.Malformed) -> JSONValue {
        guard bytes[index...].starts(with: word.utf8) else { throw malformed }
        index += word.utf8.count
        return value
    }

    private mutating func value(_ left: Int) throws(JSONValue.Malformed) -> JSONValue {
        skipSpace()
        switch next {
        case UInt8(ascii: "{"):
            guard left > 0 else { throw malformed }
            return .object(try members(left - 1))
        case UInt8(ascii: "["):
            guard left > 0 else { throw malformed }
            return .array(try elements(left - 1))
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try word("true", .bool(true))
        case UInt8(ascii: "f"): return try word("false", .bool(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        default: return .number(try number())
        }
    }

    private mutating func members(_ left: Int) throws(JSONValue.Malformed) -> [JSONValue.Member] {
        index += 1
        var members: [JSONValue.Member] = []
        skipSpace()
        if take("}") { return members }
        repeat {
            skipSpace()
            guard next == UInt8(ascii: "\"") else { throw malformed }
            let name = try string()
            skipSpace()
            guard take(":") else { throw malformed }
            members.append(.init(name, try value(left)))
            skipSpace()
        } while take(",")
        guard take("}") else { throw malformed }
        return members
    }

    private mutating func elements(_ left: Int) throws(JSONValue.Malformed) -> [JSONValue] {
        index += 1
        var elements: [JSONValue] = []
        skipSpace()
        if take("]") { return elements }
        repeat {
            elements.append(try value(left))
            skipSpace()
        } while take(",")
        guard take("]") else { throw malformed }
        return elements
    }

    private mutating func number() throws(JSONValue.Malformed) -> String {
        let begin = index
        while let byte = next, "0123456789+-.eE".utf8.contains(byte) { index += 1 }
        guard RequestFlaw.isNumber(Array(bytes[begin..<index])) else {
            index = begin
            throw malformed
        }
        return String(decoding: bytes[begin..<index], as: UTF8.self)
    }

    private mutating func string() throws(JSONValue.Malformed) -> String {
        index += 1
        var text: [UInt8] = []
        while let byte = next {
            switch byte {
            case UInt8(ascii: "\""):
                index += 1
                guard let text = String(validating: text, as: UTF8.self) else { throw malformed }
                return text
            case UInt8(ascii: "\\"): text += try escape()
            case 0..<0x20: throw malformed
            default:
                text.append(byte)
                index += 1
            }
        }
        throw malformed
    }

    private mutating func escape() throws(JSONValue.Malformed) -> [UInt8] {
        index += 1
        guard let byte = next else { throw malformed }
        index += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return [byte]
        case UInt8(ascii: "b"): return [0x08]
        case UInt8(ascii: "f"): return [0x0C]
        case UInt8(ascii: "n"): return [0x0A]
        case UInt8(ascii: "r"): return [0x0D]
        case UInt8(ascii: "t"): return [0x09]
        case UInt8(ascii: "u"):
            var units = [try unit()]
            // A character outside of the first plane is two units; one of them alone is none.
            if UTF16.isLeadSurrogate(units[0]) {
                guard take("\\"), take("u") else { throw malformed }
                units.append(try unit())
            }
            guard let text = String(validating: units, as: UTF16.self) else { throw malformed }
            return Array(text.utf8)
        default: throw malformed
        }
    }

    private mutating func unit() throws(JSONValue.Malformed) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            guard let byte = next, let digit = Character(UnicodeScalar(byte)).hexDigitValue, byte < 0x80 else {
                throw malformed
            }
            unit = unit << 4 | UInt16(digit)
            index += 1
        }
        return unit
    }
}
