// Translates errors into those of the port.

package import SQLiteKit
import StorePort

typealias FileSystem = Disk<StoreError>
typealias OpenFile = DiskFile<StoreError>

/// Runs SQLite code and translates its errors into ``StoreError``.
func translating<Result>(_ path: String = "the store", _ body: () throws -> Result) throws(StoreError) -> Result {
    try StoreError.translating(path, body)
}

extension StoreError: DiskFailure {
    /// The text for a damaged store, with the repair.
    package static func damaged(_ path: String, _ damage: Damage) -> String {
        """
        \(path) is damaged (\(damage.text)). Nothing was changed. Bring back a backup; the damaged files are kept aside: \
        pawl restore FILE --data \(FileSystem.parent(of: path)) --force
        """
    }
}
