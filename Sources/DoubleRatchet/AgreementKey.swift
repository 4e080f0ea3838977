/// An X25519 public key that passed the checks: canonical (below p, high bit clear) and not of low order.
package struct AgreementPublicKey: Hashable, Sendable {
    package let bytes: Bytes32

    /// The canonical encodings of the points whose order divides eight (RFC 7748, section 6.1): 0, 1, two of order
    /// eight and p - 1. An agreement with them yields no secret.
    private static let lowOrder: [Bytes32] = [
        Bytes32([UInt8](repeating: 0, count: 32)),
        Bytes32([1] + [UInt8](repeating: 0, count: 31)),
        Bytes32([
            0xE0, 0xEB, 0x7A, 0x7C, 0x3B, 0x41, 0xB8, 0xAE, 0x16, 0x56, 0xE3, 0xFA, 0xF1, 0x9F, 0xC4, 0x6A,
            0xDA, 0x09, 0x8D, 0xEB, 0x9C, 0x32, 0xB1, 0xFD, 0x86, 0x62, 0x05, 0x16, 0x5F, 0x49, 0xB8, 0x00,
        ]),
        Bytes32([
            0x5F, 0x9C, 0x95, 0xBC, 0xA3, 0x50, 0x8C, 0x24, 0xB1, 0xD0, 0xB1, 0x55, 0x9C, 0x83, 0xEF, 0x5B,
            0x04, 0x44, 0x5C, 0xC4, 0x58, 0x1C, 0x8E, 0x86, 0xD8, 0x22, 0x4E, 0xDD, 0xD0, 0x9F, 0x11, 0x57,
        ]),
        Bytes32([0xEC] + [UInt8](repeating: 0xFF, count: 30) + [0x7F]),
    ]

    /// - Throws: ``RatchetError/invalidKey`` for a key that is not canonical or of low order.
    package init(_ bytes: Bytes32) throws(RatchetError) {
        guard FieldElement(littleEndian: bytes).littleEndian == bytes, !Self.lowOrder.contains(bytes) else {
            throw .invalidKey
        }
        self.bytes = bytes
    }

    /// A key that was checked before it was stored.
    package init(checked bytes: Bytes32) {
        self.bytes = bytes
    }
}

/// An X25519 key pair. The private key is wiped with its last reference.
package struct AgreementKeyPair: Sendable {
    package let secret: SecretBytes
    package let publicKey: AgreementPublicKey
    private let key: Primitives.AgreementPrivateKey?

    /// Makes a pair from 32 secret bytes, which are clamped on use (RFC 7748).
    package init(secret: SecretBytes) {
        let key = Primitives.agreementKey(secret)
        self.secret = secret
        self.key = key
        publicKey = AgreementPublicKey(checked: Primitives.publicKey(of: key))
    }

    package init(random: inout some RandomSource) {
        self.init(secret: SecretBytes(count: KeySize.curve25519, random: &random))
    }

    /// A pair from a stored state: its library key object is made only when needed.
    package init(secret: SecretBytes, checkedPublicKey: Bytes32) {
        self.secret = secret
        publicKey = AgreementPublicKey(checked: checkedPublicKey)
        key = nil
    }

    /// - Throws: ``RatchetError/invalidKey`` if the result is all zero.
    package func agree(with peer: AgreementPublicKey) throws(RatchetError) -> SecretBytes {
        try Primitives.agree(key ?? Primitives.agreementKey(secret), with: peer)
    }
}
