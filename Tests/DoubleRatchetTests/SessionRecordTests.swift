import TestKit
import Testing

@testable import DoubleRatchet

@Suite("All sessions with one device")
struct SessionRecordTests {
    /// Sends a text and opens it at the other end.
    private func sendMessage(_ text: [UInt8], _ from: Party, _ to: Party) throws {
        #expect(try to.open(try from.seal(text, to: to), from: from) == text)
    }

    private func startConversation(_ one: Party, _ two: Party) throws {
        try one.begin(with: two)
        try sendMessage([1], one, two)
        try sendMessage([2], two, one)
    }

    private func agree(_ one: Party, _ two: Party) throws -> Bool {
        try one.session(with: two) == two.session(with: one)
    }

    // MARK: Earlier sessions

    @Test("what is on its way in a session that was replaced is opened") func replaced() throws {
        let (one, two) = Party.pair(seed: 1)
        try startConversation(one, two)
        let onItsWay = try (0..<3).map { try two.seal([UInt8($0)], to: one) }
        try one.begin(with: two)
        #expect(try one.record(with: two).earlierCount == 1)
        try sendMessage([9], one, two)
        try sendMessage([8], two, one)
        for (index, message) in onItsWay.enumerated().reversed() {
            #expect(try one.open(message, from: two) == [UInt8(index)])
            #expect(try one.refusal(of: message, from: two) == .duplicate)
        }
        #expect(try agree(one, two))
    }

    @Test("two earlier sessions are kept, the third is gone") func bounded() throws {
        let (one, two) = Party.pair(seed: 2)
        try startConversation(one, two)
        var onItsWay: [[UInt8]] = []
        for _ in 0..<3 {
            onItsWay.append(try two.seal([5], to: one))
            try one.begin(with: two)
            try sendMessage([1], one, two)
            try sendMessage([2], two, one)
        }
        #expect(try one.record(with: two).earlierCount == SessionRecord.earlierLimit)
        #expect(try one.refusal(of: onItsWay[0], from: two) == .authenticationFailed)
        #expect(try one.open(onItsWay[1], from: two) == [5])
        #expect(try one.open(onItsWay[2], from: two) == [5])
        #expect(one.records[two.name].map { $0.count } ?? .max <= 3 * 2472 + 16)
    }

    @Test("earlier sessions go when the current one has opened 1000 messages") func life() throws {
        let (one, two) = Party.pair(seed: 3)
        try startConversation(one, two)
        try one.begin(with: two)
        try sendMessage([1], one, two)
        var speaker = try two.record(with: one)
        var listener = try one.record(with: two)
        let nothing: [UInt8] = []
        for count in 1...Int(SessionRecord.earlierLife) {
            var (message, output): ([UInt8], [UInt8]) = ([], [])
            try speaker.encrypt(nothing.span, associatedData: nothing.span, random: &two.random, into: &message)
            _ = try listener.decrypt(message.span, associatedData: nothing.span, into: &output)
            #expect(listener.earlierCount == (count < SessionRecord.earlierLife ? 1 : 0))
        }
    }

    @Test("a session that came to nothing is abandoned for the one before it") func abandoned() throws {
        let (one, two) = Party.pair(seed: 4)
        try startConversation(one, two)
        let session = try one.session(with: two)
        try one.begin(with: two)
        #expect(try one.session(with: two) != session)
        var record = try one.record(with: two)
        let isBack = record.abandon()
        #expect(isBack && record.id == session && record.earlierCount == 0)
        let isBackOnce = record.abandon()
        #expect(!isBackOnce && record.id == session)
        one.keep(record, with: two)
        try sendMessage([3], one, two)
    }

    @Test("attack: a first message of an earlier session opens in it, once, and changes nothing else")
    func firstMessageOfEarlier() throws {
        let (one, two) = Party.pair(seed: 5)
        try one.begin(with: two)
        let late = try (0..<2).map { try one.seal([UInt8($0)], to: two) }
        try sendMessage([7], one, two)
        try two.begin(with: one)
        try sendMessage([6], two, one)
        #expect(try two.open(late[0], from: one) == [0])
        #expect(try two.refusal(of: late[0], from: one) == .duplicate)
        var forged = late[1]
        forged[forged.count - 1] ^= 1
        #expect(try two.refusal(of: forged, from: one) == .authenticationFailed)
        #expect(try two.open(late[1], from: one) == [1])
        #expect(try two.record(with: one).earlierCount == 1)
    }

    @Test("of another identity nothing is kept") func otherIdentity() throws {
        let (one, two) = Party.pair(seed: 6)
        try startConversation(one, two)
        let other = Party(9, seed: 6)
        let session = try Session.initiate(
            identity: one.identity, with: try other.bundle(), expecting: nil, random: &one.random)
        var record = try one.record(with: two)
        record.begin(session)
        #expect(record.earlierCount == 0 && record.peerIdentity == other.identity.publicKey)
    }

    @Test("the one who leads goes back where its new session came to nothing and the peer goes on in the old one")
    func goesBack() throws {
        let (leader, follower) = Party.pair(seed: 7)
        try startConversation(leader, follower)
        let session = try leader.session(with: follower)
        try leader.begin(with: follower)
        _ = try leader.seal([1], to: follower)
        #expect(try leader.session(with: follower) != session)
        try sendMessage([2], follower, leader)
        #expect(try leader.session(with: follower) == session)
        try sendMessage([3], leader, follower)
        #expect(try agree(leader, follower))
    }

    @Test("the one who follows goes with what is said now, and not with what was said before and is late")
    func followsWhatIsNew() throws {
        let (leader, follower) = Party.pair(seed: 8)
        try startConversation(leader, follower)
        let (late, next) = (try leader.seal([1], to: follower), try leader.seal([2], to: follower))
        try sendMessage([3], leader, follower)
        let old = try follower.session(with: leader)
        try follower.begin(with: leader)
        try sendMessage([4], follower, leader)
        try sendMessage([5], leader, follower)
        let new = try follower.session(with: leader)
        #expect(new != old)
        for (text, message) in [([2], next), ([1], late)] as [([UInt8], [UInt8])] {
            #expect(try follower.open(message, from: leader) == text)
            #expect(try follower.session(with: leader) == new)
        }
    }

    // MARK: At the same time

    @Test("both begin at once: the session of the lower key stays, at both ends, and every text is read")
    func simultaneous() throws {
        let (leader, follower) = Party.pair(seed: 10)
        try leader.begin(with: follower)
        try follower.begin(with: leader)
        let session = try leader.session(with: follower)
        let (mine, theirs) = (try leader.seal([1], to: follower), try follower.seal([2], to: leader))
        #expect(try follower.open(mine, from: leader) == [1])
        #expect(try leader.open(theirs, from: follower) == [2])
        #expect(try follower.session(with: leader) == session)
        #expect(try leader.session(with: follower) == session)
        try sendMessage([3], follower, leader)
        try sendMessage([4], leader, follower)
        #expect(try agree(leader, follower) && leader.session(with: follower) == session)
        #expect(try leader.record(with: follower).isEstablished && follower.record(with: leader).isEstablished)
    }

    @Test("the other's beginning comes when ours is answered: one of the two remains, and nobody begins a third")
    func crossedLate() throws {
        for leads in [true, false] {
            let (leader, follower) = Party.pair(seed: leads ? 11 : 12)
            let (one, two) = leads ? (leader, follower) : (follower, leader)
            try one.begin(with: two)
            try two.begin(with: one)
            let delayed = try two.seal([2], to: one)
            try sendMessage([1], one, two)
            try sendMessage([3], two, one)
            #expect(try one.open(delayed, from: two) == [2])
            for round in 0..<3 {
                try sendMessage([UInt8(round)], one, two)
                try sendMessage([UInt8(round)], two, one)
            }
            #expect(try agree(one, two), "leads: \(leads)")
            #expect(one.begun + two.begun == 2)
        }
    }

    /// Beginnings at any time over a network that loses, delays and copies. Whoever gets what it cannot open begins anew, as
    /// an application does: in a storm of resets each beginning causes the next.
    @Test("sessions begun at any time come to one, without a storm", arguments: 1...40 as ClosedRange<UInt64>)
    func convergence(seed: UInt64) throws {
        let (one, two) = Party.pair(seed: 100 + seed)
        var random = SeededGenerator(seed: seed)
        var network: [(to: Party, from: Party, id: Int, bytes: [UInt8])] = []
        var (sent, resets, wanted) = (0, 0, 0)
        var opened: Set<Int> = []
        try one.begin(with: two)
        if random.below(2) == 0 { try two.begin(with: one) }

        func send(_ from: Party, _ to: Party) throws {
            guard from.records[to.name] != nil else { return }
            let bytes = try from.seal([UInt8(truncatingIfNeeded: sent)], to: to)
            network.append((to, from, sent, bytes))
            sent += 1
        }

        func deliver(_ index: Int) throws {
            let (to, from, id, bytes) = network[index]
            if random.below(8) > 0 { network.remove(at: index) }
            if opened.contains(id) {
                #expect(try to.refusal(of: bytes, from: from) != nil, "opened twice")
                return
            }
            do {
                #expect(try to.open(bytes, from: from) == [UInt8(truncatingIfNeeded: id)])
                opened.insert(id)
            } catch is RatchetError {
                resets += 1
                try to.begin(with: from)
            }
        }

        for _ in 0..<150 {
            let (from, to) = random.below(2) == 0 ? (one, two) : (two, one)
            switch random.below(20) {
            case 0:
                wanted += 1
                try from.begin(with: to)
            case 1..<9: try send(from, to)
            case 9..<11 where !network.isEmpty: network.remove(at: random.below(network.count))
            default: if !network.isEmpty { try deliver(random.below(network.count)) }
            }
        }
        // A quiet end: everything arrives, and nobody wants anything new.
        while !network.isEmpty { try deliver(random.below(network.count)) }
        let before = resets
        for _ in 0..<4 {
            for (from, to) in [(one, two), (two, one)] {
                try send(from, to)
                while !network.isEmpty { try deliver(0) }
            }
        }
        #expect(try agree(one, two), "seed \(seed)")
        #expect(try one.record(with: two).isEstablished && two.record(with: one).isEstablished, "seed \(seed)")
        #expect(resets - before <= 1, "seed \(seed): \(resets) resets, \(resets - before) of them in the quiet end")
        #expect(resets <= 2 * wanted + 4, "seed \(seed): \(resets) resets for \(wanted) beginnings")
    }

    // MARK: At rest

    @Test("without earlier sessions a record is stored as its session was, and read from it") func oneSession() throws {
        var pair = try Pair(seed: 20)
        let state = pair.alice.state
        let record = try SessionRecord(serialized: state.span)
        var stored: [UInt8] = []
        record.serialize(into: &stored)
        #expect(stored == state)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
    }

    @Test("with earlier sessions: there and back, truncated, other counts and versions") func layout() throws {
        let (one, two) = Party.pair(seed: 21)
        try startConversation(one, two)
        for _ in 0..<2 { try one.begin(with: two) }
        let state = try #require(one.records[two.name])
        #expect(state.first == 129 && state[3] == 2)
        func refusal(_ bytes: [UInt8]) -> RatchetError? {
            do throws(RatchetError) {
                _ = try SessionRecord(serialized: bytes.span)
                return nil
            } catch {
                return error
            }
        }
        #expect(refusal(state) == nil)
        for length in state.indices { #expect(refusal(Array(state[..<length])) == .malformed, "\(length)") }
        #expect(refusal(state + [0]) == .malformed)
        for count in UInt8.min...UInt8.max where count != 2 {
            var changed = state
            changed[3] = count
            #expect(refusal(changed) == .malformed, "\(count)")
        }
        for version in UInt8.min...UInt8.max where version != 129 {
            #expect(refusal([version] + state.dropFirst()) != nil, "\(version)")
        }
        var received = state
        (received[1], received[2]) = (UInt8(SessionRecord.earlierLife >> 8), UInt8(SessionRecord.earlierLife & 0xFF))
        #expect(refusal(received) == .malformed)
    }

    @Test("sessions with two devices do not make one record") func mixed() throws {
        let (one, two) = Party.pair(seed: 22)
        let other = Party(9, seed: 22)
        try startConversation(one, two)
        try startConversation(one, other)
        try one.begin(with: two)
        var state = try #require(one.records[two.name])
        let foreign = try #require(one.records[other.name])
        let length = state[4..<8].reduce(0) { $0 << 8 | Int($1) }
        state.removeSubrange((8 + length)...)
        state.append(networkOrder: UInt32(foreign.count))
        state += foreign
        #expect(throws: RatchetError.malformed) { _ = try SessionRecord(serialized: state.span) }
    }
}
