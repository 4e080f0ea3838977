import TestKit
import Testing

@testable import DoubleRatchet

/// First messages and bundles in which one thing is wrong, one at a time.
@Suite("What does not begin a session")
struct RefusalTests {
    private enum Wrong: CaseIterable {
        case signedSignature, signedID, signedKey, kemSignature, kemID, kemMark, kemKey, contextsSwapped
    }

    /// `bundle` with one thing changed, its signatures otherwise genuine.
    private func changed(_ bundle: PreKeyBundle, _ wrong: Wrong, by other: PreKeyBundle) -> PreKeyBundle {
        let (signed, kem) = (bundle.signedPreKey, bundle.kemPreKey)
        func with(id: UInt32? = nil, key: Bytes32? = nil, signature: [UInt8]? = nil) -> SignedPreKey.Public {
            SignedPreKey.Public(
                id: id ?? signed.id, key: key ?? signed.key, signature: signature ?? signed.signature)
        }
        func with(
            kemID: UInt32? = nil, mark: Bool? = nil, key: [UInt8]? = nil, signature: [UInt8]? = nil
        ) -> KEMPreKey.Public {
            KEMPreKey.Public(
                id: kemID ?? kem.id, isLastResort: mark ?? kem.isLastResort, key: key ?? kem.key,
                signature: signature ?? kem.signature)
        }
        var (newSigned, newKEM) = (signed, kem)
        switch wrong {
        case .signedSignature: newSigned = with(signature: other.signedPreKey.signature)
        case .signedID: newSigned = with(id: signed.id + 1)
        case .signedKey: newSigned = with(key: other.signedPreKey.key)
        case .kemSignature: newKEM = with(signature: other.kemPreKey.signature)
        case .kemID: newKEM = with(kemID: kem.id + 1)
        case .kemMark: newKEM = with(mark: !kem.isLastResort)
        case .kemKey: newKEM = with(key: other.kemPreKey.key)
        case .contextsSwapped:
            newSigned = with(signature: kem.signature)
            newKEM = with(signature: signed.signature)
        }
        return PreKeyBundle(
            identity: bundle.identity, signedPreKey: newSigned, kemPreKey: newKEM,
            oneTimePreKey: bundle.oneTimePreKey)
    }

    @Test("each prekey has to be signed as it is", arguments: [false, true])
    func wrongSignatures(lastResort: Bool) throws {
        var random = SeededGenerator(seed: 50)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random, lastResort: lastResort)
        let other = Device(&random, lastResort: lastResort).bundle
        _ = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        for wrong in Wrong.allCases {
            let bundle = changed(bob.bundle, wrong, by: other)
            #expect(bundle != bob.bundle, "\(wrong)")
            #expect(throws: RatchetError.invalidSignature, "\(wrong)") {
                _ = try Session.initiate(identity: alice, with: bundle, expecting: nil, random: &random)
            }
        }
    }

    @Test("prekeys under other numbers than those named are unknown") func wrongNumbers() throws {
        var random = SeededGenerator(seed: 51)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        let otherSigned = SignedPreKey(id: 70, identity: bob.identity, random: &random)
        let otherKEM = KEMPreKey(id: 90, isLastResort: false, identity: bob.identity, random: &random)
        let otherOnce: OneTimePreKey? = OneTimePreKey(id: 80, random: &random)
        let data: [UInt8] = []
        var output: [UInt8] = [5]
        #expect(throws: RatchetError.unknownPreKey, "signed") {
            _ = try Session.respond(
                identity: bob.identity, signedPreKey: otherSigned, oneTimePreKey: bob.once, kemPreKey: bob.kem,
                message: first.span, associatedData: data.span, expecting: nil, plaintext: &output)
        }
        #expect(throws: RatchetError.unknownPreKey, "KEM") {
            _ = try Session.respond(
                identity: bob.identity, signedPreKey: bob.signed, oneTimePreKey: bob.once, kemPreKey: otherKEM,
                message: first.span, associatedData: data.span, expecting: nil, plaintext: &output)
        }
        #expect(throws: RatchetError.unknownPreKey, "one-time") {
            _ = try Session.respond(
                identity: bob.identity, signedPreKey: bob.signed, oneTimePreKey: otherOnce, kemPreKey: bob.kem,
                message: first.span, associatedData: data.span, expecting: nil, plaintext: &output)
        }
        // And a one-time prekey where the message names none.
        var without = bob.bundle
        without = PreKeyBundle(
            identity: without.identity, signedPreKey: without.signedPreKey, kemPreKey: without.kemPreKey,
            oneTimePreKey: nil)
        var second = try Session.initiate(identity: alice, with: without, expecting: nil, random: &random)
        let message = try second.seal([1], random: &random)
        #expect(throws: RatchetError.unknownPreKey, "unasked") { _ = try bob.respond(to: message, into: &output) }
        #expect(output == [5])
    }

    @Test("the right number with another one-time key or KEM key opens nothing") func wrongKeys() throws {
        var random = SeededGenerator(seed: 52)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        let once: OneTimePreKey? = OneTimePreKey(id: 8, random: &random)
        let kem = KEMPreKey(id: 9, isLastResort: false, identity: bob.identity, random: &random)
        let data: [UInt8] = []
        var output: [UInt8] = [5]
        #expect(throws: RatchetError.authenticationFailed, "one-time") {
            _ = try Session.respond(
                identity: bob.identity, signedPreKey: bob.signed, oneTimePreKey: once, kemPreKey: bob.kem,
                message: first.span, associatedData: data.span, expecting: nil, plaintext: &output)
        }
        #expect(throws: RatchetError.authenticationFailed, "KEM") {
            _ = try Session.respond(
                identity: bob.identity, signedPreKey: bob.signed, oneTimePreKey: bob.once, kemPreKey: kem,
                message: first.span, associatedData: data.span, expecting: nil, plaintext: &output)
        }
        #expect(output == [5])
    }

    @Test("another identity in a first message is not believed") func substitutedIdentity() throws {
        var random = SeededGenerator(seed: 53)
        let alice = IdentityKeyPair(random: &random)
        let mallory = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        let second = try initiator.seal([2], random: &random)
        func renamed(_ message: [UInt8], _ identity: [UInt8]) -> [UInt8] { [message[0]] + identity + message[33...] }
        #expect(renamed(first, alice.publicKey.bytes) == first)
        let asMallory = renamed(first, mallory.publicKey.bytes)
        let claimed = try header(of: asMallory).identity
        #expect(claimed == mallory.publicKey)
        var output: [UInt8] = [5]
        #expect(throws: RatchetError.authenticationFailed) { _ = try bob.respond(to: asMallory, into: &output) }
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try bob.respond(to: asMallory, expecting: alice.publicKey, into: &output)
        }
        // Alice's key with the other sign of x has the same X25519 key, and is another identity all the same.
        var negated = alice.publicKey.bytes
        negated[31] ^= 0x80
        #expect(try identityKey(negated).agreementKey() == identityKey(alice.publicKey.bytes).agreementKey())
        #expect(throws: RatchetError.authenticationFailed) {
            _ = try bob.respond(to: renamed(first, negated), into: &output)
        }
        // Bob's own identity, and one that is no key.
        #expect(throws: RatchetError.untrustedIdentity) {
            _ = try bob.respond(to: renamed(first, bob.identity.publicKey.bytes), into: &output)
        }
        #expect(throws: RatchetError.invalidKey) {
            _ = try bob.respond(to: renamed(first, [UInt8](repeating: 0, count: 32)), into: &output)
        }
        #expect(output == [5])
        var responder = try bob.respond(to: first, expecting: alice.publicKey, into: &output)
        #expect(output == [5, 1])
        #expect(responder.refusal(of: renamed(second, mallory.publicKey.bytes)) == .differentSession)
        #expect(try responder.open(second) == [2])
    }

    @Test("a first message cut at every length, or with a byte more", arguments: [true, false])
    func truncatedFirst(oneTime: Bool) throws {
        var random = SeededGenerator(seed: 54)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random, oneTime: oneTime)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1, 2, 3], random: &random)
        let shortest = 1 + (oneTime ? 1644 : 1640) + 1 + 1 + 70 + 2 * KeySize.tag
        #expect(first.count == shortest + 3)
        var output: [UInt8] = [5]
        for length in first.indices {
            let expected: RatchetError = length < shortest ? .malformed : .authenticationFailed
            #expect(throws: expected, "\(length)") {
                _ = try bob.respond(to: Array(first[..<length]), into: &output)
            }
        }
        #expect(throws: RatchetError.authenticationFailed) { _ = try bob.respond(to: first + [0], into: &output) }
        #expect(output == [5])
        _ = try bob.respond(to: first, into: &output)
        #expect(output == [5, 1, 2, 3])
    }

    @Test("forged counters in a first message make no session") func countersOfFirst() throws {
        var random = SeededGenerator(seed: 55)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        let pending = initiator.pending
        let part = try #require(pending)
        let chain = initiator.ratchet.sending
        let sending = try #require(chain)
        let version = initiator.version
        var output: [UInt8] = [5]
        func respond(_ number: UInt32, _ previous: UInt32, _ expected: RatchetError) {
            let postQuantum = PostQuantumPart(
                epoch: 1, number: number, message: Braid.Message(kind: .none, chunk: nil))
            let header = MessageHeader(
                ratchetKey: sending.pair.publicKey.bytes, number: number, previousCount: previous,
                postQuantum: postQuantum)
            var message: [UInt8] = []
            Message.writeHead(version, part, header, key: sending.headerKey, into: &message)
            message += first.suffix(1 + KeySize.tag)
            #expect(throws: expected, "\(number) \(previous)") { _ = try bob.respond(to: message, into: &output) }
        }
        respond(.max, 0, .tooFarAhead)
        respond(RatchetLimits.maximumSkip + 1, 0, .tooFarAhead)
        respond(RatchetLimits.maximumSkip, 0, .authenticationFailed)
        respond(0, 1, .authenticationFailed)
        respond(0, .max, .authenticationFailed)
        #expect(output == [5])
    }

    @Test("own messages come back: both ends, new chain and same chain") func reflected() throws {
        var pair = try Pair(seed: 56)
        for round in 0..<3 {
            for message in [
                try pair.alice.seal([1], random: &pair.random), try pair.alice.seal([2], random: &pair.random),
            ] {
                #expect(pair.alice.refusal(of: message) == .authenticationFailed, "round \(round)")
                _ = try pair.bob.open(message)
                #expect(pair.alice.refusal(of: message) == .authenticationFailed, "round \(round), delivered")
            }
            for message in [
                try pair.bob.seal([3], random: &pair.random), try pair.bob.seal([4], random: &pair.random),
            ] {
                #expect(pair.bob.refusal(of: message) == .authenticationFailed, "round \(round)")
                _ = try pair.alice.open(message)
                #expect(pair.bob.refusal(of: message) == .authenticationFailed, "round \(round), delivered")
            }
        }
    }

    @Test("a message of one pair opens at no other") func otherPair() throws {
        var one = try Pair(seed: 57)
        var two = try Pair(seed: 58)
        let message = try one.alice.seal([1], random: &one.random)
        _ = try two.bob.seal([], random: &two.random)
        #expect(two.bob.refusal(of: message) == .authenticationFailed)
        #expect(two.alice.refusal(of: message) == .authenticationFailed)
        #expect(try one.bob.open(message) == [1])
    }
}
