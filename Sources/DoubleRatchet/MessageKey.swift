/// The key of exactly one message: it cannot be copied, and using it ends it.
///
/// AES-256-GCM-SIV with a constant nonce (Double Ratchet, section 7.2, allows one where each key is used once). A state
/// that was rolled back or cloned would use a key twice; then SIV reveals only whether the two messages are equal.
struct MessageKey: ~Copyable {
    let secret: SecretBytes

    /// Appends ciphertext and tag to `output`.
    consuming func seal(
        _ plaintext: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        Primitives.seal(plaintext, key: secret, authenticating: data, into: &output)
    }

    /// Appends the plaintext to `output`, or throws ``RatchetError/authenticationFailed`` and leaves it alone.
    consuming func open(
        _ sealed: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        try Primitives.open(sealed, key: secret, authenticating: data, into: &output)
    }
}
