import CommitLoop
import DeviceDirectory
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

/// What memory holds after the store has refused a batch, or a part of one.
@Suite struct FailedCommitTests {
    private let names = [AccountID.services("alice"), .services("bob"), .services("carol")]

    /// A world with alice, bob and carol, whose first message was not stored.
    private func afterAFailedFirst(_ store: InMemoryStore) throws -> (World, alice: World.Client, bob: World.Client) {
        let world = try World(.hosted, store: store)
        let people = ["alice", "bob"].map { world.connect($0, account: $0) }
        store.failNextCommit()
        world.send(people[0], "PRIVMSG bob :lost to the disk")
        #expect(people[0].read.contains { $0.contains(Notices.notCommitted(target: "bob")) })
        #expect(!world.canary.contains("?PAWL:"))
        return (world, people[0], people[1])
    }

    @Test func theNextMessageRaisesAndStoresTheLatch() throws {
        let store = InMemoryStore()
        let (world, alice, bob) = try afterAFailedFirst(store)
        let conversation = ConversationID(names[0], names[1])
        #expect(world.environment.latches.latch(of: conversation) == .plaintext)
        world.send(alice, "PRIVMSG bob :two")
        #expect(bob.messages.contains { $0.hasSuffix(":two") })
        #expect(world.environment.latches.latch(of: conversation) == .gateway)
        #expect(try store.conversations(limit: 9).map(\.id) == [conversation])
        // So it holds after a restart as well, whatever the policy is by then.
        let again = try World(.observe, store: store, seed: 2)
        let (writer, reader) = (again.connect("alice", account: "alice"), again.connect("bob", account: "bob"))
        again.send(writer, "PRIVMSG bob :number three")
        #expect(reader.messages.contains { $0.hasSuffix(":number three") })
        #expect(!again.canary.contains("number three"))
    }

    /// The backend sends a message once: one that the store did not take is opened when it does, in its place.
    @Test func anOpeningThatIsNotStoredIsTriedAgain() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let people = ["alice", "bob"].map { world.connect($0, account: $0) }
        world.send(people[0], "PRIVMSG bob :zero")
        world.backend.isStalled = true
        for text in ["one", "two"] { world.send(people[0], "PRIVMSG bob :\(text)") }
        world.failsNextOpen = true
        world.backend.resume()
        world.settle()
        #expect(!world.failsNextOpen && people[1].texts == ["zero"])
        world.advance(seconds: 1)
        #expect(people[1].texts == ["zero", "one", "two"])
        #expect(!people[1].read.contains { $0.contains("could not be shown") })
        #expect(world.environment.tally[.openStore] == 0)
    }

    /// Backends disconnect a client whose PONG is late, and the PING would wait behind the envelope.
    @Test func aPINGIsAnsweredWhileAnOpeningIsTriedAgain() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let people = ["alice", "bob"].map { world.connect($0, account: $0) }
        world.failsNextOpen = true
        world.send(people[0], "PRIVMSG bob :one")
        #expect(!world.failsNextOpen && people[1].texts.isEmpty)
        world.backend.send(people[1].id, "PING :still there")
        world.settle()
        #expect(world.backend.seen.last == "PONG :still there")
        // A client takes a connection without an answer to its own PING for dead.
        world.send(people[1], "PING LAG1")
        #expect(people[1].read.contains { $0.contains("PONG") && $0.hasSuffix("LAG1") } && people[1].texts.isEmpty)
        world.advance(seconds: 1)
        #expect(people[1].texts == ["one"] && !people[1].read.contains { $0.hasPrefix("PING") })
        world.backend.send(people[1].id, "PING :again")
        world.settle()
        #expect(people[1].read.last == "PING :again", "the client answers")
    }

    /// A later message that is opened before one that is tried again would look like a gap.
    @Test func aSidecarOpensMessagesInOrder() throws {
        let (alice, bob) = try World.sidecars()
        let (writer, reader) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(writer, "PRIVMSG bob :hello")
        alice.send(writer, "PRIVMSG bob :zero")
        bob.failsNextOpen = true
        for text in ["one", "two"] { alice.send(writer, "PRIVMSG bob :\(text)") }
        #expect(!bob.failsNextOpen && reader.texts == ["hello", "[e2e] zero"])
        bob.advance(seconds: 1)
        #expect(reader.texts == ["hello", "[e2e] zero", "[e2e] one", "[e2e] two"])
        #expect(!reader.read.contains { $0.contains(Notices.gap(1, from: "alice")) })
    }

    /// The latch of messages that the gateway has sealed stays when a rise to end-to-end is not stored.
    @Test func aRiseThatIsNotStoredLeavesTheLatchBeforeIt() throws {
        let store = InMemoryStore()
        let conversation = ConversationID(names[0], names[1])
        let row = ConversationRow(
            id: conversation, latch: .gateway, since: 1, peerNameForFirst: "bob", peerNameForSecond: "alice")
        _ = try store.commit([[.putConversation(row)]])
        var changes: [StoreChange] = []
        var participants = try IRCParticipants(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: LatchTable(), rooms: RoomTable(), openedMessages: OpenedMessages(), requestAge: 300_000,
            pendingLimit: 256, now: Timestamp(monotonic: 1, wall: 1), random: SeededGenerator(seed: 3),
            role: .front(DirectoryCache()), wasDelivered: { _ in false }, changes: &changes)
        let now = Timestamp(monotonic: 2, wall: 2)
        let rise = participants.prepare([.protect(conversation, names: ("alice", "bob"))], now: now)
        #expect(rise.groups.contains { $0.changes.contains(where: \.isConversation) })
        _ = participants.complete(rise, committed: nil, now: now)
        let job = SealJob(
            connection: ConnectionID(1), ticket: 1, sender: names[0], recipient: names[1], target: "bob",
            senderName: "alice", recipientName: "bob", verb: "PRIVMSG", body: Body(text: [1]), capacity: 380)
        let next = participants.prepare([.seal(job)], now: now)
        #expect(!next.groups.contains { $0.changes.contains(where: \.isConversation) })
    }

    @Test func theNextMessageStoresTheDevicesAndSessions() throws {
        let store = InMemoryStore()
        let (world, alice, bob) = try afterAFailedFirst(store)
        world.send(alice, "PRIVMSG bob :two")
        #expect(bob.messages.contains { $0.hasSuffix(":two") })
        let rows = try store.load().devices
        #expect(Set(rows.map(\.account)) == Set(names.prefix(2)))
        // What was sealed on its way to a restart is opened behind it.
        let again = try World(.hosted, store: store, seed: 2)
        let (writer, reader) = (again.connect("alice", account: "alice"), again.connect("bob", account: "bob"))
        again.send(writer, "PRIVMSG bob :number three")
        #expect(reader.messages.contains { $0.hasSuffix(":number three") })
        #expect(again.environment.tally[.openUnknownSender] == 0)
        #expect(Set(try store.load().devices.map(\.id)) == Set(rows.map(\.id)), "the devices are the same ones")
    }

    /// Another gateway has gone on with a session: what this one has sealed in it does not count, everything else does.
    @Test func aFencedSessionFailsItsOwnStepOnly() throws {
        let store = InMemoryStore()
        let world = try World(.hosted, store: store)
        let people = ["alice", "bob", "carol"].map { world.connect($0, account: $0) }
        for name in ["bob", "carol"] { world.send(people[0], "PRIVMSG \(name) :one") }
        let devices = try store.load().devices
        let ids = try names.map { name in try #require(devices.first { $0.account == name }?.id) }
        let session = SessionID(
            owner: ids[0], peer: ids[1], in: store.sharding.shard(from: .services("alice"), to: .services("bob")))
        let row = try #require(try store.session(session))
        let theirs = SessionRow(id: session, fence: row.fence + 9, sealedState: row.sealedState)
        #expect(try store.commit([[.putSession(theirs)]]) == [nil])
        let sent = world.backend.seen.count { $0.contains("?PAWL:") }
        world.send(people[0], bytes: Array("PRIVMSG bob :fenced\r\nPRIVMSG carol :two\r\n".utf8))
        #expect(people[2].messages.contains { $0.hasSuffix(":two") })
        #expect(!people[1].messages.contains { $0.hasSuffix(":fenced") })
        #expect(people[0].read.contains { $0.contains(Notices.notCommitted(target: "bob")) })
        #expect(world.backend.seen.count { $0.contains("?PAWL:") } == sent + 1)
        #expect(try store.requests(states: [.pending], limit: 9).isEmpty, "nothing is sent again later")
        #expect(try store.session(session) == theirs)
    }
}

extension StoreChange {
    fileprivate var isConversation: Bool { if case .rare(.putConversation) = self { true } else { false } }
}
