import TestKit
import Testing

@testable import DoubleRatchet

@Suite("The ML-KEM Braid")
struct BraidTests {
    static let secret = SecretBytes((0..<32).map { UInt8($0) })

    static func pair() -> (Braid, Braid) {
        (Braid(isInitiator: true, secret: secret), Braid(isInitiator: false, secret: secret))
    }

    static func state(_ braid: Braid) -> [UInt8] {
        var state: [UInt8] = []
        braid.serialize(into: &state)
        return state
    }

    static func number(_ braid: Braid) -> UInt8 { state(braid)[0] }

    private func restored(_ braid: Braid) throws -> Braid {
        var state: [UInt8] = []
        braid.serialize(into: &state)
        let copy = try ByteReader.readAll(state.span) { (reader) throws(RatchetError) in try Braid(from: &reader) }
        var again: [UInt8] = []
        copy.serialize(into: &again)
        #expect(state == again)
        #expect(state.count <= 1358)
        return copy
    }

    @Test("turn by turn without loss: the eleven states, and one secret an epoch at both ends") func lossless() throws {
        var random = SeededGenerator(seed: 920)
        var (alice, bob) = Self.pair()
        var secrets: [[UInt32: [UInt8]]] = [[:], [:]]
        var states: Set<UInt8> = []
        var turns = 0
        while alice.epoch < 9 {
            turns += 1
            let epoch = alice.epoch
            let (there, one) = alice.send(random: &random)
            if let one { secrets[0][epoch] = one.array }
            let bobEpoch = bob.epoch
            if let two = try bob.receive(there, epoch: epoch) { secrets[1][bobEpoch] = two.array }
            states.formUnion([Self.number(alice), Self.number(bob)])
            let backEpoch = bob.epoch
            let (back, three) = bob.send(random: &random)
            if let three { secrets[1][backEpoch] = three.array }
            let aliceEpoch = alice.epoch
            if let four = try alice.receive(back, epoch: backEpoch) { secrets[0][aliceEpoch] = four.array }
            states.formUnion([Self.number(alice), Self.number(bob)])
            (alice, bob) = (try restored(alice), try restored(bob))
        }
        #expect(secrets[0].count >= 8 && Set(secrets[0].values).count == secrets[0].count)
        for (epoch, secret) in secrets[0] { #expect(secrets[1][epoch] == secret, "epoch \(epoch)") }
        #expect(turns / 8 <= 48, "\(turns) turns for 8 epochs")
        // Only a loss shows the other way from ciphertext1Sampled.
        #expect(states.union([8, 9]) == Set(0...10), "\(states.sorted())")
    }

    @Test(
        "with any loss, copies and any order it goes on, from saved states", arguments: [1, 2, 3, 4, 5, 6] as [UInt64])
    func lossy(seed: UInt64) throws {
        var random = SeededGenerator(seed: 930 + seed)
        var ends = [Self.pair().0, Self.pair().1]
        var secrets: [[UInt32: [UInt8]]] = [[:], [:]]
        var network: [(to: Int, epoch: UInt32, message: Braid.Message)] = []
        var states: Set<UInt8> = []
        let loss = [0, 10, 30, 50, 70, 85][Int(seed - 1)]
        for _ in 0..<12_000 where ends[0].epoch < 6 || ends[1].epoch < 6 {
            let sender = random.below(2)
            let epoch = ends[sender].epoch
            let (message, secret) = ends[sender].send(random: &random)
            if let secret { secrets[sender][epoch] = secret.array }
            network.append((1 - sender, epoch, message))
            if random.below(5) == 0 { network.append((1 - sender, epoch, message)) }
            while !network.isEmpty && random.below(30) != 0 {
                let packet = network.remove(at: random.below(network.count))
                // A newer epoch is only ever announced by a message that is not late: see SparsePostQuantumRatchet.
                guard random.below(100) >= loss || packet.epoch > ends[packet.to].epoch else { continue }
                var end = try restored(ends[packet.to])
                let before = end.epoch
                // What was found out before is what happens.
                var other = end
                let effect = try end.effect(of: packet.message, epoch: packet.epoch)
                #expect(Self.state(end) == Self.state(other), "nothing happens before it is taken")
                let secret = end.take(effect)
                let expected = try other.receive(packet.message, epoch: packet.epoch)
                #expect(Self.state(end) == Self.state(other) && secret?.array == expected?.array)
                if let secret { secrets[packet.to][before] = secret.array }
                ends[packet.to] = end
                states.insert(Self.number(end))
                #expect(ends[0].epoch.distance(to: ends[1].epoch).magnitude <= 1)
            }
        }
        #expect(ends[0].epoch >= 6 && ends[1].epoch >= 6, "seed \(seed), loss \(loss): \(ends.map(\.epoch))")
        for epoch in UInt32(1)..<5 {
            #expect(secrets[0][epoch] != nil && secrets[0][epoch] == secrets[1][epoch], "epoch \(epoch)")
        }
    }

    /// Runs without loss until the receiver of the next message is in `state`, and returns both with that message.
    private func until(
        _ state: UInt8, sendsKey: Bool
    ) throws -> (sender: Braid, receiver: Braid, message: Braid.Message, random: SeededGenerator) {
        var random = SeededGenerator(seed: 940)
        var (alice, bob) = Self.pair()
        for _ in 0..<200 {
            let there = alice.send(random: &random).0
            if !sendsKey && Self.number(bob) == state { return (alice, bob, there, random) }
            _ = try bob.receive(there, epoch: alice.epoch)
            let back = bob.send(random: &random).0
            if sendsKey && Self.number(alice) == state { return (bob, alice, back, random) }
            _ = try alice.receive(back, epoch: bob.epoch)
        }
        throw RatchetError.exhausted
    }

    private func changed(_ message: Braid.Message) -> Braid.Message {
        let chunk = message.chunk.map { chunk in
            var bytes = chunk.bytes.array
            bytes[7] ^= 4
            return ErasureCode.Chunk(index: chunk.index, bytes: Bytes32(bytes))
        }
        return Braid.Message(kind: message.kind, chunk: chunk)
    }

    @Test("a changed header fails its MAC") func changedHeader() throws {
        var (sender, receiver, message, random) = try until(5, sendsKey: false)
        _ = try receiver.receive(changed(message), epoch: 1)
        _ = try receiver.receive(sender.send(random: &random).0, epoch: 1)
        let last = sender.send(random: &random).0
        #expect(throws: RatchetError.authenticationFailed) { _ = try receiver.receive(last, epoch: 1) }
    }

    @Test("a key that is not its header's is refused") func keyAgainstHeader() throws {
        var (sender, receiver, message, random) = try until(7, sendsKey: false)
        _ = try receiver.receive(changed(message), epoch: 1)
        var refused = false
        for _ in 0..<60 where !refused {
            do throws(RatchetError) {
                _ = try receiver.receive(sender.send(random: &random).0, epoch: 1)
                // The sender hears nothing more and goes on with the key; the acknowledgement is missing here.
                if Self.number(receiver) == 8 {
                    let chunk = ErasureCode.chunk(0, of: [UInt8](repeating: 0, count: 1152))
                    _ = try receiver.receive(Braid.Message(kind: .keyAcknowledging, chunk: chunk), epoch: 1)
                }
            } catch {
                #expect(error == .invalidKey)
                refused = true
            }
        }
        #expect(refused)
    }

    @Test("a changed chunk of either part of a ciphertext fails the MAC", arguments: [4, 5] as [UInt8])
    func changedCiphertext(kind: UInt8) throws {
        var (sender, receiver, _, random) = try until(2, sendsKey: true)
        var wasChanged = false
        for _ in 0..<200 {
            _ = try sender.receive(receiver.send(random: &random).0, epoch: receiver.epoch)
            var message = sender.send(random: &random).0
            if !wasChanged && message.kind.rawValue == kind {
                message = changed(message)
                wasChanged = true
            }
            do throws(RatchetError) {
                _ = try receiver.receive(message, epoch: sender.epoch)
            } catch {
                #expect(error == .authenticationFailed && wasChanged)
                return
            }
            try #require(receiver.epoch == 1)
        }
        Issue.record("never refused")
    }

    @Test("ciphertexts of the right length in each other's place are not taken") func swapped() throws {
        var (_, receiver, message, _) = try until(2, sendsKey: true)
        let swapped = Braid.Message(kind: .ciphertext2, chunk: message.chunk)
        #expect(try receiver.receive(swapped, epoch: 1) == nil)
        #expect(Self.number(receiver) == 2)
        var (_, later, second, _) = try until(3, sendsKey: true)
        #expect(try later.receive(Braid.Message(kind: .ciphertext1, chunk: second.chunk), epoch: 1) == nil)
        #expect(Self.number(later) == 3)
    }

    @Test("an epoch that cannot have come is refused in every state") func futureEpochs() throws {
        var random = SeededGenerator(seed: 950)
        var (alice, bob) = Self.pair()
        let nothing = Braid.Message(kind: .none, chunk: nil)
        for _ in 0..<100 {
            _ = try bob.receive(alice.send(random: &random).0, epoch: alice.epoch)
            _ = try alice.receive(bob.send(random: &random).0, epoch: bob.epoch)
            for end in [alice, bob] {
                for ahead: UInt32 in [1, 2, 1000] where ahead > 1 || Self.number(end) != 10 {
                    var end = end
                    #expect(throws: RatchetError.malformed) { _ = try end.receive(nothing, epoch: end.epoch + ahead) }
                }
                var same = end
                #expect(try same.receive(nothing, epoch: end.epoch - 1) == nil)
            }
        }
    }

    @Test("the last epoch is an end, not a wrap") func lastEpoch() throws {
        var (_, receiver, _, _) = try until(4, sendsKey: true)
        receiver.epoch = Braid.maximumEpoch - 1
        receiver.state = .ciphertext2Sampled([UInt8](repeating: 0, count: 160), sent: 0)
        let nothing = Braid.Message(kind: .none, chunk: nil)
        #expect(throws: RatchetError.exhausted) { _ = try receiver.receive(nothing, epoch: Braid.maximumEpoch) }
    }
}
