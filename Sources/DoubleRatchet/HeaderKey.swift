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
struct HeaderKey: Sendable {
    let secret: SecretBytes

    /// Appends the hint and the sealed header to `output`, 17 bytes more than the header.
    func seal(_ header: [UInt8], first: UInt8, into output: inout [UInt8]) {
        let place = output.count
        output.append(0)
        header.withUnsafeBytes { Primitives.seal($0, key: secret, authenticating: [first], into: &output) }
        output[place] = output.withUnsafeBytes { hint(of: UnsafeRawBufferPointer(rebasing: $0[place...])) }
    }

    /// The header, or nil where it was not sealed with this key.
    func open(_ sealed: UnsafeRawBufferPointer, hint: UInt8, first: UInt8) -> [UInt8]? {
        guard self.hint(of: sealed) == hint else { return nil }
        var header: [UInt8] = []
        do {
            try Primitives.open(sealed, key: secret, authenticating: [first], into: &header)
            return header
        } catch {
            return nil
        }
    }

    private func hint(of sealed: UnsafeRawBufferPointer) -> UInt8 {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: KeySize.tag) { block in
            _ = block.initialize(from: sealed.suffix(KeySize.tag))
            block[KeySize.tag - 1] = 0xFF
            Primitives.encryptBlock(block, key: secret)
            return block[0]
        }
    }
}
