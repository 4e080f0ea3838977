import GRDB
import GRDBSQLite
import Glibc
import QueueConformance
import RequestQueue
import SQLiteKit
import SQLiteQueue
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

/// The queue that an earlier version kept in a file of its own: it moves into the store, whole or not at all.
@Suite struct QueueTakeoverTests {
    private let scratch = Scratch()
    private let path: String
    private static let tables = ["queue_request", "queue_progress", "queue_response", "queue_mapping", "queue_session"]
    private static let ends = ["", "-wal", "-shm", ".lock"]

    /// A store that was used once, and beside it what is made of ``fill(_:)``.
    init() throws {
        path = scratch.data + "/queue.sqlite"
        try scratch.with { try StoreConformance.commit($0, [.putDevice(StoreConformance.device(1, "alice"))]) }
        try fill(SQLiteQueueStore(path: path))
    }

    private func mapping(_ local: String, _ remote: String) -> IdentifierMapping {
        IdentifierMapping(tenant: "t", reference: EntityReference(type: "message", local: local), remote: remote)
    }

    private func finish(
        _ id: UInt64, _ outcome: RequestOutcome, lease: UInt64? = nil, keeping: QueueChange.Keeping = .delivery,
        at: Int64 = 5000
    ) -> QueueChange { .finish(id: id, lease: lease, outcome: outcome, keeping: keeping, at: at) }

    /// A request in every state, with all that a row can have.
    private func fill(_ queue: SQLiteQueueStore) throws {
        let dead = RequestOutcome(
            .failure(status: 404), cause: "gone", headers: [.init("a", "b")], body: [7, 0, 8], isCut: true)
        try queue.commit((1...9).map { QueueConformance.insert($0) } + [QueueConformance.insert(41)])
        try queue.commit([
            .lease(id: 2, lease: 3),
            .requeue(id: 2, lease: 3, .init(notBefore: 77, attempts: 4, crashes: 1, doubts: 2, cause: "refused")),
            .hold(id: 3, true, at: 1), .lease(id: 4, lease: .max), .lease(id: 5, lease: 6),
            finish(5, QueueConformance.success, lease: 6), finish(6, dead, at: 6000), .handled(id: 6),
            finish(7, RequestOutcome(.aborted), keeping: .result), finish(8, dead), .redeliver(id: 8, times: 2),
            .quarantine(id: 9, cause: "It cannot be read.", at: 7000),
        ])
        // Of two on one entity the later counts.
        try queue.commit([.map(mapping("a", "1"), at: 10), .map(mapping("b", "2"), at: 10)])
        try queue.commit([.map(mapping("a", "3"), at: 9), .map(mapping("a", "4"), at: 11)])
        try queue.commit([
            .session(tenant: "t", sealed: [1, 0, 2]), .session(tenant: "", sealed: []), .remove(id: 41),
        ])
    }

    private func rows(_ path: String, _ table: String) throws -> [Row] {
        let database = try DatabaseQueue(path: path)
        defer { try? database.close() }
        return try database.read { try Row.fetchAll($0, sql: "SELECT * FROM \(table) ORDER BY 1") }
    }

    private func allRows(_ path: String) throws -> [[Row]] { try Self.tables.map { try rows(path, $0) } }

    private func hasFile() -> Bool { Self.ends.contains { exists(path + $0) } }

    private func audit() throws -> [AuditRow] {
        try scratch.open().auditLog(limit: 99).filter { $0.action == QueueTakeover.action }
    }

    /// A copy of the file, as a crash or an operator brings it back.
    private func keepCopy() { run("cp", path, scratch.path + "/kept") }
    private func bringBack() { run("cp", scratch.path + "/kept", path) }
    private func removeFile() { for end in Self.ends { unlink(path + end) } }

    // MARK: Rows

    @Test func rowsOfEveryStateArriveUnchanged() throws {
        let before = try allRows(path)
        let (contents, tokens) = try { () throws in
            let queue = try SQLiteQueueStore(path: path)
            return (try queue.load(), try queue.requests(states: RequestState.allCases, after: 0, limit: .max))
        }()
        try #require(tokens.count == 9 && contents.requests.count == 4 && contents.undelivered.count == 2)
        let store = try scratch.open()
        #expect(store.takenOver == 9)
        #expect(!hasFile())
        let after = try store.queueContents()
        #expect(after.requests == contents.requests && after.unreadable == contents.unreadable)
        #expect(after.finished == contents.finished && after.undelivered == contents.undelivered)
        #expect(after.learnt == contents.learnt && after.mappings == [mapping("b", "2"), mapping("a", "4")])
        #expect(after.sessions == contents.sessions && after.sessions == ["t": [1, 0, 2], "": []])
        #expect(after.highest == 41 && contents.highest == 41)
        for request in tokens { #expect(try store.queuedRequest(request.id) == request) }
        let line = try #require(try store.auditLog(limit: 9).last)
        #expect(line.actor == "pawl" && line.action == "store.queue_taken_over" && line.at > 1_700_000_000_000)
        #expect(line.detail == "9 requests of \(path)")
        store.moveLog()
        for (table, rows) in zip(Self.tables, before) {
            #expect(!rows.isEmpty)
            #expect(try self.rows(scratch.store, table) == rows, "\(table)")
        }
    }

    /// A file of the first schema of the queue, whose log a killed process has left.
    @Test func anOldFileWithItsLogArrives() throws {
        let copy = Scratch()
        let other = copy.data + "/queue.sqlite"
        run("mkdir", "-p", copy.data)
        var handle: OpaquePointer?
        #expect(sqlite3_open(path, &handle) == SQLITE_OK)
        let sql = """
            CREATE INDEX queue_state ON queue_progress (state);
            CREATE INDEX queue_finished ON queue_progress (finished_at) WHERE finished_at IS NOT NULL;
            PRAGMA user_version = 1;
            UPDATE queue_meta SET highest = 50;
            """
        #expect(sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK)
        for end in ["", "-wal"] { run("cp", path + end, other + end) }
        sqlite3_close(handle)
        #expect(!bytes(other + "-wal").isEmpty)
        try copy.with { store throws in
            #expect(store.takenOver == 9)
            #expect(try store.queueContents().requests.map(\.id) == [1, 2, 3, 4])
            #expect(try store.queueContents().highest == 50)
        }
        #expect(!exists(other) && !exists(other + "-wal"))
    }

    @Test func aStoreWithoutSuchAFileTakesNothingOver() throws {
        try scratch.with { #expect($0.takenOver == 9) }
        let other = Scratch()
        try other.with { #expect($0.takenOver == nil) }
        for _ in 0..<2 { try scratch.with { #expect($0.takenOver == nil) } }
        #expect(!hasFile() && !exists(other.data + "/queue.sqlite") && !exists(other.data + "/queue.sqlite.lock"))
        #expect(try audit().count == 1)
        _ = try SQLiteQueueStore(path: other.data + "/queue.sqlite")
        try other.with { #expect($0.takenOver == 0) }
        // What is kept of an earlier repair is the operator's.
        write([1], path + ".damaged")
        try scratch.with { #expect($0.takenOver == nil) }
        #expect(bytes(path + ".damaged") == [1])
    }

    /// A program of before would begin an empty queue beside this store.
    @Test func anOlderProgramRefusesTheStore() throws {
        try scratch.with { store throws in #expect(try store.pragma("user_version") == 9) }
    }

    // MARK: Crashes

    /// A crash after the commit, with all, some or none of the smaller files removed.
    @Test(arguments: [[], [".lock"], [".lock", "-wal"]])
    func anInterruptedTakeoverIsCompleted(_ ends: [String]) throws {
        keepCopy()
        let before = try allRows(path)
        try scratch.with { #expect($0.takenOver == 9) }
        bringBack()
        for end in ends { write([], path + end) }
        try scratch.with { store throws in
            #expect(store.takenOver == 9)
            #expect(try store.queueContents().requests.map(\.id) == [1, 2, 3, 4])
        }
        #expect(!hasFile())
        #expect(try allRows(scratch.store) == before)
        #expect(try audit().count == 1)
    }

    /// The power goes at a write or sync of the opening. The next one finds all rows, in the file or in the store.
    @Test func aPowerCutLosesNoRow() throws {
        let before = try allRows(path)
        var (place, isDead) = (0, true)
        while isDead {
            let copy = Scratch()
            run("cp", "-a", scratch.data, copy.data)
            let disk = FaultyDisk(copy.data)
            defer { disk.unplug() }
            disk.fail(.power(at: place))
            _ = copy.refusal()
            isDead = disk.counts.isDead
            for seed in [nil, UInt64(place)] as [UInt64?] {
                // The removal of the queue is not on the disk either.
                let other = Scratch()
                run("cp", "-a", copy.data, other.data)
                disk.cutPower(into: other.data, seed: seed)
                run("rm", "-f", other.store + "-shm", other.data + "/queue.sqlite-shm")
                try other.with { store throws in
                    #expect(store.takenOver == 9, "\(place)")
                    #expect(try store.auditLog(limit: 9).map(\.action) == [QueueTakeover.action], "\(place)")
                }
                #expect(try allRows(other.store) == before, "\(place)")
                #expect(!exists(other.data + "/queue.sqlite"), "\(place)")
            }
            place += 3
        }
        #expect(place > 30)
    }

    /// The disk is full in the middle of it.
    @Test func aFailedTransactionLeavesTheFile() throws {
        let disk = FaultyDisk(scratch.data)
        defer { disk.unplug() }
        let before = try allRows(path)
        disk.fail(.room(3000))
        guard case .unavailable? = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        disk.fail(nil)
        #expect(try allRows(path) == before)
        try scratch.with { #expect($0.takenOver == 9) }
        #expect(try allRows(scratch.store) == before)
        #expect(try audit().count == 1)
    }

    // MARK: Refusals

    private var queue: EarlierQueue { EarlierQueue(directory: scratch.data) }

    /// What opening is refused with before either file is opened for writing.
    private func refused() -> StoreError? {
        let files = [path, scratch.store, scratch.data + "/generation"]
        let before = files.map(bytes)
        let refusal = scratch.refusal()
        let isSame = files.map(bytes) == before
        #expect(isSame)
        return refusal
    }

    /// What opening is refused with; it changes no row.
    private func refusedByRows() throws -> StoreError {
        let generation = bytes(scratch.data + "/generation")
        let before = (try allRows(path), try allRows(scratch.store))
        let refusal = try #require(scratch.refusal())
        #expect(try allRows(path) == before.0)
        #expect(try allRows(scratch.store) == before.1)
        #expect(bytes(scratch.data + "/generation") == generation)
        return refusal
    }

    @Test func aDamagedFileIsRefusedUntilItIsRepaired() throws {
        let before = try allRows(path)
        let whole = bytes(path)
        write(Array(whole.prefix(4096 + 100)), path)
        #expect(refused() == .queue(queue, .corrupt(QueueStoreError.damaged(path, .cutShort))))
        // The index of tokens is damaged; the rows are not.
        write(whole, path)
        let page = try #require(try rows(path, "sqlite_schema WHERE name = 'queue_token'").first?["rootpage"] as Int?)
        let end = Array(whole[(page * 4096)...])
        write(Array(whole[..<((page - 1) * 4096)]) + [UInt8](repeating: 0x5A, count: 4096) + end, path)
        guard case .corrupt = refused() else {
            Issue.record("opened")
            return
        }
        let report = try SQLiteQueueStore.repair(path: path, now: 5)
        #expect(report.requests == 9 && report.doubtful == 0)
        try scratch.with { #expect($0.takenOver == 9) }
        #expect(!hasFile() && exists(report.kept))
        #expect(try allRows(scratch.store) == before)
    }

    @Test func aNewerSchemaIsRefused() throws {
        scratch.edit("PRAGMA user_version = 99", path)
        #expect(refused() == .queue(queue, .tooNew(found: 99, known: 3)))
    }

    @Test func aFileInUseIsRefused() throws {
        let open = try SQLiteQueueStore(path: path)
        #expect(scratch.refusal() == .queue(queue, .inUse(path, by: getpid())))
        try open.commit([QueueConformance.insert(50)])
        #expect(try open.load().requests.count == 5)
    }

    /// The lock file stays until the takeover is complete, so without its queue it shows that there was one.
    @Test func aMissingFileIsRefused() throws {
        run("mv", path, scratch.path + "/kept")
        #expect(scratch.refusal() == .queueMissing(queue))
        #expect(!exists(path) && EarlierQueue(directory: scratch.data + "/").isMissing)
        // A log without its queue, and a repair that was cut short, have refusals of their own.
        write([1], path + "-wal")
        #expect(scratch.refusal() == .queue(queue, .logWithoutQueue(path)))
        unlink(path + "-wal")
        write([1], path + ".damaged")
        #expect(scratch.refusal() == .queue(queue, .unfinishedRepair(path)))
        unlink(path + ".damaged")
        bringBack()
        try scratch.with { #expect($0.takenOver == 9) }
    }

    /// The store has a request of its own under an id of the file.
    @Test func otherRowsUnderTheSameIdsAreRefused() throws {
        try asideWithFile {
            try scratch.with { try StoreConformance.commit($0, [.insert(StoreConformance.request(4))]) }
        }
        scratch.edit("PRAGMA user_version = 2", path)
        #expect(try refusedByRows() == .otherRows(queue, table: "queue_request"))
        // The earlier version can still open its queue.
        #expect(try rows(path, "pragma_user_version").first?["user_version"] as Int? == 2)
        // As the refusal says.
        run("mv", path, path + ".aside")
        run("rm", "-f", path + ".lock")
        try scratch.with { #expect($0.takenOver == nil) }
    }

    /// Requests under other ids do not stand in the way.
    @Test func otherRequestsStay() throws {
        try asideWithFile {
            try scratch.with { try StoreConformance.commit($0, [.insert(StoreConformance.request(60))]) }
        }
        try scratch.with { store throws in
            #expect(store.takenOver == 9)
            #expect(try store.queueContents().requests.map(\.id) == [1, 2, 3, 4, 60])
            #expect(try store.queueContents().highest == 60)
        }
    }

    /// After the takeover the requests have gone on. A file that comes back would send them again.
    @Test func anOlderCopyThatComesBackIsRefused() throws {
        keepCopy()
        try scratch.with { store throws in
            try StoreConformance.commit(store, [.queue(finish(1, QueueConformance.success, keeping: .result))])
        }
        bringBack()
        #expect(try refusedByRows() == .takenBefore(queue))
        // The same, where nothing is left of the request.
        removeFile()
        try scratch.with { try StoreConformance.commit($0, [.queue(.remove(id: 1))]) }
        bringBack()
        #expect(try refusedByRows() == .takenBefore(queue))
        removeFile()
        try scratch.with { store throws in #expect(try store.queueContents().requests.map(\.id) == [2, 3, 4]) }
    }

    private func asideWithFile(_ body: () throws -> Void) throws {
        keepCopy()
        removeFile()
        try body()
        bringBack()
    }

    // MARK: An older state

    /// An older state of store and queue is accepted: the requests of the queue end as well.
    @Test func aRollbackEndsTheRequestsOfTheQueue() throws {
        write(Array("9\n".utf8), scratch.data + "/generation")
        guard case .rolledBack = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(exists(path))
        try Rollback.accept(directory: scratch.data, key: scratch.key, actor: "root", now: 77)
        #expect(!hasFile())
        try scratch.with { try expectSettled($0, cause: Rollback.cause, at: 77) }
    }

    /// A backup of an earlier version has the queue in a part of its own.
    @Test func aBackupWithAQueueIsRestored() throws {
        let file = scratch.path + "/pawl.backup"
        try SQLiteQueueStore(path: path).copy(to: scratch.path + "/kept")
        removeFile()
        try scratch.with { try Backup.write($0, to: file) }
        try BackupTests.add(queue: bytes(scratch.path + "/kept"), to: file)
        let other = Scratch()
        try Restore.run(
            file: file, directory: other.data, key: other.key, force: false, actor: "root", now: 500)
        #expect(exists(other.data + "/queue.sqlite") && !exists(other.data + "/queue.sqlite.restored"))
        try other.with { store throws in
            #expect(store.takenOver == 9)
            try expectSettled(store, cause: Restore.cause, at: 500)
            #expect(try store.auditLog(limit: 9).map(\.action) == ["store.restored", "store.queue_taken_over"])
        }
        #expect(!exists(other.data + "/queue.sqlite"))
        // Over it once more: what stands there is moved aside, the queue included.
        run("cp", scratch.path + "/kept", other.data + "/queue.sqlite")
        let again = try Restore.run(
            file: file, directory: other.data, key: other.key, force: true, actor: "root", now: 501)
        #expect(exists(try #require(again.aside.first) + "/queue.sqlite"))
        try other.with { #expect($0.takenOver == 9) }
    }

    /// Nothing waits any more, what was done is still done, and no id is used twice.
    private func expectSettled(_ store: SQLiteStore, cause: String, at: Int64) throws {
        let contents = try store.queueContents()
        #expect(contents.requests.isEmpty && contents.unreadable.isEmpty)
        #expect(contents.highest >= 1 << 32)
        for id in 1...4 as ClosedRange<UInt64> {
            let request = try #require(try store.queuedRequest(id))
            #expect(request.state == .dead && request.lease == nil && !request.isHeld, "\(id)")
            #expect(request.cause == cause && request.doubts == (id == 2 ? 3 : 1), "\(id)")
            #expect(contents.finished.first { $0.request.id == id }?.at == at, "\(id)")
        }
        #expect(try store.queuedRequest(5)?.state == .done)
        #expect(try store.queuedRequest(6)?.cause == "gone")
        #expect(contents.undelivered.map(\.request.id).sorted() == [5, 8])
    }
}
