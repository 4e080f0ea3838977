/// The body of a request.
public enum RequestBody: Hashable, Sendable {
    /// Sent as it is; nothing in it is resolved.
    case rawData([UInt8])
    /// Sent as `application/x-www-form-urlencoded`.
    case formURLEncoded(Parameters)
    /// Sent as `application/json`; references anywhere in it are resolved.
    case json(JSONValue)

    var references: [EntityReference] {
        switch self {
        case .rawData: []
        case .formURLEncoded(let form): form.references
        case .json(let value): value.references
        }
    }
}

/// A JSON document (RFC 8259) whose strings may stand for entities that have no remote identifier yet.
public indirect enum JSONValue: Hashable, Sendable {
    case null
    case bool(Bool)
    /// The digits as they are to be written.
    case number(String)
    case string(String)
    /// Written as a string: the entity's remote identifier.
    case reference(EntityReference)
    case array([JSONValue])
    case object([Member])

    /// A name and its value.
    public struct Member: Hashable, Sendable, Codable {
        /// Its name.
        public var name: String
        /// Its value.
        public var value: JSONValue

        /// A name with its value.
        public init(_ name: String, _ value: JSONValue) { (self.name, self.value) = (name, value) }
    }

    /// Maximum nesting of arrays and objects. A request with deeper ones is refused.
    public static let maximumDepth = 64

    var references: [EntityReference] {
        switch self {
        case .reference(let reference): [reference]
        case .array(let values): values.flatMap(\.references)
        case .object(let members): members.flatMap(\.value.references)
        case .null, .bool, .number, .string: []
        }
    }

    /// Whether its nesting is within the limit.
    func isShallow(_ left: Int = maximumDepth) -> Bool {
        switch self {
        case .array(let values): left > 0 && values.allSatisfy { $0.isShallow(left - 1) }
        case .object(let members): left > 0 && members.allSatisfy { $0.value.isShallow(left - 1) }
        case .null, .bool, .number, .string, .reference: true
        }
    }
}

extension JSONValue: ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral,
    ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral, ExpressibleByNilLiteral
{
    /// A string.
    public init(stringLiteral value: String) { self = .string(value) }
    /// A number, in decimal digits.
    public init(integerLiteral value: Int) { self = .number(String(value)) }
    /// `true` or `false`.
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    /// An array.
    public init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
    /// An object, its members in the order of the literal.
    public init(dictionaryLiteral elements: (String, JSONValue)...) {
        self = .object(elements.map { Member($0.0, $0.1) })
    }
    /// `null`.
    public init(nilLiteral: ()) { self = .null }
}
