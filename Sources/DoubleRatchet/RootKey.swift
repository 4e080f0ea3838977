/// The input of every Diffie-Hellman step of the ratchet (Double Ratchet, section 2.3).
package struct RootKey: Sendable {
    package let secret: SecretBytes

    private static let info = Array("DoubleRatchet/2 root".utf8)

    /// `KDF_RK_HE` (section 4.1): HKDF-SHA256 with this key as salt and the shared secret as input, 96 bytes.
    package func step(_ shared: SecretBytes) -> (root: RootKey, chain: ChainKey, nextHeader: HeaderKey) {
        let outputs = Primitives.hkdf(salt: secret, secret: shared, info: Self.info, blocks: 3)
        return (RootKey(secret: outputs[0]), ChainKey(secret: outputs[1]), HeaderKey(secret: outputs[2]))
    }
}
