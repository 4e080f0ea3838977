// Maps errors of SQLite and of the file system to those of a store. SQLite's texts name tables and columns, never
// values.

package import GRDB

/// The errors that every store has.
package protocol DiskFailure: Error {
    /// Another process has it open.
    static func locked(_ words: String) -> Self
    /// It cannot be read.
    static func corrupt(_ words: String) -> Self
    /// A newer program has written it.
    static func tooNew(found: Int, known: Int) -> Self
    /// It could not be used.
    static func unavailable(_ words: String) -> Self
    /// The text for people.
    var message: String { get }
    /// The text for a damaged store, with the repair.
    static func damaged(_ path: String, _ damage: Damage) -> String
}

/// What is wrong with a damaged database.
package enum Damage: Equatable, Sendable {
    case notADatabase
    case ofAnotherProgram
    case cutShort
    /// What a check of ours or SQLite found, in words.
    case found(String)

    package var text: String {
        switch self {
        case .notADatabase: "it is not a database"
        case .ofAnotherProgram: "it is a database of another program"
        case .cutShort: "it is cut short"
        case .found(let words): words
        }
    }
}

extension DiskFailure {
    /// Runs SQLite code and translates its errors.
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

    /// A full disk, which a commit meets.
    package static func diskFull(_ path: String) -> Self {
        .unavailable(
            "The disk is full: \(path) could not be written. Free some space; the program then continues by itself.")
    }

    package init(_ error: DatabaseError, _ path: String) {
        let detail = "\(error.message ?? "no detail"), SQLite code \(error.extendedResultCode.rawValue)"
        switch error.resultCode {
        case .SQLITE_FULL:
            self = .diskFull(path)
        case .SQLITE_CORRUPT, .SQLITE_NOTADB:
            self = .corrupt(Self.damaged(path, .found(detail)))
        case .SQLITE_BUSY, .SQLITE_LOCKED:
            self = .locked(
                "\(path) is in use by another program (\(detail)). Close that program, perhaps a database browser.")
        case .SQLITE_READONLY, .SQLITE_PERM, .SQLITE_CANTOPEN, .SQLITE_AUTH:
            self = .unavailable(
                "\(path) cannot be written (\(detail)). The user that runs this program has to own it: chown -R USER DIR"
            )
        default:
            self = .unavailable("\(path) could not be used (\(detail)).")
        }
    }
}
