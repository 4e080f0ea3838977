#if !CLibraries
    import Crypto
    import CryptoExtras

    /// AES-256 and AES-256-GCM-SIV by swift-crypto, and memory for the secrets of one message.
    ///
    /// Opened plaintexts pass through heap memory that the library frees without wiping. Keys are wiped.
    ///
    /// `@unchecked Sendable`: a context taken from the pool has one user until it is returned.
    package final class CipherContext: @unchecked Sendable {
        private static let zeroKey = SymmetricKey(data: [UInt8](repeating: 0, count: KeySize.aes256))

        private var key = CipherContext.zeroKey
        let memory = CipherMemory()

        init() {}

        deinit {
            memory.deallocate()
        }

        /// Overwrites the secrets of a message, and releases the key.
        func wipe() {
            memory.wipe()
            key = Self.zeroKey
        }

        func setKey(_ key: UnsafeRawBufferPointer) {
            precondition(key.count == KeySize.aes256)
            self.key = SymmetricKey(data: key)
        }

        /// Encrypts whole blocks, each by itself, in place.
        package func encrypt(_ blocks: UnsafeMutableRawBufferPointer) {
            precondition(blocks.count % Self.blockSize == 0)
            for start in stride(from: 0, to: blocks.count, by: Self.blockSize) {
                var block = UnsafeMutableRawBufferPointer(rebasing: blocks[start..<start + Self.blockSize])
                do {
                    try AES.permute(&block, key: key)
                } catch {
                    preconditionFailure("AES cannot fail with a key and a block of the right size")
                }
            }
        }

        /// Replaces the text in `bytes` by its ciphertext, and the last 16 bytes by its tag.
        package func seal(
            _ bytes: UnsafeMutableRawBufferPointer, nonce: UnsafeRawBufferPointer,
            authenticating data: UnsafeRawBufferPointer
        ) {
            let text = UnsafeRawBufferPointer(rebasing: bytes.dropLast(KeySize.tag))
            do {
                let box = try AES.GCM._SIV.seal(
                    text, using: key, nonce: AES.GCM._SIV.Nonce(data: nonce), authenticating: data)
                bytes.copyBytes(from: box.combined.dropFirst(KeySize.nonce))
            } catch {
                preconditionFailure("AES-GCM-SIV cannot fail with a key and a nonce of the right size")
            }
        }

        /// Returns whether `sealed`, 16 bytes longer than `text`, is genuine. `text` then holds the plaintext, else zeros.
        package func open(
            _ sealed: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
            authenticating data: UnsafeRawBufferPointer,
            into text: UnsafeMutableRawBufferPointer
        ) -> Bool {
            do {
                let box = try AES.GCM._SIV.SealedBox(
                    nonce: AES.GCM._SIV.Nonce(data: nonce),
                    ciphertext: UnsafeRawBufferPointer(rebasing: sealed.dropLast(KeySize.tag)),
                    tag: UnsafeRawBufferPointer(rebasing: sealed.suffix(KeySize.tag)))
                text.copyBytes(from: try AES.GCM._SIV.open(box, using: key, authenticating: data))
                return true
            } catch {
                text.initializeMemory(as: UInt8.self, repeating: 0)
                return false
            }
        }
    }
#endif
