import PeerKit
import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("XEdDSA and the map between the curves")
struct XEdDSATests {
    private func agreementKey(_ bytes: [UInt8]) throws -> AgreementPublicKey {
        try AgreementPublicKey(Bytes32(bytes))
    }

    @Test("RFC 8032 signatures under identities of both signs are XEdDSA's after folding") func folding() throws {
        var random = SeededGenerator(seed: 300)
        var signs: Set<UInt8> = []
        for _ in 0..<50 {
            let identity = IdentityKeyPair(random: &random)
            let message = random.bytes(33)
            let signature = identity.omemoSignature(of: message, in: .axolotl)
            let key = identity.agreementPair.publicKey
            #expect(XEdDSA.isValid(signature, of: message, by: key))
            #expect(!XEdDSA.isValid(signature, of: message + [0], by: key))
            signs.insert(signature[63] >> 7)
            for index in signature.indices {
                var changed = signature
                changed[index] ^= 1 << UInt8(random.below(8))
                #expect(!XEdDSA.isValid(changed, of: message, by: key))
            }
            #expect(!XEdDSA.isValid(Array(signature.dropLast()), of: message, by: key))
            #expect(!XEdDSA.isValid(signature + [0], of: message, by: key))
            #expect(!XEdDSA.isValid([], of: message, by: key))
        }
        #expect(signs == [0, 1])
    }

    @Test("the base points of RFC 7748, section 4.1, are each other's image") func basePoints() throws {
        let edwards = hex("5866666666666666666666666666666666666666666666666666666666666666")
        let montgomery = [9] + [UInt8](repeating: 0, count: 31)
        #expect(try OMEMOIdentityKey(edwards.span, profile: .omemo2).fingerprint == montgomery)
        let key = try OMEMOIdentityKey(([5] + montgomery).span, profile: .axolotl)
        #expect(key.fingerprint == montgomery && key.bytes == [5] + montgomery)
    }

    @Test("against libxeddsa: keys, both maps, and signatures both ways") func libxeddsa() throws {
        let peer = try PeerPrograms.start("xeddsa")
        var random = SeededGenerator(seed: 301)
        for _ in 0..<200 {
            let seed = random.bytes(32)
            let message = random.bytes(1 + random.below(200))
            let identity = try IdentityKeyPair(seed: seed.span)
            let (edwards, montgomery) = (identity.publicKey.bytes, identity.agreementPair.publicKey.bytes.array)
            let sign = edwards[31] >> 7
            #expect(try ask(peer, "montgomery", edwards) == montgomery)
            let words = try peer.ask("edwards", OMEMOPeer.encode(montgomery), "\(sign)")
            #expect(try OMEMOPeer.decode(words[0]) == edwards)

            // RFC 8032 signing is deterministic, so both make the same bytes.
            let plain = identity.omemoSignature(of: message, in: .omemo2)
            #expect(try ask(peer, "seed", seed, message) == plain)
            let folded = identity.omemoSignature(of: message, in: .axolotl)
            #expect(folded[63] & 0x7F == plain[63] && folded[63] >> 7 == sign)
            #expect(try verdict(peer, edwards, message, plain) == "1")
            #expect(try verdict(peer, edwards, message, folded) == (sign == 0 ? "1" : "0"))

            // XEdDSA proper, by a peer that holds nothing but an X25519 private key.
            let secret = random.bytes(32)
            let keys = try peer.ask("keys", OMEMOPeer.encode(secret))
            let key = try agreementKey(try OMEMOPeer.decode(keys[0]))
            let signature = try ask(peer, "sign", secret, message, random.bytes(64))
            #expect(XEdDSA.isValid(signature, of: message, by: key))
            #expect(!XEdDSA.isValid(signature, of: [1] + message, by: key))
            let wire = try OMEMOIdentityKey(([5] + key.bytes.array).span, profile: .axolotl)
            #expect(try wire.isValidSignature(signature, of: message))
        }
    }

    private func ask(_ peer: LinePeer, _ command: String, _ arguments: [UInt8]...) throws -> [UInt8] {
        let words = try peer.ask(([command] + arguments.map(OMEMOPeer.encode)).joined(separator: " "))
        return try OMEMOPeer.decode(words[0])
    }

    private func verdict(_ peer: LinePeer, _ key: [UInt8], _ message: [UInt8], _ signature: [UInt8]) throws -> String {
        try peer.ask("verify", OMEMOPeer.encode(key), OMEMOPeer.encode(message), OMEMOPeer.encode(signature))[0]
    }
}
