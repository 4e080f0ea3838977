// Checks before a store is opened for writing. Nothing is changed until all of them pass.

import Foundation
import GRDB
import SQLiteKit
import StoreBase
import StorePort

/// A store that has passed the checks: locked, readable, with its key.
struct Opening {
    let files: StoreFiles
    let limits: StoreLimits
    let key: StorageKey
    let contents: StoreExamination
    /// The generation in the file beside the store; nil if there is none.
    let fileGeneration: UInt64?
    let lock: FileLock

    /// - Parameter ignoresBadGeneration: for the command that repairs it.
    init(
        _ files: StoreFiles, _ source: StorageKey.Source, _ limits: StoreLimits, ignoresBadGeneration: Bool = false
    ) throws(StoreError) {
        if !FileSystem.exists(files.directory) {
            _ = try FirstStart.isDue(files, source)
            try FileSystem.makeDirectory(files.directory)
        }
        lock = try FileLock(files)
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

    /// - Throws: ``StoreError/rolledBack(_:)`` if the store is older than the file beside it.
    func refuseRollback() throws(StoreError) {
        guard let fileGeneration, contents.generation < fileGeneration else { return }
        throw .olderState(files, found: contents.generation, expected: fileGeneration)
    }

    /// Opens the store for writing, migrates it to the schema of this program, and takes over the queue of an earlier
    /// version. The caller closes the pool before it releases the lock.
    ///
    /// - Returns: the pool, and the number of requests that were taken over; nil if there was no such queue.
    func connect() throws(StoreError) -> (pool: DatabasePool, takenOver: Int?) {
        // Before the migration: a refusal leaves the store as it was.
        let takeover = try QueueTakeover(files)
        let pool = try translating(files.store) {
            try Connections.open(
                files.store, Self.configuration(limits), readers: StoreLimits.readers,
                checkpointPages: StoreLimits.checkpointPages, prepare: { try Schema.migrate($0, key) })
        }
        do throws(StoreError) {
            return (pool, try takeover?.run(pool))
        } catch {
            Connections.close(pool)
            throw error
        }
    }

    static func configuration(_ limits: StoreLimits) -> Configuration {
        Connections.configuration(
            label: "pawl.store", writerCache: limits.writerCache, readerCache: limits.readerCache)
    }
}

/// What a store says about its purpose before it is opened, when nothing of it is authenticated yet.
package struct StoredPurpose: Equatable, Sendable {
    /// The records of ``RecordKind/network``, by name.
    package var gateway: [String: [UInt8]] = [:]
    /// The network of a person's own devices; nil if the store is not a sidecar's.
    package var sidecar: [UInt8]?
    /// Whether keys of other people are pinned in it.
    package var hasPeers = false

    package init() {}

    fileprivate init(_ database: Database) throws {
        // The first version had no records.
        guard try database.tableExists(StoreTable.record.rawValue) else { return }
        let rows = try SQLStatement(
            database, "SELECT name, value FROM record WHERE kind = \(RecordKind.network.rawValue)"
        ).rows { ($0.text(0), $0.bytes(1)) }
        gateway = Dictionary(rows) { $1 }
        let own = try SQLStatement(
            database, "SELECT value FROM record WHERE kind = \(RecordKind.ownDevices.rawValue) AND name = ?1")
        own.bind(RecordRow.network, at: 1)
        sidecar = try own.rows { $0.bytes(0) }.first
        hasPeers =
            try SQLStatement(database, "SELECT 1 FROM record WHERE kind = \(RecordKind.peer.rawValue) LIMIT 1")
            .rows { $0.number(0) }.first != nil
    }
}

/// The results of checking a database, which does not change it.
struct StoreExamination {
    let schema: Int
    let keyCheck: [UInt8]
    let generation: UInt64
    let purpose: StoredPurpose

    /// - Throws: ``StoreError/corrupt(_:)``, ``StoreError/tooNew(found:known:)``, or `unavailable`.
    init(_ path: String, _ limits: StoreLimits) throws(StoreError) {
        let (schema, meta, purpose) = try Examination<StoreError>.examine(
            path, application: Schema.applicationID, known: Schema.known, checkedWhole: limits.checkedWhole,
            tables: ["meta", "device", "policy"], Opening.configuration(limits)
        ) { database, schema in
            try (
                schema,
                SQLStatement(database, "SELECT key_check, generation FROM meta WHERE id = 1")
                    .rows { (check: $0.bytes(0), generation: $0.identifier(1)) }.first,
                StoredPurpose(database)
            )
        }
        guard let meta, meta.check.count == 32 else {
            throw .corrupt(StoreError.damaged(path, .keyCheckMissing))
        }
        guard meta.generation < StoreLimits.highestNumber else {
            throw .corrupt(StoreError.damaged(path, .openingsOutOfRange))
        }
        (self.schema, keyCheck, generation, self.purpose) = (schema, meta.check, meta.generation, purpose)
    }

    /// - Throws: ``StoreError/wrongKey(_:)`` if the store was made under another key; ``StoreError/altered(_:)`` if it has
    ///   authentication codes and claims a schema without them.
    func demand(_ key: StorageKey, _ path: String) throws(StoreError) {
        guard key.matches(check: keyCheck, schema: schema) else {
            if schema < Schema.authenticated, key.matches(check: keyCheck, schema: Schema.authenticated) {
                throw .alteredSchema(path, schema)
            }
            throw .otherKey(store: path)
        }
    }
}
