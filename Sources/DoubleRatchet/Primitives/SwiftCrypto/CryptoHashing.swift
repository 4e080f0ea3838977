#if !CLibraries
    import Crypto

    /// SHA-2 by swift-crypto. Its states are on the stack, where they are not wiped.
    extension Primitives {
        static func sha256(_ message: UnsafeRawBufferPointer) -> Bytes32 {
            var state = SHA256()
            state.update(bufferPointer: message)
            return state.finalize().withUnsafeBytes { Bytes32($0) }
        }

        static func sha512(
            _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, into hash: UnsafeMutableRawBufferPointer
        ) {
            var state = SHA512()
            state.update(bufferPointer: first)
            state.update(bufferPointer: second)
            state.finalize().withUnsafeBytes { hash.copyMemory(from: $0) }
        }
    }

    /// A key of HMAC-SHA256 with both hashes already started, so that several codes reuse their first blocks.
    struct CodeKey {
        private let start: HMAC<SHA256>

        /// Calls `body` with a key.
        static func with<Result>(_ key: UnsafeRawBufferPointer, _ body: (CodeKey) -> Result) -> Result {
            precondition(key.count <= Primitives.blockSize)
            return body(CodeKey(start: HMAC<SHA256>(key: SymmetricKey(data: key))))
        }

        func code(
            _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, _ third: UnsafeRawBufferPointer,
            into code: UnsafeMutableRawBufferPointer
        ) {
            var state = start
            state.update(data: first)
            state.update(data: second)
            state.update(data: third)
            state.finalize().withUnsafeBytes { code.copyMemory(from: $0) }
        }
    }
#endif
