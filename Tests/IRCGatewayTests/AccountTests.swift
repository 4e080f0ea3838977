import Envelope
import IRCGateway
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// Who somebody is, before and after logins, nick changes and restarts.
@Suite struct AccountTests {
    @Test func aNickInheritsNothing() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :for the first bob")
        #expect(world.environment.latches.count == 1)
        world.close(bob)
        #expect(world.environment.latches.isEmpty)
        let second = world.connect("bob")
        #expect(try world.store.load().devices.count == 1)
        world.send(alice, "PRIVMSG bob :for the second bob")
        #expect(second.messages.map { $0.split(separator: ":").last ?? "" } == ["for the second bob"])
        #expect(try world.store.load().devices.count == 2)
    }

    @Test func aLoginKeepsItsLatchAcrossConnectionsAndNicks() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :one")
        world.close(bob)
        #expect(world.environment.latches.count == 1)
        let again = world.connect("robert", account: "Bob")
        world.send(alice, "PRIVMSG robert :two")
        #expect(again.messages.map { $0.split(separator: ":").last ?? "" } == ["two"])
        #expect(try world.store.load().devices.count == 2)
    }

    /// On a server that compares names as ASCII, `al[ce` and `al{ce` are two people, and one of them is away.
    @Test func aLoginBeforeTheRegistrationIsFoldedAsTheServerDoes() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        func account(_ nick: String) -> AccountID? { world.environment.roster.owner(ofFoldedNick: nick)?.account }
        let bob = world.logIn("bob", as: "bob")
        let alice = world.logIn("alice", as: "Al[ce")
        world.send(bob, "PRIVMSG alice :one")
        #expect(alice.texts == ["one"] && account("alice") == .services("al[ce"))
        // The backend dies with a message for her, and she comes back late.
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :secret")
        world.close(alice)
        world.backend.dropStalled()
        let mallory = world.logIn("mallory", as: "al{ce")
        #expect(account("mallory") == .services("al{ce") && mallory.texts.isEmpty)
        #expect(!bob.texts.contains("secret"), "it waits for its sender's own login")
        let again = world.logIn("alice", as: "AL[CE")
        #expect(account("alice") == .services("al[ce"))
        #expect(bob.texts == ["secret"] && again.texts.isEmpty)
    }

    /// Nobody knows whether `al[ce` and `al{ce` are one account there, or `É` and `é`.
    @Test func accountsOfAServerWithAnUnknownMappingAreNotGuessed() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        world.backend.caseMapping = "rfc7613"
        func account(_ nick: String) -> AccountID? { world.environment.roster.owner(ofFoldedNick: nick)?.account }
        let clients = [
            world.logIn("b[b", as: "al[ce"), world.logIn("b{b", as: "al{ce"), world.logIn("eve", as: "\u{C9}ve"),
            world.logIn("carol", as: "Carol"),
        ]
        let accounts = ["b[b", "b{b", "eve"].compactMap(account)
        #expect(Set(accounts).count == 3 && accounts.allSatisfy { !$0.isVerified })
        #expect(account("carol") == .services("carol"))
        world.send(clients[3], "PRIVMSG b[b :for the first")
        world.send(clients[2], "PRIVMSG b{b :for the second")
        #expect(clients[0].texts == ["for the first"] && clients[1].texts == ["for the second"])
        // The login is repeated all the same, and a later one by hand takes the account of an earlier one away.
        world.backendDies()
        world.backendReturns()
        #expect(world.backend.people[clients[0].id]?.account == "al[ce")
        #expect(clients.allSatisfy { $0.isOpen })
        world.backend.login(clients[3].id, "c|d")
        world.settle()
        #expect(account("carol")?.isVerified == false)
    }

    @Test func twoConnectionsOfOneAccountShareItsDevice() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let one = world.connect("bob", account: "bob")
        let two = world.connect("bob2", account: "bob")
        for number in 0..<3 {
            world.send(alice, "PRIVMSG bob :first \(number)")
            world.send(alice, "PRIVMSG bob2 :second \(number)")
        }
        #expect(one.messages.count == 3 && two.messages.count == 3)
        #expect(try world.store.load().devices.count == 2)
    }

    @Test func aBackendThatDeliversToAllConnectionsOfAnAccountIsServed() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let one = world.connect("bob", account: "bob")
        let two = world.connect("bob2", account: "bob")
        world.backend.relay = { line in
            if line.contains("?PAWL:") { world.backend.send(two.id, line) }
            return [line]
        }
        world.send(alice, "PRIVMSG bob :for both")
        #expect(one.messages.count == 1 && two.messages.count == 1)
    }

    @Test func aMessageSealedBeforeALoginIsReadAfterIt() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :hello")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :under way")
        world.backend.login(bob.id, "bob")
        world.settle()
        world.backend.resume()
        world.settle()
        #expect(bob.messages.last?.hasSuffix(":under way") == true)
    }

    @Test func nickChangesAreFollowed() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :one")
        world.send(bob, "NICK robert")
        world.send(alice, "PRIVMSG robert :two")
        world.send(alice, "PRIVMSG bob :nobody is here")
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["one", "two"])
        #expect(alice.read.last?.contains("Not sent: bob") == true)
        world.send(bob, "PRIVMSG alice :under a new name")
        #expect(alice.messages.last?.hasSuffix(":under a new name") == true)
    }

    @Test func policiesOfAccountsCount() throws {
        let world = try World(.observe)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :in the clear")
        #expect(world.canary.contains("in the clear"))
        world.environment.policies.update { $0.accounts[.services("bob")] = .hosted }
        world.send(alice, "PRIVMSG bob :sealed because of bob")
        world.send(bob, "PRIVMSG alice :sealed because of me")
        #expect(!world.canary.contains("sealed because"))
        #expect(bob.messages.last?.hasSuffix(":sealed because of bob") == true)
        #expect(alice.messages.last?.hasSuffix(":sealed because of me") == true)
        world.environment.policies.update { $0.accounts[.services("alice")] = .off }
        world.send(alice, "PRIVMSG bob :off is off")
        #expect(world.canary.contains("off is off"))
        world.send(bob, "PRIVMSG alice :to an outsider now")
        #expect(!world.canary.contains("to an outsider now"))
    }

    @Test func evidenceIsKept() throws {
        let world = try World(.observe)
        let alice = world.connect("alice", account: "alice", lines: ["CAP LS", "CAP REQ :pawl/e2ee", "CAP END"])
        world.send(alice, "NOTICE bob :\u{1}VERSION Testclient 1.0\u{1}")
        world.close(alice)
        world.connect("bob")
        let rows = try world.store.evidence(limit: 10)
        #expect(rows.contains { $0.name == "alice" && $0.verified && $0.asked && $0.software == "Testclient 1.0" })
        #expect(rows.contains { $0.name == "bob" && !$0.verified && !$0.asked })
    }

    @Test func observationsShowWhatStricterPoliciesWouldDo() throws {
        let world = try World(.observe)
        let alice = world.connect("alice")
        world.connect("bob")
        world.connect("carol", direct: true)
        world.send(alice, "PRIVMSG bob :x")
        world.send(alice, "PRIVMSG carol :x")
        world.send(alice, "PRIVMSG carol :x")
        world.send(alice, "JOIN #room")
        world.send(alice, "PRIVMSG #room :x")
        world.advance(seconds: 3)
        let observations = try world.store.observations(limit: 10)
        let hosted = SimulationReport(.hosted, observations)
        #expect(hosted.messages == 4 && hosted.refusedMessages == 2)
        #expect(hosted.people == ["alice"] && hosted.outsiders == ["carol"])
        #expect(SimulationReport(.required, observations).refusedMessages == 4)
        #expect(SimulationReport(.opportunistic, observations).refusedMessages == 0)
    }
}

/// The process dies and another one takes over the same store.
@Suite struct RestartTests {
    @Test func sessionsLatchesAndOrderGoOn() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        var alice = world.connect("alice", account: "alice")
        var bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :before")
        #expect(bob.messages.count == 1)
        world = try World(.hosted, store: store, seed: 2, journal: world.journal)
        #expect(world.environment.latches.count == 1)
        alice = world.connect("alice", account: "alice")
        bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :after")
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["after"])
        #expect(try store.load().devices.count == 2)
    }

    @Test func whatTheBackendNeverGotIsSentAgainBeforeWhatIsNew() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        var alice = world.connect("alice", account: "alice")
        world.connect("bob", account: "bob")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.send(alice, "PRIVMSG bob :two")
        // The process is killed here: the backend never answered.
        world = try World(.hosted, store: store, seed: 2, journal: world.journal)
        alice = world.connect("alice", account: "alice")
        world.send(alice, "JOIN #elsewhere")
        #expect(world.backend.seen.last == "JOIN #elsewhere")
        let bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :three")
        world.advance(seconds: 1)
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["one", "two", "three"])
        #expect(try store.requestCounts() == [.done: 3])
    }

    @Test func whatWasOpenedButNotShownIsShown() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        let alice = world.connect("alice", account: "alice")
        world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :seen")
        // The process dies between the commit and the socket: the journal has not got it, the row is there.
        world.diesBeforeSockets = true
        world.send(alice, "PRIVMSG bob :opened and not shown")
        world = try World(.hosted, store: store, seed: 2, journal: world.journal)
        let bob = world.connect("bob", account: "bob")
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["opened and not shown"])
        #expect(try store.deliveries(of: .services("bob")).isEmpty)
    }

    @Test func whatBelongedToEndedConnectionsIsGone() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        let alice = world.connect("alice")
        world.connect("bob")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :never sent")
        world = try World(.hosted, store: store, seed: 2)
        #expect(try store.load().devices.isEmpty)
        #expect(try store.load().conversations.isEmpty)
        #expect(try store.requestCounts() == [.dead: 1])
    }
}

/// The connection ends and the process lives.
@Suite struct ReconnectTests {
    @Test func whatWasAcceptedGoesOutWhenTheAccountComesBack() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.send(alice, "PRIVMSG bob :two")
        world.close(alice)
        world.backend.dropStalled()
        let again = world.connect("alice", account: "alice")
        world.send(again, "PRIVMSG bob :three")
        world.advance(seconds: 1)
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["one", "two", "three"])
        #expect(try world.store.requestCounts() == [.done: 3])
    }

    /// The store takes its time to answer the login, and a message is written meanwhile.
    @Test func nothingOvertakesWhatIsRecoveredAtALogin() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.backend.isStalled = true
        for number in 1...3 { world.send(alice, "PRIVMSG bob :\(number)") }
        world.close(alice)
        world.backend.dropStalled()
        world.isStoreSlow = true
        let again = world.connect("alice", account: "alice")
        world.send(again, "JOIN #elsewhere")
        world.send(again, "PRIVMSG bob :4")
        #expect(world.backend.seen.last?.contains("JOIN") == false)
        world.isStoreSlow = false
        world.settle()
        world.advance(seconds: 1)
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["1", "2", "3", "4"])
        #expect(world.backend.seen.contains("JOIN #elsewhere"))
    }

    /// What was opened for an account that had gone is shown before what comes in after its login.
    @Test func nothingOvertakesLinesThatWereNotShown() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, store: store, seed: 1)
        var alice = world.connect("alice", account: "alice")
        world.connect("bob", account: "bob")
        world.diesBeforeSockets = true
        world.send(alice, "PRIVMSG bob :opened and not shown")
        world = try World(.hosted, store: store, seed: 2, journal: world.journal)
        alice = world.connect("alice", account: "alice")
        world.isStoreSlow = true
        let bob = world.connect("bob", account: "bob")
        world.backend.send(bob.id, ":irc.lab NOTICE bob :after the login")
        world.settle()
        world.isStoreSlow = false
        world.settle()
        let texts = bob.messages.map { $0.split(separator: ":").last ?? "" }
        #expect(texts == ["opened and not shown", "after the login"])
    }

    /// The recipient comes back, and the sender writes before anything else makes the gateway look.
    @Test func whatWaitsForARecipientGoesBeforeANewMessage() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.close(alice)
        world.close(bob)
        world.backend.dropStalled()
        let again = world.connect("alice", account: "alice")
        let back = world.connect("bob", account: "bob")
        world.send(again, "PRIVMSG bob :two")
        #expect(back.messages.map { $0.split(separator: ":").last ?? "" } == ["one", "two"])
    }

    /// A copy that the backend had is opened after its sender has gone: it does not go out again.
    @Test func whatIsOpenedAfterItsSenderLeftIsDone() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :zero")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        let envelope = try #require(world.backend.seen.last { $0.contains("?PAWL:") })
        world.close(alice)
        world.backend.dropStalled()
        let body = envelope.drop { $0 != "?" }
        world.backend.send(bob.id, ":alice!alice@host PRIVMSG bob :\(body)")
        world.settle()
        #expect(bob.messages.last?.hasSuffix(":one") == true)
        #expect(try world.store.requestCounts() == [.done: 2])
        let again = world.connect("alice", account: "alice")
        world.send(again, "PRIVMSG bob :two")
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["zero", "one", "two"])
    }
}
