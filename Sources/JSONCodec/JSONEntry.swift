/// One entry of a document's index: a value, or the name of a member, which stands in front of its value. 16 bytes.
///
///     {"a": [1, 2]}     object  name "a"  array  1  2
///
/// An object's or array's entry is followed by all that is in it, so that ``next`` skips a whole subtree.
struct JSONEntry: Sendable {
    enum Kind: UInt32 {
        case object, array, string, number, `true`, `false`, null, name
    }

    /// The first byte of it, in bytes from the beginning of the document.
    var start: UInt32
    /// Behind its last byte.
    var end: UInt32
    /// The entry behind this value and all that is in it; while a container is open, the container around it; of a
    /// name, the hash of its unescaped bytes.
    var next: UInt32
    /// Kind, marks, and the number of members or elements.
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

    /// A string or name that holds a backslash.
    var hasEscapes: Bool {
        get { word & 8 != 0 }
        set { word = newValue ? word | 8 : word & ~8 }
    }

    /// A string or name that escapes one half of a surrogate pair alone, which is no text in any encoding.
    var hasLoneSurrogate: Bool {
        get { word & 16 != 0 }
        set { word = newValue ? word | 16 : word & ~16 }
    }

    /// An object that names two of its members alike.
    var hasDuplicateNames: Bool {
        get { word & 32 != 0 }
        set { word = newValue ? word | 32 : word & ~32 }
    }

    /// Members of an object, elements of an array.
    var count: Int { Int(word >> 8) }

    mutating func countOne() { word += 1 << 8 }
}
