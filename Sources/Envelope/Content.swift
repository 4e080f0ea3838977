// The plaintext in a carrier without lines. No line length hides the length there, so the plaintext is padded.

/// The plaintext of an envelope without lines:
///
///     3 (1 B) | length (4 B, big-endian) | bytes | zeros ...
///
/// The first byte distinguishes it from every ``Body``. All bytes after `bytes` are padding and must be zero.
package enum Content {
    /// Ours: bytes in one message. An event of Matrix has 65,536 bytes in all.
    package static let maximumLength = 65_536
    private static let kind: UInt8 = 3
    /// Bytes before the plaintext.
    private static let overhead = 5
    /// Ours: most messages are shorter, so that most look alike. In bytes.
    private static let smallestStep = 256

    /// The padded length for a plaintext, in bytes.
    ///
    /// Rounds up to a multiple of 256 bytes, and beyond 8 KiB by at most an eighth, as Padmé does (PURBs, 2019, section
    /// 4). All lengths up to 64 KiB fall into 81 buckets.
    package static func paddedLength(of plaintext: Int) -> Int {
        let length = plaintext + overhead
        let exponent = Int.bitWidth - 1 - length.leadingZeroBitCount
        let bits = Int.bitWidth - exponent.leadingZeroBitCount
        let step = max(smallestStep, 1 << max(exponent - bits, 0))
        return (length + step - 1) / step * step
    }

    /// The bytes to seal.
    ///
    /// - Throws: ``EnvelopeError/malformed`` if there are more than ``maximumLength``.
    package static func padded(_ plaintext: [UInt8]) throws(EnvelopeError) -> [UInt8] {
        guard plaintext.count <= maximumLength else { throw .malformed }
        let length = paddedLength(of: plaintext.count)
        var output: [UInt8] = []
        output.reserveCapacity(length)
        output.append(kind)
        output.append(bigEndian: UInt32(plaintext.count))
        output += plaintext
        output.append(contentsOf: repeatElement(0, count: length - output.count))
        return output
    }

    /// The reverse of ``padded(_:)``.
    ///
    /// - Throws: ``EnvelopeError/unsupportedKind(_:)`` or ``EnvelopeError/malformed``.
    package static func plaintext(of bytes: [UInt8]) throws(EnvelopeError) -> [UInt8] {
        var cursor = ByteCursor(bytes)
        let first = try cursor.byte()
        guard first == kind else { throw .unsupportedKind(first) }
        let plaintext = try cursor.take(Int(try cursor.uint32()))
        guard cursor.isZeroToTheEnd else { throw .malformed }
        return plaintext
    }
}
