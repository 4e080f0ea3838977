// Writes store and key into one file, while the store stays in use.

import Crypto
import Foundation
import GRDB
import SQLiteKit
import StoreBase
package import StorePort

/// Makes backup files. For their format see BackupFile.swift.
package enum Backup {
    /// Ours: pages that are copied between two reports of progress. 4 MiB.
    private static let pagesPerStep: Int32 = 1024

    /// Writes a backup of an open store, as of one moment. The file appears whole, with mode 0600, or not at all.
    ///
    /// During the copy, the write-ahead log grows with all that is written meanwhile.
    ///
    /// - Parameter progress: called every few megabytes, on the caller's thread.
    /// - Throws: ``StoreError/unavailable(_:)`` if the file exists, or the disk fails.
    package static func write(
        _ store: SQLiteStore, to path: String, progress: (BackupProgress) -> Void = { _ in }
    ) throws(StoreError) {
        guard !FileSystem.exists(path) else {
            throw .backupExists(path)
        }
        let copy = path + ".store"
        let partial = path + ".partial"
        let leftovers = StoreFiles.database(copy) + [copy + "-journal", partial]
        for leftover in leftovers { try FileSystem.remove(leftover) }
        do throws(StoreError) {
            try copyPages(store, to: copy, progress)
            try pack(copy, store.key, into: partial, progress)
            try FileSystem.move(partial, to: path)
            try FileSystem.syncDirectory(FileSystem.parent(of: path))
        } catch {
            for leftover in leftovers { try? FileSystem.remove(leftover) }
            throw error
        }
        for leftover in leftovers { try FileSystem.remove(leftover) }
    }

    private static func copyPages(
        _ store: SQLiteStore, to copy: String, _ progress: (BackupProgress) -> Void
    ) throws(StoreError) {
        try OpenFile(copy, O_WRONLY | O_CREAT | O_EXCL).sync()
        try translating(copy) {
            let queue = try DatabaseQueue(path: copy, configuration: Opening.configuration(StoreLimits()))
            try withoutActuallyEscaping(progress) { progress in
                try queue.writeWithoutTransaction { target in
                    try store.pool.read { source in
                        // A first read fixes the snapshot; without it each write would restart the copy.
                        _ = try Int.fetchOne(source, sql: "SELECT generation FROM meta")
                        let pageSize = try Int.fetchOne(source, sql: "PRAGMA page_size") ?? 0
                        try source.backup(to: target, pagesPerStep: pagesPerStep) { step in
                            progress(
                                BackupProgress(
                                    phase: .copying, done: step.completedPageCount * pageSize,
                                    total: step.totalPageCount * pageSize))
                        }
                    }
                    // One file, without a log beside it.
                    try target.execute(sql: "PRAGMA journal_mode = DELETE")
                }
            }
            try queue.close()
        }
    }

    private static func pack(
        _ copy: String, _ key: StorageKey, into partial: String, _ progress: (BackupProgress) -> Void
    ) throws(StoreError) {
        var input = try OpenFile(copy, O_RDONLY)
        let size = input.size
        var output = try OpenFile(partial, O_WRONLY | O_CREAT | O_EXCL)
        var header = BackupHeader(schema: Schema.known, key: key, storeLength: size).bytes
        defer { SecretBytes.wipe(&header) }
        var hash = SHA256()
        hash.update(data: header)
        try output.write(header)
        var done = 0
        while done < size {
            let chunk = try input.read(upTo: min(size - done, BackupHeader.chunk))
            guard !chunk.isEmpty else { throw .unavailable("\(copy) has changed while it was read.") }
            hash.update(data: chunk)
            try output.write(chunk)
            done += chunk.count
            progress(BackupProgress(phase: .writing, done: done, total: size))
        }
        try output.write(Array(hash.finalize()))
        try output.sync()
    }
}
