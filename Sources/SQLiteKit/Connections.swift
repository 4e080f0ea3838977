// Opens and makes databases: one writer and a few readers, a write-ahead log, each commit on the disk when it returns.

import Foundation
package import GRDB

/// The connections of one process to a database.
package enum Connections {
    /// - Parameters:
    ///   - label: for debuggers.
    ///   - writerCache: SQLite's page cache for writing, in bytes.
    ///   - readerCache: the same for each reader.
    package static func configuration(label: String, writerCache: Int, readerCache: Int) -> Configuration {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        configuration.label = label
        // No other process writes, but a program that views the database may hold it for a moment.
        configuration.busyMode = .timeout(2)
        configuration.prepareDatabase { database in
            let bytes = database.configuration.readonly ? readerCache : writerCache
            try database.execute(sql: "PRAGMA cache_size = -\(bytes / 1024); PRAGMA temp_store = MEMORY")
        }
        return configuration
    }

    /// Opens a database for writing. The caller ends with ``close(_:)``.
    ///
    /// - Parameters:
    ///   - checkpointPages: pages that the write-ahead log collects before they move into the database.
    ///   - prepare: run on the writer's connection; if it throws, the database is closed.
    package static func open(
        _ path: String, _ configuration: Configuration, readers: Int, checkpointPages: Int,
        prepare: (Database) throws -> Void
    ) throws -> DatabasePool {
        var configuration = configuration
        configuration.maximumReaderCount = readers
        let pool = try DatabasePool(path: path, configuration: configuration)
        do {
            try withoutActuallyEscaping(prepare) { prepare in
                try pool.writeWithoutTransaction { database in
                    // GRDB sets NORMAL together with WAL, but a commit has to be on the disk when it returns.
                    try database.execute(
                        sql: "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = \(checkpointPages)")
                    try prepare(database)
                }
            }
        } catch {
            close(pool)
            throw error
        }
        return pool
    }

    /// Ours: with fewer free pages a file is not compacted: 16 MiB.
    private static let worthwhile = 4096

    /// Returns free pages to the file system if most of the file is free, as after a flood of requests.
    package static func compact(_ pool: DatabasePool) throws {
        try pool.writeWithoutTransaction { database in
            let free = try Int.fetchOne(database, sql: "PRAGMA freelist_count") ?? 0
            let pages = try Int.fetchOne(database, sql: "PRAGMA page_count") ?? 0
            guard free > worthwhile, free > pages / 2 else { return }
            try database.execute(sql: "VACUUM")
            try database.checkpoint(.truncate)
        }
    }

    /// Moves the log into the database. If that fails, the next opening does it.
    package static func moveLog(_ pool: DatabasePool) {
        _ = try? pool.writeWithoutTransaction { try $0.checkpoint(.truncate) }
    }

    /// Moves the log into the database and closes it.
    package static func close(_ pool: DatabasePool) {
        moveLog(pool)
        try? pool.close()
    }

    /// Migrates a database to the newest schema, one transaction a step. Its version is SQLite's `user_version`.
    ///
    /// - Parameter migrations: each migrates from the version of its index to the next. A released one never changes.
    package static func migrate(_ database: Database, _ migrations: [String]) throws {
        let found = try Int.fetchOne(database, sql: "PRAGMA user_version") ?? 0
        guard found < migrations.count else { return }
        for version in found..<migrations.count {
            try database.inTransaction(.immediate) {
                try database.execute(sql: migrations[version])
                try database.execute(sql: "PRAGMA user_version = \(version + 1)")
                return .commit
            }
        }
    }
}

/// A database that is being made beside its final path, so that after a crash it is either whole or not used.
package struct NewDatabase<Failure: DiskFailure> {
    private let path: String

    /// Makes the file with mode 0600, after removing the remains of an earlier attempt.
    package init(_ path: String) throws(Failure) {
        self.path = path
        for path in Self.files(path) { try Disk<Failure>.remove(path) }
        // SQLite gives the files beside the database the same mode.
        try DiskFile<Failure>(path, O_WRONLY | O_CREAT | O_EXCL).sync()
        try Disk<Failure>.syncDirectory(Disk<Failure>.parent(of: path))
    }

    /// Fills the database.
    package func fill<Value>(
        _ configuration: Configuration, _ fill: (Database) throws -> Value
    ) throws(Failure) -> Value {
        try Failure.translating(path) {
            let queue = try DatabaseQueue(path: path, configuration: configuration)
            let value = try withoutActuallyEscaping(fill) { fill in
                try queue.writeWithoutTransaction { database in
                    try database.execute(sql: "PRAGMA synchronous = FULL")
                    return try fill(database)
                }
            }
            try queue.close()
            return value
        }
    }

    /// Moves the database to its final path.
    package func publish(at place: String) throws(Failure) {
        try Disk<Failure>.move(path, to: place)
        try Disk<Failure>.syncDirectory(Disk<Failure>.parent(of: place))
    }

    /// A database with the two files that SQLite keeps beside it.
    package static func files(_ path: String) -> [String] { [path, path + "-wal", path + "-shm"] }
}
