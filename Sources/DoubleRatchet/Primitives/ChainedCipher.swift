/// AES-256-CBC with PKCS #7 padding (RFC 5652, section 6.3), for the OMEMO profiles.
extension Primitives {
    /// The size of a ciphertext: 1 to 16 bytes more than the plaintext.
    package static func sizeCBC(_ plaintextCount: Int) -> Int {
        (plaintextCount / ChainedCipher.blockSize + 1) * ChainedCipher.blockSize
    }

    /// Appends the ciphertext.
    package static func sealCBC(
        _ plaintext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer,
        into output: inout [UInt8]
    ) {
        let size = sizeCBC(plaintext.count)
        output.append(addingCapacity: size) { output in
            output.appendBytes(size) { bytes in
                let written = ChainedCipher.seal(plaintext, key: key, iv: iv, into: bytes)
                precondition(written == size, "AES-CBC cannot fail with a key and an IV of the right size")
            }
        }
    }

    /// Appends the plaintext. The caller has authenticated the ciphertext, so an error discloses nothing to a forger.
    ///
    /// - Throws: ``RatchetError/malformed`` for an impossible length or padding.
    package static func openCBC(
        _ ciphertext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        guard !ciphertext.isEmpty, ciphertext.count % ChainedCipher.blockSize == 0 else { throw .malformed }
        let start = output.count
        output.append(contentsOf: ciphertext)
        let written = output.withUnsafeMutableBytes { output in
            let text = UnsafeMutableRawBufferPointer(rebasing: output[start...])
            let written = ChainedCipher.open(ciphertext, key: key, iv: iv, into: text)
            SecretBytes.wipe(UnsafeMutableRawBufferPointer(rebasing: text[(written ?? 0)...]))
            return written
        }
        output.removeSubrange((start + (written ?? 0))...)
        guard written != nil else { throw .malformed }
    }
}

/// AES-256-CBC. Each variant of the library has its ``seal`` and ``open``; both return the number of bytes written.
enum ChainedCipher {
    static let blockSize = 16
}
