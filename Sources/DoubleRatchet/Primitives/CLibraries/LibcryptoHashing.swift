#if CLibraries
    import CLibcrypto

    /// SHA-2 by libcrypto, which uses the processor's SHA instructions. Its state is on our stack, where it is wiped.
    extension Primitives {
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

        static func sha512(
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
    }

    /// A key of HMAC-SHA256 with both hashes already started, so that several codes reuse their first blocks.
    struct CodeKey {
        /// The state after the inner pad, the state after the outer pad, and a working state.
        private let states: UnsafeMutablePointer<SHA256_CTX>
        /// One block of the hash.
        private let block: UnsafeMutableRawBufferPointer

        /// The started states of an empty key, as in HKDF without a salt: always the same.
        private static let withoutKey: (inner: SHA256_CTX, outer: SHA256_CTX) = with(filling: begin, Primitives.nothing)
        {
            ($0.states[0], $0.states[1])
        }

        /// Calls `body` with a key and wipes it afterwards.
        static func with<Result>(_ key: UnsafeRawBufferPointer, _ body: (CodeKey) -> Result) -> Result {
            guard key.isEmpty else { return with(filling: begin, key, body) }
            return with(
                filling: { code, _ in (code.states[0], code.states[1]) = withoutKey }, key, body)
        }

        private static func with<Result>(
            filling fill: (CodeKey, UnsafeRawBufferPointer) -> Void, _ key: UnsafeRawBufferPointer,
            _ body: (CodeKey) -> Result
        ) -> Result {
            let stateSize = MemoryLayout<SHA256_CTX>.stride
            return withUnsafeTemporaryAllocation(byteCount: Primitives.blockSize + 3 * stateSize, alignment: 16) {
                memory in
                defer { SecretBytes.wipe(memory) }
                let states = UnsafeMutableRawBufferPointer(rebasing: memory[Primitives.blockSize...])
                    .bindMemory(to: SHA256_CTX.self)
                guard let first = states.baseAddress else { preconditionFailure("there is memory") }
                let code = CodeKey(
                    states: first, block: UnsafeMutableRawBufferPointer(rebasing: memory[..<Primitives.blockSize]))
                fill(code, key)
                return body(code)
            }
        }

        private static func begin(_ code: CodeKey, with key: UnsafeRawBufferPointer) {
            precondition(key.count <= Primitives.blockSize)
            let (states, pad) = (code.states, code.block)
            pad.initializeMemory(as: UInt8.self, repeating: 0)
            pad.copyMemory(from: key)
            mask(pad, 0x3636_3636_3636_3636)
            SHA256_Init(states)
            SHA256_Update(states, pad.baseAddress, Primitives.blockSize)
            mask(pad, 0x3636_3636_3636_3636 ^ 0x5C5C_5C5C_5C5C_5C5C)
            SHA256_Init(states + 1)
            SHA256_Update(states + 1, pad.baseAddress, Primitives.blockSize)
        }

        func code(
            _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, _ third: UnsafeRawBufferPointer,
            into code: UnsafeMutableRawBufferPointer
        ) {
            let count = first.count + second.count + third.count
            guard count > Self.longestBlock else {
                block.copyMemory(from: first)
                UnsafeMutableRawBufferPointer(rebasing: block[first.count...]).copyMemory(from: second)
                UnsafeMutableRawBufferPointer(rebasing: block[(first.count + second.count)...]).copyMemory(from: third)
                finish(0, count, into: block)
                finish(1, Primitives.hashSize, into: code)
                return
            }
            let state = states + 2
            state.update(from: states, count: 1)
            SHA256_Update(state, first.baseAddress, first.count)
            SHA256_Update(state, second.baseAddress, second.count)
            SHA256_Update(state, third.baseAddress, third.count)
            SHA256_Final(code.octets, state)
            state.update(from: states + 1, count: 1)
            SHA256_Update(state, code.baseAddress, Primitives.hashSize)
            SHA256_Final(code.octets, state)
        }

        /// The longest message that fits into a block with its padding (FIPS 180-4, section 5.1.1). Such a block is
        /// padded here: a step of a chain hashes one byte, and the library's padding takes longer than the hash.
        private static let longestBlock = Primitives.blockSize - 9

        /// Finishes the hash started by the state `index` with the first `count` bytes of the block.
        private func finish(_ index: Int, _ count: Int, into hash: UnsafeMutableRawBufferPointer) {
            UnsafeMutableRawBufferPointer(rebasing: block[count...]).initializeMemory(as: UInt8.self, repeating: 0)
            block[count] = 0x80
            block.storeBytes(
                of: UInt16(8 * (Primitives.blockSize + count)).bigEndian, toByteOffset: Primitives.blockSize - 2,
                as: UInt16.self)
            states[2].h = states[index].h
            SHA256_Transform(states + 2, block.octets)
            let words = UnsafeMutableRawPointer(states + 2).assumingMemoryBound(to: UInt32.self)
            for word in 0..<Primitives.hashSize / 4 {
                hash.storeBytes(of: words[word].bigEndian, toByteOffset: 4 * word, as: UInt32.self)
            }
        }

        private static func mask(_ pad: UnsafeMutableRawBufferPointer, _ mask: UInt64) {
            for offset in stride(from: 0, to: Primitives.blockSize, by: 8) {
                let word = pad.load(fromByteOffset: offset, as: UInt64.self) ^ mask
                pad.storeBytes(of: word, toByteOffset: offset, as: UInt64.self)
            }
        }
    }
#endif
