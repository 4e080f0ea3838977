import TestKit
import Testing

@testable import DoubleRatchet

/// What the post-quantum half and the encrypted headers add to an established session.
@Suite("The Triple Ratchet")
struct TripleRatchetTests {
    /// A message in the current chain of `session` with `part` in place of the post-quantum part.
    private func forged(_ session: borrowing Session, _ part: [UInt8]) -> [UInt8] {
        session.forged(
            .current, session.ratchet.peerKey.array + [UInt8(session.ratchet.receiving?.next ?? 0), 0] + part)
    }

    @Test("a stripped, older, unknown or overlong part is refused, each with its error") func parts() throws {
        var pair = try Pair(seed: 70)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        let number = UInt8(pair.bob.ratchet.postQuantum.receiving.next)
        var bob = pair.bob
        func refusal(_ part: [UInt8]) -> RatchetError? {
            let message = forged(bob, part)
            return bob.refusal(of: message)
        }
        #expect(refusal([]) == .downgrade)
        for kind in UInt8(0)..<16 { #expect(refusal([kind, 1, number]) == .downgrade) }
        for version in UInt8(2)..<16 { #expect(refusal([version << 4, 1, number]) == .unsupportedVersion) }
        for kind in UInt8(6)..<16 { #expect(refusal([0x10 | kind, 1, number, 0]) == .malformed) }
        #expect(refusal([0x10, 1, number]) == .authenticationFailed, "the control: only the tag is wrong")
        #expect(refusal([0x10]) == .malformed)
        #expect(refusal([0x10, 1]) == .malformed)
        #expect(refusal([0x10, 1, number, 0]) == .malformed)
        #expect(refusal([0x10, 0, number]) == .malformed)
        #expect(refusal([0x10, 0x80, 0x80, 0x80, 0x80, 0x01, number]) == .malformed)
        let chunk = [UInt8](repeating: 9, count: 32)
        #expect(refusal([0x12, 1, number, 0] + chunk) == .authenticationFailed)
        #expect(refusal([0x12, 1, number, 0] + chunk + [0]) == .malformed)
        #expect(refusal([0x12, 1, number, 0] + chunk.dropLast()) == .malformed)
        #expect(refusal([0x12, 1, number, 0x80, 0x80, 0x01] + chunk) == .malformed)
    }

    @Test("numbers of the two ratchets that do not agree are refused") func disagreement() throws {
        var pair = try Pair(seed: 71)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        let number = UInt8(pair.bob.ratchet.postQuantum.receiving.next)
        for (epoch, number) in [(1, number + 1), (1, number - 1), (1, 0), (2, number), (2, 0), (3, 0), (9, 1)] {
            let message = forged(pair.bob, [0x10, UInt8(epoch), number])
            #expect(pair.bob.refusal(of: message) == .diverged, "\(epoch) \(number)")
        }
    }

    @Test("a message of the version before is a downgrade, also to a first message") func olderVersion() throws {
        var pair = try Pair(seed: 72)
        let message = try pair.alice.seal([1], random: &pair.random)
        #expect(pair.bob.refusal(of: [0x10] + message.dropFirst()) == .downgrade)
        var random = SeededGenerator(seed: 72)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        var output: [UInt8] = []
        #expect(throws: RatchetError.downgrade) { _ = try bob.respond(to: [0x13] + first.dropFirst(), into: &output) }
        let older = [0x13] + first.dropFirst()
        #expect(PreKeyMessage.isPreKeyMessage(older.span) == false)
    }

    @Test("in every state of the braid no byte may change, and the saved state has no other form") func everyKind()
        throws
    {
        var pair = try Pair(seed: 73)
        var (kinds, states): (Set<UInt8>, Set<UInt8>) = ([], [])
        for _ in 0..<2000 where states.count < 11 {
            let (message, isToBob) =
                pair.random.below(2) == 0
                ? (try pair.alice.seal([1], random: &pair.random), true)
                : (try pair.bob.seal([2], random: &pair.random), false)
            // Losses of one side, for the state that only they lead to.
            guard isToBob || pair.random.below(2) == 0 else { continue }
            let braid = isToBob ? pair.bob.ratchet.postQuantum.braid : pair.alice.ratchet.postQuantum.braid
            let number = BraidTests.number(braid)
            let isNew = states.insert(number).inserted
            // The first of its kind here, all bytes of it.
            if isNew || kinds.insert(UInt8(truncatingIfNeeded: message.count)).inserted {
                for index in message.indices {
                    var changed = message
                    changed[index] ^= 1 << UInt8(index % 8)
                    let refusal = isToBob ? pair.bob.refusal(of: changed) : pair.alice.refusal(of: changed)
                    #expect(refusal != nil, "state \(number), byte \(index)")
                }
            }
            let state = isToBob ? pair.bob.state : pair.alice.state
            #expect(try restored(state).state == state)
            if isNew {
                for length in stride(from: 0, to: state.count, by: 3) {
                    #expect(throws: RatchetError.malformed, "state \(number), \(length) bytes") {
                        _ = try restored(Array(state[..<length]))
                    }
                }
                #expect(throws: RatchetError.malformed) { _ = try restored(state + [0]) }
            }
            _ = isToBob ? try pair.bob.open(message) : try pair.alice.open(message)
        }
        #expect(states == Set(0...10), "\(states.sorted())")
    }

    @Test("the message key needs both halves") func hybrid() {
        let (one, two) = (SecretBytes([UInt8](repeating: 1, count: 32)), SecretBytes([UInt8](repeating: 2, count: 32)))
        let keys = [(one, one), (one, two), (two, one), (two, two)].map {
            combined($0, $1).array
        }
        #expect(Set(keys).count == 4)
    }

    @Test("who knows all classical secrets of a state is shut out by the next epoch") func postQuantumHealing() throws {
        var pair = try Pair(seed: 74)
        // The thief has Bob's whole state, and later everything of the classical ratchet again.
        let stolen = pair.bob.state
        let epoch = pair.bob.ratchet.postQuantum.receivingEpoch
        while pair.bob.ratchet.postQuantum.receivingEpoch < epoch + 2 {
            _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([2], random: &pair.random))
        }
        var thief = try restored(pair.bob.state)
        thief.ratchet.postQuantum = try restored(stolen).ratchet.postQuantum
        let message = try pair.alice.seal([3], random: &pair.random)
        #expect(thief.refusal(of: message) != nil)
        #expect(try pair.bob.open(message) == [3])
    }

    @Test("headers show nothing and are told apart by key only") func headersAreSealed() throws {
        var pair = try Pair(seed: 75)
        let one = try pair.alice.seal([], random: &pair.random)
        let two = try pair.alice.seal([], random: &pair.random)
        let chain = pair.alice.ratchet.sending
        let key = try #require(chain).pair.publicKey.bytes.array
        for message in [one, two] {
            #expect(!(0...message.count - 32).contains { Array(message[$0..<$0 + 32]) == key })
        }
        // The first byte and the length are all that two messages of a chain have in common.
        #expect(one.prefix(2) == two.prefix(2) && one[2..<10] != two[2..<10])
        // A header of one message with the body of another opens nothing.
        #expect(pair.bob.refusal(of: Array(one.dropLast(16)) + two.suffix(16)) == .authenticationFailed)
        #expect(try pair.bob.open(two) == [])
        #expect(try pair.bob.open(one) == [])
    }

    @Test("chains that keys wait in are kept beyond the others, up to their bound") func waitingChains() throws {
        var pair = try Pair(seed: 76)
        var late: [[UInt8]] = []
        for _ in 0..<RatchetLimits.maximumWaitingChains + 5 {
            late.append(try pair.alice.seal([7], random: &pair.random))
            _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        }
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        #expect(pair.bob.ratchet.finished.chains.count == RatchetLimits.maximumWaitingChains)
        #expect(try restored(pair.bob.state).state == pair.bob.state)
        // The oldest went with their keys: nobody can tell their messages from forgeries.
        for message in late[..<5] { #expect(pair.bob.refusal(of: message) == .authenticationFailed) }
        for message in late[5...] { #expect(try pair.bob.open(message) == [7]) }
        #expect(pair.bob.skippedCount == 0)
        #expect(pair.bob.ratchet.finished.chains.count == RatchetLimits.maximumRememberedChains)
        #expect(pair.bob.refusal(of: late[5]) == .authenticationFailed)
        #expect(pair.bob.refusal(of: late[late.count - 1]) == .duplicate)
    }

    @Test("hints look random, and a wrong one is a forgery") func hints() throws {
        var pair = try Pair(seed: 77)
        let messages = try (0..<256).map { _ in try pair.alice.seal([], random: &pair.random) }
        #expect(Set(messages.map { $0[2] }).count > 128)
        for hint in UInt8.min...UInt8.max where hint != messages[0][2] {
            let changed = Array(messages[0][..<2]) + [hint] + messages[0][3...]
            #expect(pair.bob.refusal(of: changed) == .authenticationFailed)
        }
    }

    @Test("garbage of every length is refused, with every first byte that is taken") func garbage() throws {
        var pair = try Pair(seed: 78)
        _ = try pair.bob.seal([], random: &pair.random)
        for first in [0x20, 0x21, 0x23, 0x30, 0x31, 0x33] as [UInt8] {
            for length in 0..<200 {
                let message = [first] + pair.random.bytes(length)
                #expect(pair.bob.refusal(of: message) != nil)
            }
        }
        for length in 1640..<1800 {
            #expect(pair.bob.refusal(of: [0x21] + pair.random.bytes(length)) != nil)
        }
    }

    @Test("a damaged state is refused or goes on without a crash") func damagedStates() throws {
        var pair = try Pair(seed: 79)
        for _ in 0..<35 {
            _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([2], random: &pair.random))
        }
        _ = try pair.alice.seal([], random: &pair.random)
        let message = try pair.alice.seal([3], random: &pair.random)
        let state = pair.bob.state
        for index in stride(from: 0, to: state.count, by: 2) {
            var damaged = state
            damaged[index] ^= index % 4 == 0 ? 0xFF : 1 << UInt8(index % 8)
            guard var session = try? restored(damaged) else { continue }
            _ = try? session.open(message)
            _ = try? session.seal([4], random: &pair.random)
            _ = session.state
        }
        #expect(try pair.bob.open(message) == [3])
    }
}
