// How a gateway joins a database: checks first, then the tables if there are none. What it takes there, its machine decides.

import Foundation
import Ownership
import SQLiteKit
import StoreBase
import StorePort

/// A database that has passed the checks.
struct Joining {
    let writer: Link
    let reader: Link
    let control: Link
    let key: StorageKey
    let directory: String
    let lock: FileLock
    let witness: Witness
    /// Whether a database that knows less than the witness is opened.
    let acceptsRollback: Bool
    /// A new one at each start, never a name: names come again.
    let gateway = Int64.random(in: 1...Int64.max)

    /// - Parameter acceptsRollback: for the command that does: whether a database that knows less than the witness is opened.
    /// - Throws: ``StoreError``, with the remedy.
    init(
        _ address: StoreAddress, directory: String, key source: StorageKey.Source, acceptsRollback: Bool = false
    ) throws(StoreError) {
        (self.directory, self.acceptsRollback) = (directory, acceptsRollback)
        let store = directory + "/pawl.sqlite"
        guard access(store, F_OK) != 0 else { throw .otherStore(store) }
        try Disk<StoreError>.makeDirectory(directory)
        lock = try FileLock(directory + "/pawl.lock") { StoreError.directoryInUse(directory, by: $0) }
        if acceptsRollback { try Witness.removeUnreadable(directory) }
        let witness = try Witness(directory: directory)
        self.witness = witness
        let name = Self.name(of: gateway)
        // After each reconnect too: the next server may be a standby that was behind.
        let check = { @Sendable (connection: Connection, timeout: Int) throws(StoreError) in
            try PostgresStore.demandSafe(connection, within: timeout)
            if !acceptsRollback { try witness.demand(connection, within: timeout) }
        }
        (writer, reader, control) = (
            Link(address, name: name, check: check), Link(address, name: name, check: check),
            Link(address, name: name, check: check)
        )
        key = try Self.key(source, control)
    }

    /// By which the server lists the connections of a gateway.
    static func name(of gateway: Int64) -> String { "pawl " + String(gateway, radix: 16) }

    // MARK: Tables and key

    /// Returns the key of the database, which the first start makes.
    private static func key(_ source: StorageKey.Source, _ control: Link) throws(StoreError) -> StorageKey {
        if let check = try keyCheck(control) {
            guard source.isPresent else { throw .databaseWithoutKey(source.place) }
            let key = try StorageKey.read(source)
            guard KeyCheck.matches(check.value, key) else { throw .otherKeyOfDatabase() }
            try upgrade(control, from: check.version)
            return key
        }
        guard try !wasMoved(control) else { throw .movedToFile() }
        if case .file(let path) = source {
            guard !source.isPresent else { throw .keyWithoutDatabase(path) }
            // The key first: tables without their key are refused, and a key alone can be moved away.
            try StorageKey.random().create(path)
        }
        let key = try StorageKey.read(source)
        let text = Schema.create(keyCheck: KeyCheck.value(key))
        try control.use { connection throws(StoreError) in
            do throws(StatementFailure) {
                try connection.runAll(text, timeout: Link.statementTimeout)
            } catch {
                throw StoreError(error)
            }
        }
        return key
    }

    /// Whether the database has held a store that was moved into a file, and holds none now.
    static func wasMoved(_ control: Link) throws(StoreError) -> Bool {
        guard try keyCheck(control) == nil else { return false }
        return try control.read(
            "SELECT count(*)::int8 FROM information_schema.schemata WHERE schema_name LIKE '\(Schema.movedPrefix)%'"
        ) { rows in rows.count == 1 && rows.number(0, 0) > 0 }
    }

    /// The key-check value of the database and the version of its tables; nil if it has no tables of ours.
    static func keyCheck(_ control: Link) throws(StoreError) -> (value: [UInt8], version: Int64)? {
        let hasTables = try control.read(
            """
            SELECT count(*)::int8 FROM information_schema.tables WHERE table_schema = 'pawl' AND table_name = 'cluster'
            """
        ) { rows in rows.count == 1 && rows.number(0, 0) > 0 }
        guard hasTables else { return nil }
        return try control.read("SELECT format, version, shards, key_check FROM pawl.cluster WHERE id = 1") {
            rows throws(StoreError) in
            guard rows.count == 1 else { throw .unreadableRow("cluster") }
            guard rows.number(0, 0) == Schema.format, rows.number(0, 2) == Schema.shards else {
                throw .otherFormat(rows.number(0, 0), shards: rows.number(0, 2))
            }
            guard rows.number(0, 1) <= Schema.version else {
                throw .tooNew(found: Int(clamping: rows.number(0, 1)), known: Schema.version)
            }
            let check = rows.bytes(0, 3)
            guard check.count == 32 else { throw .unreadableRow("cluster") }
            return (check, rows.number(0, 1))
        }
    }

    /// Brings the tables of an earlier version to the present one. Columns are only added, with defaults, so a program of
    /// that version that runs on them goes on; it is refused when it starts again.
    private static func upgrade(_ control: Link, from version: Int64) throws(StoreError) {
        guard version < Schema.version else { return }
        try control.use { connection throws(StoreError) in
            do throws(StatementFailure) {
                try connection.runAll(Schema.upgrade, timeout: Link.statementTimeout)
            } catch {
                throw StoreError(error)
            }
        }
    }
}

extension Counters {
    /// Reads the highest numbers.
    init(over link: Link) throws(StoreError) {
        let sql = """
            SELECT coalesce((SELECT max(n) FROM pawl.audit), 0), coalesce((SELECT max(place) FROM pawl.queue_mapping), 0)
            """
        (audit, place) = try link.read(sql) { rows in
            rows.count == 1 ? (rows.number(0, 0), rows.number(0, 1)) : (0, 0)
        }
    }
}

/// Shards under raised epochs.
struct Raised: Sendable {
    let epochs: [ShardEpoch]
    let commits: [Shard: Int64]
    let unsharded: Int64

    var mark: ShardMark {
        .sum(epochs.map { (Int64(bitPattern: $0.epoch), commits[$0.shard] ?? 0) })
    }

    /// Raises the epochs of all shards of a gateway, and its number of commits of no shard by two: from then on nothing that
    /// was sent before can be committed. An earlier try may have succeeded, and its answer may have been lost.
    init(over control: Link, by gateway: Int64, in sharding: Sharding) throws(StoreError) {
        let sql = """
            WITH raised AS (UPDATE pawl.shard SET epoch = epoch + 1 WHERE owner = $1::int8
                RETURNING id, epoch, commits),
            counted AS (UPDATE pawl.gateway SET commits = commits + 2 WHERE id = $1::int8 RETURNING commits)
            SELECT r.id, r.epoch, r.commits, g.commits FROM raised AS r, counted AS g ORDER BY r.id
            """
        let rows = try control.read(sql, [.number(gateway)]) { rows in
            rows.map { ($0.number(0), $0.identifier(1), $0.number(2), $0.number(3)) }
        }
        guard let first = rows.first else { throw .takenOver() }
        let epochs = rows.map { ShardEpoch(Shard(UInt8(clamping: $0.0)), $0.1) }
        let found = Set(epochs.map(\.shard))
        if let lost = sharding.shards.first(where: { !found.contains($0) }) { throw .epochLost(lost) }
        (self.epochs, unsharded) = (epochs, first.3)
        commits = Dictionary(rows.map { (Shard(UInt8(clamping: $0.0)), $0.2) }) { $1 }
    }
}

extension StorageKey.Source {
    /// Where the key should be, in words.
    fileprivate var place: String {
        switch self {
        case .file(let path): "there is no \(path)"
        case .environment(let name): "the environment variable \(name) is not set"
        case .derived: "none was made"
        }
    }
}

extension StoreError {
    fileprivate static func otherStore(_ path: String) -> StoreError {
        .unavailable(
            """
            The directory of this gateway holds a store of its own, \(path), and store.url names a database. Nothing of \
            the one would be in the other. Remove store.url, or name another directory with --data.
            """)
    }

    fileprivate static func directoryInUse(_ directory: String, by holder: Int32?) -> StoreError {
        .locked(
            """
            The directory \(directory) is in use by another pawl\(holder.map { " (process \($0))" } ?? ""). Stop that \
            one first, or give this one a directory and a database of its own.
            """)
    }
}
