// Reads binary forms from the front. Missing bytes are an error, never a default.

/// A read position in an array of bytes.
package struct ByteCursor {
    private let bytes: [UInt8]
    private var position = 0

    package init(_ bytes: [UInt8]) { self.bytes = bytes }

    package var isAtEnd: Bool { position == bytes.count }

    /// Reads the next bytes.
    ///
    /// - Throws: ``EnvelopeError/malformed`` if fewer bytes are left, as all methods that read.
    package mutating func take(_ count: Int) throws(EnvelopeError) -> [UInt8] {
        guard count >= 0, count <= bytes.count - position else { throw .malformed }
        defer { position += count }
        return Array(bytes[position..<(position + count)])
    }

    package mutating func byte() throws(EnvelopeError) -> UInt8 { UInt8(try number(1)) }

    /// A number of two bytes, big-endian.
    package mutating func uint16() throws(EnvelopeError) -> Int { Int(try number(2)) }

    package mutating func uint32() throws(EnvelopeError) -> UInt32 { UInt32(try number(4)) }

    package mutating func uint64() throws(EnvelopeError) -> UInt64 { try number(8) }

    private mutating func number(_ count: Int) throws(EnvelopeError) -> UInt64 {
        guard count <= bytes.count - position else { throw .malformed }
        var number: UInt64 = 0
        for _ in 0..<count {
            number = number << 8 | UInt64(bytes[position])
            position += 1
        }
        return number
    }

    /// Reads bytes after their length of two bytes, big-endian.
    package mutating func field() throws(EnvelopeError) -> [UInt8] { try take(try uint16()) }

    /// Whether all remaining bytes are zero.
    package var isZeroToTheEnd: Bool {
        var found: UInt8 = 0
        for index in position..<bytes.count { found |= bytes[index] }
        return found == 0
    }

    /// Reads all remaining bytes.
    package mutating func rest() -> [UInt8] {
        defer { position = bytes.count }
        return Array(bytes[position...])
    }
}

extension [UInt8] {
    package mutating func append(bigEndian value: UInt32) {
        for shift in stride(from: 24, through: 0, by: -8) { append(UInt8(truncatingIfNeeded: value >> UInt32(shift))) }
    }

    /// Appends bytes after their length of two bytes, big-endian.
    package mutating func append(field bytes: [UInt8]) {
        append(UInt8(truncatingIfNeeded: bytes.count >> 8))
        append(UInt8(truncatingIfNeeded: bytes.count))
        append(contentsOf: bytes)
    }
}
