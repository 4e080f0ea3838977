import Envelope
import IRCCodec
import IRCGateway
import Outbox
import Protection
import RequestQueue
import StoreConformance
import StorePort
import Testing

/// Messages to IRC in the queue: who sends them, how often it was tried, and that the queue's rows and the ratchet's are one commit.
@Suite struct QueuedMessageTests {
    /// - Parameter pause: seconds that a slow backend takes to let somebody in.
    private func people(_ world: World, pause: Double = 0) -> (alice: World.Client, bob: World.Client) {
        let people = (world.connect("alice", account: "alice"), world.connect("bob", account: "bob"))
        world.advance(seconds: pause)
        world.send(people.0, "PRIVMSG bob :zero")
        world.advance(seconds: pause)
        return people
    }

    /// One whose backend takes a line a second, so that some of what is said waits in the connection.
    private func pacedWorld() throws -> World {
        try World(.hosted, offers: SimulatedBackend.modern) {
            $0.flood = Pacer.Limit(burst: 2, linesPerSecond: 1)
        }
    }

    private func queued(_ world: World, _ id: UInt64) throws -> QueuedRequest {
        try #require(try world.store.queuedRequest(id))
    }

    /// A gateway that dies while the backend has a message knows that it was tried, and tries again.
    @Test func anAttemptOutlivesTheProcess() throws {
        let store = InMemoryStore()
        var id: UInt64 = 0
        do {
            let world = try World(.hosted, offers: SimulatedBackend.modern, store: store)
            let (alice, _) = people(world)
            world.backend.isStalled = true
            world.send(alice, "PRIVMSG bob :one")
            id = try #require(try world.ids(.pending).first)
            let row = try queued(world, id)
            #expect(row.state == .inFlight && row.attempts == 1 && row.lane == AccountID.services("bob").text)
            #expect(try world.store.request(id)?.attempts == 1)
        }
        for round in 1...3 {
            let world = try World(
                .hosted, offers: SimulatedBackend.modern, store: store, seed: UInt64(round) + 1)
            let before = try queued(world, id)
            #expect(before.state == .pending && before.attempts == round && before.crashes == round)
            let (bob, alice) = (world.connect("bob", account: "bob"), world.connect("alice"))
            world.backend.isStalled = round < 3
            world.backend.login(alice.id, "alice")
            world.settle()
            world.advance(seconds: 1)
            #expect(bob.texts == (round < 3 ? [] : ["one"]))
        }
        let world = try World(.hosted, store: store, seed: 9)
        let done = try queued(world, id)
        #expect(done.state == .done && done.attempts == 4)
        #expect(try world.addsUp())
    }

    /// What a connection was given and has not begun is no attempt. Another connection of the account, which may be elsewhere and
    /// under another nick, does not say it; the next login does.
    @Test func requestsThatAConnectionHasLeftAreSentAtTheNextLogin() throws {
        let world = try pacedWorld()
        let (alice, bob) = people(world, pause: 60)
        let second = world.connect("alice2", account: "alice")
        world.advance(seconds: 60)
        for number in 1...5 { world.send(alice, "PRIVMSG bob :\(number)") }
        let last = try #require(try world.ids(.pending).last)
        #expect(!world.environment.requests.gate.hasBegun(last))
        world.close(alice)
        #expect(try queued(world, last).attempts == 0)
        world.advance(seconds: 60)
        world.send(second, "PRIVMSG bob :6")
        world.advance(seconds: 10)
        #expect(bob.texts.last == "6" && bob.texts.count < 7)
        world.connect("alice", account: "alice")
        world.advance(seconds: 60)
        #expect(Set(bob.texts) == ["zero", "1", "2", "3", "4", "5", "6"])
        #expect(bob.texts.count == 7)
        #expect(try queued(world, last).attempts == 1)
        #expect(try world.addsUp())
    }

    /// What was said under an account is not said under another one after a logout: it waits for the account.
    @Test func whatIsLeftAtALogoutWaitsForTheAccount() throws {
        let world = try pacedWorld()
        let (alice, bob) = people(world, pause: 60)
        for number in 1...5 { world.send(alice, "PRIVMSG bob :\(number)") }
        world.backend.logout(alice.id)
        world.settle()
        let waiting = try world.ids(.pending)
        #expect(try queued(world, try #require(waiting.last)).state == .pending)
        world.advance(seconds: 60)
        let before = bob.texts.count
        #expect(before < 6)
        // Nothing of it is lost with the backend either.
        world.backendDies()
        world.backendReturns()
        let back = world.connect("bob", account: "bob")
        world.advance(seconds: 60)
        #expect(back.texts.isEmpty)
        world.backend.login(alice.id, "alice")
        world.settle()
        world.advance(seconds: 60)
        #expect(bob.texts + back.texts == ["zero", "1", "2", "3", "4", "5"])
        #expect(try world.addsUp())
    }

    /// The commit that would have handed out what waits fails: it is asked for again, and nothing overtakes it for good.
    @Test func whatCouldNotBeHandedOutIsAskedForAgain() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = people(world)
        world.act(.hold(.account(.services("alice"))))
        world.send(alice, "PRIVMSG bob :one")
        world.close(alice)
        world.act(.release(.account(.services("alice"))))
        let again = world.connect("alice")
        world.backend.login(again.id, "alice")
        world.pipelines = false
        world.store.failNextCommit()
        world.settle()
        #expect(bob.texts == ["zero"])
        #expect(try world.ids(.pending).count == 1)
        world.advance(seconds: 5)
        #expect(bob.texts == ["zero", "one"])
        #expect(try world.addsUp())
    }

    @Test func withoutAnotherConnectionItWaitsForTheNextLogin() throws {
        let world = try pacedWorld()
        let (alice, bob) = people(world, pause: 60)
        for number in 1...5 { world.send(alice, "PRIVMSG bob :\(number)") }
        let last = try #require(try world.ids(.pending).last)
        world.close(alice)
        let row = try queued(world, last)
        #expect(row.state == .pending && row.attempts == 0 && row.doubts == 0)
        world.advance(seconds: 60)
        #expect(bob.texts.count < 6)
        world.connect("alice", account: "alice")
        world.advance(seconds: 120)
        #expect(bob.texts == ["zero", "1", "2", "3", "4", "5"])
    }

    /// The disk fails at the commit that would have ended a message: it has ended all the same, and that is written with the next.
    @Test func anEndThatWasNotCommittedIsWrittenLater() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = people(world)
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.send(alice, "PRIVMSG bob :two")
        let ids = try world.ids(.pending)
        world.failsNextOpen = true
        world.backend.resume()
        world.settle()
        world.advance(seconds: 30)
        #expect(try world.ids(.pending).isEmpty)
        #expect(try ids.map { try queued(world, $0).state } == [.done, .done])
        #expect(try world.addsUp())
        world.send(alice, "PRIVMSG bob :three")
        #expect(bob.texts.last == "three")
    }

    /// A message that could not be committed is nowhere: not in the queue, not under way, and its sender is told.
    @Test func whatWasNotCommittedIsNotInTheQueue() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = people(world)
        world.store.failNextCommit()
        world.send(alice, "PRIVMSG bob :lost")
        #expect(alice.read.last?.contains(" 531 alice bob ") == true)
        #expect(try world.ids(.pending).isEmpty)
        #expect(try world.addsUp())
        world.send(alice, "PRIVMSG bob :kept")
        world.advance(seconds: 1)
        #expect(bob.texts == ["zero", "kept"])
    }

    /// What the backend calls a message is learnt as every identifier of the queue is.
    @Test func theBackendsNameIsLearnt() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        _ = people(world)
        let id = try #require(try world.ids(.done).first)
        let learnt = try world.store.queueContents().learnt
        #expect(learnt.map(\.mapping.reference) == [EntityReference(type: Request.message, local: "\(id)")])
        #expect(try world.store.request(id)?.remoteID == learnt.first?.mapping.remote)
    }

    /// Accounts without a login leave nothing behind in the queue.
    @Test func aGuestsRequestsEndWithIt() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (guest, bob) = (world.connect("guest"), world.connect("bob", account: "bob"))
        world.backend.isStalled = true
        world.send(guest, "PRIVMSG bob :one")
        world.close(guest)
        #expect(try world.ids(.pending).isEmpty)
        #expect(try world.ids(.dead).count == 1)
        #expect(bob.texts.isEmpty)
        #expect(try world.addsUp())
    }
}
