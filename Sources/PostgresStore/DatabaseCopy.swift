// The ends of `pawl store copy` in a database. A copy is one transaction.
//
// A database whose store was moved into a file has its tables in a schema of another name, `pawl_moved_TIME`: no gateway
// finds them any more, whatever its version, and what a stopped one sends fails.

import Protection
import SQLiteKit
package import StoreBase
package import StorePort
import Synchronization

/// A copy of a store into a database.
package enum DatabaseCopy {
    /// Ours: how long a statement of a copy may take, in milliseconds. It may sort a whole table.
    static let timeout = 600_000
    /// Ours: rows that are read at a time.
    static let part = 256

    /// Whether the database holds a store under a key.
    ///
    /// - Throws: ``StoreError/wrongKey(_:)`` if it was made under another one.
    package static func holdsStore(_ address: StoreAddress, key: StorageKey) throws(StoreError) -> Bool {
        let link = Link(address, name: "pawl store copy", check: PostgresStore.demandSafe(_:within:))
        guard let check = try Joining.keyCheck(link) else { return false }
        guard KeyCheck.matches(check.value, key) else { throw .otherKeyOfDatabase() }
        return true
    }

    /// Makes the tables in a database without any, and fills them, in one transaction.
    ///
    /// - Parameters:
    ///   - directory: of the gateway's files, locked by the caller. What its witness knows of an earlier database is removed.
    ///   - copy: fills the tables.
    ///   - whenWritten: called before the commit.
    /// - Throws: ``StoreError/unknown(_:)`` if it is not known whether the database has committed; with any other error it
    ///   holds nothing.
    package static func receive(
        _ address: StoreAddress, directory: String, key: StorageKey,
        copy: (any CopyTarget) throws(StoreError) -> StoreCopy, whenWritten: () throws(StoreError) -> Void
    ) throws(StoreError) -> StoreCopy {
        guard try !holdsStore(address, key: key) else { throw .databaseInUse() }
        let connection = try Connection.open(address, name: "pawl store copy", timeout: Link.connectTimeout)
        try PostgresStore.demandSafe(connection, within: timeout)
        let result: StoreCopy
        do throws(StatementFailure) {
            try connection.begin(timeout: timeout)
            try connection.runAll(Schema.create(keyCheck: KeyCheck.value(key)), timeout: timeout)
        } catch {
            throw StoreError(error)
        }
        result = try copy(DatabaseEnd(connection: connection))
        try FileSystem.remove(Witness.path(directory))
        try whenWritten()
        do throws(StatementFailure) {
            try connection.end(commits: true, timeout: timeout)
        } catch {
            guard case .lost(let text) = error else { throw StoreError(error) }
            throw .unknown("It is unknown whether the database has committed the copy (\(text)). Run the copy again.")
        }
        return result
    }
}

/// A store in a database that `pawl store copy` moves into a file. It owns the shards while it lasts.
package final class MovingDatabase: Sendable {
    private let store: PostgresStore
    /// The key that seals its rows.
    package var key: StorageKey { store.key }

    /// Takes the database over, as a gateway does: one that runs is a refusal.
    package init(_ address: StoreAddress, directory: String, key: StorageKey.Source) throws(StoreError) {
        store = try PostgresStore.open(address, directory: directory, key: key)
    }

    /// Calls a closure with the rows, as of one moment.
    package func read<Result>(_ body: (any CopySource) throws(StoreError) -> Result) throws(StoreError) -> Result {
        let connection = try Connection.open(
            store.writer.address, name: "pawl store copy", timeout: Link.connectTimeout)
        do throws(StatementFailure) {
            try connection.begin(isSnapshot: true, timeout: DatabaseCopy.timeout)
        } catch {
            throw StoreError(error)
        }
        return try body(DatabaseEnd(connection: connection))
    }

    /// Marks the database: its tables are in a schema of another name from now on. Only while this process owns it.
    ///
    /// - Parameter now: in milliseconds since 1970, for the name.
    /// - Returns: where the tables are, in words.
    package func setAside(now: Int64) throws(StoreError) -> String {
        let name = "\(Schema.movedPrefix)\(now)"
        let connection = try Connection.open(
            store.writer.address, name: "pawl store copy", timeout: Link.connectTimeout)
        let gateway = store.state.withLock { $0.gateway }
        do throws(StatementFailure) {
            try connection.begin(timeout: DatabaseCopy.timeout)
            let rows = try connection.run(
                "UPDATE pawl.gateway SET beat = beat + 1 WHERE id = $1::int8 RETURNING id", [.number(gateway)],
                isPrepared: false, timeout: DatabaseCopy.timeout)
            guard rows.count == 1 else {
                throw .refused(SQLState(code: ""), "another gateway has taken it over")
            }
            try connection.runAll(
                "ALTER SCHEMA pawl RENAME TO \(name)", timeout: DatabaseCopy.timeout)
            try connection.end(commits: true, timeout: DatabaseCopy.timeout)
        } catch {
            guard case .lost(let text) = error else { throw StoreError(error) }
            throw .unknown("It is unknown whether the database has been marked (\(text)). Run the copy again.")
        }
        try FileSystem.remove(Witness.path(store.directory))
        return "the schema \(name) of the database"
    }

    /// Whether a database has been marked, and holds no other store.
    package static func isSetAside(_ address: StoreAddress) throws(StoreError) -> Bool {
        try Joining.wasMoved(Link(address, name: "pawl store copy", check: PostgresStore.demandSafe(_:within:)))
    }
}

/// The tables in a transaction.
private struct DatabaseEnd: CopyTarget {
    let connection: Connection

    private func run(_ sql: String, _ parameters: [Parameter] = []) throws(StoreError) -> Rows {
        do throws(StatementFailure) {
            return try connection.run(sql, parameters, isPrepared: false, timeout: DatabaseCopy.timeout)
        } catch {
            throw StoreError(error)
        }
    }

    func read(_ table: CopiedTable, _ body: ([CopiedRow]) throws(StoreError) -> Void) throws(StoreError) {
        let columns = table.columns
        let names = columns.map { column in
            guard column.name == "place" else { return column.name }
            return "row_number() OVER (ORDER BY \(table == .audit ? "n, gateway" : "place"))"
        }
        _ = try run(
            "DECLARE copied CURSOR FOR SELECT \(names.joined(separator: ", ")) FROM pawl.\(table.rawValue)")
        while true {
            let rows = try run("FETCH \(DatabaseCopy.part) FROM copied")
            guard rows.count > 0 else { break }
            try body(
                rows.map { row in
                    columns.enumerated().map { index, column in
                        let place = Int32(index)
                        if row.rows.isNull(row.row, place) { return .null }
                        return column.kind == .number ? .number(row.number(place)) : .bytes(row.bytes(place))
                    }
                })
        }
        _ = try run("CLOSE copied")
    }

    func numbers() throws(StoreError) -> CopiedNumbers {
        let rows = try run(
            """
            SELECT greatest(max(highest_request), (SELECT coalesce(max(id), 0) FROM pawl.queue_request)),
                max(highest_message), max(highest_delivery) FROM pawl.shard
            """)
        guard rows.count == 1 else { throw .unreadableRow("shard") }
        return CopiedNumbers(request: rows.number(0, 0), message: rows.number(0, 1), delivery: rows.number(0, 2))
    }

    /// Each shard continues above all ids of before: they do not tell their shards.
    func write(_ numbers: CopiedNumbers) throws(StoreError) {
        _ = try run(
            """
            UPDATE pawl.shard SET highest_request = $1::int8, highest_message = $2::int8, highest_delivery = $3::int8
            """, [.number(numbers.request), .number(numbers.message), .number(numbers.delivery)])
    }

    func write(_ rows: [CopiedRow], _ table: CopiedTable) throws(StoreError) {
        var names = table.columns.map { $0.name == "place" && table == .audit ? "n" : $0.name }
        var values = table.columns.enumerated().map { index, column in
            column.kind == .number
                ? Parameter.numbers(rows.map { $0[index] == .null ? nil : $0[index].number })
                : Parameter.byteStrings(rows.map { $0[index] == .null ? nil : $0[index].bytes })
        }
        func add(_ name: String, _ numbers: [Int64]) {
            names.append(name)
            values.append(.numbers(numbers))
        }
        for (name, index) in table.keys {
            names.append(name)
            values.append(.byteStrings(rows.map { NameKey.of($0[index].bytes) }))
        }
        switch table {
        case .session: add("shard", try sessionShards(rows))
        case .delivery, .queueProgress: add("shard", rows.map { $0[0].number & Int64(Schema.shards - 1) })
        case .conversation:
            add(
                "shard",
                rows.map { row in
                    let id = ConversationID(AccountID(text: row[0].text), AccountID(text: row[1].text))
                    return Int64(Sharding.shared.shard(of: id).number)
                })
        case .audit: add("gateway", rows.map { _ in 0 })
        default: break
        }
        let places = values.enumerated().map { "$\($0 + 1)::\($1.kind.name)" }
        _ = try run(
            """
            INSERT INTO pawl.\(table.rawValue) (\(names.joined(separator: ", ")))
            SELECT * FROM unnest(\(places.joined(separator: ", ")))
            """, values)
    }

    /// The shards of sessions: those of the conversations of the accounts whose devices have them.
    private func sessionShards(_ rows: [CopiedRow]) throws(StoreError) -> [Int64] {
        let ids = Set(rows.flatMap { [$0[0].number, $0[1].number] }.flatMap { [$0, $0 & ~1] })
        let found = try run(
            "SELECT id, account FROM pawl.device WHERE id = ANY($1::int8[])", [.numbers(Array(ids))])
        let accounts = Dictionary(found.map { ($0.number(0), AccountID(text: $0.text(1))) }) { $1 }
        var shards: [Int64] = []
        for row in rows {
            let ends = row[..<2].compactMap { accounts[$0.number] ?? accounts[$0.number & ~1] }
            guard ends.count == 2 else { throw .unreadableRow("session") }
            // The device of a room receives, and has the other end of each session of a member.
            let rooms = ends.filter { $0.roomName != nil }
            let shard =
                rooms.isEmpty
                ? Sharding.shared.shard(of: ConversationID(ends[0], ends[1]))
                : Sharding.shared.shard(from: ends[0], to: rooms[0])
            shards.append(Int64(shard.number))
        }
        return shards
    }
}

extension CopiedTable {
    /// The columns of keys, and the columns of the names that they stand for.
    fileprivate var keys: [(String, Int)] {
        switch self {
        case .policy, .queueSession: [(self == .policy ? "account_key" : "tenant_key", 0)]
        case .device, .delivery: [("account_key", 1)]
        case .conversation: [("first_key", 0), ("second_key", 1)]
        case .record: [("name_key", 1)]
        case .evidence: [("name_key", 1), ("software_key", 2)]
        case .observation: [("sender_key", 0), ("target_key", 1), ("recipient_key", 2)]
        case .queueMapping: [("tenant_key", 1), ("type_key", 2), ("local_key", 3)]
        case .session, .tally, .audit, .contentKey, .queueRequest, .queueProgress, .queueResponse: []
        }
    }
}
