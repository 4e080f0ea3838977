/// One entry of a document's index: a value, or the name of a member, directly before its value. 16 bytes.
///
///     {"a": [1, 2]}     object  name "a"  array  1  2
///
/// The contents of an object or array follow its entry, so that ``next`` skips a whole subtree.
struct JSONEntry: Sendable {
    enum Kind: UInt32 {
        case object, array, string, number, `true`, `false`, null, name
    }

    /// The offset of its first byte from the beginning of the document.
    var start: UInt32
    /// The offset after its last byte.
    var end: UInt32
    /// The entry after this value and its contents. For an open container, the container around it; for a name, the
    /// hash of its unescaped bytes.
    var next: UInt32
    /// Kind, flags, and the number of members or elements.
    private var word: UInt32

    init(_ kind: Kind, start: Int, end: Int = 0, next: UInt32 = 0) {
        self.start = UInt32(truncatingIfNeeded: start)
        self.end = UInt32(truncatingIfNeeded: end)
        self.next = next
        word = kind.rawValue
    }

    /// No entry.
    static let none = UInt32.max

    var kind: Kind { Kind(rawValue: word & 7) ?? .null }
    var range: Range<Int> { Int(start)..<Int(end) }

    /// Whether a string or name contains a backslash.
    var hasEscapes: Bool {
        get { word & 8 != 0 }
        set { word = newValue ? word | 8 : word & ~8 }
    }

    /// Whether a string or name has the escape of half a surrogate pair, which no text encoding allows.
    var hasLoneSurrogate: Bool {
        get { word & 16 != 0 }
        set { word = newValue ? word | 16 : word & ~16 }
    }

    /// Whether an object has two members with the same name.
    var hasDuplicateNames: Bool {
        get { word & 32 != 0 }
        set { word = newValue ? word | 32 : word & ~32 }
    }

    /// The number of members of an object or elements of an array.
    var count: Int { Int(word >> 8) }

    /// Whether it is a string, array or object that is not empty.
    var mayHoldText: Bool {
        switch kind {
        case .object, .array: count > 0
        case .string: range.count > 2
        case .number, .true, .false, .null, .name: false
        }
    }

    mutating func countOne() { word += 1 << 8 }
}
