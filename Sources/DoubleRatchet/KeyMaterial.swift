/// What X3DH and PQXDH have in common: the input of their key derivation (X3DH, section 2.2; PQXDH, section 2.2).
///
/// ```
/// SK = HKDF-SHA256(salt 00 * 32, FF * 32 || secret || secret ..., info)
/// ```
/// The 32 bytes of FF keep this hash apart from those of XEdDSA, as the specification has it.
package enum KeyMaterial {
    /// `blocks` outputs of 32 bytes from shared secrets of 32 bytes each.
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
