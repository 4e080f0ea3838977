/// The unescaped bytes of a string (RFC 8259 section 7) that the scanner has accepted.
///
/// Half a surrogate pair yields the three bytes that UTF-8 would have for it if it were allowed: usable for comparison,
/// never for output.
struct JSONTextBytes: IteratorProtocol, Sequence {
    private let bytes: UnsafeRawBufferPointer
    private var position: Int
    private let end: Int
    /// Remaining bytes of an escape, the next one lowest.
    private var waiting: UInt32 = 0

    /// - Parameter range: the string with its quotes.
    init(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) {
        self.bytes = bytes
        position = range.lowerBound + 1
        end = range.upperBound - 1
    }

    mutating func next() -> UInt8? {
        if waiting != 0 {
            let byte = UInt8(truncatingIfNeeded: waiting)
            waiting >>= 8
            return byte
        }
        guard position < end else { return nil }
        let byte = bytes[position]
        guard byte == UInt8(ascii: "\\") else {
            position += 1
            return byte
        }
        let kind = bytes[position + 1]
        position += 2
        switch kind {
        case UInt8(ascii: "b"): return 0x08
        case UInt8(ascii: "f"): return 0x0C
        case UInt8(ascii: "n"): return 0x0A
        case UInt8(ascii: "r"): return 0x0D
        case UInt8(ascii: "t"): return 0x09
        case UInt8(ascii: "u"): return codePoint()
        default: return kind
        }
    }

    private mutating func codePoint() -> UInt8 {
        var value = JSONEscape.fourDigits(bytes, at: position) ?? 0
        position += 4
        if let low = JSONEscape.lowHalf(behind: value, in: bytes, at: position, end: end) {
            value = 0x10000 + (value - 0xD800) << 10 + (low - 0xDC00)
            position += 6
        }
        switch value {
        case ..<0x80: return UInt8(truncatingIfNeeded: value)
        case ..<0x800:
            waiting = 0x80 | value & 0x3F
            return UInt8(truncatingIfNeeded: 0xC0 | value >> 6)
        case ..<0x10000:
            waiting = 0x80 | value >> 6 & 0x3F | (0x80 | value & 0x3F) << 8
            return UInt8(truncatingIfNeeded: 0xE0 | value >> 12)
        default:
            waiting = 0x80 | value >> 12 & 0x3F | (0x80 | value >> 6 & 0x3F) << 8 | (0x80 | value & 0x3F) << 16
            return UInt8(truncatingIfNeeded: 0xF0 | value >> 18)
        }
    }
}

/// Decodes `\uXXXX` and pairs of them.
enum JSONEscape {
    /// Decodes four hexadecimal digits; nil if they are not. The caller must ensure that four bytes exist.
    static func fourDigits(_ bytes: UnsafeRawBufferPointer, at position: Int) -> UInt32? {
        var value: UInt32 = 0
        for index in position..<(position + 4) {
            guard let digit = digit(bytes[index]) else { return nil }
            value = value << 4 | digit
        }
        return value
    }

    static func digit(_ byte: UInt8) -> UInt32? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(byte) - 0x30
        case UInt8(ascii: "a")...UInt8(ascii: "f"): UInt32(byte) - 0x61 + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): UInt32(byte) - 0x41 + 10
        default: nil
        }
    }

    /// The second half of a surrogate pair; nil if `value` is not a first half that a second one follows.
    static func lowHalf(
        behind value: UInt32, in bytes: UnsafeRawBufferPointer, at position: Int, end: Int
    ) -> UInt32? {
        guard 0xD800..<0xDC00 ~= value, position + 6 <= end, bytes[position] == UInt8(ascii: "\\"),
            bytes[position + 1] == UInt8(ascii: "u"), let low = fourDigits(bytes, at: position + 2),
            0xDC00..<0xE000 ~= low
        else { return nil }
        return low
    }
}
