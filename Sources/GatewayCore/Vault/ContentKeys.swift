// Keys of single messages: what names them, what holds them, and those that memory has at hand.

import Crypto
import DoubleRatchet
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
    var name: String { "\(high) \(low)" }

    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: high)
        bytes.append(bigEndian: low)
        return bytes
    }
}

/// The content key of one message. Wiped when nobody holds it any more.
final class ContentKey: Sendable {
    let message: MessageID
    let digest: EnvelopeDigest
    /// In milliseconds since 1970.
    let expiresAt: Int64
    /// Unsafe only to the compiler: nobody changes it but `deinit`, which is alone with it.
    private nonisolated(unsafe) var bytes: [UInt8]

    /// - Parameter bytes: not to be kept anywhere else.
    init(message: MessageID, digest: EnvelopeDigest, expiresAt: Int64, bytes: consuming [UInt8]) {
        (self.message, self.digest, self.expiresAt) = (message, digest, expiresAt)
        self.bytes = bytes
    }

    deinit { SecretBytes.wipe(&bytes) }

    /// Lends the key.
    func withBytes<Result>(_ body: (borrowing [UInt8]) throws -> Result) rethrows -> Result { try body(bytes) }
}

/// The keys that were used last, bounded. Keys only: no text is remembered.
struct RememberedKeys {
    /// Ours: keys in memory, some 200 bytes each, 6 MB in all: the last three hundred messages of a hundred
    /// conversations, which is where people look again and again. Older ones are one read of the store away.
    static let limit = 32_768

    /// Half of the limit; what has not been asked for while it filled up goes with the next change.
    private var recent: [MessageID: ContentKey] = [:]
    private var older: [MessageID: ContentKey] = [:]

    var count: Int { recent.count + older.count }

    mutating func remember(_ key: ContentKey) {
        if recent.count >= Self.limit / 2, recent[key.message] == nil {
            older = recent
            recent = [:]
        }
        older[key.message] = nil
        recent[key.message] = key
    }

    /// The key of a message, whatever envelope it is of.
    mutating func key(of message: MessageID) -> ContentKey? {
        if let key = recent[message] { return key }
        guard let key = older[message] else { return nil }
        remember(key)
        return key
    }

    mutating func forget(_ message: MessageID) {
        recent[message] = nil
        older[message] = nil
    }
}
