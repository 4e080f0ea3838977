// The port's errors in the words of this store.

import SQLiteKit
import StorePort

typealias FileSystem = Disk<StoreError>
typealias OpenFile = DiskFile<StoreError>

/// Runs something of SQLite's and turns what it throws into ``StoreError``.
func translating<Result>(_ path: String = "the store", _ body: () throws -> Result) throws(StoreError) -> Result {
    try StoreError.translating(path, body)
}

extension StoreError: DiskFailure {
    /// The words for a store that cannot be read.
    package static func damaged(_ path: String, _ detail: String) -> String {
        """
        \(path) is damaged (\(detail)). Nothing was changed. Bring back a backup; the damaged files are kept aside: \
        pawl restore FILE --data \(FileSystem.parent(of: path)) --force
        """
    }
}
