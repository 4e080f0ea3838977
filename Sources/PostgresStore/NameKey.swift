// Keys of rows that have names. An index entry of PostgreSQL has at most 2,704 bytes, and names may be longer.

import Crypto

/// The key of a name.
enum NameKey {
    /// Ours: the longest name that is its own key, in bytes. Three keys fit in an index entry.
    private static let longest = 511
    /// Of the prefix before the digest, so that a key of a longer name has ``longest`` and one more bytes: no name is the
    /// key of another one.
    private static let prefix = 480

    /// The name itself, or its beginning and its SHA-256.
    static func of(_ name: [UInt8]) -> [UInt8] {
        guard name.count > longest else { return name }
        return Array(name.prefix(prefix)) + SHA256.hash(data: name)
    }

    static func of(_ name: String) -> [UInt8] { of(Array(name.utf8)) }

    /// The lowest key that a name not below this one can have.
    static func lowest(from name: String) -> [UInt8] { Array(name.utf8.prefix(prefix)) }

    /// A key above those of all names below this one.
    static func highest(to name: String) -> [UInt8] {
        Array(name.utf8.prefix(prefix)) + [UInt8](repeating: 0xFF, count: longest + 1)
    }
}
