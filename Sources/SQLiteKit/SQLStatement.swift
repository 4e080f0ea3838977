// One prepared statement, bound and read without boxing: SQLite's C interface below GRDB's connection.

package import GRDB
import GRDBSQLite

/// A prepared statement of a GRDB connection. Valid while the closure that gave the connection runs.
package struct SQLStatement {
    private let pointer: OpaquePointer

    /// - Throws: `DatabaseError` if the text is not a statement.
    package init(_ database: Database, _ sql: String) throws {
        pointer = try database.cachedStatement(sql: sql).sqliteStatement
        sqlite3_reset(pointer)
        sqlite3_clear_bindings(pointer)
    }

    package func bind(_ value: Int64, at index: Int32) { sqlite3_bind_int64(pointer, index, value) }

    /// Numbers above `Int64.max` keep their bits; they sort below zero.
    package func bind(_ value: UInt64, at index: Int32) { bind(Int64(bitPattern: value), at: index) }

    package func bind(_ text: String, at index: Int32) {
        var text = text
        text.withUTF8 { bytes in
            guard let address = bytes.baseAddress, !bytes.isEmpty else {
                sqlite3_bind_text(pointer, index, "", 0, Self.copied)
                return
            }
            address.withMemoryRebound(to: CChar.self, capacity: bytes.count) { characters in
                _ = sqlite3_bind_text(pointer, index, characters, Int32(bytes.count), Self.copied)
            }
        }
    }

    package func bind(_ text: String?, at index: Int32) {
        if let text { bind(text, at: index) } else { bindNothing(at: index) }
    }

    package func bind(_ value: Int64?, at index: Int32) {
        if let value { bind(value, at: index) } else { bindNothing(at: index) }
    }

    package func bind(_ value: UInt64?, at index: Int32) { bind(value.map { Int64(bitPattern: $0) }, at: index) }

    /// Copies the bytes; ``run(bytes:at:)`` does not.
    package func bind(_ bytes: [UInt8], at index: Int32) {
        _ = bytes.withUnsafeBytes { buffer in
            buffer.isEmpty
                ? sqlite3_bind_zeroblob(pointer, index, 0)
                : sqlite3_bind_blob(pointer, index, buffer.baseAddress, Int32(buffer.count), Self.copied)
        }
    }

    /// Copies a column of any type, from a row of any connection.
    package func bind(_ row: SQLColumns, _ column: Int32, at index: Int32) {
        sqlite3_bind_value(pointer, index, sqlite3_column_value(row.pointer, column))
    }

    package func bindNothing(at index: Int32) { sqlite3_bind_null(pointer, index) }

    /// Runs a statement that returns no rows.
    ///
    /// - Throws: `DatabaseError` with SQLite's code, without values.
    package func run() throws {
        let code = sqlite3_step(pointer)
        sqlite3_reset(pointer)
        guard code == SQLITE_DONE || code == SQLITE_ROW else { throw failure(code) }
    }

    /// Runs the statement with bytes that are bound without a copy, because they outlive the step.
    package func run(bytes: [UInt8], at index: Int32) throws {
        try bytes.withUnsafeBytes { buffer in
            if let address = buffer.baseAddress, !buffer.isEmpty {
                sqlite3_bind_blob(pointer, index, address, Int32(buffer.count), nil)
            } else {
                sqlite3_bind_zeroblob(pointer, index, 0)
            }
            try run()
        }
        bindNothing(at: index)
    }

    /// Returns the rows, each converted by a closure.
    package func rows<Value>(_ value: (SQLColumns) throws -> Value) throws -> [Value] {
        defer { sqlite3_reset(pointer) }
        var values: [Value] = []
        while true {
            let code = sqlite3_step(pointer)
            guard code != SQLITE_DONE else { return values }
            guard code == SQLITE_ROW else { throw failure(code) }
            values.append(try value(SQLColumns(pointer: pointer)))
        }
    }

    private func failure(_ code: Int32) -> DatabaseError {
        let message = sqlite3_db_handle(pointer).flatMap(sqlite3_errmsg).map { String(cString: $0) }
        return DatabaseError(resultCode: ResultCode(rawValue: code), message: message)
    }

    /// `SQLITE_TRANSIENT`: SQLite must copy the value.
    private static var copied: sqlite3_destructor_type { unsafeBitCast(-1, to: sqlite3_destructor_type.self) }
}

/// The columns of a statement's current row, from 0.
package struct SQLColumns {
    fileprivate let pointer: OpaquePointer

    package func number(_ index: Int32) -> Int64 { sqlite3_column_int64(pointer, index) }
    package func identifier(_ index: Int32) -> UInt64 { UInt64(bitPattern: number(index)) }
    /// A count, clamped to 0 through 2^40, so that the sum of all rows cannot overflow.
    package func count(_ index: Int32) -> Int { Int(min(max(number(index), 0), 1 << 40)) }
    package func isNull(_ index: Int32) -> Bool { sqlite3_column_type(pointer, index) == SQLITE_NULL }

    package func optionalNumber(_ index: Int32) -> Int64? { isNull(index) ? nil : number(index) }

    package func text(_ index: Int32) -> String {
        guard let address = sqlite3_column_text(pointer, index) else { return "" }
        let count = Int(sqlite3_column_bytes(pointer, index))
        return String(decoding: UnsafeBufferPointer(start: address, count: count), as: UTF8.self)
    }

    package func optionalText(_ index: Int32) -> String? { isNull(index) ? nil : text(index) }

    package func bytes(_ index: Int32) -> [UInt8] {
        guard let address = sqlite3_column_blob(pointer, index) else { return [] }
        return Array(UnsafeRawBufferPointer(start: address, count: Int(sqlite3_column_bytes(pointer, index))))
    }
}
