import QueueConformance
import RequestQueue
import StoreConformance
import StorePort
import TestThreads
import Testing

@testable import PostgresStore

/// The suites that every store passes, over a server of their own: one test each, so that few servers run at once.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct ConformanceTests {
    /// A store in tables of its own, for one check at a time.
    private static func run(_ database: Database, _ address: StoreAddress) throws {
        for check in StoreConformance.checks {
            do {
                try check.run { try database.openEmpty(address) }
            } catch {
                Issue.record("\(check): \(error)")
            }
        }
        for check in QueueConformance.checks {
            do { try check.run(Self.subject(database, address)) } catch { Issue.record("\(check): \(error)") }
        }
    }

    private static func subject(_ database: Database, _ address: StoreAddress) throws -> QueueConformance.Subject {
        var isFirst = true
        // The suite goes on with an earlier one now and then: it is the same as long as somebody has it.
        weak var last: DatabaseQueueStore?
        return QueueConformance.Subject(
            open: {
                if let last { return last }
                let opened = try isFirst ? database.openEmpty(address) : database.open(address)
                isFirst = false
                let store = DatabaseQueueStore(opened)
                last = store
                return store
            },
            damage: { _, token in
                let high = Int64(bitPattern: token.high)
                try database.execute("UPDATE pawl.queue_request SET form = '\\x01' WHERE token_high = \(high)")
            })
    }

    @Test func direct() throws {
        let database = try Database()
        try Self.run(database, database.address())
        try Self.history(database)
        try Self.randomChanges(database)
    }

    @Test(.enabled(if: Database.hasPooler, "PgBouncer is not installed"))
    func throughPgBouncer() throws {
        let database = try Database()
        let pooler = try Pooler(database)
        try Self.run(database, database.address(port: pooler.port, isPooled: true))
    }

    /// What was written to a backend that keeps it.
    private static func history(_ database: Database) throws {
        for check in HistoryConformance.checks {
            var isFirst = true
            do {
                try check.run {
                    defer { isFirst = false }
                    let address = try database.address()
                    return try isFirst ? database.openEmpty(address) : database.open(address)
                }
            } catch {
                Issue.record("\(check): \(error)")
            }
        }
    }

    /// Any changes at all, beside the twin in memory.
    private static func randomChanges(_ database: Database) throws {
        let store = DatabaseQueueStore(try database.openEmpty(database.address()))
        let twin = InMemoryQueueStore()
        var changes = RandomChanges(seed: 15)
        for round in 0..<40 {
            let batch = changes.batch()
            try store.commit(batch)
            try twin.commit(batch)
            if round % 20 == 19 { try QueueConformance.expectEqual(store, twin, "round \(round)") }
        }
    }
}

/// The vault's store as a store of the queue alone.
final class DatabaseQueueStore: QueueStore {
    let store: PostgresStore

    init(_ store: PostgresStore) { self.store = store }

    func commit(_ changes: [QueueChange]) throws(QueueStoreError) {
        let outcomes: [StoreError?]
        do { outcomes = try store.commit([changes.map(StoreChange.queue)]) } catch { throw QueueStoreError("\(error)") }
        if let failure = outcomes.compactMap({ $0 }).first { throw QueueStoreError(failure.message) }
    }
    func load() throws(QueueStoreError) -> QueueContents { try store.queueTables.load() }
    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        try store.queueTables.outcome(token)
    }
    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        try store.queueTables.request(token)
    }
    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest] {
        try store.queueTables.requests(states: states, after: after, limit: limit)
    }
    func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? { try store.queueTables.finishedAt(id) }
}
