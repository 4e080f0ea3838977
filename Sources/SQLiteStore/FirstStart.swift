// Makes a new store. A crash at any point leaves either a whole store or nothing that counts: `pawl.sqlite.new` exists
// from before the key is made until it becomes `pawl.sqlite`.

import Foundation
import GRDB
import SQLiteKit
import StoreBase
import StorePort

enum FirstStart {
    /// Returns whether the store has to be made.
    ///
    /// - Throws: ``StoreError/missing(_:)`` if only a part of a store is there.
    static func isDue(_ files: StoreFiles, _ source: StorageKey.Source) throws(StoreError) -> Bool {
        let hasKey = source.isPresent
        if FileSystem.exists(files.store) {
            guard !hasKey else { return false }
            throw .storeWithoutKey(files, source)
        }
        guard !FileSystem.exists(files.moved) else { throw .movedToDatabase(files) }
        guard !FileSystem.exists(files.copied) else { throw .unfinishedCopy(files) }
        if FileSystem.exists(files.unfinishedStore) { return true }
        if FileSystem.exists(files.unfinishedRestore) {
            throw .unfinishedRestore(files)
        }
        if case .file(let path) = source, hasKey {
            throw .keyWithoutStore(files, key: path)
        }
        if let trace = [files.generation, files.deliveryJournal].first(where: FileSystem.exists) {
            throw .storeMissing(files, trace: trace)
        }
        return true
    }

    /// Makes the key and the store.
    static func make(_ files: StoreFiles, _ source: StorageKey.Source) throws(StoreError) -> StorageKey {
        let store = try NewDatabase<StoreError>(files.unfinishedStore)
        if case .file(let path) = source, !source.isPresent { try StorageKey.random().create(path) }
        let key = try StorageKey.read(source)
        try store.fill(Opening.configuration(StoreLimits())) { database in
            try Schema.migrate(database, key)
            let statement = try SQLStatement(database, "INSERT INTO meta (id, key_check, generation) VALUES (1, ?1, 0)")
            try statement.run(bytes: key.check(schema: Schema.known), at: 1)
        }
        try store.publish(at: files.store)
        return key
    }
}
