// Base64 (RFC 4648 section 4) without padding, strict on the way in: one text for one sequence of bytes, so that an
// envelope cannot be altered without being noticed.

/// Encoding and decoding without padding.
package enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let values: [UInt8] = {
        var table = [UInt8](repeating: 0xFF, count: 256)
        for (value, character) in alphabet.enumerated() { table[Int(character)] = UInt8(value) }
        return table
    }()

    /// Characters that a number of bytes becomes.
    package static func encodedLength(_ bytes: Int) -> Int { (bytes * 4 + 2) / 3 }

    /// Bytes that fit a number of characters.
    package static func decodedCapacity(_ characters: Int) -> Int { max(characters, 0) * 3 / 4 }

    /// Appends the text of some bytes.
    package static func encode(_ bytes: ArraySlice<UInt8>, into output: inout [UInt8]) {
        var pending: UInt32 = 0
        var bits = 0
        for byte in bytes {
            pending = pending << 8 | UInt32(byte)
            bits += 8
            while bits >= 6 {
                bits -= 6
                output.append(alphabet[Int(pending >> UInt32(bits)) & 0x3F])
            }
        }
        if bits > 0 { output.append(alphabet[Int(pending << UInt32(6 - bits)) & 0x3F]) }
    }

    /// The bytes of a text, or nothing where a character is foreign, the length impossible or a spare bit set.
    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        var output: [UInt8] = []
        output.reserveCapacity(text.count * 3 / 4)
        var pending: UInt32 = 0
        var bits = 0
        for character in text {
            let value = values[Int(character)]
            guard value != 0xFF else { return nil }
            pending = (pending << 6 | UInt32(value)) & 0xFFFF
            bits += 6
            if bits >= 8 {
                bits -= 8
                output.append(UInt8(truncatingIfNeeded: pending >> UInt32(bits)))
            }
        }
        guard pending & ((1 << UInt32(bits)) - 1) == 0 else { return nil }
        return output
    }
}
