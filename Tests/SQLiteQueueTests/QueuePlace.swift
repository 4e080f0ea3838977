import GRDB
import GRDBSQLite
import Glibc
import PeerKit
import QueueConformance
import RequestQueue
import SQLiteKit
import Testing

@testable import SQLiteQueue

/// A directory for one queue. It goes when the test ends.
final class QueuePlace {
    private let scratch: ScratchDirectory

    init() throws { scratch = try ScratchDirectory() }

    var directory: String { scratch.file("q") }
    var path: String { directory + "/queue.sqlite" }

    func open() throws(QueueStoreError) -> SQLiteQueueStore { try SQLiteQueueStore(path: path) }

    /// What opening is refused with.
    func refusal() -> QueueStoreError? {
        do throws(QueueStoreError) {
            _ = try open()
            return nil
        } catch {
            return error
        }
    }

    /// The error of a damaged queue.
    func damaged(_ damage: Damage) -> QueueStoreError { .corrupt(QueueStoreError.damaged(path, damage)) }

    /// Changes the file behind the store's back.
    func edit(_ sql: String) {
        var handle: OpaquePointer?
        #expect(sqlite3_open(path, &handle) == SQLITE_OK)
        #expect(sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK, "\(String(cString: sqlite3_errmsg(handle)))")
        sqlite3_close(handle)
    }

    /// For the suite that every driver passes.
    var subject: QueueConformance.Subject {
        QueueConformance.Subject(open: Reopening(self).open) { store, token in
            let store = try #require(store as? SQLiteQueueStore)
            try store.execute(
                "UPDATE queue_request SET form = x'01' WHERE token_high = \(Int64(bitPattern: token.high))")
        }
    }
}

/// Opens a store again and again. The suite goes on with an earlier one now and then, so it is the same as long as somebody has
/// it; a driver that is asked for what it does not have on the disk is found by ``RandomTests``.
final class Reopening {
    private let place: QueuePlace
    private weak var store: SQLiteQueueStore?

    init(_ place: QueuePlace) { self.place = place }

    func open() throws -> any QueueStore {
        if let store { return store }
        let opened = try place.open()
        store = opened
        return opened
    }
}

extension SQLiteQueueStore {
    func execute(_ sql: String) throws { try pool.writeWithoutTransaction { try $0.execute(sql: sql) } }

    func number(_ sql: String) throws -> Int? {
        try pool.writeWithoutTransaction { try Int.fetchOne($0, sql: sql) }
    }

    /// How SQLite would go about a query.
    func plan(_ sql: String) throws -> [String] {
        try pool.read { database in
            try Row.fetchAll(database, sql: "EXPLAIN QUERY PLAN \(sql)").map { $0["detail"] }
        }
    }
}

/// Runs a command of the system; says whether it succeeded.
@discardableResult
func run(_ command: String...) -> Bool {
    (try? ChildProcess(command[0], Array(command.dropFirst())).waitForExit()) == .exited(0)
}

extension QueuePlace {
    /// Makes the file by hand.
    func make(_ sql: String) throws {
        mkdir(directory, 0o700)
        edit(sql)
    }
}

extension SQLiteQueueStore {
    /// The schema: each object's text with its comments taken out and its spaces evened out.
    func objects() throws -> [String] {
        try pool.read { database in
            try String.fetchAll(database, sql: "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        }.map { text in
            text.split { " \n".contains($0) }.joined(separator: " ").replacing("( ", with: "(").replacing(
                " )", with: ")")
        }
    }
}
