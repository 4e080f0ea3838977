extension JSONScanner {
    /// Section 7: checks the bytes of a string or name and returns its entry.
    mutating func string(_ kind: JSONEntry.Kind) throws(JSONError) -> JSONEntry {
        var entry = JSONEntry(kind, start: position)
        position += 1
        while true {
            position = JSONWord.skipPlain(bytes, from: position)
            guard position < bytes.count else { throw JSONError(.endsEarly, at: position) }
            switch bytes[position] {
            case UInt8(ascii: "\""):
                position += 1
                entry.end = UInt32(truncatingIfNeeded: position)
                guard entry.range.count - 2 <= limits.stringLength else {
                    throw JSONError(.stringTooLong, at: Int(entry.start))
                }
                return entry
            case UInt8(ascii: "\\"):
                entry.hasEscapes = true
                if try escape() { entry.hasLoneSurrogate = true }
            case 0..<0x20: throw JSONError(.controlCharacter, at: position)
            case 0x20..<0x80: position += 1
            default: try sequence()
            }
        }
    }

    /// Scans one escape, or the two escapes of a surrogate pair.
    ///
    /// - Returns: whether it is half a surrogate pair without its other half.
    private mutating func escape() throws(JSONError) -> Bool {
        guard position + 1 < bytes.count else { throw JSONError(.endsEarly, at: bytes.count) }
        switch bytes[position + 1] {
        case UInt8(ascii: "u"): break
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            position += 2
            return false
        default: throw JSONError(.invalidEscape, at: position)
        }
        for index in (position + 2)..<(position + 6) {
            guard index < bytes.count else { throw JSONError(.endsEarly, at: bytes.count) }
            guard JSONEscape.digit(bytes[index]) != nil else { throw JSONError(.invalidEscape, at: position) }
        }
        let value = JSONEscape.fourDigits(bytes, at: position + 2) ?? 0
        position += 6
        guard 0xD800..<0xE000 ~= value else { return false }
        guard JSONEscape.lowHalf(behind: value, in: bytes, at: position, end: bytes.count) != nil else { return true }
        position += 6
        return false
    }

    /// Checks one non-ASCII UTF-8 sequence: RFC 3629 section 4.
    private mutating func sequence() throws(JSONError) {
        let first = bytes[position]
        let (length, second): (Int, ClosedRange<UInt8>)
        switch first {
        case 0xC2...0xDF: (length, second) = (2, 0x80...0xBF)
        case 0xE0: (length, second) = (3, 0xA0...0xBF)
        case 0xED: (length, second) = (3, 0x80...0x9F)
        case 0xE1...0xEF: (length, second) = (3, 0x80...0xBF)
        case 0xF0: (length, second) = (4, 0x90...0xBF)
        case 0xF1...0xF3: (length, second) = (4, 0x80...0xBF)
        case 0xF4: (length, second) = (4, 0x80...0x8F)
        default: throw JSONError(.invalidUTF8, at: position)
        }
        for index in 1..<length {
            guard position + index < bytes.count else { throw JSONError(.endsEarly, at: bytes.count) }
            guard (index == 1 ? second : 0x80...0xBF) ~= bytes[position + index] else {
                throw JSONError(.invalidUTF8, at: position)
            }
        }
        position += length
    }
}

/// Tests on eight bytes at once.
enum JSONWord {
    private static func all(_ byte: UInt8) -> UInt64 { 0x0101_0101_0101_0101 &* UInt64(byte) }

    /// Marks bytes that are not plain: quote, backslash, control character or not ASCII. The lowest set bit is the
    /// highest bit of the first such byte; the bits above it are undefined.
    static func special(_ loaded: UInt64) -> UInt64 {
        let word = UInt64(littleEndian: loaded)
        let quote = word ^ all(UInt8(ascii: "\""))
        let backslash = word ^ all(UInt8(ascii: "\\"))
        let control = (word &- all(0x20)) & ~word
        return (((quote &- all(1)) & ~quote) | ((backslash &- all(1)) & ~backslash) | control | word) & all(0x80)
    }

    /// Skips ASCII except quotes, backslashes and control characters, eight bytes at a time.
    ///
    /// - Returns: the place of the first byte that is not plain, or one with fewer than eight bytes behind it.
    @inline(__always)
    static func skipPlain(_ bytes: UnsafeRawBufferPointer, from start: Int) -> Int {
        var position = start
        while position + 8 <= bytes.count {
            let found = special(bytes.loadUnaligned(fromByteOffset: position, as: UInt64.self))
            guard found == 0 else { return position + found.trailingZeroBitCount / 8 }
            position += 8
        }
        return position
    }
}
