import TestKit
import Testing

@testable import DoubleRatchet

@Suite("Primitives against the values printed in their RFCs")
struct PrimitiveTests {
    private func agree(_ scalar: String, _ point: String) throws -> String {
        let pair = AgreementKeyPair(secret: SecretBytes(hex(scalar)))
        return text(try pair.agree(with: AgreementPublicKey(Bytes32(hex(point)))).array)
    }

    private func signature(_ seed: String, _ message: String) -> (key: String, signature: String) {
        let key = Primitives.signingKey(seed: SecretBytes(hex(seed)))
        return (text(Primitives.publicKey(of: key).array), text(Primitives.sign(hex(message), with: key)))
    }

    @Test("RFC 7748, section 5.2") func x25519() throws {
        let shared = try agree(
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
        #expect(shared == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")
        // The second vector sets the high bit, which the RFC masks and we refuse.
        #expect(throws: RatchetError.invalidKey) {
            try agree(
                "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493")
        }
    }

    @Test("RFC 7748, section 5.2, a thousand iterations") func x25519Iterated() throws {
        var scalar: [UInt8] = [9] + [UInt8](repeating: 0, count: 31)
        var point = scalar
        for _ in 0..<1000 {
            let pair = AgreementKeyPair(secret: SecretBytes(scalar))
            (scalar, point) = (try pair.agree(with: AgreementPublicKey(Bytes32(point))).array, scalar)
        }
        #expect(text(scalar) == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51")
    }

    @Test("RFC 7748, section 6.1") func diffieHellman() throws {
        let shared = try agree(
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
        #expect(shared == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    }

    @Test("RFC 8032, section 7.1, tests 1 and 2") func ed25519() {
        let one = signature("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", "")
        #expect(one.key == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
        #expect(
            one.signature == "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
                + "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b")
        let two = signature("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "72")
        #expect(two.key == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
        #expect(
            two.signature == "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                + "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")
        #expect(Primitives.verify(hex(two.signature), of: [0x72], by: Bytes32(hex(two.key))))
        #expect(!Primitives.verify(hex(two.signature), of: [0x73], by: Bytes32(hex(two.key))))
    }

    @Test("RFC 4231, test case 2") func hmac() {
        let code = Array("what do ya want for nothing?".utf8).withUnsafeBytes {
            Primitives.hmac(key: SecretBytes(Array("Jefe".utf8)), $0)
        }
        #expect(text(code.array) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    }

    @Test("RFC 5869, appendix A.1 and A.3") func hkdf() {
        let secret = SecretBytes([UInt8](repeating: 0x0B, count: 22))
        let one = Primitives.hkdf(
            salt: SecretBytes(Array(0...12)), secret: secret, info: Array(0xF0...0xF9), blocks: 2
        ).flatMap(\.array)
        #expect(
            text(Array(one.prefix(42)))
                == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
        let three = Primitives.hkdf(salt: SecretBytes([]), secret: secret, info: [], blocks: 2).flatMap(\.array)
        #expect(
            text(Array(three.prefix(42)))
                == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
    }

    @Test("ML-KEM-1024: there and back, and other sizes") func kem() throws {
        var random = SeededGenerator(seed: 5)
        let seed = SecretBytes(random.bytes(KeySize.kemSeed))
        let other = SecretBytes(random.bytes(KeySize.kemSeed))
        let key = Primitives.kemPublicKey(seed: seed)
        #expect(key.count == KeySize.kemPublic)
        let one = try Primitives.encapsulate(to: key)
        let two = try Primitives.encapsulate(to: key)
        #expect(one.ciphertext.count == KeySize.kemCiphertext && one.secret.count == 32)
        #expect(try Primitives.decapsulate(one.ciphertext, seed: seed).isEqual(to: one.secret))
        #expect(try Primitives.decapsulate(two.ciphertext, seed: seed).isEqual(to: two.secret))
        #expect(!one.secret.isEqual(to: two.secret) && one.ciphertext != two.ciphertext)
        // Implicit rejection: another secret, no error.
        #expect(try !Primitives.decapsulate(one.ciphertext, seed: other).isEqual(to: one.secret))
        var changed = one.ciphertext
        changed[700] ^= 1
        #expect(try !Primitives.decapsulate(changed, seed: seed).isEqual(to: one.secret))
        for size in [0, 1, KeySize.kemPublic - 1, KeySize.kemPublic + 1] {
            let bytes = Array((key + [0]).prefix(size))
            #expect(throws: RatchetError.invalidKey, "\(size)") { try Primitives.encapsulate(to: bytes) }
            #expect(throws: RatchetError.malformed, "\(size)") { try Primitives.decapsulate(bytes, seed: seed) }
        }
        // The first coefficient at the modulus 3329 = 0xD01, and right below it.
        var over = key
        (over[0], over[1]) = (0x01, over[1] & 0xF0 | 0x0D)
        #expect(throws: RatchetError.invalidKey) { try Primitives.encapsulate(to: over) }
        over[0] = 0x00
        _ = try Primitives.encapsulate(to: over)
    }

    @Test("GCM-SIV opens what it sealed and nothing else") func aead() throws {
        let key = SecretBytes([UInt8](repeating: 3, count: 32))
        var sealed: [UInt8] = []
        [UInt8]("hello".utf8).withUnsafeBytes { Primitives.seal($0, key: key, authenticating: [1], into: &sealed) }
        #expect(sealed.count == 5 + KeySize.tag)
        func open(_ bytes: [UInt8], _ data: [UInt8]) -> [UInt8]? {
            var output: [UInt8] = []
            do {
                try bytes.withUnsafeBytes { try Primitives.open($0, key: key, authenticating: data, into: &output) }
                return output
            } catch {
                return output.isEmpty ? nil : output
            }
        }
        #expect(open(sealed, [1]) == Array("hello".utf8))
        #expect(open(sealed, [2]) == nil)
        #expect(open(Array(sealed.dropLast()), [1]) == nil)
        #expect(open([], [1]) == nil)
    }
}
