import Foundation
import PeerKit
import RequestQueue
import SQLiteQueue
import Testing

/// `pawl queue repair`, on the file that a gateway would have.
@Suite struct QueueRepairTests {
    @Test func whatCanBeReadIsSaved() throws {
        let scratch = try ScratchDirectory()
        let path = scratch.file("queue.sqlite")
        func repair(_ more: String...) throws -> ChildProcess.Output {
            try PawlProcess.run(["queue", "repair", "--data", scratch.path] + more)
        }
        #expect(try repair().stderr.contains("There is no queue at \(path)"))
        var store: SQLiteQueueStore? = try SQLiteQueueStore(path: path)
        try store?.commit(
            (1...200).map { (id: UInt64) in
                let request = QueuedRequest(
                    id: id, token: RequestToken(high: id, low: id), tenant: "t", lane: nil,
                    config: APIRequestConfig(
                        method: .post, path: "/a", body: .rawData(Array(repeating: 7, count: 300))),
                    creates: [], dependsOn: [], identifiers: nil, idempotencyKey: "\(id)", coalescingKey: nil,
                    timestamp: 1)
                return .insert(request, form: RequestForm.encode(request))
            })
        // While somebody has it open nothing is touched.
        let refused = try repair("--force")
        #expect(!refused.succeeded && refused.stderr.contains("in use by another process"))
        store = nil
        let whole = try repair()
        #expect(whole.succeeded && whole.stdout.contains("is whole. Nothing was changed"))
        // A page in the middle.
        let file = try #require(FileHandle(forUpdatingAtPath: path))
        try file.seek(toOffset: 9 * 4096)
        try file.write(contentsOf: Data(repeating: 0x55, count: 4096))
        try file.close()
        let repaired = try repair()
        #expect(repaired.succeeded && repaired.stdout.contains("The damaged file is \(path).damaged"), "\(repaired)")
        store = try SQLiteQueueStore(path: path)
        #expect(try #require(store).load().requests.count > 100)
        store = nil
        #expect(try repair("--force").stderr.contains("is there from an earlier repair"))
    }
}
