// The keys of the writes that the queue knows, so that an exchange finds a new write without asking the queue.
//
// A key is added before its write is committed, and removed when the queue has forgotten it. So the set may have a key
// too many for a moment, which costs a question to the queue, but never one too few that a client could know of: a write
// that is not in the set has not been answered, and is found by the job that would queue it again.

import RequestQueue
import Synchronization

/// The keys of all writes that wait in the queue or are remembered by it. Safe from any thread.
package final class KnownKeys: Sendable {
    private let keys = Mutex<Set<RequestToken>>([])

    package init() {}

    /// Whether the queue may know a write with this key. If false, the write is new.
    package func contains(_ key: WriteKey) -> Bool { keys.withLock { $0.contains(key.token) } }

    func insert(_ key: RequestToken) { keys.withLock { _ = $0.insert(key) } }

    func insert(_ all: some Sequence<RequestToken>) { keys.withLock { $0.formUnion(all) } }

    func remove(_ forgotten: some Collection<RequestToken>) {
        guard !forgotten.isEmpty else { return }
        keys.withLock { $0.subtract(forgotten) }
    }

    package var count: Int { keys.withLock { $0.count } }
}
