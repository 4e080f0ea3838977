// The three derivations of the Double Ratchet (section 5.2 of its specification): root, chain, message.

/// The root key and one step of it.
struct RootKey: Sendable {
    let secret: SecretBytes
    private static let info = Array("Pawl root 1".utf8)

    /// KDF_RK: a new root key and a chain key from an agreement.
    func step(_ agreement: SecretBytes) -> (root: RootKey, chain: ChainKey) {
        let derived = Primitives.hkdf(agreement, salt: secret, info: Self.info, count: 64)
        return derived.withUnsafeBytes { bytes in
            (
                RootKey(secret: SecretBytes(UnsafeRawBufferPointer(rebasing: bytes[0..<32]))),
                ChainKey(secret: SecretBytes(UnsafeRawBufferPointer(rebasing: bytes[32..<64])), index: 0)
            )
        }
    }
}

/// The key of a sending or receiving chain, and the number of its next message.
struct ChainKey: Sendable {
    let secret: SecretBytes
    let index: UInt32

    /// KDF_CK: the next chain key and the key of this message.
    ///
    /// - Throws: ``RatchetError/exhausted`` after 2^32 - 1 messages.
    func step() throws(RatchetError) -> (next: ChainKey, message: SecretBytes) {
        guard index < .max else { throw .exhausted }
        return (
            ChainKey(secret: Primitives.hmac(secret, [0x02]), index: index + 1), Primitives.hmac(secret, [0x01])
        )
    }
}

/// The key of one message. It is used by being consumed.
struct MessageKey: ~Copyable {
    private let secret: SecretBytes

    init(_ secret: SecretBytes) { self.secret = secret }

    consuming func seal(
        _ plaintext: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        try Primitives.seal(plaintext, key: key, nonce: nonce, authenticating: data, into: &output)
    }

    consuming func open(_ sealed: ArraySlice<UInt8>, authenticating data: [UInt8]) throws(RatchetError) -> [UInt8] {
        try Primitives.open(sealed, key: key, nonce: nonce, authenticating: data)
    }

    private var key: SecretBytes { Primitives.hmac(secret, Array("Pawl message key 1".utf8)) }

    private var nonce: [UInt8] {
        Primitives.hmac(secret, Array("Pawl message nonce 1".utf8)).withUnsafeBytes { Array($0.prefix(12)) }
    }
}
