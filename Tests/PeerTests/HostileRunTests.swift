import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Short hostile runs against the program with its shipped defaults, over real sockets. Each prints its seed.
@Suite(.blocking, .serialized) struct HostileRunTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil

    // MARK: IRC

    /// Connections that send damaged lines of every verb; afterwards the same process serves a protected message.
    @Test func damagedLinesOfManyClients() throws {
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the damaged lines: \(generator.seed)")
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let pid = try #require(lab.gateway.pid)
        let bob = try lab.person("bob")
        bob.send("JOIN #den")
        for number in 0..<(Self.isLong ? 3000 : 150) {
            let client = try IRCClient(port: lab.gateway.port)
            if Bool.random(using: &generator) {
                client.send("NICK n\(number)")
                client.send("USER n 0 * :n")
                client.send("JOIN #den")
            }
            for _ in 0..<Int.random(in: 1...30, using: &generator) {
                guard client.sendRaw(Self.damagedLine(&generator)) else { break }
            }
            switch Int.random(in: 0..<3, using: &generator) {
            case 0: client.reset()
            case 1: client.close()
            default:
                client.halfClose()
                _ = client.drain(for: .milliseconds(5))
                client.close()
            }
        }
        let alice = try lab.person("alice")
        alice.send("PRIVMSG bob :after the damaged lines")
        try bob.expectMessage("after the damaged lines")
        #expect(lab.gateway.pid == pid && lab.gateway.isRunning)
        #expect(!lab.tap.shows("after the damaged lines"))
    }

    private static let verbs = [
        "PRIVMSG", "NOTICE", "TAGMSG", "JOIN", "PART", "KICK", "MODE", "TOPIC", "NICK", "USER", "PASS", "QUIT", "CAP",
        "AUTHENTICATE", "PING", "PONG", "WHO", "WHOIS", "WHOWAS", "AWAY", "INVITE", "LIST", "NAMES", "STATS", "OPER",
        "WEBIRC", "STARTTLS", "BATCH", "CHATHISTORY", "PAWL", "SQUERY", "WALLOPS", "ERROR", "001", "",
    ]

    private static let parameters = [
        "bob", "#den", "@#den", "*", "", ":", ":text with spaces", "LS 302", "REQ :pawl/e2ee", "REQ :-", "END", "PLAIN",
        "+",
        "?PAWL:", "?PAWL:0,0,0", "?PAWL:ffffffff,15,16:AAAA", "?PAWL:+1234567,0,1:AAAA", "\u{1}DCC SEND x 1 2 3\u{1}",
        "\u{1}VERSION\u{1}", "FIND bob", "PUBLISH ////", "bob,bob,bob,#den,alice", "é\u{301}\u{202E}",
        "99999999999999999999", "-1", "+ov bob bob",
    ]

    /// A line of a known verb with odd parameters, of which some bytes are then changed, repeated or cut.
    private static func damagedLine(_ generator: inout SeededGenerator) -> [UInt8] {
        var text = ""
        if Int.random(in: 0..<4, using: &generator) == 0 { text += "@+pawl/encrypted=1;time=;;label=\\ " }
        if Int.random(in: 0..<6, using: &generator) == 0 { text += ":bob!b@h " }
        text += verbs.randomElement(using: &generator) ?? ""
        for _ in 0..<Int.random(in: 0...4, using: &generator) {
            text += " " + (parameters.randomElement(using: &generator) ?? "")
        }
        var bytes = Array(text.utf8)
        for _ in 0..<Int.random(in: 0...3, using: &generator) where !bytes.isEmpty {
            let at = Int.random(in: 0..<bytes.count, using: &generator)
            switch Int.random(in: 0..<4, using: &generator) {
            case 0: bytes[at] = UInt8.random(in: 0...255, using: &generator)
            case 1: bytes.removeSubrange(at...)
            case 2: bytes.insert(contentsOf: Array(repeating: bytes[at], count: 600), at: at)
            default: bytes.insert(UInt8.random(in: 0...255, using: &generator), at: at)
            }
        }
        return bytes + (Bool.random(using: &generator) ? [13, 10] : [10])
    }

    // MARK: HTTP

    /// SIGKILL while writes wait, are under way and come in: each accepted write arrives once and in order.
    @Test func acceptedWritesOutliveTheProcess() throws {
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the kills: \(generator.seed)")
        let directory = try ScratchDirectory()
        let lab = try GenericLab(policy: "hosted", mapping: GenericAtOnceTests.mapping(in: directory))
        defer { lab.stop() }
        let writers = try (0..<5).map { try ChatPerson("writer\($0)", port: lab.gateway.port) }
        for writer in writers { try writer.open("of-\(writer.name)", with: ["bob"]) }
        var accepted: [String: [String]] = [:]
        for round in 0..<(Self.isLong ? 100 : 8) {
            try lab.backend.set(.delay(milliseconds: Int.random(in: 0...120, using: &generator)))
            for number in 0..<Int.random(in: 5...40, using: &generator) {
                let writer = writers[number % writers.count]
                let text = "\(round)-\(number) of \(writer.name)"
                let answer = try writer.tryPosting(text, in: "of-\(writer.name)")
                #expect(answer.status == 202, "\(answer.status) \(answer.text)")
                accepted[writer.name, default: []].append(text)
            }
            // A request whose answer the client never sees.
            _ = try lab.begin(
                "POST", "/conversations/\(GenericLab.conversation)/messages",
                ["id": .string("cut-\(round)"), "text": "cut off"])
            lab.gateway.crash()
            try lab.gateway.start()
            // The queue keeps no login across a restart: each person shows theirs again.
            for person in writers + [lab.alice, lab.bob] { try person.ask("GET", "/me") }
        }
        try lab.backend.behave()
        try lab.wait(for: 0)
        for writer in writers {
            let conversation = "of-\(writer.name)"
            var texts: [String] = []
            var before: String?
            while true {
                let page = try lab.bob.history(conversation, before: before, limit: 50)
                guard let oldest = page.first?["message_id"].string else { break }
                texts.insert(contentsOf: page.compactMap { $0["text"].string }, at: 0)
                before = oldest
            }
            #expect(texts == accepted[writer.name] ?? [], "\(writer.name)")
        }
        let dead = try lab.gateway.admin(["queue", "list", "--state", "dead", "--json"])
        #expect(try JSONValue(Array(dead.stdout.utf8)).array.isEmpty, "\(dead.stdout)")
        #expect(try !lab.backend.knows(" of writer"))
    }
}
