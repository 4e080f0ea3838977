/// The key of exactly one message of a ``SenderKey``, or one that is skipped: it cannot be copied, and using it ends it.
///
/// A key of a chain is not derived before it is used, and then on the stack, where it is wiped: a message costs no heap.
package struct MessageKey: ~Copyable {
    private let source: SecretBytes
    private let isChainKey: Bool

    /// A key that was derived before.
    init(secret: SecretBytes) {
        source = secret
        isChainKey = false
    }

    /// The first half of `KDF_CK` (Double Ratchet, section 7.2) of a chain key.
    init(chainKey: SecretBytes) {
        source = chainKey
        isChainKey = true
    }

    /// Lends the 32 bytes to `body`, which must not keep the pointer.
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
