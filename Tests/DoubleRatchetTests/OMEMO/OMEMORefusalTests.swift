import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("What OMEMO sessions refuse")
struct OMEMORefusalTests {
    @Test("no bit may change, no byte be missing or added", arguments: OMEMOProfile.allCases)
    func everyBit(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 420)
        for turn in 0..<2 {
            // The first time with a new ratchet key, the second time in the same chain.
            let message = try pair.alice.seal(Array("hello".utf8), random: &pair.random)
            for index in message.bytes.indices {
                for bit in 0..<8 {
                    var changed = message.bytes
                    changed[index] ^= 1 << bit
                    let refusal = pair.bob.refusal(of: .init(isKeyExchange: false, bytes: changed))
                    #expect(refusal != nil, "turn \(turn) byte \(index) bit \(bit)")
                }
            }
            for length in message.bytes.indices {
                let cut = OMEMOPeer.Message(isKeyExchange: false, bytes: Array(message.bytes[..<length]))
                #expect(pair.bob.refusal(of: cut) != nil, "length \(length)")
            }
            for extra: [UInt8] in [[0], [1], [0x33], [0x0A, 0]] {
                let longer = OMEMOPeer.Message(isKeyExchange: false, bytes: message.bytes + extra)
                #expect(pair.bob.refusal(of: longer) != nil)
            }
            #expect(try pair.bob.open(message) == Array("hello".utf8))
        }
    }

    /// The ids of a key exchange and fields nobody reads are not under the MAC; everything that makes the keys is.
    @Test("a first message: changed, cut off, too long", arguments: OMEMOProfile.allCases)
    func firstMessage(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 421)
        let device = try OMEMODevice(profile, &random)
        var alice = try OMEMOSession.initiate(
            identity: IdentityKeyPair(random: &random), with: device.bundle, expecting: nil, random: &random)
        let message = try alice.seal([1], random: &random).bytes
        var text: [UInt8] = [9]
        for index in message.indices {
            var changed = message
            changed[index] ^= 1 << UInt8(random.below(8))
            #expect(throws: RatchetError.self, "byte \(index)") { _ = try device.respond(to: changed, into: &text) }
            #expect(throws: RatchetError.self, "length \(index)") {
                _ = try device.respond(to: Array(message[..<index]), into: &text)
            }
        }
        let long = message + [UInt8](repeating: 0, count: OMEMOLimits.maximumMessageLength)
        #expect(throws: RatchetError.malformed) { _ = try device.respond(to: long, into: &text) }
        #expect(alice.refusal(of: .init(isKeyExchange: false, bytes: long)) == .malformed)
        #expect(text == [9])
        _ = try device.respond(to: message, into: &text)
        #expect(text == [9, 1])
    }

    @Test("versions of axolotl other than 3") func versions() throws {
        var pair = try OMEMOPair(.axolotl, seed: 422)
        let message = try pair.alice.seal([1], random: &pair.random).bytes
        for version in UInt8.min...UInt8.max where version != 0x33 {
            let other = [version] + message.dropFirst()
            #expect(pair.bob.refusal(of: .init(isKeyExchange: false, bytes: other)) == .unsupportedVersion)
            #expect(pair.bob.refusal(of: .init(isKeyExchange: true, bytes: other)) == .unsupportedVersion)
        }
    }

    @Test("a message without a one-time prekey is malformed", arguments: OMEMOProfile.allCases)
    func preKeyIsMandatory(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 423)
        let device = try OMEMODevice(profile, &random)
        var alice = try OMEMOSession.initiate(
            identity: IdentityKeyPair(random: &random), with: device.bundle, expecting: nil, random: &random)
        var message = try alice.seal([1], random: &random).bytes
        // Field 1 comes first in both: a tag and a one-byte id.
        let start = profile == .axolotl ? 1 : 0
        #expect(message[start] == 0x08 && 100..<105 ~= message[start + 1])
        message.removeSubrange(start..<start + 2)
        #expect(throws: RatchetError.malformed) { try OMEMOKeyExchange(of: message.span, profile: profile) }
        let bundle = OMEMOBundle(
            identity: device.bundle.identity, signedPreKey: device.bundle.signedPreKey, preKeys: [])
        #expect(throws: RatchetError.unknownPreKey) {
            _ = try OMEMOSession.initiate(
                identity: IdentityKeyPair(random: &random), with: bundle, expecting: nil, random: &random)
        }
    }

    @Test("identities: pinned to another, our own, of the other profile", arguments: OMEMOProfile.allCases)
    func identities(_ profile: OMEMOProfile) throws {
        var random = SeededGenerator(seed: 424)
        let device = try OMEMODevice(profile, &random)
        let other = try OMEMODevice(profile, &random)
        let aliceIdentity = IdentityKeyPair(random: &random)
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try OMEMOSession.initiate(
                identity: aliceIdentity, with: device.bundle, expecting: other.bundle.identity, random: &random)
        }
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try OMEMOSession.initiate(
                identity: device.identity, with: device.bundle, expecting: nil, random: &random)
        }
        var alice = try OMEMOSession.initiate(
            identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        let message = try alice.seal([1], random: &random).bytes
        var text: [UInt8] = []
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try device.respond(to: message, expecting: other.bundle.identity, into: &text)
        }
        // A signature of another identity, of another key, of the other profile.
        for signed in [
            other.bundle.signedPreKey,
            OMEMOSignedPreKey.Public(
                id: 7, key: other.bundle.signedPreKey.key, signature: device.bundle.signedPreKey.signature,
                profile: profile),
            OMEMOSignedPreKey.Public(
                id: 7, key: device.bundle.signedPreKey.key, signature: device.bundle.signedPreKey.signature,
                profile: profile == .omemo2 ? .axolotl : .omemo2),
        ] {
            let bundle = OMEMOBundle(
                identity: device.bundle.identity, signedPreKey: signed, preKeys: device.bundle.preKeys)
            #expect(throws: RatchetError.invalidSignature) { try bundle.verify() }
            #expect(throws: RatchetError.invalidSignature) {
                _ = try OMEMOSession.initiate(identity: aliceIdentity, with: bundle, expecting: nil, random: &random)
            }
        }
        // The other profile does not know this first message, nor these prekeys.
        let stranger = try OMEMODevice(profile == .omemo2 ? .axolotl : .omemo2, &random)
        #expect(throws: RatchetError.self) { _ = try stranger.respond(to: message, into: &text) }
        #expect(throws: RatchetError.unknownPreKey) {
            _ = try OMEMOSession.respond(
                identity: device.identity, signedPreKey: stranger.signed,
                preKey: OneTimePreKey(id: 100, random: &random), message: message.span, profile: profile,
                expecting: nil, plaintext: &text)
        }
    }

    @Test("keys of low order and not canonical", arguments: OMEMOProfile.allCases)
    func badKeys(_ profile: OMEMOProfile) throws {
        let zero = [UInt8](repeating: 0, count: 32)
        let one = [1] + zero.dropFirst()
        let overModulus = [0xEE] + [UInt8](repeating: 0xFF, count: 30) + [0x7F]
        let highBit = [9] + zero.dropFirst(2) + [0x80]
        let prefix: [UInt8] = profile == .axolotl ? [5] : []
        for key in [zero, one, overModulus, highBit] {
            let wire = prefix + key
            // In Ed25519 the high bit is the sign, and 9 is on that curve too.
            if profile == .axolotl || key != highBit {
                #expect(throws: RatchetError.invalidKey) { try OMEMOIdentityKey(wire.span, profile: profile) }
            }
            var random = SeededGenerator(seed: 425)
            let device = try OMEMODevice(profile, &random)
            let identity = IdentityKeyPair(random: &random)
            let preKey = try OneTimePreKey.Public(id: 1, key: wire.span, profile: profile)
            let bundle = OMEMOBundle(
                identity: device.bundle.identity, signedPreKey: device.bundle.signedPreKey, preKeys: [preKey])
            #expect(throws: RatchetError.invalidKey) {
                _ = try OMEMOSession.initiate(identity: identity, with: bundle, expecting: nil, random: &random)
            }
            // As ratchet key of a message to an established session.
            var pair = try OMEMOPair(profile, seed: 426)
            var text: [UInt8] = []
            _ = try pair.bob.encrypt([1].span, random: &random, into: &text)
            var forged: [UInt8] = []
            OMEMOMessage.write(
                OMEMOMessage.authenticated(
                    profile: profile, ratchetKey: Bytes32(key), number: 0, previousCount: 0,
                    ciphertext: [UInt8](repeating: 0, count: 16)),
                mac: [UInt8](repeating: 0, count: profile.macLength), profile: profile, into: &forged)
            #expect(pair.bob.refusal(of: .init(isKeyExchange: false, bytes: forged)) == .invalidKey)
        }
        for wire in [prefix + zero + [0], Array((prefix + zero).dropLast()), [], [4] + zero] {
            #expect(throws: RatchetError.malformed) { try OMEMOIdentityKey(wire.span, profile: profile) }
            #expect(throws: RatchetError.malformed) {
                try OneTimePreKey.Public(id: 1, key: wire.span, profile: profile)
            }
            #expect(throws: RatchetError.malformed) {
                try OMEMOSignedPreKey.Public(
                    id: 1, key: wire.span, signature: (zero + zero).span, profile: profile)
            }
        }
    }

    @Test("forged headers: numbers at their ends", arguments: OMEMOProfile.allCases)
    func forgedHeaders(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 427)
        _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
        _ = try pair.bob.seal([1], random: &pair.random)
        let current = pair.bob.ratchet.peerKey
        let unknown = AgreementKeyPair(random: &pair.random).publicKey.bytes
        for (key, number, expected) in [
            (current, 0, .duplicate), (current, 1, .authenticationFailed), (current, 1001, .authenticationFailed),
            (current, 1002, .tooFarAhead), (current, .max, .tooFarAhead), (unknown, 0, .authenticationFailed),
            (unknown, 1000, .authenticationFailed), (unknown, 1001, .tooFarAhead), (unknown, .max, .tooFarAhead),
        ] as [(Bytes32, UInt32, RatchetError)] {
            for previous: UInt32 in [0, 1, .max] {
                var forged: [UInt8] = []
                OMEMOMessage.write(
                    OMEMOMessage.authenticated(
                        profile: profile, ratchetKey: key, number: number, previousCount: previous,
                        ciphertext: [UInt8](repeating: 0, count: 16)),
                    mac: [UInt8](repeating: 0, count: profile.macLength), profile: profile, into: &forged)
                let refusal = pair.bob.refusal(of: .init(isKeyExchange: false, bytes: forged))
                #expect(refusal == expected, "\(number), \(previous)")
            }
        }
    }

    @Test("random bytes, and random changes of real messages, never trap", arguments: OMEMOProfile.allCases)
    func noise(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 428)
        let message = try pair.alice.seal([1], random: &pair.random)
        for _ in 0..<3000 {
            var bytes = pair.random.bytes(pair.random.below(120))
            if pair.random.below(2) == 0 {
                bytes = message.bytes
                for _ in 0..<1 + pair.random.below(3) {
                    switch pair.random.below(3) {
                    case 0: bytes[pair.random.below(bytes.count)] = UInt8(pair.random.below(256))
                    case 1: bytes.remove(at: pair.random.below(bytes.count))
                    default: bytes.insert(UInt8(pair.random.below(256)), at: pair.random.below(bytes.count))
                    }
                }
            }
            let changed = OMEMOPeer.Message(isKeyExchange: pair.random.below(2) == 0, bytes: bytes)
            guard changed.bytes != message.bytes else { continue }
            #expect(pair.bob.refusal(of: changed) != nil)
        }
        #expect(try pair.bob.open(message) == [1])
    }
}
