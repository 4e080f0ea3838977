import Foundation
import Testing

@testable import DoubleRatchet

/// Vectors that are not part of this package: where their folder is missing, the test is skipped and says so.
@Suite("Vectors from outside the package")
struct VectorTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    private static let folder = root.appending(path: "../shared/vectors").standardizedFileURL
    private static let kat = root.appending(
        path: ".build/checkouts/swift-crypto/Tests/CryptoTests/KEM/MLKEM1024_BSSLKAT.json")

    static let hasX25519 = exists(folder.appending(path: "x25519_test.json"))
    static let hasEd25519 = exists(folder.appending(path: "ed25519_test.json"))
    static let hasHKDF = exists(folder.appending(path: "hkdf_sha256_test.json"))
    static let hasHMAC = exists(folder.appending(path: "hmac_sha256_test.json"))
    static let hasMLKEM = exists(folder.appending(path: "mlkem_1024_test.json"))
    static let hasEncapsulation = exists(folder.appending(path: "mlkem_1024_encaps_test.json"))
    static let hasKAT = exists(kat)

    private static func exists(_ url: URL) -> Bool { FileManager.default.fileExists(atPath: url.path) }

    private func tests(_ name: String) throws -> [[String: Any]] {
        let data = try Data(contentsOf: Self.folder.appending(path: name))
        let file = try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
        let groups = try #require(file["testGroups"] as? [[String: Any]])
        return groups.flatMap { group in
            let tests = group["tests"] as? [[String: Any]] ?? []
            let key = (group["publicKey"] as? [String: Any])?["pk"]
            return tests.map { $0.merging(["group key": key ?? ""]) { own, _ in own } }
        }
    }

    private func bytes(_ test: [String: Any], _ name: String) -> [UInt8] { hex(test[name] as? String ?? "") }

    @Test("Wycheproof X25519: ours agrees, or refuses what it has to", .enabled(if: hasX25519, "vectors not found"))
    func x25519() throws {
        var (agreed, refused) = (0, 0)
        for test in try tests("x25519_test.json") {
            let flags = test["flags"] as? [String] ?? []
            let id = test["tcId"] as? Int ?? 0
            let point = bytes(test, "public")
            let mustRefuse =
                point[31] & 0x80 != 0 || flags.contains("NonCanonicalPublic") || flags.contains("ZeroSharedSecret")
                || flags.contains("LowOrderPublic")
            let pair = AgreementKeyPair(secret: SecretBytes(bytes(test, "private")))
            do throws(RatchetError) {
                let shared = try pair.agree(with: try AgreementPublicKey(Bytes32(point))).array
                #expect(!mustRefuse, "test \(id) was not refused")
                #expect(shared == bytes(test, "shared"), "test \(id)")
                agreed += 1
            } catch {
                #expect(mustRefuse && error == .invalidKey, "test \(id) was refused")
                refused += 1
            }
        }
        #expect(agreed > 400 && refused > 30, "\(agreed) agreed, \(refused) refused")
    }

    @Test("Wycheproof Ed25519: verification", .enabled(if: hasEd25519, "vectors not found"))
    func ed25519() throws {
        var (held, refused) = (0, 0)
        for test in try tests("ed25519_test.json") {
            let key = bytes(test, "group key")
            try #require(key.count == KeySize.curve25519)
            let valid = test["result"] as? String == "valid"
            let holds = Primitives.verify(bytes(test, "sig"), of: bytes(test, "msg"), by: Bytes32(key))
            #expect(holds == valid, "test \(test["tcId"] as? Int ?? 0)")
            if holds { held += 1 } else { refused += 1 }
        }
        #expect(held > 80 && refused > 60, "\(held) held, \(refused) refused")
    }

    @Test("Wycheproof HKDF-SHA-256 with salts up to a block", .enabled(if: hasHKDF, "vectors not found"))
    func hkdf() throws {
        var derived = 0
        for test in try tests("hkdf_sha256_test.json")
        where test["result"] as? String == "valid" && bytes(test, "salt").count <= 64 {
            let size = try #require(test["size"] as? Int)
            let output = Primitives.hkdf(
                salt: SecretBytes(bytes(test, "salt")), secret: SecretBytes(bytes(test, "ikm")),
                info: bytes(test, "info"), blocks: (size + 31) / 32
            ).flatMap(\.array)
            #expect(Array(output.prefix(size)) == bytes(test, "okm"), "test \(test["tcId"] as? Int ?? 0)")
            derived += 1
        }
        #expect(derived > 80, "\(derived) derived")
    }

    @Test("Wycheproof HMAC-SHA-256 with keys up to a block", .enabled(if: hasHMAC, "vectors not found"))
    func hmac() throws {
        var (held, refused) = (0, 0)
        for test in try tests("hmac_sha256_test.json") where bytes(test, "key").count <= 64 {
            let tag = bytes(test, "tag")
            let code = bytes(test, "msg").withUnsafeBytes { Primitives.hmac(key: SecretBytes(bytes(test, "key")), $0) }
            let valid = test["result"] as? String == "valid"
            let holds = Array(code.array.prefix(tag.count)) == tag
            #expect(holds == valid, "test \(test["tcId"] as? Int ?? 0)")
            if holds { held += 1 } else { refused += 1 }
        }
        #expect(held > 50 && refused > 100, "\(held) held, \(refused) refused")
    }

    @Test("Wycheproof ML-KEM-1024: decapsulation", .enabled(if: hasMLKEM, "vectors not found"))
    func decapsulation() throws {
        var (matched, refused) = (0, 0)
        for test in try tests("mlkem_1024_test.json") {
            let id = test["tcId"] as? Int ?? 0
            let (seed, ciphertext) = (bytes(test, "seed"), bytes(test, "c"))
            guard seed.count == KeySize.kemSeed else {
                #expect(test["result"] as? String == "invalid", "test \(id)")
                refused += 1
                continue
            }
            let secret = try? Primitives.decapsulate(ciphertext, seed: SecretBytes(seed))
            if test["result"] as? String == "valid" {
                #expect(secret?.array == bytes(test, "K"), "test \(id)")
                #expect(Primitives.kemPublicKey(seed: SecretBytes(seed)) == bytes(test, "ek"), "test \(id)")
                matched += 1
            } else {
                #expect(secret == nil, "test \(id)")
                refused += 1
            }
        }
        #expect(matched > 100, "\(matched) matched, \(refused) refused")
    }

    @Test("Wycheproof ML-KEM-1024: keys over the modulus", .enabled(if: hasEncapsulation, "vectors not found"))
    func encapsulation() throws {
        var (taken, refused) = (0, 0)
        for test in try tests("mlkem_1024_encaps_test.json") {
            let valid = test["result"] as? String == "valid"
            let result = try? Primitives.encapsulate(to: bytes(test, "ek"))
            #expect((result != nil) == valid, "test \(test["tcId"] as? Int ?? 0)")
            if valid { taken += 1 } else { refused += 1 }
        }
        #expect(taken > 10 && refused > 10, "\(taken) taken, \(refused) refused")
    }

    @Test("ML-KEM-1024 keys from seeds: the cryptographic library's own", .enabled(if: hasKAT, "checkout not found"))
    func keyGeneration() throws {
        let file = try JSONSerialization.jsonObject(with: Data(contentsOf: Self.kat))
        let tests = try #require(file as? [[String: Any]])
        for test in tests.prefix(25) {
            #expect(Primitives.kemPublicKey(seed: SecretBytes(bytes(test, "dz"))) == bytes(test, "pk"))
        }
        #expect(tests.count == 100)
    }
}
