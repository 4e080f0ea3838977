import Crypto
import Foundation
import TestKit
import Testing

@testable import DoubleRatchet

@Suite("ML-KEM-768 in two steps")
struct IncrementalKEMTests {
    private func digest(_ sponge: consuming Keccak, _ input: [UInt8], _ count: Int, step: Int = .max) -> String {
        var sponge = sponge
        for start in stride(from: 0, to: input.count, by: min(step, max(input.count, 1))) {
            input[start..<min(input.count, start + min(step, input.count))].withUnsafeBytes { sponge.absorb($0) }
        }
        return text(SecretBytes(count: count) { sponge.squeeze(into: $0) }.array)
    }

    @Test("FIPS 202: the functions of nothing and of abc") func keccak() {
        #expect(
            digest(.sha3x256, [], 32) == "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a")
        #expect(
            digest(.sha3x256, Array("abc".utf8), 32)
                == "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532")
        #expect(
            digest(.sha3x512, Array("abc".utf8), 64)
                == "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e"
                + "10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0")
        #expect(
            digest(.shake128, [], 32) == "7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26")
        #expect(
            digest(.shake256, [], 32) == "46b9dd2b0ba88d13233b3feb743eeb243fcd52ea62b81b82b50c27646ed5762f")
    }

    @Test("SHA3 agrees with the cryptographic library at every length, however it is fed") func sha3() {
        var random = SeededGenerator(seed: 900)
        for length in 0..<300 {
            let input = random.bytes(length)
            #expect(digest(.sha3x256, input, 32) == text(Array(SHA3_256.hash(data: input))), "\(length)")
            #expect(digest(.sha3x256, input, 32, step: 7) == text(Array(SHA3_256.hash(data: input))), "\(length)")
            #expect(digest(.sha3x512, input, 64) == text(Array(SHA3_512.hash(data: input))), "\(length)")
        }
    }

    @Test("what two steps seal the cryptographic library opens, 200 keys") func roundTrips() throws {
        var random = SeededGenerator(seed: 901)
        for _ in 0..<200 {
            let seed = SecretBytes(count: IncrementalKEM.seedSize, random: &random)
            let message = SecretBytes(count: 32, random: &random)
            let publicKey = Primitives.kem768PublicKey(seed: seed)
            let header = IncrementalKEM.header(of: publicKey)
            #expect(header.count == IncrementalKEM.headerSize)
            let (secret, first) = IncrementalKEM.encapsulate(message, header: header)
            let second = try IncrementalKEM.complete(message, header: header, vector: Array(publicKey[..<1152]))
            #expect((first.count, second.count) == (960, 128))
            #expect(Primitives.kem768Decapsulate(first + second, seed: seed).isEqual(to: secret))
            // Swapped or changed, it opens to something else.
            var changed = first + second
            changed[random.below(changed.count)] ^= 1
            #expect(!Primitives.kem768Decapsulate(changed, seed: seed).isEqual(to: secret))
        }
    }

    @Test("a vector that is not the header's, or over the modulus, is refused") func otherVector() throws {
        var random = SeededGenerator(seed: 902)
        let message = SecretBytes(count: 32, random: &random)
        let key = Primitives.kem768PublicKey(seed: SecretBytes(count: 64, random: &random))
        let header = IncrementalKEM.header(of: key)
        for index in stride(from: 0, to: 1152, by: 13) {
            var vector = Array(key[..<1152])
            vector[index] ^= 1
            #expect(throws: RatchetError.invalidKey) {
                _ = try IncrementalKEM.complete(message, header: header, vector: vector)
            }
        }
        let over = [UInt8](repeating: 0xFF, count: 1152) + key[1152...]
        #expect(throws: RatchetError.invalidKey) {
            _ = try IncrementalKEM.complete(
                message, header: IncrementalKEM.header(of: over), vector: Array(over[..<1152]))
        }
    }

    @Test("published ML-KEM-768: encapsulation in two steps, and what the other end makes of it") func published()
        throws
    {
        let tests = try VectorFile.published("asymmetric/MLKEM/kat_MLKEM_768.rsp")
            .records(beginningWith: "count", 400_000)
        for (index, test) in tests.enumerated() {
            let seed = SecretBytes(try #require(test["d"]) + (try #require(test["z"])))
            let (key, message) = (try #require(test["pk"]), SecretBytes(try #require(test["msg"])))
            #expect(Primitives.kem768PublicKey(seed: seed) == key, "\(index)")
            let header = IncrementalKEM.header(of: key)
            let (secret, first) = IncrementalKEM.encapsulate(message, header: header)
            let second = try IncrementalKEM.complete(message, header: header, vector: Array(key[..<1152]))
            #expect(first + second == test["ct"], "\(index)")
            #expect(secret.array == test["ss"], "\(index)")
            #expect(Primitives.kem768Decapsulate(first + second, seed: seed).array == test["ss"], "\(index)")
            let other = Primitives.kem768Decapsulate(try #require(test["ct_n"]), seed: seed)
            #expect(other.array == test["ss_n"], "\(index)")
        }
        #expect(tests.count > 20, "\(tests.count)")
    }

    private static let vectors = VectorFile.shared("mlkem_768_encaps_test.json")
    static let hasVectors = vectors.exists

    @Test("Wycheproof ML-KEM-768: encapsulation", .enabled(if: hasVectors, "vectors not found"))
    func wycheproof() throws {
        var (matched, refused) = (0, 0)
        for test in try Self.vectors.wycheproof() {
            let id = test["tcId"] as? Int ?? 0
            let (key, message) = (hex(test["ek"] as? String ?? ""), hex(test["m"] as? String ?? ""))
            // Of another length they do not get here: 36 chunks are 1152 bytes.
            guard key.count == 1184 else {
                #expect(test["result"] as? String == "invalid", "test \(id)")
                refused += 1
                continue
            }
            let header = IncrementalKEM.header(of: key)
            let (secret, first) = IncrementalKEM.encapsulate(SecretBytes(message), header: header)
            let second = try? IncrementalKEM.complete(
                SecretBytes(message), header: header, vector: Array(key[..<1152]))
            guard test["result"] as? String == "valid" else {
                #expect(second == nil, "test \(id)")
                refused += 1
                continue
            }
            #expect(second.map { text(first + $0) } == test["c"] as? String, "test \(id)")
            #expect(text(secret.array) == test["K"] as? String, "test \(id)")
            matched += 1
        }
        #expect(matched > 100 && refused > 100, "\(matched) matched, \(refused) refused")
    }
}
