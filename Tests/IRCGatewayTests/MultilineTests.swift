import Envelope
import Foundation
import IRCCodec
import Protection
import StorePort
import Testing

@testable import IRCGateway

/// Messages of several lines, which the gateway takes by itself under `hosted`.
@Suite struct MultilineTests {
    private static let all = "batch draft/multiline message-tags labeled-response echo-message"

    /// Somebody whose client has the capability, as far as the backend lets it have the others.
    private func modern(_ world: World, _ nick: String, account: String? = nil) -> World.Client {
        let isModern = world.backend.offers?.contains("message-tags") == true
        return world.connect(
            nick, account: account,
            lines: ["CAP LS 302", "CAP REQ :\(isModern ? Self.all : "batch draft/multiline")", "CAP END"])
    }

    private func send(_ world: World, _ client: World.Client, _ target: String, _ lines: [String], head: String = "") {
        world.send(client, "\(head)BATCH +7 draft/multiline \(target)")
        for line in lines {
            let continues = line.hasPrefix("+")
            let tags = continues ? "@batch=7;draft/multiline-concat" : "@batch=7"
            world.send(client, "\(tags) PRIVMSG \(target) :\(continues ? String(line.dropFirst()) : line)")
        }
        world.send(client, "BATCH -7")
    }

    private func texts(_ client: World.Client) -> [String] {
        client.messages.map { line in
            // Behind tags there is another colon, that of the source.
            let verb = line.range(of: " PRIVMSG ")?.upperBound ?? line.startIndex
            return line[verb...].range(of: " :").map { String(line[$0.upperBound...]) } ?? line
        }
    }

    @Test(arguments: HostedMessageTests.backends) func aBatchIsOneMessageToTheBackend(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let (alice, bob, carol) = (modern(world, "alice"), modern(world, "bob"), world.connect("carol"))
        let lines = ["first the list", "", "second how is ", "+everyone", "third"]
        let before = world.backend.seen.count
        send(world, alice, "bob", lines)
        #expect(world.backend.seen.dropFirst(before).count { $0.contains("?PAWL:") } == 1)
        #expect(!world.canary.contains("BATCH") && !world.canary.contains("multiline"))
        for word in ["first", "everyone", "third"] { #expect(!world.canary.contains(word)) }
        let batch = try #require(bob.read.first { $0.contains(" BATCH +") })
        #expect(batch.contains(":alice!alice@host.test BATCH +pawl-1 draft/multiline bob"))
        #expect(texts(bob) == ["first the list", "", "second how is ", "everyone", "third"])
        #expect(
            bob.messages.map { $0.hasPrefix("@batch=pawl-1;draft/multiline-concat ") } == [
                false, false, false, true, false,
            ])
        #expect(bob.messages.allSatisfy { $0.hasPrefix("@batch=pawl-1") })
        #expect(bob.read.last?.hasSuffix(" BATCH -pawl-1") == true)
        // Without the capability: the lines that are not blank.
        send(world, alice, "carol", lines)
        #expect(texts(carol) == ["first the list", "second how is ", "everyone", "third"])
        #expect(!carol.read.contains { $0.contains("BATCH") || $0.contains("@batch") })
    }

    @Test func itIsOfferedWhereItIsTrue() throws {
        for policy in [Policy.observe, .opportunistic, .hosted] {
            let world = try World(policy, offers: SimulatedBackend.modern)
            let client = world.open()
            world.send(client, "CAP LS 302")
            #expect(client.read.last?.contains("draft/multiline=max-bytes=") == (policy == .hosted))
            let old = world.open()
            world.send(old, "CAP LS")
            #expect(old.read.last?.contains("multiline") == false)
        }
        let short = try World(.hosted, offers: []) { $0.multiline = MultilineLimits(messageLines: 1) }
        let client = short.open()
        short.send(client, "CAP LS 302")
        #expect(client.read.last?.contains("multiline") == false)
        short.send(client, "CAP REQ :draft/multiline")
        #expect(client.read.last?.contains(" NAK :draft/multiline") == true)
    }

    /// Whoever logs in to a protected account learns of it then; a backend's own capability is for those who are not.
    @Test func anAccountBringsIt() throws {
        let world = try World(.observe, offers: SimulatedBackend.modern + ["draft/multiline=max-bytes=4096"])
        world.environment.policies.update { $0.accounts[.services("anna")] = .hosted }
        let client = world.open()
        world.send(client, "CAP LS 302")
        #expect(client.read.last?.contains("draft/multiline=max-bytes=4096") == true)
        world.send(client, "NICK anna")
        world.send(client, "USER anna 0 * :anna")
        world.send(client, "CAP END")
        world.backend.login(client.id, "anna")
        world.settle()
        let offer = try #require(client.read.last { $0.contains(" CAP anna NEW ") })
        #expect(offer.contains("draft/multiline=max-bytes=2"))
        world.send(client, "CAP REQ :batch draft/multiline")
        #expect(client.read.last?.contains(" ACK :batch draft/multiline") == true)
        #expect(!world.canary.contains("draft/multiline"))
    }

    @Test func theSendersEchoIsABatchWithItsLabel() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (modern(world, "alice"), modern(world, "bob"))
        send(world, alice, "bob", ["one", "two"], head: "@label=xyz;+draft/reply=m9 ")
        let echo = try #require(alice.read.firstIndex { $0.contains(" BATCH +pawl-1") })
        let head = alice.read[echo]
        #expect(head.contains("label=xyz") && head.contains("msgid=") && head.contains("+draft/reply=m9"))
        #expect(alice.read[(echo + 1)...].prefix(2).allSatisfy { $0.hasPrefix("@batch=pawl-1 ") })
        let shown = try #require(bob.read.first { $0.contains(" BATCH +") })
        #expect(shown.contains("+draft/reply=m9") && shown.contains("msgid=") && !shown.contains("label"))
    }

    @Test func aRoomReadsItTogether() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let people = [modern(world, "alice"), modern(world, "bob"), world.connect("carol"), world.connect("dora")]
        for person in people { world.send(person, "JOIN #den") }
        send(world, people[0], "#den", ["one", "two"])
        for reader in people.dropFirst() { #expect(texts(reader) == ["one", "two"], "\(reader.read)") }
        #expect(people[1].read.contains { $0.contains("BATCH +pawl-1 draft/multiline #den") })
    }

    /// A line that nobody has shown yet is shown after a restart, as lines and nothing else.
    @Test func linesOutliveTheProcess() throws {
        let store = InMemoryStore(.shared)
        let world = try World(.hosted, offers: SimulatedBackend.modern, store: store)
        let (alice, _) = (modern(world, "alice", account: "alice"), modern(world, "bob", account: "bob"))
        world.diesBeforeSockets = true
        send(world, alice, "bob", ["one", "", "QUIT :two"])
        let next = try World(.hosted, offers: SimulatedBackend.modern, store: store, seed: 2)
        let bob = next.connect("bob", account: "bob")
        #expect(bob.messages == ["one", "QUIT :two"].map { ":alice!alice@host.test PRIVMSG bob :\($0)" })
        #expect(!bob.read.contains { $0.hasPrefix("QUIT") })
    }

    @Test func whatIsPlaintextIsSentAsLines() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern) {
            $0.exemptions = [Exemption(nick: "*Serv", proof: .server("services.test"))]
        }
        world.backend.services["nickserv"] = (host: "services.test", server: "services.test")
        let alice = modern(world, "alice")
        send(world, alice, "NickServ", ["help", "", "register"])
        #expect(world.backend.seen.suffix(2) == ["PRIVMSG NickServ :help", "PRIVMSG NickServ :register"])
    }

    @Test func aPolicyThatFallsLosesNothing() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (modern(world, "alice"), world.connect("bob"))
        world.environment.policies.update { $0 = PolicySnapshot(everyone: .observe) }
        send(world, alice, "bob", ["one", "two"])
        #expect(texts(bob) == ["one", "two"])
        #expect(!world.canary.contains("BATCH"))
    }

    @Test func refusedBatchesAreNotSentInPart() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (modern(world, "alice"), modern(world, "bob"))
        let limits = try #require(MultilineLimits(messageLines: Armour.maximumFragments))
        let long = String(repeating: "x", count: 400)
        let cases: [(lines: [String], answer: String)] = [
            (Array(repeating: long, count: limits.bytes / 401 + 1), "MULTILINE_MAX_BYTES \(limits.bytes)"),
            ((0...MultilineLimits.lines).map { "line \($0)" }, "MULTILINE_MAX_LINES \(MultilineLimits.lines)"),
            (["", ""], "MULTILINE_INVALID"), (["one", "+"], "MULTILINE_INVALID"), ([], "MULTILINE_INVALID"),
            (["one", "\u{1}DCC SEND x 1 2 3\u{1}"], "MULTILINE_INVALID"), (["a\rb"], "MULTILINE_INVALID"),
        ]
        for (lines, answer) in cases {
            let before = alice.read.count
            send(world, alice, "bob", lines, head: "@label=l1 ")
            let fails = alice.read.dropFirst(before).filter { $0.contains(" FAIL BATCH ") }
            #expect(fails.count == 1 && fails[0].contains(" FAIL BATCH \(answer) :"), "\(fails)")
            #expect(fails.first?.hasPrefix("@label=l1 ") == true)
        }
        world.send(alice, "BATCH +7 draft/multiline bob")
        world.send(alice, "@batch=7 PRIVMSG carol :hello")
        #expect(alice.read.last?.contains("FAIL BATCH MULTILINE_INVALID_TARGET bob carol :") == true)
        world.send(alice, "@batch=7 PRIVMSG bob :hello")
        world.send(alice, "BATCH -7")
        world.send(alice, "BATCH +7 draft/multiline bob,carol")
        #expect(alice.read.last?.contains("FAIL BATCH MULTILINE_INVALID :") == true)
        world.send(alice, "BATCH +8 draft/multiline bob")
        #expect(alice.read.last?.contains("FAIL BATCH MULTILINE_INVALID :") == true)
        world.send(alice, "BATCH -8")
        #expect(bob.messages.isEmpty)
        // All is as before.
        send(world, alice, "bob", ["one", "two"])
        #expect(texts(bob) == ["one", "two"])
    }

    /// Who has not asked for it has no batches, and their lines are messages.
    @Test func withoutTheCapabilityThereIsNone() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, bob) = (world.connect("alice"), world.connect("bob"))
        send(world, alice, "bob", ["one"])
        #expect(alice.read.contains { $0.contains(" 421 alice BATCH ") } && texts(bob) == ["one"])
    }

    /// The largest message fits the longest names that a server is likely to have.
    @Test func theLimitIsHonest() throws {
        let world = try World(.hosted, offers: [])
        let (alice, bob) = (modern(world, String(repeating: "a", count: 30)), modern(world, "bob"))
        let room = "#" + String(repeating: "r", count: 63)
        for person in [alice, bob] { world.send(person, "JOIN \(room)") }
        let limits = try #require(MultilineLimits(messageLines: Armour.maximumFragments))
        var rest = limits.bytes
        var lines: [String] = []
        while rest > 0 {
            let count = min(rest, 400)
            lines.append((lines.isEmpty ? "" : "+") + String(repeating: "x", count: count))
            rest -= count
        }
        send(world, alice, room, lines)
        #expect(texts(bob).map(\.utf8.count).reduce(0, +) == limits.bytes)
        #expect(!alice.read.contains { $0.contains(" FAIL ") || $0.contains(" 531 ") })
    }

    @Test func bodiesOfSeveralLines() throws {
        let lines = [
            Body.Line(text: []), Body.Line(text: Array("a".utf8), continues: true), Body.Line(text: Array("b".utf8)),
            Body.Line(text: []),
        ]
        let body = Body(lines: lines, tags: Array("+x=1".utf8))
        #expect(try Body(body.bytes(paddedTo: 100)) == body)
        #expect(body.lines == lines && body.kind == .lines)
        #expect(Body(text: Array("a\rb".utf8)).lines == [Body.Line(text: Array("a\rb".utf8))])
        let long = Array("one two three four five six seven eight nine ten".utf8)
        let pieces = LineBreaker.pieces(long, room: 12, keepsSpaces: true)
        #expect(Array(pieces.joined()) == long && pieces.allSatisfy { $0.count <= 12 })
    }
}
