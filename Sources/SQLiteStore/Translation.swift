// From SQLite's errors to the port's. SQLite's texts name tables and columns, never values.

import GRDB
import GatewayCore

/// Runs something of SQLite's and turns what it throws into ``StoreError``.
func translating<Result>(_ path: String = "the store", _ body: () throws -> Result) throws(StoreError) -> Result {
    do {
        return try body()
    } catch let error as StoreError {
        throw error
    } catch let error as DatabaseError {
        throw StoreError(error, path)
    } catch {
        throw .unavailable("\(path) could not be used: \(error)")
    }
}

extension StoreError {
    init(_ error: DatabaseError, _ path: String) {
        let detail = "\(error.message ?? "no detail"), SQLite code \(error.extendedResultCode.rawValue)"
        switch error.resultCode {
        case .SQLITE_FULL:
            self = .unavailable(
                "The disk is full: \(path) could not be written. Free some space; pawl goes on by itself.")
        case .SQLITE_CORRUPT, .SQLITE_NOTADB:
            self = .corrupt(Self.damaged(path, detail))
        case .SQLITE_BUSY, .SQLITE_LOCKED:
            self = .locked(
                "\(path) is in use by another program (\(detail)). Close what has it open, a database browser perhaps.")
        case .SQLITE_READONLY, .SQLITE_PERM, .SQLITE_CANTOPEN, .SQLITE_AUTH:
            self = .unavailable(
                "\(path) cannot be written (\(detail)). The user that runs pawl has to own it: chown -R USER DIR")
        default:
            self = .unavailable("\(path) could not be used (\(detail)).")
        }
    }

    /// The words for a store that cannot be read.
    static func damaged(_ path: String, _ detail: String) -> String {
        """
        \(path) is damaged (\(detail)). Nothing was changed. Bring back a backup; the damaged files are kept aside: \
        pawl restore FILE --data \(FileSystem.parent(of: path)) --force
        """
    }
}
