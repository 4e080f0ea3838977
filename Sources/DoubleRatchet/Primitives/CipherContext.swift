/// Contexts are borrowed from a pool. None keeps a key: the secrets of a message are overwritten before it returns.
///
/// Each variant of the library has its own class with `setKey`, `encrypt` (blocks of AES-256), and `seal` and `open`
/// (AES-256-GCM-SIV) under the key that is set.
extension CipherContext {
    static let blockSize = 16

    /// The nonce for keys that are never used twice for the same plaintext.
    ///
    /// Most are used once; Double Ratchet, section 7.2, allows a constant nonce for those. A state that was rolled back
    /// or cloned would use a key twice; SIV then discloses only whether the two messages are equal.
    static let zeroNonce = [UInt8](repeating: 0, count: KeySize.nonce)

    private static let pool = Pool<CipherContext>()

    /// Calls `body` with a context and overwrites its secrets afterwards.
    static func withOne<Result, Failure: Error>(
        _ body: (CipherContext) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let context = pool.take() ?? CipherContext()
        defer {
            context.wipe()
            pool.giveBack(context)
        }
        return try body(context)
    }

    /// Memory for the keys of one message. Zero between two uses.
    package var keys: MessageKeys { memory.keys }

    /// Memory for one opened header. Zero between two uses.
    package var header: UnsafeMutableRawBufferPointer { memory.header }
}

/// Memory for the secrets of one message, in one block. Its owner wipes and deallocates it.
struct CipherMemory {
    let keys: MessageKeys
    let header: UnsafeMutableRawBufferPointer
    private let secrets: UnsafeMutableRawBufferPointer

    init() {
        secrets = .allocate(byteCount: MessageKeys.size + MessageHeader.maximumSize, alignment: 64)
        secrets.initializeMemory(as: UInt8.self, repeating: 0)
        keys = MessageKeys(UnsafeMutableRawBufferPointer(rebasing: secrets[..<MessageKeys.size]))
        header = UnsafeMutableRawBufferPointer(rebasing: secrets[MessageKeys.size...])
    }

    func wipe() {
        SecretBytes.wipe(secrets)
    }

    func deallocate() {
        secrets.deallocate()
    }
}

extension KeySize {
    /// AES-256 keys (FIPS 197).
    static let aes256 = 32
}
