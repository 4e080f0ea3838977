/// The key of exactly one message: it cannot be copied, and using it ends it.
///
/// A key of a chain is not derived before it is used, and then on the stack, where it is wiped: a message costs no heap.
///
/// AES-256-GCM-SIV with a constant nonce (Double Ratchet, section 7.2, allows one where each key is used once). A state
/// that was rolled back or cloned would use a key twice; then SIV reveals only whether the two messages are equal.
struct MessageKey: ~Copyable {
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

    /// A copy, for where a key has to be kept or mixed with another.
    var secret: SecretBytes { withUnsafeBytes { SecretBytes(copying: $0) } }

    /// Lends the 32 bytes to `body`, which must not keep the pointer.
    borrowing func withUnsafeBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard isChainKey else { return try source.withUnsafeBytes(body) }
        return try withUnsafeTemporaryAllocation(byteCount: Primitives.hashSize, alignment: 16) {
            (key) throws(Failure) in
            defer { SecretBytes.wipe(key) }
            Primitives.hmac(key: source, byte: 0x01, into: key)
            return try body(UnsafeRawBufferPointer(key))
        }
    }

    /// Appends ciphertext and tag to `output`.
    consuming func seal(
        _ plaintext: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        withUnsafeBytes { Primitives.seal(plaintext, key: $0, authenticating: data, into: &output) }
    }

    /// Appends the plaintext to `output`, or throws ``RatchetError/authenticationFailed`` and leaves it alone.
    consuming func open(
        _ sealed: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        try withUnsafeBytes { (key) throws(RatchetError) in
            try Primitives.open(sealed, key: key, authenticating: data, into: &output)
        }
    }
}
