import Foundation
import Testing

@testable import DoubleRatchet

/// Files of test vectors that others publish. None of them is part of this package.
enum VectorFile {
    /// Wycheproof and the cryptographic library's own, in the checkout of swift-crypto that SwiftPM has made.
    case checkout(String)
    /// Of PyPI's `cryptography-vectors`, which `Tests/run` installs.
    case published(String)
    /// The sets of Wycheproof that no package has, in a folder beside the repository.
    case shared(String)

    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// `Tests/portable` makes a package of links, with checkouts of its own.
    private static let repository = root.appending(path: "Tests").resolvingSymlinksInPath().deletingLastPathComponent()

    /// Nil if it is not there.
    var url: URL? {
        let url: URL? =
            switch self {
            case .checkout(let path): Self.root.appending(path: ".build/checkouts/swift-crypto/Tests/\(path)")
            case .published(let path): Self.packages?.appending(path: "cryptography_vectors/\(path)")
            case .shared(let path): Self.repository.appending(path: "../shared/vectors/\(path)").standardizedFileURL
            }
        return url.flatMap { FileManager.default.fileExists(atPath: $0.path) ? $0 : nil }
    }

    var exists: Bool { url != nil }

    /// Where pip has put the packages; the folder has the version of Python in its name.
    private static var packages: URL? {
        let library = root.appending(path: ".build-peers/lib")
        let folders = try? FileManager.default.contentsOfDirectory(atPath: library.path)
        return folders?.first { $0.hasPrefix("python3") }.map { library.appending(path: "\($0)/site-packages") }
    }

    /// The first `limit` bytes.
    func read(_ limit: Int = .max) throws -> Data {
        let url = try #require(url, "\(self) is missing: Tests/run installs it")
        let file = try FileHandle(forReadingFrom: url)
        defer { try? file.close() }
        return try file.read(upToCount: limit) ?? Data()
    }

    /// The tests of a file of Wycheproof, each with the members of its group.
    func wycheproof() throws -> [[String: Any]] {
        let file = try #require(try JSONSerialization.jsonObject(with: read()) as? [String: Any])
        let groups = try #require(file["testGroups"] as? [[String: Any]])
        return groups.flatMap { group in
            let tests = group["tests"] as? [[String: Any]] ?? []
            let key = (group["publicKey"] as? [String: Any])?["pk"]
            let common = ["group key": key ?? "", "group key size": group["keySize"] ?? 0]
            return tests.map { $0.merging(common) { own, _ in own } }
        }
    }

    /// The records of a file of lines `name = value`; a record begins with each `first`. Of a file that was cut the last one is
    /// left out.
    func records(beginningWith first: String, _ limit: Int = .max) throws -> [[String: [UInt8]]] {
        var records: [[String: [UInt8]]] = []
        for line in String(decoding: try read(limit), as: UTF8.self).split(separator: "\n") where !line.hasPrefix("#") {
            let parts = line.split(separator: "=", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
            guard parts.count == 2 else { continue }
            if parts[0] == first { records.append([:]) }
            guard !records.isEmpty else { continue }
            // Counts and sizes are decimal, and not needed. Nor is the private key's long form, which takes long to read.
            guard parts[1].utf8.count % 2 == 0, parts[0] != "sk" else { continue }
            records[records.count - 1][parts[0]] = hex(parts[1])
        }
        return limit == .max ? records : Array(records.dropLast())
    }
}

/// Wycheproof and published vectors. Only the sets of Wycheproof for HKDF, HMAC and ML-KEM may be missing: they are in no
/// package, and are skipped where their folder is not beside the repository.
@Suite("Vectors from outside the package")
struct VectorTests {
    private static let hkdfFile = VectorFile.shared("hkdf_sha256_test.json")
    private static let hmacFile = VectorFile.shared("hmac_sha256_test.json")
    private static let decapsulationFile = VectorFile.shared("mlkem_1024_test.json")
    private static let encapsulationFile = VectorFile.shared("mlkem_1024_encaps_test.json")
    static let hasHKDF = hkdfFile.exists
    static let hasHMAC = hmacFile.exists
    static let hasMLKEM = decapsulationFile.exists
    static let hasEncapsulation = encapsulationFile.exists

    private func bytes(_ test: [String: Any], _ name: String) -> [UInt8] { hex(test[name] as? String ?? "") }

    @Test("Wycheproof X25519: ours agrees, or refuses what it has to")
    func x25519() throws {
        var (agreed, refused) = (0, 0)
        for test in try VectorFile.checkout("Test Vectors/x25519_test.json").wycheproof() {
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

    @Test("Wycheproof Ed25519: verification")
    func ed25519() throws {
        var (held, refused) = (0, 0)
        for test in try VectorFile.checkout("Test Vectors/ed25519_test.json").wycheproof() {
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
        for test in try Self.hkdfFile.wycheproof()
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
        for test in try Self.hmacFile.wycheproof() where bytes(test, "key").count <= 64 {
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
        for test in try Self.decapsulationFile.wycheproof() {
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
        for test in try Self.encapsulationFile.wycheproof() {
            let valid = test["result"] as? String == "valid"
            let result = try? Primitives.encapsulate(to: bytes(test, "ek"))
            #expect((result != nil) == valid, "test \(test["tcId"] as? Int ?? 0)")
            if valid { taken += 1 } else { refused += 1 }
        }
        #expect(taken > 10 && refused > 10, "\(taken) taken, \(refused) refused")
    }

    @Test("ML-KEM-1024 keys from seeds: the cryptographic library's own") func keyGeneration() throws {
        let data = try VectorFile.checkout("CryptoTests/KEM/MLKEM1024_BSSLKAT.json").read()
        let tests = try #require(try JSONSerialization.jsonObject(with: data) as? [[String: Any]])
        for test in tests.prefix(25) {
            #expect(Primitives.kemPublicKey(seed: SecretBytes(bytes(test, "dz"))) == bytes(test, "pk"))
        }
        #expect(tests.count == 100)
    }

    // MARK: Published in cryptography-vectors

    @Test("HKDF-SHA-256: RFC 5869 and one of 1200 bytes") func publishedHKDF() throws {
        var derived = 0
        for name in ["rfc-5869-HKDF-SHA256.txt", "hkdf-generated.txt"] {
            for test in try VectorFile.published("KDF/\(name)").records(beginningWith: "COUNT") {
                let expected = try #require(test["OKM"])
                let salt = test["salt"] ?? []
                // Ours takes salts of up to a block.
                guard salt.count <= 64 else { continue }
                let output = Primitives.hkdf(
                    salt: SecretBytes(salt), secret: SecretBytes(test["IKM"] ?? []), info: test["info"] ?? [],
                    blocks: (expected.count + 31) / 32
                ).flatMap(\.array)
                #expect(Array(output.prefix(expected.count)) == expected, "\(name), \(derived)")
                derived += 1
            }
        }
        #expect(derived == 3, "\(derived) derived")
    }

    @Test("HMAC-SHA-256: RFC 4231 with keys up to a block") func publishedHMAC() throws {
        var held = 0
        for test in try VectorFile.published("HMAC/rfc-4231-sha256.txt").records(beginningWith: "Len") {
            let key = try #require(test["Key"])
            guard key.count <= 64 else { continue }
            let code = try #require(test["Msg"]).withUnsafeBytes { Primitives.hmac(key: SecretBytes(key), $0) }
            #expect(code.array == test["MD"], "\(held)")
            held += 1
        }
        #expect(held == 4, "\(held) held")
    }

    @Test("ML-KEM-1024: keys from seeds, decapsulation, and the secret of a ciphertext that was not made for the key")
    func publishedKEM() throws {
        let tests = try VectorFile.published("asymmetric/MLKEM/kat_MLKEM_1024.rsp")
            .records(beginningWith: "count", 600_000)
        for (index, test) in tests.enumerated() {
            let seed = SecretBytes(try #require(test["d"]) + (try #require(test["z"])))
            #expect(Primitives.kemPublicKey(seed: seed) == test["pk"], "\(index)")
            for (ciphertext, secret) in [("ct", "ss"), ("ct_n", "ss_n")] {
                let shared = try Primitives.decapsulate(try #require(test[ciphertext]), seed: seed)
                #expect(shared.array == test[secret], "\(index) \(ciphertext)")
            }
        }
        #expect(tests.count > 20, "\(tests.count)")
    }
}
