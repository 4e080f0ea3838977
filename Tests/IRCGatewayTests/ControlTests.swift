import Devices
import IRCGateway
import Protection
import Reports
import Testing

/// Commands to the sidecar itself, in a private message to `*pawl`.
@Suite struct ControlTests {
    private let alice: World
    private let client: World.Client

    init() throws {
        alice = try World(.opportunistic, offers: ["message-tags"], seed: 1, sidecar: true)
        client = alice.connect("alice")
    }

    @Test(arguments: [
        "PRIVMSG *pawl :status", "privmsg *PAWL status", "@+a=b;label=x PRIVMSG *pawl :status", "NOTICE *pawl :status",
        "TAGMSG *pawl", "PRIVMSG *pawl :\u{1}VERSION\u{1}", "PRIVMSG *pawl", "PRIVMSG *pawl,bob", "PRIVMSG *pawl :",
        "WHOIS *pawl", "WHOIS srv *pawl", "PRIVMSG *pawl,*pawl :status",
    ]) func nothingOfItLeavesTheSidecar(_ line: String) {
        let before = alice.backend.seen.count
        alice.send(client, line)
        #expect(alice.backend.seen.count == before)
        #expect(!alice.canary.contains("*pawl"))
    }

    @Test func onlyMessagesAreCommands() {
        for line in ["NOTICE *pawl :a", "TAGMSG *pawl", "PRIVMSG *pawl :\u{1}PING 1\u{1}", "PRIVMSG *pawl"] {
            alice.send(client, line)
        }
        #expect(client.commands.isEmpty)
        alice.send(client, "PRIVMSG *pawl :verify bob")
        alice.send(client, "PRIVMSG *Pawl help")
        #expect(client.commands == ["verify bob", "help"])
    }

    @Test func othersGetTheirPartOfALine() {
        let bob = alice.connect("bob", direct: true)
        alice.send(client, "PRIVMSG bob,*pawl :for bob too")
        #expect(client.commands == ["for bob too"])
        #expect(bob.texts == ["for bob too"])
        #expect(!alice.canary.contains("*pawl"))
    }

    @Test func beforeTheLoginThereIsNone() {
        let early = alice.open()
        alice.send(early, "PRIVMSG *pawl :status")
        #expect(early.commands.isEmpty && early.read.contains { $0.contains(" 451 ") })
    }

    @Test func theAnswerIsShownInItsOwnWindow() {
        alice.run(client) { client.machine.answered(.sidecar(.said(["one", "", "t\r\nwo"])), at: alice.now, $0) }
        #expect(
            client.read.suffix(3) == [
                ":*pawl!pawl@localhost PRIVMSG alice :one", ":*pawl!pawl@localhost PRIVMSG alice : ",
                ":*pawl!pawl@localhost PRIVMSG alice :two",
            ])
        let long = String(repeating: "word ", count: 300)
        alice.run(client) { client.machine.answered(.sidecar(.said([long])), at: alice.now, $0) }
        #expect(client.read.suffix(4).allSatisfy { $0.utf8.count <= 510 && $0.hasPrefix(":*pawl!") })
    }

    /// The server, or a person under that nick, must not speak for the sidecar.
    @Test(arguments: ["PRIVMSG alice :verify bob matches", "NOTICE alice :all is well", "TAGMSG alice"])
    func nothingElseSpeaksUnderItsName(_ rest: String) {
        let count = client.read.count
        alice.backend.send(client.id, ":*pawl!x@host \(rest)")
        alice.backend.send(client.id, "@+a=b :*PAWL \(rest)")
        alice.settle()
        #expect(client.read.count == count)
        #expect(alice.environment.tally[.badLines] == 2)
    }

    @Test func clientsThatAwaitAnEchoGetIt() throws {
        let other = alice.open()
        for line in ["CAP REQ :echo-message", "NICK emil", "USER e 0 * :e", "CAP END"] { alice.send(other, line) }
        alice.send(other, "PRIVMSG *pawl :help")
        if other.read.contains(where: { $0.contains("ACK") && $0.contains("echo-message") }) {
            #expect(other.read.last == ":emil PRIVMSG *pawl :help")
        }
        #expect(other.commands == ["help"])
    }

    @Test func inAnOutageItIsAnsweredToo() {
        alice.backend.isDown = true
        alice.send(client, "PRIVMSG *pawl :status")
        #expect(client.commands == ["status"])
    }

    /// A front gateway has no such nick.
    @Test func inFrontOfABackendItIsAnOrdinaryName() throws {
        let front = try World(.observe)
        let person = front.connect("carol")
        front.send(person, "PRIVMSG *pawl :status")
        #expect(person.commands.isEmpty && front.canary.contains("PRIVMSG *pawl :status"))
    }

    /// `plain NICK off`: nothing goes to a person without keys, and nothing of theirs is shown.
    @Test func plainTextToAPersonCanBeRefused() {
        let bob = alice.connect("bob", direct: true)
        alice.pendingJobs.append(.protect(ConversationID(.own, .nick("bob")), names: ("bob", "")))
        alice.settle()
        alice.send(client, "PRIVMSG bob :canary")
        #expect(client.read.last?.contains("/msg *pawl plain bob on") == true)
        alice.send(bob, "PRIVMSG alice :from bob")
        #expect(!alice.canary.contains("canary") && !client.texts.contains("from bob"))
        alice.pendingJobs.append(.reset(ConversationID(.own, .nick("bob"))))
        alice.environment.latches.reset(ConversationID(.own, .nick("bob")))
        alice.settle()
        alice.send(client, "PRIVMSG bob :in the clear")
        #expect(bob.texts == ["in the clear"])
    }
}
