import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Who can encrypt, and what is known of everybody's clients.
@Suite(.blocking, .serialized) struct DetectionTests {
    @Test(arguments: Backend.allCases) func theCapabilityIsOffered(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "observe")
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        try client.register(nick: "asker", caps: ["pawl/e2ee", "multi-prefix"])
        #expect(client.offered["pawl/e2ee"] != nil)
        #expect(client.enabled.isSuperset(of: ["pawl/e2ee", "multi-prefix"]))
        client.send("CAP LIST")
        let list = try client.expect("CAP LIST") { $0.command == "CAP" && $0.parameters.contains("LIST") }
        #expect(list.body.contains("pawl/e2ee") && list.body.contains("multi-prefix"))
        client.send("CAP REQ :pawl/e2ee nosuch")
        let refused = try client.expect("NAK") { $0.command == "CAP" && $0.parameters.contains("NAK") }
        #expect(refused.body == "pawl/e2ee nosuch")
        _ = try lab.person("legacy")
        try eventually("evidence of both") {
            let users = try lab.gateway.admin(["users", "--json"]).stdout
            return users.contains("\"asker\"") && users.contains("\"legacy\"")
        }
        let rows = try #require(
            try JSONSerialization.jsonObject(with: Data(try lab.gateway.admin(["users", "--json"]).stdout.utf8))
                as? [[String: Any]])
        let byName = Dictionary(
            uniqueKeysWithValues: rows.compactMap { row in (row["name"] as? String).map { ($0, row) } })
        #expect(byName["asker"]?["capability"] as? String == "asked")
        #expect(byName["legacy"]?["capability"] as? String == "legacy")
        #expect(byName["legacy"]?["verified"] as? Bool == false)
    }

    @Test func aBackendWithoutCapabilities() throws {
        var options = InspIRCd.Options()
        options.without = ["cap"]
        let lab = try Lab(try InspIRCd(options), policy: "observe")
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.send("CAP LS 302")
        let list = try client.expect("CAP")
        #expect(list.body == "pawl/e2ee")
        client.send("CAP REQ :pawl/e2ee")
        let answer = try client.expect("CAP")
        #expect(answer.parameters.contains("ACK"))
        client.send("CAP END")
        client.send("NICK capless")
        client.send("USER capless 0 * :x")
        try client.expect("001")
    }

    @Test(arguments: Backend.allCases) func offChangesNoByte(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "off")
        defer { lab.stop() }
        let client = try lab.person("plain", caps: [])
        #expect(client.offered["pawl/e2ee"] == nil)
        client.send("PRIVMSG plain :bytes are bytes")
        try client.expectMessage("bytes are bytes")
        client.sendRaw(Array("PING half".utf8))
        client.sendRaw(Array("-line\r\n".utf8))
        try client.expect("PONG") { $0.command == "PONG" && $0.body == "half-line" }
        let recording = try #require(lab.tap.recordings.first)
        #expect(recording.bytes(.fromServer) == client.received)
    }

    @Test func externalAndStartTLSAreNotShown() throws {
        var options = InspIRCd.Options()
        options.tls = true
        options.strictTransport = true
        let lab = try Lab(try InspIRCd(options), policy: "observe")
        defer { lab.stop() }
        let client = try lab.person("hidden", caps: [])
        #expect(client.offered["tls"] == nil && client.offered["sts"] == nil)
        client.send("STARTTLS")
        try client.expect("421")
        client.send("AUTHENTICATE EXTERNAL")
        try client.expect("904")
    }
}
