import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// The queue file of an earlier version that a gateway does not start with, and what brings it back; backups; mappings
/// that are not taken.
@Suite(.blocking, .serialized) struct QueueFileTests {
    private static let c = GenericLab.conversation

    private func refused(_ lab: EarlierQueueLab, _ code: String) throws {
        let output = try lab.tryToStart()
        #expect(output.status == .exited(1) && output.failureCode == code, "\(output)")
    }

    @Test func refusalsChangeNothingAndARepairSavesWhatCanBeRead() throws {
        let lab = try EarlierQueueLab()
        let file = URL(fileURLWithPath: lab.queue)
        // It reads the log, and moves it into the file.
        let whole = try lab.admin(["queue", "repair", "--json"])
        #expect(whole.succeeded && whole.json["outcome"] == "whole", "\(whole)")
        let good = try Data(contentsOf: file)

        // SQLite's user_version, which counts the migrations, stands at offset 60.
        var newer = good
        newer.replaceSubrange(60..<64, with: [0, 0, 0x27, 0x0F])
        try newer.write(to: file)
        try refused(lab, "store-unavailable")
        #expect(try lab.admin(["queue", "repair"]).status == .exited(1))
        #expect(try Data(contentsOf: file) == newer)

        // Cut off, missing, and damaged.
        try good.prefix(4096 + 100).write(to: file)
        try refused(lab, "store-damaged")
        for end in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: lab.queue + end) }
        try refused(lab, "store-missing")
        #expect(!FileManager.default.fileExists(atPath: lab.queue))
        var damaged = good
        // The fourth page has what became of the requests: it is lost, the requests are not.
        damaged.replaceSubrange(3 * 4096..<4 * 4096, with: [UInt8](repeating: 0x5A, count: 4096))
        try damaged.write(to: file)
        try refused(lab, "store-damaged")
        #expect(try Data(contentsOf: file) == damaged)
        let repaired = try lab.admin(["queue", "repair", "--json"])
        #expect(repaired.succeeded, "\(repaired)")
        let report = try JSONValue(Array(repaired.stdout.utf8))
        #expect(report["outcome"] == "repaired" && report["requests"] == 5 && report["doubtful"] == 5, "\(report)")
        let again = try lab.admin(["queue", "repair", "--force"])
        #expect(again.status == .exited(1) && again.failureCode == "queue-unavailable", "\(again)")

        let gateway = try lab.start()
        defer { gateway.stop() }
        // What the repair has kept stays.
        let left = try lab.left()
        #expect(left.first == "queue.sqlite.damaged", "\(left)")
        #expect(left.allSatisfy { $0.hasPrefix("queue.sqlite.damaged") }, "\(left)")
        let dead = try gateway.admin(["queue", "list", "--state", "dead"]).stdout
        #expect(try lab.ids(gateway, "dead").count == 5 && dead.contains("was damaged"), "\(dead)")
        #expect(try lab.writes().count == 1)
        // An operator sends one again.
        #expect(try gateway.admin(["queue", "release", "--account", "alice"]).succeeded)
        #expect(try gateway.admin(["queue", "retry", "5"]).succeeded)
        try eventually("it is sent") { try lab.ids(gateway, "done") == ["5"] }
        #expect(try lab.bob(gateway).texts("c1").last == "canary waits")
        try refused(lab, "store-locked")
        let none = try lab.admin(["queue", "repair"])
        #expect(none.status == .exited(1) && none.failureCode == "no-queue-file", "\(none)")
    }

    /// The way back stays: neither the queue nor the store of the earlier version has changed.
    @Test func aStartWithAWrongMappingChangesNothing() throws {
        let lab = try EarlierQueueLab()
        let scratch = try ScratchDirectory()
        try scratch.write("mapping.yaml", "routes: 7\n")
        func files() throws -> [String: Data] {
            let names = try FileManager.default.contentsOfDirectory(atPath: lab.data)
            return try Dictionary(
                uniqueKeysWithValues: names.map { name in
                    (name, try Data(contentsOf: URL(fileURLWithPath: "\(lab.data)/\(name)")))
                })
        }
        let before = try files()
        let output = try lab.tryToStart(mapping: scratch.file("mapping.yaml"))
        #expect(output.status == .exited(78), "\(output)")
        #expect(try files() == before && before.keys.contains("queue.sqlite"))
    }

    @Test func aMissingQueueIsBegunAnewOnlyWhenAskedFor() throws {
        let lab = try EarlierQueueLab()
        for end in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: lab.queue + end) }
        try refused(lab, "store-missing")
        let begun = try lab.admin(["queue", "repair", "--json"])
        #expect(begun.succeeded && begun.json["outcome"] == "begun", "\(begun)")
        let gateway = try lab.start()
        defer { gateway.stop() }
        #expect(try lab.left().isEmpty)
        #expect(try lab.ids(gateway, "pending").isEmpty && lab.ids(gateway, "done").isEmpty)
        #expect(try gateway.admin(["queue", "release", "--account", "alice"]).succeeded)
        try lab.alice(gateway).post("after", in: "c2")
        #expect(try lab.bob(gateway).texts("c2") == ["after"])
    }

    /// The backup of an earlier version has the queue beside the store. What waited in it may have been sent since.
    @Test func aBackupOfAnEarlierVersionIsRestored() throws {
        let lab = try EarlierQueueLab()
        let restored = try lab.admin(["restore", lab.backup, "--force"])
        #expect(restored.succeeded, "\(restored)")
        let gateway = try lab.start()
        defer { gateway.stop() }
        #expect(try lab.left().isEmpty)
        #expect(try lab.ids(gateway, "pending").isEmpty && lab.ids(gateway, "done") == ["1"])
        let dead = try gateway.admin(["queue", "list", "--state", "dead"]).stdout
        #expect(try lab.ids(gateway, "dead") == ["2", "3", "4", "5"])
        #expect(dead.contains("Restored from a backup"), "\(dead)")
        let again = try lab.alice(gateway).tryPosting("canary done", in: "c1", id: "own-1")
        #expect(again.status == 201 && again.json["message_id"] == "m3", "\(again.text)")
        #expect(try lab.writes().count == 1)
        let audit = try gateway.admin(["audit"]).stdout
        #expect(audit.contains("store.restored") && audit.contains("store.queue_taken_over"), "\(audit)")
    }

    @Test func aBackupHasTheStoreWithItsQueue() throws {
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
            #expect(reload.status == .exited(78) && reload.failureCode == "configuration-refused", "\(reload)")
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
