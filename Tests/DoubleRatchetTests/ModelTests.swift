import TestKit
import Testing

@testable import DoubleRatchet

/// Two ends, a network that loses, delays, reorders and copies, and a restart at every step.
///
/// Between any two operations a session exists only as its stored bytes. The model is the plain list of what was sent:
/// every message that arrives opens exactly once and to its own text, and every copy is a duplicate.
@Suite("A long conversation over a bad network")
struct ModelTests {
    private struct Packet {
        let id: Int
        let toBob: Bool
        let bytes: [UInt8]
        var due: Int
    }

    @Test("2000 messages", arguments: [1, 2, 3, 4, 5, 6] as [UInt64])
    func conversation(seed: UInt64) throws {
        print("ModelTests seed \(seed)")
        var random = SeededGenerator(seed: seed)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = Device(&random, oneTime: seed % 2 == 0)
        var alice = try Session.initiate(identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
            .state
        var bob: [UInt8]?
        var texts: [[UInt8]] = []
        var opened: Set<Int> = []
        var network: [Packet] = []
        var arrived: Set<Int> = []
        var (lost, copies, gaps) = (0, 0, 0)

        var largest = 0

        /// What is stored, which is bounded but for the keys of missing messages and the chains that those wait in.
        func stored(_ session: borrowing Session) -> [UInt8] {
            let state = session.state
            let waiting = max(0, session.ratchet.finished.chains.count - RatchetLimits.maximumRememberedChains)
            let size = state.count - FinishedChains.keySize * session.skippedCount - 36 * waiting
            #expect(size <= 2472, "seed \(seed)")
            largest = max(largest, size)
            return state
        }

        /// A restart: what was stored comes back, and would be stored the same again.
        func restarted(_ state: [UInt8]) throws -> Session {
            let session = try restored(state)
            #expect(session.state == state, "seed \(seed), message \(texts.count): another state after a restart")
            return session
        }

        func deliver(_ packet: Packet) throws {
            let data = [UInt8(packet.toBob ? 1 : 2)]
            arrived.insert(packet.id)
            if packet.toBob && bob == nil {
                var output: [UInt8] = []
                bob = try device.respond(to: packet.bytes, data: data, into: &output).state
                #expect(output == texts[packet.id])
                opened.insert(packet.id)
                return
            }
            var session = try restarted(packet.toBob ? try #require(bob) : alice)
            if opened.contains(packet.id) {
                copies += 1
                #expect(
                    session.refusal(of: packet.bytes, data: data) == .duplicate, "seed \(seed), copy of \(packet.id)")
                return
            }
            // First a corrupted one, which must leave no trace.
            var corrupted = packet.bytes
            corrupted[random.below(corrupted.count)] ^= UInt8(1 << random.below(8))
            #expect(session.refusal(of: corrupted, data: data) != nil, "seed \(seed), corrupted \(packet.id)")
            var output: [UInt8] = []
            let received = try session.decrypt(packet.bytes.span, associatedData: data.span, into: &output)
            gaps += received.skipped
            #expect(output == texts[packet.id])
            opened.insert(packet.id)
            if packet.toBob { bob = stored(session) } else { alice = stored(session) }
        }

        var talking = true
        for step in 0..<4000 where texts.count < 2000 || !network.isEmpty {
            if texts.count < 2000 {
                // Runs of one speaker, so that chains have some length.
                if random.below(6) == 0 { talking.toggle() }
                let toBob = talking || bob == nil
                let plaintext = random.bytes(random.below(40))
                var session = try restarted(toBob ? alice : try #require(bob))
                let bytes = try session.seal(plaintext, data: [toBob ? 1 : 2], random: &random)
                if toBob { alice = stored(session) } else { bob = stored(session) }
                let packet = Packet(id: texts.count, toBob: toBob, bytes: bytes, due: step + random.below(30))
                texts.append(plaintext)
                if random.below(10) == 0 { lost += 1 } else { network.append(packet) }
                if random.below(10) == 0 {
                    var copy = packet
                    copy.due += random.below(60)
                    network.append(copy)
                }
            }
            while let index = network.firstIndex(where: { $0.due <= step }) {
                try deliver(network.remove(at: index))
            }
        }
        #expect(texts.count == 2000 && network.isEmpty)
        #expect(lost > 100 && copies > 50 && gaps > 100, "the network was too kind: \(lost) \(copies) \(gaps)")
        #expect(opened == arrived, "seed \(seed)")
        // What never came is exactly what keys are still kept for, up to the unseen ends of chains.
        let kept = try restored(alice).skippedCount + restored(try #require(bob)).skippedCount
        #expect(kept <= 2000 - opened.count)
        #expect(kept > 0)
        let epochs = (
            try restored(alice).ratchet.postQuantum.braid.epoch,
            try restored(try #require(bob)).ratchet.postQuantum.braid.epoch
        )
        print("ModelTests seed \(seed): epochs \(epochs), largest state without skipped keys \(largest) bytes")
        #expect(min(epochs.0, epochs.1) > 10 && epochs.0.distance(to: epochs.1).magnitude <= 1, "\(epochs)")
    }
}
