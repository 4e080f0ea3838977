// Names that are compared as a backend and a store compare them.

/// A text that is compared byte by byte.
///
/// Two different strings can be equal as `String`: a letter with a combining accent and its precomposed form, or the
/// sign of Kelvin and a K. For a backend, and for the store, those are two names, and maybe two people.
public struct ExactText: Hashable, Comparable, Sendable, ExpressibleByStringLiteral, CustomStringConvertible {
    /// As it was given.
    public let text: String

    /// Wraps a text.
    public init(_ text: String) {
        var text = text
        text.makeContiguousUTF8()
        self.text = text
    }

    /// Wraps a literal.
    public init(stringLiteral text: String) { self.init(text) }

    /// As it was given.
    public var description: String { text }

    /// Whether all bytes are the same.
    public static func == (left: Self, right: Self) -> Bool {
        left.withBytes { left in right.withBytes { UnsafeRawBufferPointer($0).isSame(as: UnsafeRawBufferPointer(left)) }
        }
    }

    /// Whether the bytes of two texts are the same.
    static func equal(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count && left.utf8.elementsEqual(right.utf8)
    }

    /// In the order of their bytes.
    public static func < (left: Self, right: Self) -> Bool {
        left.text.utf8.lexicographicallyPrecedes(right.text.utf8)
    }

    /// Hashes all bytes.
    public func hash(into hasher: inout Hasher) {
        withBytes { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        // This byte ends the text: UTF-8 never has it, so no text continues another one.
        hasher.combine(UInt8.max)
    }

    /// Gives access to the bytes, as fast as a `String` compares ASCII.
    private func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        guard let result = text.utf8.withContiguousStorageIfAvailable(body) else {
            preconditionFailure("A contiguous text has its bytes at hand.")
        }
        return result
    }
}

extension UnsafeRawBufferPointer {
    /// Whether two buffers have the same bytes. Compares eight at a time, because it runs for each lookup of a name.
    package func isSame(as other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        var offset = 0
        while offset + 8 <= count {
            guard
                loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                    == other.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
            else { return false }
            offset += 8
        }
        return self[offset...].elementsEqual(other[offset...])
    }
}
