/// ML-KEM-768 (FIPS 203) with encapsulation in two steps, as the ML-KEM Braid (section 1.3) requires.
///
/// ```
/// encapsulation key 1184 = vector 1152 || seed 32        header 64 = seed 32 || SHA3-256(encapsulation key) 32
/// ciphertext 1088        = first 960   || second 128
/// ```
/// The first 960 bytes of a ciphertext depend only on the header of the key. Key generation and decapsulation come from
/// swift-crypto (`Primitives`). Its public interface has no encapsulation that takes randomness or is split into parts,
/// so that is written here. Secrets are in memory that is wiped, and no branch or address depends on them.
enum IncrementalKEM {
    static let seedSize = 64
    static let headerSize = 64
    static let vectorSize = 1152
    static let firstSize = 960
    static let secondSize = 128
    private static let rank = 3

    /// The header of an encapsulation key of 1184 bytes: the first 64 bytes that a peer receives.
    package static func header(of publicKey: [UInt8]) -> [UInt8] {
        let seed = publicKey[vectorSize...]
        return seed + hash(vector: publicKey[..<vectorSize], seed: seed)
    }

    // MARK: Encapsulation in two steps (algorithms 14 and 17)

    /// `Encaps1`: the shared secret and the first 960 bytes of the ciphertext, from 32 random bytes and the header.
    static func encapsulate(_ message: SecretBytes, header: [UInt8]) -> (secret: SecretBytes, first: [UInt8]) {
        let (secret, coins) = expand(message, header)
        let first = [UInt8](unsafeUninitializedCapacity: firstSize) { output, count in
            count = firstSize
            withPolynomials(3 + rank) { polynomials in
                let (sum, noise, entry) = (polynomials[0], polynomials[1], polynomials[2])
                let vector = Array(polynomials[3...])
                coins.withUnsafeBytes { coins in
                    sampleVector(coins, into: vector)
                    for row in 0..<rank {
                        sum.update(repeating: 0)
                        for column in 0..<rank {
                            header.withUnsafeBytes {
                                PolynomialArithmetic.sampleUniform(
                                    UnsafeRawBufferPointer(rebasing: $0[..<32]), UInt8(row), UInt8(column), into: entry)
                            }
                            PolynomialArithmetic.accumulate(entry, vector[column], into: sum)
                        }
                        PolynomialArithmetic.inverseTransform(sum)
                        PolynomialArithmetic.sampleNoise(coins, UInt8(rank + row), into: noise)
                        PolynomialArithmetic.add(noise, to: sum)
                        let part = UnsafeMutableRawBufferPointer(output)[320 * row..<320 * (row + 1)]
                        PolynomialArithmetic.encode10(sum, into: UnsafeMutableRawBufferPointer(rebasing: part))
                    }
                }
            }
        }
        return (secret, first)
    }

    /// `Encaps2`: the last 128 bytes of the ciphertext, for the key's vector.
    ///
    /// - Throws: ``RatchetError/invalidKey`` if the vector is over the modulus (section 7.2) or does not belong to the
    ///   header.
    static func complete(_ message: SecretBytes, header: [UInt8], vector: [UInt8]) throws(RatchetError) -> [UInt8] {
        guard hash(vector: vector[...], seed: header[..<32])[...] == header[32...] else { throw .invalidKey }
        let (_, coins) = expand(message, header)
        var isCanonical = true
        let second = [UInt8](unsafeUninitializedCapacity: secondSize) { output, count in
            count = secondSize
            withPolynomials(3 + rank) { polynomials in
                let (sum, noise, entry) = (polynomials[0], polynomials[1], polynomials[2])
                let sampled = Array(polynomials[3...])
                sum.update(repeating: 0)
                coins.withUnsafeBytes { coins in
                    sampleVector(coins, into: sampled)
                    for row in 0..<rank {
                        vector.withUnsafeBytes {
                            let part = UnsafeRawBufferPointer(rebasing: $0[384 * row..<384 * (row + 1)])
                            isCanonical = PolynomialArithmetic.decode(part, into: entry) && isCanonical
                        }
                        PolynomialArithmetic.accumulate(entry, sampled[row], into: sum)
                    }
                    PolynomialArithmetic.inverseTransform(sum)
                    PolynomialArithmetic.sampleNoise(coins, UInt8(2 * rank), into: noise)
                }
                PolynomialArithmetic.add(noise, to: sum)
                message.withUnsafeBytes { PolynomialArithmetic.addMessage($0, to: sum) }
                PolynomialArithmetic.encode4(sum, into: UnsafeMutableRawBufferPointer(output))
            }
        }
        guard isCanonical else { throw .invalidKey }
        return second
    }

    /// `G(m || H(ek))`: the shared secret and the seed of all noise.
    private static func expand(_ message: SecretBytes, _ header: [UInt8]) -> (secret: SecretBytes, coins: SecretBytes) {
        var sponge = Keccak.sha3x512
        message.withUnsafeBytes { sponge.absorb($0) }
        header.withUnsafeBytes { sponge.absorb(UnsafeRawBufferPointer(rebasing: $0[32...])) }
        let secret = SecretBytes(count: 32) { sponge.squeeze(into: $0) }
        return (secret, SecretBytes(count: 32) { sponge.squeeze(into: $0) })
    }

    private static func hash(vector: ArraySlice<UInt8>, seed: ArraySlice<UInt8>) -> [UInt8] {
        var sponge = Keccak.sha3x256
        vector.withUnsafeBytes { sponge.absorb($0) }
        seed.withUnsafeBytes { sponge.absorb($0) }
        return [UInt8](unsafeUninitializedCapacity: 32) { output, count in
            sponge.squeeze(into: UnsafeMutableRawBufferPointer(output))
            count = 32
        }
    }

    private static func sampleVector(_ coins: UnsafeRawBufferPointer, into vector: [Polynomial]) {
        for (number, polynomial) in vector.enumerated() {
            PolynomialArithmetic.sampleNoise(coins, UInt8(number), into: polynomial)
            PolynomialArithmetic.transform(polynomial)
        }
    }

    /// Calls `body` with `count` polynomials, in memory that is wiped afterwards.
    private static func withPolynomials(_ count: Int, _ body: ([Polynomial]) -> Void) {
        withUnsafeTemporaryAllocation(of: Int16.self, capacity: count * PolynomialArithmetic.count) { memory in
            memory.initialize(repeating: 0)
            defer { SecretBytes.wipe(UnsafeMutableRawBufferPointer(memory)) }
            body(
                (0..<count).map {
                    Polynomial(
                        rebasing: memory[PolynomialArithmetic.count * $0..<PolynomialArithmetic.count * ($0 + 1)])
                })
        }
    }
}
