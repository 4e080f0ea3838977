/// The key of one chain's headers (Double Ratchet, section 4).
///
/// It seals many headers, under AES-256-GCM-SIV with a constant nonce: a header holds the ratchet key and the message's
/// number, so no two of one chain are the same, which is all that SIV needs. The first byte of the message is authenticated
/// with it.
///
/// Beside the sealed header stands a hint, so that a receiver need not open it with each of its keys:
///
/// ```
/// hint = first byte of AES-256(header key, tag of the sealed header with its last byte set to FF)
/// ```
/// To others it is as random as the tag. AES-GCM-SIV gives the same key only blocks that end in 00 (RFC 8452, section 4), so
/// the hint tells nothing of what those yield, for no tag that anybody may choose.
package struct HeaderKey: Sendable {
    package let secret: SecretBytes

    /// Puts the hint and the sealed header in place of one byte of anything, the header, and 16 bytes of anything.
    package func seal(_ bytes: UnsafeMutableRawBufferPointer, first: UInt8, with context: CipherContext) {
        let sealed = UnsafeMutableRawBufferPointer(rebasing: bytes[1...])
        secret.withUnsafeBytes { context.setKey($0) }
        CipherContext.zeroNonce.withUnsafeBytes { nonce in
            withUnsafeBytes(of: first) { context.seal(sealed, nonce: nonce, authenticating: $0) }
        }
        secret.withUnsafeBytes { context.setKey($0) }
        bytes[0] = hint(of: UnsafeRawBufferPointer(sealed), with: context)
    }

    /// The header, in the memory of `context`, or nil where it was not sealed with this key.
    package func open(
        _ sealed: UnsafeRawBufferPointer, hint: UInt8, first: UInt8, with context: CipherContext
    ) -> UnsafeRawBufferPointer? {
        secret.withUnsafeBytes { context.setKey($0) }
        guard self.hint(of: sealed, with: context) == hint else { return nil }
        let header = UnsafeMutableRawBufferPointer(rebasing: context.header[..<(sealed.count - KeySize.tag)])
        let isGenuine = CipherContext.zeroNonce.withUnsafeBytes { nonce in
            withUnsafeBytes(of: first) { context.open(sealed, nonce: nonce, authenticating: $0, into: header) }
        }
        return isGenuine ? UnsafeRawBufferPointer(header) : nil
    }

    /// Under the key that is set.
    private func hint(of sealed: UnsafeRawBufferPointer, with context: CipherContext) -> UInt8 {
        withUnsafeTemporaryAllocation(byteCount: KeySize.tag, alignment: 16) { block in
            block.copyMemory(from: UnsafeRawBufferPointer(rebasing: sealed.suffix(KeySize.tag)))
            block[KeySize.tag - 1] = 0xFF
            context.encrypt(block)
            return block[0]
        }
    }
}
