import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// A queue that a gateway does not start with, and what brings it back; mappings that it does not take.
@Suite(.blocking, .serialized) struct QueueFileTests {
    private static let c = GenericLab.conversation

    private func start(_ lab: GenericLab, mapping: String = JSONLab.mapping("generic")) throws -> ChildProcess.Output {
        let port = try FreePort()
        return try PawlProcess.run(
            [
                "serve", "--listen", "http://127.0.0.1:\(port.number)", "--upstream",
                "http://127.0.0.1:\(lab.backend.port)", "--policy", "hosted", "--metrics", "", "--data",
                lab.gateway.dataDirectory,
            ], environment: ["PAWL_MAPPING": mapping])
    }

    private func refused(_ lab: GenericLab, _ words: String...) throws {
        let output = try start(lab)
        #expect(output.status == .exited(1), "\(output)")
        for words in words { #expect(output.stderr.contains(words), "\(words): \(output.stderr)") }
    }

    @Test func refusalsChangeNothingAndARepairSavesWhatWaits() throws {
        let lab = try GenericLab(policy: "hosted", environment: ["PAWL_QUEUE_CREDENTIALS": "sealed"])
        try lab.alice.post("warm", in: Self.c)
        try lab.backend.set(.away)
        let client = try lab.begin("POST", "/conversations/\(Self.c)/messages", ["id": "own-1", "text": "saved"])
        try eventually("it waits") { try JSONLab.waiting(lab.gateway) == 1 }
        let data = lab.gateway.dataDirectory
        try refused(lab, "in use by another pawl")
        #expect(lab.gateway.stop() == .exited(0))
        client.hangUp()
        let path = data + "/queue.sqlite"
        let file = URL(fileURLWithPath: path)
        let good = try Data(contentsOf: file)
        let whole = try lab.gateway.admin(["queue", "repair"])
        #expect(whole.succeeded && whole.stdout.contains("is not damaged"), "\(whole)")

        // SQLite's user_version, which counts the migrations, stands at offset 60.
        var newer = try Data(contentsOf: file)
        newer.replaceSubrange(60..<64, with: [0, 0, 0x27, 0x0F])
        try newer.write(to: file)
        try refused(lab, "schema 9999", "newer program")
        #expect(try lab.gateway.admin(["queue", "repair"]).status == .exited(1))
        #expect(try Data(contentsOf: file) == newer)

        // Cut off, and damaged.
        try good.prefix(4096 + 100).write(to: file)
        try refused(lab, "is damaged", "pawl queue repair --data \(data)")
        for end in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: path + end) }
        try refused(lab, "existed before and is missing", "pawl queue repair --data \(data)")
        #expect(!FileManager.default.fileExists(atPath: path))

        var damaged = good
        // An index is damaged: whatever it leads to can still be read.
        damaged.replaceSubrange(28..<32, with: [0x7F, 0, 0, 0])
        try damaged.write(to: file)
        try refused(lab, "is damaged")
        #expect(try Data(contentsOf: file) == damaged)
        let repaired = try lab.gateway.admin(["queue", "repair", "--json"])
        #expect(repaired.succeeded, "\(repaired)")
        let report = try JSONValue(Array(repaired.stdout.utf8))
        #expect(report["outcome"] == "repaired", "\(report)")
        #expect(FileManager.default.fileExists(atPath: path + ".damaged"))
        let again = try lab.gateway.admin(["queue", "repair", "--force"])
        #expect(again.status == .exited(1) && again.stderr.contains("earlier repair"), "\(again)")
        try lab.backend.behave()
        try lab.gateway.start()
        #expect(try lab.bob.texts(Self.c).first == "warm")
    }

    @Test func aMissingQueueIsBegunAnewOnlyWhenAskedFor() throws {
        let lab = try GenericLab(policy: "hosted")
        try lab.alice.post("warm", in: Self.c)
        lab.gateway.stop()
        let path = lab.gateway.dataDirectory + "/queue.sqlite"
        for end in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: path + end) }
        try refused(lab, "existed before")
        let begun = try lab.gateway.admin(["queue", "repair"])
        #expect(begun.succeeded && begun.stdout.contains("An empty queue"), "\(begun)")
        try lab.gateway.start()
        #expect(try lab.bob.texts(Self.c) == ["warm"])
    }

    @Test func aBackupHasStoreAndQueueOfOneMoment() throws {
        let lab = try GenericLab(policy: "hosted", environment: ["PAWL_QUEUE_CREDENTIALS": "sealed"])
        try lab.alice.post("before", in: Self.c, id: "own-0")
        try lab.backend.set(.away)
        let client = try lab.begin("POST", "/conversations/\(Self.c)/messages", ["id": "own-1", "text": "waits"])
        try eventually("it waits") { try JSONLab.waiting(lab.gateway) == 1 }
        let scratch = try ScratchDirectory()
        let file = scratch.file("backup")
        #expect(try lab.gateway.admin(["backup", file]).succeeded)
        #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path) == ["backup"])
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        for secret in ["waits", lab.alice.token] { #expect(!PlaintextSearch(secret).finds(in: bytes)) }
        try lab.backend.behave()
        #expect(try client.answer(to: "POST").status == 201)
        lab.gateway.stop()
        let restored = try lab.gateway.admin(["restore", file, "--force"])
        #expect(restored.succeeded, "\(restored)")
        try lab.gateway.start()
        // It was done after the backup: it is not done again, and an operator sees it.
        #expect(try lab.backend.messages().count == 2)
        let dead = try lab.gateway.admin(["queue", "list", "--state", "dead"]).stdout
        #expect(dead.contains("Restored from a backup"), "\(dead)")
        #expect(try lab.bob.texts(Self.c).first == "before")
        try lab.alice.post("after", in: Self.c)
        #expect(try lab.bob.texts(Self.c).last == "after")
    }

    @Test func aWrongMappingIsNotTaken() throws {
        let scratch = try ScratchDirectory()
        let right = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
        try scratch.write("mapping.yaml", right)
        let lab = try GenericLab(policy: "hosted", mapping: scratch.file("mapping.yaml"))
        try lab.alice.post("one", in: Self.c)
        for (number, wrong) in ["", "routes: 7\n", right + "\nnonsense: 1\n"].enumerated() {
            try scratch.write("mapping.yaml", wrong)
            let reload = try lab.gateway.admin(["config", "reload"])
            #expect(reload.status == .exited(78) && reload.stderr.contains("the old configuration stays"), "\(reload)")
            try lab.alice.post("still \(number)", in: Self.c)
            #expect(try !lab.backend.knows("still \(number)"))
        }
        try FileManager.default.removeItem(atPath: scratch.file("mapping.yaml"))
        #expect(try lab.gateway.admin(["config", "reload"]).status == .exited(78))
        // A file that is right counts from the next request on.
        try scratch.write("mapping.yaml", right)
        #expect(try lab.gateway.admin(["config", "reload"]).succeeded)
        try lab.alice.post("two", in: Self.c)
        #expect(try lab.bob.texts(Self.c).last == "two")
    }
}
