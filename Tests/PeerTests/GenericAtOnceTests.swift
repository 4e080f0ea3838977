import Foundation
import PeerKit
import TestThreads
import Testing

/// A mapping that answers writes as soon as they are stored: the client goes on with a local id, and is told the backend's.
@Suite(.blocking, .serialized) struct GenericAtOnceTests {
    private static let c = GenericLab.conversation

    /// The generic mapping with two more lines, as an operator would write them.
    static func mapping(in directory: ScratchDirectory) throws -> String {
        let text = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
        let answer = #"    at_once: {status: 202, body: '{"message_id":"{local_id}","id":"{client_id}"}'}"#
        let changed = text.replacingOccurrences(
            of: "    label: content written\n    remote_id: message_id\n",
            with: "    label: content written\n    remote_id: message_id\n\(answer)\n")
        guard changed != text else { throw PeerError("the generic mapping has changed") }
        let path = directory.path + "/at-once.yaml"
        let merged = #"merged: '{"type":"merged","local_id":"{local_id}","message_id":"{message_id}"}'"#
        try (changed + "\n" + merged + "\n").write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }

    @Test func editedAndDeletedBeforeItIsSentAndThenMerged() throws {
        let directory = try ScratchDirectory()
        let lab = try GenericLab(policy: "hosted", mapping: Self.mapping(in: directory))
        let socket = try lab.alice.socket()
        try lab.alice.post("warm", in: Self.c)
        try socket.expect("merged")
        // The backend stays there for the socket.
        try lab.backend.set(.refuses(1000, status: 503, retryAfter: 1))

        let first = try lab.alice.post("draft", in: Self.c, id: "own-1")
        #expect(first.hasPrefix("pawl-"))
        let second = try lab.alice.post("mistake", in: Self.c, id: "own-2")
        // Said again, it is the same message.
        #expect(try lab.alice.post("draft", in: Self.c, id: "own-1") == first)
        let edit = try lab.begin("PATCH", "/conversations/\(Self.c)/messages/\(first)", ["text": "final"])
        let deletion = try lab.begin("DELETE", "/conversations/\(Self.c)/messages/\(second)", [:])
        try lab.wait(for: 4)
        try lab.backend.behave()

        #expect(try edit.answer(to: "PATCH").status == 200)
        #expect(try deletion.answer(to: "DELETE").status == 204)
        let merged = try [socket.expect("merged"), socket.expect("merged")]
        #expect(merged.map { $0["local_id"] } == [.string(first), .string(second)])
        let stored = try lab.backend.messages()
        #expect(stored.map { $0["message_id"] }.last == merged[0]["message_id"])
        #expect(try lab.bob.texts(Self.c) == ["warm", "final"])
        #expect(try lab.backend.received().allSatisfy { !($0["target"].string ?? "").contains("pawl-") })
    }

    /// Who was told yes is told when it becomes a no.
    @Test func aLaterRefusalIsReported() throws {
        let directory = try ScratchDirectory()
        let lab = try GenericLab(policy: "hosted", mapping: Self.mapping(in: directory))
        let socket = try lab.alice.socket()
        try lab.alice.post("warm", in: Self.c)
        try socket.expect("merged")
        try lab.backend.set(.refuses(1, status: 403))
        let local = try lab.alice.post("unwanted", in: Self.c, id: "own-1")
        let errorFrame = try socket.expect("error")
        #expect(errorFrame["id"] == .string(local), "\(errorFrame)")
        // Said again it is tried again, under the same name.
        #expect(try lab.alice.post("unwanted", in: Self.c, id: "own-1") == local)
        let merged = try socket.expect("merged")
        #expect(merged["local_id"] == .string(local))
        #expect(try lab.bob.texts(Self.c) == ["warm", "unwanted"])
    }
}
