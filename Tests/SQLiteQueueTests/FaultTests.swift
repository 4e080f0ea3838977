import Glibc
import PeerKit
import QueueConformance
import RequestQueue
import SQLiteKit
import SQLiteQueue
import TestKit
import Testing

/// A store on a disk that fails, and what it has promised.
private final class Trial {
    let scratch: ScratchDirectory
    let disk: FaultyDisk
    private(set) var store: SQLiteQueueStore?
    /// Batches, by number, that were acknowledged, and those that were refused.
    private(set) var acknowledged: [Int] = []
    private(set) var refused: [Int] = []
    private var next = 0
    static let batchSize = 5

    init() throws {
        scratch = try ScratchDirectory()
        disk = FaultyDisk(try scratch.directory("q"))
        store = try SQLiteQueueStore(path: scratch.file("q/queue.sqlite"))
    }

    deinit {
        store = nil
        disk.unplug()
    }

    /// A batch ends some of the one before and inserts some, so that half of one would be seen.
    func commit() throws -> QueueStoreError? {
        let number = next
        next += 1
        var changes = Self.ids(number).map { QueueConformance.insert($0) }
        if let before = acknowledged.last {
            for id in Self.ids(before) {
                changes += [
                    .lease(id: id, lease: 7),
                    .finish(
                        id: id, lease: 7, outcome: QueueConformance.success, keeping: .delivery, at: Int64(number)),
                ]
            }
        }
        do throws(QueueStoreError) {
            try store?.commit(changes)
            acknowledged.append(number)
            return nil
        } catch {
            refused.append(number)
            return error
        }
    }

    func reopen() throws {
        store = nil
        store = try SQLiteQueueStore(path: scratch.file("q/queue.sqlite"))
    }

    func load() throws -> QueueContents { try #require(store).load() }

    static func ids(_ batch: Int) -> [UInt64] { (0..<batchSize).map { UInt64(batch * batchSize + $0 + 1) } }

    /// All that was acknowledged is there, and of the rest nothing, or one batch as a whole.
    ///
    /// - Parameter surplus: whether the last batch that was refused may be there.
    func expectIntact(_ contents: QueueContents, surplus: Bool = false, _ comment: Comment) {
        #expect(contents.unreadable.isEmpty, comment)
        var batches = acknowledged
        let found = Set((contents.requests + contents.finished.map(\.request)).map(\.id))
        let extra = found.subtracting(batches.flatMap(Self.ids))
        if surplus, let one = refused.first(where: { Set(Self.ids($0)) == extra }) {
            batches = acknowledged.filter { $0 < one } + [one] + acknowledged.filter { $0 > one }
        }
        #expect(contents.requests.map(\.id) == batches.suffix(1).flatMap(Self.ids), comment)
        #expect(contents.finished.map(\.request.id) == batches.dropLast().flatMap(Self.ids), comment)
        #expect(contents.undelivered.allSatisfy { $0.outcome == QueueConformance.success }, comment)
    }
}

/// Serialized: each commit syncs.
@Suite(.serialized) struct FaultTests {
    /// A disk that fails says so, keeps what it had, and goes on when it is mended.
    @Test(arguments: [
        FaultyDisk.Fault.writes(from: 0), .writes(from: 3), .writes(from: 7), .syncs(from: 0), .syncs(from: 1),
        .room(0),
        .room(5000), .room(20_000),
    ])
    func aFailingDiskIsReportedAndChangesNothing(_ fault: FaultyDisk.Fault) throws {
        let trial = try Trial()
        for _ in 0..<3 { #expect(try trial.commit() == nil) }
        trial.disk.fail(fault)
        var failure: QueueStoreError?
        for _ in 0..<20 where failure == nil { failure = try trial.commit() }
        let isFull = if case .room = fault { true } else { false }
        #expect(failure != nil && (failure == .diskFull(trial.scratch.file("q/queue.sqlite"))) == isFull)
        trial.expectIntact(try trial.load(), "while it fails")
        _ = try trial.commit()
        trial.expectIntact(try trial.load(), "still")
        trial.disk.fail(nil)
        for _ in 0..<3 { #expect(try trial.commit() == nil) }
        trial.expectIntact(try trial.load(), "mended")
        try trial.reopen()
        trial.expectIntact(try trial.load(), "reopened")
    }

    /// The process ends while the disk fails. What the log holds of the batch that failed is a whole batch or none.
    @Test(arguments: [
        FaultyDisk.Fault.writes(from: 0), .writes(from: 2), .writes(from: 5), .syncs(from: 0), .room(9000),
    ])
    func whatIsOpenedAfterAFailureIsWhole(_ fault: FaultyDisk.Fault) throws {
        let trial = try Trial()
        for _ in 0..<3 { #expect(try trial.commit() == nil) }
        trial.disk.fail(fault)
        var failure: QueueStoreError?
        for _ in 0..<20 where failure == nil { failure = try trial.commit() }
        #expect(failure != nil)
        for seed in [nil, 1, 2, 3] as [UInt64?] {
            trial.disk.cutPower(into: trial.scratch.file("cut"), seed: seed)
            let store = try SQLiteQueueStore(path: trial.scratch.file("cut/queue.sqlite"))
            trial.expectIntact(try store.load(), surplus: true, "\(fault), seed \(String(describing: seed))")
        }
    }

    /// One sync fails, so that the batch is refused while all of it stands in the log. It must not come back with the next process.
    @Test func whatWasRefusedDoesNotComeBack() throws {
        let trial = try Trial()
        for _ in 0..<3 { #expect(try trial.commit() == nil) }
        trial.disk.fail(.oneSync(0))
        #expect(try trial.commit() != nil)
        trial.disk.cutPower(into: trial.scratch.file("cut"), seed: nil)
        let store = try SQLiteQueueStore(path: trial.scratch.file("cut/queue.sqlite"))
        trial.expectIntact(try store.load(), "the log as it is on the disk")
        run("cp", "-a", trial.scratch.file("q"), trial.scratch.file("killed"))
        run("rm", "-f", trial.scratch.file("killed/queue.sqlite-shm"))
        let killed = try SQLiteQueueStore(path: trial.scratch.file("killed/queue.sqlite"))
        trial.expectIntact(try killed.load(), "the log as the system has it")
    }

    /// The power goes in the middle of anything: a batch, its sync, the log moving into the file.
    @Test func aPowerCutLosesNothingThatWasAcknowledged() throws {
        var random = SeededGenerator(seed: 11)
        var cuts = 0
        for round in 0..<40 {
            let trial = try Trial()
            try trial.store?.execute("PRAGMA wal_autocheckpoint = 20")
            trial.disk.fail(.power(at: Int.random(in: 0...400, using: &random)))
            var commits = 0
            while !trial.disk.counts.isDead, commits < 60 {
                _ = try trial.commit()
                commits += 1
            }
            if trial.disk.counts.isDead { cuts += 1 }
            for seed in [nil, random.next()] as [UInt64?] {
                let place = trial.scratch.file("cut \(seed == nil)")
                trial.disk.cutPower(into: place, seed: seed)
                let store = try SQLiteQueueStore(path: place + "/queue.sqlite")
                trial.expectIntact(
                    try store.load(), surplus: true, "round \(round), \(commits) commits, seed \(seed ?? 0)")
            }
        }
        #expect(cuts > 20)
    }
}
