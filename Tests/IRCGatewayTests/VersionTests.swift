import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Reports
import Testing

/// Sidecars of different versions that cannot read each other: nobody is left without words.
@Suite struct VersionTests {
    let alice: World
    let bob: World
    let people: (alice: World.Client, bob: World.Client)

    init() throws {
        (alice, bob) = try World.sidecars()
        people = (alice.connect("alice"), bob.connect("bob"))
    }

    /// Lines of keys that the backend has been given for somebody.
    private func introductions(to nick: String) -> [String] {
        alice.backend.seen.filter { $0.contains("NOTICE \(nick) :?PAWL:") }
    }

    /// Programs of before the Triple Ratchet introduce themselves with form 1, and would take no session of ours.
    @Test func anOlderProgramIntroducesItself() throws {
        let forger = Forger(seed: 80)
        let source = "carol!c@host.test"
        alice.forge(
            people.alice, Forger.lines(forger.introduction(time: 1, form: 1), source, "NOTICE", "alice"))
        #expect(people.alice.wasNotified(Notices.failure(.olderVersion, from: "carol")))
        #expect(!people.alice.wasNotified("Keys were exchanged"))
        #expect(alice.environment.peers?[.nick("carol")] == nil)
        #expect(alice.environment.tally[.openOlderVersion] == 1)
        // Carol is shown ours once: a form that her program refuses as one that it does not know.
        let shown = introductions(to: "carol")
        let first = try #require(shown.first?.split(separator: " :", maxSplits: 1).last)
        guard case .fragment(_, 0, _, let bytes)? = Armour.parse(Array(first.utf8)[...]) else {
            Issue.record("no fragment: \(first)")
            return
        }
        #expect(Envelope.claim(of: bytes)?.kind == .introduction)
        #expect(bytes.count > Envelope.headerLength && bytes[Envelope.headerLength] == 2)
        alice.forge(
            people.alice, Forger.lines(forger.introduction(time: 2, form: 1), source, "NOTICE", "alice"))
        #expect(alice.environment.tally[.openOlderVersion] == 2)
        #expect(introductions(to: "carol").count == shown.count)
        // She updates, with the same keys.
        alice.forge(people.alice, Forger.lines(forger.introduction(time: 3), source, "NOTICE", "alice"))
        #expect(people.alice.wasNotified(Notices.keysExchanged("carol")))
    }

    @Test func aNewerProgramIntroducesItself() {
        alice.forge(
            people.alice,
            Forger.lines(
                Forger(seed: 81).introduction(time: 1, form: 3), "carol!c@host.test", "NOTICE", "alice"))
        #expect(people.alice.wasNotified(Notices.failure(.newerVersion, from: "carol")))
        #expect(alice.environment.tally[.openNewerVersion] == 1)
        // It would answer ours in the same way, and so on without end.
        #expect(introductions(to: "carol").isEmpty)
    }

    /// The peer goes back to an older program, or on to a newer one, and uses what it has of a session.
    @Test(arguments: [UInt8(1), 4]) func aMessageOfAnotherVersion(_ version: UInt8) throws {
        alice.send(people.alice, "PRIVMSG bob :hello")
        var relayed: [String] = []
        alice.backend.relay = {
            guard $0.contains("PRIVMSG alice :?PAWL") else { return [$0] }
            relayed.append($0)
            return []
        }
        bob.send(people.bob, "PRIVMSG alice :secret")
        alice.backend.relay = { [$0] }
        let line = try #require(relayed.first)
        let body = try #require(line.split(separator: " :", maxSplits: 1).last)
        guard case .whole(let bytes)? = Armour.parse(Array(body.utf8)[...]) else {
            Issue.record("not one line: \(line)")
            return
        }
        let genuine = try Envelope(bytes)
        let others = Envelope(
            sender: genuine.sender, messageID: genuine.messageID,
            ratchetMessage: [version << 4 | genuine.ratchetMessage[0] & 0x0F] + genuine.ratchetMessage.dropFirst())
        let before = introductions(to: "bob").count
        alice.forge(people.alice, Forger.lines(others, "bob!b@host.test", "PRIVMSG", "alice"))
        let isOlder = version == 1
        #expect(people.alice.wasNotified("bob uses an older version of Pawl") == isOlder)
        #expect(people.alice.wasNotified("Update yours.") == !isOlder)
        #expect(alice.environment.tally[.openOlderVersion] == (isOlder ? 1 : 0))
        #expect(alice.environment.tally[.openNewerVersion] == (isOlder ? 0 : 1))
        #expect((introductions(to: "bob").count > before) == isOlder)
        // Whoever has altered the version has altered nothing else.
        alice.forge(people.alice, [line])
        bob.send(people.bob, "PRIVMSG alice :another")
        #expect(people.alice.shown(from: "bob") == ["[e2e] secret", "[e2e] another"])
        #expect(alice.environment.tally[.openNotAuthentic] == 0)
    }

    /// The first message of a session that somebody unknown begins, in the older form.
    @Test func anOlderBeginning() {
        let forger = Forger(seed: 82)
        let beginning = Envelope(
            sender: forger.device, messageID: MessageID(1), ratchetMessage: [0x13] + [UInt8](repeating: 5, count: 1800))
        alice.forge(people.alice, Forger.lines(beginning, "carol!c@host.test", "NOTICE", "alice"))
        #expect(people.alice.wasNotified(Notices.failure(.olderVersion, from: "carol")))
        #expect(alice.environment.tally[.openUnknownSender] == 0)
        #expect(!introductions(to: "carol").isEmpty)
    }
}
