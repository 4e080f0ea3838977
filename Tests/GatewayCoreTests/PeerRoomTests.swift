import Envelope
import Testing

@testable import GatewayCore

/// Rooms of people behind sidecars of their own, on a server without a gateway.
@Suite struct PeerRoomTests {
    let alice: World
    let bob: World
    let carol: World
    let people: [World.Client]

    init() throws {
        alice = try World(.opportunistic, seed: 1, sidecar: true)
        bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        carol = try World(.opportunistic, seed: 3, beside: bob, sidecar: true)
        people = [alice.connect("alice"), bob.connect("bob"), carol.connect("carol")]
        for (world, client) in zip([alice, bob, carol], people) { world.send(client, "JOIN #room") }
        // The first line of each is plain, and shows the others that they can have keys.
        for (world, client) in zip([alice, bob, carol], people) { world.send(client, "PRIVMSG #room :hello") }
    }

    private func texts(_ client: World.Client) -> [String] {
        client.read.filter { $0.contains(" PRIVMSG #room ") }
            .map { String($0.split(separator: ":", maxSplits: 2).last ?? "") }.filter { !$0.hasSuffix("hello") }
    }

    private func say(_ index: Int, _ text: String) {
        [alice, bob, carol][index].send(people[index], "PRIVMSG #room :\(text)")
    }

    @Test func aRoomInWhichEverybodyCanReadIsProtected() {
        let before = alice.backend.seen.count
        say(0, "secret one")
        let lines = alice.backend.seen.dropFirst(before).filter { $0.contains("?PAWL") }
        // A letter with the key to each, and the message itself, once.
        #expect(lines.filter { $0.contains("PRIVMSG #room") }.count == 1)
        #expect(lines.filter { $0.contains("NOTICE") }.count == 2)
        say(1, "secret two")
        say(0, "secret three")
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] secret two", "[e2e] secret three"])
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret three"])
        #expect(!alice.canary.contains("secret"))
        #expect(people[0].read.contains { $0.contains("in #room is end-to-end encrypted from now on, for 2 others") })
    }

    @Test func whoHasBeenRemovedCannotReadOn() {
        say(0, "secret one")
        alice.backend.kick(people[2].id, from: "#room", by: people[0].id)
        alice.settle()
        // A hostile server goes on delivering to the one who was removed.
        var forCarol: [String] = []
        alice.backend.relay = { line in
            if line.contains("PRIVMSG #room") { forCarol.append(line) }
            return [line]
        }
        say(0, "secret two")
        alice.backend.people[people[2].id]?.inbox += forCarol
        alice.settle()
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret two"])
        #expect(texts(people[2]) == ["[e2e] secret one"])
        #expect(!people[2].read.contains { $0.contains("secret two") })
    }

    @Test func aRemovedMemberWhoGoesOnSendingIsWithheld() {
        say(2, "secret one")
        alice.backend.kick(people[2].id, from: "#room", by: people[0].id)
        alice.settle()
        var sent: [String] = []
        alice.backend.relay = { line in
            sent.append(line)
            return [line]
        }
        // Its own sidecar refuses; the server puts a line of before it there again, and under its name.
        say(2, "secret two")
        #expect(people[2].read.contains { $0.contains(" 404 ") })
        alice.backend.people[people[0].id]?.inbox.append(":carol!c@host.test PRIVMSG #room :in the clear")
        alice.settle()
        #expect(!texts(people[0]).contains { $0.contains("secret two") })
        #expect(people[0].read.contains { $0.contains("[not encrypted]") || $0.contains("withheld") })
    }

    @Test func anOutsiderReadsNothingAndIsNamed() {
        say(0, "secret one")
        let dave = alice.connect("dave", direct: true)
        alice.send(dave, "JOIN #room")
        say(0, "secret two")
        #expect(people[0].read.contains { $0.contains("In #room these cannot read what you say: dave") })
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret two"])
        #expect(!dave.read.contains { $0.contains("secret") })
        alice.send(dave, "PRIVMSG #room :what is this?")
        #expect(texts(people[1]).last?.contains("what is this?") == true)
    }

    @Test func aNewcomerReadsFromThenOn() throws {
        say(0, "secret one")
        let dora = try World(.opportunistic, seed: 4, beside: carol, sidecar: true)
        let client = dora.connect("dora")
        dora.send(client, "JOIN #room")
        say(0, "secret two")
        say(0, "secret three")
        // The line that came before the keys cannot be read; from it the two sidecars learn of each other.
        #expect(texts(client).last == "[e2e] secret three")
        #expect(!texts(client).contains("[e2e] secret one"))
        dora.send(client, "PRIVMSG #room :secret four")
        #expect(texts(people[0]).contains("[e2e] secret four"))
        #expect(!alice.canary.contains("secret"))
    }

    @Test func keysOutliveARestart() throws {
        say(0, "secret one")
        bob.close(people[1])
        let again = try World(.opportunistic, store: bob.store, seed: 5, beside: carol, sidecar: true)
        let client = again.connect("bob")
        again.send(client, "JOIN #room")
        say(0, "secret two")
        again.send(client, "PRIVMSG #room :secret three")
        #expect(texts(client) == ["[e2e] secret two"])
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] secret two", "[e2e] secret three"])
    }

    /// A member's device has made the record of its session unreadable: the room stays usable, and that member is treated as one
    /// without keys until a session is begun anew.
    @Test func anUnreadableRecordOfOneMemberBlocksNobodyElse() throws {
        say(0, "secret one")
        let own = try #require(alice.environment.peers?.own?.device)
        let peer = try #require(alice.environment.peers?[.nick("bob")]?.chain.current.first?.id)
        let id = SessionID(owner: own, peer: peer)
        let row = try #require(try alice.store.session(id))
        let damaged = SessionRow(id: id, fence: row.fence + 1, sealedState: [1, 2, 3])
        #expect(try alice.store.commit([[.putSession(damaged)]]) == [nil])
        alice.close(people[0])
        let again = try World(.opportunistic, store: alice.store, seed: 11, beside: carol, sidecar: true)
        let client = again.connect("alice")
        again.send(client, "JOIN #room")
        again.send(client, "PRIVMSG #room :secret two")
        #expect(again.vault.unreadable == [id])
        #expect(!client.read.contains { $0.contains("could not store") })
        #expect(texts(people[2]).last == "[e2e] secret two")
        // Both write to each other again as soon as they have exchanged keys.
        bob.send(people[1], "PRIVMSG alice :secret three")
        again.send(client, "PRIVMSG bob :secret four")
        #expect(client.shown(from: "bob").last == "[e2e] secret three")
        #expect(people[1].shown(from: "alice").last == "[e2e] secret four")
        again.send(client, "PRIVMSG #room :secret five")
        #expect(texts(people[1]).last == "[e2e] secret five")
        #expect(!again.canary.contains("secret"))
    }

    /// A message that is authentic and makes no sense has moved its key on: its row as well, so that a copy does not open again
    /// behind a restart.
    @Test func aMessageThatMakesNoSenseIsOpenedOnce() throws {
        say(1, "secret one")
        let members = ["alice", "carol"].map { SealJob.Member(account: .nick($0), nick: $0, capacity: 380) }
        var job = SealJob(
            connection: people[1].session.id, ticket: 1_000_000, sender: .own, recipient: .room("#room"),
            target: "#room",
            senderName: "bob", recipientName: "#room", verb: "PRIVMSG", body: Body(kind: .control, text: [1]),
            capacity: 380)
        job.members = members
        let batch = bob.vault.perform([.seal(job)], now: bob.now)
        var sealed: [[UInt8]] = []
        for reply in bob.vault.settle(batch, committed: try bob.store.commit(batch.groups), now: bob.now) {
            if case .sealed(_, let request, _, _) = reply.reply { sealed = request.bodies }
        }
        let lines = sealed.map { ":bob!bob@host.test PRIVMSG #room :" + String(decoding: $0, as: UTF8.self) }
        #expect(!lines.isEmpty)
        alice.forge(people[0], lines)
        #expect(alice.environment.tally[.openMalformed] == 1)
        alice.close(people[0])
        let again = try World(.opportunistic, store: alice.store, seed: 11, beside: carol, sidecar: true)
        let client = again.connect("alice")
        again.send(client, "JOIN #room")
        again.forge(client, lines)
        #expect(again.environment.tally[.openMalformed] == 0)
    }

    @Test func aKeyThatWasLostIsAskedFor() {
        alice.backend.relay = { $0.contains("NOTICE bob") ? [] : [$0] }
        say(0, "secret one")
        alice.backend.relay = { [$0] }
        #expect(people[1].read.contains { $0.contains("the key for this room has not come") })
        say(0, "secret two")
        #expect(texts(people[1]) == ["[e2e] secret two"])
    }

    /// What the server took and relayed to nobody is told, although the room has another key by then: servers lost each other,
    /// and one side saw the other's people go.
    @Test(arguments: [false, true]) func aGapIsToldAcrossKeys(_ speakerRestarts: Bool) throws {
        say(0, "secret one")
        alice.backend.relay = { $0.contains("PRIVMSG #room") ? [] : [$0] }
        say(0, "secret two")
        say(0, "secret three")
        alice.backend.relay = { [$0] }
        bob.send(people[1], "PART #room")
        say(0, "without bob")
        var (world, speaker) = (alice, people[0])
        if speakerRestarts {
            alice.close(people[0])
            world = try World(.opportunistic, store: alice.store, seed: 5, beside: carol, sidecar: true)
            speaker = world.connect("alice")
            world.send(speaker, "JOIN #room")
        }
        bob.send(people[1], "JOIN #room")
        world.send(speaker, "PRIVMSG #room :secret four")
        func told(_ client: World.Client) -> [String] { client.read.filter { $0.contains("lost on") } }
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret four"])
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] without bob", "[e2e] secret four"])
        for reader in [people[1], people[2]] {
            #expect(told(reader).count == 1 && told(reader).allSatisfy { $0.contains("2 messages from alice") })
        }
        #expect(bob.environment.tally[.gaps] == 2)
        // Nobody has missed anything since.
        bob.send(people[1], "PART #room")
        world.send(speaker, "PRIVMSG #room :without bob")
        bob.send(people[1], "JOIN #room")
        world.send(speaker, "PRIVMSG #room :secret five")
        for reader in [people[1], people[2]] {
            #expect(texts(reader).last == "[e2e] secret five" && told(reader).count == 1)
        }
    }
}
