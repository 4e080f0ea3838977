// Restores a backup. Its ratchets are older than what was sent since, so a restore is a rollback that the operator
// asked for: sessions are set up anew, and waiting requests are given up with a reason.

import Foundation
import GRDB
import RequestQueue
import SQLiteKit
import SQLiteQueue
package import StoreBase
package import StorePort

/// Restores backup files.
package enum Restore {
    /// The cause of requests that waited in a backup and are dead.
    static let cause = "Restored from a backup. It may have been sent since."

    /// The result of a restore.
    package struct Result: Equatable, Sendable {
        /// The paths of the old files, which were moved aside.
        package var aside: [String]
    }

    /// Restores store and key of a backup into a directory.
    ///
    /// - Parameters:
    ///   - source: where the key is to be. An environment variable must hold the backup's key already.
    ///   - force: whether existing files are moved aside; if false, the directory must be empty.
    ///   - actor: for the audit log.
    ///   - now: in milliseconds since 1970.
    ///   - progress: called every megabyte, on the caller's thread.
    /// - Throws: ``StoreError``. Nothing is changed before the backup is known to be whole.
    @discardableResult
    package static func run(
        file: String, directory: String, key source: StorageKey.Source, force: Bool, actor: String, now: Int64,
        progress: (BackupProgress) -> Void = { _ in }
    ) throws(StoreError) -> Result {
        let files = StoreFiles(directory)
        let backup = try CheckedBackup(file, progress: progress)
        let keyStays = try holdsKey(source, backup.header.key, force: force)
        try demandEmpty(files, force: force)
        try FileSystem.makeDirectory(files.directory)
        let lock = try FileLock(files)
        defer { withExtendedLifetime(lock) {} }

        for leftover in StoreFiles.database(files.unfinishedRestore) { try FileSystem.remove(leftover) }
        // Backups of earlier versions have a queue beside the store, which the next opening takes over.
        let queue = EarlierQueue(directory: files.directory).path
        let newQueue = queue + ".restored"
        for leftover in StoreFiles.database(newQueue) { try FileSystem.remove(leftover) }
        try backup.unpack(to: files.unfinishedRestore, progress: progress)
        let generation: UInt64
        let hasQueue: Bool
        do throws(StoreError) {
            hasQueue = try backup.unpackQueue(to: newQueue, progress: progress)
            if hasQueue { try settle(newQueue, now) }
            generation = try prepare(files, backup, actor: actor, now: now)
        } catch {
            for leftover in StoreFiles.database(files.unfinishedRestore) + StoreFiles.database(newQueue) {
                try? FileSystem.remove(leftover)
            }
            throw error
        }
        // From here on a crash leaves `restore.partial` or no key, and the store is not opened with either.
        var aside = try moveAside(files, now)
        if case .file(let path) = source, !keyStays {
            if FileSystem.exists(path) {
                let old = unused(path + ".replaced-\(now)")
                try FileSystem.move(path, to: old)
                aside.append(old)
            }
            try backup.header.key.create(path)
        }
        if hasQueue { try FileSystem.move(newQueue, to: queue) }
        try Generation.write(generation, files)
        try FileSystem.move(files.unfinishedRestore, to: files.store)
        try FileSystem.syncDirectory(files.directory)
        return Result(aside: aside)
    }

    /// Whether the key is in its place already.
    private static func holdsKey(
        _ source: StorageKey.Source, _ key: StorageKey, force: Bool
    ) throws(StoreError) -> Bool {
        switch source {
        case .environment(let name):
            guard try StorageKey.read(source).isEqual(to: key) else {
                throw .keyVariableOfOtherBackup(name)
            }
            return true
        case .derived(let present):
            guard present.isEqual(to: key) else {
                throw .wrongKey("The key of this store is another one than that of the backup.")
            }
            return true
        case .file(let path):
            guard FileSystem.exists(path) else { return false }
            if let present = try? StorageKey.read(source), present.isEqual(to: key) { return true }
            guard force else {
                throw .otherKeyInTheWay(path)
            }
            return false
        }
    }

    private static func demandEmpty(_ files: StoreFiles, force: Bool) throws(StoreError) {
        guard !force, FileSystem.exists(files.directory) else { return }
        let names = try FileSystem.entries(of: files.directory).filter {
            files.directory + "/" + $0 != files.lock && $0 != "lost+found"
        }
        guard let first = names.first else { return }
        throw .notEmpty(files, file: first)
    }

    /// Ends the unfinished requests of an unpacked queue.
    private static func settle(_ queue: String, _ now: Int64) throws(StoreError) {
        do throws(QueueStoreError) {
            try SQLiteQueueStore.settle(copy: queue, cause: cause, now: now)
        } catch {
            throw StoreError(error)
        }
    }

    /// Prepares the unpacked store for use, and returns its new generation.
    private static func prepare(
        _ files: StoreFiles, _ backup: CheckedBackup, actor: String, now: Int64
    ) throws(StoreError) -> UInt64 {
        let path = files.unfinishedRestore
        let contents = try StoreExamination(path, StoreLimits())
        try contents.demand(backup.header.key, path)
        let beside = (try? Generation.read(files)) ?? 0
        let generation = max(contents.generation, beside) + 1
        try translating(path) {
            let queue = try DatabaseQueue(path: path, configuration: Opening.configuration(StoreLimits()))
            try queue.writeWithoutTransaction { database in
                try Schema.migrate(database, backup.header.key)
                try Rollback.settle(
                    database, RowAuthenticator(backup.header.key), cause: cause, action: "store.restored",
                    detail: "generation \(contents.generation), from \(backup.path)", actor: actor,
                    generation: generation, now: now)
            }
            try queue.close()
        }
        return generation
    }

    /// Moves the files of the old store into a directory beside them.
    private static func moveAside(_ files: StoreFiles, _ now: Int64) throws(StoreError) -> [String] {
        let queue = EarlierQueue(directory: files.directory)
        let old =
            (StoreFiles.database(files.store) + StoreFiles.database(files.unfinishedStore)
            + StoreFiles.database(queue.path) + [files.generation, files.deliveryJournal, queue.lock]).filter(
                FileSystem.exists)
        guard !old.isEmpty else { return [] }
        let aside = unused(files.directory + "/replaced-\(now)")
        try FileSystem.makeDirectory(aside)
        for path in old { try FileSystem.move(path, to: aside + path.dropFirst(files.directory.count)) }
        try FileSystem.syncDirectory(aside)
        try FileSystem.syncDirectory(files.directory)
        return [aside]
    }

    private static func unused(_ path: String) -> String {
        guard FileSystem.exists(path) else { return path }
        return (2...).lazy.map { "\(path)-\($0)" }.first { !FileSystem.exists($0) } ?? path
    }
}
