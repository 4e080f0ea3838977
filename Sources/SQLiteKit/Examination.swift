// Checks of a database before it is opened for writing. They change nothing.

import Foundation
package import GRDB

/// Examines databases, with errors in the words of the store that they belong to.
package enum Examination<Failure: DiskFailure> {
    /// Checks that a file is a database of ours, whole, and not too new.
    ///
    /// - Parameters:
    ///   - application: the `application_id` of such databases.
    ///   - known: the newest schema that this program knows.
    ///   - checkedWhole: a database up to this size in bytes is checked whole; a larger one in some tables.
    ///   - tables: those tables.
    ///   - look: reads further values.
    /// - Throws: `corrupt`, `tooNew`, or `unavailable`.
    package static func examine<Value>(
        _ path: String, application: Int, known: Int, checkedWhole: Int, tables: [String],
        _ configuration: Configuration,
        _ look: (Database, _ schema: Int) throws -> Value
    ) throws(Failure) -> Value {
        let isSmall = try demandHeader(path) <= checkedWhole
        var configuration = configuration
        configuration.readonly = true
        return try Failure.translating(path) {
            let queue = try DatabaseQueue(path: path, configuration: configuration)
            defer { try? queue.close() }
            return try withoutActuallyEscaping(look) { look in
                try queue.unsafeRead { database in
                    guard try Int.fetchOne(database, sql: "PRAGMA application_id") == application else {
                        throw Failure.corrupt(Failure.damaged(path, .ofAnotherProgram))
                    }
                    let schema = try Int.fetchOne(database, sql: "PRAGMA user_version") ?? 0
                    guard schema <= known else { throw Failure.tooNew(found: schema, known: known) }
                    for part in isSmall ? [""] : tables.map({ "('\($0)')" }) {
                        let finding = try String.fetchOne(database, sql: "PRAGMA quick_check\(part)") ?? ""
                        guard finding == "ok" else { throw Failure.corrupt(Failure.damaged(path, .found(finding))) }
                    }
                    return try look(database, schema)
                }
            }
        }
    }

    /// Checks the first bytes of the file, because SQLite takes an empty file for an empty database.
    private static func demandHeader(_ path: String) throws(Failure) -> Int {
        var file = try DiskFile<Failure>(path, O_RDONLY)
        let size = file.size
        let header = try file.read(upTo: 100)
        guard header.count == 100, header.starts(with: "SQLite format 3\0".utf8) else {
            throw .corrupt(Failure.damaged(path, .notADatabase))
        }
        func number(at offset: Int) -> Int { header[offset..<(offset + 4)].reduce(0) { $0 << 8 | Int($1) } }
        let pageSize = header[16] == 0 && header[17] == 1 ? 65536 : Int(header[16]) << 8 | Int(header[17])
        // With a write-ahead log beside it the file may be short; without, it has all its pages.
        guard Disk<Failure>.size(of: path + "-wal") > 0 || number(at: 28) * pageSize <= size else {
            throw .corrupt(Failure.damaged(path, .cutShort))
        }
        return size
    }
}
