// What is refused, each with its text, which names the remedy.

import StorePort

extension StoreError {
    static func plainDatabase(_ host: String) -> StoreError {
        .unavailable(
            """
            The connection to the database on \(host) is not encrypted. Only a socket or a loopback address may go \
            without. Give the server a certificate, and the URI sslmode=verify-full and sslrootcert=FILE.
            """)
    }

    static func uncheckedDatabase(_ host: String) -> StoreError {
        .unavailable(
            """
            The database is on \(host), and its certificate would not be checked: sslmode is not verify-full. Another \
            machine could take its place. Give the URI sslmode=verify-full and sslrootcert=FILE.
            """)
    }

    static func unsafeServer(_ setting: String, consequence: String) -> StoreError {
        .unavailable(
            """
            The database runs with \(setting)=off: \(consequence). Ratchets would go back, and messages that were \
            acknowledged would be lost. Set \(setting)=on; for a role: ALTER ROLE … SET \(setting) = on.
            """)
    }

    static func standby() -> StoreError {
        .unavailable("The database is a standby, which takes no writes. Name the primary, or all hosts, in the URI.")
    }

    static func olderServer(_ version: Int64) -> StoreError {
        .unavailable("The database is PostgreSQL \(version / 10_000). Pawl needs PostgreSQL 14 or newer.")
    }

    static func otherGateway(_ name: String) -> StoreError {
        .locked(
            """
            Another gateway (\(name)) uses this database, and runs. Stop the other one first, give this one a database of \
            its own, or let it stand by: store.standby.
            """)
    }

    static func takenOver() -> StoreError {
        .locked("Another gateway has taken over this database. This one has to stop.")
    }

    static func rolledBackElsewhere() -> StoreError {
        .rolledBack(
            """
            A gateway has found that the database is older than it should be: an older copy was put in its place, or a \
            standby that was behind has become the primary. Put the newest database back, or accept the older one: \
            pawl restore --accept-rollback --database URL --data DIR
            """)
    }

    static func noGateways() -> StoreError {
        .missing("The database holds no store, or that of an earlier version, which has no list of gateways.")
    }

    static func otherFormat(_ format: Int64, shards: Int64) -> StoreError {
        .tooNew(found: Int(clamping: max(format, shards)), known: Schema.format)
    }

    static func otherKeyOfDatabase() -> StoreError {
        .wrongKey(
            """
            The database was made under another storage key. Nothing was changed. Put the key back that belongs to this \
            database, or name the database that belongs to this key.
            """)
    }

    static func databaseWithoutKey(_ place: String) -> StoreError {
        .missing(
            """
            The database holds a store, and its storage key is not here (\(place)). Without the key it cannot be read. \
            Put the key back from its backup.
            """)
    }

    static func keyWithoutDatabase(_ path: String) -> StoreError {
        .missing(
            """
            The storage key \(path) is there, and the database holds no store. Is it another database? If nothing was \
            ever kept under this key, move it away and start again: mv \(path) \(path).old
            """)
    }

    static func movedToFile() -> StoreError {
        .moved(
            """
            The store of this database was moved into a file, and its tables are an old copy in a schema \
            \(Schema.movedPrefix)TIME. Remove store.url from the configuration of that gateway. To move the store back: \
            pawl store copy --to URL
            """)
    }

    static func databaseInUse() -> StoreError {
        .unavailable(
            """
            The database holds a store already. Nothing was changed. Name a database without one: a copy never overwrites \
            rows.
            """)
    }

    static func nothingToAccept(_ directory: String) -> StoreError {
        .unavailable("The database knows all that the gateway in \(directory) knows; there is nothing to accept.")
    }

    static func unreadableRow(_ table: String) -> StoreError {
        .corrupt("A row of the table pawl.\(table) cannot be understood.")
    }
}
