// Files of the stores, with errors of the port.

package import SQLiteKit
package import StorePort

package typealias FileSystem = Disk<StoreError>
package typealias OpenFile = DiskFile<StoreError>

extension Disk<StoreError> {
    /// The path of a directory without slashes at its end.
    package static func withoutSlash(_ directory: String) -> String {
        var path = Substring(directory)
        while path.count > 1, path.last == "/" { path.removeLast() }
        return String(path)
    }
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
