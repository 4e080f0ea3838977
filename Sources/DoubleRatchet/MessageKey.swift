/// The key of exactly one message of a ``SenderKey``. It cannot be copied, and using it consumes it.
///
/// A chain's message key is derived only when it is used, on the stack, and wiped there: a message needs no heap
/// memory.
package struct MessageKey: ~Copyable {
    private let source: SecretBytes
    private let isChainKey: Bool

    /// The stored key of a skipped message.
    init(secret: SecretBytes) {
        source = secret
        isChainKey = false
    }

    /// The first half of `KDF_CK` (Double Ratchet, section 7.2) of a chain key.
    init(chainKey: SecretBytes) {
        source = chainKey
        isChainKey = true
    }

    /// Calls `body` with the 32 bytes; `body` must not keep the pointer.
    package borrowing func withUnsafeBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard isChainKey else { return try source.withUnsafeBytes(body) }
        return try withUnsafeTemporaryAllocation(byteCount: Primitives.hashSize, alignment: 16) {
            (key) throws(Failure) in
            defer { SecretBytes.wipe(key) }
            Primitives.hmac(key: source, byte: Primitives.messageByte, into: key)
            return try body(UnsafeRawBufferPointer(key))
        }
    }
}
