#if CLibraries
    import CLibcrypto

    extension ChainedCipher {
        /// Nil only if libcrypto fails.
        static func seal(
            _ plaintext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer,
            into output: UnsafeMutableRawBufferPointer
        ) -> Int? {
            ChainedContext.withOne { $0.run(plaintext, key: key, iv: iv, isSealing: true, into: output) }
        }

        /// Nil if the padding is wrong. `output` is as long as the ciphertext.
        static func open(
            _ ciphertext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer,
            into output: UnsafeMutableRawBufferPointer
        ) -> Int? {
            ChainedContext.withOne { $0.run(ciphertext, key: key, iv: iv, isSealing: false, into: output) }
        }
    }

    /// A reusable context of libcrypto; its key is overwritten with zeros after each use.
    ///
    /// `@unchecked Sendable`: a context taken from the pool has one user until it is returned.
    private final class ChainedContext: @unchecked Sendable {
        private static let pool = Pool<ChainedContext>()
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

        static func withOne<Result>(_ body: (ChainedContext) -> Result) -> Result {
            let context = pool.take() ?? ChainedContext()
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
            precondition(key.count == KeySize.aes256 && iv.count == ChainedCipher.blockSize && input.count < Int32.max)
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
#endif
