// From SQLite's errors and the file system's to a store's own. SQLite's texts name tables and columns, never values.

package import GRDB

/// What the errors of a store can say, whatever store it is.
package protocol DiskFailure: Error {
    /// Somebody else has it open.
    static func locked(_ words: String) -> Self
    /// It cannot be read.
    static func corrupt(_ words: String) -> Self
    /// A newer program has written it.
    static func tooNew(found: Int, known: Int) -> Self
    /// It could not be used.
    static func unavailable(_ words: String) -> Self
    /// In words.
    var message: String { get }
    /// The words for a store that cannot be read, with what to do.
    static func damaged(_ path: String, _ detail: String) -> String
}

extension DiskFailure {
    /// Runs something of SQLite's and turns what it throws into words.
    package static func translating<Result>(_ path: String, _ body: () throws -> Result) throws(Self) -> Result {
        do {
            return try body()
        } catch let error as Self {
            throw error
        } catch let error as DatabaseError {
            throw Self(error, path)
        } catch {
            throw .unavailable("\(path) could not be used: \(error)")
        }
    }

    package init(_ error: DatabaseError, _ path: String) {
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
}
