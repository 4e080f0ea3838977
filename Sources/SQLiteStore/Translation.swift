// Translates errors into those of the port.

import SQLiteKit
import StoreBase
import StorePort

/// Runs SQLite code and translates its errors into ``StoreError``.
func translating<Result>(_ path: String = "the store", _ body: () throws -> Result) throws(StoreError) -> Result {
    try StoreError.translating(path, body)
}
