// Converts field values between bytes and `String`s without loss. Most values are ASCII.

package import NIOCore

/// Field values, targets and reason phrases as text.
///
/// A value in UTF-8 is decoded as such. In any other value each byte `xx` from 80 on becomes the private character
/// U+F7xx. Python's `surrogateescape` uses surrogates for this, which a `String` cannot contain. A value that already
/// contains such private characters is escaped too, so that every value is written back byte by byte.
package enum FieldText {
    private static let escapes: ClosedRange<UInt32> = 0xF780...0xF7FF

    /// Decodes a value.
    ///
    /// - Parameter isASCII: whether the caller knows that the bytes are ASCII.
    package static func read(_ bytes: UnsafeRawBufferPointer, isASCII: Bool) -> String {
        if isASCII { return String(decoding: bytes, as: UTF8.self) }
        if let text = String(validating: bytes, as: UTF8.self),
            !text.unicodeScalars.contains(where: { escapes.contains($0.value) })
        {
            return text
        }
        var text = String.UnicodeScalarView()
        for byte in bytes {
            text.append(byte < 0x80 ? Unicode.Scalar(byte) : Unicode.Scalar(0xF700 + UInt16(byte)) ?? " ")
        }
        return String(text)
    }

    /// Whether a value was UTF-8 and has no control characters.
    package static func isText(_ value: String) -> Bool {
        value.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F && !escapes.contains($0.value) }
    }

    /// Writes a text's bytes. Control characters below U+0020, except the tab, become spaces: no value forges a field.
    package static func write(_ text: String, to buffer: inout ByteBuffer) {
        let isPlain = text.utf8.withContiguousStorageIfAvailable { bytes in
            // 0xEF is the first byte of the private characters, and of others.
            bytes.allSatisfy { $0 != 0xEF && ($0 >= 0x20 || $0 == 0x09) }
        }
        if isPlain == true {
            buffer.writeString(text)
            return
        }
        for scalar in text.unicodeScalars {
            if escapes.contains(scalar.value) {
                buffer.writeInteger(UInt8(scalar.value - 0xF700))
            } else if scalar.value < 0x20, scalar != "\t" {
                buffer.writeInteger(UInt8(ascii: " "))
            } else {
                buffer.writeBytes(UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter)
            }
        }
    }

    /// Returns the text without escapes: a value that was not UTF-8 is decoded as ISO 8859-1, HTTP's former encoding.
    static func unicode(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: { escapes.contains($0.value) }) else { return text }
        var bytes = ByteBuffer()
        write(text, to: &bytes)
        return String(validating: bytes.readableBytesView, as: UTF8.self)
            ?? String(String.UnicodeScalarView(bytes.readableBytesView.map { Unicode.Scalar($0) }))
    }
}
