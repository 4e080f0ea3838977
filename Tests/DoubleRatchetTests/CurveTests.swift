import Testing

@testable import DoubleRatchet

@Suite("X25519 and Ed25519: what has to be refused")
struct CurveTests {
    /// RFC 7748, section 6.1, and the other points of which no multiple makes a secret, with their other encodings.
    private static let lowOrder = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ]

    @Test("A low-order point is no key", arguments: lowOrder) func lowOrderKey(_ point: String) {
        #expect(throws: RatchetError.invalidKey) { try AgreementPublicKey(Bytes32(hex(point))) }
        var highBit = hex(point)
        highBit[31] |= 0x80
        #expect(throws: RatchetError.invalidKey) { try AgreementPublicKey(Bytes32(highBit)) }
    }

    @Test("Nor does one that went unchecked make a secret", arguments: lowOrder) func zeroSecret(_ point: String) {
        let pair = AgreementKeyPair(secret: SecretBytes([UInt8](repeating: 0x55, count: 32)))
        #expect(throws: RatchetError.invalidKey) {
            try pair.agree(with: AgreementPublicKey(checked: Bytes32(hex(point))))
        }
    }

    @Test("A key pair out of a state agrees as the one that was stored") func restoredPair() throws {
        let pair = AgreementKeyPair(secret: SecretBytes([UInt8](repeating: 0x44, count: 32)))
        let peer = AgreementKeyPair(secret: SecretBytes([UInt8](repeating: 0x33, count: 32)))
        let restored = AgreementKeyPair(secret: pair.secret, checkedPublicKey: pair.publicKey.bytes)
        let secret = try pair.agree(with: peer.publicKey)
        #expect(try restored.agree(with: peer.publicKey).isEqual(to: secret))
        #expect(try peer.agree(with: restored.publicKey).isEqual(to: secret))
    }

    private let seed = hex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
    private let publicKey = hex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025")
    private let signature = hex(
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            + "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a")

    @Test("RFC 8032, section 7.1, test 3") func rfc() {
        let key = Primitives.signingKey(seed: SecretBytes(seed))
        #expect(Primitives.publicKey(of: key).array == publicKey)
        #expect(Primitives.sign([0xAF, 0x82], with: key) == signature)
        #expect(Primitives.verify(signature, of: [0xAF, 0x82], by: Bytes32(publicKey)))
    }

    @Test("Another bit, another length or another form of a signature does not hold") func forgeries() {
        let key = Bytes32(publicKey)
        for bit in 0..<512 {
            var changed = signature
            changed[bit / 8] ^= 1 << (bit % 8)
            #expect(!Primitives.verify(changed, of: [0xAF, 0x82], by: key), "bit \(bit)")
        }
        for count in 0..<64 { #expect(!Primitives.verify(Array(signature.prefix(count)), of: [0xAF, 0x82], by: key)) }
        #expect(!Primitives.verify(signature + [0], of: [0xAF, 0x82], by: key))
        #expect(!Primitives.verify(signature, of: [], by: key))
        // S + L solves the same equation.
        let order = hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010")
        var (added, carry) = (signature, 0)
        for index in 0..<32 {
            let sum = Int(added[32 + index]) + Int(order[index]) + carry
            (added[32 + index], carry) = (UInt8(truncatingIfNeeded: sum), sum >> 8)
        }
        #expect(!Primitives.verify(added, of: [0xAF, 0x82], by: key))
    }

    @Test("Under a key of low order nothing holds") func lowOrderSigner() {
        // The neutral element as key and as R, and S = 0: it would hold for every message.
        let neutral = [1] + [UInt8](repeating: 0, count: 31)
        let empty = neutral + [UInt8](repeating: 0, count: 32)
        for message in [[], [1], [2, 3]] as [[UInt8]] {
            #expect(!Primitives.verify(empty, of: message, by: Bytes32(neutral)))
        }
    }
}
