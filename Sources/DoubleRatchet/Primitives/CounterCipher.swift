import Crypto

/// AES-GCM (NIST SP 800-38D), by swift-crypto, only for payloads of the OMEMO profile `axolotl`. Decrypted plaintexts
/// pass through heap memory that the library frees without wiping.
extension Primitives {
    /// Encrypts without associated data and returns ciphertext and tag.
    package static func sealGCM(
        _ plaintext: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8]
    ) -> (ciphertext: [UInt8], tag: [UInt8]) {
        do {
            let box = try AES.GCM.seal(plaintext, using: cipherKey(key), nonce: AES.GCM.Nonce(data: nonce))
            return (Array(box.ciphertext), Array(box.tag))
        } catch {
            preconditionFailure("AES-GCM cannot fail with a key and a nonce of the right size")
        }
    }

    /// Appends the plaintext.
    ///
    /// - Throws: ``RatchetError/authenticationFailed``; `output` is then unchanged.
    package static func openGCM(
        _ ciphertext: UnsafeRawBufferPointer, tag: UnsafeRawBufferPointer, key: SecretBytes,
        nonce: UnsafeRawBufferPointer, into output: inout [UInt8]
    ) throws(RatchetError) {
        do {
            let box = try AES.GCM.SealedBox(nonce: AES.GCM.Nonce(data: nonce), ciphertext: ciphertext, tag: tag)
            output.append(contentsOf: try AES.GCM.open(box, using: cipherKey(key)))
        } catch {
            throw .authenticationFailed
        }
    }

    private static func cipherKey(_ key: SecretBytes) -> SymmetricKey {
        key.withUnsafeBytes { SymmetricKey(data: $0) }
    }
}
