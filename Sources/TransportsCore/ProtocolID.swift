/// The name of a protocol that services offer, such as `chat.example/1`.
///
/// It selects the service on the other side and is compared byte for byte.
public struct ProtocolID: Hashable, Sendable, Codable, ExpressibleByStringLiteral, CustomStringConvertible {
    /// Ours: upper bound of a name in bytes of UTF-8. It is part of the first frame, which a stranger may send.
    public static let sizeLimit = 128

    /// The name.
    public let name: String

    /// - Parameter name: 1 to ``sizeLimit`` bytes of UTF-8. Connections with a longer or empty name are refused.
    public init(_ name: String) { self.name = name }

    /// A name as a literal.
    public init(stringLiteral value: String) { name = value }

    /// Reads the name as a string.
    public init(from decoder: any Decoder) throws { name = try decoder.singleValueContainer().decode(String.self) }

    /// Writes the name as a string.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(name)
    }

    /// The name.
    public var description: String { name }

    package var isAllowed: Bool { (1...Self.sizeLimit).contains(name.utf8.count) }
}
