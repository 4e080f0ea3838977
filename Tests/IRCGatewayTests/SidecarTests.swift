import Devices
import Envelope
import IRCGateway
import Protection
import Reports
import Testing
import Vault

/// Two people behind sidecars of their own, on a server without a gateway.
@Suite struct SidecarTests {
    let alice: World
    let bob: World

    init() throws {
        (alice, bob) = try World.sidecars()
    }

    /// Both have written one line of plain text, and so have exchanged keys.
    private func exchangeKeys() -> (World.Client, World.Client) {
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.send(first, "PRIVMSG bob :hello in the clear")
        return (first, second)
    }

    private func texts(_ client: World.Client) -> [String] {
        client.read.filter { $0.contains(" PRIVMSG ") }.map {
            String($0.split(separator: ":", maxSplits: 2).last ?? "")
        }
    }

    @Test func firstPlaintextLineExchangesKeys() {
        let (alice, bob) = exchangeKeys()
        #expect(texts(bob) == ["hello in the clear"])
        self.alice.send(alice, "PRIVMSG bob :a secret")
        self.bob.send(bob, "PRIVMSG alice :another secret")
        #expect(texts(bob) == ["hello in the clear", "[e2e] a secret"])
        #expect(texts(alice) == ["[e2e] another secret"])
        #expect(!self.alice.canary.contains("secret"))
        #expect(bob.read.contains { $0.contains(Notices.keysExchanged("alice")) })
        #expect(alice.read.contains { $0.contains(Notices.keysExchanged("bob")) })
        // Nobody sees envelopes.
        #expect(!(alice.read + bob.read).contains { $0.contains("?PAWL") })
    }

    @Test func somebodyWithoutOneNeverSeesAKeyExchange() {
        let (first, _) = exchangeKeys()
        let carol = alice.connect("carol", direct: true)
        alice.send(first, "PRIVMSG carol :hello carol")
        alice.send(carol, "PRIVMSG alice :hello back")
        alice.send(first, "PRIVMSG carol :still plain")
        let seen = carol.read.filter { $0.contains("PRIVMSG") || $0.contains("NOTICE") }
        #expect(seen.count == 2)
        #expect(seen.allSatisfy { !$0.contains("?PAWL") })
        #expect(texts(first) == ["hello back"])
    }

    @Test func plaintextFromSomebodyWithKeysIsWithheld() {
        let (_, second) = exchangeKeys()
        bob.backend.people[bob.clients.keys.first ?? 0]?.inbox.append(":alice!a@host PRIVMSG bob :forged in the clear")
        bob.settle()
        #expect(!texts(second).contains { $0.contains("forged") })
        #expect(second.read.contains { $0.contains("was withheld") })
    }

    @Test func sessionsOutliveARestart() throws {
        let (first, second) = exchangeKeys()
        alice.send(first, "PRIVMSG bob :before")
        alice.close(first)
        let again = try World(.opportunistic, store: alice.store, seed: 3, beside: bob, sidecar: true)
        let client = again.connect("alice")
        again.send(client, "PRIVMSG bob :after")
        bob.send(second, "PRIVMSG alice :reply")
        #expect(texts(second) == ["hello in the clear", "[e2e] before", "[e2e] after"])
        #expect(texts(client) == ["[e2e] reply"])
    }

    /// Somebody has lost the sidecar's data, or somebody else has taken the nick.
    @Test func otherKeysStopEverythingUntilAccepted() throws {
        let (first, second) = exchangeKeys()
        alice.send(first, "PRIVMSG bob :before")
        alice.close(first)
        let fresh = try World(.opportunistic, seed: 4, beside: bob, sidecar: true)
        let client = fresh.connect("alice")
        bob.send(second, "PRIVMSG alice :for the old keys")
        #expect(client.wasNotified(Notices.failure(.unknownSender, from: "bob", inSidecar: true)))
        #expect(second.read.contains { $0.contains(Notices.changedKeys("alice")) })
        bob.send(second, "PRIVMSG alice :must not go")
        #expect(second.read.contains { $0.contains(" 531 ") && $0.contains("accept alice") })
        #expect(!bob.canary.contains("must not go"))
        bob.pendingJobs.append(.sidecar(.decide(.nick("alice"), .accept)))
        bob.settle()
        bob.send(second, "PRIVMSG alice :for the new keys")
        bob.settle()
        #expect(texts(client).contains("[e2e] for the new keys"))
    }

    @Test func simultaneousBeginningsAgree() {
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.isStoreSlow = true
        bob.isStoreSlow = true
        alice.send(first, "PRIVMSG bob :one")
        bob.send(second, "PRIVMSG alice :two")
        (alice.isStoreSlow, bob.isStoreSlow) = (false, false)
        alice.settle()
        for index in 0..<4 {
            alice.send(first, "PRIVMSG bob :secret \(index)")
            bob.send(second, "PRIVMSG alice :secret \(index)")
        }
        let expected = (0..<4).map { "[e2e] secret \($0)" }
        #expect(texts(second) == ["one"] + expected)
        // What had not gone out when the first line came has waited for the keys.
        #expect(texts(first) == ["[e2e] two"] + expected)
    }

    /// Who has just been told our keys is written to when theirs are there, and not in the clear meanwhile.
    @Test func anAnswerWaitsForKeysThatAreOnTheirWay() {
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        // The keys take their time.
        var stalled: [String] = []
        alice.backend.relay = { line in
            guard line.contains("NOTICE") else { return [line] }
            stalled.append(line)
            return []
        }
        alice.send(first, "PRIVMSG bob :hello")
        bob.send(second, "PRIVMSG alice :secret answer")
        #expect(!bob.canary.contains("secret answer"))
        alice.backend.relay = { [$0] }
        for (id, person) in alice.backend.people where person.nick == "alice" {
            alice.backend.people[id]?.inbox += stalled
        }
        alice.settle()
        #expect(texts(first) == ["[e2e] secret answer"])
        #expect(!bob.canary.contains("secret answer"))
    }

    /// The second one is written after the time in which keys are waited for, while the first one waits.
    @Test func nothingOvertakesAMessageThatWaitsForKeys() {
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.backend.delayed[second.id] = []
        bob.send(second, "PRIVMSG alice :hello")
        alice.advance(seconds: 19)
        alice.send(first, "PRIVMSG bob :one")
        alice.advance(seconds: 2)
        alice.send(first, "PRIVMSG bob :two")
        #expect(!alice.canary.contains("PRIVMSG bob"))
        alice.advance(seconds: 20)
        let sent = alice.backend.seen.filter { $0.contains("PRIVMSG bob") }
        #expect(sent.count == 2 && sent.first?.contains(":one") == true && sent.last?.contains(":two") == true)
    }

    /// Each message before the other end has answered would carry the beginning of the session once more.
    @Test(arguments: [true, false]) func textsWaitForTheAnswerToTheBeginning(_ comes: Bool) {
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        var stalled: [String] = []
        alice.backend.relay = { line in
            // What alice's sidecar sends back is the beginning.
            guard line.contains("NOTICE bob :?PAWL") else { return [line] }
            stalled.append(line)
            return []
        }
        alice.send(first, "PRIVMSG bob :hello")
        #expect(stalled.count > 3)
        for number in 1...3 { alice.send(first, "PRIVMSG bob :secret \(number)") }
        func sent() -> Int { alice.backend.seen.count { $0.contains("PRIVMSG bob :?PAWL") } }
        #expect(sent() == 0)
        if comes {
            alice.backend.relay = { [$0] }
            for (id, person) in alice.backend.people where person.nick == "bob" {
                alice.backend.people[id]?.inbox += stalled
            }
            alice.settle()
            #expect(sent() == 3)
        } else {
            alice.backend.relay = { [$0] }
            alice.advance(seconds: 21)
            #expect(sent() > 3)
        }
        #expect(texts(second) == ["hello"] + (1...3).map { "[e2e] secret \($0)" })
        alice.send(first, "PRIVMSG bob :secret 4")
        #expect(texts(second).last == "[e2e] secret 4")
    }

    /// They never come: the answer goes as it would have gone.
    @Test func anAnswerDoesNotWaitForEver() {
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        alice.backend.relay = { $0.contains("NOTICE") ? [] : [$0] }
        alice.send(first, "PRIVMSG bob :hello")
        bob.send(second, "PRIVMSG alice :answer")
        #expect(texts(first).isEmpty)
        bob.advance(seconds: 21)
        #expect(texts(first) == ["answer"])
    }

    /// Somebody types what people would take for a mark.
    @Test(arguments: [
        "[e2e] trust me", "\u{2}[E2E verified] trust me", "[gateway] trust me", "\u{1}ACTION [e2e] nods\u{1}",
    ])
    func marksCannotBeTyped(_ text: String) {
        let first = alice.connect("alice")
        let mallory = alice.connect("mallory", direct: true)
        alice.send(mallory, "PRIVMSG alice :\(text)")
        #expect(first.read.contains { $0.contains("[not encrypted]") })
        #expect(!first.read.contains { $0.hasSuffix(":\(text)") })
    }

    /// The backend says that a message was protected.
    @Test func theBackendCannotClaimProtection() throws {
        let one = try World(.opportunistic, offers: ["message-tags"], seed: 7, sidecar: true)
        let client = one.open()
        for line in ["CAP REQ :message-tags", "NICK emil", "USER e 0 * :e", "CAP END"] { one.send(client, line) }
        for (id, person) in one.backend.people where person.nick == "emil" {
            one.backend.send(id, "@pawl/protection=device :dora!d@host PRIVMSG emil :claimed")
            one.backend.send(id, "@pawl/protection=gateway :dora!d@host PRIVMSG emil :claimed")
        }
        one.settle()
        #expect(client.read.count { $0.hasSuffix(":claimed") } == 2)
        #expect(!client.read.contains { $0.contains("pawl/protection") || $0.contains("[gateway]") })
    }

    @Test func aCopiedBeginningChangesNothing() {
        var relayed: [String] = []
        alice.backend.relay = {
            relayed.append($0)
            return [$0]
        }
        let (first, second) = exchangeKeys()
        let id = bob.clients.keys.first ?? 0
        let copies = relayed.filter { $0.contains("NOTICE bob") && $0.contains("?PAWL") }
        #expect(!copies.isEmpty)
        bob.backend.people[id]?.inbox += copies
        bob.settle()
        alice.send(first, "PRIVMSG bob :still")
        bob.send(second, "PRIVMSG alice :well")
        #expect(texts(second).last == "[e2e] still")
        #expect(texts(first).last == "[e2e] well")
    }

    @Test(arguments: ProtectionMarks.allCases) func marksAreAChoice(_ marks: ProtectionMarks) throws {
        let one = try World(.opportunistic, offers: ["message-tags"], seed: 5, sidecar: true)
        let other = try World(.opportunistic, seed: 6, beside: one, sidecar: true) { $0.marks = marks }
        let first = one.connect("dora")
        let second = other.open()
        for line in ["CAP REQ :message-tags", "NICK emil", "USER e 0 * :e", "CAP END"] { other.send(second, line) }
        one.send(first, "PRIVMSG emil :hello")
        #expect(second.read.contains { $0.hasSuffix("PRIVMSG emil :hello") && !$0.contains("pawl/hello") })
        one.send(first, "PRIVMSG emil :secret")
        one.send(first, "PRIVMSG emil :\u{1}ACTION waves\u{1}")
        let secret = second.read.first { $0.contains("secret") } ?? ""
        #expect(secret.contains("pawl/protection=device") == (marks != .off))
        #expect(secret.hasSuffix(marks == .text ? ":[e2e] secret" : ":secret"))
        #expect(second.read.contains { $0.contains("\u{1}ACTION [e2e] waves") } == (marks == .text))
    }

    /// Those who have written it may be gone, or others may have their nicks.
    @Test func anAnnouncementInAHistoryIsNotAnswered() throws {
        let world = try World(.opportunistic, offers: ["message-tags", "batch"], seed: 7, sidecar: true)
        let client = world.connect("alice")
        let line = "+pawl/hello :bob!b@host.test PRIVMSG alice :hello"
        world.forge(client, [":srv BATCH +h chathistory alice", "@batch=h;" + line, ":srv BATCH -h"])
        #expect(texts(client) == ["hello"] && !world.canary.contains("NOTICE bob"))
        world.forge(client, ["@" + line])
        #expect(texts(client) == ["hello", "hello"] && world.canary.contains("NOTICE bob"))
    }

    /// The next thing that comes may be nothing that people are shown.
    @Test func aGapBeforeAControlMessageIsReported() {
        let (first, second) = exchangeKeys()
        for (world, client) in [(alice, first), (bob, second)] { world.send(client, "JOIN #room") }
        alice.send(first, "PRIVMSG bob :secret 1")
        alice.backend.relay = { $0.contains("PRIVMSG bob") ? [] : [$0] }
        alice.send(first, "PRIVMSG bob :secret 2")
        alice.backend.relay = { [$0] }
        // With it goes a letter to bob, which is in the same session.
        alice.send(first, "PRIVMSG #room :secret in the room")
        #expect(second.read.contains { $0.contains(Notices.gap(1, from: "alice")) })
        alice.send(first, "PRIVMSG bob :secret 3")
        #expect(texts(second).suffix(2) == ["[e2e] secret in the room", "[e2e] secret 3"])
        #expect(bob.environment.tally[.gaps] == 1)
    }
}
