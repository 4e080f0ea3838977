// Copies what can be read of a damaged queue into a new one. It reads each table row by row from both ends, so that an
// unreadable page costs only its own rows and those of the pages below it.

import GRDB
public import RequestQueue
import SQLiteKit

extension SQLiteQueueStore {
    /// The result of a repair.
    public struct Repair: Sendable, Equatable {
        /// Number of requests in the new file.
        public var requests: Int
        /// Number of these whose state was lost; they are dead, with that cause.
        public var doubtful: Int
        /// Number of remote identifiers in the new file.
        public var mappings: Int
        /// The path of the damaged file, which was moved together with its log.
        public var kept: String
    }

    /// Checks a whole queue for damage; true if none is found. Changes nothing.
    ///
    /// - Throws: ``QueueStoreError``: it is in use, too new, or the file system fails.
    public static func isWhole(path: String) throws(QueueStoreError) -> Bool {
        let lock = try FileLock(queue: path)
        defer { withExtendedLifetime(lock) {} }
        do throws(QueueStoreError) {
            try examine(path, checkedWhole: .max)
            return true
        } catch {
            guard error.isDamage else { throw error }
            return false
        }
    }

    /// Makes a new queue from what can be read of a damaged one. The damaged files are kept aside.
    ///
    /// - Parameter now: milliseconds since 1970.
    /// - Throws: ``QueueStoreError``: it is in use, the files of an earlier repair are in the way, or the file system fails.
    public static func repair(path: String, now: Int64) throws(QueueStoreError) -> Repair {
        typealias Files = Disk<QueueStoreError>
        let lock = try FileLock(queue: path)
        defer { withExtendedLifetime(lock) {} }
        let kept = path + ".damaged"
        guard !Files.exists(kept) else {
            throw .earlierRepair(kept: kept)
        }
        // The new file is made before any file is moved: a crash in between leaves the damaged one in its place.
        let new = try NewDatabase<QueueStoreError>(path + ".new")
        let saved = try new.fill(configuration) { (database) -> Saved in
            try begin(database)
            var configuration = configuration
            configuration.readonly = true
            // Nothing can be saved from a file that cannot be opened.
            guard let damaged = try? DatabaseQueue(path: path, configuration: configuration) else { return (0, 0, 0) }
            defer { try? damaged.close() }
            var saved: Saved = (0, 0, 0)
            try database.inTransaction(.immediate) {
                try damaged.unsafeRead { damaged in
                    for (table, columns) in tables { try copy(table, columns, damaged, database) }
                    let session = try SQLStatement(database, QueueStatement.putSession.sql)
                    let sessions = try? SQLStatement(damaged, QueueReader.sessions).rows { ($0.text(0), $0.bytes(1)) }
                    for (tenant, sealed) in sessions ?? [] {
                        session.bind(tenant, at: 1)
                        try session.run(bytes: sealed, at: 2)
                    }
                    let highest = try? SQLStatement(damaged, "SELECT highest FROM queue_meta").rows { $0.number(0) }
                        .first
                    try database.execute(
                        sql: "UPDATE queue_meta SET highest = max(highest, ?1)", arguments: [highest ?? 0])
                }
                saved = try settle(database, now)
                return .commit
            }
            return saved
        }
        for suffix in ["", "-wal"] where Files.exists(path + suffix) {
            try Files.move(path + suffix, to: kept + suffix)
        }
        try Files.remove(path + "-shm")
        try new.publish(at: path)
        return Repair(requests: saved.requests, doubtful: saved.doubtful, mappings: saved.mappings, kept: kept)
    }

    /// The cause of requests whose state was lost.
    static let lostState =
        "The queue was damaged, and the state of this request was lost. The backend may have done it."

    private typealias Saved = (requests: Int, doubtful: Int, mappings: Int)

    /// The tables, with the number of their columns.
    private static let tables: [(String, Int32)] = [
        ("queue_request", 8), ("queue_progress", 14), ("queue_response", 3), ("queue_mapping", 6),
    ]

    /// Settles requests of which one of the two rows is missing.
    private static func settle(_ database: Database, _ now: Int64) throws -> Saved {
        try database.execute(
            sql: """
                DELETE FROM queue_progress WHERE id NOT IN (SELECT id FROM queue_request);
                DELETE FROM queue_response WHERE id NOT IN (SELECT id FROM queue_progress);
                """)
        try database.execute(
            sql: """
                INSERT INTO queue_progress
                    (id, state, accepted_at, attempts, crashes, doubts, not_before, is_held, finished_at, cause)
                SELECT id, 2, ?1, 0, 0, 1, 0, 0, ?1, ?2 FROM queue_request
                WHERE id NOT IN (SELECT id FROM queue_progress)
                """, arguments: [now, lostState])
        let doubtful = database.changesCount
        let requests = try Int.fetchOne(database, sql: "SELECT count(*) FROM queue_request") ?? 0
        let mappings = try Int.fetchOne(database, sql: "SELECT count(*) FROM queue_mapping") ?? 0
        return (requests, doubtful, mappings)
    }

    /// Copies rows from the beginning until one cannot be found, then from the end.
    private static func copy(_ table: String, _ columns: Int32, _ damaged: Database, _ database: Database) throws {
        let places = (1...columns).map { "?\($0)" }.joined(separator: ", ")
        let insert = try SQLStatement(database, "INSERT OR IGNORE INTO \(table) VALUES (\(places))")
        guard let read = try? SQLStatement(damaged, "SELECT * FROM \(table) WHERE id = ?1") else { return }
        func copy(from first: Int64, _ condition: String) throws {
            guard let find = try? SQLStatement(damaged, "SELECT id FROM \(table) WHERE id \(condition) LIMIT 1") else {
                return
            }
            var last = first
            while true {
                find.bind(last, at: 1)
                guard let id = try? find.rows({ $0.number(0) }).first else { return }
                last = id
                read.bind(id, at: 1)
                let row: Void?? = try? read.rows { row in
                    for column in 0..<columns { insert.bind(row, column, at: column + 1) }
                }.first
                guard case .some(.some) = row else { continue }
                try insert.run()
                // From the end, it stops at the rows that were copied from the beginning.
                if first == .max, database.changesCount == 0 { return }
            }
        }
        try copy(from: .min, "> ?1 ORDER BY id")
        try copy(from: .max, "< ?1 ORDER BY id DESC")
    }
}
