/// The input of the key derivation of X3DH and PQXDH (section 2.2 of both).
///
/// ```
/// SK = HKDF-SHA256(salt 00 * 32, FF * 32 || secret || secret ..., info)
/// ```
/// The 32 bytes of FF separate this hash from those of XEdDSA, as specified.
package enum KeyMaterial {
    /// Derives `blocks` outputs of 32 bytes from shared secrets of 32 bytes each.
    package static func derive(from secrets: [SecretBytes], info: [UInt8], blocks: Int) -> [SecretBytes] {
        let material = SecretBytes(count: 32 * (secrets.count + 1)) { bytes in
            bytes.initializeMemory(as: UInt8.self, repeating: 0xFF)
            for (index, secret) in secrets.enumerated() {
                secret.withUnsafeBytes {
                    UnsafeMutableRawBufferPointer(rebasing: bytes[(32 * (index + 1))...]).copyMemory(from: $0)
                }
            }
        }
        return Primitives.hkdf(salt: SecretBytes(count: 32) { _ in }, secret: material, info: info, blocks: blocks)
    }
}
