// Reads of the queue's tables, with the errors of the queue's port. They use connections of their own, concurrently with
// the writer.

import GRDB
import RequestQueue
import SQLiteQueue
import StoreBase
import StorePort

/// The queue's tables in a store.
struct StoredQueue: QueueReading {
    let store: SQLiteStore

    func load() throws(QueueStoreError) -> QueueContents { try reading { try $0.load() } }

    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        try reading { try $0.outcome(token) }
    }

    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        try reading { try $0.request(token) }
    }

    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest] {
        try reading { try $0.requests(states: states, after: after, limit: limit) }
    }

    func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? { try reading { try $0.finishedAt(id) } }

    private func reading<Value>(_ body: (QueueReader) throws -> Value) throws(QueueStoreError) -> Value {
        do throws(StoreError) {
            return try translating(store.files.store) { try store.pool.read { try body(QueueReader($0)) } }
        } catch {
            let isDamage = if case .corrupt = error { true } else { false }
            throw QueueStoreError(error.message, isDamage: isDamage)
        }
    }
}
