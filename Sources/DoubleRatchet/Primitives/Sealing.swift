/// Authenticated encryption: AES-256-GCM-SIV (RFC 8452), for which a nonce that is used twice reveals whether two messages
/// are equal, and no more.
extension Primitives {
    /// Appends ciphertext and tag to `output`.
    static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        let start = output.count
        output.append(contentsOf: plaintext)
        withUnsafeTemporaryAllocation(byteCount: KeySize.tag, alignment: 16) { tag in
            CipherContext.withOne { context in
                context.deriveKeys(key, nonce)
                data.withUnsafeBytes { context.makeTag(tag, of: plaintext, authenticating: $0, nonce) }
                output.withUnsafeMutableBytes {
                    context.applyStream(of: UnsafeRawBufferPointer(tag), to: .init(rebasing: $0[start...]))
                }
            }
            output.append(contentsOf: tag)
        }
    }

    /// Appends the plaintext to `output`, or throws and leaves `output` alone.
    static func open(
        _ sealed: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        guard sealed.count >= KeySize.tag else { throw .authenticationFailed }
        let tag = UnsafeRawBufferPointer(rebasing: sealed.suffix(KeySize.tag))
        let start = output.count
        output.append(contentsOf: sealed.dropLast(KeySize.tag))
        let isGenuine = output.withUnsafeMutableBytes { output in
            let text = UnsafeMutableRawBufferPointer(rebasing: output[start...])
            return CipherContext.withOne { context in
                context.deriveKeys(key, nonce)
                context.applyStream(of: tag, to: text)
                let isGenuine = withUnsafeTemporaryAllocation(byteCount: KeySize.tag, alignment: 16) { expected in
                    data.withUnsafeBytes {
                        context.makeTag(expected, of: UnsafeRawBufferPointer(text), authenticating: $0, nonce)
                    }
                    return SecretBytes.areEqual(UnsafeRawBufferPointer(expected), tag)
                }
                if !isGenuine { SecretBytes.wipe(text) }
                return isGenuine
            }
        }
        guard isGenuine else {
            output.removeSubrange(start...)
            throw .authenticationFailed
        }
    }

    // MARK: With the constant nonce

    /// A session's keys seal one message each, so its nonce carries nothing; it is the constant zero.
    static let zeroNonce = [UInt8](repeating: 0, count: KeySize.nonce)

    static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) {
        zeroNonce.withUnsafeBytes { seal(plaintext, key: key, nonce: $0, authenticating: data, into: &output) }
    }

    static func open(
        _ sealed: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) {
        try zeroNonce.span.withUnsafeBytes { (nonce) throws(RatchetError) in
            try open(sealed, key: key, nonce: nonce, authenticating: data, into: &output)
        }
    }

    // MARK: With keys and nonces that are kept

    static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8] = zeroNonce,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        key.withUnsafeBytes { key in
            nonce.withUnsafeBytes { seal(plaintext, key: key, nonce: $0, authenticating: data, into: &output) }
        }
    }

    static func open(
        _ sealed: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8] = zeroNonce,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        try key.withUnsafeBytes { (key) throws(RatchetError) in
            try nonce.span.withUnsafeBytes { (nonce) throws(RatchetError) in
                try open(sealed, key: key, nonce: nonce, authenticating: data, into: &output)
            }
        }
    }
}
