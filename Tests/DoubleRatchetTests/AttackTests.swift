import TestKit
import Testing

@testable import DoubleRatchet

/// Attacks and accidents that other ratchets did not survive, one a test. Which of all there are is tested where:
/// Sources/DoubleRatchet/Proofs.md.
@Suite("Attacks that broke others")
struct AttackTests {
    // MARK: Loss

    @Test("one lost message, and 600 that come after it", arguments: [false, true]) func oneLost(turns: Bool) throws {
        var pair = try Pair(seed: 900)
        let lost = try pair.alice.seal([9], random: &pair.random)
        for round in 0..<600 {
            #expect(try pair.bob.open(pair.alice.seal([1], random: &pair.random)) == [1], "round \(round)")
            if turns, round < 200 { _ = try pair.alice.open(pair.bob.seal([2], random: &pair.random)) }
        }
        #expect(pair.bob.skippedCount == 1)
        #expect(try pair.bob.open(lost) == [9])
        #expect(pair.bob.skippedCount == 0)
    }

    @Test("nineteen lost in every turn, for 120 turns") func steadyLoss() throws {
        var pair = try Pair(seed: 901)
        for turn in 0..<120 {
            for _ in 0..<19 { _ = try pair.alice.seal([], random: &pair.random) }
            #expect(try pair.bob.open(pair.alice.seal([1], random: &pair.random)) == [1], "turn \(turn)")
            #expect(try pair.alice.open(pair.bob.seal([2], random: &pair.random)) == [2], "turn \(turn)")
        }
        #expect(pair.bob.skippedCount <= RatchetLimits.maximumSkippedKeys)
        #expect(pair.bob.ratchet.finished.chains.count <= RatchetLimits.maximumWaitingChains)
    }

    @Test("every kind of chunk lost thirty times", arguments: 1...5 as ClosedRange<UInt8>)
    func lostChunks(kind: UInt8) throws {
        var pair = try Pair(seed: 902 + UInt64(kind))
        let wanted = try #require(Braid.Message.Kind(rawValue: kind))
        var lost = 0
        for round in 0..<1400 {
            let toBob = round % 2 == 0
            // What the message will carry is in the state before it.
            var copy = toBob ? pair.alice.ratchet.postQuantum : pair.bob.ratchet.postQuantum
            var random = pair.random
            let part = copy.send(random: &random).0
            let message =
                toBob ? try pair.alice.seal([1], random: &pair.random) : try pair.bob.seal([2], random: &pair.random)
            if part.message.kind == wanted, lost < 30 {
                lost += 1
                continue
            }
            _ = toBob ? try pair.bob.open(message) : try pair.alice.open(message)
        }
        #expect(lost == 30)
        let epochs = (pair.alice.ratchet.postQuantum.braid.epoch, pair.bob.ratchet.postQuantum.braid.epoch)
        #expect(min(epochs.0, epochs.1) > 4, "\(epochs)")
    }

    // MARK: A peer that lies

    private func hostilePeer(ofAlice: Bool) throws -> HostilePeer {
        let ends = try FuzzStates.shared.get().established
        return try HostilePeer(victim: ofAlice ? ends.alice : ends.bob, peer: ofAlice ? ends.bob : ends.alice)
    }

    @Test("a skipped message that claims a later epoch is refused", arguments: [false, true])
    func lateEpoch(ofAlice: Bool) throws {
        let peer = try hostilePeer(ofAlice: ofAlice)
        var random = SeededGenerator(seed: 909)
        let nothing = Braid.Message(kind: .none, chunk: nil)
        var (ends, headers) = (0, 0)
        for _ in 0..<600 where ends == 0 || headers == 0 {
            try peer.victimSends()
            let part = peer.nextPart()
            let skipping = HostilePeer.Place.step(missing: 0, number: 1, oldKey: false)
            try #expect(peer.sends(skipping, epoch: part.epoch, message: part.message) == nil)
            let ratchet = peer.victim.ratchet.postQuantum
            let late = HostilePeer.Place.late(peer.skippedCount - 1)
            switch ratchet.braid.state {
            case .ciphertext2Sampled:
                // It would end the epoch of the braid, and the receiving chain would stay in the one before.
                ends += 1
                try #expect(peer.sends(late, epoch: ratchet.braid.epoch + 1, message: nothing) == .diverged)
            case .noHeaderReceived where ratchet.receivingEpoch + 2 == ratchet.braid.epoch:
                // They would complete the next header before the peer has come to its epoch.
                headers += 1
                var braid = Braid(
                    epoch: ratchet.braid.epoch, authenticator: ratchet.braid.authenticator, state: .keysUnsampled)
                for _ in 0..<3 {
                    let chunk = braid.send(random: &random).0
                    try #expect(peer.sends(late, epoch: braid.epoch, message: chunk) == .diverged)
                }
            default: continue
            }
            try #expect(peer.sends(late, epoch: ratchet.receivingEpoch + 1, message: nothing) == nil)
        }
        #expect(ends > 0 && headers > 0, "\(ends) \(headers)")
    }

    @Test("a new chain with the ratchet key of the chain before is refused") func oldRatchetKey() throws {
        let peer = try hostilePeer(ofAlice: true)
        for _ in 0..<4 {
            try peer.victimSends()
            let part = peer.nextPart()
            let place = HostilePeer.Place.step(missing: 0, number: 0, oldKey: true)
            try #expect(peer.sends(place, epoch: part.epoch, message: part.message) == .authenticationFailed)
            try peer.sendsHonestly()
        }
        #expect(peer.openedCount == 4)
    }

    // MARK: Headers

    @Test("own keys in a header of the peer's crash nothing") func ownKeys() throws {
        var pair = try Pair(seed: 910)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        _ = try pair.bob.seal([], random: &pair.random)
        let chain = pair.bob.ratchet.sending
        let own = try #require(chain).pair.publicKey.bytes.array
        let identity = try pair.bob.ownIdentity.agreementKey().bytes.array
        for key in [own, identity, pair.bob.ratchet.peerKey.array] {
            let message = pair.bob.forged(.next, key, 0, 0)
            #expect(pair.bob.refusal(of: message) == .authenticationFailed)
        }
        #expect(try pair.bob.open(pair.alice.seal([1], random: &pair.random)) == [1])
    }

    @Test("whoever knows no header key causes one block a key, and hardly ever more") func forgeryWork() throws {
        var pair = try Pair(seed: 911)
        for _ in 0..<RatchetLimits.maximumWaitingChains + 2 {
            _ = try pair.alice.seal([], random: &pair.random)
            _ = try pair.bob.open(pair.alice.seal([], random: &pair.random))
            _ = try pair.alice.open(pair.bob.seal([], random: &pair.random))
        }
        let chain = pair.bob.ratchet.receiving
        let keys = pair.bob.ratchet.finished.chains.map(\.headerKey) + [try #require(chain).headerKey]
        #expect(keys.count <= RatchetLimits.maximumWaitingChains + 1)
        // The rest of the work is done only where the hint of a forgery is right by chance: one of 256.
        let message = try pair.alice.seal([], random: &pair.random)
        var openings = 0
        for _ in 0..<600 {
            let forged = Array(message.prefix(2)) + pair.random.bytes(message.count - 2)
            openings += try forged.withUnsafeBytes { bytes in
                let parsed = try Message(bytes)
                return keys.filter { HintProbe.matches($0, parsed) }.count
            }
            #expect(pair.bob.refusal(of: forged) == .authenticationFailed)
        }
        let expected = 600 * keys.count / 256
        #expect(openings < 2 * expected, "\(openings) of \(600 * keys.count)")
    }

    @Test("an established message shows neither identity, session, nor prekey") func unlinkable() throws {
        var pair = try Pair(seed: 912)
        let message = try pair.alice.seal([UInt8](repeating: 0, count: 300), random: &pair.random)
        let known = [
            pair.alice.ownIdentity.bytes, pair.bob.ownIdentity.bytes, pair.alice.id,
            try pair.alice.ownIdentity.agreementKey().bytes.array, pair.alice.ratchet.peerKey.array,
        ]
        for key in known {
            #expect(!(0...message.count - 8).contains { message[$0..<$0 + 8] == key.prefix(8) })
        }
    }

    // MARK: First messages

    @Test("a first message without its KEM ciphertext begins nothing") func missingCiphertext() throws {
        var random = SeededGenerator(seed: 920)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        let start = 1 + 32 + 32 + 4 + 4
        let without = Array(first[..<start]) + first[(start + KeySize.kemCiphertext)...]
        var output: [UInt8] = []
        #expect(throws: RatchetError.malformed) { _ = try bob.respond(to: without, into: &output) }
        let zero = Array(first[..<start]) + [UInt8](repeating: 0, count: KeySize.kemCiphertext)
        #expect(throws: RatchetError.authenticationFailed) {
            _ = try bob.respond(to: zero + first[(start + KeySize.kemCiphertext)...], into: &output)
        }
        #expect(output.isEmpty)
    }

    @Test("an opening that is played again: a duplicate, an unknown prekey, or the same session's name")
    func replayedOpening() throws {
        var random = SeededGenerator(seed: 921)
        let alice = IdentityKeyPair(random: &random)
        for oneTime in [true, false] {
            let bob = Device(&random, oneTime: oneTime, lastResort: !oneTime)
            var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
            let first = try initiator.seal([1], random: &random)
            var output: [UInt8] = []
            var responder = try bob.respond(to: first, into: &output)
            #expect(responder.refusal(of: first) == .duplicate)
            _ = try initiator.open(responder.seal([2], random: &random))
            _ = try responder.open(initiator.seal([3], random: &random))
            #expect(responder.refusal(of: first) == .duplicate, "and later")
            let none: OneTimePreKey? = nil
            let data: [UInt8] = []
            if oneTime {
                // The prekey was deleted in the transaction that stored the session.
                #expect(throws: RatchetError.unknownPreKey) {
                    _ = try Session.respond(
                        identity: bob.identity, signedPreKey: bob.signed, oneTimePreKey: none, kemPreKey: bob.kem,
                        message: first.span, associatedData: data.span, expecting: nil, plaintext: &output)
                }
            } else {
                // Without one the bytes open again, for which the caller looks at the name before it answers.
                #expect(try header(of: first).sessionID == responder.id)
                let again = try bob.respond(to: first, into: &output)
                #expect(again.id == responder.id)
            }
        }
    }

    @Test("two sessions under one last-resort prekey have nothing in common") func lastResort() throws {
        var random = SeededGenerator(seed: 922)
        let bob = Device(&random, oneTime: false, lastResort: true)
        let alice = IdentityKeyPair(random: &random)
        var one = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        var other = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        var output: [UInt8] = []
        var first = try bob.respond(to: one.seal([1], random: &random), into: &output)
        var second = try bob.respond(to: other.seal([2], random: &random), into: &output)
        #expect(first.id != second.id && output == [1, 2])
        _ = try one.open(first.seal([], random: &random))
        _ = try other.open(second.seal([], random: &random))
        let message = try one.seal([3], random: &random)
        #expect(second.refusal(of: message) == .authenticationFailed)
        #expect(try first.open(message) == [3])
    }

    @Test("both begin at once: two sessions, and both go on") func simultaneous() throws {
        var random = SeededGenerator(seed: 923)
        let alice = Device(&random)
        let bob = Device(&random)
        var fromAlice = try Session.initiate(
            identity: alice.identity, with: bob.bundle, expecting: nil, random: &random)
        var fromBob = try Session.initiate(identity: bob.identity, with: alice.bundle, expecting: nil, random: &random)
        let (toBob, toAlice) = (try fromAlice.seal([1], random: &random), try fromBob.seal([2], random: &random))
        #expect(fromAlice.refusal(of: toAlice) == .differentSession)
        #expect(fromBob.refusal(of: toBob) == .differentSession)
        var output: [UInt8] = []
        var atBob = try bob.respond(to: toBob, into: &output)
        var atAlice = try alice.respond(to: toAlice, into: &output)
        #expect(output == [1, 2] && atBob.id == fromAlice.id && atAlice.id == fromBob.id && atBob.id != atAlice.id)
        for text in 0..<3 as Range<UInt8> {
            #expect(try fromAlice.open(atBob.seal([text], random: &random)) == [text])
            #expect(try fromBob.open(atAlice.seal([text], random: &random)) == [text])
            #expect(try atBob.open(fromAlice.seal([text], random: &random)) == [text])
            #expect(try atAlice.open(fromBob.seal([text], random: &random)) == [text])
        }
    }

    @Test("public forms hold nothing secret") func publicForms() {
        var random = SeededGenerator(seed: 924)
        let device = Device(&random)
        var (bundle, identity, signed, kem): ([UInt8], [UInt8], [UInt8], [UInt8]) = ([], [], [], [])
        device.bundle.serialize(into: &bundle)
        device.identity.serialize(into: &identity)
        device.signed.serialize(into: &signed)
        device.kem.serialize(into: &kem)
        let published = Set((0...bundle.count - 8).map { Array(bundle[$0..<$0 + 8]) })
        // The seed of the identity; the private half behind the number of the one; the seed of the other.
        let secrets = [identity.suffix(32), device.signed.pair.secret.array[...], device.kem.seed.array[...]]
        for secret in secrets {
            let bytes = Array(secret)
            for at in 0...bytes.count - 8 { #expect(!published.contains(Array(bytes[at..<at + 8]))) }
        }
        #expect(signed.count > 32 && kem.count > 64)
    }

    // MARK: States

    @Test("the sender's later state does not lead back to what was sent") func senderForwardSecrecy() throws {
        var pair = try Pair(seed: 930)
        _ = try pair.bob.open(pair.alice.seal([], random: &pair.random))
        let before = pair.bob.state
        let messages = try (0..<5).map { try pair.alice.seal([UInt8($0)], random: &pair.random) }
        // The thief has Alice's state after that, and puts all of it where Bob's would be.
        let stolen = try restored(pair.alice.state)
        let chain = stolen.ratchet.sending
        let sending = try #require(chain)
        for key in [sending.key, ChainKey(secret: stolen.ratchet.root.secret)] {
            var thief = try restored(before)
            thief.ratchet.receiving?.key = key
            for message in messages { #expect(thief.refusal(of: message) == .authenticationFailed) }
        }
        for message in messages { _ = try pair.bob.open(message) }
    }

    @Test("a state that is copied or rolled back: equal texts show as equal, others show nothing") func rollback()
        throws
    {
        var pair = try Pair(seed: 931)
        _ = try pair.bob.open(pair.alice.seal([], random: &pair.random))
        let state = pair.alice.state
        let (one, other) = ([UInt8](repeating: 0x41, count: 64), [UInt8](repeating: 0x42, count: 64))
        func sealed(_ text: [UInt8]) throws -> [UInt8] {
            var clone = try restored(state)
            var random = SeededGenerator(seed: 1)
            return try clone.seal(text, random: &random)
        }
        let (first, second) = (try sealed(one), try sealed(other))
        #expect(try sealed(one) == first)
        // The nonce of the counter mode is the tag, and so another one: the key streams have nothing in common.
        #expect(first.suffix(16) != second.suffix(16))
        let bodies = (first.dropLast(16).suffix(64), second.dropLast(16).suffix(64))
        let differences = Set(zip(bodies.0, bodies.1).map { $0 ^ $1 })
        #expect(differences.count > 16, "the two ciphertexts differ as their texts do")
        // Only one of the two is ever opened.
        #expect(try pair.bob.open(first) == one)
        #expect(pair.bob.refusal(of: second) == .duplicate)
    }

    // MARK: Groups

    @Test("two sender keys with one number: each opens its own messages only") func senderKeyCollision() throws {
        var random = SeededGenerator(seed: 940)
        var one = SenderKey(random: &random)
        // Another key that has, by chance or by intent, the same number.
        var state: [UInt8] = []
        SenderKey(random: &random).serialize(into: &state)
        var id: [UInt8] = []
        id.append(networkOrder: one.id)
        state.replaceSubrange(1..<5, with: id)
        var other = try SenderKey(serialized: state.span)
        let data: [UInt8] = []
        let distributions = [one.distribution, other.distribution]
        var messages: [[UInt8]] = [[], []]
        try one.encrypt([1].span, associatedData: data.span, into: &messages[0])
        try other.encrypt([2].span, associatedData: data.span, into: &messages[1])
        for (own, foreign) in [(0, 1), (1, 0)] {
            var receiver = SenderKeyReceiver(distributions[own])
            let (bytes, others) = (messages[own], messages[foreign])
            var output: [UInt8] = []
            #expect(throws: RatchetError.authenticationFailed) {
                _ = try receiver.decrypt(others.span, associatedData: data.span, into: &output)
            }
            #expect(output.isEmpty)
            _ = try receiver.decrypt(bytes.span, associatedData: data.span, into: &output)
            #expect(output == [UInt8(own + 1)])
        }
    }
}

/// Whether a header key would try to open a message: the hint alone, as `HeaderKey` computes it.
private enum HintProbe {
    static func matches(_ key: HeaderKey, _ message: Message) -> Bool {
        var block = Array(message.sealedHeader.suffix(KeySize.tag))
        block[KeySize.tag - 1] = 0xFF
        CipherContext.withOne { context in
            key.secret.withUnsafeBytes { context.setKey($0) }
            block.withUnsafeMutableBytes { context.encrypt($0) }
        }
        return block[0] == message.hint
    }
}
