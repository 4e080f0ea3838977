// The key-check value of a store in a file. It distinguishes a wrong key from a damaged store, and a store whose rows have
// authentication codes from an earlier one.

import StoreBase

extension StorageKey {
    private static func checkText(schema: Int) -> [UInt8] {
        Array("pawl storage key check \(schema < Schema.authenticated ? 1 : 2)".utf8)
    }

    /// The key-check value of a store with a schema.
    func check(schema: Int) -> [UInt8] { check(Self.checkText(schema: schema)) }

    func matches(check: [UInt8], schema: Int) -> Bool { matches(check: check, Self.checkText(schema: schema)) }
}
