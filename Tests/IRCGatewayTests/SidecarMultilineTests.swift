import Envelope
import Foundation
import IRCCodec
import Protection
import Reports
import Testing

@testable import IRCGateway

/// Messages of several lines between sidecars, which offer the capability whatever the server has.
@Suite struct SidecarMultilineTests {
    private static let all = "batch draft/multiline message-tags labeled-response echo-message"
    /// What a server may offer; nil for one without CAP.
    static let servers: [[String]?] = [nil, [], SimulatedBackend.modern, ["draft/multiline=max-bytes=4096", "batch"]]

    /// Two sidecars whose people's clients have the capability.
    private struct Pair {
        let (first, second): (World, World)
        let (alice, bob): (World.Client, World.Client)

        init(_ offers: [String]?, second lines: [String]? = nil) throws {
            let limits: (inout IRCSettings) -> Void = {
                $0.multiline = MultilineLimits(messageLines: Armour.maximumFragments, devices: true)
            }
            first = try World(.opportunistic, offers: offers, seed: 1, sidecar: true, settings: limits)
            second = try World(.opportunistic, seed: 2, beside: first, sidecar: true, settings: limits)
            let modern = SidecarMultilineTests.login(offers)
            alice = first.connect("alice", lines: modern)
            bob = second.connect("bob", lines: lines ?? modern)
        }

        func exchangeKeys() { first.send(alice, "PRIVMSG bob :hello") }
    }

    private static func login(_ offers: [String]?) -> [String] {
        let hasTags = offers?.contains("message-tags") == true
        return ["CAP LS 302", "CAP REQ :\(hasTags ? all : "batch draft/multiline")", "CAP END"]
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

    /// Texts of the messages of a person that a client has read.
    private func texts(_ client: World.Client, from nick: String) -> [String] {
        client.read.compactMap { line in
            guard let verb = line.range(of: ":\(nick)!\(nick)@host.test PRIVMSG ")?.upperBound else { return nil }
            return line[verb...].range(of: " :").map { String(line[$0.upperBound...]) }
        }
    }

    private let lines = ["first the list", "", "second how is ", "+everyone", "third"]
    private let shown = ["[e2e] first the list", "", "[e2e] second how is ", "everyone", "[e2e] third"]

    @Test(arguments: servers) func itIsOneSealedMessage(_ offers: [String]?) throws {
        let pair = try Pair(offers)
        pair.exchangeKeys()
        let before = pair.first.backend.seen.count
        send(pair.first, pair.alice, "bob", lines)
        #expect(pair.first.backend.seen.dropFirst(before).count { $0.contains("?PAWL:") } == 1)
        #expect(!pair.first.canary.contains("BATCH") && !pair.first.canary.contains("CAP REQ :draft/multiline"))
        for word in ["first", "everyone", "third"] { #expect(!pair.first.canary.contains(word)) }
        #expect(pair.bob.read.contains { $0.contains(":alice!alice@host.test BATCH +pawl-1 draft/multiline bob") })
        #expect(texts(pair.bob, from: "alice") == ["hello"] + shown)
        #expect(pair.bob.read.count { $0.hasPrefix("@batch=pawl-1;draft/multiline-concat ") } == 1)
        #expect(pair.bob.read.last?.hasSuffix(" BATCH -pawl-1") == true)
    }

    @Test func aClientWithoutItReadsLines() throws {
        let pair = try Pair(nil, second: [])
        pair.exchangeKeys()
        send(pair.first, pair.alice, "bob", lines)
        // Each is a message of its own there, and has the mark.
        #expect(
            texts(pair.bob, from: "alice") == [
                "hello", "[e2e] first the list", "[e2e] second how is ", "[e2e] everyone", "[e2e] third",
            ])
        #expect(!pair.bob.read.contains { $0.contains("BATCH") })
    }

    /// No line of it may be taken for a mark, whether it is shown by itself or with the one before.
    @Test(arguments: [true, false]) func marksAreNotImitated(hasCapability: Bool) throws {
        let pair = try Pair(nil, second: hasCapability ? nil : [])
        pair.exchangeKeys()
        send(pair.first, pair.alice, "bob", ["one", "[e2e verified] two", "+[e2e verified] three"])
        #expect(
            texts(pair.bob, from: "alice").suffix(3)
                == ["[e2e] one", "[e2e] [e2e verified] two", "[e2e] [e2e verified] three"])
    }

    @Test func theEchoIsABatchWithItsLabel() throws {
        let pair = try Pair(SimulatedBackend.modern)
        pair.exchangeKeys()
        send(pair.first, pair.alice, "bob", ["one", "two"], head: "@label=xyz ")
        let echo = try #require(pair.alice.read.lastIndex { $0.contains(" BATCH +pawl-") })
        #expect(pair.alice.read[echo].contains("label=xyz"))
        #expect(texts(pair.alice, from: "alice").suffix(2) == ["[e2e] one", "[e2e] two"])
    }

    /// The first message to somebody: lines, the last of which has the mark of sidecars.
    @Test(arguments: [nil, SimulatedBackend.modern]) func beforeKeysItIsLines(_ offers: [String]?) throws {
        let pair = try Pair(offers)
        send(pair.first, pair.alice, "bob", ["one", "two", ""])
        #expect(texts(pair.bob, from: "alice") == ["one", "two"])
        #expect(pair.bob.read.contains { $0.contains(Notices.keysExchanged("alice")) })
        #expect(!pair.first.canary.contains("BATCH"))
        send(pair.first, pair.alice, "bob", ["three", "four"])
        #expect(texts(pair.bob, from: "alice").suffix(2) == ["[e2e] three", "[e2e] four"])
        #expect(!pair.first.canary.contains("four"))
    }

    /// Somebody without a sidecar reads lines, and the person is told once that they are plaintext.
    @Test func somebodyWithoutASidecarReadsLines() throws {
        let pair = try Pair(nil)
        let carol = pair.first.connect("carol", direct: true)
        for _ in 1...2 { send(pair.first, pair.alice, "carol", ["one", "", "two"]) }
        #expect(carol.texts.count == 4 && carol.texts[0] == "one")
        #expect(pair.alice.read.count { $0.contains(Notices.goesPlain("carol", hasFront: false)) } == 1)
    }

    /// It waits for keys as a whole, and is sent as one message or as lines.
    @Test func itWaitsForKeys() throws {
        let pair = try Pair(nil)
        pair.first.backend.relay = { $0.contains("NOTICE") ? [] : [$0] }
        pair.exchangeKeys()
        send(pair.second, pair.bob, "alice", ["one", "two"])
        #expect(texts(pair.alice, from: "bob").isEmpty)
        #expect(pair.bob.read.count { $0.contains(Notices.waitsForKeys("alice")) } == 1)
        pair.second.advance(seconds: 21)
        #expect(texts(pair.alice, from: "bob") == ["one", "two"])
    }

    @Test func aRoomReadsItTogether() throws {
        let pair = try Pair(nil, second: [])
        for (world, client) in [(pair.first, pair.alice), (pair.second, pair.bob)] { world.send(client, "JOIN #den") }
        pair.exchangeKeys()
        pair.first.send(pair.alice, "PRIVMSG #den :hello")
        send(pair.first, pair.alice, "#den", ["one", "two"])
        #expect(texts(pair.bob, from: "alice").suffix(2) == ["[e2e] one", "[e2e] two"])
        #expect(!pair.first.canary.contains("PRIVMSG #den :one"))
    }

    @Test func commandsToTheSidecarStayThere() throws {
        let pair = try Pair(SimulatedBackend.modern)
        send(pair.first, pair.alice, "*PAWL", ["status", "", "verify ", "+bob"], head: "@label=xyz ")
        #expect(pair.alice.commands == ["status", "verify bob"])
        #expect(!pair.first.canary.contains("*pawl") && !pair.first.canary.contains("verify"))
        let echo = try #require(pair.alice.read.last { $0.contains(" BATCH +") })
        #expect(echo.contains("label=xyz") && echo.contains(":alice BATCH ") && echo.hasSuffix(" *pawl"))
    }

    /// The largest message fits, also at the beginning of a session.
    @Test func theLimitIsHonest() throws {
        let pair = try Pair(nil)
        pair.exchangeKeys()
        let limits = try #require(MultilineLimits(messageLines: Armour.maximumFragments, devices: true))
        let hosted = try #require(MultilineLimits(messageLines: Armour.maximumFragments))
        #expect(limits.bytes < hosted.bytes)
        let early = pair.first.open()
        pair.first.send(early, "CAP LS 302")
        #expect(early.read.last?.contains("draft/multiline=max-bytes=\(limits.bytes),max-lines=64") == true)
        var rest = limits.bytes
        var lines: [String] = []
        while rest > 0 {
            let count = min(rest, 400)
            lines.append((lines.isEmpty ? "" : "+") + String(repeating: "x", count: count))
            rest -= count
        }
        send(pair.first, pair.alice, "bob", lines)
        let read = texts(pair.bob, from: "alice").dropFirst()
        #expect(read.joined().utf8.count { $0 == UInt8(ascii: "x") } == limits.bytes)
        send(pair.first, pair.alice, "bob", lines + ["x"])
        #expect(pair.alice.read.last?.contains("FAIL BATCH MULTILINE_MAX_BYTES \(limits.bytes) ") == true)
    }
}
