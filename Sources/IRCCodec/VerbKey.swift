// Verbs as two machine words, so that a lookup costs no allocation and no string comparison.

/// An upper-case verb of at most sixteen bytes, or a numeric of three digits.
package struct VerbKey: Hashable, Sendable {
    private var high: UInt64 = 0
    private var low: UInt64 = 0

    package init() {}

    /// The key of a verb in raw bytes: ASCII letters of either case, or three digits; nil for anything else.
    package init?(_ raw: UnsafeRawBufferPointer, _ range: Range<Int>) {
        guard !range.isEmpty, range.count <= IRCLimits.verbLength else { return nil }
        var digits = 0
        for offset in 0..<range.count {
            let byte = raw[range.lowerBound + offset]
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
        guard digits == 0 || (digits == 3 && range.count == 3) else { return nil }
    }

    /// The key of a verb that is a constant in the code, in upper case.
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

    /// The numeric of this key; nil if it is a verb.
    package var numeric: Int? {
        guard low == 0, high < 1 << 24 else { return nil }
        var number = 0
        for place in 0..<3 {
            let digit = Int((high >> UInt64(8 * place)) & 0xFF) - 0x30
            guard (0...9).contains(digit) else { return nil }
            number = number * 10 + digit
        }
        return number
    }
}
