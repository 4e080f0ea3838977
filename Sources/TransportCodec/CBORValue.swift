// The part of CBOR (RFC 8949) that has a counterpart in JSON, for envelopes. Byte strings, tags, other simple values and
// indefinite lengths are refused: no serializer of ours writes them.

/// A value of the data model that JSON and CBOR share.
package indirect enum CBORValue: Equatable, Sendable {
    case null
    case bool(Bool)
    /// From -2^63 to 2^63 - 1.
    case integer(Int64)
    /// From 2^63 to 2^64 - 1. JSON has these integers, and Swift has a type for them.
    case unsigned(UInt64)
    case double(Double)
    case text(String)
    case array([CBORValue])
    /// Pairs in the order of the document. A key stands once.
    case map([(key: String, value: CBORValue)])

    package static func == (left: CBORValue, right: CBORValue) -> Bool {
        switch (left, right) {
        case (.null, .null): true
        case (.bool(let a), .bool(let b)): a == b
        case (.integer(let a), .integer(let b)): a == b
        case (.unsigned(let a), .unsigned(let b)): a == b
        case (.double(let a), .double(let b)): a == b
        case (.text(let a), .text(let b)): a == b
        case (.array(let a), .array(let b)): a == b
        case (.map(let a), .map(let b)):
            a.count == b.count && zip(a, b).allSatisfy { $0.key == $1.key && $0.value == $1.value }
        default: false
        }
    }
}

/// Why bytes are no CBOR that we accept.
package enum CBORError: Error, Equatable {
    /// The bytes end inside a value.
    case truncated
    /// A kind of value, or a length, that we do not accept.
    case unsupported
    /// Text that is not UTF-8.
    case notText
    /// The same key twice in a map.
    case repeatedKey
    /// More levels than ``CBORValue/depthLimit``.
    case tooDeep
    /// Bytes behind the value.
    case trailing
}

extension CBORValue {
    /// Ours: levels of arrays and maps. Envelopes have two of their own; the bound keeps the stack small.
    package static let depthLimit = 64

    /// Reads one value and nothing behind it.
    package init(_ bytes: [UInt8]) throws(CBORError) {
        var reader = Reader(bytes: bytes)
        self = try reader.value(0)
        guard reader.index == bytes.count else { throw .trailing }
    }

    /// The value as CBOR, with the shortest form of each length.
    package var bytes: [UInt8] {
        var output: [UInt8] = []
        write(to: &output)
        return output
    }

    private func write(to output: inout [UInt8]) {
        switch self {
        case .null: output.append(0xF6)
        case .bool(let value): output.append(value ? 0xF5 : 0xF4)
        case .integer(let value):
            if value >= 0 {
                Self.head(0, UInt64(value), &output)
            } else {
                Self.head(1, UInt64(-1 - value), &output)
            }
        case .unsigned(let value): Self.head(0, value, &output)
        case .double(let value):
            output.append(0xFB)
            for shift in stride(from: 56, through: 0, by: -8) {
                output.append(UInt8(truncatingIfNeeded: value.bitPattern >> UInt64(shift)))
            }
        case .text(let text):
            Self.head(3, UInt64(text.utf8.count), &output)
            output.append(contentsOf: text.utf8)
        case .array(let values):
            Self.head(4, UInt64(values.count), &output)
            for value in values { value.write(to: &output) }
        case .map(let pairs):
            Self.head(5, UInt64(pairs.count), &output)
            for (key, value) in pairs {
                CBORValue.text(key).write(to: &output)
                value.write(to: &output)
            }
        }
    }

    private static func head(_ major: UInt8, _ value: UInt64, _ output: inout [UInt8]) {
        let type = major << 5
        let (size, information): (Int, UInt8)
        switch value {
        case 0..<24: (size, information) = (0, UInt8(value))
        case ...0xFF: (size, information) = (1, 24)
        case ...0xFFFF: (size, information) = (2, 25)
        case ...0xFFFF_FFFF: (size, information) = (4, 26)
        default: (size, information) = (8, 27)
        }
        output.append(type | information)
        for place in stride(from: size - 1, through: 0, by: -1) {
            output.append(UInt8(truncatingIfNeeded: value >> UInt64(place * 8)))
        }
    }

    private struct Reader {
        let bytes: [UInt8]
        var index = 0

        mutating func value(_ depth: Int) throws(CBORError) -> CBORValue {
            guard depth < CBORValue.depthLimit else { throw .tooDeep }
            let first = try byte()
            switch first >> 5 {
            case 0:
                let value = try number(first)
                return Int64(exactly: value).map { .integer($0) } ?? .unsigned(value)
            case 1:
                guard let value = Int64(exactly: try number(first)) else { throw .unsupported }
                return .integer(-1 - value)
            case 3: return .text(try text(first))
            case 4:
                var values: [CBORValue] = []
                // A count is no promise: nothing is reserved for it.
                for _ in 0..<(try count(first)) { values.append(try value(depth + 1)) }
                return .array(values)
            case 5:
                var pairs: [(key: String, value: CBORValue)] = []
                var keys: Set<String> = []
                for _ in 0..<(try count(first)) {
                    let head = try byte()
                    guard head >> 5 == 3 else { throw .unsupported }
                    let key = try text(head)
                    guard keys.insert(key).inserted else { throw .repeatedKey }
                    pairs.append((key, try value(depth + 1)))
                }
                return .map(pairs)
            default: return try simple(first)
            }
        }

        private mutating func simple(_ first: UInt8) throws(CBORError) -> CBORValue {
            switch first {
            case 0xF4: return .bool(false)
            case 0xF5: return .bool(true)
            case 0xF6, 0xF7: return .null
            case 0xFA: return .double(Double(Float(bitPattern: UInt32(try big(4)))))
            case 0xFB: return .double(Double(bitPattern: try big(8)))
            default: throw .unsupported
            }
        }

        private mutating func byte() throws(CBORError) -> UInt8 {
            guard index < bytes.count else { throw .truncated }
            defer { index += 1 }
            return bytes[index]
        }

        private mutating func big(_ size: Int) throws(CBORError) -> UInt64 {
            var value: UInt64 = 0
            for _ in 0..<size { value = value << 8 | UInt64(try byte()) }
            return value
        }

        private mutating func number(_ first: UInt8) throws(CBORError) -> UInt64 {
            switch first & 0x1F {
            case let small where small < 24: return UInt64(small)
            case 24: return try big(1)
            case 25: return try big(2)
            case 26: return try big(4)
            case 27: return try big(8)
            default: throw .unsupported
            }
        }

        /// A count of bytes or items. Each has at least one byte, so more than there are left is an end too early.
        private mutating func count(_ first: UInt8) throws(CBORError) -> Int {
            let value = try number(first)
            guard value <= UInt64(bytes.count - index) else { throw .truncated }
            return Int(value)
        }

        private mutating func text(_ first: UInt8) throws(CBORError) -> String {
            let count = try count(first)
            defer { index += count }
            guard let text = String(validating: bytes[index..<index + count], as: UTF8.self) else { throw .notText }
            return text
        }
    }
}

extension CBORValue: Codable {
    private struct Key: CodingKey {
        let stringValue: String
        let intValue: Int? = nil

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { return nil }
    }

    package init(from decoder: any Decoder) throws {
        if let map = try? decoder.container(keyedBy: Key.self) {
            self = .map(
                try map.allKeys.map { ($0.stringValue, try map.decode(CBORValue.self, forKey: $0)) }
                    .sorted { $0.0 < $1.0 })
            return
        }
        if var array = try? decoder.unkeyedContainer() {
            var values: [CBORValue] = []
            while !array.isAtEnd { values.append(try array.decode(CBORValue.self)) }
            self = .array(values)
            return
        }
        let single = try decoder.singleValueContainer()
        if single.decodeNil() {
            self = .null
        } else if let value = try? single.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? single.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? single.decode(UInt64.self) {
            self = .unsigned(value)
        } else if let value = try? single.decode(Double.self) {
            self = .double(value)
        } else {
            self = .text(try single.decode(String.self))
        }
    }

    package func encode(to encoder: any Encoder) throws {
        switch self {
        case .map(let pairs):
            var map = encoder.container(keyedBy: Key.self)
            for (key, value) in pairs { try map.encode(value, forKey: Key(stringValue: key)) }
        case .array(let values):
            var array = encoder.unkeyedContainer()
            for value in values { try array.encode(value) }
        default:
            var single = encoder.singleValueContainer()
            switch self {
            case .bool(let value): try single.encode(value)
            case .integer(let value): try single.encode(value)
            case .unsigned(let value): try single.encode(value)
            case .double(let value): try single.encode(value)
            case .text(let value): try single.encode(value)
            default: try single.encodeNil()
            }
        }
    }
}
