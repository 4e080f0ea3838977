import Devices
import Envelope
import IRCCodec
import IRCGateway
import Protection
import Reports
import Testing

/// Where a sidecar shows its notices, how often, and what it says about the person's own messages.
@Suite struct OwnLineTests {
    private let alice: World
    private let bob: World
    private let first: World.Client
    private let second: World.Client

    init() throws {
        (alice, bob) = try World.sidecars()
        (first, second) = (alice.connect("alice"), bob.connect("bob"))
    }

    /// How often a notice stands in the conversation with a nick.
    private func count(_ notice: String?, with nick: String, _ client: World.Client) -> Int {
        client.read.count { $0.hasPrefix(":\(nick)!pawl@localhost NOTICE ") && notice.map($0.contains) == true }
    }

    @Test func theFirstPlainLineHasANoticeInItsConversation() {
        let carol = alice.connect("carol", direct: true)
        for number in 1...3 { alice.send(first, "PRIVMSG carol :plain \(number)") }
        alice.send(first, "PRIVMSG NickServ :identify x")
        #expect(count(Notices.goesPlain("carol", hasFront: false), with: "carol", first) == 1)
        #expect(!first.read.contains { $0.hasPrefix(":NickServ!pawl@localhost ") })
        #expect(carol.texts.count == 3)
    }

    @Test func theChangeToEncryptionHasOneNotice() {
        alice.send(first, "PRIVMSG bob :hello")
        #expect(count(Notices.keysExchanged("bob"), with: "bob", first) == 1)
        #expect(count(Notices.keysExchanged("alice"), with: "alice", second) == 1)
        for number in 1...3 { alice.send(first, "PRIVMSG bob :secret \(number)") }
        #expect(count(Notices.goesSealed("bob", isVerified: false), with: "bob", first) == 0)
    }

    /// After a restart nothing else says that messages are encrypted.
    @Test func theFirstSealedLineOfAConnectionHasANotice() throws {
        alice.send(first, "PRIVMSG bob :hello")
        alice.close(first)
        alice.pendingJobs.append(.sidecar(.decide(.nick("bob"), .verify)))
        alice.settle()
        let again = alice.connect("alice")
        for number in 1...3 { alice.send(again, "PRIVMSG bob :secret \(number)") }
        #expect(count(Notices.goesSealed("bob", isVerified: true), with: "bob", again) == 1)
    }

    @Test func aMessageThatWaitsHasANotice() {
        alice.backend.relay = { $0.contains("NOTICE") ? [] : [$0] }
        alice.send(first, "PRIVMSG bob :hello")
        for number in 1...2 { bob.send(second, "PRIVMSG alice :answer \(number)") }
        #expect(count(Notices.waitsForKeys("alice"), with: "alice", second) == 1)
        bob.advance(seconds: 21)
        #expect(count(Notices.goesPlain("alice", hasFront: false), with: "alice", second) == 1)
    }

    @Test func changedKeysAreNoticedOnceAndRefusalsInTheConversation() throws {
        alice.send(first, "PRIVMSG bob :hello")
        alice.close(first)
        let fresh = try World(.opportunistic, seed: 4, beside: bob, sidecar: true)
        let client = fresh.connect("alice")
        for number in 1...3 { bob.send(second, "PRIVMSG alice :lost \(number)") }
        #expect(count(Notices.changedKeys("alice"), with: "alice", second) == 1)
        let failure = Notices.failure(.unknownSender, from: "bob", inSidecar: true)
        #expect(count(failure, with: "bob", client) == 1)
        let refusals = second.read.count { $0.contains(" 531 bob alice ") }
        #expect(refusals > 0)
        let refusal = Notices.refusal(.changedKeys, target: "alice", texts: NoticeTexts.sidecar)
        #expect(count(refusal, with: "alice", second) == refusals)
    }

    /// The peer writes without their sidecar: the cause and the way out come once, the notice each time.
    @Test func aStoppedSidecarIsExplained() {
        alice.send(first, "PRIVMSG bob :hello")
        alice.close(first)
        let plain = bob.connect("alice", direct: true)
        for number in 1...3 { bob.send(plain, "PRIVMSG bob :plain \(number)") }
        #expect(count(Notices.withheld(from: "alice"), with: "alice", second) == 3)
        #expect(count(Notices.stoppedSidecar("alice"), with: "alice", second) == 1)
    }

    @Test(arguments: ["NOTICE alice :*** Keys were exchanged with bob.", "NOTICE alice : \u{2}***\u{2} x"])
    func aNoticeOfTheSidecarCannotBeTyped(_ line: String) {
        let mallory = alice.connect("mallory", direct: true)
        alice.send(mallory, line)
        let shown = first.read.last { $0.hasPrefix(":mallory!") && $0.contains("***") }
        #expect(shown?.contains(":\(Notices.notEncrypted) ") == true)
    }

    /// The client asked for echoes, so its own lines have the mark.
    @Test(arguments: ProtectionMarks.allCases) func echoesAreMarked(_ marks: ProtectionMarks) throws {
        let one = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 24, sidecar: true) {
            $0.marks = marks
        }
        let other = try World(.opportunistic, seed: 25, beside: one, sidecar: true)
        let client = one.open()
        for line in ["CAP REQ :echo-message message-tags", "NICK dora", "USER d 0 * :d", "CAP END"] {
            one.send(client, line)
        }
        _ = other.connect("emil")
        one.send(client, "PRIVMSG emil :hello")
        one.send(client, "PRIVMSG emil :secret")
        let echoes = client.read.filter { $0.contains("PRIVMSG emil") }
        #expect(echoes.count == 2 && echoes.first?.hasSuffix(":hello") == true)
        #expect(echoes.last?.hasSuffix(marks == .text ? ":[e2e] secret" : ":secret") == true)
        #expect(echoes.last?.contains("pawl/protection=device") == (marks != .off))
        #expect(echoes.first?.contains("pawl/protection") == false)
    }

    @Test func withoutMarksOwnLinesHaveNoNotice() throws {
        let one = try World(.opportunistic, seed: 8, sidecar: true) { $0.marks = .tags }
        let client = one.connect("dora")
        _ = one.connect("carol", direct: true)
        one.send(client, "PRIVMSG carol :plain")
        #expect(!client.read.contains { $0.contains("!pawl@localhost") })
    }

    @Test func theFirstPlainLineInARoomHasANotice() {
        let carol = alice.connect("carol", direct: true)
        for (world, client) in [(alice, first), (alice, carol)] { world.send(client, "JOIN #den") }
        for number in 1...3 { alice.send(first, "PRIVMSG #den :plain \(number)") }
        let notice = Notices.roomGoesPlain("#den", ["carol"])
        #expect(first.read.count { $0.hasPrefix(":srv NOTICE #den :") && $0.contains(notice) } == 1)
    }
}
