import Crypto
import CryptoExtras

/// The two ciphers that only the OMEMO profiles use. Opened plaintexts pass through heap memory that the cryptographic
/// library frees without wiping.
extension Primitives {
    /// AES-CBC with PKCS #7 padding (RFC 5652, section 6.3): the ciphertext is 1 to 16 bytes longer.
    static func sealCBC(_ plaintext: UnsafeRawBufferPointer, key: SecretBytes, iv: SecretBytes) -> [UInt8] {
        do {
            return Array(try AES._CBC.encrypt(plaintext, using: cipherKey(key), iv: blockIV(iv)))
        } catch {
            preconditionFailure("AES-CBC cannot fail with a key and an IV of the right size")
        }
    }

    /// Appends the plaintext, or throws ``RatchetError/malformed`` for a length or a padding that cannot be.
    ///
    /// The caller has authenticated the ciphertext, so the answer tells a forger nothing.
    static func openCBC(
        _ ciphertext: UnsafeRawBufferPointer, key: SecretBytes, iv: SecretBytes, into output: inout [UInt8]
    ) throws(RatchetError) {
        guard !ciphertext.isEmpty, ciphertext.count % 16 == 0 else { throw .malformed }
        do {
            output.append(contentsOf: try AES._CBC.decrypt(ciphertext, using: cipherKey(key), iv: blockIV(iv)))
        } catch {
            throw .malformed
        }
    }

    /// AES-GCM (NIST SP 800-38D) without associated data.
    static func sealGCM(
        _ plaintext: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8]
    ) -> (ciphertext: [UInt8], tag: [UInt8]) {
        do {
            let box = try AES.GCM.seal(plaintext, using: cipherKey(key), nonce: AES.GCM.Nonce(data: nonce))
            return (Array(box.ciphertext), Array(box.tag))
        } catch {
            preconditionFailure("AES-GCM cannot fail with a key and a nonce of the right size")
        }
    }

    /// Appends the plaintext, or throws ``RatchetError/authenticationFailed`` and leaves `output` alone.
    static func openGCM(
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

    private static func blockIV(_ iv: SecretBytes) throws -> AES._CBC.IV {
        try iv.withUnsafeBytes { try AES._CBC.IV(ivBytes: $0) }
    }
}
