import TestKit
import Testing

@testable import DoubleRatchet

@Suite("Beginning a session")
struct PQXDHTests {
    @Test("initiate, empty, respond, empty: established at both ends", arguments: [true, false], [true, false])
    func setUp(oneTime: Bool, lastResort: Bool) throws {
        var random = SeededGenerator(seed: 10)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random, oneTime: oneTime, lastResort: lastResort)

        var initiator = try Session.initiate(
            identity: alice, with: bob.bundle, expecting: bob.identity.publicKey, random: &random)
        #expect(initiator.isEstablished == false)
        let first = try initiator.seal([], random: &random)
        let header = try PreKeyMessage.header(of: first.span)
        #expect(header.identity == alice.publicKey)
        #expect(header.sessionID == initiator.id)
        #expect((header.signedPreKeyID, header.kemPreKeyID) == (7, 9))
        #expect(header.oneTimePreKeyID == (oneTime ? 8 : nil))

        var plaintext: [UInt8] = []
        var responder = try bob.respond(to: first, into: &plaintext)
        #expect(plaintext == [])
        #expect(responder.isEstablished == true)
        #expect(responder.peerIdentity == alice.publicKey)
        #expect(initiator.peerIdentity == bob.identity.publicKey)
        #expect(responder.id == initiator.id)
        #expect(try initiator.open(responder.seal([], random: &random)) == [])
        #expect(initiator.isEstablished == true)

        #expect(try responder.open(initiator.seal([1], random: &random)) == [1])
        #expect(try initiator.open(responder.seal([2], random: &random)) == [2])
    }

    @Test("every message before the reply begins the session, in any order") func anyFirst() throws {
        var random = SeededGenerator(seed: 11)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let messages = try (0..<3).map { try initiator.seal([UInt8($0)], random: &random) }
        var plaintext: [UInt8] = []
        var responder = try bob.respond(to: messages[2], into: &plaintext)
        #expect(plaintext == [2])
        #expect(responder.skippedCount == 2)
        #expect(try responder.open(messages[0]) == [0])
        #expect(responder.refusal(of: messages[2]) == .duplicate)
        #expect(try responder.open(messages[1]) == [1])
        #expect(responder.skippedCount == 0)
    }

    @Test("a bundle survives its encoding; other lengths, versions and flags do not") func bundleForm() throws {
        var random = SeededGenerator(seed: 12)
        for oneTime in [true, false] {
            let bundle = Device(&random, oneTime: oneTime).bundle
            var bytes: [UInt8] = []
            bundle.serialize(into: &bytes)
            #expect(bytes.count == (oneTime ? 1807 : 1771))
            #expect(try DoubleRatchetTests.bundle(bytes) == bundle)
            #expect(throws: RatchetError.malformed) { try DoubleRatchetTests.bundle(bytes + [0]) }
            #expect(throws: RatchetError.malformed) { try DoubleRatchetTests.bundle(Array(bytes.dropLast())) }
            #expect(throws: RatchetError.unsupportedVersion) {
                try DoubleRatchetTests.bundle([2] + bytes.dropFirst())
            }
            bytes[1] |= 2
            #expect(throws: RatchetError.malformed) { try DoubleRatchetTests.bundle(bytes) }
        }
    }

    @Test("no signed byte of a bundle may change") func signatures() throws {
        var random = SeededGenerator(seed: 13)
        let bundle = Device(&random, oneTime: false).bundle
        var bytes: [UInt8] = []
        bundle.serialize(into: &bytes)
        for index in 34..<bytes.count where index < 150 || index > 1690 || index % 37 == 0 {
            var changed = bytes
            changed[index] ^= 1
            do {
                try PreKeyBundle(serialized: changed.span).verify()
                Issue.record("byte \(index) is not signed")
            } catch {
                #expect(error == .invalidSignature || index == 138 && error == .malformed, "byte \(index)")
            }
        }
        // Another identity's keys under this one's name.
        let other = Device(&random).bundle
        let mixed = PreKeyBundle(
            identity: bundle.identity, signedPreKey: other.signedPreKey, kemPreKey: bundle.kemPreKey,
            oneTimePreKey: nil)
        let alice = IdentityKeyPair(random: &random)
        #expect(throws: RatchetError.invalidSignature) {
            _ = try Session.initiate(identity: alice, with: mixed, expecting: nil, random: &random)
        }
    }

    @Test("identities: a pinned one, and never our own") func identities() throws {
        var random = SeededGenerator(seed: 14)
        let alice = IdentityKeyPair(random: &random)
        let mallory = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try Session.initiate(
                identity: alice, with: bob.bundle, expecting: mallory.publicKey, random: &random)
        }
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try Session.initiate(identity: bob.identity, with: bob.bundle, expecting: nil, random: &random)
        }
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        var plaintext: [UInt8] = []
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try bob.respond(to: first, expecting: mallory.publicKey, into: &plaintext)
        }
        #expect(plaintext.isEmpty)
    }

    @Test("signed but unusable keys in a bundle are refused") func unusableKeys() throws {
        var random = SeededGenerator(seed: 15)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random, oneTime: false)
        let low = Bytes32(hex(KeyTests.refused[2]))
        let lowPart = SignedPreKey.Public.signedPart(id: 1, key: low)
        let signature = bob.identity.signPreKey(lowPart.span, context: SignedPreKey.signatureContext)
        let lowSigned = PreKeyBundle(
            identity: bob.identity.publicKey,
            signedPreKey: SignedPreKey.Public(id: 1, key: low, signature: signature),
            kemPreKey: bob.kem.publicKey, oneTimePreKey: nil)
        #expect(throws: RatchetError.invalidKey) {
            _ = try Session.initiate(identity: alice, with: lowSigned, expecting: nil, random: &random)
        }
        let lowOnce = PreKeyBundle(
            identity: bob.identity.publicKey, signedPreKey: bob.signed.publicKey, kemPreKey: bob.kem.publicKey,
            oneTimePreKey: OneTimePreKey.Public(id: 1, key: low))
        #expect(throws: RatchetError.invalidKey) {
            _ = try Session.initiate(identity: alice, with: lowOnce, expecting: nil, random: &random)
        }
        // Coefficients of 4095 are over the modulus 3329.
        let over = [UInt8](repeating: 0xFF, count: KeySize.kemPublic)
        let part = KEMPreKey.Public.signedPart(id: 1, isLastResort: false, key: over)
        let overModulus = PreKeyBundle(
            identity: bob.identity.publicKey, signedPreKey: bob.signed.publicKey,
            kemPreKey: KEMPreKey.Public(
                id: 1, isLastResort: false, key: over,
                signature: bob.identity.signPreKey(part.span, context: KEMPreKey.signatureContext)),
            oneTimePreKey: nil)
        #expect(throws: RatchetError.invalidKey) {
            _ = try Session.initiate(identity: alice, with: overModulus, expecting: nil, random: &random)
        }
        #expect(throws: RatchetError.invalidKey) { _ = try Primitives.encapsulate(to: Array(over.dropLast())) }
    }

    @Test("prekeys other than those named are refused") func unknownPreKeys() throws {
        var random = SeededGenerator(seed: 16)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        let none: OneTimePreKey? = nil
        let data: [UInt8] = []
        var plaintext: [UInt8] = []
        #expect(throws: RatchetError.unknownPreKey) {
            _ = try Session.respond(
                identity: bob.identity, signedPreKey: bob.signed, oneTimePreKey: none, kemPreKey: bob.kem,
                message: first.span, associatedData: data.span, expecting: nil, plaintext: &plaintext)
        }
        // The right numbers with other keys: the same device set up anew.
        let anew = Device(&random)
        #expect(throws: RatchetError.authenticationFailed) { _ = try anew.respond(to: first, into: &plaintext) }
        #expect(plaintext.isEmpty)
    }

    @Test("no byte of a first message may change, at the responder with and without the session")
    func everyByte() throws {
        var random = SeededGenerator(seed: 17)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], data: [5], random: &random)
        let second = try initiator.seal([2], data: [5], random: &random)
        var plaintext: [UInt8] = []
        var responder = try bob.respond(to: first, data: [5], into: &plaintext)
        plaintext = []
        for index in second.indices {
            for bit in [UInt8(1), 0x80] {
                var changed = second
                changed[index] ^= bit
                #expect(responder.refusal(of: changed, data: [5]) != nil, "byte \(index)")
                if index % 16 == 0 || index < 80 || index > 1640 {
                    #expect(throws: RatchetError.self, "byte \(index)") {
                        _ = try bob.respond(to: changed, data: [5], into: &plaintext)
                    }
                }
            }
        }
        #expect(plaintext.isEmpty)
        #expect(throws: RatchetError.authenticationFailed) {
            _ = try bob.respond(to: second, data: [6], into: &plaintext)
        }
        #expect(try responder.open(second, data: [5]) == [2])
    }

    @Test("a first message of another session is told apart") func differentSession() throws {
        var random = SeededGenerator(seed: 18)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var one = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        var two = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        var plaintext: [UInt8] = []
        var responder = try bob.respond(to: try one.seal([1], random: &random), into: &plaintext)
        let other = try two.seal([1], random: &random)
        #expect(one.id != two.id)
        #expect(responder.refusal(of: other) == .differentSession)
        // Its own message, reflected at the initiator.
        #expect(two.refusal(of: other) == .differentSession)
    }

    @Test("what is not a first message has no header") func peek() throws {
        var pair = try Pair(seed: 19)
        let message = try pair.alice.seal([1], random: &pair.random)
        #expect(PreKeyMessage.isPreKeyMessage(message.span) == false)
        #expect(throws: RatchetError.malformed) { try header(of: message) }
        #expect(throws: RatchetError.malformed) { try header(of: []) }
        #expect(throws: RatchetError.unsupportedVersion) { try header(of: [0x41]) }
        #expect(throws: RatchetError.downgrade) { try header(of: [0x11]) }
        #expect(throws: RatchetError.malformed) { try header(of: [0x22]) }
    }
}
