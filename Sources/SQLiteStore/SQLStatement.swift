// One prepared statement, bound and read without boxes: the C interface of SQLite below GRDB's connection.

import GRDB
import GRDBSQLite
import GatewayCore

/// A prepared statement of a GRDB connection. Valid while the closure that gave the connection runs.
struct SQLStatement {
    private let pointer: OpaquePointer

    /// - Throws: `DatabaseError` where the text is no statement.
    init(_ database: Database, _ sql: String) throws {
        pointer = try database.cachedStatement(sql: sql).sqliteStatement
        sqlite3_reset(pointer)
        sqlite3_clear_bindings(pointer)
    }

    func bind(_ value: Int64, at index: Int32) { sqlite3_bind_int64(pointer, index, value) }

    /// Numbers above `Int64.max` keep their bits; they sort below zero.
    func bind(_ value: UInt64, at index: Int32) { bind(Int64(bitPattern: value), at: index) }

    func bind(_ text: String, at index: Int32) {
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

    func bind(_ text: String?, at index: Int32) {
        if let text { bind(text, at: index) } else { bindNothing(at: index) }
    }

    func bindNothing(at index: Int32) { sqlite3_bind_null(pointer, index) }

    /// Runs a statement that gives no rows.
    ///
    /// - Throws: `DatabaseError` with SQLite's code; it holds no values.
    func run() throws {
        let code = sqlite3_step(pointer)
        sqlite3_reset(pointer)
        guard code == SQLITE_DONE || code == SQLITE_ROW else { throw failure(code) }
    }

    /// Runs it with bytes that are bound without being copied: they outlive the step.
    func run(bytes: [UInt8], at index: Int32) throws {
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

    /// The rows, each through a closure.
    func rows<Value>(_ value: (SQLColumns) throws -> Value) throws -> [Value] {
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

    /// SQLite's way to be told that it must copy.
    private static var copied: sqlite3_destructor_type { unsafeBitCast(-1, to: sqlite3_destructor_type.self) }
}

/// The columns of the row that a statement stands on, from 0.
struct SQLColumns {
    fileprivate let pointer: OpaquePointer

    func number(_ index: Int32) -> Int64 { sqlite3_column_int64(pointer, index) }
    func identifier(_ index: Int32) -> UInt64 { UInt64(bitPattern: number(index)) }
    func isNull(_ index: Int32) -> Bool { sqlite3_column_type(pointer, index) == SQLITE_NULL }

    func text(_ index: Int32) -> String {
        guard let address = sqlite3_column_text(pointer, index) else { return "" }
        let count = Int(sqlite3_column_bytes(pointer, index))
        return String(decoding: UnsafeBufferPointer(start: address, count: count), as: UTF8.self)
    }

    func optionalText(_ index: Int32) -> String? { isNull(index) ? nil : text(index) }

    func bytes(_ index: Int32) -> [UInt8] {
        guard let address = sqlite3_column_blob(pointer, index) else { return [] }
        return Array(UnsafeRawBufferPointer(start: address, count: Int(sqlite3_column_bytes(pointer, index))))
    }
}
