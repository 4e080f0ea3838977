// Field values are bytes, most of them ASCII. Here they are `String`s, and the same bytes have to come out again.

package import NIOCore

/// Field values, targets and reason phrases as text.
///
/// What is UTF-8 is that text. In any other value each byte `xx` from 80 on becomes the private character U+F7xx, as Python's
/// `surrogateescape` does it with surrogates, which a `String` cannot hold. A value that holds such characters by itself
/// is written that way too, so that every value comes out as it went in.
package enum FieldText {
    private static let escapes: ClosedRange<UInt32> = 0xF780...0xF7FF

    /// - Parameter isASCII: whether the caller knows that it is.
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

    /// Whether a value is UTF-8 as it stands, without control characters.
    package static func isText(_ value: String) -> Bool {
        value.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F && !escapes.contains($0.value) }
    }

    /// Writes a text's bytes. A character that would end the line becomes a space: no value can forge a field.
    package static func write(_ text: String, to buffer: inout ByteBuffer) {
        let isPlain = text.utf8.withContiguousStorageIfAvailable { bytes in
            // EF begins the private characters, among others.
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

    /// A text for who takes nothing but Unicode: bytes that are no UTF-8 are read as ISO 8859-1, which they were once.
    static func unicode(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: { escapes.contains($0.value) }) else { return text }
        var bytes = ByteBuffer()
        write(text, to: &bytes)
        return String(validating: bytes.readableBytesView, as: UTF8.self)
            ?? String(String.UnicodeScalarView(bytes.readableBytesView.map { Unicode.Scalar($0) }))
    }
}
