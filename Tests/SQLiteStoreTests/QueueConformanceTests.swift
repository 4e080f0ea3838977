import GRDB
import QueueConformance
import RequestQueue
import SQLiteQueue
import StorePort
import Testing

@testable import SQLiteStore

/// The vault's store as a store of the queue alone, for the suite that every such store passes.
private final class VaultQueueStore: QueueStore {
    let store: SQLiteStore

    init(_ scratch: Scratch) throws { store = try scratch.open() }

    private func translating<Value>(_ body: () throws -> Value) throws(QueueStoreError) -> Value {
        do { return try body() } catch { throw QueueStoreError("\(error)") }
    }

    private func reading<Value>(_ body: (QueueReader) throws -> Value) throws(QueueStoreError) -> Value {
        try translating { try store.pool.read { try body(QueueReader($0)) } }
    }

    func commit(_ changes: [QueueChange]) throws(QueueStoreError) {
        let outcomes = try translating { try store.commit([changes.map(StoreChange.queue)]) }
        if let failure = outcomes.compactMap({ $0 }).first { throw QueueStoreError(failure.message) }
    }
    func load() throws(QueueStoreError) -> QueueContents { try translating { try store.queueContents() } }
    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        try reading { try $0.outcome(token) }
    }
    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        try reading { try $0.request(token) }
    }
    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest] {
        try reading { try $0.requests(states: states, after: after, limit: limit) }
    }
}

/// What the queue is promised by a file of its own it is promised beside the vault's rows.
@Suite struct QueueConformanceTests {
    @Test(arguments: QueueConformance.checks)
    func besideTheVault(_ check: QueueConformance.Check) throws {
        let scratch = Scratch()
        // The suite goes on with an earlier one now and then: it is the same as long as somebody has it.
        weak var last: VaultQueueStore?
        let subject = QueueConformance.Subject(
            open: {
                if let last { return last }
                let store = try VaultQueueStore(scratch)
                last = store
                return store
            },
            damage: { store, token in
                let store = try #require(store as? VaultQueueStore)
                try store.store.execute(
                    "UPDATE queue_request SET form = x'01' WHERE token_high = \(Int64(bitPattern: token.high))")
            })
        try check.run(subject)
    }
}
