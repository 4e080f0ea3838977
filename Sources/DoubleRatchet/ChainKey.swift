/// The key of one sending or receiving chain (Double Ratchet, section 2.2).
///
/// It is a value. Where nobody else holds the same, ``advance()`` overwrites it in its place.
struct ChainKey: Sendable {
    private(set) var secret: SecretBytes

    /// The first half of `KDF_CK` (section 7.2): the key of the message at this place.
    var messageKey: MessageKey { MessageKey(chainKey: secret) }

    /// The second half of `KDF_CK`: the key of the next place. It does not lead back to this one.
    var next: ChainKey { advanced(by: 1) }

    /// Becomes the key of the next place.
    mutating func advance() {
        withUnsafeTemporaryAllocation(byteCount: Primitives.hashSize, alignment: 16) { next in
            defer { SecretBytes.wipe(next) }
            Primitives.hmac(key: secret, byte: 0x02, into: next)
            SecretBytes.replace(&secret, by: UnsafeRawBufferPointer(next))
        }
    }

    /// The key `distance` places further on: one HMAC for each.
    func advanced(by distance: UInt32) -> ChainKey {
        var key = self
        for _ in 0..<distance { key.advance() }
        return key
    }
}
