import TestKit
import Testing

@testable import DoubleRatchet

/// Version 3, whose headers have one of two lengths, beside version 2.
@Suite("The length of headers")
struct HeaderLengthTests {
    private static let counters: [UInt32] = [0, 1, 127, 128, 16_383, 16_384, 1 << 21 - 1, 1 << 28, .max - 1, .max]
    private static let indices: [UInt16?] = [nil, 0, 127, 128, ErasureCode.maximumIndex - 1]

    private func header(
        number: UInt32 = 0, previous: UInt32 = 0, epoch: UInt32 = 1, place: UInt32 = 0, index: UInt16? = 0
    ) -> MessageHeader {
        let chunk = index.map { ErasureCode.Chunk(index: $0, bytes: Bytes32([UInt8](repeating: 0xEE, count: 32))) }
        return MessageHeader(
            ratchetKey: Bytes32([UInt8](repeating: 0xDD, count: 32)), number: number, previousCount: previous,
            postQuantum: PostQuantumPart(
                epoch: epoch, number: place, message: Braid.Message(kind: chunk == nil ? .none : .key, chunk: chunk)))
    }

    private func written(_ header: MessageHeader, _ version: MessageVersion = .paddedHeader) -> [UInt8] {
        var bytes: [UInt8] = []
        header.write(version, into: &bytes)
        return bytes
    }

    private func read(
        _ bytes: [UInt8], _ version: MessageVersion = .paddedHeader
    ) throws(RatchetError) -> MessageHeader {
        try bytes.span.withUnsafeBytes { (bytes) throws(RatchetError) in
            try MessageHeader(bytes, version, minimumVersion: SparsePostQuantumRatchet.version)
        }
    }

    @Test("two lengths, by the counters alone") func twoLengths() throws {
        var headers: [(highest: UInt32, header: MessageHeader)] = []
        for index in Self.indices {
            for one in Self.counters {
                for other in Self.counters {
                    headers.append((max(one, other), header(number: one, previous: other, index: index)))
                    headers.append((max(one, other), header(number: one, place: other, index: index)))
                    let epoch = min(max(1, other), Braid.maximumEpoch - 1)
                    headers.append((max(one, epoch), header(previous: one, epoch: epoch, index: index)))
                    headers.append(
                        (
                            max(one, other, epoch),
                            header(number: one, previous: other, epoch: epoch, place: one, index: index)
                        ))
                }
            }
        }
        for (highest, header) in headers {
            let bytes = written(header)
            #expect(bytes.count == (highest < 1 << 14 ? 75 : 85), "\(header)")
            #expect(try read(bytes) == header)
            #expect(try read(written(header, .exactHeader), .exactHeader) == header)
        }
        #expect(MessageHeader.usualSize == 75 && MessageHeader.maximumSize == 85)
    }

    @Test("a header has one form: cut, longer, with other padding or of the other length it is refused")
    func oneForm() throws {
        for index in Self.indices {
            for counter in [0, 16_383, 16_384, .max] as [UInt32] {
                let header = header(number: counter, index: index)
                let (bytes, exact) = (written(header), written(header, .exactHeader))
                #expect(bytes.starts(with: exact))
                for length in bytes.indices {
                    #expect(throws: (any Error).self, "\(length)") { try read(Array(bytes[..<length])) }
                }
                for count in [1, 10] {
                    #expect(throws: RatchetError.malformed) { try read(bytes + [UInt8](repeating: 0, count: count)) }
                }
                if bytes.count == 85 { #expect(throws: (any Error).self) { try read(Array(bytes.prefix(75))) } }
                for place in exact.count..<bytes.count {
                    for value in [1, 0x80, 0xFF] as [UInt8] {
                        var other = bytes
                        other[place] = value
                        #expect(throws: RatchetError.malformed, "\(place)") { try read(other) }
                    }
                }
                if exact.count < bytes.count {
                    #expect(throws: RatchetError.malformed) { try read(bytes, .exactHeader) }
                }
            }
        }
    }

    @Test("no header of another length is tried") func outerLength() throws {
        var pair = try Pair(seed: 1001, version: .paddedHeader)
        _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
        for length in 0...255 {
            let message = [0x30, UInt8(length)] + [UInt8](repeating: 7, count: 400)
            let expected: RatchetError = length == 75 || length == 85 ? .authenticationFailed : .malformed
            #expect(pair.bob.refusal(of: message) == expected, "\(length)")
        }
    }

    @Test("a conversation over epochs, with losses: every message has the same length") func conversation() throws {
        var pair = try Pair(seed: 1002, version: .paddedHeader)
        var exact = try Pair(seed: 1002)
        var (lengths, exactLengths): (Set<Int>, Set<Int>) = ([], [])
        for round in 0..<330 {
            for _ in 0..<2 {
                let message = try pair.alice.seal([1], random: &pair.random)
                lengths.insert(message.count)
                if round % 3 > 0 { _ = try pair.bob.open(message) }
                exactLengths.insert(try exact.alice.seal([1], random: &exact.random).count)
            }
            let answer = try pair.bob.seal([3], random: &pair.random)
            lengths.insert(answer.count)
            _ = try pair.alice.open(answer)
            if round % 50 == 0 { pair.bob = try restored(pair.bob.state) }
        }
        let epoch = pair.alice.ratchet.postQuantum.braid.epoch
        #expect(epoch >= 3)
        #expect(lengths == [1 + 110])
        #expect(exactLengths.count > 1)
    }

    @Test("counters at their limits: 110 bytes more than the plaintext, or 120") func limits() throws {
        var pair = try Pair(seed: 1003, version: .paddedHeader)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        for (number, overhead) in [(16_382, 110), (16_383, 110), (16_384, 120), (.max - 1, 120)] as [(UInt32, Int)] {
            pair.alice.ratchet.sending?.next = number
            pair.bob.ratchet.receiving?.next = number
            let message = try pair.alice.seal([1, 2], random: &pair.random)
            #expect(message.count == 2 + overhead, "\(number)")
            #expect(try pair.bob.open(message) == [1, 2])
        }
        #expect(Session.maximumOverhead == 120)
    }

    @Test("a first message has one length for each of the two forms of its prekey part", arguments: [true, false])
    func firstMessages(oneTime: Bool) throws {
        var random = SeededGenerator(seed: 1004)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random, oneTime: oneTime, version: .paddedHeader)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        var messages: [[UInt8]] = []
        for _ in 0..<150 { messages.append(try initiator.seal([1, 2, 3], random: &random)) }
        #expect(Set(messages.map(\.count)) == [3 + 110 + (oneTime ? 1644 : 1640)])
        #expect(messages[0][0] == (oneTime ? 0x33 : 0x31))
        let first = messages[0]
        var output: [UInt8] = [5]
        for length in first.indices {
            let expected: RatchetError = length < first.count - 3 ? .malformed : .authenticationFailed
            #expect(throws: expected, "\(length)") {
                _ = try bob.respond(to: Array(first[..<length]), into: &output)
            }
        }
        for place in first.indices {
            // Each byte of the header and what follows, and some of the prekey part.
            guard place < 40 || place > first.count - 120 || place % 64 == 0 else { continue }
            var changed = first
            changed[place] ^= 1 << UInt8(place % 8)
            #expect(throws: (any Error).self, "\(place)") { _ = try bob.respond(to: changed, into: &output) }
        }
        #expect(output == [5])
        _ = try bob.respond(to: messages[140], into: &output)
        #expect(output == [5, 1, 2, 3])
    }

    // MARK: Which version

    @Test("a device of before version 3 and one of today, each as the initiator", arguments: [false, true])
    func older(olderInitiates: Bool) throws {
        var random = SeededGenerator(seed: 1005)
        let alice = IdentityKeyPair(random: &random)
        // An older responder has no mark. An older initiator takes the mark for a part of the number.
        let bob = Device(&random, version: olderInitiates ? .paddedHeader : .exactHeader)
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        if olderInitiates { initiator.version = .exactHeader }
        let first = try initiator.seal([1], random: &random)
        #expect(first[0] >> 4 == 2)
        var output: [UInt8] = []
        var responder = try bob.respond(to: first, into: &output)
        for round in UInt8(0)..<5 {
            let answer = try responder.seal([round, 2], random: &random)
            #expect(answer[0] == 0x20)
            #expect(try initiator.open(answer) == [round, 2])
            let message = try initiator.seal([round, 3], random: &random)
            #expect(message[0] == 0x20)
            #expect(try responder.open(message) == [round, 3])
            initiator = try restored(initiator.state)
            responder = try restored(responder.state)
        }
    }

    @Test("attack: a server cannot take version 3 away") func downgrade() throws {
        var random = SeededGenerator(seed: 1006)
        let alice = IdentityKeyPair(random: &random)
        let bob = Device(&random, version: .paddedHeader)
        var bytes: [UInt8] = []
        bob.bundle.serialize(into: &bytes)
        // The mark is the highest bit of the signed prekey's id, behind version, flags and identity.
        #expect(bytes[34] == 0x80)
        bytes[34] = 0
        let unmarked = try bundle(bytes)
        #expect(throws: RatchetError.invalidSignature) {
            _ = try Session.initiate(identity: alice, with: unmarked, expecting: nil, random: &random)
        }
        var initiator = try Session.initiate(identity: alice, with: bob.bundle, expecting: nil, random: &random)
        let first = try initiator.seal([1], random: &random)
        #expect(first[0] == 0x33)
        var output: [UInt8] = []
        #expect(throws: RatchetError.authenticationFailed) {
            _ = try bob.respond(to: [0x23] + first.dropFirst(), into: &output)
        }
        var responder = try bob.respond(to: first, into: &output)
        #expect(responder.version == .paddedHeader)
        let answer = try responder.seal([2], random: &random)
        #expect(initiator.refusal(of: [0x20] + answer.dropFirst()) == .authenticationFailed)
        #expect(try initiator.open(answer) == [2])
        // Not even the peer goes back within a session.
        let kept = responder.state
        responder.version = .exactHeader
        let exact = try responder.seal([3], random: &random)
        #expect(initiator.refusal(of: exact) == .authenticationFailed)
        responder = try restored(kept)
        #expect(try initiator.open(try responder.seal([3], random: &random)) == [3])
        // Nor does it begin with version 3 in a session of version 2.
        var pair = try Pair(seed: 1006)
        pair.alice.version = .paddedHeader
        let padded = try pair.alice.seal([4], random: &pair.random)
        #expect(pair.bob.refusal(of: padded) == .authenticationFailed)
    }

    @Test("every state keeps its version, and one of before version 3 is read as before") func states() throws {
        for (version, flag) in [(.exactHeader, 0), (.paddedHeader, 32)] as [(MessageVersion, UInt8)] {
            var pair = try Pair(seed: 1007, version: version)
            _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
            let state = pair.bob.state
            #expect(state[0] == 2 && state[1] & 0xE0 == flag)
            var again = try restored(state)
            #expect(again.state == state)
            let form = (again.version, again.opensExactHeaders)
            #expect(form == (version, false))
            #expect(try pair.alice.open(try again.seal([2], random: &pair.random)) == [2])
            for length in state.indices {
                #expect(throws: RatchetError.malformed, "\(length)") { _ = try restored(Array(state[..<length])) }
            }
            for other in [64, 128, 160, 192, 224] as [UInt8] {
                #expect(throws: RatchetError.malformed, "\(other)") {
                    _ = try restored([2, state[1] & 0x1F | other] + state.dropFirst(2))
                }
            }
        }
    }

    @Test("a session of version 2 goes on in version 3, and what was on its way is opened") func padHeaders() throws {
        var pair = try Pair(seed: 1008)
        let onItsWay = [
            try pair.alice.seal([1], random: &pair.random), try pair.alice.seal([2], random: &pair.random),
        ]
        pair.alice.padHeaders()
        pair.bob.padHeaders()
        #expect(pair.bob.state[1] & 0xE0 == 96)
        pair.alice = try restored(pair.alice.state)
        pair.bob = try restored(pair.bob.state)
        pair.bob.padHeaders()
        let message = try pair.alice.seal([3], random: &pair.random)
        #expect(message[0] == 0x30 && message.count == 1 + 110)
        #expect(try pair.bob.open(message) == [3])
        #expect(try pair.bob.open(onItsWay[1]) == [2])
        #expect(try pair.alice.open(try pair.bob.seal([4], random: &pair.random)) == [4])
        #expect(try pair.bob.open(onItsWay[0]) == [1])
        #expect(pair.bob.refusal(of: onItsWay[0]) == .duplicate)
    }

    @Test("a record opens what comes in an earlier session of the other version", arguments: MessageVersion.both)
    func records(_ version: MessageVersion) throws {
        var random = SeededGenerator(seed: 1009)
        let alice = IdentityKeyPair(random: &random)
        let bob = IdentityKeyPair(random: &random)
        func begin(_ version: MessageVersion) throws -> (one: [UInt8], other: [UInt8]) {
            let mark = version == .exactHeader ? 0 : SignedPreKey.Public.paddedHeaderMark
            let signed = SignedPreKey(marked: 7 | mark, identity: bob, random: &random)
            let kem = KEMPreKey(id: 9, isLastResort: true, identity: bob, random: &random)
            let bundle = PreKeyBundle(
                identity: bob.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey, oneTimePreKey: nil)
            var one = try Session.initiate(identity: alice, with: bundle, expecting: nil, random: &random)
            let (first, data) = (try one.seal([0], random: &random), [] as [UInt8])
            var output: [UInt8] = []
            let other = try Session.respond(
                identity: bob, signedPreKey: signed, oneTimePreKey: nil, kemPreKey: kem, message: first.span,
                associatedData: data.span, expecting: nil, plaintext: &output)
            return (one.state, other.state)
        }
        let ends = [try begin(version), try begin(version == .exactHeader ? .paddedHeader : .exactHeader)]
        var (earlier, later) = (ends[0].one, ends[1].one)
        func seal(_ text: UInt8, from state: inout [UInt8]) throws -> [UInt8] {
            var session = try restored(state)
            defer { state = session.state }
            return try session.seal([text], random: &random)
        }
        let (onItsWay, message) = (try seal(1, from: &earlier), try seal(2, from: &later))
        #expect(message[0] >> 4 != onItsWay[0] >> 4)
        var record = SessionRecord(try restored(ends[0].other))
        record.accept(try restored(ends[1].other))
        let data: [UInt8] = []
        var output: [UInt8] = []
        for sealed in [message, onItsWay] {
            _ = try record.decrypt(sealed.span, associatedData: data.span, into: &output)
        }
        #expect(output == [2, 1])
        var state: [UInt8] = []
        record.serialize(into: &state)
        #expect(try SessionRecord(serialized: state.span).earlierCount == 1)
    }
}
