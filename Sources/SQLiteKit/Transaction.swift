package import GRDB

extension Database {
    /// Runs a closure in an immediate transaction, and commits it.
    ///
    /// The statements around it are cached. GRDB's `inTransaction` compiles them for each transaction, which costs more
    /// than the rows of a small one.
    ///
    /// - Throws: the closure's error, or `DatabaseError`; then nothing is committed.
    package func inImmediateTransaction(_ body: () throws -> Void) throws {
        try SQLStatement(self, "BEGIN IMMEDIATE").run()
        do {
            try body()
            try SQLStatement(self, "COMMIT").run()
        } catch {
            // After some errors SQLite has rolled back already.
            if isInsideTransaction { try? SQLStatement(self, "ROLLBACK").run() }
            throw error
        }
    }
}
