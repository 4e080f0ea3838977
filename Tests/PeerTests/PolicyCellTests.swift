import PeerKit
import Protection
import Reports
import TestThreads
import Testing

/// Every cell of the policy table that this version covers, in front of real servers, with the backend's side searched
/// for every text.
@Suite(.blocking, .serialized) struct PolicyCellTests {
    /// Three ways to say something to one person.
    static let ways: [(verb: String, before: String, after: String)] = [
        ("PRIVMSG", "", ""), ("NOTICE", "", ""), ("PRIVMSG", "\u{1}ACTION ", "\u{1}"),
    ]

    @Test(arguments: Backend.allCases, ["off", "observe", "opportunistic"])
    func belowHostedEverythingIsAsIfDirect(_ backend: Backend, _ policy: String) throws {
        let lab = try Lab(try backend.start(), policy: policy)
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        for (number, way) in Self.ways.enumerated() {
            let text = "\(way.before)plain \(policy) \(number)\(way.after)"
            alice.send("\(way.verb) bob :\(text)")
            try bob.expectMessage(text)
            alice.send("\(way.verb) carol :\(text)")
            try carol.expectMessage(text)
            carol.send("\(way.verb) alice :\(text)")
            try alice.expectMessage(text)
        }
        #expect(lab.tap.shows("plain \(policy) 0"))
    }

    @Test(arguments: Backend.allCases) func hosted(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        var secrets: [String] = []
        for (number, way) in Self.ways.enumerated() {
            let secret = "nobody-else-\(backend.rawValue)-\(number)"
            secrets.append(secret)
            let text = "\(way.before)\(secret)\(way.after)"
            alice.send("\(way.verb) bob :\(text)")
            try bob.expectMessage(text)
            bob.send("\(way.verb) alice :\(text)")
            try alice.expectMessage(text)
            alice.send("\(way.verb) carol :\(text)")
            let refusal = try alice.expect("531")
            #expect(refusal.body.contains("carol"))
        }
        carol.send("PRIVMSG alice :from outside")
        try alice.expectMessage("[not encrypted] from outside")
        carol.send("PRIVMSG alice :\u{1}ACTION waves\u{1}")
        try alice.expectMessage("\u{1}ACTION [not encrypted] waves\u{1}")
        alice.send("JOIN #room")
        try alice.expect("366")
        bob.send("JOIN #room")
        try bob.expect("366")
        alice.send("PRIVMSG #room :nobody-else-room")
        try bob.expectMessage("nobody-else-room")
        alice.send("PRIVMSG #elsewhere :nobody-else-there")
        let outside = Notices.refusal(.notInRoom, target: "#elsewhere", texts: NoticeTexts())
        #expect(try alice.expect("404").body.contains(outside))
        alice.send("PRIVMSG bob :\u{1}DCC SEND nobody-else-file 1 2 3\u{1}")
        try alice.expect("531")
        #expect(try carol.synchronize().allSatisfy { $0.command != "PRIVMSG" && $0.command != "NOTICE" })
        for secret in secrets + ["nobody-else"] { #expect(!lab.tap.shows(secret), "the backend saw \(secret)") }
        #expect(lab.tap.shows("?PAWL:"))
        #expect(lab.tap.longestLine(.fromServer) <= 512)
    }

    @Test(arguments: Backend.allCases) func required(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "required")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        alice.send("PRIVMSG bob :nobody-else-1")
        try alice.expect("531")
        alice.send("PRIVMSG carol :nobody-else-2")
        try alice.expect("531")
        alice.send("JOIN #room")
        try alice.expect("366")
        alice.send("PRIVMSG #room :nobody-else-3")
        try alice.expect("404")
        carol.send("PRIVMSG alice :from outside")
        try alice.expect("a remark") {
            $0.command == "NOTICE" && $0.body.contains(Notices.withheldByPolicy(from: "carol"))
        }
        #expect(try alice.synchronize().allSatisfy { !$0.body.contains("from outside") })
        #expect(try bob.synchronize().allSatisfy { $0.command != "PRIVMSG" })
        #expect(!lab.tap.shows("nobody-else"))
    }

    @Test(arguments: Backend.allCases) func echoAwayAndErrors(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice", caps: ["echo-message", "labeled-response", "batch", "message-tags"])
        let bob = try lab.person("bob")
        alice.send("PRIVMSG bob :first words")
        try bob.expectMessage("first words")
        if alice.enabled.contains("echo-message") {
            let echo = try alice.expectMessage("first words")
            #expect(echo.nick == "alice" && echo.tags["msgid"] != nil)
            alice.send("@label=mine PRIVMSG bob :second words")
            let labelled = try alice.expectMessage("second words")
            #expect(labelled.tags["label"] == "mine")
            try bob.expectMessage("second words")
        }
        bob.send("AWAY :gone")
        try bob.expect("306")
        alice.send("PRIVMSG bob :\(String(repeating: "long ", count: 85))end")
        let away = try alice.expect("301")
        #expect(away.parameters.contains("bob"))
        alice.send("PRIVMSG alice :to myself")
        try alice.expect("text") { $0.command == "PRIVMSG" && $0.body == "to myself" }
        let rest = try alice.synchronize()
        #expect(rest.allSatisfy { $0.command != "301" && !$0.text.contains("?PAWL") && !$0.text.contains("pawl-") })
        #expect(!lab.tap.shows("first words") && !lab.tap.shows("to myself"))
    }

    @Test func policiesChangeAtRunTimeAndPersist() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.send("PRIVMSG bob :in the open")
        try bob.expectMessage("in the open")
        #expect(try lab.gateway.admin(["policy", "set", "hosted", "--yes"]).succeeded)
        alice.send("PRIVMSG bob :behind-closed-doors")
        try bob.expectMessage("behind-closed-doors")
        #expect(lab.tap.shows("in the open") && !lab.tap.shows("behind-closed-doors"))
        // `off` would break the latch, and is refused.
        let off = try lab.gateway.admin(["policy", "set", "off"])
        #expect(!off.succeeded && off.failureCode == "conversations-protected")
        // A lower policy does not lower the latch.
        let lowered = try lab.gateway.admin(["policy", "set", "observe"])
        #expect(lowered.succeeded && lowered.stdout.contains("One conversation stays protected"), "\(lowered)")
        alice.send("PRIVMSG bob :still-behind-doors")
        try bob.expectMessage("still-behind-doors")
        #expect(!lab.tap.shows("still-behind-doors"))
        #expect(try lab.gateway.admin(["policy", "set", "hosted", "--yes"]).succeeded)
        try lab.gateway.restart()
        #expect(try lab.gateway.admin(["policy", "get", "--json"]).json["everyone"] == "hosted")
    }

    @Test(arguments: Backend.allCases) func defaultFloodLimits(_ backend: Backend) throws {
        let server: any IRCServer
        switch backend {
        case .ngircd:
            var options = NgIRCd.Options()
            options.flood = .standard
            options.connectionsPerAddress = 0
            server = try NgIRCd(options)
        case .inspircd:
            var options = InspIRCd.Options()
            options.flood = .standard
            server = try InspIRCd(options)
        }
        let lab = try Lab(server, policy: "hosted", paced: true)
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        for number in 0..<8 { alice.send("PRIVMSG bob :paced \(number)") }
        for number in 0..<8 {
            let line = try bob.expect("message \(number)") { $0.command == "PRIVMSG" }
            #expect(line.body == "paced \(number)")
        }
    }

    @Test func theLongestNamesFitTheLine() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let long = String(repeating: "a", count: 31)
        let other = String(repeating: "b", count: 31)
        let alice = try lab.person(long)
        let bob = try lab.person(other)
        let text = String(repeating: "x", count: 430)
        alice.send("PRIVMSG \(other) :\(text)")
        var read = ""
        while read.count < text.count { read += try bob.expect("PRIVMSG").body }
        #expect(read == text)
        #expect(lab.tap.longestLine(.fromServer) <= 512)
    }
}
