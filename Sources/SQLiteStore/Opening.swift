// What is looked at before a store is opened for writing. Until all of it is right, nothing is changed.

import Foundation
import GRDB
import GatewayCore

/// A store that has been examined: locked, with its key, readable.
struct Opening {
    let files: StoreFiles
    let limits: StoreLimits
    let key: StorageKey
    let contents: StoreExamination
    /// What the file beside the store says; nothing where there is none.
    let fileGeneration: UInt64?
    let lock: DirectoryLock

    /// - Parameter ignoresBadGeneration: for the act that repairs it.
    init(
        _ files: StoreFiles, _ source: StorageKey.Source, _ limits: StoreLimits, ignoresBadGeneration: Bool = false
    ) throws(StoreError) {
        if !FileSystem.exists(files.directory) {
            _ = try FirstStart.isDue(files, source)
            try FileSystem.makeDirectory(files.directory)
        }
        lock = try DirectoryLock(files)
        key = try FirstStart.isDue(files, source) ? FirstStart.make(files, source) : StorageKey.read(source)
        contents = try StoreExamination(files.store, limits)
        try contents.demand(key, files.store)
        do throws(StoreError) {
            fileGeneration = try Generation.read(files)
        } catch {
            guard ignoresBadGeneration else { throw error }
            fileGeneration = nil
        }
        (self.files, self.limits) = (files, limits)
    }

    /// - Throws: ``StoreError/rolledBack(_:)`` where the store is older than the file beside it.
    func refuseRollback() throws(StoreError) {
        guard let fileGeneration, contents.generation < fileGeneration else { return }
        throw .rolledBack(
            """
            The store in \(files.directory) is older than it should be: it was opened \(contents.generation) times, and \
            \(files.generation) counts \(fileGeneration). Somebody has copied an older state back. Put the newest one \
            back, or accept the older one; sessions are then set up anew and waiting messages given up: \
            \(files.acceptRollbackCommand)
            """)
    }

    /// Opens the store for writing and brings it to the schema of this program. Whoever
    /// connects closes the pool before it lets go of the lock.
    func connect() throws(StoreError) -> DatabasePool {
        try translating(files.store) {
            var configuration = Self.configuration(limits)
            configuration.maximumReaderCount = StoreLimits.readers
            let pool = try DatabasePool(path: files.store, configuration: configuration)
            do {
                try pool.writeWithoutTransaction { database in
                    // GRDB has set NORMAL when it turned WAL on; a commit has to be on the disk when it returns.
                    try database.execute(
                        sql: "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = \(StoreLimits.checkpointPages)")
                    try Schema.migrate(database)
                }
            } catch {
                Self.close(pool)
                throw error
            }
            return pool
        }
    }

    /// Moves the log into the store and closes. What fails is done by the next opening.
    static func close(_ pool: DatabasePool) {
        _ = try? pool.writeWithoutTransaction { try $0.checkpoint(.truncate) }
        try? pool.close()
    }

    static func configuration(_ limits: StoreLimits) -> Configuration {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        configuration.label = "pawl.store"
        // Nobody else writes; who looks at it with another program may hold it for a moment.
        configuration.busyMode = .timeout(2)
        configuration.prepareDatabase { database in
            let bytes = database.configuration.readonly ? limits.readerCache : limits.writerCache
            try database.execute(sql: "PRAGMA cache_size = -\(bytes / 1024); PRAGMA temp_store = MEMORY")
        }
        return configuration
    }
}

/// What a look at a database says, without changing it.
struct StoreExamination {
    let schema: Int
    let keyCheck: [UInt8]
    let generation: UInt64

    /// - Throws: ``StoreError/corrupt(_:)``, ``StoreError/tooNew(found:known:)``, or `unavailable`.
    init(_ path: String, _ limits: StoreLimits) throws(StoreError) {
        let isSmall = try Self.demandHeader(path) <= limits.checkedWhole
        var configuration = Opening.configuration(limits)
        configuration.readonly = true
        let (schema, meta): (Int, (check: [UInt8], generation: UInt64)?) = try translating(path) {
            let queue = try DatabaseQueue(path: path, configuration: configuration)
            defer { try? queue.close() }
            return try queue.unsafeRead { database in
                guard try Int.fetchOne(database, sql: "PRAGMA application_id") == Schema.applicationID else {
                    throw StoreError.corrupt(StoreError.damaged(path, "it is a database of another program"))
                }
                let schema = try Int.fetchOne(database, sql: "PRAGMA user_version") ?? 0
                guard schema <= Schema.known else { throw StoreError.tooNew(found: schema, known: Schema.known) }
                for part in isSmall ? [""] : ["('meta')", "('device')", "('policy')"] {
                    let finding = try String.fetchOne(database, sql: "PRAGMA quick_check\(part)") ?? ""
                    guard finding == "ok" else { throw StoreError.corrupt(StoreError.damaged(path, finding)) }
                }
                return try (
                    schema,
                    SQLStatement(database, "SELECT key_check, generation FROM meta WHERE id = 1")
                        .rows { ($0.bytes(0), $0.identifier(1)) }.first
                )
            }
        }
        guard let meta, meta.check.count == 32 else {
            throw .corrupt(StoreError.damaged(path, "its key-check value is missing"))
        }
        (self.schema, keyCheck, generation) = (schema, meta.check, meta.generation)
    }

    /// - Throws: ``StoreError/wrongKey(_:)`` where the store was made under another key.
    func demand(_ key: StorageKey, _ path: String) throws(StoreError) {
        guard key.matches(check: keyCheck) else {
            throw .wrongKey(
                """
                The storage key does not belong to \(path): the store was made under another one. Put that key back, or \
                bring key and store back together from a backup: \
                pawl restore FILE --data \(FileSystem.parent(of: path)) --force
                """)
        }
    }

    /// Looks at the first bytes of the file, which SQLite would take for an empty database where there are none.
    ///
    /// - Returns: the size in bytes.
    private static func demandHeader(_ path: String) throws(StoreError) -> Int {
        var file = try OpenFile(path, O_RDONLY)
        let size = file.size
        let header = try file.read(upTo: 100)
        guard header.count == 100, header.starts(with: "SQLite format 3\0".utf8) else {
            throw .corrupt(StoreError.damaged(path, "it is not a database"))
        }
        func number(at offset: Int) -> Int { header[offset..<(offset + 4)].reduce(0) { $0 << 8 | Int($1) } }
        let pageSize = header[16] == 0 && header[17] == 1 ? 65536 : Int(header[16]) << 8 | Int(header[17])
        // With a write-ahead log beside it the file may be short; without, it has all its pages.
        guard FileSystem.size(of: path + "-wal") > 0 || number(at: 28) * pageSize <= size else {
            throw .corrupt(StoreError.damaged(path, "it is cut short"))
        }
        return size
    }
}
