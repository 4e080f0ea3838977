import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Answers of many megabytes through the program, one person being protected.
@Suite(.blocking, .serialized) struct LongAnswerTests {
    private static let c = GenericLab.conversation

    /// So many bytes of plain messages between alice and bob, written past the gateway.
    private func fill(_ lab: GenericLab, bytes: Int) throws {
        let direct = ChatPerson(lab.alice, port: lab.backend.port)
        let text = String(repeating: "0123456789abcdef", count: 16 << 10)
        for _ in 0..<(bytes / text.utf8.count + 1) { try direct.post(text, in: Self.c) }
    }

    private func protect(_ name: String, _ lab: GenericLab) throws {
        let output = try lab.gateway.admin(["policy", "set", "hosted", "--account", name, "--yes"])
        #expect(output.succeeded, "\(output.stderr)")
    }

    @Test func othersGoOnReadingUnderTheShippedLimit() throws {
        let lab = try GenericLab(policy: "observe")
        defer { lab.stop() }
        _ = try ChatPerson("carol", port: lab.gateway.port).ask("GET", "/me")
        try fill(lab, bytes: 17 << 20)
        try protect("carol", lab)
        let answer = try lab.bob.client.request("GET", "/updates", timeout: .seconds(300))
        #expect(answer.status == 200 && answer.body.count > 17 << 20)
    }

    @Test func theConfigurationLimitsHowMuchIsOpened() throws {
        let lab = try GenericLab(policy: "observe", environment: ["PAWL_LIMITS_ANSWER_BYTES": "1000000"])
        defer { lab.stop() }
        try fill(lab, bytes: 2 << 20)
        try protect("alice", lab)
        // Nothing is sealed yet.
        #expect(try lab.bob.client.request("GET", "/updates").status == 200)
        let sealed = try lab.alice.tryPosting("sealed now", in: Self.c, id: "sealed-1")
        #expect(sealed.status == 201, "\(sealed.text)")
        let refused = try lab.bob.client.request("GET", "/updates")
        #expect(refused.status == 502 && refused.json["error"] == "pawl_answer_too_long", "\(refused.text.prefix(200))")
        #expect(
            try lab.bob.client.request("GET", "/conversations/\(Self.c)/messages?limit=1").text.contains("sealed now"))
    }
}
