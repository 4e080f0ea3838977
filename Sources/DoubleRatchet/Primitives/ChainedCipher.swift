import CLibcrypto

/// AES-256-CBC with PKCS #7 padding (RFC 5652, section 6.3), by libcrypto, for the OMEMO profiles.
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
                let written = ChainedCipher.withOne {
                    $0.run(plaintext, key: key, iv: iv, isSealing: true, into: bytes)
                }
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
            let written = ChainedCipher.withOne { $0.run(ciphertext, key: key, iv: iv, isSealing: false, into: text) }
            SecretBytes.wipe(UnsafeMutableRawBufferPointer(rebasing: text[(written ?? 0)...]))
            return written
        }
        output.removeSubrange((start + (written ?? 0))...)
        guard written != nil else { throw .malformed }
    }
}

/// A reusable context of libcrypto; its key is overwritten with zeros after each use.
///
/// `@unchecked Sendable`: a context taken from the pool has one user until it is returned.
private final class ChainedCipher: @unchecked Sendable {
    static let blockSize = 16
    private static let pool = Pool<ChainedCipher>()
    private static let zeros = [UInt8](repeating: 0, count: KeySize.aes256)

    private let cipher: OpaquePointer

    private init() {
        guard let cipher = EVP_CIPHER_CTX_new(), let aes = EVP_CIPHER_fetch(nil, "AES-256-CBC", nil),
            EVP_CipherInit_ex(cipher, aes, nil, Self.zeros, Self.zeros, 1) == 1
        else { preconditionFailure("libcrypto has no AES-256-CBC") }
        EVP_CIPHER_free(aes)
        self.cipher = cipher
    }

    deinit {
        EVP_CIPHER_CTX_free(cipher)
    }

    static func withOne<Result>(_ body: (ChainedCipher) -> Result) -> Result {
        let context = pool.take() ?? ChainedCipher()
        defer {
            EVP_CipherInit_ex(context.cipher, nil, nil, zeros, zeros, 1)
            pool.giveBack(context)
        }
        return body(context)
    }

    /// Returns the number of bytes written; nil if the padding is wrong.
    func run(
        _ input: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer, isSealing: Bool,
        into output: UnsafeMutableRawBufferPointer
    ) -> Int? {
        precondition(key.count == KeySize.aes256 && iv.count == Self.blockSize && input.count < Int32.max)
        var (body, tail): (Int32, Int32) = (0, 0)
        guard EVP_CipherInit_ex(cipher, nil, nil, key.octets, iv.octets, isSealing ? 1 : 0) == 1,
            EVP_CipherUpdate(cipher, output.octets, &body, input.octets, Int32(input.count)) == 1,
            EVP_CipherFinal_ex(cipher, output.octets + Int(body), &tail) == 1
        else {
            // Otherwise the error would stay with the thread and reach its next caller.
            ERR_clear_error()
            return nil
        }
        return Int(body + tail)
    }
}
