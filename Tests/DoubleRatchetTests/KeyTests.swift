import TestKit
import Testing

@testable import DoubleRatchet

@Suite("Public keys that are refused, and the identity that signs and agrees")
struct KeyTests {
    /// The low-order points and every encoding at or above p that stands for one, high bit clear and set.
    static let refused: [String] = {
        let low = [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            // p + 9: the base point, not canonical.
            "f6ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ]
        return low
            + low.map { key in
                var bytes = hex(key)
                bytes[31] |= 0x80
                return text(bytes)
            }
    }()

    @Test("X25519 keys of low order or another form are refused", arguments: refused)
    func agreementKey(key: String) {
        #expect(throws: RatchetError.invalidKey) { try AgreementPublicKey(Bytes32(hex(key))) }
    }

    @Test("an all-zero secret is refused even where the key was not checked", arguments: refused.prefix(7))
    func zeroSecret(key: String) {
        let pair = AgreementKeyPair(secret: SecretBytes([UInt8](repeating: 0x55, count: 32)))
        #expect(throws: RatchetError.invalidKey) {
            try pair.agree(with: AgreementPublicKey(checked: Bytes32(hex(key))))
        }
    }

    @Test("the largest and the smallest keys that are not special are taken") func boundary() throws {
        _ = try AgreementPublicKey(Bytes32(hex("ebffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")))
        _ = try AgreementPublicKey(Bytes32([2] + [UInt8](repeating: 0, count: 31)))
        _ = try AgreementPublicKey(Bytes32([9] + [UInt8](repeating: 0, count: 31)))
    }

    @Test("the derived X25519 key is that of the private half") func birationalMap() throws {
        var random = SeededGenerator(seed: 1)
        for _ in 0..<50 {
            let pair = IdentityKeyPair(random: &random)
            let read = try identityKey(pair.publicKey.bytes)
            #expect(read == pair.publicKey)
            #expect(try read.agreementKey() == pair.agreementPair.publicKey)
        }
        // The Ed25519 base point, y = 4/5, is the X25519 base point, u = 9.
        let base = try IdentityKey(Bytes32([0x58] + [UInt8](repeating: 0x66, count: 31)))
        #expect(try base.agreementKey().bytes == Bytes32([9] + [UInt8](repeating: 0, count: 31)))
    }

    @Test("identities of low order, another form or off the curve are refused") func identity() {
        let p = "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"
        let bad = [
            // y = 0 (order four), y = 1 (neutral), y = -1 (order two), y = p, y = p + 1, an order-eight point.
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000080",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            p, "ee" + p.dropFirst(2),
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            // y = 2 is on no point of the curve.
            "0200000000000000000000000000000000000000000000000000000000000000",
        ]
        for key in bad {
            #expect(throws: RatchetError.invalidKey, "\(key)") { try identityKey(hex(key)) }
        }
        #expect(throws: RatchetError.malformed) { try identityKey([UInt8](repeating: 9, count: 31)) }
    }

    @Test("about half of all encodings are points") func onCurve() {
        var random = SeededGenerator(seed: 2)
        var accepted = 0
        for _ in 0..<400 {
            var bytes = random.bytes(32)
            bytes[31] &= 0x7F
            if (try? identityKey(bytes)) != nil { accepted += 1 }
        }
        #expect((150...250).contains(accepted), "about half of all y are on the curve, not \(accepted) of 400")
    }

    @Test("a signature holds for its message, context and signer only") func contexts() {
        var random = SeededGenerator(seed: 3)
        let pair = IdentityKeyPair(random: &random)
        let other = IdentityKeyPair(random: &random)
        let signature = pair.signature(of: [1, 2], context: "a")
        #expect(pair.publicKey.verifies(signature, of: [1, 2], context: "a") == true)
        #expect(pair.publicKey.verifies(signature, of: [1, 2], context: "b") == false)
        #expect(pair.publicKey.verifies(signature, of: [1], context: "a") == false)
        #expect(other.publicKey.verifies(signature, of: [1, 2], context: "a") == false)
        #expect(pair.publicKey.verifies([], of: [1, 2], context: "a") == false)
    }

    @Test("no caller signs under the contexts of prekeys, nor under one with a zero byte") func reservedContexts() async
    {
        await #expect(processExitsWith: .failure) {
            var random = SeededGenerator(seed: 3)
            _ = IdentityKeyPair(random: &random).signature(of: [1, 2], context: SignedPreKey.signatureContext)
        }
        await #expect(processExitsWith: .failure) {
            var random = SeededGenerator(seed: 3)
            _ = IdentityKeyPair(random: &random).signature(of: [1, 2], context: "a\u{0}")
        }
        await #expect(processExitsWith: .success) {
            var random = SeededGenerator(seed: 3)
            _ = IdentityKeyPair(random: &random).signature(of: [1, 2], context: "a prekey")
        }
    }

    @Test("keys at rest come back, and unknown versions do not") func atRest() throws {
        var random = SeededGenerator(seed: 4)
        let device = Device(&random)
        var signed: [UInt8] = []
        device.signed.serialize(into: &signed)
        var kem: [UInt8] = []
        device.kem.serialize(into: &kem)
        var seed: [UInt8] = []
        device.identity.serialize(into: &seed)
        let (signedKey, kemKey, identityKey) = (
            try SignedPreKey(serialized: signed.span).publicKey, try KEMPreKey(serialized: kem.span).publicKey,
            try IdentityKeyPair(seed: seed.span).publicKey
        )
        #expect(signedKey == device.signed.publicKey)
        #expect(kemKey == device.kem.publicKey)
        #expect(identityKey == device.identity.publicKey)
        signed[0] = 2
        #expect(throws: RatchetError.unsupportedVersion) { _ = try SignedPreKey(serialized: signed.span) }
        kem.append(0)
        #expect(throws: RatchetError.malformed) { _ = try KEMPreKey(serialized: kem.span) }
        #expect(throws: RatchetError.malformed) {
            let short = Array(kem[..<500])
            _ = try KEMPreKey(serialized: short.span)
        }
    }

    @Test("secrets do not print and are compared whole") func secrets() {
        let secret = SecretBytes([0xAB, 0xCD, 0xEF, 0x12])
        var dumped = ""
        dump(secret, to: &dumped)
        for shown in ["\(secret)", String(reflecting: secret), dumped] {
            #expect(!shown.lowercased().contains("ab") || !shown.lowercased().contains("cd"), "\(shown)")
            #expect(!shown.contains("171") && !shown.contains("0x"), "\(shown)")
        }
        #expect("\(secret)" == "SecretBytes(4 bytes)")
        #expect(secret.isEqual(to: SecretBytes([0xAB, 0xCD, 0xEF, 0x12])))
        #expect(!secret.isEqual(to: SecretBytes([0xAB, 0xCD, 0xEF, 0x13])))
        #expect(!secret.isEqual(to: SecretBytes([0xAB, 0xCD, 0xEF])))
        #expect(SecretBytes([0, 0]).isZero && !SecretBytes([0, 1]).isZero)
        var array: [UInt8] = [1, 2, 3]
        SecretBytes.wipe(&array)
        #expect(array.isEmpty)
    }

    @Test("the system's source fills every length, and not twice the same") func systemSource() {
        var source = SystemRandomSource()
        for count in [0, 1, 7, 8, 9, 32, 64] {
            var seen: Set<[UInt8]> = []
            for _ in 0..<8 { seen.insert(SecretBytes(count: count, random: &source).array) }
            #expect(count < 7 || seen.count == 8, "\(count) bytes")
            #expect(seen.allSatisfy { $0.count == count })
        }
    }
}
