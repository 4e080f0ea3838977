// Copies a queue for a backup, and prepares a copy that is restored.

package import GRDB
public import RequestQueue
import SQLiteKit

extension SQLiteQueueStore {
    /// Copies the queue into a new file, as of one moment, while it stays in use.
    ///
    /// - Throws: ``QueueStoreError`` if the file exists, or the disk fails.
    public func copy(to path: String) throws(QueueStoreError) {
        guard !Disk<QueueStoreError>.exists(path) else { throw .copyExists(path) }
        let new = try NewDatabase<QueueStoreError>(path + ".new")
        try new.fill(Self.configuration) { target in
            try pool.read { source in try source.backup(to: target) }
            // One file, without a log beside it.
            try target.execute(sql: "PRAGMA journal_mode = DELETE")
        }
        try new.publish(at: path)
    }

    /// Prepares a restored copy for use. Its unfinished requests may have been done since, so they become dead.
    ///
    /// - Parameters:
    ///   - cause: why, in words.
    ///   - now: milliseconds since 1970.
    /// - Throws: ``QueueStoreError``: it is in use, or not a queue that this program can read.
    /// - Returns: the number of these requests.
    @discardableResult
    public static func settle(copy path: String, cause: String, now: Int64) throws(QueueStoreError) -> Int {
        try examine(path)
        return try QueueStoreError.translating(path) {
            let queue = try DatabaseQueue(path: path, configuration: configuration)
            let count = try queue.writeWithoutTransaction { database in
                try Connections.migrate(database, QueueTables.migrations)
                return try QueueTables.settle(database, cause: cause, now: now)
            }
            try queue.close()
            return count
        }
    }
}

extension QueueTables {
    /// Ends the unfinished requests of an older state: each may have been done since, so it is dead, and in doubt once
    /// more.
    ///
    /// - Parameters:
    ///   - cause: why, in words.
    ///   - now: milliseconds since 1970.
    /// - Returns: the number of these requests.
    package static func settle(_ database: Database, cause: String, now: Int64) throws -> Int {
        let result = OutcomeColumns.write(.failure(status: nil), isCut: false).result
        try database.execute(
            sql: """
                UPDATE queue_progress
                SET state = 2, lease = NULL, is_held = 0, doubts = doubts + 1, finished_at = ?1, result = ?2, cause = ?3
                WHERE state = 0
                """, arguments: [now, result, cause])
        return database.changesCount
    }
}
