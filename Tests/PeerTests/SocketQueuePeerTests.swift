import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Messages over a WebSocket that the backend acknowledges, through the queue of a gateway.
@Suite(.blocking, .serialized) struct SocketQueuePeerTests {
    private static let c = GenericLab.conversation

    private func warm(_ options: ChatBackendProcess.Options = .init()) throws -> GenericLab {
        let lab = try GenericLab(policy: "hosted", options)
        try lab.alice.post("warm", in: Self.c, id: "warm")
        #expect(try lab.bob.texts(Self.c) == ["warm"])
        return lab
    }

    private func frame(_ text: String, _ id: String) -> JSONValue {
        ["type": "send", "conversation": .string(Self.c), "id": .string(id), "text": .string(text)]
    }

    private func queue(_ lab: GenericLab, _ state: String) throws -> [JSONValue] {
        let output = try lab.gateway.admin(["queue", "list", "--state", state, "--json"])
        guard output.succeeded else { throw PeerError("no list: \(output.stderr)") }
        return try JSONValue(Array(output.stdout.utf8)).array
    }

    @Test func theyAreAcknowledgedInTheirOrder() throws {
        let lab = try warm()
        let (alice, bob) = (try lab.alice.socket(), try lab.bob.socket())
        let texts = (1...5).map { "Wiesenknopf \($0)" }
        for (number, text) in texts.enumerated() { try alice.send(frame(text, "own-\(number)")) }
        var messages: [JSONValue] = []
        for number in texts.indices {
            let answer = try alice.expect("ack")
            #expect(answer["id"] == .string("own-\(number)"))
            messages.append(answer["message_id"])
        }
        #expect(try lab.backend.messages().map { $0["message_id"] }.dropFirst() == messages[...])
        for text in texts { #expect(try bob.expect("message")["text"] == .string(text)) }
        // The queue has them all, with the backend's ids.
        let done = try queue(lab, "done")
        #expect(done.count == 6 && done.allSatisfy { $0["account"] == "alice" }, "\(done)")
        // What the backend rejects is not sent again, and its own words reach the sender.
        try lab.backend.set(.refuses(1, status: 409))
        try alice.send(frame("Wasserdost", "own-9"))
        let rejection = try alice.expect("error")
        #expect(rejection["id"] == "own-9" && rejection["error"] == "unavailable", "\(rejection)")
        try eventually("it is dead") { try queue(lab, "dead").count == 1 }
        #expect(try lab.backend.messages().count == 6 && !lab.backend.knows("Wiesenknopf"))
        // The close frame of a client waits for the answer to its last message.
        try alice.send(frame("last", "own-10"))
        try alice.close()
        #expect(try alice.expect("ack")["id"] == "own-10")
        #expect(try alice.expectEnd() == 1000)
    }

    /// The backend has the message and dies before it says so, and so does the gateway.
    @Test(arguments: [true, false]) func theBackendDiesBeforeItAcknowledges(_ deduplicates: Bool) throws {
        var options = ChatBackendProcess.Options()
        options.deduplicates = deduplicates
        let lab = try warm(options)
        let first = try lab.alice.socket()
        try lab.backend.set(.loses(1))
        try first.send(frame("Wiesenknopf", "own-1"))
        let notice = try first.expect("error")
        #expect(notice["error"] == "pawl_still_waiting" && notice["id"] == "own-1", "\(notice)")
        _ = try? first.expectEnd()
        try eventually("it waits, and may have been done") {
            let waiting = try queue(lab, "pending")
            return waiting.count == 1 && waiting[0]["target"] == .string(Self.c)
                && waiting[0]["reason"].string?.contains("onnection") == true
        }
        lab.gateway.crash()
        try lab.gateway.start()
        for person in [lab.alice, lab.bob] { person.dropSocket() }
        let bob = try lab.bob.socket()
        #expect(try queue(lab, "pending").count == 1, "there is no socket of alice")
        #expect(JSONLab.shows(lab.gateway, "Wiesenknopf").isEmpty)

        let second = try lab.alice.socket()
        try lab.wait(for: 0)
        #expect(try lab.backend.messages().count == (deduplicates ? 2 : 3))
        // Its client repeats it, and gets the answer.
        let message = try lab.alice.postOverSocket("Wiesenknopf", in: Self.c, id: "own-1")
        #expect(try lab.backend.messages().last?["message_id"] == .string(message))
        #expect(try lab.backend.messages().count == (deduplicates ? 2 : 3))
        #expect(!second.pending.contains { $0["type"] == "ack" }, "\(second.pending)")
        // People see it once.
        try lab.alice.postOverSocket("after", in: Self.c, id: "own-2")
        try lab.bob.expect("message", "after")
        #expect(bob.pending.filter { $0["text"] == "Wiesenknopf" }.count <= 1, "\(bob.pending)")
        if deduplicates { #expect(try lab.bob.texts(Self.c) == ["warm", "Wiesenknopf", "after"]) }
        #expect(try !lab.backend.knows("Wiesenknopf"))
    }
}
