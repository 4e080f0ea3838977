// Base64 (RFC 4648 section 4) without padding. Decoding is strict: each byte sequence has one text, so that an altered
// envelope is detected.

/// Encoding and decoding without padding.
package enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let values: [UInt8] = {
        var table = [UInt8](repeating: 0xFF, count: 256)
        for (value, character) in alphabet.enumerated() { table[Int(character)] = UInt8(value) }
        return table
    }()

    /// The number of characters that encode a number of bytes.
    package static func encodedLength(_ bytes: Int) -> Int { (bytes * 4 + 2) / 3 }

    /// The number of bytes that a number of characters can hold.
    package static func decodedCapacity(_ characters: Int) -> Int { max(characters, 0) * 3 / 4 }

    /// Appends the encoding of bytes.
    package static func encode(_ bytes: ArraySlice<UInt8>, into output: inout [UInt8]) {
        let alphabet = alphabet
        let bytes = bytes.span
        output += [UInt8](unsafeUninitializedCapacity: encodedLength(bytes.count)) { text, count in
            var place = 0
            while place + 3 <= bytes.count {
                let group = UInt32(bytes[place]) << 16 | UInt32(bytes[place + 1]) << 8 | UInt32(bytes[place + 2])
                text[count] = alphabet[Int(group >> 18)]
                text[count + 1] = alphabet[Int(group >> 12) & 0x3F]
                text[count + 2] = alphabet[Int(group >> 6) & 0x3F]
                text[count + 3] = alphabet[Int(group) & 0x3F]
                (place, count) = (place + 3, count + 4)
            }
            // One or two remaining bytes become two or three characters, the last with spare bits of zero.
            var rest: UInt32 = 0
            var bits: UInt32 = 0
            while place < bytes.count {
                rest = rest << 8 | UInt32(bytes[place])
                (place, bits) = (place + 1, bits + 8)
            }
            while bits > 0 {
                text[count] = alphabet[Int(bits < 6 ? rest << (6 - bits) : rest >> (bits - 6)) & 0x3F]
                (count, bits) = (count + 1, bits < 6 ? 0 : bits - 6)
            }
        }
    }

    /// The encoding of bytes as a text.
    package static func text(_ bytes: [UInt8]) -> String {
        var output: [UInt8] = []
        encode(bytes[...], into: &output)
        return String(decoding: output, as: UTF8.self)
    }

    /// Decodes a text; nil if it has a foreign character, an impossible length or a spare bit set.
    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        // Copied into an array: unspecialised code would otherwise call the collection for each character.
        decode(Array(text))
    }

    private static func decode(_ text: [UInt8]) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        let values = values
        var isGood = true
        let output = [UInt8](unsafeUninitializedCapacity: decodedCapacity(text.count)) { bytes, count in
            var place = 0
            // A foreign character has bits that no valid value has.
            var foreign: UInt8 = 0
            while place + 4 <= text.count {
                let (first, second) = (values[Int(text[place])], values[Int(text[place + 1])])
                let (third, fourth) = (values[Int(text[place + 2])], values[Int(text[place + 3])])
                foreign |= first | second | third | fourth
                bytes[count] = first << 2 | second >> 4
                bytes[count + 1] = second << 4 | third >> 2
                bytes[count + 2] = third << 6 | fourth
                (place, count) = (place + 4, count + 3)
            }
            var rest: UInt32 = 0
            var bits: UInt32 = 0
            while place < text.count {
                let value = values[Int(text[place])]
                foreign |= value
                rest = rest << 6 | UInt32(value & 0x3F)
                (place, bits) = (place + 1, bits + 6)
                guard bits >= 8 else { continue }
                bits -= 8
                bytes[count] = UInt8(truncatingIfNeeded: rest >> bits)
                count += 1
            }
            isGood = foreign & 0xC0 == 0 && rest & ((1 << bits) - 1) == 0
        }
        return isGood ? output : nil
    }
}
