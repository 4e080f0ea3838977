import Devices
import Envelope
import IRCCodec
import IRCGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// A backend that alters, repeats, forges and withholds.
@Suite struct HostileBackendTests {
    private func envelope(_ line: String) -> Bool { line.contains("?PAWL:") }

    @Test func replaysAreShownOnce() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.backend.relay = { [$0, $0, $0] }
        world.send(alice, "PRIVMSG bob :once")
        #expect(bob.messages.filter { $0.contains("once") }.count == 1)
        #expect(world.environment.tally[.openCopy] == 2)
    }

    @Test func flippedBitsAreReportedAndChangeNothing() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :first")
        var flipped = 0
        world.backend.relay = { [self] line in
            guard envelope(line) else { return [line] }
            // A copy with one changed letter before the good one.
            var bytes = Array(line.utf8)
            let place = bytes.count - 40
            bytes[place] = bytes[place] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
            flipped += 1
            return [String(decoding: bytes, as: UTF8.self), line]
        }
        world.send(alice, "PRIVMSG bob :second")
        #expect(flipped == 1)
        #expect(bob.wasNotified(Notices.failure(.notAuthentic, from: "alice")))
        #expect(bob.messages.contains { $0.hasSuffix(":second") })
        #expect(bob.read.allSatisfy { !$0.contains("?PAWL") })
    }

    /// Who has left a room, or was put out, is shown nothing of it that the backend goes on delivering, also where nobody
    /// else has had it.
    @Test(arguments: [true, false]) func whoHasLeftARoomReadsNothingThere(_ isKicked: Bool) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (world.connect("alice"), world.connect("bob"))
        for client in [alice, bob] { world.send(client, "JOIN #room") }
        world.send(alice, "PRIVMSG #room :before")
        #expect(bob.messages.contains { $0.hasSuffix(":before") })
        if isKicked {
            world.backend.kick(bob.id, from: "#room", by: alice.id)
        } else {
            world.send(bob, "PART #room")
        }
        world.settle()
        let carol = world.connect("carol")
        world.send(carol, "JOIN #room")
        // The backend relays the line to nobody who is in the room, and to the one who is not.
        var lines: [String] = []
        world.backend.relay = { line in
            guard line.contains("PRIVMSG #room") else { return [line] }
            lines.append(line)
            return []
        }
        world.send(alice, "PRIVMSG #room :after")
        #expect(lines.count == 1)
        for line in lines { world.backend.send(bob.id, line) }
        world.settle()
        #expect(!bob.read.contains { $0.contains(":after") || $0.contains("?PAWL") })
        #expect(world.environment.tally[.openNotAuthentic] == 1)
    }

    @Test func anEnvelopeUnderAnotherNameIsWithheld() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.connect("mallory")
        world.send(alice, "PRIVMSG bob :first")
        world.backend.relay = { $0.contains("?PAWL:") ? [$0.replacing(":alice!", with: ":mallory!")] : [$0] }
        world.send(alice, "PRIVMSG bob :not mallory's")
        #expect(bob.messages.allSatisfy { !$0.contains("not mallory's") })
        #expect(bob.read.last?.contains(Notices.failure(.wrongSource, from: "mallory")!) == true)
        #expect(world.environment.tally[.openWrongSource] == 1)
    }

    @Test func anEnvelopeForSomebodyElseIsNotOpened() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.connect("bob")
        let dave = world.connect("dave")
        var captured = ""
        world.backend.relay = { line in
            if line.contains("?PAWL:") { captured = line }
            return [line]
        }
        world.send(alice, "PRIVMSG bob :for bob")
        world.backend.send(dave.id, captured.replacing(" bob :", with: " dave :"))
        world.settle()
        #expect(dave.messages.allSatisfy { !$0.contains("for bob") })
        #expect(dave.wasNotified(Notices.failure(.notAuthentic, from: "alice")))
    }

    @Test func plaintextInAProtectedConversationIsWithheldUnderEveryPolicy() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :protected")
        world.environment.policies.update { $0.everyone = .observe }
        world.backend.send(bob.id, ":alice!alice@host.test PRIVMSG bob :forged words")
        world.settle()
        #expect(bob.messages.allSatisfy { !$0.contains("forged words") })
        #expect(bob.read.last?.contains("was withheld") == true)
        // And the latch holds outbound too.
        world.send(alice, "PRIVMSG bob :still protected")
        #expect(bob.messages.last?.hasSuffix(":still protected") == true)
        #expect(!world.canary.contains("still protected"))
    }

    @Test func aFlagOnPlaintextAndAnEnvelopeWithoutFlagAreCountedAndNoMore() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.backend.send(bob.id, "@+pawl/encrypted :carol!c@h PRIVMSG bob :flagged")
        world.settle()
        #expect(bob.messages.last?.contains("[not encrypted] flagged") == true)
        #expect(world.environment.tally[.flagWithoutEnvelope] == 1)
        world.backend.people[bob.id]?.caps.remove("message-tags")
        world.send(alice, "PRIVMSG bob :stripped")
        #expect(bob.messages.last?.hasSuffix(":stripped") == true)
        #expect(world.environment.tally[.envelopeWithoutFlag] == 1)
    }

    @Test func fragmentFloodsAndGapsAreBoundedAndReported() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        for number in 0..<200 {
            let hex = String(number, radix: 16)
            let id = String(repeating: "0", count: 8 - hex.count) + hex
            world.backend.send(bob.id, ":evil!e@h PRIVMSG bob :?PAWL:\(id),0,2:AAAA.")
        }
        world.settle()
        #expect(bob.wasNotified(Notices.failure(.malformed, from: "evil")))
        var dropped = false
        world.backend.relay = { line in
            if line.contains(",1,"), !dropped {
                dropped = true
                return []
            }
            return [line]
        }
        world.send(alice, "PRIVMSG bob :\(String(repeating: "gap ", count: 110))")
        world.advance(seconds: 31)
        #expect(bob.read.contains { $0.contains(Notices.fragmentsLost(from: "alice")) })
        world.send(alice, "PRIVMSG bob :after the gap")
        #expect(bob.read.contains { $0.contains(Notices.gap(1, from: "alice")) })
        #expect(bob.messages.last?.hasSuffix(":after the gap") == true)
    }

    /// The envelope in a line, or nil.
    private func bytes(_ line: String) -> [UInt8]? {
        let text = Array((line.split(separator: " :", maxSplits: 1).last ?? "").utf8)
        guard case .whole(let bytes)? = Armour.parse(text[...]) else { return nil }
        return bytes
    }

    /// The backend drops a message and delivers the bytes of an older one under its id. The ratchet calls that a copy before it
    /// has proven the id, so it proves nothing about the message that was dropped.
    @Test(arguments: ["alice", "carol"]) func anOlderMessageUnderTheIDOfADroppedOneIsNoReceipt(
        _ older: String
    ) throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        let carol = world.connect("carol")
        var old: [UInt8] = []
        world.backend.relay = { [self] line in
            if let envelope = bytes(line) { old = envelope }
            return [line]
        }
        world.send(older == "alice" ? alice : carol, "PRIVMSG bob :one")
        world.backend.relay = { [self] line in
            guard let dropped = bytes(line) else { return [line] }
            // Kind and device of the old one, the id of the new one.
            let forged = Envelope(
                sender: (try? Envelope(old).sender) ?? DeviceID(0),
                messageID: (try? Envelope(dropped).messageID) ?? MessageID(0),
                ratchetMessage: Array(old.dropFirst(Envelope.headerLength)))
            guard let text = Armour.split(forged.bytes, id: 1, capacity: 400)?.first else { return [] }
            let nick = older == "alice" ? ":alice!" : ":carol!"
            return [
                line.replacing(":alice!", with: nick).prefix { $0 != "?" } + String(decoding: text, as: UTF8.self)
            ]
        }
        world.send(alice, "PRIVMSG bob :two")
        world.advance(seconds: 25)
        #expect(!bob.messages.contains { $0.hasSuffix(":two") })
        #expect(alice.read.contains { $0.contains(Notices.unopened(target: "bob")) })
    }

    /// The acknowledgement was lost with the process, and the same bytes go again: the recipient has opened them, and the
    /// sender is told nothing else.
    @Test func aRepeatedMessageOfBeforeARestartCountsAsRead() throws {
        let store = InMemoryStore()
        let world = try World(.hosted, store: store)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.backend.relay = { line in
            if line.contains("?PAWL:") { world.backend.isStalled = true }
            return [line]
        }
        world.send(alice, "PRIVMSG bob :once")
        #expect(bob.messages.contains { $0.hasSuffix(":once") })
        let again = try World(.hosted, store: store, seed: 2, journal: world.journal)
        let reader = again.connect("bob", account: "bob")
        let writer = again.connect("alice", account: "alice")
        #expect(again.backend.seen.contains { $0.contains("?PAWL:") }, "the same bytes go again")
        again.advance(seconds: 25)
        #expect(!reader.messages.contains { $0.hasSuffix(":once") })
        #expect(!writer.read.contains { $0.contains("has not received it") })
        #expect(try store.requestCounts()[.done] == 1)
    }

    @Test func cutLinesNeverShowBase64() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.backend.relay = { $0.contains("?PAWL:") ? [String($0.dropLast(9))] : [$0] }
        world.send(alice, "PRIVMSG bob :cut off")
        #expect(bob.read.allSatisfy { !$0.contains("?PAWL") })
        #expect(bob.wasNotified(Notices.failure(.malformed, from: "alice")))
        world.advance(seconds: 25)
        #expect(alice.read.last?.contains(Notices.unopened(target: "bob")) == true)
    }

    @Test func whoeverReadsWithoutAGatewayGetsWordsOnce() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :one")
        world.send(alice, "PRIVMSG bob :two")
        world.send(bob, "PRIVMSG alice :three")
        #expect(world.backend.seen.filter { $0.contains("?PAWL? ") }.count == 1)
        #expect(bob.read.allSatisfy { !$0.contains("?PAWL") } && alice.read.allSatisfy { !$0.contains("?PAWL") })
    }
}
