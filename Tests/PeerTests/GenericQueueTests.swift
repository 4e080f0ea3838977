import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Messages of the generic chat that the backend does not answer in time, or at all.
@Suite(.blocking, .serialized) struct GenericQueueTests {
    private static let c = GenericLab.conversation
    private static let messages = "/conversations/\(c)/messages"

    /// A lab where a message went through, so that accounts and members are known.
    private func warm(
        _ options: ChatBackendProcess.Options = .init(), environment: [String: String] = [:]
    ) throws -> GenericLab {
        let lab = try GenericLab(policy: "hosted", options, environment: environment)
        try lab.alice.post("warm", in: Self.c, id: "warm")
        #expect(try lab.bob.texts(Self.c) == ["warm"])
        return lab
    }

    @Test func answerIsLost() throws {
        let lab = try warm()
        _ = try lab.bob.socket()
        try lab.backend.set(.loses(2))
        let message = try lab.alice.post("once", in: Self.c, id: "own-1")
        #expect(try lab.backend.faultsToCome().loses == 0)
        #expect(try lab.backend.messages().map { $0["message_id"] }.dropFirst() == [.string(message)])
        try lab.bob.expect("message", "once")
        #expect(try lab.bob.texts(Self.c) == ["warm", "once"])
        // Edits and deletions are asked again as well.
        try lab.backend.set(.loses(1))
        try lab.alice.edit(message, "twice", in: Self.c)
        #expect(try lab.bob.texts(Self.c) == ["warm", "twice"])
    }

    /// A backend that cannot tell copies apart stores them, and people hear the message once all the same.
    @Test func answerIsLostByABackendThatKeepsDuplicates() throws {
        var options = ChatBackendProcess.Options()
        options.deduplicates = false
        let lab = try warm(options)
        let socket = try lab.bob.socket()
        try lab.backend.set(.loses(1))
        try lab.alice.post("once", in: Self.c, id: "own-1")
        try lab.alice.post("after", in: Self.c, id: "own-2")
        try lab.bob.expect("message", "once")
        try lab.bob.expect("message", "after")
        #expect(!socket.pending.contains { $0["text"] == "once" }, "\(socket.pending)")
    }

    @Test(arguments: [429, 503]) func backendAsksForPatience(_ status: Int) throws {
        let lab = try warm()
        try lab.backend.set(.refuses(2, status: status, retryAfter: 1))
        try lab.alice.post("later", in: Self.c)
        #expect(try lab.backend.faultsToCome().refuses == 0)
        #expect(try lab.bob.texts(Self.c) == ["warm", "later"])
    }

    @Test func orderIsKept() throws {
        let lab = try warm()
        try lab.backend.set(.away)
        var clients: [PendingRequest] = []
        for number in 1...5 {
            clients.append(
                try lab.begin("POST", Self.messages, ["id": "own-\(number)", "text": .string("text \(number)")]))
            try lab.wait(for: number)
        }
        try lab.backend.behave()
        for client in clients { #expect(try client.answer(to: "POST").status == 201) }
        #expect(try lab.bob.texts(Self.c) == ["warm"] + (1...5).map { "text \($0)" })
        #expect(try lab.backend.messages().count == 6)
    }

    /// They name the message by the client's own id as long as it has no other.
    @Test func editAndDeletionWhileItWaits() throws {
        let lab = try warm()
        try lab.backend.set(.away)
        let requests: [(String, String, JSONValue)] = [
            ("POST", "", ["id": "own-1", "text": "draft"]), ("PATCH", "/own-1", ["text": "final"]),
            ("POST", "", ["id": "own-2", "text": "mistake"]), ("DELETE", "/own-2", [:]),
        ]
        var clients: [PendingRequest] = []
        for (method, path, body) in requests {
            clients.append(try lab.begin(method, Self.messages + path, body))
            try lab.wait(for: clients.count)
        }
        try lab.backend.behave()
        try lab.wait(for: 0)
        // Who has waited for a minute was told that it still waits.
        for (client, status) in zip(clients, [201, 200, 201, 204]) {
            #expect([status, 504].contains(try client.answer(to: "POST").status))
        }
        #expect(try lab.bob.texts(Self.c) == ["warm", "final"])
        #expect(try lab.backend.messages().count == 2)
        #expect(try lab.backend.received().allSatisfy { !($0["target"].string ?? "").contains("/own-") })
    }

    @Test(arguments: ["sealed", "memory"]) func gatewayIsKilledWhileItWaits(_ credentials: String) throws {
        let lab = try warm(environment: ["PAWL_QUEUE_CREDENTIALS": credentials])
        try lab.backend.set(.away)
        let waiting = try lab.begin("POST", Self.messages, ["id": "own-1", "text": "survives"])
        try lab.wait(for: 1)
        #expect(JSONLab.shows(lab.gateway, "survives").isEmpty && JSONLab.shows(lab.gateway, lab.alice.token).isEmpty)
        lab.gateway.crash()
        #expect(throws: PeerError.self) { try waiting.answer(to: "POST") }
        try lab.backend.behave()
        try lab.gateway.start()
        if credentials == "memory" {
            // Her next request, whatever it is, shows her credential.
            try lab.alice.ask("GET", "/me")
        }
        try eventually("it is sent") { try lab.backend.messages().count == 2 }
        // And the client, which never had an answer, says it again.
        let again = try lab.alice.tryPosting("survives", in: Self.c, id: "own-1")
        #expect((200..<300).contains(again.status))
        #expect(try lab.backend.messages().count == 2)
        #expect(try lab.bob.texts(Self.c) == ["warm", "survives"])
    }

    /// Over a WebSocket the client may repeat it as well.
    @Test func acknowledgementIsLost() throws {
        let lab = try warm()
        _ = try lab.bob.socket()
        _ = try lab.alice.socket()
        try lab.backend.set(.loses(1))
        #expect(throws: PeerError.self) { try lab.alice.postOverSocket("once", in: Self.c, id: "own-1") }
        lab.alice.dropSocket()
        let message = try lab.alice.postOverSocket("once", in: Self.c, id: "own-1")
        #expect(try lab.backend.messages().map { $0["message_id"] }.dropFirst() == [.string(message)])
        try lab.bob.expect("message", "once")
        #expect(try lab.bob.texts(Self.c) == ["warm", "once"])
    }
}
