/// The key of one sending or receiving chain (Double Ratchet, section 2.2).
struct ChainKey: Sendable {
    let secret: SecretBytes

    /// The first half of `KDF_CK` (section 7.2): the key of the message at this place.
    var messageKey: MessageKey { MessageKey(secret: Primitives.hmac(key: secret, byte: 0x01)) }

    /// The second half of `KDF_CK`: the key of the next place. It does not lead back to this one.
    var next: ChainKey { ChainKey(secret: Primitives.hmac(key: secret, byte: 0x02)) }

    /// The key `distance` places further on: one HMAC for each.
    func advanced(by distance: UInt32) -> ChainKey {
        var key = self
        for _ in 0..<distance { key = key.next }
        return key
    }
}
