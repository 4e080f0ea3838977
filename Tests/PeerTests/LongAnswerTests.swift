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

    /// The bytes that the gateway says it holds.
    private func collected(_ metrics: FreePort) throws -> Int {
        let page = try WebClient(port: metrics.number).request("GET", "/metrics").text
        let line = page.split(separator: "\n").first { $0.hasPrefix("pawl_collected_bytes ") }
        return line.flatMap { $0.split(separator: " ").last }.flatMap { Int($0) } ?? 0
    }

    /// Clients that leave their requests unfinished fill what their account may hold of the memory for collected bodies. They
    /// are told so, and others go on.
    @Test func aClientWithoutRoomIsTold() throws {
        let metrics = try FreePort()
        let lab = try GenericLab(
            policy: "hosted",
            environment: ["PAWL_LIMITS_ANSWER_BYTES": "500000", "PAWL_LIMITS_COLLECTED_BYTES": "1048576"],
            metrics: "127.0.0.1:\(metrics.number)")
        defer { lab.stop() }
        let text = String(repeating: "0123456789", count: 2_800)
        #expect(try lab.alice.tryPosting(text, in: Self.c, id: "first").status == 201)
        let fields = lab.alice.client.headers.map { "\($0.0): \($0.1)\r\n" }.joined()
        let head =
            "POST /conversations/\(Self.c)/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\(fields)"
            + "Content-Length: 262000\r\n\r\n"
        let unfinished = try (0..<2).map { _ in
            let client = WebClient(port: lab.gateway.port)
            try client.send(head)
            try client.send(Array(repeating: UInt8(ascii: " "), count: 257_000))
            return client
        }
        try eventually("they are collected") { try collected(metrics) >= 2 * 257_000 }
        // Each piece gives a client more time.
        func goOn() throws { for client in unfinished { try client.send(" ") } }
        try goOn()
        let refused = try lab.alice.tryPosting(text, in: Self.c, id: "second")
        #expect(refused.status == 503 && refused.header("Retry-After") == "5", "\(refused.text)")
        #expect(refused.json["error"] == "pawl_no_room")
        #expect(refused.json["message"].string?.contains("Try again in a few seconds") == true)
        try goOn()
        // Another account has its place.
        #expect(try lab.bob.tryPosting(text, in: Self.c, id: "of-bob").status == 201)
        let socket = try lab.alice.socket()
        try goOn()
        try? socket.send([
            "type": "send", "conversation": .string(Self.c), "id": "framed",
            "text": .string(String(repeating: text, count: 7)),
        ])
        #expect(try socket.expectEnd() == 1013)
        for client in unfinished { client.hangUp() }
        try eventually("there is room again") { try collected(metrics) < 257_000 }
        #expect(try lab.alice.tryPosting(text, in: Self.c, id: "second").status == 201)
    }
}
