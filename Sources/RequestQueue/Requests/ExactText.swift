// Names as those compare them who give them.

/// A text that equals another one where all their bytes are the same. A `String` also equals one that writes a letter in
/// another way, such as with an accent of its own or the sign of Kelvin for a K: for a backend, and for the store, those are
/// two names, and maybe two people.
public struct ExactText: Hashable, Comparable, Sendable, ExpressibleByStringLiteral, CustomStringConvertible {
    /// As it was given.
    public let text: String

    /// A text of which the bytes count.
    public init(_ text: String) {
        var text = text
        text.makeContiguousUTF8()
        self.text = text
    }

    /// A text of which the bytes count.
    public init(stringLiteral text: String) { self.init(text) }

    /// As it was given.
    public var description: String { text }

    /// Whether all bytes are the same.
    public static func == (left: Self, right: Self) -> Bool {
        left.withBytes { left in right.withBytes { $0.count == left.count && $0.elementsEqual(left) } }
    }

    /// Whether the bytes of two texts are the same.
    static func equal(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count && left.utf8.elementsEqual(right.utf8)
    }

    /// In the order of their bytes.
    public static func < (left: Self, right: Self) -> Bool {
        left.text.utf8.lexicographicallyPrecedes(right.text.utf8)
    }

    /// All bytes.
    public func hash(into hasher: inout Hasher) {
        withBytes { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        // No text goes on after another one has ended, because UTF-8 has no such byte.
        hasher.combine(UInt8.max)
    }

    /// As fast as a `String` compares plain letters.
    private func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        guard let result = text.utf8.withContiguousStorageIfAvailable(body) else {
            preconditionFailure("A contiguous text has its bytes at hand.")
        }
        return result
    }
}
