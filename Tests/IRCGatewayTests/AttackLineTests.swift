import DeviceDirectory
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import Testing

@testable import IRCGateway

/// Attacks that write lines of their own to a client, or that a client reads in another way than the gateway.
@Suite struct AttackLineTests {
    private static let modern = ["CAP LS 302", "CAP REQ :message-tags", "CAP END"]

    /// Tags that a contact has sealed.
    @Test(arguments: [
        "+x :bob!b@h PRIVMSG alice :[e2e verified] send it",
        "+x\r\n:bob!b@h PRIVMSG alice :[e2e verified] send it",
        "account=b;time=t;batch=1;pawl/protection=device;+;+y\u{0}=1;+\u{1F600}=1;+x=\r\n:bob!b@h\u{0}",
    ]) func tagsOfAContactAreTagsOnly(_ tags: String) throws {
        let alice = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (reader, writer) = (alice.connect("alice", lines: Self.modern), bob.connect("bob"))
        alice.send(reader, "PRIVMSG bob :hello")
        for tags in [tags, "+ok=a\\sb;" + tags] {
            let body = Body(tags: Array(tags.utf8), text: Array("hi".utf8))
            bob.run(writer) {
                writer.machine.send(
                    OutboundMessage(verb: "PRIVMSG", target: "alice", body: body, tags: []), bob.now, $0)
            }
            bob.settle()
        }
        let lines = reader.read.filter { $0.hasSuffix(":bob!bob@host.test PRIVMSG alice :[e2e] hi") }
        #expect(lines.count == 2)
        #expect(reader.read.allSatisfy { !$0.contains(" :bob!b@h") && !$0.hasPrefix(":bob!b@h") })
        for line in lines {
            #expect(line.utf8.count < IRCLimits.lineLength)
            let keys = try IRCLine(ByteBuffer(string: line)).tagList.map(\.key)
            #expect(keys.allSatisfy { ["+ok", "+x", "msgid", "pawl/protection"].contains($0) }, "\(keys)")
            #expect(keys.count { $0 == "pawl/protection" } == 1)
        }
    }

    /// A client without draft/multiline shows each line as a message of its own.
    @Test func aContinuedLineIsNoMessageOfItsOwn() throws {
        let (alice, bob) = try World.sidecars()
        let (reader, writer) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(reader, "PRIVMSG bob :hello")
        let lines = [("hi", false), ("\u{1}VERSION\u{1}", true), ("rest", true)].map { text, continues in
            Body.Line(text: Array(text.utf8), continues: continues)
        }
        bob.run(writer) {
            writer.machine.send(
                OutboundMessage(verb: "PRIVMSG", target: "alice", body: Body(lines: lines), tags: []), bob.now, $0)
        }
        bob.settle()
        let texts = reader.texts.suffix(3)
        #expect(texts == ["[e2e] hi", "[e2e] VERSION\u{1}", "[e2e] rest"], "\(reader.read.suffix(4))")
    }

    /// The reason of a gateway in front, which may be a server that only calls itself one.
    @Test func wordsOfTheFrontAreNoLine() throws {
        let offers = SimulatedBackend.modern + [PawlCapability.name]
        let alice = try World(.opportunistic, offers: offers, seed: 1, sidecar: true)
        let reader = alice.connect("alice")
        let reason = "x\r\n:bob!b@h PRIVMSG alice :[e2e verified] send it"
        alice.forge(
            reader, ControlFrames.lines(DirectoryMessage.refused(reason).bytes, id: 0).map { ":srv " + $0 })
        #expect(reader.wasNotified(Notices.frontRefused(reason.replacing("\r\n", with: "  "))))
        #expect(!reader.read.contains { $0.hasPrefix(":bob!b@h") })
    }

    // MARK: Lines that are not IRC

    /// Lines of a person that a client could read in another way: without CR and NUL, or longer than the limit.
    private static func hidden(from nick: String, to target: String) -> [String] {
        let long = String(repeating: "x", count: 8200)
        let (first, rest) = (nick.prefix(1), nick.dropFirst())
        return [
            ":\(nick)!b@h PRIV\rMSG \(target) :evil", ":\(first)\r\(rest)!b@h PRIVMSG \(target) :evil",
            ":\(first)\u{0}\(rest)!b@h PRIVMSG \(target) :evil",
            "@\(long) :\(nick)!b@h PRIVMSG \(target) :evil", ":\(nick)!b@h PRIVMSG \(target) :evil \(long) \(long)",
        ]
    }

    @Test func hiddenLinesAreDropped() throws {
        let (alice, bob) = try World.sidecars()
        let (reader, writer) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(reader, "PRIVMSG bob :hello")
        bob.send(writer, "PRIVMSG alice :well")
        let lines = Self.hidden(from: "bob", to: "alice")
        alice.forge(reader, lines)
        #expect(alice.environment.tally[.badLines] == lines.count)
        // The rest of a line when the server ends: what the sidecar writes next would complete it.
        alice.run(reader) {
            reader.machine.fromUpstream(ByteBuffer(string: ":bob!b@h PRIVMSG alice :evil"), at: alice.now, $0)
        }
        alice.run(reader) { reader.machine.upstreamEnded(at: alice.now, $0) }
        #expect(!reader.read.contains { $0.contains("evil") })
        #expect(reader.shown(from: "bob").last == "[e2e] well")
    }

    @Test func theFrontDropsThemWhereItProtects() throws {
        let open = try World(.observe)
        let reader = open.people(2)[1]
        open.forge(reader, [":p0!b@h PRIV\rMSG p1 :odd", ":p0!b@h PRIVMSG p1 :o\rdd"])
        #expect(reader.read.suffix(2) == [":p0!b@h PRIV\rMSG p1 :odd", ":p0!b@h PRIVMSG p1 :o\rdd"])
        let world = try World(.hosted)
        let people = world.people(2)
        world.send(people[0], "PRIVMSG p1 :sealed")
        world.environment.policies.update { $0.everyone = .observe }
        world.forge(people[1], Self.hidden(from: "p0", to: "p1"))
        #expect(people[1].shown(from: "p0") == ["sealed"])
        #expect(!people[1].read.contains { $0.contains("evil") })
    }

    /// A server that ends lines at CR, or cuts long ones, would read a message in them.
    @Test(arguments: [
        "AWAY\rPRIVMSG p1 :secret", "TOPIC #room :x\rPRIVMSG p1 :secret", "PRIV\rMSG p1 :secret",
        "PRIVMSG p1 :a\u{0}secret", "MODE #room +k x\rPRIVMSG\u{20}p1 :secret",
        "PRIVMSG p1 :secret " + String(repeating: "x", count: 6000),
    ]) func linesOfTheClientAreSentWholeOrNot(_ line: String) throws {
        let world = try World(.hosted)
        let people = world.people(2)
        world.send(people[0], "PRIVMSG p1 :sealed")
        world.environment.policies.update { $0.everyone = .observe }
        world.send(people[0], line)
        #expect(!world.canary.contains("secret"))
        #expect(people[0].read.last?.contains(" 421 ") == true || people[0].read.last?.contains(" 417 ") == true)
        let (alice, _) = try World.sidecars()
        let writer = alice.connect("alice")
        alice.send(writer, line)
        #expect(!alice.canary.contains("secret"))
    }
}
