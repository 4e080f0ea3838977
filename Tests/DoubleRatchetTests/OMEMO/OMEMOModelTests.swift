import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

/// Two ends of ours, a network that loses, delays, reorders and copies, and a restart at every step.
///
/// Between any two operations a session exists only as its stored bytes. Every message that arrives opens exactly once
/// and to its own text, every copy is a duplicate, and what is forged leaves no trace.
@Suite("A long OMEMO conversation over a bad network")
struct OMEMOModelTests {
    private struct Packet {
        let id: Int
        let toBob: Bool
        let message: OMEMOPeer.Message
        var due: Int
    }

    private struct Ends {
        var alice: [UInt8]
        var bob: [UInt8]?

        /// A restart: what was stored comes back, and would be stored the same again.
        func restarted(bob isBob: Bool) throws -> OMEMOSession {
            let state = isBob ? try #require(bob) : alice
            let session = try restoredOMEMO(state)
            #expect(session.state == state, "another state after a restart")
            return session
        }

        mutating func store(_ session: borrowing OMEMOSession, bob isBob: Bool) {
            if isBob { bob = session.state } else { alice = session.state }
        }
    }

    @Test("2000 messages", arguments: OMEMOProfile.allCases, [1, 2, 3] as [UInt64])
    func conversation(_ profile: OMEMOProfile, seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let device = try OMEMODevice(profile, &random)
        var ends = Ends(
            alice: try OMEMOSession.initiate(
                identity: IdentityKeyPair(random: &random), with: device.bundle, expecting: nil, random: &random
            ).state)
        var texts: [[UInt8]] = []
        var (opened, arrived): (Set<Int>, Set<Int>) = ([], [])
        var network: [Packet] = []
        var (lost, copies) = (0, 0)

        func deliver(_ packet: Packet) throws {
            arrived.insert(packet.id)
            if packet.toBob && ends.bob == nil {
                var output: [UInt8] = []
                ends.bob = try device.respond(to: packet.message.bytes, into: &output).state
                #expect(output == texts[packet.id])
                opened.insert(packet.id)
                return
            }
            var session = try ends.restarted(bob: packet.toBob)
            if opened.contains(packet.id) {
                copies += 1
                #expect(session.refusal(of: packet.message) == .duplicate, "seed \(seed), copy of \(packet.id)")
                return
            }
            // First a corrupted one, which must leave no trace.
            var corrupted = packet.message.bytes
            corrupted[random.below(corrupted.count)] ^= UInt8(1 << random.below(8))
            let changed = OMEMOPeer.Message(isKeyExchange: packet.message.isKeyExchange, bytes: corrupted)
            #expect(session.refusal(of: changed) != nil, "seed \(seed), corrupted \(packet.id)")
            #expect(try session.open(packet.message) == texts[packet.id])
            opened.insert(packet.id)
            ends.store(session, bob: packet.toBob)
        }

        var talking = true
        for step in 0..<4000 where texts.count < 2000 || !network.isEmpty {
            if texts.count < 2000 {
                // Runs of one speaker, so that chains have some length.
                if random.below(6) == 0 { talking.toggle() }
                let toBob = talking || ends.bob == nil
                let plaintext = random.bytes(random.below(40))
                var session = try ends.restarted(bob: !toBob)
                let message = try session.seal(plaintext, random: &random)
                ends.store(session, bob: !toBob)
                let packet = Packet(id: texts.count, toBob: toBob, message: message, due: step + random.below(30))
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
        #expect(lost > 100 && copies > 50, "the network was too kind: \(lost) \(copies)")
        #expect(opened == arrived, "seed \(seed)")
        let kept = try restoredOMEMO(ends.alice).skippedCount + restoredOMEMO(try #require(ends.bob)).skippedCount
        #expect(kept > 0 && kept <= 2000 - opened.count)
        #expect(ends.alice.count < 80_000)
    }
}
