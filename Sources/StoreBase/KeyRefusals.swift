// The errors of keys and of rows with codes: each with its text, which names the remedy.

import SQLiteKit
import StorePort

extension StoreError {
    static func noKey(at path: String) -> StoreError { .missing("There is no storage key at \(path).") }

    /// - Parameters:
    ///   - reason: of the system.
    ///   - user: that runs this program.
    static func unreadableKey(_ path: String, _ reason: String, user: String) -> StoreError {
        .unusableKey(
            """
            The storage key \(path) cannot be read (\(reason)). Let the user that runs pawl own it: \
            chown \(user) \(path)
            """)
    }

    static func keyIsNoFile(_ path: String) -> StoreError {
        .unusableKey("The storage key \(path) is not a file. Name the file with storage_key.file.")
    }

    /// - Parameter mode: the file's permissions.
    static func openKey(_ path: String, mode: UInt32) -> StoreError {
        .unusableKey(
            """
            The storage key \(path) has mode 0\(String(mode, radix: 8)): others can read or change it. Take that away: \
            chmod 600 \(path)
            """)
    }

    /// - Parameter length: of the file, in bytes.
    static func keyOfWrongLength(_ path: String, length: Int) -> StoreError {
        .unusableKey(
            """
            The storage key \(path) has \(length) bytes, not \(StorageKey.length): it is damaged or not a key. Bring \
            back the copy that a backup holds: pawl restore FILE --data DIR --force
            """)
    }

    static func keyVariableUnset(_ name: String) -> StoreError {
        .missing(
            """
            The environment variable \(name) is not set; storage_key.environment says that it holds the storage \
            key. Set it to the key in Base64, or use a file with storage_key.file.
            """)
    }

    static func keyVariableUnreadable(_ name: String) -> StoreError {
        .unusableKey(
            """
            The environment variable \(name) holds no key: \(StorageKey.length) bytes in Base64 (44 characters) or \
            hexadecimal (\(StorageKey.length * 2)) are expected. Set it to the key of this store; a new one for a \
            new store comes from: openssl rand -base64 32
            """)
    }

    // MARK: Rows

    /// - Parameter row: the table, and the kind of a record.
    static func alteredRow(_ row: String) -> StoreError {
        .altered(
            """
            A row of the store's table \(row) does not have the authentication code that pawl gave it: another program has \
            written it, or it is damaged. Nothing was changed. Find out who can write to the data directory, and bring \
            back a backup: pawl restore FILE --force --data with this directory.
            """)
    }
}
