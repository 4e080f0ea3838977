#if CLibraries
    import CLibcrypto

    /// AES-256-GCM-SIV over libcrypto's AES-256 and GHASH, and memory for the secrets of one message.
    ///
    /// `@unchecked Sendable`: a context taken from the pool has one user until it is returned.
    package final class CipherContext: @unchecked Sendable {
        /// The bytes processed at once.
        static let chunkSize = 1024

        private static let zeros = [UInt8](repeating: 0, count: chunkSize)

        private let cipher: OpaquePointer
        private let hash: OpaquePointer
        /// Memory for counter blocks or reversed blocks. Zero between two uses.
        let chunk: UnsafeMutableRawBufferPointer
        let memory = CipherMemory()
        /// The output for libcrypto's GHASH when it calls its block cipher: the hash key, then the mask of the tag.
        private let answer: UnsafeMutableRawBufferPointer
        private var hasHashKey = false

        init() {
            chunk = .allocate(byteCount: Self.chunkSize, alignment: 64)
            chunk.initializeMemory(as: UInt8.self, repeating: 0)
            answer = .allocate(byteCount: Self.blockSize, alignment: 16)
            answer.initializeMemory(as: UInt8.self, repeating: 0)
            guard let cipher = EVP_CIPHER_CTX_new(), let aes = EVP_CIPHER_fetch(nil, "AES-256-ECB", nil),
                EVP_EncryptInit_ex(cipher, aes, nil, Self.zeros, nil) == 1,
                let hash = CRYPTO_gcm128_new(answer.baseAddress, Self.answerBlock)
            else { preconditionFailure("libcrypto has no AES-256") }
            EVP_CIPHER_free(aes)
            self.cipher = cipher
            self.hash = hash
        }

        deinit {
            EVP_CIPHER_CTX_free(cipher)
            CRYPTO_gcm128_release(hash)
            chunk.deallocate()
            answer.deallocate()
            memory.deallocate()
        }

        /// Overwrites the secrets of a message, and the keys by zero keys.
        func wipe() {
            memory.wipe()
            Self.zeros.withUnsafeBytes {
                setKey(UnsafeRawBufferPointer(rebasing: $0[..<KeySize.aes256]))
                guard hasHashKey else { return }
                setHashKey(UnsafeRawBufferPointer(rebasing: $0[..<Self.blockSize]))
                SecretBytes.wipe(chunk)
                hasHashKey = false
            }
        }

        // MARK: AES-256

        func setKey(_ key: UnsafeRawBufferPointer) {
            precondition(key.count == KeySize.aes256)
            let bytes = key.octets
            let status = EVP_EncryptInit_ex(cipher, nil, nil, bytes, nil)
            precondition(status == 1, "libcrypto refused an AES-256 key")
        }

        /// Encrypts whole blocks, each by itself, in place. The operation is never finished, so nothing is padded;
        /// disabling padding in libcrypto would make every key change slower.
        package func encrypt(_ blocks: UnsafeMutableRawBufferPointer) {
            precondition(blocks.count % Self.blockSize == 0 && blocks.count <= Self.chunkSize)
            let bytes = blocks.octets
            var written: Int32 = 0
            let status = EVP_EncryptUpdate(cipher, bytes, &written, bytes, Int32(blocks.count))
            precondition(status == 1 && written == Int32(blocks.count), "libcrypto did not encrypt")
        }

        // MARK: GHASH (NIST SP 800-38D, section 6.4)

        /// libcrypto derives its hash key from a block cipher; this one returns the content of ``answer``.
        private static let answerBlock: block128_f = { _, output, answer in
            guard let output, let answer else { return }
            UnsafeMutableRawPointer(output).copyMemory(from: answer, byteCount: blockSize)
        }

        func setHashKey(_ key: UnsafeRawBufferPointer) {
            hasHashKey = true
            answer.copyMemory(from: key)
            CRYPTO_gcm128_init(hash, answer.baseAddress, Self.answerBlock)
            // From here on it is the mask of the tag, which stays zero.
            answer.initializeMemory(as: UInt8.self, repeating: 0)
        }

        func beginHash() {
            Self.zeros.withUnsafeBufferPointer { CRYPTO_gcm128_setiv(hash, $0.baseAddress, KeySize.nonce) }
        }

        /// Hashes whole blocks; the last part may have any length.
        func hash(_ bytes: UnsafeRawBufferPointer) {
            let status = CRYPTO_gcm128_aad(hash, bytes.octets, bytes.count)
            precondition(status == 0, "libcrypto did not hash")
        }

        /// Hashes zeros: `first` bytes as associated data, then `second` as ciphertext. `GHASH` separates them by a final
        /// block with both lengths.
        func hashZeros(_ first: Int, _ second: Int) {
            Self.zeros.withUnsafeBytes { zeros in
                for start in stride(from: 0, to: first, by: Self.chunkSize) {
                    hash(UnsafeRawBufferPointer(rebasing: zeros[..<min(Self.chunkSize, first - start)]))
                }
                let input = zeros.octets
                let output = chunk.octets
                for start in stride(from: 0, to: second, by: Self.chunkSize) {
                    let status = CRYPTO_gcm128_decrypt_ctr32(
                        hash, input, output, min(Self.chunkSize, second - start), { _, _, _, _, _ in })
                    precondition(status == 0, "libcrypto did not hash")
                }
            }
        }

        /// Hashes the two lengths, in bits, and writes the result to `digest`.
        func endHash(into digest: UnsafeMutableRawBufferPointer) {
            CRYPTO_gcm128_tag(hash, digest.octets, digest.count)
        }
    }
#endif
