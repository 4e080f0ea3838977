/// Authenticated encryption: AES-256-GCM-SIV (RFC 8452). A nonce that is used twice discloses only whether two messages
/// are equal.
extension Primitives {
    /// Appends ciphertext and tag to `output`.
    package static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        output.append(addingCapacity: plaintext.count + KeySize.tag) { output in
            output.appendBytes(plaintext.count + KeySize.tag) { bytes in
                bytes.copyMemory(from: plaintext)
                CipherContext.withOne { context in
                    context.setKey(key)
                    data.withUnsafeBytes { context.seal(bytes, nonce: nonce, authenticating: $0) }
                }
            }
        }
    }

    /// Appends the plaintext to `output`; after an error `output` is unchanged.
    package static func open(
        _ sealed: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        guard sealed.count >= KeySize.tag else { throw .authenticationFailed }
        try output.append(addingCapacity: sealed.count - KeySize.tag) { (output) throws(RatchetError) in
            try output.appendBytes(sealed.count - KeySize.tag) { (text) throws(RatchetError) in
                let isGenuine = CipherContext.withOne { context in
                    context.setKey(key)
                    return data.withUnsafeBytes { context.open(sealed, nonce: nonce, authenticating: $0, into: text) }
                }
                guard isGenuine else { throw .authenticationFailed }
            }
        }
    }

    // MARK: With stored keys and nonces

    package static func seal(
        _ plaintext: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8] = CipherContext.zeroNonce,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        key.withUnsafeBytes { key in
            nonce.withUnsafeBytes { seal(plaintext, key: key, nonce: $0, authenticating: data, into: &output) }
        }
    }

    package static func open(
        _ sealed: UnsafeRawBufferPointer, key: SecretBytes, nonce: [UInt8] = CipherContext.zeroNonce,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        try key.withUnsafeBytes { (key) throws(RatchetError) in
            try nonce.span.withUnsafeBytes { (nonce) throws(RatchetError) in
                try open(sealed, key: key, nonce: nonce, authenticating: data, into: &output)
            }
        }
    }
}

extension OutputSpan<UInt8> {
    /// Appends `count` bytes that `fill` writes, or none if it throws.
    mutating func appendBytes<Failure: Error>(
        _ count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws(Failure) -> Void
    ) throws(Failure) {
        try withUnsafeMutableBufferPointer { (buffer, initialized) throws(Failure) in
            let end = initialized + count
            precondition(end <= buffer.count, "there is room")
            try fill(UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(rebasing: buffer[initialized..<end])))
            initialized = end
        }
    }
}
