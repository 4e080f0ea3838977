// Verbs as two machine words, so that looking one up costs no allocation and no string comparison.

/// An upper-cased verb of at most sixteen bytes, or a numeric of three digits.
package struct VerbKey: Hashable, Sendable {
    private var high: UInt64 = 0
    private var low: UInt64 = 0

    init() {}

    /// The key of a verb in raw bytes: ASCII letters of either case, or three digits. Anything else has none.
    init?(_ raw: Slice<UnsafeRawBufferPointer>) {
        guard !raw.isEmpty, raw.count <= IRCLimits.verbLength else { return nil }
        var digits = 0
        for (offset, byte) in raw.enumerated() {
            let folded: UInt8
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"): folded = byte - 0x20
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): folded = byte
            case UInt8(ascii: "0")...UInt8(ascii: "9"):
                folded = byte
                digits += 1
            default: return nil
            }
            push(folded, at: offset)
        }
        guard digits == 0 || (digits == 3 && raw.count == 3) else { return nil }
    }

    /// The key of a verb that the code names.
    package init(_ verb: String) {
        for (offset, byte) in verb.utf8.prefix(IRCLimits.verbLength).enumerated() { push(byte, at: offset) }
    }

    private mutating func push(_ byte: UInt8, at offset: Int) {
        if offset < 8 {
            high |= UInt64(byte) << UInt64(8 * offset)
        } else {
            low |= UInt64(byte) << UInt64(8 * (offset - 8))
        }
    }

    /// The numeric that this key stands for, or nothing when it is a verb.
    package var numeric: Int? {
        guard low == 0, high < 1 << 24 else { return nil }
        let digits = (0..<3).map { Int((high >> UInt64(8 * $0)) & 0xFF) - 0x30 }
        guard digits.allSatisfy({ (0...9).contains($0) }) else { return nil }
        return digits[0] * 100 + digits[1] * 10 + digits[2]
    }
}
