// Moves the queue of an earlier version into the store. Until schema 5, a gateway in front of a JSON backend kept its
// queue of writes in a file of its own, `queue.sqlite`.
//
// The order makes a crash harmless. The file is examined and its log moved into it; the rows and an audit entry are
// committed to the store in one transaction; then the file is removed. A crash before the commit changes nothing. After
// a crash between commit and removal, the next opening finds the audit entry and the same rows, and removes the file.
// Nothing uses the queue's tables in between, because the takeover is a part of opening the store.
//
// A file whose rows are not those that were taken over is refused: an older copy would send its requests again.

import GRDB
import RequestQueue
import SQLiteKit
import SQLiteQueue
import StoreBase
import StorePort

/// The file in which earlier versions kept the queue of writes, beside the store.
package struct EarlierQueue {
    private let directory: String

    package init(directory: String) { self.directory = StoreFiles(directory).directory }

    package var path: String { directory + "/queue.sqlite" }

    /// The file that the earlier versions locked. They made it together with the queue, and never removed it.
    var lock: String { path + ".lock" }

    /// Whether an earlier version had a queue, and its file is missing. An empty queue is then not begun silently.
    package var isMissing: Bool {
        !FileSystem.exists(path) && FileSystem.exists(lock)
            && ![".new", "-wal", ".damaged"].contains { FileSystem.exists(path + $0) }
    }

    /// Whether there is a queue, or a part of one.
    fileprivate var exists: Bool { [path, lock, path + "-wal"].contains(where: FileSystem.exists) }

    var repairCommand: String { "pawl queue repair --data \(directory)" }
}

/// The queue of an earlier version: examined, complete without its log, and locked.
struct QueueTakeover {
    /// The action of the audit entry.
    static let action = "store.queue_taken_over"

    /// The queue's tables that have a row for each thing. The first column of each is the primary key.
    private static let tables = ["queue_request", "queue_progress", "queue_response", "queue_mapping", "queue_session"]

    private let queue: EarlierQueue
    private let files: StoreFiles
    private let lock: FileLock

    /// Examines the queue of a directory; nil if there is none.
    ///
    /// - Throws: ``StoreError`` with the remedy: the queue is in use, missing, damaged, too new, or the file system
    ///   fails. Nothing has changed then.
    init?(_ files: StoreFiles) throws(StoreError) {
        let queue = EarlierQueue(directory: files.directory)
        guard queue.exists else { return nil }
        guard !queue.isMissing else {
            throw .queueMissing(queue)
        }
        do throws(QueueStoreError) {
            // Closing it moves the log into the file. The schema stays, so that the earlier version can still start
            // if the store refuses the queue; the columns of the tables are the same in all schemas.
            _ = try SQLiteQueueStore(path: queue.path, migrates: false)
            // The opening checks all of a small file only, and this one is removed soon.
            guard try SQLiteQueueStore.isWhole(path: queue.path) else {
                throw .corrupt(QueueStoreError.damaged(queue.path, .queueCheck))
            }
        } catch {
            throw .queue(queue, error)
        }
        guard FileSystem.size(of: queue.path + "-wal") == 0 else {
            throw .queueLogStays(queue)
        }
        lock = try FileLock(queue.lock) { StoreError.queueInUse(queue, by: $0) }
        (self.queue, self.files) = (queue, files)
    }

    /// Moves the queue into the store, which has the newest schema, and removes its files.
    ///
    /// - Returns: the number of requests in the queue, finished or not.
    /// - Throws: ``StoreError``; either nothing has changed, or the next call completes the takeover.
    func run(_ pool: DatabasePool) throws(StoreError) -> Int {
        defer { withExtendedLifetime(lock) {} }
        let count = try translating(files.store) {
            try pool.writeWithoutTransaction { database in
                try database.execute(sql: "ATTACH DATABASE ? AS earlier", arguments: [queue.path])
                defer { try? database.execute(sql: "DETACH DATABASE earlier") }
                return try copy(database)
            }
        }
        // The queue itself is the last one: until then the next opening finds it and repeats this.
        for path in [queue.path + "-wal", queue.path + "-shm", queue.lock] { try FileSystem.remove(path) }
        try FileSystem.syncDirectory(files.directory)
        try FileSystem.remove(queue.path)
        try FileSystem.syncDirectory(files.directory)
        return count
    }

    private func copy(_ database: Database) throws -> Int {
        var count = 0
        do {
            try database.inTransaction(.immediate) {
                count = try Int.fetchOne(database, sql: "SELECT count(*) FROM earlier.queue_request") ?? 0
                let wasTakenOver =
                    try Bool.fetchOne(
                        database, sql: "SELECT EXISTS (SELECT 1 FROM main.audit WHERE action = ?)",
                        arguments: [Self.action]) ?? false
                for table in Self.tables { try check(table, wasTakenOver: wasTakenOver, database) }
                guard !wasTakenOver else { return .commit }
                // The rows of both that have the same key are equal.
                for table in Self.tables {
                    try database.execute(sql: "INSERT OR REPLACE INTO main.\(table) SELECT * FROM earlier.\(table)")
                }
                try database.execute(
                    sql: """
                        UPDATE main.queue_meta
                        SET highest = max(highest, coalesce((SELECT highest FROM earlier.queue_meta), 0))
                        """)
                try database.execute(
                    sql: """
                        INSERT INTO main.audit (at, actor, action, detail)
                        VALUES (unixepoch() * 1000, 'pawl', ?, ?)
                        """, arguments: [Self.action, "\(count) requests of \(queue.path)"])
                return .commit
            }
        } catch let error as DatabaseError where [.SQLITE_CORRUPT, .SQLITE_NOTADB].contains(error.resultCode) {
            // The store has been checked before.
            throw StoreError.queue(queue, QueueStoreError(error, queue.path))
        }
        return count
    }

    /// Compares the rows of a table that the queue and the store have under the same keys.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` if two of them differ, or if a row is missing after a takeover.
    private func check(_ table: String, wasTakenOver: Bool, _ database: Database) throws {
        let columns = try database.columns(in: table, in: "main").map(\.name)
        guard let key = columns.first else { return }
        func values(_ side: String) -> String { columns.map { "\(side).\($0)" }.joined(separator: ", ") }
        let rows = "SELECT 1 FROM earlier.\(table) AS old"
        let differing = """
            \(rows) CROSS JOIN main.\(table) AS new ON new.\(key) = old.\(key)
            WHERE (\(values("old"))) IS NOT (\(values("new"))) LIMIT 1
            """
        let missing = "\(rows) WHERE old.\(key) NOT IN (SELECT \(key) FROM main.\(table)) LIMIT 1"
        let isOther = try Int.fetchOne(database, sql: differing) != nil
        guard wasTakenOver else {
            if isOther { throw StoreError.otherRows(queue, table: table) }
            return
        }
        if try isOther || Int.fetchOne(database, sql: missing) != nil {
            throw StoreError.takenBefore(queue)
        }
    }
}
