import TestKit
import Testing

@testable import DoubleRatchet

extension SenderKey {
    fileprivate mutating func seal(_ text: [UInt8], data: [UInt8] = []) throws(RatchetError) -> [UInt8] {
        var output: [UInt8] = []
        try encrypt(text.span, associatedData: data.span, into: &output)
        return output
    }

    fileprivate var state: [UInt8] {
        var output: [UInt8] = []
        serialize(into: &output)
        return output
    }

    fileprivate var receiver: SenderKeyReceiver { SenderKeyReceiver(distribution) }
}

extension SenderKeyDistribution {
    fileprivate var bytes: [UInt8] {
        var output: [UInt8] = []
        serialize(into: &output)
        return output
    }
}

private func senderKey(_ state: [UInt8]) throws(RatchetError) -> SenderKey { try SenderKey(serialized: state.span) }

private func receiver(_ state: [UInt8]) throws(RatchetError) -> SenderKeyReceiver {
    try SenderKeyReceiver(serialized: state.span)
}

private func distribution(_ bytes: [UInt8]) throws(RatchetError) -> SenderKeyDistribution {
    try SenderKeyDistribution(serialized: bytes.span)
}

@Suite("Sender keys")
struct SenderKeyTests {
    private func key(_ seed: UInt64) -> SenderKey {
        var random = SeededGenerator(seed: seed)
        return SenderKey(random: &random)
    }

    @Test("1000 messages over a bad network to two members, a restart at every step", arguments: [1, 2, 3] as [UInt64])
    func conversation(seed: UInt64) throws {
        print("SenderKeyTests seed \(seed)")
        var random = SeededGenerator(seed: seed)
        var sender = SenderKey(random: &random).state
        var members = [try senderKey(sender).receiver.state]
        var begin = [0]
        var texts: [[UInt8]] = []
        var opened: [Set<Int>] = [[]]
        var network: [(member: Int, id: Int, bytes: [UInt8], due: Int)] = []
        var (copies, gaps, early) = (0, 0, 0)
        for step in 0..<1100 {
            if step < 1000 {
                var key = try senderKey(sender)
                #expect(key.state == sender)
                if step == 300 {
                    members.append(SenderKeyReceiver(try distribution(key.distribution.bytes)).state)
                    begin.append(300)
                    opened.append([])
                }
                texts.append(random.bytes(random.below(40)))
                let bytes = try key.seal(texts[step], data: [7])
                sender = key.state
                for member in members.indices where random.below(10) > 0 {
                    network.append((member, step, bytes, step + random.below(30)))
                    if random.below(8) == 0 { network.append((member, step, bytes, step + random.below(90))) }
                }
                if step == 310, let old = network.first(where: { $0.id < 300 }) {
                    network.append((1, old.id, old.bytes, step))
                }
            }
            while let index = network.firstIndex(where: { $0.due <= step }) {
                let packet = network.remove(at: index)
                var member = try receiver(members[packet.member])
                #expect(member.state == members[packet.member])
                if opened[packet.member].contains(packet.id) {
                    copies += 1
                    #expect(member.refusal(of: packet.bytes, data: [7]) == .duplicate, "seed \(seed)")
                    continue
                }
                if packet.id < begin[packet.member] {
                    early += 1
                    #expect(member.refusal(of: packet.bytes, data: [7]) == .beforeDistribution, "seed \(seed)")
                    continue
                }
                var corrupted = packet.bytes
                corrupted[random.below(corrupted.count)] ^= UInt8(1 << random.below(8))
                #expect(member.refusal(of: corrupted, data: [7]) != nil, "seed \(seed)")
                #expect(try member.open(packet.bytes, data: [7]) == texts[packet.id], "seed \(seed)")
                opened[packet.member].insert(packet.id)
                let passed = (opened[packet.member].max() ?? 0) + 1 - begin[packet.member]
                // The model of what is missing: everything below the highest that has not come.
                #expect(member.skippedCount == passed - opened[packet.member].count, "seed \(seed)")
                gaps += member.skippedCount
                members[packet.member] = member.state
            }
        }
        #expect(network.isEmpty && copies > 100 && gaps > 100 && early > 0, "\(copies) \(gaps) \(early)")
    }

    @Test("the layouts, with golden sizes") func layouts() throws {
        var sender = key(10)
        let before = sender.distribution.bytes
        let state = sender.state
        let message = try sender.seal([1, 2, 3], data: [9])
        #expect(SenderKeyMessage.overhead == 89 && message.count == 3 + 89)
        #expect(before.count == 73 && SenderKeyDistribution.byteCount == 73 && state.count == 105)
        var id: [UInt8] = []
        id.append(networkOrder: sender.id)
        for bytes in [before, state, message] { #expect(Array(bytes[..<9]) == [1] + id + [0, 0, 0, 0]) }
        #expect(before[9..<41] == state[9..<41] && before[41...] == state[73...])
        // The signature, and under it the seal, as the drawing says.
        let signed = Array("DoubleRatchet/1 sender key message\0".utf8) + [0, 0, 0, 0, 0, 0, 0, 1, 9] + message[..<28]
        #expect(Primitives.verify(Array(message[28...]), of: signed, by: Bytes32(Array(before[41...]))))
        let chain = ChainKey(secret: SecretBytes(Array(before[9..<41])))
        let outputs = Primitives.hkdf(
            salt: SecretBytes([UInt8](repeating: 0, count: 32)), secret: chain.messageKey.secret,
            info: Array("DoubleRatchet/1 sender key".utf8), blocks: 2)
        var plaintext: [UInt8] = []
        try message[9..<28].withUnsafeBytes {
            try Primitives.open(
                $0, key: outputs[0], nonce: Array(outputs[1].array[..<12]),
                authenticating: before[41...] + message[..<9] + [9], into: &plaintext)
        }
        #expect(plaintext == [1, 2, 3])

        var member = SenderKeyReceiver(try distribution(before))
        let fresh = member.state
        #expect(fresh == before[..<9] + [0, 0, 0, 0] + before[9...] + [0, 0])
        #expect(fresh.count == 79)
        _ = try member.open(try sender.seal([4]))
        #expect(member.state.count == 79 + 68 && member.state[77..<79] == [0, 1])
        #expect(member.state[79..<111] == before[41...] && member.state[111..<115] == [0, 0, 0, 0])
        let header = try SenderKeyMessage(headerOf: message.span)
        #expect(header.keyID == sender.id && header.iteration == 0)
    }

    @Test("no byte may change, be missing or be added; associated data is bound") func everyByte() throws {
        var sender = key(11)
        var member = sender.receiver
        for place in 0..<2 {
            // The first time the next message, the second time a late one.
            let message = try sender.seal(Array("hello".utf8), data: [1, 2])
            if place == 1 { _ = try member.open(try sender.seal([])) }
            for index in message.indices {
                for bit in 0..<8 {
                    var changed = message
                    changed[index] ^= 1 << bit
                    let expected: RatchetError =
                        index == 0 ? .unsupportedVersion : index < 5 ? .unknownSenderKey : .authenticationFailed
                    #expect(member.refusal(of: changed, data: [1, 2]) == expected, "place \(place) byte \(index)")
                }
                let cut = Array(message[..<index])
                let expected: RatchetError = index < 89 ? .malformed : .authenticationFailed
                #expect(member.refusal(of: cut, data: [1, 2]) == expected, "place \(place), \(index) bytes")
            }
            #expect(member.refusal(of: message + [0], data: [1, 2]) == .authenticationFailed)
            let large = message + [UInt8](repeating: 0, count: 1 << 20)
            #expect(member.refusal(of: large, data: [1, 2]) == .authenticationFailed)
            for data: [UInt8] in [[], [1], [1, 3], [1, 2, 0]] {
                #expect(member.refusal(of: message, data: data) == .authenticationFailed, "\(data)")
            }
            #expect(try member.open(message, data: [1, 2]) == Array("hello".utf8))
            #expect(member.refusal(of: message, data: [1, 2]) == .duplicate)
        }
    }

    @Test("a member that knows the chain cannot sign for the sender") func forgedByMember() throws {
        var sender = key(12)
        var member = sender.receiver
        let known = sender.distribution
        var random = SeededGenerator(seed: 99)
        var forger = SenderKey(
            id: known.id, iteration: known.iteration, chainKey: known.chainKey,
            seed: SecretBytes(count: 32, random: &random))
        #expect(member.refusal(of: try forger.seal([1])) == .authenticationFailed)
        // A genuine message under the forger's signature, and far ahead: no work before the signature.
        let genuine = try sender.seal([1])
        let ahead = genuine[..<5] + [0xFF, 0xFF, 0xFF, 0xFF] + genuine[9...]
        #expect(member.refusal(of: Array(ahead)) == .authenticationFailed)
        #expect(try member.open(genuine) == [1])
    }

    @Test("a genuine signature over a wrong seal changes nothing") func wrongSeal() throws {
        var sender = key(13)
        let state = sender.state
        var member = sender.receiver
        let message = try sender.seal([1])
        var unsigned = Array(message.dropLast(64))
        unsigned[9] ^= 1
        let none: [UInt8] = []
        let signed = unsigned.withUnsafeBytes { SenderKeyMessage.signed($0, none.span) }
        let signingKey = Primitives.signingKey(seed: SecretBytes(Array(state[41..<73])))
        #expect(member.refusal(of: unsigned + Primitives.sign(signed, with: signingKey)) == .authenticationFailed)
        #expect(try member.open(message) == [1])
    }

    /// Jumps the sender over `count` messages.
    private func jump(_ sender: borrowing SenderKey, _ count: UInt32) throws -> SenderKey {
        let (known, state) = (sender.distribution, sender.state)
        return SenderKey(
            id: known.id, iteration: known.iteration + count, chainKey: known.chainKey.advanced(by: count),
            seed: SecretBytes(Array(state[41..<73])))
    }

    @Test("jumps are bounded and the oldest keys go first") func bounds() throws {
        var sender = key(14)
        var member = sender.receiver
        let zero = try sender.seal([0])
        let one = try sender.seal([1])
        let far = RatchetLimits.maximumSkip
        var tooFar = try jump(sender, far - 1)
        var edge = try jump(sender, far - 2)
        #expect(member.refusal(of: try tooFar.seal([2])) == .tooFarAhead)
        let last = try edge.seal([3])
        #expect(try member.open(last) == [3])
        #expect(member.skippedCount == RatchetLimits.maximumSkippedKeys)
        _ = try member.open(try jump(edge, 1).sealed([4]))
        #expect(member.skippedCount == RatchetLimits.maximumSkippedKeys)
        #expect(member.refusal(of: zero) == .duplicate, "evicted")
        #expect(try member.open(one) == [1])
        #expect(try receiver(member.state).state == member.state)
    }

    @Test("a chain ends at UInt32.max, one before it still goes") func end() throws {
        let start = key(15).distribution
        var sender = SenderKey(
            id: start.id, iteration: .max - 1, chainKey: start.chainKey, seed: SecretBytes(key(15).state[41..<73] + []))
        var member = sender.receiver
        #expect(try member.open(try sender.seal([1])) == [1])
        let before = sender.state
        #expect(throws: RatchetError.exhausted) { _ = try sender.seal([2]) }
        #expect(sender.state == before)
        #expect(try receiver(member.state).state == member.state)
    }

    @Test("nothing before the distribution opens, nor can its bytes lead there") func forwardSecrecy() throws {
        var sender = key(16)
        let old = try sender.seal([1])
        var early = sender.receiver
        var late = SenderKeyReceiver(try distribution(sender.distribution.bytes))
        #expect(late.refusal(of: old) == .beforeDistribution)
        // Believing itself older does not help: its chain key is not the one of that message.
        var state = late.state
        state.replaceSubrange(5..<13, with: [UInt8](repeating: 0, count: 8))
        var pretending = try receiver(state)
        #expect(pretending.refusal(of: old) == .authenticationFailed)
        let next = try sender.seal([2])
        #expect(try late.open(next) == [2] && early.open(next) == [2])
    }

    @Test("after a rotation an old receiver reads nothing") func rotation() throws {
        var random = SeededGenerator(seed: 17)
        var old = SenderKey(random: &random)
        var new = SenderKey(random: &random)
        var left = old.receiver
        var stays = new.receiver
        let message = try new.seal([1])
        #expect(left.refusal(of: message) == .unknownSenderKey)
        // Also where the ids should collide.
        var state = left.state
        state.replaceSubrange(1..<5, with: new.state[1..<5])
        var colliding = try receiver(state)
        #expect(colliding.refusal(of: message) == .authenticationFailed)
        #expect(try stays.open(message) == [1])
        #expect(try left.open(try old.seal([2])) == [2])
    }

    @Test("distributions and states: whole, cut, longer, other versions, fuzzed") func parsers() throws {
        var sender = key(18)
        let bytes = sender.distribution.bytes
        var member = sender.receiver
        _ = try sender.seal([])
        _ = try member.open(try sender.seal([]))
        let (own, theirs) = (sender.state, member.state)
        #expect(try distribution(bytes).bytes == bytes)
        #expect(try senderKey(own).state == own && receiver(theirs).state == theirs)
        let parsers: [([UInt8], ([UInt8]) throws -> Void)] = [
            (bytes, { _ = try distribution($0) }), (own, { _ = try senderKey($0) }),
            (theirs, { _ = try receiver($0) }),
        ]
        for (whole, parse) in parsers {
            for length in whole.indices {
                #expect(throws: RatchetError.malformed, "\(length)") { try parse(Array(whole[..<length])) }
            }
            #expect(throws: RatchetError.malformed) { try parse(whole + [0]) }
            for version in UInt8.min...UInt8.max where version != 1 {
                #expect(throws: RatchetError.unsupportedVersion) { try parse([version] + whole.dropFirst()) }
            }
        }
        // A key of low order, a seed of another pair, first beyond next, more keys than messages.
        #expect(throws: RatchetError.invalidKey) {
            _ = try distribution(bytes[..<41] + [1] + [UInt8](repeating: 0, count: 31))
        }
        #expect(throws: RatchetError.malformed) { _ = try senderKey(own[..<41] + [own[41] ^ 1] + own[42...]) }
        #expect(throws: RatchetError.malformed) { _ = try receiver(theirs[..<5] + [0, 0, 0, 3] + theirs[9...]) }
        #expect(throws: RatchetError.malformed) { _ = try receiver(theirs[..<5] + [0, 0, 0, 2] + theirs[9...]) }
        var random = SeededGenerator(seed: 19)
        var accepted = 0
        for _ in 0..<2000 {
            let noise = [1] + random.bytes(72)
            guard let read = try? distribution(noise) else { continue }
            accepted += 1
            #expect(read.bytes == noise)
        }
        #expect((700...1300).contains(accepted), "about half of all keys are on the curve, not \(accepted)")
    }

    @Test("nothing prints a secret") func printing() {
        let shared = key(20).distribution
        var dumped = "\(shared)"
        dump(shared, to: &dumped)
        #expect(dumped.contains("SecretBytes(32 bytes)"))
        let secret = shared.chainKey.secret.array
        #expect(!dumped.contains(text(Array(secret[..<4]))) && !dumped.contains("\(secret[0]), \(secret[1])"))
    }
}

extension SenderKey {
    fileprivate consuming func sealed(_ text: [UInt8]) throws(RatchetError) -> [UInt8] { try seal(text) }
}
