// The embedded store: SQLite in WAL mode, each commit synced, one writer and a few readers. Secrets in the rows are
// sealed before they get here.
//
//     DIR/pawl.sqlite (-wal, -shm)   the tables
//     DIR/storage.key                the storage key, unless it is kept elsewhere
//     DIR/generation                 how often the store was opened; see Generation.swift
//     DIR/deliveries.journal         see DeliveryJournal.swift
//     DIR/pawl.lock                  held while a process has the store open

import GRDB
package import SQLiteKit
import SQLiteQueue
package import StoreBase
package import StorePort
import Synchronization

/// A store in a directory. It is closed when the last reference is released.
package final class SQLiteStore: Store {
    /// The key that seals the rows of this store.
    package let key: StorageKey
    /// Number of times that the store was opened, including this one.
    package let generation: UInt64
    /// Number of requests that this opening has moved here from the queue of an earlier version; nil if there was none.
    package let takenOver: Int?

    /// Whether this opening has upgraded the store of an earlier version, which refuses it from now on.
    package let isUpgraded: Bool
    /// Whether this opening has given the rows of an earlier version's store their authentication codes.
    package let hasAddedCodes: Bool

    /// Whether commits succeed, and whether the file is still there.
    package let health: StoreHealth
    let pool: DatabasePool
    let files: StoreFiles
    let limits: StoreLimits
    let authenticator: RowAuthenticator
    private let bounds = Mutex(BoundedTables())
    private let lock: FileLock

    /// The directory of the store.
    package var directory: String { files.directory }

    /// Opens the store of a directory; the first start makes directory, key and store. Never overwrites a file, and
    /// never repairs by wiping.
    ///
    /// The queue of an earlier version, which had a file of its own, is moved into the store.
    ///
    /// - Throws: ``StoreError``, with the remedy: `locked`, `missing`, `corrupt`, `tooNew`, `wrongKey`, `unusableKey`,
    ///   `rolledBack`, or `unavailable` if the file system fails or the earlier queue cannot be taken over.
    package static func open(
        directory: String, key source: StorageKey.Source, limits: StoreLimits = StoreLimits()
    ) throws(StoreError) -> SQLiteStore {
        let opening = try Opening(StoreFiles(directory), source, limits)
        try opening.refuseRollback()
        return try SQLiteStore(opening)
    }

    /// Opens a store as ``open(directory:key:limits:)`` does, unless the caller refuses it.
    ///
    /// - Parameter refuse: throws if the store is for something else. Nothing of an existing store is changed before.
    package static func open(
        directory: String, key source: StorageKey.Source, limits: StoreLimits,
        refuse: (StoredPurpose) throws -> Void
    ) throws -> SQLiteStore {
        let opening = try Opening(StoreFiles(directory), source, limits)
        try opening.refuseRollback()
        try refuse(opening.contents.purpose)
        return try SQLiteStore(opening)
    }

    /// Opens a store that has passed the checks, and increments its generation.
    init(_ opening: Opening) throws(StoreError) {
        (key, files, limits, lock) = (opening.key, opening.files, opening.limits, opening.lock)
        authenticator = RowAuthenticator(opening.key)
        isUpgraded = opening.contents.schema < Schema.known
        hasAddedCodes = opening.contents.schema < Schema.authenticated
        let (pool, takenOver) = try opening.connect()
        (self.pool, self.takenOver) = (pool, takenOver)
        health = StoreHealth(opening.files.store)
        let next = max(opening.contents.generation, opening.fileGeneration ?? 0) + 1
        generation = next
        try translating(opening.files.store) {
            try pool.writeWithoutTransaction { database in
                try database.inTransaction(.immediate) {
                    try database.execute(sql: "UPDATE meta SET generation = ?", arguments: [Int64(next)])
                    return .commit
                }
            }
        }
        // The store first: a crash in between leaves it ahead of the file, and only a store that is behind is a
        // rollback.
        try Generation.write(next, files)
        // After a flood of requests most of the file may be free.
        try? Connections.compact(pool)
    }

    /// Moves the log into the database, so that the file alone is the whole store. If that fails, the next opening does it.
    package func moveLog() { Connections.moveLog(pool) }

    deinit { Connections.close(pool) }

    /// Commits a change without effect, to find out whether the disk accepts it.
    package func probe() {
        try? health.committing { () throws(StoreError) in
            try translating(files.store) { try pool.writeWithoutTransaction { try QueueWriter.touch($0) } }
        }
    }

    /// Runs a closure on the writer's connection.
    func writing<Result: Sendable>(_ body: (Database, inout BoundedTables) throws -> Result) throws -> Result {
        try pool.writeWithoutTransaction { database in
            try bounds.withLock { bounds in try body(database, &bounds) }
        }
    }

    /// Reads the rows of a report.
    func report<Value>(
        _ sql: String, _ argument: Int64? = nil, _ value: (SQLColumns) throws -> Value
    ) throws(StoreError) -> [Value] {
        try translating(files.store) {
            try pool.read { database in
                let statement = try SQLStatement(database, sql)
                if let argument { statement.bind(argument, at: 1) }
                return try statement.rows(value)
            }
        }
    }

    /// The error for a row with contents that this program never writes.
    func unreadable(_ table: String) -> StoreError {
        .corrupt(StoreError.damaged(files.store, .found("a row of \(table) cannot be understood")))
    }
}
