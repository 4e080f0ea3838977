// Makes a new store. A crash at any point leaves either a whole store or nothing that counts: `pawl.sqlite.new` exists
// from before the key is made until it becomes `pawl.sqlite`.

import Foundation
import GRDB
import SQLiteKit
import StorePort

enum FirstStart {
    /// Returns whether the store has to be made.
    ///
    /// - Throws: ``StoreError/missing(_:)`` if only a part of a store is there.
    static func isDue(_ files: StoreFiles, _ source: StorageKey.Source) throws(StoreError) -> Bool {
        let hasKey = source.isPresent
        if FileSystem.exists(files.store) {
            guard !hasKey else { return false }
            throw .missing(
                """
                The store \(files.store) is there and its storage key is not (\(words(source))). Without the key it \
                cannot be read. Put the key back, or bring both back from a backup: \(files.restoreCommand) --force
                """)
        }
        if FileSystem.exists(files.unfinishedStore) { return true }
        if FileSystem.exists(files.unfinishedRestore) {
            throw .missing(
                "A restore into \(files.directory) was cut short. Do it again: \(files.restoreCommand) --force")
        }
        if case .file(let path) = source, hasKey {
            throw .missing(
                """
                The storage key \(path) is there and its store \(files.store) is not. Is the disk mounted? Bring the \
                store back from a backup: \(files.restoreCommand) --force. If nothing was ever kept under this key, \
                move it away and start again: mv \(path) \(path).old
                """)
        }
        if let trace = [files.generation, files.deliveryJournal].first(where: FileSystem.exists) {
            throw .missing(
                """
                The store \(files.store) is missing, but \(trace) shows that there was one. Bring it back from a \
                backup: \(files.restoreCommand) --force. To begin with an empty store: rm \(files.generation) \
                \(files.deliveryJournal)
                """)
        }
        return true
    }

    /// Makes the key and the store.
    static func make(_ files: StoreFiles, _ source: StorageKey.Source) throws(StoreError) -> StorageKey {
        let store = try NewDatabase<StoreError>(files.unfinishedStore)
        if case .file(let path) = source, !source.isPresent { try StorageKey.random().create(path) }
        let key = try StorageKey.read(source)
        try store.fill(Opening.configuration(StoreLimits())) { database in
            try Schema.migrate(database)
            let statement = try SQLStatement(database, "INSERT INTO meta (id, key_check, generation) VALUES (1, ?1, 0)")
            try statement.run(bytes: key.check, at: 1)
        }
        try store.publish(at: files.store)
        return key
    }

    private static func words(_ source: StorageKey.Source) -> String {
        switch source {
        case .file(let path): "there is no \(path)"
        case .environment(let name): "the environment variable \(name) is not set"
        case .derived: "none was made"
        }
    }
}
