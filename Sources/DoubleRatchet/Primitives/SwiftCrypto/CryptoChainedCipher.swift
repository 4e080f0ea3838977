#if !CLibraries
    import Crypto
    import CryptoExtras

    /// By swift-crypto. Opened plaintexts pass through heap memory that the library frees without wiping.
    extension ChainedCipher {
        /// Nil only if swift-crypto fails.
        static func seal(
            _ plaintext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer,
            into output: UnsafeMutableRawBufferPointer
        ) -> Int? {
            guard
                let sealed = try? AES._CBC.encrypt(
                    plaintext, using: SymmetricKey(data: key), iv: AES._CBC.IV(ivBytes: iv))
            else { return nil }
            output.copyBytes(from: sealed)
            return sealed.count
        }

        /// Nil if the padding is wrong. `output` is as long as the ciphertext.
        static func open(
            _ ciphertext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, iv: UnsafeRawBufferPointer,
            into output: UnsafeMutableRawBufferPointer
        ) -> Int? {
            guard
                let text = try? AES._CBC.decrypt(
                    ciphertext, using: SymmetricKey(data: key), iv: AES._CBC.IV(ivBytes: iv))
            else { return nil }
            output.copyBytes(from: text)
            return text.count
        }
    }
#endif
