import PeerKit
import TestKit
import TestThreads
import Testing

/// Pacing in front of servers with their own flood limits, and lines that fit whatever the server puts before them.
@Suite(.blocking, .serialized) struct FloodTests {
    /// Twelve messages of different lengths, some in several lines.
    private static let texts = (0..<12).map { number in
        "\(number):" + String(repeating: " flood", count: number % 4 == 3 ? 60 : number)
    }

    @Test(arguments: Backend.allCases) func inOrderAndNobodyIsKilled(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(.standard), policy: "hosted", paced: true)
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.sendRaw(Array(Self.texts.map { "PRIVMSG bob :\($0)\r\n" }.joined().utf8))
        for text in Self.texts {
            let line = try bob.expect("\(text.prefix(8))", timeout: .seconds(90)) { $0.command == "PRIVMSG" }
            #expect(line.body == text)
        }
        // Both are still here, and the way back is open.
        bob.send("PRIVMSG alice :all of it")
        try alice.expectMessage("all of it")
        #expect(alice.ending == nil && bob.ending == nil)
        #expect(lab.tap.lines(.fromServer).allSatisfy { $0.command != "ERROR" })
        #expect(lab.tap.longestLine(.fromServer) <= 512 && lab.tap.longestLine(.fromClient) <= 512)
        try eventually("all are acknowledged") {
            try lab.queue().allSatisfy { $0["state"] as? String == "done" }
        }
    }

    /// More than may wait at one time: the client is slowed, and no line is refused.
    @Test(arguments: Backend.allCases) func aLongPasteArrivesWhole(_ backend: Backend) throws {
        let lab = try Lab(
            try backend.start(), policy: "hosted", paced: true,
            environment: ["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "200"])
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let texts = (1...400).map { "pasted \($0)" }
        alice.sendRaw(Array(texts.map { "PRIVMSG bob :\($0)\r\n" }.joined().utf8))
        for text in texts {
            let line = try bob.expect(text, timeout: .seconds(300)) { $0.command == "PRIVMSG" }
            #expect(line.body == text)
        }
        #expect(try alice.synchronize().allSatisfy { $0.command != "531" })
    }

    /// Below `hosted` the gateway adds no pace of its own: the server's is enough.
    @Test func aBurstUnderObserveIsTheBackendsBusiness() throws {
        // At this pace it would take eight minutes.
        let lab = try Lab(
            try Backend.ngircd.start(.standard), policy: "observe", paced: true,
            environment: ["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "0.1"])
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let sent = (0..<50).map { "PRIVMSG alice :burst \($0)\r\n" }.joined()
        let before = lab.tap.bytes(.fromClient).count
        alice.sendRaw(Array(sent.utf8))
        try eventually("the bytes are with the backend") {
            lab.tap.bytes(.fromClient).count == before + sent.utf8.count
        }
    }

    @Test(arguments: Backend.allCases) func maximalNamesFitTheLine(_ backend: Backend) throws {
        let server: any IRCServer
        switch backend {
        case .ngircd: server = try NgIRCd()
        case .inspircd:
            var options = InspIRCd.Options()
            let host = String(repeating: "host.", count: 12) + "test"
            options.extra = """
                <module name="hostchange">
                <hostchange mask="*@*" action="set" value="\(host)">
                """
            server = try InspIRCd(options)
        }
        let lab = try Lab(server, policy: "hosted")
        defer { lab.stop() }
        let names = ["a", "b"].map { String(repeating: $0, count: 31) }
        let people = try names.map { name in
            let client = try IRCClient(port: lab.gateway.port)
            try client.register(nick: name, user: String(repeating: "u", count: 30), caps: nil)
            return client
        }
        // The most that a client can say in one line, in each way, both ways.
        for (number, way) in PolicyCellTests.ways.enumerated() {
            for (from, to) in [(people[0], people[1]), (people[1], people[0])] {
                let head = "\(way.verb) \(to.nick) :\(way.before)"
                let room = 510 - head.utf8.count - way.after.utf8.count
                let text = String((0..<room).map { Character("\(($0 + number) % 10)") })
                from.send(head + text + way.after)
                var read = ""
                while read.utf8.count < room {
                    let line = try to.expect(way.verb) { $0.command == way.verb && $0.nick == from.nick }
                    #expect(line.bytes.count + 2 <= 512)
                    #expect(backend == .ngircd || line.prefix.utf8.count == 31 + 1 + 11 + 1 + 64)
                    read += line.body.replacing("\u{1}ACTION ", with: "").replacing("\u{1}", with: "")
                }
                #expect(read == text, "\(way.verb) \(number)")
            }
        }
        #expect(lab.tap.longestLine(.fromServer) <= 512)
        // A cut would have reached the armour: ngIRCd writes [CUT], InspIRCd drops the full stop at its end.
        let envelopes = lab.tap.lines(.fromServer).filter { $0.body.hasPrefix("?PAWL:") }
        #expect(!envelopes.isEmpty && envelopes.allSatisfy { $0.body.hasSuffix(".") })
    }
}
