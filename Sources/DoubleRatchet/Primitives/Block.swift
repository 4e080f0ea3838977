extension Primitives {
    /// AES-256 of one block of 16 bytes (FIPS 197), in its place.
    static func encryptBlock(_ block: UnsafeMutableBufferPointer<UInt8>, key: SecretBytes) {
        precondition(block.count == CipherContext.blockSize)
        CipherContext.withOne { context in
            key.withUnsafeBytes { context.setKey($0) }
            context.encrypt(UnsafeMutableRawBufferPointer(block))
        }
    }
}
