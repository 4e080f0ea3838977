import GRDBSQLite

/// A connection of SQLite's C interface.
struct RawDatabase {
    private let handle: OpaquePointer

    /// Makes a database; there must be none.
    init(_ path: String) throws {
        var handle: OpaquePointer?
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXCLUSIVE | SQLITE_OPEN_NOMUTEX
        guard sqlite3_open_v2(path, &handle, flags, nil) == SQLITE_OK, let handle else {
            throw Failure("\(path) cannot be opened")
        }
        self.handle = handle
    }

    /// Runs statements that give no rows.
    func execute(_ sql: String) throws {
        guard sqlite3_exec(self.handle, sql, nil, nil, nil) == SQLITE_OK else { throw self.failure }
    }

    /// Prepares a statement.
    func prepare(_ sql: String) throws -> RawStatement {
        var statement: OpaquePointer?
        guard sqlite3_prepare_v2(self.handle, sql, -1, &statement, nil) == SQLITE_OK, let statement else {
            throw self.failure
        }
        return RawStatement(handle: statement)
    }

    /// Runs changes in one transaction.
    func transaction(_ body: () throws -> Void) throws {
        try self.execute("BEGIN IMMEDIATE")
        try body()
        try self.execute("COMMIT")
    }

    private var failure: Failure { Failure("SQLite: \(String(cString: sqlite3_errmsg(self.handle)))") }
}

/// A prepared statement.
struct RawStatement {
    let handle: OpaquePointer

    /// Runs it with a row's number and its bytes.
    func run(id: Int, blob: ArraySlice<UInt8>? = nil) throws {
        sqlite3_bind_int64(self.handle, 1, Int64(id))
        try self.step(blob)
    }

    /// Runs it with a key of 16 bytes and a row's bytes.
    func run(key: Int, blob: ArraySlice<UInt8>) throws {
        try withUnsafeBytes(of: (UInt64(key).bigEndian, UInt64(key).byteSwapped)) { bytes in
            _ = sqlite3_bind_blob(self.handle, 1, bytes.baseAddress, Int32(bytes.count), nil)
            try self.step(blob)
        }
    }

    /// Rows that it gives for a number.
    func count(id: Int) throws -> Int {
        sqlite3_bind_int64(self.handle, 1, Int64(id))
        defer { sqlite3_reset(self.handle) }
        var count = 0
        while true {
            let status = sqlite3_step(self.handle)
            guard status == SQLITE_ROW else {
                guard status == SQLITE_DONE else { throw Failure("SQLite: \(String(cString: sqlite3_errstr(status)))") }
                return count
            }
            count += 1
        }
    }

    /// Binds the bytes without copying them: they outlive the step.
    private func step(_ blob: ArraySlice<UInt8>?) throws {
        let status = (blob ?? []).withUnsafeBytes { bytes in
            if blob != nil { sqlite3_bind_blob(self.handle, 2, bytes.baseAddress, Int32(bytes.count), nil) }
            defer { sqlite3_reset(self.handle) }
            return sqlite3_step(self.handle)
        }
        guard status == SQLITE_DONE else { throw Failure("SQLite: \(String(cString: sqlite3_errstr(status)))") }
    }
}
