// What tells one envelope from another.

import Crypto
import Envelope

/// Tells one envelope from another: the first half of its SHA-256.
///
/// Sixteen bytes, because nothing rests on it but finding the key of an envelope: to have another envelope take this one's
/// key costs 2^128, and the key does not open it, for the body is sealed and names its sender, conversation and id. Two
/// envelopes of the vault's own fall together after 2^64. The other half would be a seventh of each row.
package struct EnvelopeDigest: Hashable, Sendable {
    private let high: UInt64
    private let low: UInt64

    package init(of envelope: [UInt8]) {
        self = SHA256.hash(data: envelope).withUnsafeBytes { Self($0) }
    }

    /// From the sixteen bytes that a row holds; nothing where they are not as many.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self = bytes.withUnsafeBytes { Self($0) }
    }

    private init(_ bytes: UnsafeRawBufferPointer) {
        high = UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
        low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }

    /// For the place of a row, where it is made for each: two numbers.
    package var name: String { "\(high) \(low)" }

    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: high)
        bytes.append(bigEndian: low)
        return bytes
    }
}
