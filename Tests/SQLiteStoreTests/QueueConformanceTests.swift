import QueueConformance
import RequestQueue
import StorePort
import Testing

@testable import SQLiteStore

/// The vault's store as a store of the queue alone, for the suite that every such store passes.
private final class VaultQueueStore: QueueStore {
    let store: SQLiteStore

    init(_ scratch: Scratch) throws { store = try scratch.open() }

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
