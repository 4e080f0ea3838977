import Envelope
import IRCCodec
import IRCGateway
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// Private messages under `hosted`, in front of backends with and without IRCv3.
@Suite struct HostedMessageTests {
    static let backends: [[String]?] = [nil, [], ["multi-prefix"], SimulatedBackend.modern]

    @Test(arguments: backends) func peopleReadTextAndTheBackendDoesNot(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :meet at the old mill")
        world.send(bob, "NOTICE alice :understood, the mill")
        world.send(alice, "PRIVMSG bob :\u{1}ACTION waves from the mill\u{1}")
        #expect(
            bob.messages == [
                ":alice!alice@host.test PRIVMSG bob :meet at the old mill",
                ":alice!alice@host.test PRIVMSG bob :\u{1}ACTION waves from the mill\u{1}",
            ])
        #expect(alice.messages == [":bob!bob@host.test NOTICE alice :understood, the mill"])
        // With its space: four letters are in armour by chance.
        #expect(!world.canary.contains(" mill"))
        #expect(world.canary.contains("?PAWL:"))
        #expect(try world.store.requestCounts() == [.done: 3])
        #expect(world.environment.tally[.openedGateway] == 3)
    }

    @Test(arguments: backends) func aHundredMessagesInOrder(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        let lines = (0..<100).map { "PRIVMSG bob :message number \($0)\r\n" }.joined()
        world.send(alice, bytes: Array(lines.utf8))
        #expect(bob.messages.map { String($0.split(separator: " ").last ?? "") } == (0..<100).map(String.init))
    }

    @Test func longTextsAreSplitAndStayWithinTheLine() throws {
        let world = try World(.hosted)
        let alice = world.connect(String(repeating: "a", count: 30))
        let bob = world.connect(String(repeating: "b", count: 30))
        let text = String(repeating: "0123456789", count: 44)
        world.send(alice, "PRIVMSG \(String(repeating: "b", count: 30)) :\(text)")
        let relayed = world.canary.split(separator: "\n").filter { $0.contains("?PAWL:") }
        #expect(relayed.count >= 2)
        let longestSource = 30 + 1 + 20 + 1 + 64
        for line in relayed { #expect(1 + longestSource + 1 + line.utf8.count + 2 <= 512) }
        let read = bob.messages.map { $0.split(separator: ":", maxSplits: 2).last ?? "" }.joined()
        #expect(read == text)
    }

    @Test func aHundredBytesFitOneLine() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, "PRIVMSG bob :first")
        let before = world.backend.seen.count
        world.send(alice, "PRIVMSG bob :\(String(repeating: "x", count: 100))")
        #expect(world.backend.seen.dropFirst(before).filter { $0.contains("?PAWL:") }.count == 1)
    }

    @Test func echoesComeBackAsTheSendersOwnText() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect(
            "alice", lines: ["CAP LS 302", "CAP REQ :echo-message labeled-response message-tags batch", "CAP END"])
        world.connect("bob")
        world.send(alice, "@label=abc PRIVMSG bob :hello there")
        let echo = alice.messages.filter { $0.contains("hello there") }
        #expect(echo.count == 1)
        #expect(echo.first?.contains("label=abc") == true)
        #expect(echo.first?.contains("msgid=") == true)
        #expect(alice.read.allSatisfy { !$0.contains("?PAWL") && !$0.contains("label=pawl") })
        let done = try world.store.requests(states: [.done], limit: 10)
        #expect(done.first?.remoteID?.hasPrefix("m") == true)
    }

    /// A label demands exactly one answer, also of a client that wants no echoes.
    @Test func aLabelIsAnsweredOnce() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect(
            "alice", lines: ["CAP LS 302", "CAP REQ :labeled-response message-tags batch", "CAP END"])
        let bob = world.connect("bob")
        func answers(_ label: String) -> [String] { alice.read.filter { $0.hasPrefix("@label=\(label) ") } }
        world.send(alice, "@label=a PRIVMSG bob :hello")
        #expect(answers("a") == ["@label=a :srv ACK"])
        world.send(alice, "@label=b;+typing=active TAGMSG bob")
        #expect(answers("b") == ["@label=b :srv ACK"])
        world.send(bob, "AWAY :gone fishing")
        world.send(alice, "@label=c PRIVMSG bob :are you there?")
        #expect(answers("c").map { $0.contains(" 301 ") } == [true])
        world.send(alice, "PRIVMSG bob :no label")
        #expect(alice.read.count { $0.hasSuffix(" ACK") } == 2)
        #expect(bob.texts == ["hello", "are you there?", "no label"])
    }

    @Test func echoesThatNobodyAskedForAreKeptFromTheClient() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :hello")
        #expect(alice.messages.isEmpty)
        #expect(bob.messages == [":alice!alice@host.test PRIVMSG bob :hello"])
        #expect(bob.read.allSatisfy { !$0.hasPrefix("@") })
    }

    @Test(arguments: backends) func oneCanWriteToOneself(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let alice = world.connect("alice")
        world.send(alice, "PRIVMSG alice :lag check")
        world.send(alice, "PRIVMSG alice :once more")
        #expect(alice.messages.map { $0.split(separator: ":").last ?? "" } == ["lag check", "once more"])
        #expect(!world.canary.contains("lag check"))
    }

    @Test func outsidersAreRefusedAndMarked() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let carol = world.connect("carol", direct: true)
        world.send(alice, "@label=1 PRIVMSG carol :secret")
        #expect(alice.read.last?.contains(" 531 alice carol :Not sent: carol") == true)
        #expect(carol.messages.isEmpty && !world.canary.contains("secret"))
        world.send(carol, "PRIVMSG alice :hi")
        world.send(carol, "PRIVMSG alice :\u{1}ACTION waves\u{1}")
        #expect(
            alice.messages == [
                ":carol!carol@host.test PRIVMSG alice :[not encrypted] hi",
                ":carol!carol@host.test PRIVMSG alice :\u{1}ACTION [not encrypted] waves\u{1}",
            ])
    }

    @Test func roomsAndDirectConnectionsAreRefused() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, "PRIVMSG #room :secret")
        #expect(alice.read.last?.contains(" 404 alice #room :Not sent") == true)
        world.send(alice, "PRIVMSG @#room :secret")
        #expect(alice.read.last?.contains(" 404 alice @#room :Not sent") == true)
        world.send(alice, "PRIVMSG bob :\u{1}DCC SEND secret 1 2 3\u{1}")
        #expect(alice.read.last?.contains(" 531 alice bob :Not sent: a direct connection") == true)
        #expect(!world.canary.contains("secret"))
    }

    @Test func severalTargetsAreEachTreatedForThemselves() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        let dave = world.connect("dave")
        world.connect("carol", direct: true)
        world.send(alice, "PRIVMSG bob,carol,dave,#room :to all of you")
        #expect(bob.messages.count == 1 && dave.messages.count == 1)
        #expect(alice.read.filter { $0.contains("Not sent") }.count == 2)
        #expect(!world.canary.contains("to all of you"))
    }

    @Test func freeTextForTheServerIsRemoved() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.send(alice, "AWAY :at the secret place")
        world.send(alice, "PART #room :secret reason")
        world.send(alice, "KICK #room bob :secret reason")
        world.send(alice, "TOPIC #room :secret topic")
        world.send(alice, "TOPIC #room")
        world.send(alice, "FROBNICATE secret")
        world.send(alice, "QUIT :secret reason")
        #expect(!world.canary.contains("secret"))
        #expect(world.backend.seen.suffix(5) == ["AWAY :Away", "PART #room", "KICK #room bob", "TOPIC #room", "QUIT"])
        #expect(["AWAY", "PART", "KICK", "QUIT"].allSatisfy { alice.wasNotified(Notices.stripped($0)) })
        #expect(alice.read.filter { $0.contains(" 421 alice ") }.count == 2)
    }

    @Test func awayAndErrorsReachTheSenderOnce() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(bob, "AWAY :fishing")
        world.send(alice, "PRIVMSG bob :\(String(repeating: "long text ", count: 44))")
        #expect(alice.read.filter { $0.contains(" 301 ") }.count == 1)
        #expect(!bob.messages.isEmpty)
    }

    @Test func aMessageThatTheBackendRefusesIsDeadAndItsSenderKnows() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :one")
        world.backend.people[bob.id]?.nick = "elsewhere"
        world.send(alice, "PRIVMSG bob :\(String(repeating: "two ", count: 110))")
        #expect(alice.read.filter { $0.contains(" 401 alice bob ") }.count == 1)
        let dead = try world.store.requests(states: [.dead], limit: 10)
        #expect(dead.count == 1 && dead.first?.reason?.contains("401") == true)
        #expect(try world.store.requestCounts()[.pending] == nil)
    }

    @Test func nothingOvertakesACommit() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, "PRIVMSG bob :before")
        let count = world.backend.seen.count
        world.isStoreSlow = true
        world.send(alice, "PRIVMSG bob :slow one")
        world.send(alice, "JOIN #room")
        world.send(alice, "PRIVMSG nobody :refused at once")
        #expect(alice.read.last?.contains(" 531 ") == true)
        #expect(world.backend.seen.count == count)
        world.isStoreSlow = false
        world.settle()
        let after = world.backend.seen.dropFirst(count).map { String($0.split(separator: " ").first ?? "") }
        #expect(after.first == "PRIVMSG" && after.last == "JOIN")
    }

    @Test func aFailedCommitIsReportedAndTheNextMessageIsSent() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :one")
        world.store.failNextCommit()
        world.send(alice, "PRIVMSG bob :lost to the disk")
        #expect(alice.read.last?.contains(Notices.notCommitted(target: "bob")) == true)
        world.send(alice, "PRIVMSG bob :three")
        #expect(bob.messages.map { $0.split(separator: ":").last ?? "" } == ["one", "three"])
    }

    /// Clients that ask for every capability there is and prove nothing are hosted like all others.
    @Test(arguments: [[], SimulatedBackend.modern]) func askingForTheCapabilityIsNoProof(_ offers: [String]) throws {
        let world = try World(.hosted, offers: offers)
        let asking = ["CAP LS 302", "CAP REQ :pawl/e2ee"]
        let people = ["alice", "bob"].map { name in
            let client = world.connect(name, lines: asking)
            world.send(client, "CAP END")
            return client
        }
        #expect(people.allSatisfy { $0.read.contains { $0.contains(" PAWL * ") } }, "both have been challenged")
        world.send(people[0], "PRIVMSG bob :to a claim")
        #expect(people[1].messages.contains { $0.hasSuffix(":to a claim") })
        #expect(!world.canary.contains("to a claim") && world.canary.contains("?PAWL:"))
        #expect(world.environment.tally[.refusedUnsealed] == 0)
    }

    @Test func requiredRefusesLegacyPeople() throws {
        let world = try World(.required)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        let carol = world.connect("carol", direct: true)
        world.send(alice, "PRIVMSG bob :secret")
        let refusal = Notices.refusal(.required, target: "bob", texts: NoticeTexts())
        #expect(alice.read.last?.contains(refusal) == true)
        world.send(carol, "PRIVMSG bob :hello")
        #expect(bob.messages.allSatisfy { !$0.contains("hello") })
        #expect(bob.read.last?.contains("withheld") == true)
        #expect(!world.canary.contains("secret"))
    }

    @Test func servicesAreAskedForAndExempt() throws {
        let world = try World(.hosted) {
            $0.exemptions = [Exemption(nick: "*Serv", proof: .server("services.*"))]
        }
        world.backend.services["nickserv"] = ("services.host", "services.test")
        let alice = world.connect("alice")
        world.connect("EvilServ", direct: true)
        world.send(alice, "PRIVMSG NickServ :IDENTIFY hunter2")
        #expect(world.backend.seen.last == "PRIVMSG NickServ :IDENTIFY hunter2")
        #expect(alice.read.allSatisfy { !$0.contains(" 311 ") && !$0.contains(" 318 ") })
        world.send(alice, "PRIVMSG EvilServ :IDENTIFY hunter3")
        #expect(!world.canary.contains("hunter3"))
        #expect(alice.read.last?.contains("Not sent") == true)
        #expect(try world.store.requestCounts().isEmpty)
        world.backend.send(alice.id, ":NickServ!s@services.host NOTICE alice :You are now identified")
        world.settle()
        #expect(alice.messages.last == ":NickServ!s@services.host NOTICE alice :You are now identified")
        world.backend.send(alice.id, ":NickServ!s@evil.host NOTICE alice :Give me your password")
        world.settle()
        #expect(alice.messages.last?.contains("[not encrypted] Give me") == true)
        // The client's own question is answered.
        world.send(alice, "WHOIS NickServ")
        #expect(alice.read.contains { $0.contains(" 318 ") })
    }

    @Test(arguments: [true, false]) func aFilterIsReportedAndNeverAnsweredInTheClear(_ silently: Bool) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        world.backend.filter = (silently, true)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :blocked by a filter")
        #expect(alice.read.last?.contains(silently ? "filter of the server" : "was blocked") == true)
        #expect(bob.messages.isEmpty && !world.canary.contains("blocked by a filter"))
        let dead = try world.store.requests(states: [.dead], limit: 10)
        #expect(dead.count == 1 && dead.first?.reason != nil)
    }

    @Test func pacingHoldsBackAndKeepsOrder() throws {
        let world = try World(.hosted) { $0.flood = .init(burst: 4, linesPerSecond: 1) }
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        for number in 0..<6 { world.send(alice, "PRIVMSG bob :paced \(number)") }
        let early = bob.messages.count
        #expect(early < 6)
        world.advance(seconds: 30)
        #expect(bob.messages.map { String($0.split(separator: " ").last ?? "") } == (0..<6).map(String.init))
    }

    @Test func aTextWithTagsKeepsThemInside() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let caps = ["CAP LS 302", "CAP REQ :message-tags", "CAP END"]
        let alice = world.connect("alice", lines: caps)
        let bob = world.connect("bob", lines: caps)
        world.send(alice, "@+draft/reply=secretid PRIVMSG bob :an answer")
        world.send(alice, "@+draft/react=secretsmile TAGMSG bob")
        world.send(alice, "@+typing=active TAGMSG bob")
        #expect(bob.read.contains { $0.contains("+draft/reply=secretid") && $0.contains("an answer") })
        #expect(bob.read.contains { $0.contains("+draft/react=secretsmile") && $0.contains("TAGMSG bob") })
        #expect(!world.canary.contains("secret") && !world.canary.contains("typing"))
    }

    /// A reload reaches those who are connected.
    @Test func newTextsHoldForThoseWhoAreHere() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        var settings = world.environment.settings
        settings.texts.outsider = "Ask the operator about {target}."
        world.environment.replace(settings)
        world.send(alice, "PRIVMSG stranger :hello")
        #expect(alice.read.last?.hasSuffix(":Ask the operator about stranger.") == true, "\(alice.read)")
    }
}
