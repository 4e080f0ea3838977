// A store in a file that `pawl store copy` moves into a database.
//
// The file is set aside as `pawl.sqlite.moved` before the database commits the copy, so that no gateway can start on it
// any more: two gateways with one ratchet state would use keys twice. A crash between the two leaves the file aside and
// an empty database; the next `pawl store copy` puts it back and copies again.

import GRDB
import SQLiteKit
package import StoreBase
package import StorePort
import Synchronization

/// A store that is being moved: open, and locked against gateways.
package final class MovingStore: CopySource {
    /// The key that seals its rows.
    package let key: StorageKey
    private let files: StoreFiles
    private let lock: FileLock
    private let pool: DatabasePool
    /// A closed pool must not be used again.
    private let isClosed = Atomic<Bool>(false)

    /// Opens the store of a directory, and brings it to the newest schema.
    ///
    /// - Throws: ``StoreError``, as for opening; `unavailable` if it belongs to a sidecar.
    package init(directory: String, key source: StorageKey.Source) throws(StoreError) {
        files = StoreFiles(directory)
        guard FileSystem.exists(files.store) else { throw .noStore(files) }
        let opening = try Opening(files, source, StoreLimits())
        try opening.refuseRollback()
        (key, lock) = (opening.key, opening.lock)
        pool = try opening.connect().pool
        let isSidecar = try translating(files.store) {
            try pool.read { database in
                try Bool.fetchOne(
                    database, sql: "SELECT EXISTS (SELECT 1 FROM record WHERE kind = ? AND name = ?)",
                    arguments: [RecordKind.ownDevices.rawValue, RecordRow.network]) ?? false
            }
        }
        guard !isSidecar else { throw .sidecarsStore(files) }
    }

    package func read(
        _ table: CopiedTable, _ body: ([CopiedRow]) throws(StoreError) -> Void
    ) throws(StoreError) {
        try withoutActuallyEscaping(body) { (body) throws(StoreError) in
            try translating(files.store) { try pool.read { try $0.copiedRows(of: table, body) } }
        }
    }

    package func numbers() throws(StoreError) -> CopiedNumbers {
        try translating(files.store) { try pool.read { try $0.copiedNumbers() } }
    }

    /// Sets the file aside: no gateway opens it from now on. Nothing is read afterwards.
    package func setAside() throws(StoreError) {
        close()
        guard FileSystem.size(of: files.store + "-wal") == 0 else { throw .logStays(files) }
        for path in StoreFiles.database(files.store).dropFirst() { try FileSystem.remove(path) }
        try FileSystem.move(files.store, to: files.moved)
        try FileSystem.syncDirectory(files.directory)
    }

    /// Ends a move: if somebody gives the file its name back, it is refused as an older state.
    package func finish() throws(StoreError) { try SetAsideStore.finish(files) }

    /// Gives the file its name back, if the copy was not committed.
    package func putBack() throws(StoreError) { try SetAsideStore.putBack(files) }

    private func close() {
        if !isClosed.exchange(true, ordering: .sequentiallyConsistent) { Connections.close(pool) }
    }

    deinit { close() }
}

/// A store that was set aside by ``MovingStore``.
package enum SetAsideStore {
    /// Whether the store of a directory is set aside, and no other one is in its place.
    package static func isThere(directory: String) -> Bool {
        let files = StoreFiles(directory)
        return !FileSystem.exists(files.store) && FileSystem.exists(files.moved)
    }

    /// Gives the file its name back, after a copy that was cut short before the database had committed it.
    package static func putBack(directory: String) throws(StoreError) {
        let files = StoreFiles(directory)
        let lock = try FileLock(files)
        defer { withExtendedLifetime(lock) {} }
        try putBack(files)
    }

    /// Ends a move that was cut short after the database had committed it.
    package static func finish(directory: String) throws(StoreError) {
        let files = StoreFiles(directory)
        let lock = try FileLock(files)
        defer { withExtendedLifetime(lock) {} }
        try finish(files)
    }

    fileprivate static func putBack(_ files: StoreFiles) throws(StoreError) {
        try FileSystem.move(files.moved, to: files.store)
        try FileSystem.syncDirectory(files.directory)
    }

    fileprivate static func finish(_ files: StoreFiles) throws(StoreError) {
        let examined = try StoreExamination(files.moved, StoreLimits())
        try Generation.write(examined.generation + 1, files)
    }
}

/// A store in a file that `pawl store copy` makes from a database.
///
/// It becomes `pawl.sqlite` after the database has been marked: a crash in between leaves `pawl.sqlite.copied`, which is
/// whole, and the next `pawl store copy` gives it its name.
package struct ArrivingStore {
    private let files: StoreFiles
    private let key: StorageKey

    /// - Parameter directory: locked by the caller, which has found no store there.
    package init(directory: String, key: StorageKey) { (files, self.key) = (StoreFiles(directory), key) }

    /// Whether an earlier copy is whole and waits for its name.
    private var isWhole: Bool { FileSystem.exists(files.copied) }

    /// Makes the file.
    ///
    /// - Parameter copy: fills it.
    package func fill(
        _ copy: (any CopyTarget) throws(StoreError) -> StoreCopy
    ) throws(StoreError) -> StoreCopy {
        try FileSystem.remove(files.copied)
        let generation = try Generation.read(files) ?? 0
        let new = try NewDatabase<StoreError>(files.copied + ".new")
        let key = key
        let result = try withoutActuallyEscaping(copy) { (copy) throws(StoreError) in
            try new.fill(Opening.configuration(StoreLimits())) { database in
                try Schema.migrate(database, key)
                let statement = try SQLStatement(
                    database, "INSERT INTO meta (id, key_check, generation) VALUES (1, ?1, ?2)")
                statement.bind(generation, at: 2)
                try statement.run(bytes: key.check(schema: Schema.known), at: 1)
                var result: StoreCopy?
                try database.inTransaction(.immediate) {
                    result = try copy(Target(database: database, path: files.store))
                    return .commit
                }
                guard let result else { throw StoreError.unavailable("The copy was not made.") }
                return result
            }
        }
        try new.publish(at: files.copied)
        return result
    }

    /// Ends a copy that was cut short after the database had been marked.
    package static func finish(directory: String, key source: StorageKey.Source) throws(StoreError) {
        let store = try ArrivingStore(directory: directory, key: StorageKey.read(source))
        let lock = try FileLock(store.files)
        defer { withExtendedLifetime(lock) {} }
        guard store.isWhole else { throw .noStore(store.files) }
        try store.publish()
    }

    /// Gives a whole copy its name.
    package func publish() throws(StoreError) {
        try StoreExamination(files.copied, StoreLimits()).demand(key, files.copied)
        try FileSystem.move(files.copied, to: files.store)
        try FileSystem.syncDirectory(files.directory)
    }

    private struct Target: CopyTarget {
        let database: Database
        let path: String

        func read(_ table: CopiedTable, _ body: ([CopiedRow]) throws(StoreError) -> Void) throws(StoreError) {
            try withoutActuallyEscaping(body) { (body) throws(StoreError) in
                try translating(path) { try database.copiedRows(of: table, body) }
            }
        }

        func numbers() throws(StoreError) -> CopiedNumbers {
            try translating(path) { try database.copiedNumbers() }
        }

        func write(_ rows: [CopiedRow], _ table: CopiedTable) throws(StoreError) {
            try translating(path) {
                let names = table.columns.map { $0.name == "place" ? "id" : $0.name }
                let values = table.columns.enumerated().map { index, column in
                    column.kind == .text ? "CAST(?\(index + 1) AS TEXT)" : "?\(index + 1)"
                }
                let statement = try SQLStatement(
                    database,
                    """
                    INSERT INTO \(table.rawValue) (\(names.joined(separator: ", "))) VALUES (\(values.joined(separator: ", ")))
                    """)
                for row in rows {
                    for (index, value) in row.enumerated() {
                        switch value {
                        case .null: statement.bindNothing(at: Int32(index + 1))
                        case .number(let number): statement.bind(number, at: Int32(index + 1))
                        case .bytes(let bytes): statement.bind(bytes, at: Int32(index + 1))
                        }
                    }
                    try statement.run()
                }
            }
        }

        func write(_ numbers: CopiedNumbers) throws(StoreError) {
            try translating(path) {
                try database.execute(
                    sql: "UPDATE meta SET highest_request = ?, highest_delivery = ?",
                    arguments: [numbers.message, numbers.delivery])
                try database.execute(sql: "UPDATE queue_meta SET highest = ?", arguments: [numbers.request])
            }
        }
    }
}

extension Database {
    /// Ours: rows and bytes that are passed on at a time.
    private static var partRows: Int { 256 }
    private static var partBytes: Int { 1 << 20 }

    /// Reads the rows of a table.
    fileprivate func copiedRows(of table: CopiedTable, _ body: ([CopiedRow]) throws -> Void) throws {
        let columns = table.columns
        var part: [CopiedRow] = []
        var bytes = 0
        _ = try SQLStatement(self, table.selection).rows { row in
            var values: CopiedRow = []
            values.reserveCapacity(columns.count)
            for (index, column) in columns.enumerated() {
                let place = Int32(index)
                if row.isNull(place) {
                    values.append(.null)
                } else if column.kind == .number {
                    values.append(.number(row.number(place)))
                } else {
                    let value = row.bytes(place)
                    bytes += value.count
                    values.append(.bytes(value))
                }
            }
            part.append(values)
            guard part.count >= Self.partRows || bytes >= Self.partBytes else { return }
            try body(part)
            part.removeAll(keepingCapacity: true)
            bytes = 0
        }
        if !part.isEmpty { try body(part) }
    }

    fileprivate func copiedNumbers() throws -> CopiedNumbers {
        let rows = try SQLStatement(
            self,
            """
            SELECT max((SELECT highest FROM queue_meta), coalesce((SELECT max(id) FROM queue_request), 0)),
                highest_request, highest_delivery FROM meta WHERE id = 1
            """
        ).rows { CopiedNumbers(request: $0.number(0), message: $0.number(1), delivery: $0.number(2)) }
        guard let numbers = rows.first else { throw StoreError.corrupt("The store has lost its highest ids.") }
        return numbers
    }
}

extension CopiedTable {
    /// The statement that reads the columns.
    fileprivate var selection: String {
        let places = columns.map { column in
            switch column.kind {
            case .number: column.name == "place" ? "row_number() OVER (ORDER BY id)" : column.name
            // The bytes as they are.
            case .text: "CAST(\(column.name) AS BLOB)"
            case .bytes: column.name
            }
        }
        // Of two rows on one entity the later counts, so that alone is copied.
        let rows =
            self == .queueMapping
            ? """
            (SELECT max(id) AS id, tenant, type, local, remote, learnt_at FROM queue_mapping GROUP BY tenant, type, local)
            """ : rawValue
        return "SELECT \(places.joined(separator: ", ")) FROM \(rows)"
    }
}
