import Envelope
import IRCGateway
import Protection
import Reports
import RequestQueue
import StoreConformance
import StorePort
import Testing

/// The backend dies and comes back; the clients stay.
@Suite struct OutageTests {
    static let backends: [[String]?] = [nil, [], SimulatedBackend.modern]

    @Test(arguments: backends) func whatIsWrittenMeanwhileWaits(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        for client in [alice, bob] { world.send(client, "JOIN #room") }
        world.send(alice, "PRIVMSG bob :before")
        world.send(alice, "PRIVMSG #room :before, in the room")
        world.backendDies()
        #expect(alice.messages.last?.contains(Notices.backendUnreachable) == true)
        world.send(alice, "PING :still there")
        #expect(alice.read.last?.hasSuffix("PONG srv :still there") == true)
        for number in 1...3 {
            world.send(alice, "PRIVMSG bob :meanwhile \(number)")
            world.send(bob, "PRIVMSG #room :in the room \(number)")
        }
        let seen = alice.read.count
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(
            bob.texts == ["before", "before, in the room", "meanwhile 1", "meanwhile 2", "meanwhile 3"])
        #expect(alice.texts == ["in the room 1", "in the room 2", "in the room 3"])
        // Nothing of the registration is shown again, and nobody has left the room.
        let after = alice.read.dropFirst(seen)
        #expect(after.allSatisfy { !$0.contains(" 001 ") && !$0.contains("CAP") && !$0.contains("JOIN #room :") })
        #expect(!after.contains { $0.hasPrefix(":alice!") && $0.contains("JOIN") })
        world.send(alice, "PRIVMSG #room :after")
        #expect(bob.texts.last == "after")
        #expect(!world.canary.contains("meanwhile") && !world.canary.contains("in the room"))
        #expect(try world.store.requestCounts() == [.done: 9])
    }

    @Test func aLoginIsRepeatedAndWhatTheDeadBackendHadIsSentAgain() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.logIn("alice")
        let bob = world.logIn("bob")
        world.send(alice, "PRIVMSG bob :zero")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.backend.dropStalled()
        world.backendDies()
        world.send(alice, "PRIVMSG bob :two")
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(bob.texts == ["zero", "one", "two"])
        #expect(world.backend.people[alice.id]?.account == "alice")
        #expect(try world.store.requestCounts() == [.done: 3])
        #expect(try world.store.load().devices.count == 2)
    }

    @Test(arguments: [true, false]) func modesAndAwayOfAClientAreSentAgain(_ isBack: Bool) throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        for line in ["AWAY :gone fishing", "MODE alice +iw", "MODE alice -w+oB", "MODE bob +x"] {
            world.send(alice, line)
        }
        world.backendDies()
        if isBack { world.send(alice, "AWAY") }
        let (seen, read) = (world.backend.seen.count, alice.read.count)
        world.backendReturns()
        world.advance(seconds: 1)
        let sent = world.backend.seen.dropFirst(seen).filter { $0.hasPrefix("AWAY") || $0.hasPrefix("MODE") }
        #expect(sent == ["MODE alice +Bi-w", isBack ? "AWAY" : "AWAY :Away"])
        #expect(world.backend.people[alice.id]?.isAway == !isBack)
        // The client knows already.
        #expect(alice.read.dropFirst(read).filter { $0.contains(" 306 ") }.isEmpty)
        #expect(alice.read.dropFirst(read).contains { $0.contains(" 305 ") } == isBack)
    }

    @Test func aLoginThatCannotBeRepeatedEndsTheConnection() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        // Logged in by a service: the gateway does not keep what was said to it.
        let alice = world.connect("alice", account: "alice")
        #expect(!alice.machine.outlivesBackend)
        let bob = world.logIn("bob")
        #expect(bob.machine.outlivesBackend)
        world.backend.refusesLogins = true
        world.run(alice) { alice.machine.upstreamEnded(at: world.now, $0) }
        #expect(alice.messages.last?.contains(Notices.loginNotRepeatable) == true)
        world.backendDies()
        for _ in 0..<8 where bob.isOpen { world.backendReturns() }
        #expect(bob.read.last?.contains(Notices.loginRefused) == true && !bob.isOpen)
    }

    /// In one batch: the backend of a connection is lost, and the connection seals messages for the next one.
    @Test func whatIsSealedAfterALossStaysWithItsConnection() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (world.logIn("alice"), world.logIn("bob"))
        world.send(alice, "PRIVMSG bob :zero")
        world.pipelines = false
        world.isStoreSlow = true
        world.backendDies()
        for number in 1...3 { world.send(alice, "PRIVMSG bob :\(number)") }
        world.isStoreSlow = false
        world.settle()
        let ids = try world.ids(.pending)
        #expect(ids.count == 3)
        for id in ids { #expect(try world.store.queueTables.request(Request.token(id))?.state == .inFlight) }
        world.advance(seconds: 1)
        for id in ids { #expect(try world.store.queueTables.request(Request.token(id))?.state == .inFlight) }
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(bob.texts == ["zero", "1", "2", "3"])
    }

    /// A connection asks for the requests of its account, and ends, or logs out, before it gets them.
    @Test(arguments: [false, true]) func aConnectionThatEndsKeepsNoRequestThatItAskedFor(logsOut: Bool) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (world.logIn("alice"), world.logIn("bob"))
        world.send(alice, "PRIVMSG bob :zero")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.backend.dropStalled()
        world.close(alice)
        let id = try #require(try world.ids(.pending).first)
        func state() throws -> RequestState? { try world.store.queueTables.request(Request.token(id))?.state }
        #expect(try state() == .pending)
        world.pipelines = false
        let (connection, account) = (ConnectionID(99), AccountID.services("alice"))
        world.pendingJobs = [
            .recover(connection: connection, ticket: 1, account: account),
            logsOut ? .loggedOut(connection, account) : .left(connection),
        ]
        world.settle()
        world.advance(seconds: 1)
        #expect(try state() == .pending, "no connection has it")
        // So the next one gets it.
        world.backend.isStalled = false
        _ = world.logIn("alice")
        world.advance(seconds: 1)
        #expect(bob.texts == ["zero", "one"])
    }

    /// The backend is away for longer than messages may wait: who wrote them is told, whether they stayed or come back later, and
    /// their reader is not told of messages that they miss.
    @Test(arguments: [false, true]) func aReturningSenderIsNotifiedOfExpiredMessages(leaves: Bool) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        var alice = world.logIn("alice")
        let bob = world.logIn("bob")
        for person in [alice, bob] { world.send(person, "JOIN #room") }
        world.send(alice, "PRIVMSG #room :first")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        world.send(alice, "PRIVMSG bob :two")
        world.send(alice, "PRIVMSG #room :three")
        let ids = try world.ids(.pending)
        world.backend.dropStalled()
        world.backendDies()
        if leaves { world.close(alice) }
        world.advance(seconds: 400)
        #expect(ids.count == 3)
        #expect(try ids.map { try world.store.queuedRequest($0)?.state } == [.dead, .dead, .dead])
        #expect(!alice.read.contains { $0.contains("waited for too long") })
        world.backendReturns()
        if leaves { alice = world.logIn("alice") }
        world.advance(seconds: 5)
        let notices = alice.read.filter { $0.contains(" 531 ") }
        #expect(notices.count == 2)
        #expect(notices.contains { $0.hasSuffix(" 531 alice bob :" + Notices.expired(2, target: "bob")) })
        #expect(notices.contains { $0.hasSuffix(" 531 alice #room :" + Notices.expired(1, target: "#room")) })
        if leaves { world.send(alice, "JOIN #room") }
        world.send(alice, "PRIVMSG #room :four")
        world.advance(seconds: 5)
        #expect(bob.texts.last == "four")
        #expect(!bob.read.contains { $0.contains("lost on") })
        #expect(try world.addsUp())
    }

    @Test func withoutALoginWhatWasUnderWayEndsInWords() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :under way")
        world.backend.dropStalled()
        world.backendDies()
        #expect(alice.read.contains { $0.contains(" 531 ") && $0.contains(Notices.backendLost(target: "bob")) })
        world.backendReturns()
        world.send(alice, "PRIVMSG bob :after")
        #expect(bob.texts == ["after"])
        #expect(try world.store.requestCounts() == [.done: 1, .dead: 1])
    }

    @Test func aNickThatIsTakenBecomesAnother() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :before")
        world.backendDies()
        world.backend.isDown = false
        world.connect("alice", direct: true)
        world.send(bob, "PRIVMSG alice :for the first alice")
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(alice.read.contains(":alice NICK :alice_"))
        #expect(alice.texts.last == "for the first alice")
        #expect(!world.canary.contains("for the first"))
    }

    /// Clients that ask for echoes show a message when it is echoed.
    @Test func messagesOfAnOutageAreEchoedOnce() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect(
            "alice",
            lines: [
                "CAP LS 302", "CAP REQ :sasl echo-message labeled-response message-tags batch", "AUTHENTICATE PLAIN",
                "AUTHENTICATE \(SimulatedBackend.proof("alice"))", "CAP END",
            ])
        let bob = world.logIn("bob")
        func echoes(_ text: String) -> [String] { alice.read.filter { $0.hasSuffix(" PRIVMSG bob :\(text)") } }
        world.send(alice, "@label=0 PRIVMSG bob :zero")
        world.backend.isStalled = true
        world.send(alice, "@label=1 PRIVMSG bob :one")
        world.backend.dropStalled()
        world.backendDies()
        world.send(alice, "@label=2 PRIVMSG bob :two")
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(bob.texts == ["zero", "one", "two"])
        for (label, text) in ["zero", "one", "two"].enumerated() {
            #expect(echoes(text).map { $0.contains("label=\(label)") } == [true])
        }
    }

    /// Who has a login reads nothing of stored messages: they are sent after the next one.
    @Test(arguments: [false, true]) func whatIsNotSentAfterAnOutageIsNamed(hasLogin: Bool) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = hasLogin ? world.logIn("alice") : world.connect("alice")
        let bob = world.logIn("bob")
        world.send(alice, "PRIVMSG bob :before")
        world.backendDies()
        for number in 1...2 { world.send(alice, "PRIVMSG bob :\(number)") }
        world.run(alice) { alice.machine.upstreamEnded(at: world.now, $0) }
        let named = (1...3).map { count in
            alice.read.count { $0.hasSuffix(Notices.notSentInOutage(count, target: "bob")) }
        }
        #expect(named == (hasLogin ? [0, 0, 0] : [0, 1, 0]))
        let seen = alice.read.count
        world.run(alice) { alice.machine.upstreamEnded(at: world.now, $0) }
        #expect(alice.read.count == seen, "once")
        world.close(alice)
        #expect(bob.texts == ["before"])
        world.backendReturns()
        guard hasLogin else { return }
        _ = world.logIn("alice")
        world.advance(seconds: 1)
        #expect(bob.texts == ["before", "1", "2"])
    }

    /// It waits with the client's other lines, behind the gateway's own negotiation.
    @Test(arguments: [false, true]) func aCapabilityRequestInAnOutageIsAnsweredAfterIt(diesAgain: Bool) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.logIn("alice")
        world.backendDies()
        world.send(alice, "CAP REQ :server-time")
        let seen = alice.read.count
        if diesAgain {
            world.backend.endsWelcome = false
            world.backendReturns()
            world.backendDies()
            world.backend.endsWelcome = true
        }
        world.backendReturns()
        let person = try #require(world.backend.people[alice.id])
        #expect(person.account == "alice" && person.isRegistered)
        let answers = alice.read.dropFirst(seen).filter { $0.contains(" CAP ") }
        #expect(answers == [":srv CAP alice ACK :server-time"])
        // The gateway knows of it.
        world.send(alice, "CAP LIST")
        #expect(alice.read.last == ":srv CAP alice LIST :sasl server-time")
    }

    /// Nothing can be sent before the backend is back.
    @Test func anOutageWakesNobody() throws {
        let world = try World(.hosted)
        let (alice, bob) = (world.connect("alice"), world.connect("bob"))
        world.send(alice, "PRIVMSG bob :before")
        world.backendDies()
        world.send(alice, "AWAY :gone")
        world.send(alice, "PRIVMSG bob :meanwhile")
        for client in [alice, bob] {
            let output = MachineOutput()
            client.machine.woken(at: world.now, output)
            #expect(output.wakeAt.map { $0 > world.now.monotonic + 100_000_000 } ?? true)
        }
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(bob.texts == ["before", "meanwhile"])
    }

    /// Servers deliver messages as soon as a client is registered, which is before the end of their welcome.
    @Test func messagesBeforeTheEndOfTheWelcomeArrive() throws {
        let world = try World(.opportunistic, offers: SimulatedBackend.modern)
        let bob = world.logIn("bob")
        let alice = world.logIn("alice")
        world.environment.policies.update { $0.everyone = .hosted }
        world.send(bob, "PRIVMSG alice :first")
        world.send(alice, "JOIN #room")
        let envelope = world.backend.withholding { world.send(bob, "PRIVMSG alice :sealed") }
        world.backendDies()
        world.backendReturns(only: bob)
        world.backend.linesInWelcome = { id in
            guard id == alice.id else { return [] }
            return envelope + [
                ":srv NOTICE alice :the server's word", ":srv 372 alice :- motd", ":alice MODE alice :+i",
                ":carol!c@host.test PRIVMSG alice :early", ":alice!alice@host.test JOIN #Ops",
                ":srv 353 alice = #Ops :alice carol", ":srv 366 alice #Ops :End",
                ":carol!c@host.test PRIVMSG #Ops :here",
            ]
        }
        let seen = alice.read.count
        world.backendReturns()
        world.advance(seconds: 1)
        let after = alice.read.dropFirst(seen)
        let texts = after.filter { $0.contains(" PRIVMSG ") }.map { String($0.split(separator: ":").last ?? "") }
        #expect(!envelope.isEmpty && texts.count == 3 && texts.contains("sealed"), "\(texts)")
        #expect(texts.filter { $0 != "sealed" } == ["[not encrypted] early", "[not encrypted] here"])
        #expect(after.contains { $0.hasSuffix(":the server's word") })
        #expect(after.filter { $0.contains(" JOIN ") } == [":alice!alice@host.test JOIN #Ops"])
        #expect(!after.contains { $0.contains(" 372 ") || $0.contains(" MODE ") || $0.contains(" 422 ") })
        #expect(alice.machine.isMember(of: "#ops") && alice.machine.isMember(of: "#room"))
    }

    @Test func messagesOfAWelcomeThatDoesNotEndArrive() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.backendDies()
        world.backend.endsWelcome = false
        world.backend.linesInWelcome = { _ in
            [":alice NICK alice2", ":carol!c@host.test PRIVMSG alice :early", ":alice2!a@h JOIN #ops"]
        }
        world.backendReturns()
        #expect(!alice.read.contains { $0.contains("early") } && alice.read.contains(":alice NICK :alice2"))
        world.backendDies()
        #expect(alice.read.last == ":carol!c@host.test PRIVMSG alice :[not encrypted] early")
        #expect(!alice.machine.isMember(of: "#ops"))
        // A server that never ends its welcome does not fill memory.
        let line = ":carol!c@host.test PRIVMSG alice :" + String(repeating: "x", count: 400)
        let flood = Array(repeating: line, count: 500)
        world.backend.linesInWelcome = { _ in flood }
        let seen = alice.read.count
        world.backendReturns()
        #expect((300...500).contains(alice.read.count - seen))
    }

    /// After an outage everybody joins at once, which servers bound.
    @Test(arguments: [407, 435, 437, 470, 471, 479, 480, 500, 520, 609])
    func aRoomThatIsRefusedIsLeft(_ numeric: Int) throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        world.backendDies()
        world.backend.joinRefusal = numeric
        world.backendReturns()
        #expect(alice.read.contains { $0.contains(" KICK #room alice ") })
        #expect(!alice.machine.isMember(of: "#room"))
        #expect(!alice.machine.isAwaited(.room("#room"), world.now))
    }

    /// The client would see itself in the room for ever, and its messages there would wait.
    @Test(arguments: [true, false]) func aRoomThatIsNotAnsweredForIsLeftInTime(_ isIn: Bool) throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        world.backendDies()
        world.backend.joinRefusal = isIn ? nil : 400
        world.backend.namesRefusedRoom = false
        world.backendReturns()
        #expect(alice.machine.isMember(of: "#room"))
        world.advance(seconds: 181)
        #expect(alice.machine.isMember(of: "#room") == isIn)
        #expect(alice.read.contains { $0.contains(" KICK #room alice ") } != isIn)
        #expect(!alice.machine.isAwaited(.room("#room"), world.now))
    }

    @Test func aBackendThatDiesAgainAndAgain() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let people = ["p0", "p1", "p2"].map { world.logIn($0) }
        for client in people { world.send(client, "JOIN #room") }
        for round in 0..<10 {
            world.send(people[0], "PRIVMSG #room :\(round) before")
            world.backendDies()
            world.send(people[0], "PRIVMSG #room :\(round) during")
            if round % 3 == 0 {
                // An attempt that gets half-way.
                world.backendReturns(only: people[1])
                world.backendDies()
            }
            world.backendReturns()
            world.advance(seconds: 1)
        }
        let expected = (0..<10).flatMap { ["\($0) before", "\($0) during"] }
        #expect(people[1].texts == expected && people[2].texts == expected && people[0].texts.isEmpty)
    }

    @Test func whoLeavesOrIsLegacyDoesNotStay() throws {
        let world = try World(.observe)
        let alice = world.connect("alice")
        #expect(!alice.machine.outlivesBackend)
        world.environment.policies.update { $0.everyone = .hosted }
        world.send(alice, "AWAY")
        #expect(alice.machine.outlivesBackend)
        world.backendDies()
        world.send(alice, "QUIT :bye")
        #expect(!alice.isOpen)
    }
}
