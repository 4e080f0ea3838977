import TestKit
import Testing

@testable import DoubleRatchet

/// States that are restored from an old copy, or run twice.
///
/// The key of a message is made of the state alone, so a clone makes it again. What must not come again is the pair of a key
/// and the counter block that AES starts from: with AES-GCM-SIV that block is the tag, which depends on all of the text. So
/// two texts under one key share nothing, and an observer learns only whether two are equal.
@Suite("States that went back in time")
struct RollbackTests {
    /// What a message was sealed under, by keys that only a test can see.
    private struct Sealed: Hashable {
        let key: [UInt8]
        let synthetic: [UInt8]
    }

    /// Every pair of a key and a synthetic IV, with what was sealed under it.
    private struct Ledger {
        private(set) var sealed: [Sealed: [UInt8]] = [:]
        private(set) var keys: [[UInt8]: Int] = [:]

        /// - Returns: whether the pair is new, or has sealed the same before.
        mutating func note(key: [UInt8], tag: [UInt8], of content: [UInt8]) -> Bool {
            keys[key, default: 0] += 1
            let entry = Sealed(key: key, synthetic: tag)
            defer { sealed[entry] = content }
            return sealed[entry] ?? content == content
        }

        var repeatedKeys: Int { keys.values.count { $0 > 1 } }
    }

    /// Seals a text and notes both keys of its message.
    private func seal(
        _ text: [UInt8], _ session: inout Session, _ random: inout SeededGenerator, _ ledger: inout Ledger
    ) throws -> [UInt8] {
        var sameRandom = random
        var twin = try restored(session.state)
        let (headerKey, messageKey) = try CipherContext.withOne { (context) throws(RatchetError) in
            let step = try twin.ratchet.send(random: &sameRandom, keys: context.keys)
            return (step.headerKey.secret.array, Array(step.key))
        }
        let message = try session.seal(text, random: &random)
        let headerSize = 3 + Int(message[message[0] & 1 == 0 ? 1 : 1 + preKeySize(message)]) + 16
        let body = (message[0] & 1 == 0 ? 0 : preKeySize(message)) + headerSize
        let head = Array(message[..<body])
        let isNewHeader = ledger.note(
            key: headerKey, tag: Array(head.suffix(16)), of: head)
        let isNewBody = ledger.note(key: messageKey, tag: Array(message.suffix(16)), of: head + text)
        #expect(isNewHeader && isNewBody, "a key and an IV came twice for two texts")
        return message
    }

    private func preKeySize(_ message: [UInt8]) -> Int { message[0] & 2 == 0 ? 1640 : 1644 }

    private func keyStream(_ message: [UInt8], _ text: [UInt8]) -> [UInt8] {
        zip(message.dropLast(16).suffix(text.count), text).map { $0 ^ $1 }
    }

    /// Two ends in the middle of a chain, where the next message draws nothing.
    private func settled(seed: UInt64) throws -> Pair {
        var pair = try Pair(seed: seed)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        return pair
    }

    @Test("two texts from clones of one state: one key, two IVs, two key streams") func clones() throws {
        let pair = try settled(seed: 400)
        let state = pair.alice.state
        var random = pair.random
        var streams: Set<[UInt8]> = []
        var heads: Set<[UInt8]> = []
        var ledger = Ledger()
        for number in 0..<300 {
            var clone = try restored(state)
            let text = [UInt8](repeating: 0, count: 30) + [UInt8(number >> 8), UInt8(number & 0xFF)]
            let message = try seal(text, &clone, &random, &ledger)
            heads.insert(Array(message.dropLast(text.count + 16)))
            streams.insert(keyStream(message, text))
        }
        #expect(heads.count == 1 && ledger.keys.count == 2, "the control: all have one key, and one of the header")
        #expect(streams.count == 300)
    }

    @Test("what a clone shows: whether two texts with the same data are equal, and no more") func equality() throws {
        let pair = try settled(seed: 401)
        var random = pair.random
        func message(_ text: [UInt8], _ data: [UInt8]) throws -> [UInt8] {
            var clone = try restored(pair.alice.state)
            return try clone.seal(text, data: data, random: &random)
        }
        #expect(try message([1, 2, 3], [1]) == message([1, 2, 3], [1]))
        let (one, other) = (try message([1, 2, 3], [1]), try message([1, 2, 3], [2]))
        #expect(one.suffix(16) != other.suffix(16) && keyStream(one, [1, 2, 3]) != keyStream(other, [1, 2, 3]))
    }

    @Test("the peer opens one of two clones' messages; the other is a duplicate") func peerOfClones() throws {
        var pair = try settled(seed: 402)
        var clone = try restored(pair.alice.state)
        let (one, two) = (try pair.alice.seal([1], random: &pair.random), try clone.seal([2], random: &pair.random))
        #expect(try pair.bob.open(one) == [1])
        #expect(pair.bob.refusal(of: two) == .duplicate)
        // The clone goes on, and is read again where it has caught up.
        #expect(try pair.bob.open(try clone.seal([3], random: &pair.random)) == [3])
    }

    @Test("clones that begin a chain draw other keys; the peer follows one and reports the other") func newChain()
        throws
    {
        var pair = try settled(seed: 403)
        _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        var clone = try restored(pair.alice.state)
        var ledger = Ledger()
        let one = try seal([1], &pair.alice, &pair.random, &ledger)
        let two = try seal([2], &clone, &pair.random, &ledger)
        #expect(ledger.keys.count == 3, "one header key, and two keys of messages")
        #expect(try pair.bob.open(one) == [1])
        #expect(pair.bob.refusal(of: two) == .diverged)
        #expect(pair.bob.refusal(of: try clone.seal([3], random: &pair.random)) == .diverged)
        #expect(try pair.bob.open(try pair.alice.seal([4], random: &pair.random)) == [4])
    }

    /// Talks until `isThere` holds at Bob's end.
    private func talk(_ pair: inout Pair, until isThere: (Braid.State) -> Bool) throws {
        for _ in 0..<400 where !isThere(pair.bob.ratchet.postQuantum.braid.state) {
            _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
            if isThere(pair.bob.ratchet.postQuantum.braid.state) { return }
            _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        }
    }

    @Test("an end that goes back to before an epoch's keys draws others: each of its messages is reported")
    func keysDrawnAgain() throws {
        var pair = try settled(seed: 404)
        try talk(&pair) { if case .keysUnsampled = $0 { true } else { false } }
        let backup = pair.bob.state
        for _ in 0..<2 { _ = try pair.alice.open(try pair.bob.seal([1], random: &pair.random)) }
        var rolledBack = try restored(backup)
        for _ in 0..<6 {
            let message = try rolledBack.seal([3], random: &pair.random)
            #expect(pair.alice.refusal(of: message) == .diverged)
        }
    }

    @Test("the same in one chain, where only the braid tells", arguments: [false, true])
    func onlyTheBraidDiverges(encapsulates: Bool) throws {
        // Bob writes while he hears nothing, so that his chain began before the state that he goes back to.
        var pair = try settled(seed: 405)
        try talk(&pair) { state in
            switch state {
            case .keysUnsampled: !encapsulates
            case .headerReceived: encapsulates
            default: false
            }
        }
        // A message of Bob's begins the chain, and draws; roll back what it drew, and keep the chain.
        _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        var rolledBack = try restored(pair.bob.state)
        redraw(&rolledBack, &pair.random)
        var errors: Set<RatchetError> = []
        var refused = 0
        for _ in 0..<200 where errors.isEmpty {
            let message = try rolledBack.seal([3], random: &pair.random)
            if let error = pair.alice.refusal(of: message) {
                errors.insert(error)
                refused += 1
            } else {
                _ = try? rolledBack.open(try pair.alice.seal([], random: &pair.random))
            }
        }
        #expect(errors == [.diverged], "\(errors)")
        #expect(refused > 0)
    }

    /// What an end would have if it had drawn its keys anew, and nothing else.
    private func redraw(_ session: inout Session, _ random: inout SeededGenerator) {
        var braid = session.ratchet.postQuantum.braid
        switch braid.state {
        case .keysSampled(_, let sent):
            braid.state = .keysSampled(BraidKeyPair(seed: SecretBytes(count: 64, random: &random)), sent: sent)
        case .ciphertext1Sampled(let encapsulation, let sent, let collector):
            let again = BraidEncapsulation(
                message: SecretBytes(count: 32, random: &random), header: encapsulation.header)
            braid.state = .ciphertext1Sampled(again, sent: sent, collector)
        default: Issue.record("nothing was drawn")
        }
        session.ratchet.postQuantum.braid = braid
    }

    @Test("a session that has diverged is replaced, and the earlier one listens on") func replaced() throws {
        let (one, two) = Party.pair(seed: 60)
        try one.begin(with: two)
        _ = try two.open(try one.seal([], to: two), from: one)
        _ = try one.open(try two.seal([], to: one), from: two)
        let backup = one.records
        _ = try two.open(try one.seal([1], to: two), from: one)
        one.records = backup
        let message = try one.seal([2], to: two)
        #expect(try two.refusal(of: message, from: one) == .diverged)
        try two.begin(with: one)
        #expect(try one.open(try two.seal([3], to: one), from: two) == [3])
        #expect(try two.open(try one.seal([4], to: two), from: one) == [4])
        #expect(try one.session(with: two) == two.session(with: one))
    }

    @Test("over a whole conversation with restored states no key and IV come twice", arguments: [1, 2, 3] as [UInt64])
    func conversation(seed: UInt64) throws {
        var pair = try Pair(seed: 410 + seed)
        var random = pair.random
        var ledger = Ledger()
        var backups: [([UInt8], [UInt8])] = []
        for step in 0..<600 {
            if random.below(8) == 0 { backups.append((pair.alice.state, pair.bob.state)) }
            if random.below(25) == 0, !backups.isEmpty {
                // One of the two goes back, as far as it likes; both are cloned where the other does as well.
                let backup = backups[random.below(backups.count)]
                if random.below(2) == 0 { pair.alice = try restored(backup.0) }
                if random.below(2) == 0 { pair.bob = try restored(backup.1) }
            }
            let text = Array("text \(step)".utf8)
            if random.below(2) == 0 {
                let message = try seal(text, &pair.alice, &random, &ledger)
                if random.below(4) > 0 { _ = try? pair.bob.open(message) }
            } else {
                let message = try seal(text, &pair.bob, &random, &ledger)
                if random.below(4) > 0 { _ = try? pair.alice.open(message) }
            }
        }
        #expect(ledger.repeatedKeys > 20, "the control: keys of messages did come again (\(ledger.repeatedKeys))")
    }

    @Test("sender keys: two texts from clones share no key stream") func senderKeys() throws {
        var random = SeededGenerator(seed: 420)
        let key = SenderKey(random: &random)
        var state: [UInt8] = []
        key.serialize(into: &state)
        var receiver = SenderKeyReceiver(key.distribution)
        var streams: Set<[UInt8]> = []
        let data: [UInt8] = [1]
        var messages: [[UInt8]] = []
        for number in 0..<100 {
            var clone = try SenderKey(serialized: state.span)
            let text = [UInt8](repeating: 0, count: 20) + [UInt8(number)]
            var message: [UInt8] = []
            try clone.encrypt(text.span, associatedData: data.span, into: &message)
            streams.insert(
                zip(message.dropLast(KeySize.signature + KeySize.tag).suffix(text.count), text).map { $0 ^ $1 })
            messages.append(message)
        }
        #expect(streams.count == 100)
        var output: [UInt8] = []
        let first = messages.removeFirst()
        _ = try receiver.decrypt(first.span, associatedData: data.span, into: &output)
        for message in messages {
            do throws(RatchetError) {
                _ = try receiver.decrypt(message.span, associatedData: data.span, into: &output)
                Issue.record("two texts with one number were read")
            } catch {
                #expect(error == .duplicate)
            }
        }
    }
}
