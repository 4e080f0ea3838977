import NIOCore

/// What the clients say: 100 bytes, of them ten digits, a space and filler.
enum LoadText {
    static let length = 100
    private static let digits = 10
    private static let filler = UInt8(ascii: "x")
    /// As much filler as no Base64 has at its end by chance.
    private static let plainMark = 24

    /// Writes the text with the number zero.
    static func writeFirst(to buffer: inout ByteBuffer) {
        buffer.writeRepeatingByte(UInt8(ascii: "0"), count: self.digits)
        buffer.writeStaticString(" ")
        buffer.writeRepeatingByte(self.filler, count: self.length - self.digits - 1)
    }

    /// Puts a number into a text whose number was zero.
    static func setNumber(_ number: UInt64, in buffer: inout ByteBuffer, at index: Int) {
        var rest = number
        for place in (0..<self.digits).reversed() where rest > 0 {
            buffer.setInteger(UInt8(48 + rest % 10), at: index + place)
            rest /= 10
        }
    }

    /// The number of a text, or `nil` where it is another text.
    static func number(_ text: UnsafeRawBufferPointer) -> UInt64? {
        guard text.count == self.length else { return nil }
        var number: UInt64 = 0
        for byte in text.prefix(self.digits) {
            guard (48...57).contains(byte) else { return nil }
            number = number * 10 + UInt64(byte - 48)
        }
        return number
    }

    /// Whether the text can be read as it was said, whatever stands in front of it.
    static func isPlain(_ text: UnsafeRawBufferPointer) -> Bool {
        text.count >= self.plainMark && text.suffix(self.plainMark).allSatisfy { $0 == self.filler }
    }
}
