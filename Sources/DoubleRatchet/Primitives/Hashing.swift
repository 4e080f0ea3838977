import CLibcrypto

/// SHA-2, HMAC (RFC 2104) and HKDF (RFC 5869), by libcrypto.
///
/// libcrypto uses the processor's SHA instructions if it has them, and its state is on our stack, where it is wiped.
extension Primitives {
    /// The output size of SHA-256, in bytes.
    package static let hashSize = 32
    /// The block size of SHA-256; HMAC keys have at most this many bytes here.
    private static let blockSize = 64

    static func sha256(_ message: UnsafeRawBufferPointer) -> Bytes32 {
        withUnsafeTemporaryAllocation(byteCount: hashSize, alignment: 8) { hash in
            withUnsafeTemporaryAllocation(of: SHA256_CTX.self, capacity: 1) { state in
                SHA256_Init(state.baseAddress)
                SHA256_Update(state.baseAddress, message.baseAddress, message.count)
                SHA256_Final(hash.baseAddress, state.baseAddress)
            }
            return Bytes32(UnsafeRawBufferPointer(hash))
        }
    }

    /// The first half of SHA-512: the input of the secret scalar in RFC 8032.
    static func sha512FirstHalf(_ secret: SecretBytes) -> SecretBytes {
        secret.withUnsafeBytes { secret in
            withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) { hash in
                defer { SecretBytes.wipe(hash) }
                sha512(secret, nothing, into: hash)
                return SecretBytes(copying: UnsafeRawBufferPointer(rebasing: hash[..<32]))
            }
        }
    }

    /// SHA-512 of the concatenation of two public parts; 64 bytes.
    static func sha512(_ first: [UInt8], _ second: [UInt8]) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 64) { hash, count in
            first.withUnsafeBytes { first in
                second.withUnsafeBytes { sha512(first, $0, into: UnsafeMutableRawBufferPointer(hash)) }
            }
            count = 64
        }
    }

    private static func sha512(
        _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, into hash: UnsafeMutableRawBufferPointer
    ) {
        withUnsafeTemporaryAllocation(of: SHA512_CTX.self, capacity: 1) { state in
            defer { SecretBytes.wipe(UnsafeMutableRawBufferPointer(state)) }
            SHA512_Init(state.baseAddress)
            SHA512_Update(state.baseAddress, first.baseAddress, first.count)
            SHA512_Update(state.baseAddress, second.baseAddress, second.count)
            SHA512_Final(hash.baseAddress, state.baseAddress)
        }
    }

    // MARK: HMAC

    /// A key of HMAC-SHA256 with both hashes already started, so that several codes reuse their first blocks.
    private struct CodeKey {
        /// The state after the inner pad, the state after the outer pad, and a working state.
        private let states: UnsafeMutablePointer<SHA256_CTX>
        /// One block of the hash.
        private let block: UnsafeMutableRawBufferPointer

        /// The started states of an empty key, as in HKDF without a salt: always the same.
        private static let withoutKey: (inner: SHA256_CTX, outer: SHA256_CTX) = with(filling: begin, nothing) {
            ($0.states[0], $0.states[1])
        }

        /// Calls `body` with a key and wipes it afterwards.
        package static func with<Result>(_ key: UnsafeRawBufferPointer, _ body: (CodeKey) -> Result) -> Result {
            guard key.isEmpty else { return with(filling: begin, key, body) }
            return with(
                filling: { code, _ in (code.states[0], code.states[1]) = withoutKey }, key, body)
        }

        private static func with<Result>(
            filling fill: (CodeKey, UnsafeRawBufferPointer) -> Void, _ key: UnsafeRawBufferPointer,
            _ body: (CodeKey) -> Result
        ) -> Result {
            let stateSize = MemoryLayout<SHA256_CTX>.stride
            return withUnsafeTemporaryAllocation(byteCount: blockSize + 3 * stateSize, alignment: 16) { memory in
                defer { SecretBytes.wipe(memory) }
                let states = UnsafeMutableRawBufferPointer(rebasing: memory[blockSize...])
                    .bindMemory(to: SHA256_CTX.self)
                guard let first = states.baseAddress else { preconditionFailure("there is memory") }
                let code = CodeKey(states: first, block: UnsafeMutableRawBufferPointer(rebasing: memory[..<blockSize]))
                fill(code, key)
                return body(code)
            }
        }

        private static func begin(_ code: CodeKey, with key: UnsafeRawBufferPointer) {
            precondition(key.count <= blockSize)
            let (states, pad) = (code.states, code.block)
            pad.initializeMemory(as: UInt8.self, repeating: 0)
            pad.copyMemory(from: key)
            mask(pad, 0x3636_3636_3636_3636)
            SHA256_Init(states)
            SHA256_Update(states, pad.baseAddress, blockSize)
            mask(pad, 0x3636_3636_3636_3636 ^ 0x5C5C_5C5C_5C5C_5C5C)
            SHA256_Init(states + 1)
            SHA256_Update(states + 1, pad.baseAddress, blockSize)
        }

        package func code(
            _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, _ third: UnsafeRawBufferPointer,
            into code: UnsafeMutableRawBufferPointer
        ) {
            let count = first.count + second.count + third.count
            guard count > Self.longestBlock else {
                block.copyMemory(from: first)
                UnsafeMutableRawBufferPointer(rebasing: block[first.count...]).copyMemory(from: second)
                UnsafeMutableRawBufferPointer(rebasing: block[(first.count + second.count)...]).copyMemory(from: third)
                finish(0, count, into: block)
                finish(1, hashSize, into: code)
                return
            }
            let state = states + 2
            state.update(from: states, count: 1)
            SHA256_Update(state, first.baseAddress, first.count)
            SHA256_Update(state, second.baseAddress, second.count)
            SHA256_Update(state, third.baseAddress, third.count)
            SHA256_Final(code.octets, state)
            state.update(from: states + 1, count: 1)
            SHA256_Update(state, code.baseAddress, hashSize)
            SHA256_Final(code.octets, state)
        }

        /// The longest message that fits into a block with its padding (FIPS 180-4, section 5.1.1). Such a block is
        /// padded here: a step of a chain hashes one byte, and the library's padding takes longer than the hash.
        private static let longestBlock = blockSize - 9

        /// Finishes the hash started by the state `index` with the first `count` bytes of the block.
        private func finish(_ index: Int, _ count: Int, into hash: UnsafeMutableRawBufferPointer) {
            UnsafeMutableRawBufferPointer(rebasing: block[count...]).initializeMemory(as: UInt8.self, repeating: 0)
            block[count] = 0x80
            block.storeBytes(
                of: UInt16(8 * (blockSize + count)).bigEndian, toByteOffset: blockSize - 2, as: UInt16.self)
            states[2].h = states[index].h
            SHA256_Transform(states + 2, block.octets)
            let words = UnsafeMutableRawPointer(states + 2).assumingMemoryBound(to: UInt32.self)
            for word in 0..<hashSize / 4 {
                hash.storeBytes(of: words[word].bigEndian, toByteOffset: 4 * word, as: UInt32.self)
            }
        }
    }

    private static func mask(_ pad: UnsafeMutableRawBufferPointer, _ mask: UInt64) {
        for offset in stride(from: 0, to: blockSize, by: 8) {
            let word = pad.load(fromByteOffset: offset, as: UInt64.self) ^ mask
            pad.storeBytes(of: word, toByteOffset: offset, as: UInt64.self)
        }
    }

    /// HMAC-SHA256 of the concatenation of up to three parts, into 32 bytes that overlap no part. The key has at most
    /// 64 bytes.
    package static func hmac(
        key: UnsafeRawBufferPointer, _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer = nothing,
        _ third: UnsafeRawBufferPointer = nothing, into code: UnsafeMutableRawBufferPointer
    ) {
        precondition(code.count == hashSize)
        CodeKey.with(key) { $0.code(first, second, third, into: code) }
    }

    package static func hmac(
        key: SecretBytes, _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer = nothing,
        _ third: UnsafeRawBufferPointer = nothing
    ) -> SecretBytes {
        SecretBytes(count: hashSize) { code in
            key.withUnsafeBytes { hmac(key: $0, first, second, third, into: code) }
        }
    }

    /// The first half of `KDF_CK` is the HMAC of 01, the second of 02 (Double Ratchet, section 7.2).
    static let messageByte: UInt8 = 0x01
    static let chainByte: UInt8 = 0x02

    /// Writes both halves to 64 bytes, which may contain the key.
    static func stepChain(_ key: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer) {
        CodeKey.with(key) { key in
            let (message, chain) = (messageByte, chainByte)
            Swift.withUnsafeBytes(of: message) {
                key.code($0, nothing, nothing, into: UnsafeMutableRawBufferPointer(rebasing: output[..<hashSize]))
            }
            Swift.withUnsafeBytes(of: chain) {
                key.code($0, nothing, nothing, into: UnsafeMutableRawBufferPointer(rebasing: output[hashSize...]))
            }
        }
    }

    /// HMAC-SHA256 of one byte: one half of a chain step.
    package static func hmac(key: SecretBytes, byte: UInt8, into code: UnsafeMutableRawBufferPointer) {
        key.withUnsafeBytes { key in
            Swift.withUnsafeBytes(of: byte) { hmac(key: key, $0, into: code) }
        }
    }

    package static var nothing: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: nil, count: 0) }

    // MARK: HKDF

    /// Fills `output` by HKDF-SHA256. The salt has at most 64 bytes.
    package static func hkdf(
        salt: UnsafeRawBufferPointer, secret: UnsafeRawBufferPointer, info: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) {
        precondition(output.count <= 255 * hashSize)
        // The extracted key, followed by the last block.
        withUnsafeTemporaryAllocation(byteCount: 2 * hashSize, alignment: 16) { block in
            defer { SecretBytes.wipe(block) }
            let extracted = UnsafeMutableRawBufferPointer(rebasing: block[..<hashSize])
            let last = UnsafeMutableRawBufferPointer(rebasing: block[hashSize...])
            hmac(key: salt, secret, into: extracted)
            CodeKey.with(UnsafeRawBufferPointer(extracted)) { key in
                var number: UInt8 = 1
                var previous = nothing
                for start in stride(from: 0, to: output.count, by: hashSize) {
                    let part = UnsafeMutableRawBufferPointer(
                        rebasing: output[start..<min(start + hashSize, output.count)])
                    Swift.withUnsafeBytes(of: number) { key.code(previous, info, $0, into: last) }
                    part.copyMemory(from: UnsafeRawBufferPointer(rebasing: last[..<part.count]))
                    previous = UnsafeRawBufferPointer(part)
                    number &+= 1
                }
            }
        }
    }

    /// HKDF-SHA256 with one or more outputs of 32 bytes each. The salt has at most 64 bytes.
    package static func hkdf(salt: SecretBytes, secret: SecretBytes, info: [UInt8], blocks: Int) -> [SecretBytes] {
        withUnsafeTemporaryAllocation(byteCount: blocks * hashSize, alignment: 16) { output in
            defer { SecretBytes.wipe(output) }
            salt.withUnsafeBytes { salt in
                secret.withUnsafeBytes { secret in
                    info.withUnsafeBytes { hkdf(salt: salt, secret: secret, info: $0, into: output) }
                }
            }
            return stride(from: 0, to: output.count, by: hashSize).map {
                SecretBytes(copying: UnsafeRawBufferPointer(rebasing: output[$0..<$0 + hashSize]))
            }
        }
    }
}
