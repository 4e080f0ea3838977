/// The key of one sending or receiving chain (Double Ratchet, section 2.2).
///
/// It is a value. If it is not shared, ``advance()`` and ``goOn(from:)`` overwrite it in place.
package struct ChainKey: Sendable {
    package private(set) var secret: SecretBytes

    package init(secret: SecretBytes) {
        self.secret = secret
    }

    /// The first half of `KDF_CK` (section 7.2): the key of the message at this position.
    package var messageKey: MessageKey { MessageKey(chainKey: secret) }

    /// The second half of `KDF_CK`: the key of the next position. The key of this one cannot be derived from it.
    package var next: ChainKey { advanced(by: 1) }

    /// Replaces the key by that of the next position.
    mutating func advance() {
        withUnsafeTemporaryAllocation(byteCount: Primitives.hashSize, alignment: 16) { next in
            defer { SecretBytes.wipe(next) }
            Primitives.hmac(key: secret, byte: Primitives.chainByte, into: next)
            SecretBytes.replace(&secret, by: UnsafeRawBufferPointer(next))
        }
    }

    /// The key `distance` positions further on: one HMAC for each.
    package func advanced(by distance: UInt32) -> ChainKey {
        var key = self
        for _ in 0..<distance { key.advance() }
        return key
    }

    /// Both halves of `KDF_CK` at the position `distance` further on. The chain key does not change.
    package func derive(_ distance: UInt32 = 0, into place: MessageKeys.Place) {
        secret.withUnsafeBytes { Primitives.stepChain($0, into: place.bytes) }
        for _ in 0..<distance { Primitives.stepChain(place.next, into: place.bytes) }
    }

    /// Replaces the key by that of the position after a derived one.
    package mutating func goOn(from place: MessageKeys.Place) {
        SecretBytes.replace(&secret, by: place.next)
    }
}
