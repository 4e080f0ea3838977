// How a gateway joins a database: checks first, then the tables if there are none, then the shards.

import Foundation
import SQLiteKit
import StoreBase
import StorePort

/// A database that has passed the checks, and whose shards are not taken yet.
struct Joining {
    /// Ours: time between two beats, in milliseconds.
    static let beatInterval = 500
    /// Ours: beats in a row that may be missing before a gateway counts as stopped.
    static let patience = 5

    let writer: Link
    let reader: Link
    let control: Link
    let key: StorageKey
    let directory: String
    let lock: FileLock
    let witness: Witness
    /// A new one at each start, never a name: names come again.
    let gateway = Int64.random(in: 1...Int64.max)

    /// - Parameter acceptsRollback: for the command that does: whether a database that knows less than the witness is opened.
    /// - Throws: ``StoreError``, with the remedy.
    init(
        _ address: StoreAddress, directory: String, key source: StorageKey.Source, acceptsRollback: Bool = false
    ) throws(StoreError) {
        self.directory = directory
        let store = directory + "/pawl.sqlite"
        guard access(store, F_OK) != 0 else { throw .otherStore(store) }
        try Disk<StoreError>.makeDirectory(directory)
        lock = try FileLock(directory + "/pawl.lock") { StoreError.directoryInUse(directory, by: $0) }
        if acceptsRollback { try Witness.removeUnreadable(directory) }
        let witness = try Witness(directory: directory)
        self.witness = witness
        let name = Self.name(of: gateway)
        // After each reconnect too: the next server may be a standby that was behind.
        let check = { @Sendable (connection: Connection) throws(StoreError) in
            try PostgresStore.demandSafe(connection)
            if !acceptsRollback { try witness.demand(connection) }
        }
        (writer, reader, control) = (
            Link(address, name: name, check: check), Link(address, name: name, check: check),
            Link(address, name: name, check: check)
        )
        key = try Self.key(source, control)
    }

    /// By which the server lists the connections of a gateway.
    private static func name(of gateway: Int64) -> String { "pawl " + String(gateway, radix: 16) }

    // MARK: Tables and key

    /// Returns the key of the database, which the first start makes.
    private static func key(_ source: StorageKey.Source, _ control: Link) throws(StoreError) -> StorageKey {
        if let check = try keyCheck(control) {
            guard source.isPresent else { throw .databaseWithoutKey(source.place) }
            let key = try StorageKey.read(source)
            guard KeyCheck.matches(check, key) else { throw .otherKeyOfDatabase() }
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

    /// The key-check value of the database; nil if it has no tables of ours.
    static func keyCheck(_ control: Link) throws(StoreError) -> [UInt8]? {
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
            return check
        }
    }

    // MARK: Shards

    private struct Beating: Equatable {
        let gateway: Int64
        let name: String
        let beat: Int64
    }

    private func gateways() throws(StoreError) -> [Beating] {
        try control.read("SELECT id, name, beat FROM pawl.gateway ORDER BY id") { rows in
            rows.map { Beating(gateway: $0.number(0), name: $0.text(1), beat: $0.number(2)) }
        }
    }

    /// Waits until it is sure that none of the listed gateways runs. Counts reads and compares no clocks.
    ///
    /// - Returns: the gateways that are listed and do not run.
    private func stopped() throws(StoreError) -> [Beating] {
        let first = try gateways()
        guard !first.isEmpty else { return [] }
        for _ in 0..<Self.patience {
            Thread.sleep(forTimeInterval: Double(Self.beatInterval) / 1000)
            let now = try gateways()
            if let running = now.first(where: { !first.contains($0) }) { throw .otherGateway(running.name) }
        }
        return first
    }

    /// Takes all shards in one statement, from gateways that do not run.
    func take() throws(StoreError) -> PostgresStore.State {
        // Before the look at other gateways: one that takes the shards after that raises their epochs, and one that took them
        // before is listed.
        let seen = try control.read("SELECT id, epoch, commits FROM pawl.shard ORDER BY id") { rows in
            rows.map { ($0.number(0), $0.number(1), $0.number(2)) }
        }
        let stopped = try stopped()
        guard seen.map(\.0) == (0..<Int64(Schema.shards)).map({ $0 }) else { throw .unreadableRow("shard") }
        endBackends(of: stopped)
        let sql = """
            WITH taken AS (UPDATE pawl.shard AS s SET owner = $1::int8, epoch = s.epoch + 1
                FROM unnest($2::int8[], $3::int8[]) AS n(id, epoch) WHERE s.id = n.id AND s.epoch = n.epoch RETURNING s.id),
            joined AS (INSERT INTO pawl.gateway (id, name, beat, commits, knows)
                VALUES ($1::int8, $4::bytea, 0, 0, \(Schema.version))),
            gone AS (DELETE FROM pawl.gateway WHERE id = ANY($5::int8[]))
            SELECT 1 / (CASE WHEN (SELECT count(*) FROM taken) = \(Schema.shards) THEN 1 ELSE 0 END)::int8
            """
        let parameters: [Parameter] = [
            .number(gateway), .numbers(seen.map(\.0)), .numbers(seen.map(\.1)), .bytes(Array(Self.hostName.utf8)),
            .numbers(stopped.map(\.gateway)),
        ]
        switch control.commit(sql, parameters) {
        case .success: break
        case .failure(.refused(.divisionByZero, _)): throw .takenMeanwhile()
        // Lost or not, a new start takes them again under higher epochs.
        case .failure(let failure): throw StoreError(failure)
        }
        let shards = seen.map { Shard(UInt8(clamping: $0.0)) }
        return PostgresStore.State(
            gateway: gateway, epochs: zip(shards, seen).map { ShardEpoch($0, UInt64(bitPattern: $1.1 + 1)) },
            commits: Dictionary(zip(shards, seen.map(\.2))) { $1 }, counters: try Counters(over: control))
    }

    private static var hostName: String {
        "\(ProcessInfo.processInfo.hostName), process \(getpid())"
    }

    /// Ends the statements of gateways that do not run, so that none of them keeps a lock. Without the right to do so the
    /// shards are taken all the same, when those statements end.
    private func endBackends(of stopped: [Beating]) {
        for gateway in stopped {
            _ = try? control.read(
                """
                SELECT count(pg_terminate_backend(pid))::int8 FROM pg_stat_activity
                WHERE application_name = convert_from($1::bytea, 'UTF8') AND pid <> pg_backend_pid()
                """, [.bytes(Array(Self.name(of: gateway.gateway).utf8))]
            ) { _ in }
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
    let gateway: Int64
    let epochs: [ShardEpoch]
    let commits: [Shard: Int64]
    let unsharded: Int64

    /// Raises the epochs of all shards of a gateway, and gives it a new id: from then on nothing that was sent under the
    /// earlier ones can be committed.
    ///
    /// An earlier try may have succeeded and its answer may have been lost, so shards under the new id count too.
    init(over control: Link, from old: Int64, to new: Int64, in sharding: Sharding) throws(StoreError) {
        let sql = """
            WITH raised AS (UPDATE pawl.shard SET owner = $2::int8, epoch = epoch + 1
                WHERE owner IN ($1::int8, $2::int8) RETURNING id, epoch, commits),
            renamed AS (UPDATE pawl.gateway SET id = $2::int8 WHERE id IN ($1::int8, $2::int8) RETURNING commits)
            SELECT r.id, r.epoch, r.commits, g.commits FROM raised AS r, renamed AS g ORDER BY r.id
            """
        let rows = try control.read(sql, [.number(old), .number(new)]) { rows in
            rows.map { ($0.number(0), $0.identifier(1), $0.number(2), $0.number(3)) }
        }
        guard let first = rows.first else {
            throw .locked("Another gateway has taken over this database. This one has to stop.")
        }
        let epochs = rows.map { ShardEpoch(Shard(UInt8(clamping: $0.0)), $0.1) }
        let found = Set(epochs.map(\.shard))
        if let lost = sharding.shards.first(where: { !found.contains($0) }) { throw .epochLost(lost) }
        (gateway, self.epochs, unsharded) = (new, epochs, first.3)
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
