import Foundation

/// A JSON document as tests and their servers handle it: any names, read with a subscript.
///
/// It shares nothing with the codec of the gateway, which it judges.
package enum JSONValue: Codable, Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int)
    case double(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    package init(_ bytes: some Sequence<UInt8>) throws {
        self = try JSONDecoder().decode(JSONValue.self, from: Data(bytes))
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .double(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([JSONValue].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .double(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }

    /// In one line, names in order of the alphabet.
    package var bytes: [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Only a number that is none cannot be written, and there is no way to say one in JSON.
        return (try? encoder.encode(self)).map(Array.init) ?? Array("null".utf8)
    }

    package var string: String? { if case .string(let value) = self { value } else { nil } }
    package var integer: Int? { if case .integer(let value) = self { value } else { nil } }
    package var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
    /// Its elements; none where it is no array.
    package var array: [JSONValue] { if case .array(let value) = self { value } else { [] } }
    /// Its members; none where it is no object.
    package var object: [String: JSONValue] { if case .object(let value) = self { value } else { [:] } }

    /// A member of an object, in its place; null where there is none. Writing null takes it out.
    package subscript(_ name: String) -> JSONValue {
        get { object[name] ?? .null }
        set {
            var members = object
            members[name] = newValue == .null ? nil : newValue
            self = .object(members)
        }
    }

    /// An element of an array; null where there is none.
    package subscript(_ index: Int) -> JSONValue {
        let elements = array
        return elements.indices.contains(index) ? elements[index] : .null
    }
}

extension JSONValue: CustomStringConvertible {
    package var description: String { String(decoding: bytes, as: UTF8.self) }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    package init(stringLiteral value: String) { self = .string(value) }
    package init(integerLiteral value: Int) { self = .integer(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
    package init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
    package init(dictionaryLiteral elements: (String, JSONValue)...) {
        self = .object(Dictionary(elements) { $1 })
    }
}
