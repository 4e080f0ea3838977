/// The query of a request, in form encoding: `since=s1&name=a+b`.
///
/// A repeated name is ambiguous, because backends differ in which value they use. The whole query is ambiguous if
/// backends could split it differently.
package struct RequestQuery: Equatable, Sendable {
    package enum Value: Equatable, Sendable {
        case absent
        case single(String)
        /// The name is repeated, or backends could decode the value or the query differently.
        case ambiguous
    }

    /// Ours: maximum pairs of a query, because a lookup reads all of them.
    package static let pairLimit = 256

    private var pairs: [(name: String, value: String?)] = []
    /// The query cannot be parsed, so every value is ambiguous.
    private var isOpaque = false

    package static func == (left: Self, right: Self) -> Bool {
        left.isOpaque == right.isOpaque && left.pairs.elementsEqual(right.pairs) { $0 == $1 }
    }

    /// - Parameter text: the query after the question mark, still percent-encoded; nil if there is none.
    package init(_ text: Substring?) {
        guard let text, !text.isEmpty else { return }
        // Some backends read a semicolon as an ampersand.
        guard text.utf8.allSatisfy({ 0x21...0x7E ~= $0 && $0 != UInt8(ascii: ";") && $0 != UInt8(ascii: "#") }) else {
            isOpaque = true
            return
        }
        for part in text.utf8.split(separator: UInt8(ascii: "&")) {
            guard pairs.count < Self.pairLimit else {
                isOpaque = true
                return
            }
            let equals = part.firstIndex(of: UInt8(ascii: "="))
            guard let name = Self.decode(part[..<(equals ?? part.endIndex)]) else {
                isOpaque = true
                return
            }
            pairs.append((name, equals.map { Self.decode(part[part.index(after: $0)...]) } ?? ""))
        }
    }

    package subscript(_ name: String) -> Value {
        guard !isOpaque else { return .ambiguous }
        var value = Value.absent
        for pair in pairs where pair.name == name {
            guard value == .absent, let text = pair.value else { return .ambiguous }
            value = .single(text)
        }
        return value
    }

    private static func decode(_ part: Substring.UTF8View) -> String? {
        PercentCoding.decode(part.map { $0 == UInt8(ascii: "+") ? 0x20 : $0 }).flatMap {
            String(validating: $0, as: UTF8.self)
        }
    }
}
