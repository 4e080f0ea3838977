import Protection
import QueueConformance
import RequestQueue
import SQLiteStore
import StoreConformance
import StorePort
import Testing

/// The vault's store on a disk that fails: a request and the session that sealed it stand or fall together, and so do an end and
/// the line that it has opened.
@Suite(.serialized) struct FaultTests {
    private let scratch = Scratch()

    /// One message: what the one before it has opened ends, and the session goes on.
    private func message(_ id: UInt64) -> [[StoreChange]] {
        var groups: [[StoreChange]] = [
            [.putSession(StoreConformance.session(1, 2, fence: id))],
            [.insertDelivery(StoreConformance.delivery(id))], [.insert(StoreConformance.request(id))],
        ]
        if id > 1 { groups[2].append(.done(id - 1, at: Int64(id))) }
        return groups
    }

    /// - Parameter last: the last message that was acknowledged.
    private func expectIntact(_ store: SQLiteStore, last: UInt64, _ comment: Comment) throws {
        let queue = try store.queueContents()
        #expect(queue.requests.map(\.id) == [last], comment)
        #expect(queue.finished.map(\.request.id) == Array(1..<last), comment)
        #expect(try store.session(StoreConformance.session(1, 2, fence: 0).id)?.fence == last, comment)
        #expect(try store.deliveries(of: AccountID(text: "bob")).map(\.sequence) == Array(1...last), comment)
    }

    @Test(arguments: [
        FaultyDisk.Fault.writes(from: 0), .writes(from: 5), .syncs(from: 0), .syncs(from: 1), .oneSync(0), .room(0),
        .room(20_000),
    ])
    func aFailingDiskChangesNothing(_ fault: FaultyDisk.Fault) throws {
        run("mkdir", "-p", "-m", "700", scratch.data)
        let disk = FaultyDisk(scratch.data)
        defer { disk.unplug() }
        let store = try scratch.open()
        var last: UInt64 = 0
        for _ in 0..<3 {
            last += 1
            _ = try store.commit(message(last))
        }
        disk.fail(fault)
        var failure: StoreError?
        for _ in 0..<20 where failure == nil {
            do throws(StoreError) {
                _ = try store.commit(message(last + 1))
                last += 1
            } catch { failure = error }
        }
        guard case .unavailable? = failure else {
            Issue.record("\(String(describing: failure))")
            return
        }
        try expectIntact(store, last: last, "while it fails")
        disk.fail(nil)
        // Another process reads what this one has left, without it.
        let other = Scratch()
        run("cp", "-a", scratch.data, other.data)
        run("rm", "-f", other.store + "-shm")
        if case .oneSync = fault { try other.with { try expectIntact($0, last: last, "the next process") } }
        last += 1
        _ = try store.commit(message(last))
        try expectIntact(store, last: last, "mended")
    }
}
