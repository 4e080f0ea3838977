// What `Tests/sanitize` runs under Valgrind: the code that is ours, with secrets marked as undefined, so that a branch or an
// address that depends on one is an error. In the tests nothing is here.

#if !ONE_MODULE
    @testable import OMEMO
#endif

#if SECRET_FLOW
    import Glibc

    @testable import DoubleRatchet

    @main
    struct SecretFlow {
        /// Bytes that Valgrind takes for undefined from here on, and everything that is computed from them.
        private static func secret(_ count: Int, _ byte: UInt8) -> SecretBytes {
            SecretBytes(count: count) {
                $0.initializeMemory(as: UInt8.self, repeating: byte)
                valgrind_poison($0.baseAddress, count)
            }
        }

        private static func text(_ count: Int) -> [UInt8] {
            let bytes = [UInt8](repeating: 0x41, count: count)
            bytes.withUnsafeBytes { valgrind_poison($0.baseAddress, count) }
            return bytes
        }

        /// What everybody may see from here on: the answer of a comparison, a ciphertext.
        private static func isDisclosed(_ answer: Bool) -> Bool {
            var answer = answer
            withUnsafeBytes(of: &answer) { valgrind_clear($0.baseAddress, 1) }
            return answer
        }

        /// The mark has to have come through, or the case shows nothing.
        private static func result(_ bytes: [UInt8]) {
            let isMarked = bytes.withUnsafeBytes { valgrind_is_marked($0.baseAddress, $0.count) != 0 }
            precondition(isMarked, "the result does not depend on the secret")
        }

        @inline(never)
        private static func leakyComparison(_ one: SecretBytes, _ other: SecretBytes) -> Bool {
            one.withUnsafeBytes { one in other.withUnsafeBytes { other in one.elementsEqual(other) } }
        }

        private static func cases() throws -> [(name: String, branches: ClosedRange<UInt32>, body: () throws -> Void)] {
            let info = Array("info".utf8)
            var random = SeededGenerator(seed: 1)
            let header = IncrementalKEM.header(
                of: Primitives.kem768PublicKey(seed: SecretBytes(count: 64, random: &random)))
            let vector = Array(Primitives.kem768PublicKey(seed: SecretBytes(count: 64, random: &random))[..<1152])
            let states = try FuzzStates.shared.get()
            return [
                (
                    "the control: a comparison that stops early", 1...1000,
                    { _ = leakyComparison(secret(32, 1), secret(32, 1)) }
                ),
                ("comparison", 0...0, { _ = isDisclosed(secret(32, 1).isEqual(to: secret(32, 2))) }),
                ("all zero or not", 0...0, { _ = isDisclosed(secret(32, 0).isZero) }),
                ("HMAC", 0...0, { _ = Primitives.hmac(key: secret(32, 1), .init(start: nil, count: 0)) }),
                (
                    "HKDF", 0...0,
                    { _ = Primitives.hkdf(salt: secret(32, 1), secret: secret(160, 2), info: info, blocks: 4) }
                ),
                ("identity's scalar", 0...0, { _ = Primitives.sha512FirstHalf(secret(32, 1)) }),
                (
                    "message key from both halves, and sealing", 0...0,
                    {
                        var key = [UInt8](repeating: 0, count: 32)
                        key.withUnsafeMutableBytes { key in
                            let (one, other) = (secret(32, 1), secret(32, 2))
                            one.withUnsafeBytes { one in
                                other.withUnsafeBytes { MessageKeys.combine(one, $0, into: key) }
                            }
                        }
                        result(key)
                        result(sealed(text(300), key, info))
                    }
                ),
                (
                    "a message of several chunks of the cipher", 0...0,
                    { result(sealed(text(3000), array(secret(32, 1)), info)) }
                ),
                (
                    "a step of a chain", 0...0,
                    {
                        var key = ChainKey(secret: secret(32, 1))
                        MessageKeys.Place.with { place in
                            key.derive(2, into: place)
                            key.goOn(from: place)
                        }
                        key.advance()
                        result(array(key.secret))
                    }
                ),
                (
                    "a step of the root key", 0...0,
                    {
                        let (root, chain, header) = RootKey(secret: secret(32, 1)).step(secret(32, 2))
                        result(array(root.secret) + array(chain.secret) + array(header.secret))
                    }
                ),
                (
                    "message key of a sender key", 0...0,
                    { ChainKey(secret: secret(32, 1)).messageKey.withUnsafeBytes { result(Array($0)) } }
                ),
                (
                    "header and its hint", 0...0,
                    {
                        var output = [0] + [UInt8](repeating: 4, count: 40 + KeySize.tag)
                        output.withUnsafeMutableBytes { output in
                            CipherContext.withOne {
                                HeaderKey(secret: secret(32, 1)).seal(output, first: 0x20, with: $0)
                            }
                        }
                        result(output)
                    }
                ),
                (
                    "the braid's authenticator", 0...0,
                    {
                        var authenticator = BraidAuthenticator(secret: secret(32, 1))
                        authenticator.update(epoch: 2, secret: secret(32, 2))
                        result(authenticator.mac(epoch: 2, header: info))
                    }
                ),
                (
                    "ML-KEM, first step", 0...0,
                    { result(IncrementalKEM.encapsulate(secret(32, 1), header: header).first) }
                ),
                (
                    "ML-KEM, second step", 0...0,
                    {
                        result(
                            try IncrementalKEM.complete(
                                secret(32, 1), header: ownHeader(vector, header), vector: vector))
                    }
                ),
                (
                    "OMEMO: cipher and MAC", 0...0,
                    {
                        secret(32, 1).withUnsafeBytes {
                            OMEMOCipherKeys.with($0, info: info) { keys in
                                var sealed: [UInt8] = []
                                text(300).withUnsafeBytes { keys.seal($0, into: &sealed) }
                                result(sealed)
                                sealed.withUnsafeBytes { sealed in
                                    keys.withMAC(of: sealed) { result(Array($0)) }
                                }
                            }
                        }
                    }
                ),
                (
                    "opening: only whether the tag holds, which is told", 1...4,
                    {
                        let sealed = [UInt8](repeating: 3, count: 300)
                        var output = [UInt8](repeating: 0, count: sealed.count - KeySize.tag)
                        CipherContext.withOne { context in
                            secret(32, 1).withUnsafeBytes { context.setKey($0) }
                            sealed.withUnsafeBytes { sealed in
                                info.withUnsafeBytes { info in
                                    output.withUnsafeMutableBytes { output in
                                        CipherContext.zeroNonce.withUnsafeBytes {
                                            _ = context.open(
                                                sealed, nonce: $0, authenticating: info, into: output)
                                        }
                                    }
                                }
                            }
                        }
                    }
                ),
                ("a whole session, sending in its chain", 0...0, { try session(states.established.bob) }),
            ]
        }

        private static func array(_ secret: SecretBytes) -> [UInt8] { secret.withUnsafeBytes { Array($0) } }

        /// `text` under `key`, with its tag.
        private static func sealed(_ text: [UInt8], _ key: [UInt8], _ data: [UInt8]) -> [UInt8] {
            var bytes = text + [UInt8](repeating: 0, count: KeySize.tag)
            CipherContext.withOne { context in
                key.withUnsafeBytes { context.setKey($0) }
                bytes.withUnsafeMutableBytes { bytes in
                    data.withUnsafeBytes { data in
                        CipherContext.zeroNonce.withUnsafeBytes {
                            context.seal(bytes, nonce: $0, authenticating: data)
                        }
                    }
                }
            }
            return bytes
        }

        /// The header that belongs to `vector`, with the seed of another one.
        private static func ownHeader(_ vector: [UInt8], _ header: [UInt8]) -> [UInt8] {
            IncrementalKEM.header(of: vector + header[..<32])
        }

        /// Encrypts with every secret at a fixed place of a state marked.
        private static func session(_ genuine: [UInt8]) throws {
            var state = genuine
            let flags = state[1]
            precondition(flags & 0b1110 == 0b0110, "a sending chain, a receiving chain and no prekey part")
            // Root; both next header keys; private, header and chain key of the sending chain; header and chain key of the receiving
            // chain; root, sending and receiving chain key of the post-quantum ratchet. Drawn in SessionState.swift and
            // SparsePostQuantumState.swift.
            let places = [
                98..<130, 166..<230, 230..<262, 294..<358, 362..<394, 398..<430, 435..<467, 467..<499, 503..<535,
            ]
            state.withUnsafeMutableBytes { bytes in
                for place in places { valgrind_poison(bytes.baseAddress?.advanced(by: place.lowerBound), place.count) }
            }
            var session = try Session(serialized: state.span)
            var random = SeededGenerator(seed: 3)
            let (plaintext, data) = (text(256), [1, 2] as [UInt8])
            var output: [UInt8] = []
            try session.encrypt(plaintext.span, associatedData: data.span, random: &random, into: &output)
            result(output)
        }

        // MARK: Work

        /// How many instructions a receiver spends, for Callgrind to count.
        private static func work() throws {
            var random = SeededGenerator(seed: 4)
            let states = try FuzzStates.shared.get()
            let (alice, bob) = (
                try NativeEnd(states.established.alice), try NativeEnd(states.established.bob)
            )
            // As many finished chains as are ever kept, a key waiting in each.
            for _ in 0..<40 {
                var output: [UInt8] = []
                _ = try alice.seal([], random: &random)
                try bob.open(try alice.seal([], random: &random), into: &output)
                try alice.open(try bob.seal([], random: &random), into: &output)
            }
            // Warm: what is made once is made.
            for _ in 0..<3 {
                var output: [UInt8] = []
                try bob.open(try alice.seal([], random: &random), into: &output)
            }
            let text = [UInt8](repeating: 7, count: 256)
            let good = try alice.seal(text, random: &random)
            var changed = good
            changed.bytes[changed.bytes.count - 1] ^= 1
            var foreign = good
            foreign.bytes.replaceSubrange(2..., with: random.bytes(good.bytes.count - 2))
            for (name, packet) in [("warm", foreign), ("foreign", foreign), ("changed", changed), ("good", good)] {
                var output: [UInt8] = []
                output.reserveCapacity(1000)
                valgrind_begin()
                try? bob.open(packet, into: &output)
                valgrind_end(name)
            }
            let next = try bob.seal(text, random: &random)
            var output: [UInt8] = []
            try alice.open(next, into: &output)
            let step = try alice.seal(text, random: &random)
            var changedStep = step
            changedStep.bytes[changedStep.bytes.count - 1] ^= 1
            for (name, packet) in [("changed step", changedStep), ("step", step)] {
                valgrind_begin()
                try? bob.open(packet, into: &output)
                valgrind_end(name)
            }
        }

        static func main() throws {
            guard CommandLine.arguments.dropFirst().first != "work" else { return try work() }
            guard valgrind_is_there() != 0 else {
                print("secrets are only marked under Valgrind")
                exit(64)
            }
            valgrind_print_lines()
            var failures = 0
            for (name, branches, body) in try cases() {
                // Once for what is made once, and counted afterwards.
                try body()
                let before = valgrind_errors()
                try body()
                let count = valgrind_errors() - before
                let isGood = branches.contains(count)
                failures += isGood ? 0 : 1
                print("\(isGood ? "ok    " : "FAILED")  \(count)  \(name)")
            }
            exit(failures == 0 ? 0 : 1)
        }
    }
#endif
