// Ways into the store's connections that only tests have.

import GRDB
import StorePort

@testable import SQLiteStore

extension SQLiteStore {
    /// Makes the disk as small as a number of pages.
    func limitPages(to count: Int) throws {
        try pool.writeWithoutTransaction { try $0.execute(sql: "PRAGMA max_page_count = \(count)") }
    }

    func pragma(_ name: String) throws -> Int? {
        try pool.writeWithoutTransaction { try Int.fetchOne($0, sql: "PRAGMA \(name)") }
    }

    /// Runs something while the writer is in the middle of a transaction.
    func whileWriting(_ body: () throws -> Void) throws {
        try pool.writeWithoutTransaction { database in
            try database.inTransaction(.immediate) {
                try database.execute(sql: "UPDATE meta SET generation = generation")
                try body()
                return .rollback
            }
        }
    }

    /// The names of the tables, without SQLite's own.
    func tables() throws -> [String] {
        try pool.writeWithoutTransaction { database in
            try String.fetchAll(
                database, sql: "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        }
    }

    /// How many rows a table has.
    func count(of table: String) throws -> Int {
        try pool.writeWithoutTransaction { try Int.fetchOne($0, sql: "SELECT count(*) FROM \(table)") ?? 0 }
    }

    /// Runs SQL on the writer, which may call `row_code`.
    func execute(_ sql: String) throws {
        try pool.writeWithoutTransaction { database in
            database.add(function: authenticator.function)
            defer { database.remove(function: authenticator.function) }
            try database.execute(sql: sql)
        }
    }
}
