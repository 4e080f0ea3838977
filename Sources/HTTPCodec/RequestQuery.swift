/// The query of a request, as forms write it: `since=s1&name=a+b`. A name that stands twice says nothing, because
/// backends differ in which of the two they read; nor does anything in a query that they take apart differently.
package struct RequestQuery: Equatable, Sendable {
    package enum Value: Equatable, Sendable {
        case absent
        case says(String)
        /// It is said twice, or not in a way that everybody reads alike.
        case ambiguous
    }

    /// Ours: pairs of a query. Looking one up reads them all.
    package static let pairLimit = 256

    private var pairs: [(name: String, value: String?)] = []
    /// Nobody knows what is in it.
    private var isOpaque = false

    package static func == (left: Self, right: Self) -> Bool {
        left.isOpaque == right.isOpaque && left.pairs.elementsEqual(right.pairs) { $0 == $1 }
    }

    /// - Parameter text: what stands behind the question mark, still percent-encoded.
    package init(_ text: Substring?) {
        guard let text, !text.isEmpty else { return }
        // some backends take a semicolon for an ampersand
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
            value = .says(text)
        }
        return value
    }

    private static func decode(_ part: Substring.UTF8View) -> String? {
        PercentCoding.decode(part.map { $0 == UInt8(ascii: "+") ? 0x20 : $0 }).flatMap {
            String(validating: $0, as: UTF8.self)
        }
    }
}
