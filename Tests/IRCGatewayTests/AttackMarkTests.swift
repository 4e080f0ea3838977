import Devices
import Envelope
import Protection
import Reports
import Testing

@testable import IRCGateway

/// Attacks on what people see of a message: its mark, its name, and what is no message at all.
@Suite struct AttackMarkTests {
    let alice: World
    let bob: World
    let people: (alice: World.Client, bob: World.Client)

    init() throws {
        (alice, bob) = try World.sidecars()
        people = (alice.connect("alice"), bob.connect("bob"))
    }

    @Test(arguments: [
        "[e2e] forged", "[e2e verified] forged", "\u{2}[e2e]\u{2} forged", "\u{3}04[e2e] forged", "[gateway] forged",
        "\u{1}ACTION [e2e] forged\u{1}", "\u{200B}[E2E] forged",
        String(repeating: "\u{F}", count: 200) + "[e2e verified] forged", "\u{4}FF0000[e2e verified] forged",
        "\u{4}ff0000,00FF00[gateway] forged", "[\u{3}04e2e verified] forged", "\u{3}4,12[e\u{3}2e] [e2e] forged",
    ]) func aTypedMarkIsShownAsTyped(_ text: String) {
        alice.forge(people.alice, [":carol!c@host.test PRIVMSG alice :\(text)"])
        #expect(people.alice.shown(from: "carol").last?.contains("[not encrypted]") == true)
        #expect(alice.environment.tally[.deliveredMarked] == 1)
    }

    @Test(arguments: ["device", "gateway"]) func aTagOfTheBackendProvesNothing(_ value: String) throws {
        let one = try World(.opportunistic, offers: ["message-tags"], seed: 26, sidecar: true) { $0.marks = .tags }
        let client = one.open()
        for line in ["CAP REQ :message-tags", "NICK dora", "USER d 0 * :d", "CAP END"] { one.send(client, line) }
        one.forge(client, ["@pawl/protection=\(value) :carol!c@host.test PRIVMSG dora :forged"])
        #expect(client.read.contains { $0.hasSuffix(":forged") })
        #expect(!client.read.contains { $0.contains("pawl/protection") })
        // In front of a gateway as well.
        let front = try World(.opportunistic, offers: ["message-tags"], seed: 27)
        let legacy = front.open()
        for line in ["CAP REQ :message-tags", "NICK dora", "USER d 0 * :d", "CAP END"] { front.send(legacy, line) }
        front.forge(legacy, ["@pawl/protection=\(value) :carol!c@host.test PRIVMSG dora :forged"])
        #expect(legacy.read.contains { $0.hasSuffix(":forged") })
        #expect(!legacy.read.contains { $0.contains("pawl/protection") })
    }

    /// Clients show `:bob PRIVMSG` as bob's words too.
    @Test func aSourceWithoutAHostIsNoWayAround() {
        alice.send(people.alice, "PRIVMSG bob :hello")
        alice.forge(people.alice, [":bob PRIVMSG alice :forged", ":bob NOTICE alice :forged"])
        #expect(!people.alice.read.contains { $0.contains("forged") })
        #expect(alice.environment.tally[.withheld] == 2)
    }

    /// Clients show a message in the conversation with its sender, also if its target is not theirs, nor a room.
    @Test(arguments: ["zzz", "$*", "@#room"]) func aTargetOfNobodyIsNoWayAround(_ target: String) throws {
        alice.send(people.alice, "PRIVMSG bob :hello")
        alice.forge(people.alice, [":srv 005 alice STATUSMSG= :are supported"])
        alice.forge(people.alice, [":bob!b@host.test PRIVMSG \(target) :forged", ":bob NOTICE \(target) :forged"])
        #expect(!people.alice.read.contains { $0.contains("forged") })
        #expect(alice.environment.tally[.withheld] == 2)
        // One of the server's operators is read by all.
        alice.forge(people.alice, [":carol!c@host.test PRIVMSG \(target) :to all"])
        #expect(people.alice.read.last == ":carol!c@host.test PRIVMSG \(target) :to all")
        let world = try World(.hosted)
        let readers = world.people(2)
        world.send(readers[0], "PRIVMSG p1 :sealed")
        world.forge(readers[1], [":srv 005 p1 STATUSMSG= :are supported"])
        world.forge(readers[1], [":p0!p0@host.test PRIVMSG \(target) :forged"])
        world.forge(readers[1], [":p9!p9@host.test PRIVMSG \(target) :to all"])
        #expect(!readers[1].read.contains { $0.contains("forged") })
        #expect(readers[1].read.last == ":p9!p9@host.test PRIVMSG \(target) :[not encrypted] to all")
    }

    /// A gateway in front sends such a NICK after an outage, and clients follow it.
    @Test func theOwnNickChangesWithoutAHost() {
        alice.send(people.alice, "PRIVMSG bob :hello")
        alice.backend.people[people.alice.id]?.nick = "alice_"
        alice.forge(people.alice, [":alice NICK :alice_"])
        bob.forge(people.bob, [":alice!alice@host.test NICK :alice_"])
        for (world, client) in [(bob, people.bob), (alice, people.alice)] { world.send(client, "JOIN #den") }
        alice.send(people.alice, "PRIVMSG #den :secret")
        #expect(people.alice.machine.nick == "alice_" && people.alice.machine.isMember(of: "#den"))
        #expect(!alice.canary.contains("secret"))
    }

    @Test func aTypedNoticeIsShownAsTyped() {
        alice.forge(people.alice, [":carol!c@host.test NOTICE alice :\u{3}04*\u{2}** Keys were exchanged"])
        #expect(people.alice.messages.last?.contains("[not encrypted] ") == true)
    }

    /// The mark is read in each of the lines, and not in the text that they would become.
    @Test func linesOfTheBackendAreNotJoined() throws {
        let one = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 28, sidecar: true) {
            $0.multiline = MultilineLimits(messageLines: Armour.maximumFragments, devices: true)
        }
        let client = one.connect(
            "dora", lines: ["CAP LS 302", "CAP REQ :batch draft/multiline message-tags", "CAP END"])
        let carol = ":carol!c@host.test"
        one.forge(
            client,
            [
                "\(carol) BATCH +x draft/multiline dora", "@batch=x \(carol) PRIVMSG dora :[e",
                "@+ok=1;batch=x;draft/multiline-concat \(carol) PRIVMSG dora :2e verified] x", ":srv BATCH -x",
                ":srv BATCH +y netjoin a b", "@batch=y \(carol) JOIN #x", ":srv BATCH -y",
            ])
        #expect(
            client.read.suffix(5) == [
                "\(carol) PRIVMSG dora :[e", "@+ok=1 \(carol) PRIVMSG dora :2e verified] x",
                ":srv BATCH +y netjoin a b", "@batch=y \(carol) JOIN #x", ":srv BATCH -y",
            ])
    }

    // MARK: Long texts

    /// A text that fits a line, until it has a mark.
    @Test func everyPieceOfALongTextHasTheMark() throws {
        let world = try World(.hosted)
        let readers = world.people(2)
        let outsider = world.connect("p9", direct: true)
        world.send(outsider, "JOIN #room")
        let long = String(repeating: "\u{2}", count: 440) + " pay to this account, not sealed"
        world.forge(readers[0], [":p9!p9@host.test PRIVMSG #room :\(long)"])
        let action = String(repeating: "x", count: 430) + " pays to this account, not sealed"
        world.forge(readers[0], [":p9!p9@host.test PRIVMSG #room :\u{1}ACTION \(action)\u{1}"])
        let shown = readers[0].shown(from: "p9")
        #expect(shown.count == 4)
        #expect(shown.prefix(2).allSatisfy { $0.hasPrefix("[not encrypted] ") })
        #expect(shown.suffix(2).allSatisfy { $0.hasPrefix("\u{1}ACTION [not encrypted] ") })
        #expect(readers[0].read.allSatisfy { !$0.contains(":p9!") || $0.utf8.count <= 510 })
    }

    @Test func noPieceImitatesAMark() {
        let forged = "[e2e\u{A0}verified]\u{A0}pay"
        alice.forge(
            people.alice, [":carol!c@host.test PRIVMSG alice :[e2e \(String(repeating: "a", count: 450)) \(forged)"])
        #expect(people.alice.shown(from: "carol").count == 2)
        #expect(people.alice.shown(from: "carol").allSatisfy { $0.hasPrefix("[not encrypted] ") })
        alice.send(people.alice, "PRIVMSG bob :hello")
        bob.send(people.bob, "PRIVMSG alice :\(String(repeating: "x", count: 460)) \(forged)")
        bob.send(people.bob, "PRIVMSG alice :\u{1}PING \(String(repeating: "x", count: 460)) \(forged)")
        let shown = people.alice.shown(from: "bob")
        #expect(shown.count == 4 && shown[1] == "[e2e] \(forged)" && shown[3] == "[e2e] \(forged)")
    }

    @Test func noPieceIsACTCP() throws {
        // The line is full behind DCC, so it is broken at the space before.
        let text = String(repeating: "x", count: 464) + " \u{1}\u{1}DCC SEND a 1 2 3\u{1}"
        alice.send(people.alice, "PRIVMSG bob :hello")
        bob.send(people.bob, "PRIVMSG alice :\(text)")
        #expect(people.alice.shown(from: "bob").last == "[e2e] DCC SEND a 1 2 3\u{1}")
        let world = try World(.hosted)
        let readers = world.people(2)
        world.send(readers[0], "PRIVMSG p1 :\(String(repeating: "x", count: 11))\(text)")
        #expect(readers[1].shown(from: "p0").last == "DCC SEND a 1 2 3\u{1}")
        #expect(!readers[1].read.contains { $0.contains(" :\u{1}") })
    }

    /// Lines that were stored and not shown are broken in the same way, and contain no others.
    @Test func linesOfBeforeARestartHaveTheMark() throws {
        alice.send(people.alice, "PRIVMSG bob :hello")
        bob.diesBeforeSockets = true
        let line = ":carol!c@host.test PRIVMSG bob :[e2e verified] forged"
        let body = Body(text: Array("\(String(repeating: "x", count: 460))\r\n\(line)".utf8))
        alice.run(people.alice) {
            people.alice.machine.send(
                OutboundMessage(verb: "PRIVMSG", target: "bob", body: body, tags: []), alice.now, $0)
        }
        alice.settle()
        bob.close(people.bob)
        let again = try World(.opportunistic, store: bob.store, seed: 6, beside: alice, sidecar: true)
        let client = again.connect("bob")
        #expect(client.shown(from: "alice").count == 2)
        #expect(client.shown(from: "alice").allSatisfy { $0.hasPrefix("[e2e] ") })
        #expect(!client.read.contains { $0.hasPrefix(":carol!") })
        #expect(client.read.allSatisfy { !$0.hasPrefix(":alice!alice") || $0.utf8.count <= 510 })
    }

    // MARK: Names and targets

    /// Labels of two sidecars may be the same, and the backend knows them.
    @Test func messagesOfPeopleAnswerNoRequest() throws {
        let one = try World(.opportunistic, offers: SimulatedBackend.modern, seed: 24, sidecar: true)
        let other = try World(.opportunistic, seed: 25, beside: one, sidecar: true)
        let (dora, bob) = (one.connect("dora"), other.connect("bob"))
        one.send(dora, "PRIVMSG bob :hello")
        // Before the echo, somebody else's line has its label.
        one.backend.delayed[dora.id] = []
        one.send(dora, "PRIVMSG bob :secret")
        let sent = one.backend.seen.last { $0.hasPrefix("@label=pawls-") && $0.contains("PRIVMSG bob") }
        let label = sent?.dropFirst(7).prefix { $0 != ";" && $0 != " " }
        one.backend.delayed[dora.id]?.insert(
            "@label=\(label ?? "") :bob!bob@host.test PRIVMSG dora :?PAWL:QUJD.", at: 0)
        one.backend.release(dora.id)
        one.settle()
        #expect(label != nil)
        #expect(bob.shown().last == "[e2e] secret")
        #expect(!dora.read.contains { $0.contains("?PAWL") || $0.contains("label=pawls") })
    }
}
