// The errors of opening, backup and restore: each with its text, which names the remedy.

import RequestQueue
import SQLiteKit
import StoreBase
import StorePort

extension Damage {
    static let keyCheckMissing = Damage.found("its key-check value is missing")
    static let openingsOutOfRange = Damage.found("the number of its openings is out of range")
    /// Of a queue of an earlier version.
    static let queueCheck = Damage.found("a check of the whole file found damage")
}

/// What is wrong with a backup file.
enum BackupDamage: String {
    case cutShort = "it is cut short"
    case tooLong = "it is longer than its header says"
    case checksum = "its checksum does not match"
}

// MARK: Store and generation

extension StoreError {
    /// - Parameter holder: the process id; nil if unknown.
    static func inUse(_ files: StoreFiles, by holder: Int32?) -> StoreError {
        .locked(
            """
            The store in \(files.directory) is in use by another pawl\(holder.map { " (process \($0))" } ?? ""). \
            Stop that one first\(holder.map { ": kill \($0)" } ?? ""), or give this one a directory of its own \
            with --data.
            """)
    }

    static func storeWithoutKey(_ files: StoreFiles, _ source: StorageKey.Source) -> StoreError {
        let place =
            switch source {
            case .file(let path): "there is no \(path)"
            case .environment(let name): "the environment variable \(name) is not set"
            case .derived: "none was made"
            }
        return .missing(
            """
            The store \(files.store) is there and its storage key is not (\(place)). Without the key it \
            cannot be read. Put the key back, or bring both back from a backup: \(files.restoreCommand) --force
            """)
    }

    static func keyWithoutStore(_ files: StoreFiles, key path: String) -> StoreError {
        .missing(
            """
            The storage key \(path) is there and its store \(files.store) is not. Is the disk mounted? Bring the \
            store back from a backup: \(files.restoreCommand) --force. If nothing was ever kept under this key, \
            move it away and start again: mv \(path) \(path).old
            """)
    }

    /// - Parameter trace: the file that shows that there was a store.
    static func storeMissing(_ files: StoreFiles, trace: String) -> StoreError {
        .missing(
            """
            The store \(files.store) is missing, but \(trace) shows that there was one. Bring it back from a \
            backup: \(files.restoreCommand) --force. To begin with an empty store: rm \(files.generation) \
            \(files.deliveryJournal)
            """)
    }

    static func unfinishedRestore(_ files: StoreFiles) -> StoreError {
        .missing("A restore into \(files.directory) was cut short. Do it again: \(files.restoreCommand) --force")
    }

    static func movedToDatabase(_ files: StoreFiles) -> StoreError {
        .moved(
            """
            The store of \(files.directory) was moved into a database, and \(files.moved) is the old copy. Set store.url to \
            that database. If the copy was cut short, run it again, which ends it: \
            pawl store copy --to URL --data \(files.directory)
            """)
    }

    static func unfinishedCopy(_ files: StoreFiles) -> StoreError {
        .moved(
            """
            A copy of a database into \(files.directory) was cut short. Run it again, which ends it: \
            pawl store copy --from URL --data \(files.directory)
            """)
    }

    static func sidecarsStore(_ files: StoreFiles) -> StoreError {
        .unavailable(
            """
            The directory \(files.directory) belongs to a sidecar, which keeps one person's keys in a file. Only the store \
            of a gateway can be moved into a database.
            """)
    }

    static func logStays(_ files: StoreFiles) -> StoreError {
        .unavailable("The log \(files.store)-wal could not be moved into its store. Does another program read it?")
    }

    static func otherKey(store path: String) -> StoreError {
        .wrongKey(
            """
            The storage key does not belong to \(path): the store was made under another one. Put that key back, or \
            bring key and store back together from a backup: \
            pawl restore FILE --data \(FileSystem.parent(of: path)) --force
            """)
    }

    /// - Parameter schema: that the store claims.
    static func alteredSchema(_ path: String, _ schema: Int) -> StoreError {
        .altered(
            """
            The rows of \(path) have had authentication codes, and it claims to be of schema \(schema), which has none: \
            another program has changed it. Nothing was changed. Find out who can write to the data directory, and \
            bring back a backup: pawl restore FILE --data \(FileSystem.parent(of: path)) --force
            """)
    }

    static func badGeneration(_ files: StoreFiles) -> StoreError {
        .corrupt(
            """
            \(files.generation) holds no number, so it is not known whether the store is the newest. If it is: \
            rm \(files.generation). If it may be an older copy: \(files.acceptRollbackCommand)
            """)
    }

    /// - Parameters:
    ///   - found: the openings that the store counts.
    ///   - expected: the openings that the file beside it counts.
    static func olderState(_ files: StoreFiles, found: UInt64, expected: UInt64) -> StoreError {
        .rolledBack(
            """
            The store in \(files.directory) is older than it should be: it was opened \(found) times, and \
            \(files.generation) counts \(expected). An older state has been copied back. Put the newest one \
            back, or accept the older one; sessions are then set up anew and waiting messages given up: \
            \(files.acceptRollbackCommand)
            """)
    }

    static func noStore(_ files: StoreFiles) -> StoreError {
        .missing("There is no store in \(files.directory). Name its directory with --data.")
    }

    static func nothingToAccept(_ files: StoreFiles) -> StoreError {
        .unavailable("The store in \(files.directory) is the newest; there is nothing to accept.")
    }
}

// MARK: Backup and restore

extension StoreError {
    static func backupExists(_ path: String) -> StoreError {
        .unavailable("There is a file \(path) already. Give the backup a name of its own.")
    }

    static func noBackup(at path: String) -> StoreError { .missing("There is no file \(path).") }

    static func notABackup(_ path: String) -> StoreError {
        .corrupt("\(path) is no backup of pawl. Name the file that pawl backup has written.")
    }

    static func unknownBackupFormat(_ path: String, _ version: UInt64) -> StoreError {
        .unavailable(
            """
            \(path) has backup format \(version); this program knows \(BackupHeader.versionWithQueue). Restore it with \
            the pawl that wrote it.
            """)
    }

    static func damagedBackup(_ path: String, _ damage: BackupDamage) -> StoreError {
        .corrupt(
            """
            \(path) is damaged: \(damage.rawValue). Nothing was changed. Take another backup: \
            pawl restore OTHER-FILE --data DIR
            """)
    }

    static func keyVariableOfOtherBackup(_ name: String) -> StoreError {
        .wrongKey(
            """
            The environment variable \(name) holds another key than the backup. Set it to the backup's key, or \
            let pawl keep the key in a file: leave storage_key.environment out of the configuration.
            """)
    }

    static func otherKeyInTheWay(_ path: String) -> StoreError {
        .unavailable("There is another storage key at \(path). To have it moved aside, add --force to the restore.")
    }

    /// - Parameter file: the name of one that is there.
    static func notEmpty(_ files: StoreFiles, file: String) -> StoreError {
        .unavailable(
            """
            \(files.directory) is not empty (\(file)). Name an empty directory, or have the old files moved aside: \
            \(files.restoreCommand) --force
            """)
    }
}

// MARK: Takeover of an earlier version's queue

extension StoreError {
    static func queueMissing(_ queue: EarlierQueue) -> StoreError {
        .missing(
            """
            The queue \(queue.path) existed before and is missing. Is its disk mounted? Put the file back, or \
            start with an empty queue, without the requests that waited: \(queue.repairCommand)
            """)
    }

    /// - Parameter holder: the process id; nil if unknown.
    static func queueInUse(_ queue: EarlierQueue, by holder: Int32?) -> StoreError {
        .locked(
            """
            The queue \(queue.path) is in use by another process\(holder.map { " (\($0))" } ?? ""). Stop that one \
            first\(holder.map { ": kill \($0)" } ?? "").
            """)
    }

    static func queueLogStays(_ queue: EarlierQueue) -> StoreError {
        .unavailable(
            "The log \(queue.path)-wal could not be moved into its queue. Check the disk, and start pawl again.")
    }

    /// An error of the queue's own store.
    static func queue(_ queue: EarlierQueue, _ error: QueueStoreError) -> StoreError {
        error.isDamage ? .corrupt("\(error.message) Run: \(queue.repairCommand)") : .unavailable(error.message)
    }

    /// The queue and the store have different rows under the same keys of a table.
    static func otherRows(_ queue: EarlierQueue, table: String) -> StoreError {
        notTaken(queue, "the store has other rows under the same ids (\(table))")
    }

    static func takenBefore(_ queue: EarlierQueue) -> StoreError {
        notTaken(queue, "the store has taken its queue over already, so this file is another one or an older copy")
    }

    private static func notTaken(_ queue: EarlierQueue, _ reason: String) -> StoreError {
        .unavailable(
            """
            The queue \(queue.path) of an earlier version cannot be moved into the store: \(reason). Nothing was \
            changed. To start without the requests in that file: mv \(queue.path) \(queue.path).aside && \
            rm -f \(queue.lock)
            """)
    }
}
