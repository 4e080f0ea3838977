/// The key of one chain's headers (Double Ratchet, section 4).
///
/// It seals many headers under AES-256-GCM-SIV with a constant nonce. A header holds the ratchet key and the message's
/// number, so no two headers of one chain are equal, and SIV needs nothing more. The first byte of the message is
/// authenticated with the header.
///
/// A hint precedes the sealed header, so that a receiver need not try to open it with each of its keys:
///
/// ```
/// hint = first byte of AES-256(header key, tag of the sealed header with its last byte set to FF)
/// ```
/// Without the key, the hint is as random as the tag. Under this key, AES-GCM-SIV encrypts only blocks that end in 00
/// (RFC 8452, section 4), so the hint discloses nothing about their results, whatever tag a sender chooses.
package struct HeaderKey: Sendable {
    package let secret: SecretBytes

    /// Seals in place: the input is one arbitrary byte, the header and 16 arbitrary bytes; the output is the hint and
    /// the sealed header.
    package func seal(_ bytes: UnsafeMutableRawBufferPointer, first: UInt8, with context: CipherContext) {
        let sealed = UnsafeMutableRawBufferPointer(rebasing: bytes[1...])
        secret.withUnsafeBytes { context.setKey($0) }
        CipherContext.zeroNonce.withUnsafeBytes { nonce in
            withUnsafeBytes(of: first) { context.seal(sealed, nonce: nonce, authenticating: $0) }
        }
        secret.withUnsafeBytes { context.setKey($0) }
        bytes[0] = hint(of: UnsafeRawBufferPointer(sealed), with: context)
    }

    /// Opens a header into the memory of `context`; nil if it was not sealed with this key.
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

    /// The hint under the key that `context` has set.
    private func hint(of sealed: UnsafeRawBufferPointer, with context: CipherContext) -> UInt8 {
        withUnsafeTemporaryAllocation(byteCount: KeySize.tag, alignment: 16) { block in
            block.copyMemory(from: UnsafeRawBufferPointer(rebasing: sealed.suffix(KeySize.tag)))
            block[KeySize.tag - 1] = 0xFF
            context.encrypt(block)
            return block[0]
        }
    }
}
