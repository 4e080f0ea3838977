// Prepared statements by name.

import GRDB
import SQLiteKit

/// The statements of one transaction, each prepared at its first use.
struct Statements<Name: StatementName> {
    private let database: Database
    private var prepared: [SQLStatement?] = []

    init(_ database: Database) { self.database = database }

    subscript(_ name: Name) -> SQLStatement {
        mutating get throws {
            if prepared.isEmpty { prepared = Array(repeating: nil, count: Name.allCases.count) }
            if let statement = prepared[name.rawValue] { return statement }
            let statement = try SQLStatement(database, name.sql)
            prepared[name.rawValue] = statement
            return statement
        }
    }
}

/// The names of statements. Their raw values are places in ``Statements``.
protocol StatementName: RawRepresentable<Int>, CaseIterable {
    var sql: String { get }
}
