// The files of a store, and the lock against a second process.

import SQLiteKit
import StoreBase
import StorePort

/// The paths of the files of one store.
struct StoreFiles: Sendable {
    let directory: String

    init(_ directory: String) { self.directory = FileSystem.withoutSlash(directory) }

    var store: String { directory + "/pawl.sqlite" }
    /// A store that is being made. It has never been used.
    var unfinishedStore: String { directory + "/pawl.sqlite.new" }
    /// A store that is being restored from a backup.
    var unfinishedRestore: String { directory + "/restore.partial" }
    /// A store that was moved into a database; see MovingStore.swift.
    var moved: String { directory + "/pawl.sqlite.moved" }
    /// A store that was copied from a database, whole, before that was marked.
    var copied: String { directory + "/pawl.sqlite.copied" }
    var lock: String { directory + "/pawl.lock" }
    var generation: String { directory + "/generation" }
    var deliveryJournal: String { directory + "/deliveries.journal" }

    /// A database with the two files that SQLite keeps beside it.
    static func database(_ path: String) -> [String] { NewDatabase<StoreError>.files(path) }

    /// The restore command, for people to copy.
    var restoreCommand: String { "pawl restore FILE --data \(directory)" }
    var acceptRollbackCommand: String { "pawl restore --accept-rollback --data \(directory)" }
}

extension FileLock {
    /// The lock on a store's directory.
    ///
    /// - Throws: ``StoreError/locked(_:)`` if another store, in this process or another, has the lock.
    convenience init(_ files: StoreFiles) throws(StoreError) {
        try self.init(files.lock) { StoreError.inUse(files, by: $0) }
    }
}
