import CapableApp
import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// People with devices of their own, and people without, behind one front gateway.
@Suite(.blocking) struct CapableTests {
    /// A sidecar between a client and the front gateway of a lab.
    static func sidecar(_ lab: Lab, arguments: [String] = []) throws -> PawlProcess {
        var options = PawlProcess.Options()
        options.isSidecar = true
        options.arguments = arguments
        options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0"
        return try PawlProcess(upstream: lab.gateway.port, options)
    }

    /// Somebody behind a sidecar; the gateway has their keys when this returns.
    static func person(_ sidecar: PawlProcess, _ nick: String) throws -> IRCClient {
        let client = try IRCClient(port: sidecar.port)
        try client.register(nick: nick, caps: nil)
        try client.expect("word of the gateway") { $0.body.contains(Notices.frontFound) }
        return client
    }

    /// The policy table with capable people in it, both directions.
    @Test(arguments: Backend.allCases, ["opportunistic", "hosted", "required"])
    func everyCellOfThePolicyTable(_ backend: Backend, _ policy: String) throws {
        let lab = try Lab(backend.start(), policy: policy)
        defer { lab.stop() }
        let (first, second) = (try Self.sidecar(lab), try Self.sidecar(lab))
        defer { for sidecar in [first, second] { sidecar.stop() } }
        let (alice, bob) = (try Self.person(first, "alice"), try Self.person(second, "bob"))
        let carol = try lab.person("carol")
        let dave = try lab.outsider("dave")

        alice.send("PRIVMSG bob :canary, capable to capable")
        try bob.expectMessage("[e2e] canary, capable to capable")
        bob.send("PRIVMSG alice :canary, back")
        try alice.expectMessage("[e2e] canary, back")
        #expect(!lab.tap.shows("canary"))

        for (sender, recipient) in [(alice, carol), (carol, alice)] {
            sender.send("PRIVMSG \(recipient.nick) :mixed from \(sender.nick)")
            switch policy {
            case "opportunistic": try recipient.expectMessage("mixed from \(sender.nick)")
            case "hosted":
                try recipient.expectMessage("\(recipient === alice ? "[gateway] " : "")mixed from \(sender.nick)")
            default: try sender.expect("531")
            }
        }
        #expect(lab.tap.shows("mixed from") == (policy == "opportunistic"))

        alice.send("PRIVMSG dave :to an outsider")
        if policy == "opportunistic" {
            _ = try dave.expect("the message") { $0.body.hasPrefix("to an outsider") }
        } else {
            try alice.expect("531")
        }
        dave.send("PRIVMSG alice :from an outsider")
        switch policy {
        case "opportunistic": try alice.expectMessage("from an outsider")
        case "hosted": try alice.expectMessage("[not encrypted] from an outsider")
        default: try alice.expect("words") { $0.body.contains(Notices.withheldByPolicy(from: "dave")) }
        }
    }

    @Test(arguments: Backend.allCases) func roomsOfAllKinds(_ backend: Backend) throws {
        let lab = try Lab(backend.start(), policy: "hosted")
        defer { lab.stop() }
        let (first, second) = (try Self.sidecar(lab), try Self.sidecar(lab))
        defer { for sidecar in [first, second] { sidecar.stop() } }
        let (alice, bob) = (try Self.person(first, "alice"), try Self.person(second, "bob"))
        let carol = try lab.person("carol")
        for person in [alice, bob] {
            person.send("JOIN #own")
            try person.expect("366")
            person.send("JOIN #mixed")
            try person.expect("366")
        }
        carol.send("JOIN #mixed")
        try carol.expect("366")
        for person in [alice, bob] {
            try person.expect("carol's JOIN") { $0.command == "JOIN" && $0.nick == "carol" }
            _ = try person.synchronize()
        }
        for sidecar in [first, second] {
            try eventually("the keys of the room's members are known") {
                try sidecar.admin(["sidecar", "status"]).stdout.contains("#own    end-to-end")
            }
        }
        alice.send("PRIVMSG #own :canary in our own room")
        try bob.expectMessage("[e2e] canary in our own room")
        bob.send("PRIVMSG #own :canary answer")
        try alice.expectMessage("[e2e] canary answer")
        alice.send("PRIVMSG #mixed :canary for all")
        try bob.expectMessage("[gateway] canary for all")
        try carol.expectMessage("canary for all")
        carol.send("PRIVMSG #mixed :canary from carol")
        try alice.expectMessage("[gateway] canary from carol")
        try bob.expectMessage("[gateway] canary from carol")
        #expect(!lab.tap.shows("canary"))
    }

    /// Bytes of the control plane or of an envelope, whose Base64 has no padding.
    private static func bytes(_ text: some StringProtocol) throws -> [UInt8] {
        let padding = String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        return Array(try #require(Data(base64Encoded: text + padding)))
    }

    /// The id of a hosted device stands in the clear in each of its envelopes. Publishing it takes nobody's messages away.
    @Test func theIDOfAHostedDeviceCannotBePublished() throws {
        let lab = try Lab(NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        alice.send("PRIVMSG bob :canary one")
        try bob.expectMessage("canary one")
        let sealed = try #require(lab.tap.lines(.fromClient).last { $0.body.hasPrefix("?PAWL:") }).body
        let envelope = try Self.bytes(sealed.dropLast().split(separator: ":").last ?? "")
        let mallory = try lab.person("mallory", caps: ["pawl/e2ee"])
        let isFrame = { (line: IRCLine, id: String) in line.command == "PAWL" && line.parameters.first == id }
        let challenge = try Self.bytes(mallory.expect("the challenge") { isFrame($0, "*") }.body)
        let account = String(decoding: challenge.dropFirst(33), as: UTF8.self)
        let device = AppDevice("mallory", id: envelope[1..<9].reduce(0) { $0 << 8 | UInt64($1) })
        let proof = device.publication(over: Array(challenge[1..<33]), for: account)
        let frames = stride(from: 0, to: proof.count, by: 270).map { proof[$0..<min($0 + 270, proof.count)] }
        for (index, frame) in frames.enumerated() {
            let text = Data(frame).base64EncodedString().filter { $0 != "=" }
            mallory.send("PAWL 1 \(index) \(frames.count) :\(text)")
        }
        #expect(try Self.bytes(mallory.expect("the refusal") { isFrame($0, "1") }.body).first == 33)
        alice.send("PRIVMSG bob :canary two")
        try bob.expectMessage("canary two")
        #expect(try !lab.gateway.admin(["devices", "list"]).stdout.contains("mallory"))
        #expect(!lab.tap.shows("canary"))
    }

    @Test func anOperatorSeesAndRemovesDevices() throws {
        let server = try AccountLab(accounts: ["alice", "bob"])
        let lab = try Lab(server.server, policy: "hosted")
        defer { lab.stop() }
        let (first, second) = (try Self.sidecar(lab), try Self.sidecar(lab))
        defer { for sidecar in [first, second] { sidecar.stop() } }
        let alice = try AccountLab.login(first.port, nick: "alice", account: "alice")
        let bob = try AccountLab.login(second.port, nick: "bob", account: "bob")
        for client in [alice, bob] {
            try client.expect("word of the gateway") { $0.body.contains(Notices.frontFound) }
        }
        alice.send("PRIVMSG bob :canary one")
        try bob.expectMessage("[e2e] canary one")
        let list = try lab.gateway.admin(["devices", "list"]).stdout
        #expect(list.contains("alice") && list.contains("bob") && list.contains("published"))
        #expect(try lab.gateway.admin(["users"]).stdout.contains("capable"))
        #expect(try lab.gateway.admin(["status", "--json"]).stdout.contains("\"custodyDevice\" : 2"))
        #expect(try lab.gateway.admin(["devices", "block", "alice"]).succeeded)
        #expect(try lab.gateway.admin(["devices", "list"]).stdout.contains("blocked"))
        alice.send("PRIVMSG bob :canary two")
        try alice.expect("words") { $0.body.contains("an operator has") || $0.command == "531" }
        #expect(try lab.gateway.admin(["devices", "unblock", "alice"]).succeeded)
        #expect(try lab.gateway.admin(["audit"]).stdout.contains("block alice"))
        #expect(!lab.tap.shows("canary"))
    }
}
