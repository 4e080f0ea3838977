import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Protection
import Reports
import RequestQueue
import StorePort
import TestKit
import Testing
import Vault

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

    private func send(_ index: Int, _ text: String) {
        [alice, bob, carol][index].send(people[index], "PRIVMSG #room :\(text)")
    }

    @Test func aRoomInWhichEverybodyCanReadIsProtected() {
        let before = alice.backend.seen.count
        send(0, "secret one")
        let lines = alice.backend.seen.dropFirst(before).filter { $0.contains("?PAWL") }
        // A letter with the key to each, and the message itself, once.
        #expect(lines.filter { $0.contains("PRIVMSG #room") }.count == 1)
        #expect(lines.filter { $0.contains("NOTICE") }.count == 2)
        send(1, "secret two")
        send(0, "secret three")
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] secret two", "[e2e] secret three"])
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret three"])
        #expect(!alice.canary.contains("secret"))
        // Said in the room's own window, once, and nothing is latched.
        let words = ":srv NOTICE #room :*** What you say in #room is end-to-end encrypted for 2 others"
        #expect(people.allSatisfy { $0.read.count { $0.hasPrefix(words) } == 1 })
        #expect([alice, bob, carol].allSatisfy { $0.environment.latches.latch(of: .ofRoom("#room")) == .plaintext })
    }

    @Test func whoHasBeenRemovedCannotReadOn() {
        send(0, "secret one")
        alice.backend.kick(people[2].id, from: "#room", by: people[0].id)
        alice.settle()
        // A hostile server goes on delivering to the one who was removed.
        var forCarol: [String] = []
        alice.backend.relay = { line in
            if line.contains("PRIVMSG #room") { forCarol.append(line) }
            return [line]
        }
        send(0, "secret two")
        alice.backend.people[people[2].id]?.inbox += forCarol
        alice.settle()
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret two"])
        #expect(texts(people[2]) == ["[e2e] secret one"])
        #expect(!people[2].read.contains { $0.contains("secret two") })
    }

    /// A member that has the key asks for it, and is removed before it can be sent again: the others get a new one.
    @Test func whoHasAskedForTheKeyAndIsRemovedCannotReadOn() {
        send(0, "secret one")
        carol.run(people[2]) {
            let body = ControlMessage.senderKeyWanted(room: "#room").body
            people[2].machine.answered(.sidecar(.controlMessage(.nick("alice"), body)), at: carol.now, $0)
        }
        carol.settle()
        alice.backend.kick(people[2].id, from: "#room", by: people[0].id)
        alice.settle()
        let before = alice.backend.seen.count
        send(0, "secret two")
        #expect(alice.backend.seen.dropFirst(before).count { $0.contains("NOTICE bob :?PAWL:") } == 1)
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret two"])
        #expect(!people[2].read.contains { $0.contains("secret two") })
    }

    @Test func aRemovedMemberWhoGoesOnSendingIsWithheld() {
        send(2, "secret one")
        alice.backend.kick(people[2].id, from: "#room", by: people[0].id)
        alice.settle()
        var sent: [String] = []
        alice.backend.relay = { line in
            sent.append(line)
            return [line]
        }
        // Its own sidecar refuses; the server puts a line of before it there again, and under its name.
        send(2, "secret two")
        #expect(people[2].read.contains { $0.contains(" 404 ") })
        alice.backend.people[people[0].id]?.inbox.append(":carol!c@host.test PRIVMSG #room :in the clear")
        alice.settle()
        #expect(!texts(people[0]).contains { $0.contains("secret two") } && !alice.canary.contains("secret two"))
        #expect(people[0].read.contains { $0.contains("[not encrypted]") || $0.contains("withheld") })
    }

    // MARK: Plain again

    private func isProtected(_ world: World) -> Bool {
        world.environment.latches.latch(of: .ofRoom("#room")) > .plaintext
    }

    private func connectDave() -> World.Client {
        let dave = alice.connect("dave", direct: true)
        alice.send(dave, "JOIN #room")
        return dave
    }

    @Test func whoComesWithoutASidecarMakesTheRoomPlainAndEverybodyReadsItFirst() {
        send(0, "secret one")
        let dave = connectDave()
        let words = ":srv NOTICE #room :*** What you say in #room is not encrypted any more: no keys are known of dave."
        #expect(people.allSatisfy { $0.read.count { $0.hasPrefix(words) } == 1 })
        // Written before it could be read: it goes nowhere, and the room reads why the next one will.
        for text in ["secret two", "secret three"] { send(0, text) }
        #expect(people[0].read.count { $0.contains(" 404 ") && $0.contains(Notices.roomJustPlain("#room")) } == 2)
        #expect(!alice.canary.contains("secret"))
        for reader in [people[1], people[2], dave] {
            #expect(reader.read.count { $0.contains("NOTICE #room :?PAWL? Not encrypted from now on") } == 1)
        }
        for world in [alice, bob, carol] { world.advance(seconds: 6) }
        for index in 0..<3 { send(index, "plain \(index)") }
        #expect((0..<3).allSatisfy { index in dave.read.contains { $0.contains("PRIVMSG #room :plain \(index)") } })
        // One of them has announced it for all, and none of it looks sealed.
        #expect(dave.read.count { $0.contains("?PAWL") } == 1)
        #expect(texts(people[1]) == ["[e2e] secret one", "plain 0", "plain 2"])
        #expect(!isProtected(alice) && !isProtected(bob))
        // When dave has gone, it is sealed again.
        alice.send(dave, "PART #room")
        send(0, "secret again")
        #expect(texts(people[1]).last == "[e2e] secret again")
        #expect(!alice.canary.contains("secret"))
    }

    /// What was sealed is remembered: the first words after a restart are no exception.
    @Test func theNoticeSurvivesARestart() throws {
        send(0, "secret one")
        alice.close(people[0])
        let dave = connectDave()
        let again = try World(.opportunistic, store: alice.store, seed: 5, beside: carol, sidecar: true)
        let client = again.connect("alice")
        again.send(client, "JOIN #room")
        #expect(
            client.read.contains { $0.contains("NOTICE #room :*** What you say in #room is not encrypted any more") })
        again.send(client, "PRIVMSG #room :secret two")
        #expect(client.read.contains { $0.contains(" 404 ") } && !alice.canary.contains("secret"))
        again.advance(seconds: 6)
        again.send(client, "PRIVMSG #room :plain words")
        let announced = dave.read.firstIndex { $0.contains("?PAWL? Not encrypted from now on") }
        let sent = dave.read.firstIndex { $0.contains("plain words") }
        #expect(announced != nil && sent != nil && announced ?? 0 < sent ?? 0)
    }

    @Test func anotherNickMakesNothingPlain() {
        send(0, "secret one")
        carol.send(people[2], "NICK caroline")
        for reader in people.dropLast() { alice.backend.send(reader.id, ":carol!carol@host.test NICK caroline") }
        alice.settle()
        send(0, "secret two")
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] secret two"])
        // Who takes a nick that has become free is nobody known.
        carol.send(people[2], "PART #room")
        carol.send(people[2], "NICK carol")
        let dave = alice.connect("caroline", direct: true)
        alice.send(dave, "JOIN #room")
        #expect(people[0].wasNotified(Notices.roomPlain("#room", ["caroline"])))
    }

    @Test func aNewcomerWithASidecarReadsFromThenOn() throws {
        send(0, "secret one")
        let dora = try World(.opportunistic, seed: 4, beside: carol, sidecar: true)
        let client = dora.connect("dora")
        dora.send(client, "JOIN #room")
        // Refused; what the room reads instead lets dora's sidecar show itself.
        send(0, "secret two")
        #expect(
            people[0].read.contains { $0.contains(" 404 ") } && people[0].wasNotified(Notices.keysExchanged("dora")))
        send(0, "secret two")
        #expect(texts(client) == ["[e2e] secret two"])
        #expect(!alice.canary.contains("secret"))
    }

    // MARK: Protected

    private func ask(_ act: RoomRequest.Act, _ world: World, _ client: World.Client) {
        let job = RoomRequestJob(connection: client.machine.id, act: act, room: "#room")
        world.run(client) { client.machine.answered(.sidecar(.askRoom(job)), at: world.now, $0) }
        world.settle()
    }

    @Test func aRoomIsProtectedOnRequestByWhoeverAccepts() {
        send(0, "secret one")
        ask(.protect, alice, people[0])
        #expect(isProtected(alice) && !isProtected(bob) && !isProtected(carol))
        for reader in people.dropFirst() {
            #expect(reader.read.count { $0.hasPrefix(":srv NOTICE #room :*** alice asks you to protect #room") } == 1)
            #expect(reader.wasNotified(Notices.asks("alice", .protect, "#room")))
        }
        ask(.protect, bob, people[1])
        #expect(isProtected(bob) && !isProtected(carol))
        #expect(!people[0].wasNotified("bob asks you"))
        let dave = connectDave()
        for text in ["secret two", "secret three"] {
            send(0, text)
            send(1, text)
        }
        #expect(people[0].wasNotified(Notices.roomOutsiders("#room", ["dave"], isProtected: true)))
        // Words come before the first envelope, and once.
        let lines = dave.read.filter { $0.contains(" #room :?PAWL") }
        #expect(lines.first?.contains("NOTICE #room :?PAWL? Encrypted end-to-end messages are sent") == true)
        #expect(lines.count { $0.contains("?PAWL?") } == 1 && lines.count == 5)
        #expect(!alice.canary.contains("secret"))
        // Carol has not followed: her words are plain, and those who protect the room are not shown them.
        for world in [alice, bob, carol] { world.advance(seconds: 6) }
        send(2, "from carol")
        #expect(dave.read.contains { $0.contains("PRIVMSG #room :from carol") })
        for reader in people.dropLast() {
            #expect(!texts(reader).contains { $0.contains("from carol") })
            #expect(reader.wasNotified(Notices.withheld(from: "carol", inRoom: "#room")))
        }
        alice.send(dave, "PRIVMSG #room :from dave")
        #expect(texts(people[0]).last == "[not encrypted] from dave")
        let rows = try? alice.store.auditLog(limit: 10)
        #expect(rows?.contains { $0.action == "sidecar" && $0.detail == "protect #room" } == true)
    }

    @Test func theWayBackIsARequestAsWell() {
        for (world, client) in zip([alice, bob, carol], people) { ask(.protect, world, client) }
        let dave = connectDave()
        send(0, "secret one")
        ask(.plain, alice, people[0])
        #expect(!isProtected(alice) && isProtected(bob) && isProtected(carol))
        #expect(people[1].wasNotified(Notices.asks("alice", .plain, "#room")))
        ask(.plain, bob, people[1])
        #expect(people[0].wasNotified(Notices.roomPlain("#room", ["dave"])))
        send(0, "secret refused")
        alice.advance(seconds: 6)
        send(0, "plain words")
        #expect(dave.read.contains { $0.contains("plain words") } && !dave.read.contains { $0.contains("secret") })
        #expect(texts(people[1]).last == "plain words")
        #expect(people[2].wasNotified(Notices.withheld(from: "alice", inRoom: "#room")))
        let rows = try? alice.store.auditLog(limit: 10)
        #expect(rows?.contains { $0.action == "sidecar" && $0.detail == "plain #room" } == true)
    }

    /// Readers who come after the decision get the request with the first message that is for them.
    @Test func aLaterReaderIsAsked() throws {
        let dora = try World(.opportunistic, seed: 4, beside: carol, sidecar: true)
        let client = dora.connect("dora")
        alice.send(people[0], "PRIVMSG dora :hello")
        ask(.protect, alice, people[0])
        dora.send(client, "JOIN #room")
        send(0, "secret one")
        send(0, "secret two")
        #expect(client.read.count { $0.contains("alice asks you to protect #room") } == 1)
        #expect(people[1].read.count { $0.contains("alice asks you to protect #room") } == 1)
        #expect(texts(client) == ["[e2e] secret one", "[e2e] secret two"])
    }

    /// What bob's own vault signs, without its being sent.
    private func signed(_ act: RoomRequest.Act, network: String = "") throws -> Body {
        var job = RoomRequestJob(connection: people[1].machine.id, act: act, room: "#room")
        job.network = network
        job.nicks = []
        let batch = bob.participants.prepare([.sidecar(.askRoom(job))], now: bob.now)
        let committed = try bob.store.commit(batch.groups)
        for reply in bob.participants.complete(batch, committed: committed, now: bob.now) {
            if case .sidecar(.roomAsked(_, let body?)) = reply.reply { return body }
        }
        throw StoreError.corrupt("Nothing was signed.")
    }

    private func receiveControl(_ body: Body) {
        bob.run(people[1]) {
            people[1].machine.answered(.sidecar(.controlMessage(.nick("alice"), body)), at: bob.now, $0)
        }
        bob.settle()
    }

    private var requests: Int { people[0].read.count { $0.contains(Notices.asks("bob", .protect, "#room")) } }

    @Test func aRequestCountsOnceForItsRoomItsNetworkAndItsSigner() throws {
        send(1, "secret one")
        // Another network's, and one that somebody else has signed.
        receiveControl(try signed(.protect, network: "elsewhere"))
        #expect(
            requests == 0 && people[0].wasNotified(Notices.requestElsewhere("bob", "#room")))
        var random = SeededGenerator(seed: 99)
        let stranger = IdentityKeyPair(random: &random)
        let device = try #require(bob.environment.peers?.own?.device)
        let forged = RoomRequest(
            act: .protect, number: Int64.max, room: "#room", network: "", device: device, identity: stranger)
        receiveControl(ControlMessage.roomRequest(forged).body)
        #expect(requests == 0 && alice.environment.tally[.openNotAuthentic] == 1)
        // The number of the forged one was not taken: a genuine one counts, and once.
        let genuine = try signed(.protect)
        receiveControl(genuine)
        #expect(requests == 1)
        alice.advance(seconds: 7200)
        bob.advance(seconds: 7200)
        receiveControl(genuine)
        #expect(requests == 1)
        // Of a room in which the two are not both, nothing is shown.
        bob.send(people[1], "PART #room")
        receiveControl(try signed(.protect))
        #expect(requests == 1)
        #expect(!isProtected(alice))
    }

    @Test func aDecisionThatIsNotStoredIsNone() {
        alice.store.failNextCommit()
        ask(.protect, alice, people[0])
        #expect(!isProtected(alice) && !people[1].wasNotified("asks you to protect"))
        ask(.protect, alice, people[0])
        alice.store.failNextCommit()
        ask(.plain, alice, people[0])
        #expect(isProtected(alice) && !people[1].wasNotified("no longer"))
        // And it goes on being stored: a later latch is not taken for one that is there.
        ask(.plain, alice, people[0])
        #expect(!isProtected(alice))
        ask(.protect, alice, people[0])
        #expect(isProtected(alice))
        let rows = try? alice.store.conversations(limit: 10)
        #expect(rows?.contains { $0.id == .ofRoom("#room") } == true)
    }

    @Test func keysOutliveARestart() throws {
        send(0, "secret one")
        bob.close(people[1])
        let again = try World(.opportunistic, store: bob.store, seed: 5, beside: carol, sidecar: true)
        let client = again.connect("bob")
        again.send(client, "JOIN #room")
        send(0, "secret two")
        again.send(client, "PRIVMSG #room :secret three")
        #expect(texts(client) == ["[e2e] secret two"])
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] secret two", "[e2e] secret three"])
    }

    /// A member's device has made the record of its session unreadable: the room stays usable, and that member is treated as one
    /// without keys until a session is begun anew.
    @Test func anUnreadableRecordOfOneMemberBlocksNobodyElse() throws {
        send(0, "secret one")
        let own = try #require(alice.environment.peers?.own?.device)
        let peer = try #require(alice.environment.peers?[.nick("bob")]?.deviceList.current.first?.id)
        let id = SessionID(owner: own, peer: peer, in: .only)
        let row = try #require(try alice.store.session(id))
        let damaged = SessionRow(id: id, fence: row.fence + 1, sealedState: [1, 2, 3])
        #expect(try alice.store.commit([[.putSession(damaged)]]) == [nil])
        alice.close(people[0])
        let again = try World(.opportunistic, store: alice.store, seed: 11, beside: carol, sidecar: true)
        let client = again.connect("alice")
        again.send(client, "JOIN #room")
        again.send(client, "PRIVMSG #room :secret two")
        #expect(again.participants.unreadable == [id])
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
        send(1, "secret one")
        let members = ["alice", "carol"].map { SealJob.Member(account: .nick($0), nick: $0, capacity: 380) }
        var job = SealJob(
            connection: people[1].machine.id, ticket: 1_000_000, sender: .own, recipient: .room("#room"),
            target: "#room",
            senderName: "bob", recipientName: "#room", verb: "PRIVMSG", body: Body(kind: .control, text: [1]),
            capacity: 380)
        job.members = members
        let batch = bob.participants.prepare([.seal(job)], now: bob.now)
        var sealed: [[UInt8]] = []
        for reply in bob.participants.complete(batch, committed: try bob.store.commit(batch.groups), now: bob.now) {
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
        send(0, "secret one")
        alice.backend.relay = { [$0] }
        #expect(people[1].read.contains { $0.contains(Notices.failure(.keyMissing, from: "alice") ?? "") })
        send(0, "secret two")
        #expect(texts(people[1]) == ["[e2e] secret two"])
    }

    /// What the server took and relayed to nobody is told, although the room has another key by then: servers lost each other,
    /// and one side saw the other's people go.
    @Test(arguments: [false, true]) func aGapIsReportedAcrossKeys(_ speakerRestarts: Bool) throws {
        send(0, "secret one")
        alice.backend.relay = { $0.contains("PRIVMSG #room") ? [] : [$0] }
        send(0, "secret two")
        send(0, "secret three")
        alice.backend.relay = { [$0] }
        bob.send(people[1], "PART #room")
        send(0, "without bob")
        var (world, speaker) = (alice, people[0])
        if speakerRestarts {
            alice.close(people[0])
            world = try World(.opportunistic, store: alice.store, seed: 5, beside: carol, sidecar: true)
            speaker = world.connect("alice")
            world.send(speaker, "JOIN #room")
        }
        bob.send(people[1], "JOIN #room")
        world.send(speaker, "PRIVMSG #room :secret four")
        func lossNotices(_ client: World.Client) -> [String] { client.read.filter { $0.contains("lost on") } }
        #expect(texts(people[1]) == ["[e2e] secret one", "[e2e] secret four"])
        #expect(texts(people[2]) == ["[e2e] secret one", "[e2e] without bob", "[e2e] secret four"])
        for reader in [people[1], people[2]] {
            #expect(
                lossNotices(reader).count == 1
                    && lossNotices(reader).allSatisfy { $0.contains("2 messages from alice") })
        }
        #expect(bob.environment.tally[.gaps] == 2)
        // Nobody has missed anything since.
        bob.send(people[1], "PART #room")
        world.send(speaker, "PRIVMSG #room :without bob")
        bob.send(people[1], "JOIN #room")
        world.send(speaker, "PRIVMSG #room :secret five")
        for reader in [people[1], people[2]] {
            #expect(texts(reader).last == "[e2e] secret five" && lossNotices(reader).count == 1)
        }
    }
}
