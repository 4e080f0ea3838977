import CommitLoop
import Envelope
import IRCCodec
import IRCGateway
import Outbox
import Protection
import Reports
import RequestQueue
import StoreConformance
import StorePort
import Synchronization
import Testing
import Vault

extension World {
    /// What the vault says of an operator's act.
    @discardableResult
    func act(_ kind: RequestAct.Kind) -> RequestAct.Outcome? {
        final class Answer: Sendable { let outcome = Mutex<RequestAct.Outcome?>(nil) }
        let answer = Answer()
        let row = AuditRow(at: now.wall, actor: "operator", action: "queue", detail: "")
        pendingJobs.append(
            .act(
                RequestAct(kind, audit: row) { outcome in
                    answer.outcome.withLock { $0 = outcome }
                }))
        settle()
        return answer.outcome.withLock { $0 }
    }

    /// The ids of requests in a state, in the order in which they were accepted.
    func ids(_ state: RequestState) throws -> [UInt64] {
        try store.requests(states: [state], limit: 1000).map(\.id)
    }

    /// What the ledger says agrees with the store, and adds up.
    func addsUp() throws -> Bool {
        let counts = environment.requests.counters.counts
        let stored = try store.requestCounts()
        return counts.accepted == counts.done + counts.dead + counts.waiting
            && counts.waiting == stored[.pending, default: 0]
    }
}

/// Operators hold, release, drop and retry single requests.
@Suite struct RequestActTests {
    static let backends: [[String]?] = [nil, [], SimulatedBackend.modern]

    /// Three messages to bob of which the first is held, and two to carol.
    private func held(_ world: World) throws -> (alice: World.Client, bob: World.Client, carol: World.Client, [UInt64])
    {
        let (alice, bob, carol) = (world.connect("alice"), world.connect("bob"), world.connect("carol"))
        world.advance(seconds: 60)
        world.send(alice, "PRIVMSG bob :zero")
        world.advance(seconds: 60)
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")).account
        #expect(world.act(.hold(.account(account))) == .done(isNotified: false))
        for text in ["one", "two", "three"] {
            world.send(alice, "PRIVMSG bob :\(text)")
            world.send(alice, "PRIVMSG carol :\(text)")
        }
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero"] && carol.texts.isEmpty)
        return (alice, bob, carol, try world.ids(.pending))
    }

    @Test(arguments: backends) func whatIsHeldWaitsInItsOrder(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let (alice, bob, carol, ids) = try held(world)
        #expect(ids.count == 6)
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")).account
        // One of them stays behind when the account is released, and what follows it to the same name with it.
        #expect(world.act(.hold(.request(ids[2]))) == .done(isNotified: false))
        #expect(world.act(.release(.account(account))) == .done(isNotified: false))
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero", "one"])
        #expect(carol.texts == ["one", "two", "three"])
        world.send(alice, "PRIVMSG bob :four")
        #expect(bob.texts == ["zero", "one"])
        #expect(try world.addsUp())
        #expect(world.act(.release(.request(ids[2]))) == .done(isNotified: false))
        world.advance(seconds: 5)
        #expect(bob.texts == ["zero", "one", "two", "three", "four"])
        #expect(try world.ids(.pending).isEmpty)
        #expect(try world.addsUp())
        #expect(try world.store.auditLog(limit: 10).count == 4)
        #expect(try world.store.records(.hold).isEmpty)
    }

    @Test func releasedBeforeWhatIsBeingSealed() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern) {
            $0.flood = Pacer.Limit(burst: 2, linesPerSecond: 1)
        }
        let (alice, bob, _, ids) = try held(world)
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")).account
        #expect(ids.count == 6)
        world.isStoreSlow = true
        world.send(alice, "PRIVMSG bob :four")
        world.environment.requests.gate.release(.account(account))
        world.advance(seconds: 60)
        world.isStoreSlow = false
        world.settle()
        world.advance(seconds: 60)
        #expect(bob.texts == ["zero", "one", "two", "three", "four"])
    }

    /// What stands behind a held request is partly in the lane, behind the pacer, when it is released.
    @Test(arguments: [2.0, 100]) func whatThePacerHasNotReachedKeepsItsOrder(_ seconds: Double) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern) {
            $0.flood = Pacer.Limit(burst: 1, linesPerSecond: 1)
        }
        let (alice, bob, carol) = (world.connect("alice"), world.connect("bob"), world.connect("carol"))
        world.advance(seconds: 60)
        for name in ["bob", "carol"] { world.send(alice, "PRIVMSG \(name) :zero") }
        world.advance(seconds: 60)
        world.send(alice, "PRIVMSG bob :one")
        world.send(alice, "PRIVMSG bob :two")
        for number in 1...20 { world.send(alice, "PRIVMSG carol :\(number)") }
        world.send(alice, "PRIVMSG bob :three")
        let id = try #require(try world.ids(.pending).first { world.environment.requests.gate.hasBegun($0) == false })
        #expect(world.act(.hold(.request(id))) == .done(isNotified: false))
        world.advance(seconds: 5)
        world.send(alice, "PRIVMSG bob :four")
        #expect(carol.texts.count < 10)
        world.advance(seconds: seconds)
        #expect(bob.texts == ["zero", "one"])
        #expect(world.act(.release(.request(id))) == .done(isNotified: false))
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero", "one", "two", "three", "four"])
        #expect(carol.texts == ["zero"] + (1...20).map { "\($0)" })
        #expect(try world.addsUp())
    }

    @Test(arguments: backends) func aDroppedRequestIsNeverSentAndItsSenderIsNotified(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let (alice, bob, _, ids) = try held(world)
        let seen = world.backend.seen.count
        #expect(world.act(.drop(ids[2])) == .done(isNotified: true))
        #expect(alice.read.last?.contains(" 531 alice bob :Not sent: an operator") == true)
        #expect(try world.store.request(ids[2])?.reason == Notices.droppedReason)
        #expect(world.backend.seen.count == seen)
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")).account
        world.act(.release(.account(account)))
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero", "one", "three"])
        #expect(try world.ids(.dead) == [ids[2]])
        #expect(try world.addsUp())
        // Each only once, and nothing that is over.
        #expect(world.act(.drop(ids[2])) == .refused(.dead(ids[2], cause: Notices.droppedReason)))
        #expect(world.act(.drop(ids[0])) == .refused(.done(ids[0])))
        #expect(world.act(.hold(.request(ids[0]))) == .refused(.done(ids[0])))
        #expect(world.act(.release(.request(ids[0]))) == .refused(.done(ids[0])))
        #expect(world.act(.retry(ids[0])) == .refused(.notDead(ids[0], .done)))
        for kind: RequestAct.Kind in [.drop(7), .hold(.request(7)), .release(.request(7)), .retry(7)] {
            #expect(world.act(kind) == .refused(.noSuchRequest(7)))
        }
        #expect(try world.addsUp())
    }

    /// The pacer reaches a request while its drop is being committed: nothing of it is written.
    @Test func whatIsBeingDroppedIsNotSent() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern) {
            $0.flood = Pacer.Limit(burst: 1, linesPerSecond: 1)
        }
        let (alice, bob) = (world.connect("alice"), world.connect("bob"))
        world.advance(seconds: 60)
        world.send(alice, "PRIVMSG bob :zero")
        world.advance(seconds: 60)
        for text in ["one", "two", "three"] { world.send(alice, "PRIVMSG bob :\(text)") }
        let id = try #require(try world.ids(.pending).last)
        #expect(!world.environment.requests.gate.hasBegun(id))
        let row = AuditRow(at: world.now.wall, actor: "operator", action: "queue", detail: "")
        let batch = world.participants.prepare([.act(RequestAct(.drop(id), audit: row) { _ in })], now: world.now)
        for _ in 0..<20 {
            world.now.monotonic += 1_000_000_000
            world.run(alice) { alice.machine.woken(at: world.now, $0) }
        }
        #expect(world.backend.seen.count { $0.contains("PRIVMSG bob :?PAWL:") } == 3)
        let committed = try world.store.commit(batch.groups)
        for reply in world.participants.complete(batch, committed: committed, now: world.now) {
            world.run(alice) { alice.machine.answered(reply.reply, at: world.now, $0) }
        }
        world.settle()
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero", "one", "two"])
        #expect(try world.store.request(id)?.state == .dead)
    }

    @Test func whatTheBackendHasBeenSentCannotBeTakenBack() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (world.connect("alice"), world.connect("bob"))
        world.send(alice, "PRIVMSG bob :zero")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        let id = try #require(try world.ids(.pending).first)
        #expect(world.act(.drop(id)) == .refused(.inFlight(id)))
        #expect(world.act(.hold(.request(id))) == .refused(.inFlight(id)))
        #expect(try world.store.request(id)?.state == .pending)
        #expect(bob.texts == ["zero"])
    }

    @Test func anActThatIsNotCommittedChangesNothing() throws {
        let world = try World(.hosted)
        let (_, bob, _, ids) = try held(world)
        for kind: RequestAct.Kind in [.drop(ids[0]), .hold(.request(ids[0])), .release(.request(ids[0]))] {
            if case .release = kind { #expect(world.act(.hold(.request(ids[0]))) == .done(isNotified: false)) }
            world.store.failNextCommit()
            let outcome = world.act(kind)
            #expect(outcome == .refused(.notStored), "\(kind)")
        }
        world.act(.release(.request(ids[0])))
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")).account
        world.act(.release(.account(account)))
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero", "one", "two", "three"])
        #expect(try world.addsUp())
    }

    @Test func aHoldOutlivesARestartAndItsSendersAbsence() throws {
        let store = InMemoryStore()
        var ids: [UInt64] = []
        do {
            let world = try World(.hosted, offers: SimulatedBackend.modern, store: store)
            let alice = world.connect("alice", account: "alice")
            world.connect("bob", account: "bob")
            world.send(alice, "PRIVMSG bob :zero")
            world.act(.hold(.account(.services("alice"))))
            world.send(alice, "PRIVMSG bob :one")
            world.send(alice, "PRIVMSG bob :two")
            ids = try world.ids(.pending)
            world.act(.hold(.request(ids[0])))
            world.act(.release(.account(.services("alice"))))
        }
        let world = try World(.hosted, offers: SimulatedBackend.modern, store: store, seed: 2)
        world.advance(seconds: 1000)
        // What is held is not given up for its age; what is not held is.
        #expect(try world.ids(.pending) == [ids[0]])
        #expect(try world.addsUp())
        let bob = world.connect("bob", account: "bob")
        let alice = world.connect("alice", account: "alice")
        world.advance(seconds: 100)
        #expect(bob.texts.isEmpty)
        #expect(world.environment.requests.gate.isHeld(try #require(try store.request(ids[0]))))
        world.act(.release(.request(ids[0])))
        world.advance(seconds: 1)
        #expect(bob.texts == ["one"])
        // A dropped one of somebody who is away is not sent when they come back.
        world.act(.hold(.account(.services("alice"))))
        world.send(alice, "PRIVMSG bob :three")
        let id = try #require(try world.ids(.pending).first)
        world.close(alice)
        #expect(world.act(.drop(id)) == .done(isNotified: false))
        world.act(.release(.account(.services("alice"))))
        world.connect("alice", account: "alice")
        world.advance(seconds: 100)
        #expect(bob.texts == ["one"])
        #expect(try world.addsUp())
    }

    @Test(arguments: backends) func aDeadRequestIsSentAgainWhereItWouldBeOpened(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let (alice, bob, _, ids) = try held(world)
        let account = try #require(world.environment.roster.owner(ofFoldedNick: "alice")).account
        world.act(.drop(ids[2]))
        world.act(.release(.account(account)))
        world.advance(seconds: 100)
        #expect(bob.texts == ["zero", "one", "three"])
        // Asking changes nothing in the recipient's session: it is refused only because it was opened.
        #expect(world.act(.retry(ids[2])) == .done(isNotified: false))
        #expect(world.act(.retry(ids[2])) == .refused(.notDead(ids[2], .pending)))
        world.run(alice) { alice.machine.answered(.requestsWaiting, at: world.now, $0) }
        world.settle()
        world.advance(seconds: 5)
        #expect(bob.texts == ["zero", "one", "three", "two"])
        #expect(try world.store.request(ids[2])?.state == .done)
        #expect(try world.addsUp())
        // What somebody opened after all, although the gateway gave it up, is not sent twice.
        var lost = try #require(try world.store.request(ids[0]))
        (lost.state, lost.reason) = (.dead, "lost")
        _ = try world.store.commit([[.queue(.remove(id: lost.id)), .insert(lost)]])
        #expect(world.act(.retry(ids[0])) == .refused(.notRepeatable(ids[0], .openedAlready)))
    }

    @Test func whatNobodyCanOpenIsNotSentAgain() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob, _, ids) = try held(world)
        world.act(.drop(ids[0]))
        var forged = try #require(try world.store.request(ids[0]))
        forged.id = ids[0] + 1_000_000
        forged.bodies[0][20] ^= 1
        _ = try world.store.commit([[.insert(forged)]])
        #expect(world.act(.retry(forged.id)) == .refused(.notRepeatable(forged.id, .sessionReplaced)))
        forged.id += 1
        forged.bodies = [Array("?PAWL:zz".utf8)]
        _ = try world.store.commit([[.insert(forged)]])
        #expect(world.act(.retry(forged.id)) == .refused(.notRepeatable(forged.id, .malformed)))
        world.close(bob)
        #expect(world.act(.retry(ids[0])) == .refused(.notRepeatable(ids[0], .recipientKeysGone)))
        world.close(alice)
        #expect(world.act(.retry(ids[0])) == .refused(.notRepeatable(ids[0], .senderKeysGone)))
        #expect(try world.addsUp())
    }
}
