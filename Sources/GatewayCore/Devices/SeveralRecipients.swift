// One body for several devices: sealed once under a random content key, which goes to each device in a ratchet message of
// its own.

import Crypto
import CryptoExtras
import DoubleRatchet
import Envelope

/// The content of an envelope of the kind `several`:
///
///     devices (1 B) | each: id (8 B), ratchet message (2 B length) | body under the content key
///
/// AES-256-GCM-SIV with a nonce of zeros: the key is used once. Each ratchet message authenticates the SHA-256 of the body
/// under the key as well: every recipient has the key, and could put another body in the place of the sender's.
struct SeveralRecipients {
    /// Bytes of a content key.
    static let keyLength = 32
    /// Bytes that the content is longer than body and ratchet messages: the count, and the tag.
    static let overhead = 1 + 16
    /// Bytes before each ratchet message.
    static let recipientOverhead = 10

    var wrapped: [(device: DeviceID, message: [UInt8])] = []
    var sealedBody: [UInt8] = []

    init() {}

    var bytes: [UInt8] {
        var output = [UInt8(wrapped.count)]
        for (device, message) in wrapped {
            output.append(bigEndian: device.value)
            output.append(field: message)
        }
        return output + sealedBody
    }

    /// - Throws: ``EnvelopeError/malformed``.
    init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        for _ in 0..<(try cursor.byte()) {
            wrapped.append((DeviceID(try cursor.uint64()), try cursor.field()))
        }
        sealedBody = cursor.rest()
    }

    /// What each ratchet message authenticates of the body.
    var digest: [UInt8] { Array(SHA256.hash(data: sealedBody)) }

    static func seal(_ body: [UInt8], key: [UInt8], associatedData: [UInt8]) throws -> [UInt8] {
        let box = try AES.GCM._SIV.seal(
            body, using: SymmetricKey(data: key), nonce: try zeros(), authenticating: associatedData)
        return Array(box.ciphertext) + Array(box.tag)
    }

    static func open(_ sealed: [UInt8], key: [UInt8], associatedData: [UInt8]) throws -> [UInt8] {
        guard sealed.count >= 16, key.count == keyLength else { throw EnvelopeError.malformed }
        let box = try AES.GCM._SIV.SealedBox(
            nonce: try zeros(), ciphertext: sealed.dropLast(16), tag: sealed.suffix(16))
        return Array(try AES.GCM._SIV.open(box, using: SymmetricKey(data: key), authenticating: associatedData))
    }

    private static func zeros() throws -> AES.GCM._SIV.Nonce {
        try AES.GCM._SIV.Nonce(data: [UInt8](repeating: 0, count: 12))
    }
}
