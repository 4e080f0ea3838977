import TestKit
import Testing

@testable import DoubleRatchet

@Suite("Messages of an established session")
struct SessionTests {
    @Test("an established session adds at most 120 bytes") func overhead() throws {
        var pair = try Pair(seed: 20)
        let message = try pair.alice.seal([UInt8](repeating: 1, count: 100), random: &pair.random)
        #expect(message.count == 100 + 105)
        let part = PostQuantumPart(
            epoch: Braid.maximumEpoch - 1, number: .max,
            message: Braid.Message(
                kind: .key,
                chunk: ErasureCode.Chunk(
                    index: ErasureCode.maximumIndex - 1, bytes: Bytes32([UInt8](repeating: 1, count: 32)))))
        var header: [UInt8] = []
        MessageHeader(
            ratchetKey: Bytes32([UInt8](repeating: 0, count: 32)), number: .max, previousCount: .max, postQuantum: part
        ).write(.exactHeader, into: &header)
        #expect(header.count == MessageHeader.maximumSize)
        #expect(1 + 1 + 1 + header.count + 2 * KeySize.tag == 120 && Session.maximumOverhead == 120)
        #expect(Session.maximumPreKeyPart == 1644)
    }

    @Test("no byte may change, be missing or be added", arguments: MessageVersion.both)
    func everyByte(_ version: MessageVersion) throws {
        var pair = try Pair(seed: 21, version: version)
        for turn in 0..<2 {
            // The first time with a new ratchet key, the second time in the same chain.
            let message = try pair.alice.seal(Array("hello".utf8), data: [1, 2], random: &pair.random)
            for index in message.indices {
                for bit in 0..<8 {
                    var changed = message
                    changed[index] ^= 1 << bit
                    #expect(pair.bob.refusal(of: changed, data: [1, 2]) != nil, "turn \(turn) byte \(index)")
                }
            }
            for length in message.indices {
                #expect(pair.bob.refusal(of: Array(message[..<length]), data: [1, 2]) != nil, "length \(length)")
            }
            #expect(pair.bob.refusal(of: message + [0], data: [1, 2]) == .authenticationFailed)
            #expect(pair.bob.refusal(of: message, data: [1]) == .authenticationFailed)
            #expect(pair.bob.refusal(of: message, data: [1, 2, 3]) == .authenticationFailed)
            #expect(try pair.bob.open(message, data: [1, 2]) == Array("hello".utf8))
        }
    }

    @Test("the first byte: other versions and flags", arguments: MessageVersion.both)
    func firstByte(_ version: MessageVersion) throws {
        var pair = try Pair(seed: 22, version: version)
        let message = try pair.alice.seal([1], random: &pair.random)
        for first in UInt8.min...UInt8.max where first != message[0] {
            let expected: RatchetError =
                switch first >> 4 {
                // A header of 75 bytes has a length that version 2 allows, and those of version 2 are shorter.
                case 2 where first == 0x20: .authenticationFailed
                case 2, 3: .malformed
                case 1: .downgrade
                default: .unsupportedVersion
                }
            #expect(pair.bob.refusal(of: [first] + message.dropFirst()) == expected, "\(first)")
        }
    }

    @Test("numbers have one form") func varints() throws {
        for value: UInt32 in [0, 1, 127, 128, 16383, 16384, .max - 1, .max] {
            var bytes: [UInt8] = []
            bytes.append(varint: value)
            #expect(try varint(bytes) == value)
        }
        for bad: [UInt8] in [
            [], [0x80], [0x80, 0], [0xFF, 0], [0x80, 0x80, 0x80, 0x80, 0x10], [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1],
        ] {
            #expect(throws: RatchetError.malformed, "\(bad)") {
                try varint(bad)
            }
        }
    }

    @Test("a copy is a duplicate: of the last, of a late one, of earlier chains") func duplicates() throws {
        var pair = try Pair(seed: 23)
        var old: [[UInt8]] = []
        for _ in 0..<10 {
            let one = try pair.alice.seal([1], random: &pair.random)
            let two = try pair.alice.seal([2], random: &pair.random)
            _ = try pair.bob.open(two)
            #expect(pair.bob.refusal(of: two) == .duplicate)
            _ = try pair.bob.open(one)
            #expect(pair.bob.refusal(of: one) == .duplicate)
            old += [one, two]
            _ = try pair.alice.open(try pair.bob.seal([3], random: &pair.random))
        }
        for message in old { #expect(pair.bob.refusal(of: message) == .duplicate) }
    }

    @Test("the same number in two chains stays apart, also across a lost end") func chainsApart() throws {
        var pair = try Pair(seed: 24)
        var late: [[UInt8]] = []
        for round in UInt8(0)..<3 {
            _ = try pair.bob.open(try pair.alice.seal([round, 0], random: &pair.random))
            late.append(try pair.alice.seal([round, 1], random: &pair.random))
            late.append(try pair.alice.seal([round, 2], random: &pair.random))
            _ = try pair.alice.open(try pair.bob.seal([9], random: &pair.random))
        }
        _ = try pair.bob.open(try pair.alice.seal([7], random: &pair.random))
        #expect(pair.bob.skippedCount == 6)
        for message in late.reversed() {
            #expect(try pair.bob.open(message).count == 2)
        }
        #expect(pair.bob.skippedCount == 0)
    }

    @Test("the gap is reported once, over both chains") func gaps() throws {
        var pair = try Pair(seed: 25)
        func skip(_ count: Int, _ pair: inout Pair) throws {
            for _ in 0..<count { _ = try pair.alice.seal([], random: &pair.random) }
        }
        func gap(_ pair: inout Pair) throws -> Int {
            try pair.bob.gap(opening: try pair.alice.seal([1], random: &pair.random))
        }
        #expect(try gap(&pair) == 0)
        try skip(3, &pair)
        #expect(try gap(&pair) == 3)
        #expect(try gap(&pair) == 0)
        try skip(2, &pair)
        _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        try skip(4, &pair)
        #expect(try gap(&pair) == 6)
    }

    @Test("counters that the peer's header key forges are refused in the current chain and in a new one")
    func forgedCounters() throws {
        var pair = try Pair(seed: 26)
        _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
        let current = pair.bob.ratchet.peerKey.array
        let limit = RatchetLimits.maximumSkip
        #expect(pair.bob.refusal(of: pair.bob.forged(.current, current, .max, 0)) == .tooFarAhead)
        #expect(pair.bob.refusal(of: pair.bob.forged(.current, current, 1 + limit + 1, 0)) == .tooFarAhead)
        #expect(pair.bob.refusal(of: pair.bob.forged(.current, current, 1 + limit, 0)) == .authenticationFailed)
        // Nothing was sent since: no new key can be genuine, and no work is done for one.
        let unknown = AgreementKeyPair(random: &pair.random).publicKey.bytes.array
        #expect(pair.bob.refusal(of: pair.bob.forged(.current, unknown, 2, 0)) == .diverged)
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, unknown, .max, 0)) == .authenticationFailed)
        _ = try pair.bob.seal([], random: &pair.random)
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, unknown, .max, 0)) == .tooFarAhead)
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, unknown, limit + 1, 0)) == .tooFarAhead)
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, unknown, 0, .max)) == .tooFarAhead)
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, unknown, 0, 1 + limit + 1)) == .tooFarAhead)
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, unknown, limit, 1 + limit)) == .authenticationFailed)
        for key in KeyTests.refused {
            #expect(pair.bob.refusal(of: pair.bob.forged(.next, hex(key), 0, 0)) == .invalidKey, "\(key)")
        }
    }

    @Test("a header without a step opens nothing, where there is a chain and where there is none yet") func noStep()
        throws
    {
        var random = SeededGenerator(seed: 27)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let prekey = bob.signed.publicKey.key.array
        // Also for one who knows the header key of the chain that has not begun.
        #expect(initiator.refusal(of: initiator.forged(.next, prekey, 0, 0)) == .authenticationFailed)
        _ = try initiator.seal([], random: &random)
        #expect(initiator.refusal(of: initiator.forged(.next, prekey, 0, 0)) == .authenticationFailed)
        var pair = try Pair(seed: 27)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        _ = try pair.bob.seal([], random: &pair.random)
        let current = pair.bob.ratchet.peerKey.array
        #expect(pair.bob.refusal(of: pair.bob.forged(.next, current, 0, 0)) == .authenticationFailed)
    }

    @Test("skipped keys are bounded, the oldest go first") func skipFlood() throws {
        var pair = try Pair(seed: 28)
        let skip = Int(RatchetLimits.maximumSkip)
        var first: [[UInt8]] = []
        for round in 0..<3 {
            for index in 0..<skip {
                let message = try pair.alice.seal([], random: &pair.random)
                if index == 0 || index == skip - 1 { first.append(message) }
            }
            _ = try pair.bob.open(try pair.alice.seal([UInt8(round)], random: &pair.random))
            #expect(pair.bob.skippedCount == RatchetLimits.maximumSkippedKeys)
        }
        #expect(pair.bob.state.count <= 2472 + 40 * RatchetLimits.maximumSkippedKeys)
        for message in first[..<4] { #expect(pair.bob.refusal(of: message) == .duplicate) }
        #expect(try pair.bob.open(first[4]) == [])
        #expect(try pair.bob.open(first[5]) == [])
        // Two gaps in one step: the end of the old chain and the beginning of the new one.
        for _ in 0..<skip { _ = try pair.alice.seal([], random: &pair.random) }
        _ = try pair.alice.open(try pair.bob.seal([], random: &pair.random))
        for _ in 0..<skip { _ = try pair.alice.seal([], random: &pair.random) }
        #expect(try pair.bob.gap(opening: pair.alice.seal([], random: &pair.random)) == 2 * skip)
        #expect(pair.bob.skippedCount == RatchetLimits.maximumSkippedKeys)
    }

    @Test("a counter at its end is refused, not wrapped") func exhausted() throws {
        var pair = try Pair(seed: 29)
        _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
        pair.alice.ratchet.sending?.next = .max - 1
        pair.bob.ratchet.receiving?.next = .max - 1
        pair.bob.ratchet.receiving?.key = try #require(pair.alice.ratchet.sending?.key)
        #expect(try pair.bob.open(pair.alice.seal([2], random: &pair.random)) == [2])
        let before = pair.alice.state
        #expect(throws: RatchetError.exhausted) { _ = try pair.alice.seal([3], random: &pair.random) }
        #expect(pair.alice.state == before)
        let forged = pair.bob.forged(.current, pair.bob.ratchet.peerKey.array, .max, 0)
        #expect(pair.bob.refusal(of: forged) == .exhausted)
    }

    @Test("a message reflected at its sender is refused") func reflection() throws {
        var pair = try Pair(seed: 30)
        let message = try pair.alice.seal([1], random: &pair.random)
        #expect(pair.alice.refusal(of: message) == .authenticationFailed)
    }

    @Test("a later state does not open an earlier message") func forwardSecrecy() throws {
        var pair = try Pair(seed: 31)
        let messages = try (0..<5).map { try pair.alice.seal([UInt8($0)], random: &pair.random) }
        for message in messages { _ = try pair.bob.open(message) }
        var thief = try restored(pair.bob.state)
        for message in messages { #expect(thief.refusal(of: message) == .duplicate) }
        // Nor does an own private ratchet key lie about between the peer's step and the next own message.
        #expect(pair.bob.ratchet.sending == nil)
    }
}
