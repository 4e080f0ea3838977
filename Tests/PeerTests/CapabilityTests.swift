import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// `pawl/e2ee` beside the backend's own capabilities: one more, and nothing else changed.
@Suite(.blocking, .serialized) struct CapabilityTests {
    static let below = ["observe", "opportunistic"]

    /// The capability list that a client is shown, with values.
    private func list(_ port: UInt16, _ command: String) throws -> [String] {
        let client = try IRCClient(port: port)
        defer { client.close() }
        client.send(command)
        var shown: [String] = []
        while true {
            let line = try client.expect("CAP LS") { $0.command == "CAP" && $0.parameters[1].uppercased() == "LS" }
            shown += line.body.split(separator: " ").map(String.init)
            if line.parameters.count < 4 || line.parameters[2] != "*" { return shown }
        }
    }

    @Test(arguments: Backend.allCases) func theListHasOneMore(_ backend: Backend) throws {
        let server = try backend.start()
        defer { server.stop() }
        for policy in ["off", "observe", "opportunistic"] {
            let gateway = try PawlProcess(upstream: server.port, Lab.options(policy))
            defer { gateway.stop() }
            for command in ["CAP LS", "CAP LS 301", "CAP LS 302", "cap ls 302"] {
                // No EXTERNAL, TLS or STS here: nothing is to be hidden.
                let direct = try list(server.port, command)
                let through = try list(gateway.port, command)
                #expect(through == direct + (policy == "off" ? [] : ["pawl/e2ee"]), "\(policy) \(command)")
            }
        }
    }

    @Test(arguments: Backend.allCases) func askedAloneAndTakenBack(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "observe")
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.send("CAP LS")
        try client.expect("CAP")
        client.send("CAP REQ :pawl/e2ee")
        #expect(try client.expect("CAP").parameters.suffix(2) == ["ACK", "pawl/e2ee"])
        client.send("NICK asker")
        client.send("USER asker 0 * :x")
        client.send("CAP END")
        try client.expect("001")
        // After registration too, in any mixture.
        client.send("CAP REQ :multi-prefix -pawl/e2ee")
        let back = try client.expect("ACK") { $0.command == "CAP" && $0.parameters.contains("ACK") }
        #expect(back.body.split(separator: " ") == ["multi-prefix", "-pawl/e2ee"])
        client.send("CAP LIST")
        let without = try client.expect("LIST") { $0.command == "CAP" && $0.parameters.contains("LIST") }
        #expect(without.body.split(separator: " ").contains("multi-prefix") && !without.body.contains("pawl"))
        client.send("CAP REQ :pawl/e2ee multi-prefix nosuch")
        let refused = try client.expect("NAK") { $0.command == "CAP" && $0.parameters.contains("NAK") }
        #expect(refused.body == "pawl/e2ee multi-prefix nosuch")
        client.send("CAP LS 302")
        let again = try client.expect("LS") { $0.command == "CAP" && $0.parameters.contains("LS") }
        #expect(again.body.split(separator: " ").contains("pawl/e2ee") && again.parameters.first == "asker")
        // The backend never hears of it.
        #expect(!lab.tap.shows("pawl/e2ee"))
    }

    @Test func aBackendWithoutCapabilitiesIsAnsweredFor() throws {
        var options = InspIRCd.Options()
        options.without = ["cap"]
        for policy in ["observe", "hosted"] {
            let lab = try Lab(try InspIRCd(options), policy: policy)
            defer { lab.stop() }
            let client = try IRCClient(port: lab.gateway.port)
            client.send("CAP LS 302")
            client.send("NICK capless")
            client.send("USER capless 0 * :x")
            let offered = try client.expect("CAP").body.split(separator: " ").map { $0.prefix { $0 != "=" } }
            #expect(offered == (policy == "hosted" ? ["draft/multiline", "batch"] : []) + ["pawl/e2ee"])
            client.send("CAP REQ :pawl/e2ee multi-prefix")
            #expect(try client.expect("CAP").parameters.contains("NAK"))
            client.send("CAP REQ :pawl/e2ee")
            #expect(try client.expect("CAP").parameters.contains("ACK"))
            client.send("CAP LIST")
            #expect(try client.expect("CAP").body == "pawl/e2ee")
            client.send("CAP END")
            try client.expect("001")
            #expect(client.transcript.allSatisfy { $0.command != "421" }, "\(policy): \(client.transcript)")
            let legacy = try lab.person("legacy")
            legacy.send("PRIVMSG capless :hello without capabilities")
            try client.expectMessage("hello without capabilities")
            #expect(lab.tap.shows("hello without capabilities") == (policy == "observe"))
            try eventually("evidence") {
                let rows = try lab.json(["users"]) as? [[String: Any]] ?? []
                return rows.contains { $0["name"] as? String == "capless" && $0["capability"] as? String == "asked" }
            }
        }
    }

    /// Somebody who never heard of CAP gets the backend's bytes, and the backend theirs.
    @Test(arguments: Backend.allCases, CapabilityTests.below)
    func legacyRegistrationIsUntouched(_ backend: Backend, _ policy: String) throws {
        let lab = try Lab(try backend.start(), policy: policy)
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.answersPing = false
        let first = "NICK legacy\r\nUSER legacy 0 * :somebody\r\n"
        let second = "JOIN #room\nPRIVMSG #room :\u{1}ACTION waves\u{1}\r\nWHOIS   legacy\r\n"
        client.sendRaw(Array(first.utf8))
        try client.expect("end of MOTD") { $0.command == "376" || $0.command == "422" }
        client.sendRaw(Array(second.utf8))
        try client.expect("318")
        client.send("QUIT :bye")
        try client.expectEnd()
        let recording = try #require(lab.tap.recordings.first)
        #expect(String(decoding: recording.bytes(.fromClient), as: UTF8.self) == first + second + "QUIT :bye\r\n")
        #expect(recording.bytes(.fromServer) == client.received)
    }

    @Test func evidenceHasTimesAccountAndSoftware() throws {
        let accounts = try AccountLab(accounts: ["anna"])
        let lab = try Lab(accounts.server, policy: "observe")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        let legacy = try lab.person("legacy")
        legacy.send("PRIVMSG anna :\u{1}VERSION\u{1}")
        try anna.expectMessage("\u{1}VERSION\u{1}")
        anna.send("NOTICE legacy :\u{1}VERSION WeeChat 4.2\u{1}")
        try legacy.expectMessage("\u{1}VERSION WeeChat 4.2\u{1}")
        var anna1: [String: Any] = [:]
        try eventually("evidence") {
            let rows = try lab.json(["users"]) as? [[String: Any]] ?? []
            anna1 = rows.first { $0["name"] as? String == "anna" } ?? [:]
            return (anna1["software"] as? [String])?.contains("WeeChat 4.2") == true
        }
        #expect(anna1["verified"] as? Bool == true && anna1["connected"] as? Bool == true)
        let first = try #require(anna1["firstSeen"] as? String)
        #expect(first.hasPrefix("20") && (anna1["lastSeen"] as? String ?? "") >= first)
        let software = try lab.json(["clients"]) as? [[String: Any]] ?? []
        #expect(software.contains { $0["software"] as? String == "WeeChat 4.2" && $0["people"] as? Int == 1 })
        // It outlives the connection and the process.
        anna.close()
        try lab.gateway.restart()
        let rows = try lab.json(["users"]) as? [[String: Any]] ?? []
        let after = try #require(rows.first { $0["name"] as? String == "anna" })
        #expect(after["connected"] as? Bool == false && after["firstSeen"] as? String == first)
    }
}
