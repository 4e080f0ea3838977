/// A list of names and values in the order in which they were given: a query, headers, or a form.
public struct Parameters: Hashable, Sendable, ExpressibleByDictionaryLiteral {
    /// A name and its value.
    public struct Item: Hashable, Sendable, Codable {
        /// Its name.
        public var name: String
        /// Its value.
        public var value: ParameterValue

        /// A name with its value.
        public init(name: String, value: ParameterValue) { (self.name, self.value) = (name, value) }
    }

    /// The names and values.
    public var items: [Item]

    /// Parameters in the order in which they are sent.
    public init(_ items: [Item] = []) { self.items = items }

    /// Parameters from a literal. Nil values are left out.
    public init(dictionaryLiteral elements: (String, ParameterValue?)...) {
        items = elements.compactMap { name, value in value.map { Item(name: name, value: $0) } }
    }

    /// Whether there are none.
    public var isEmpty: Bool { items.isEmpty }

    /// The entities that they name.
    public var references: [EntityReference] { items.flatMap(\.value.references) }
}

/// The value of a parameter.
public enum ParameterValue: Hashable, Sendable, ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral {
    case text(String)
    /// The entity's remote identifier, filled in when the request is sent.
    case reference(EntityReference)
    /// Several values of one name, written as `name[]=value` in a query or a form, and with commas in a header.
    case list([Element])

    /// One of several values.
    public enum Element: Hashable, Sendable {
        case text(String)
        case reference(EntityReference)
    }

    /// A text.
    public init(stringLiteral value: String) { self = .text(value) }
    /// A number, in decimal digits.
    public init(integerLiteral value: Int) { self = .text(String(value)) }

    /// The values, one or several.
    var elements: [Element] {
        switch self {
        case .text(let text): [.text(text)]
        case .reference(let reference): [.reference(reference)]
        case .list(let elements): elements
        }
    }

    var isList: Bool {
        if case .list = self { return true }
        return false
    }

    var references: [EntityReference] {
        elements.compactMap { element in
            if case .reference(let reference) = element { return reference }
            return nil
        }
    }
}
