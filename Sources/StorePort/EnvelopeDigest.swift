// The digest that identifies an envelope.

import Crypto
import Envelope

/// Identifies an envelope: the first half of its SHA-256.
///
/// Sixteen bytes suffice, because the digest only finds the key of an envelope. Another envelope with this digest costs
/// 2^128, and the key does not open it: sender, conversation and id are bound to the sealed body. Two envelopes of this
/// vault collide after 2^64. The other half would be a seventh of each row.
package struct EnvelopeDigest: Hashable, Sendable {
    private let high: UInt64
    private let low: UInt64

    package init(of envelope: [UInt8]) {
        self = SHA256.hash(data: envelope).withUnsafeBytes { Self($0) }
    }

    /// Reads the sixteen bytes of a row; nil if there are more or fewer.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self = bytes.withUnsafeBytes { Self($0) }
    }

    private init(_ bytes: UnsafeRawBufferPointer) {
        high = UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
        low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }

    /// The digest as two numbers, for the place of a row. Cheaper to make than hexadecimal digits.
    package var name: String { "\(high) \(low)" }

    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: high)
        bytes.append(bigEndian: low)
        return bytes
    }
}
