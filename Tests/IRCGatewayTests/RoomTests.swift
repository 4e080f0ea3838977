import Envelope
import IRCGateway
import Protection
import Reports
import RequestQueue
import StorePort
import TestKit
import Testing
import Vault

/// Rooms under `hosted`: one envelope for all members, and nobody reads who is not one.
@Suite struct RoomTests {
    static let backends: [[String]?] = [nil, [], SimulatedBackend.modern]

    @Test(arguments: backends, [1, 3, 50]) func everybodyReadsAndTheBackendDoesNot(_ offers: [String]?, _ size: Int)
        throws
    {
        let world = try World(.hosted, offers: offers)
        let members = world.people(size)
        world.send(members[0], "PRIVMSG #room :warming up")
        let before = world.backend.seen.count
        world.send(members[0], "PRIVMSG #room :\(String(repeating: "a", count: 100))")
        // One envelope, and where there are no labels the PING that asks for it.
        let lines = world.backend.seen.dropFirst(before)
        #expect(lines.count <= 2 && lines.count { $0.contains("?PAWL:") } == 1)
        for number in 1..<max(size, 1) where number < size {
            world.send(members[number], "PRIVMSG #room :from \(number)")
        }
        let expected = ["warming up", String(repeating: "a", count: 100)] + (1..<max(size, 1)).map { "from \($0)" }
        for (number, member) in members.enumerated() where number > 0 {
            #expect(member.texts == expected.filter { $0 != "from \(number)" })
        }
        #expect(
            !world.canary.contains("warming up") && !world.canary.contains("aaaaaaaaaa")
                && !world.canary.contains("from "))
        #expect(try world.store.requestCounts() == [.done: size + 1])
    }

    @Test func theEchoIsTheSendersOwnText() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let caps = ["CAP LS 302", "CAP REQ :echo-message", "CAP END"]
        let alice = world.connect("alice", lines: caps)
        let bob = world.connect("bob")
        for client in [alice, bob] { world.send(client, "JOIN #room") }
        world.send(alice, "PRIVMSG #room :hello")
        #expect(alice.texts == ["hello"] && bob.texts == ["hello"])
    }

    @Test func whoHasLeftReadsNothing() throws {
        let world = try World(.hosted)
        let members = world.people(4)
        world.send(members[0], "PRIVMSG #room :one")
        world.send(members[1], "PART #room")
        world.send(members[0], "KICK #room p2 :out")
        // A hostile backend goes on delivering to both.
        world.backend.relay = { line in
            for gone in [members[1], members[2]] { world.backend.send(gone.id, line) }
            return [line]
        }
        world.send(members[0], "PRIVMSG #room :two")
        #expect(members[1].texts == ["one"] && members[2].texts == ["one"])
        #expect(members[3].texts == ["one", "two"])
        world.send(members[1], "PRIVMSG #room :still here")
        #expect(members[1].read.last?.contains(" 404 ") == true)
        #expect(!world.canary.contains("still here"))
        // And back again: from now on everything is read.
        world.backend.relay = { [$0] }
        world.send(members[2], "JOIN #room")
        world.send(members[0], "PRIVMSG #room :three")
        #expect(members[2].texts.last == "three")
    }

    @Test func anEnvelopeIsOfItsRoomAndSender() throws {
        let world = try World(.hosted)
        let members = world.people(3)
        for member in members { world.send(member, "JOIN #other") }
        world.backend.relay = { line in
            let moved = line.replacing("PRIVMSG #room", with: "PRIVMSG #other")
            let direct = line.replacing("PRIVMSG #room", with: "PRIVMSG p2")
            let renamed = line.replacing(":p0!p0@", with: ":p1!p1@")
            return line.contains("?PAWL:") ? [moved, renamed] + (line == direct ? [] : [direct]) : [line]
        }
        world.send(members[0], "PRIVMSG #room :only here")
        for member in members { #expect(!member.texts.contains("only here")) }
        world.backend.relay = { [$0, $0] }
        world.send(members[0], "PRIVMSG #room :once")
        #expect(members[1].texts.filter { $0 == "once" }.count == 1)
    }

    @Test func membersWithAStatusAreARecipientOfTheirOwn() throws {
        let world = try World(.hosted)
        let members = world.people(2)
        world.backend.relay = { [$0.replacing("PRIVMSG @#room", with: "PRIVMSG #room")] }
        world.send(members[0], "PRIVMSG @#room :for operators")
        #expect(!members[1].texts.contains("for operators"))
        world.backend.relay = { [$0] }
        world.send(members[0], "PRIVMSG @#room :for operators too")
        #expect(members[1].texts.last == "for operators too")
        #expect(try world.store.requestCounts() == [.done: 2])
    }

    @Test func outsidersAreMarkedAndTheRoomGoesOn() throws {
        let world = try World(.hosted)
        let members = world.people(2)
        let carol = world.connect("carol", direct: true)
        world.send(carol, "JOIN #room")
        world.send(carol, "PRIVMSG #room :in the open")
        #expect(members[0].texts.last == "[not encrypted] in the open")
        world.send(members[0], "PRIVMSG #room :behind the gateway")
        #expect(members[1].texts.last == "behind the gateway")
        #expect(carol.messages.allSatisfy { !$0.contains("behind the gateway") })
        #expect(carol.messages.contains { $0.contains("?PAWL" + Notices.announcement()) })
        func outsiders() -> [String] {
            world.environment.rooms.outsiders { world.environment.roster.owner(ofFoldedNick: $0) != nil }
                .map { "\($0.nick) in \($0.room)" }
        }
        #expect(outsiders() == ["carol in #room"])
        let dave = world.connect("dave", direct: true)
        world.send(dave, "JOIN #elsewhere")
        world.send(members[0], "JOIN #elsewhere")
        world.send(carol, "NICK caroline")
        #expect(outsiders() == ["dave in #elsewhere"] || outsiders() == ["dave in #elsewhere", "carol in #room"])
        world.send(members[0], "KICK #elsewhere dave :out")
        world.send(carol, "PART #room")
        #expect(outsiders().filter { $0.contains("elsewhere") } == [])
    }

    @Test func aRoomHasAPolicyAndALatchOfItsOwn() throws {
        let world = try World(.opportunistic)
        let members = world.people(2)
        world.send(members[0], "PRIVMSG #room :in the open")
        #expect(world.canary.contains("in the open"))
        world.environment.policies.update { $0.accounts[.room("#room")] = .hosted }
        world.send(members[0], "PRIVMSG #ROOM :sealed by the room")
        #expect(members[1].texts == ["in the open", "sealed by the room"])
        world.environment.policies.update { $0.accounts[.room("#room")] = nil }
        // The latch holds, for everybody who speaks there.
        world.send(members[1], "PRIVMSG #room :still sealed")
        #expect(members[0].texts == ["still sealed"])
        #expect(!world.canary.contains("sealed by") && !world.canary.contains("still sealed"))
        world.environment.policies.update { $0.accounts[.room("#room")] = .required }
        world.send(members[1], "PRIVMSG #room :never")
        #expect(members[1].read.last?.contains(" 404 ") == true && !world.canary.contains("never"))
    }

    @Test func aRefusalOfTheBackendReachesTheSender() throws {
        let world = try World(.hosted)
        let members = world.people(2)
        world.send(members[0], "PRIVMSG #room :one")
        // The backend has put the member out and has not told it yet.
        world.backend.quietlyRemove(members[0].id, from: "#room")
        world.send(members[0], "PRIVMSG #room :two")
        #expect(members[0].read.last?.contains(" 404 ") == true)
        #expect(try world.store.requestCounts() == [.done: 1, .dead: 1])
    }

    @Test func whatSomeMembersHaveNotReadIsShownAfterARestart() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        var members = world.people(3, accounts: true)
        world.send(members[0], "PRIVMSG #room :read")
        world.diesBeforeSockets = true
        world.send(members[0], "PRIVMSG #room :not read")
        #expect(try !store.deliveries(of: .room("#room")).isEmpty)
        world = try World(.hosted, store: store, seed: 2, journal: world.journal)
        members = world.people(3, accounts: true)
        #expect(members[1].texts == ["not read"] && members[2].texts == ["not read"] && members[0].texts.isEmpty)
        // The sender's own line is nobody's to show again.
        world.send(members[1], "PRIVMSG #room :after")
        #expect(members[2].texts == ["not read", "after"])
        world.advance(seconds: 400)
        #expect(try store.deliveries(of: .room("#room")).isEmpty)
    }

    @Test func whatTheBackendNeverGotIsSentAgainWhenTheSenderIsBack() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        var members = world.people(2, accounts: true)
        world.send(members[0], "PRIVMSG #room :zero")
        world.backend.isStalled = true
        world.send(members[0], "PRIVMSG #room :one")
        world = try World(.hosted, store: store, seed: 2, journal: world.journal)
        let bob = world.connect("p1", account: "p1")
        world.send(bob, "JOIN #room")
        let alice = world.connect("p0", account: "p0")
        #expect(bob.texts.isEmpty)
        world.send(alice, "JOIN #room")
        world.send(alice, "PRIVMSG #room :two")
        world.advance(seconds: 1)
        #expect(bob.texts == ["one", "two"])
        members = []
        #expect(try store.requestCounts() == [.done: 3])
    }

    @Test func aMessageThatIsDroppedIsAGapAndOneToAnEmptyRoomIsNone() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        let bob = world.connect("bob")
        world.send(bob, "JOIN #room")
        world.send(alice, "PRIVMSG #room :one")
        world.send(bob, "PART #room")
        world.send(alice, "PRIVMSG #room :to nobody")
        world.send(bob, "JOIN #room")
        world.send(alice, "PRIVMSG #room :two")
        #expect(bob.messages.allSatisfy { !$0.contains("lost") })
        world.backend.relay = { _ in [] }
        world.send(alice, "PRIVMSG #room :dropped")
        world.backend.relay = { [$0] }
        world.advance(seconds: 30)
        #expect(alice.wasNotified(Notices.unopened(target: "#room")))
        world.send(alice, "PRIVMSG #room :three")
        #expect(bob.messages.contains { $0.contains(Notices.gap(1, from: "alice")) })
        #expect(bob.texts == ["one", "two", "three"])
    }

    /// People come and go at random; what is said is read by exactly those whom the backend has in the room.
    @Test(arguments: 0..<20) func churn(_ seed: UInt64) throws {
        let world = try World(.hosted, offers: seed % 2 == 0 ? nil : SimulatedBackend.modern, seed: seed)
        var random = SeededGenerator(seed: seed &+ 77)
        func roll(_ sides: Int) -> Int {
            var value: UInt32 = 0
            withUnsafeMutableBytes(of: &value) { random.fill($0) }
            return Int(value >> 8) % sides
        }
        let clients = (0..<8).map { world.connect("p\($0)", account: $0 < 4 ? "p\($0)" : nil) }
        var expected = [[String]](repeating: [], count: clients.count)
        for step in 0..<120 {
            let who = roll(clients.count)
            let members = world.backend.rooms["#room", default: []]
            let isMember = members.contains(clients[who].id)
            switch roll(6) {
            case 0: world.send(clients[who], "JOIN #room")
            case 1: if isMember { world.send(clients[who], "PART #room") }
            case 2: world.backend.kick(clients[who].id, from: "#room", by: clients[roll(8)].id)
            default:
                world.send(clients[who], "PRIVMSG #room :step \(step)")
                guard isMember else { continue }
                for (number, client) in clients.enumerated() where number != who && members.contains(client.id) {
                    expected[number].append("step \(step)")
                }
            }
            world.settle()
        }
        for (number, client) in clients.enumerated() { #expect(client.texts == expected[number]) }
        #expect(!world.canary.contains("step "))
    }
}
