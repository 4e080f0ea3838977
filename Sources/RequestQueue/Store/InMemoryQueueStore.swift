// The in-memory twin of the driver, for tests: the same semantics, nothing on disk.

import Synchronization

/// A store in memory. Like the driver it keeps stored forms, so that it detects what cannot be encoded and decoded.
public final class InMemoryQueueStore: QueueStore {
    private struct State {
        var rows = QueueRows()
        var failures = 0
    }

    private let state = Mutex(State())

    /// An empty store.
    public init() {}

    /// Makes this number of commits fail, as on a full disk.
    package func failCommits(_ count: Int) { state.withLock { $0.failures = count } }

    /// Damages the stored form of a request.
    package func damage(_ token: RequestToken) { state.withLock { $0.rows.damage(token) } }

    /// See ``QueueStore/commit(_:)``.
    public func commit(_ changes: [QueueChange]) throws(QueueStoreError) {
        let failed = state.withLock { state in
            guard state.failures == 0 else {
                state.failures -= 1
                return true
            }
            for change in changes { state.rows.apply(change) }
            return false
        }
        if failed { throw QueueStoreError("The disk is full (pretended).") }
    }

    /// See ``QueueReading/load()``.
    public func load() throws(QueueStoreError) -> QueueContents { state.withLock { $0.rows.contents } }

    /// See ``QueueReading/outcome(_:)``.
    public func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        state.withLock { $0.rows.outcome(token) }
    }

    /// See ``QueueReading/request(_:)``.
    public func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        state.withLock { $0.rows.request(token)?.request }
    }

    /// See ``QueueReading/requests(states:after:limit:)``.
    public func requests(
        states: [RequestState], after: UInt64, limit: Int
    ) throws(QueueStoreError) -> [QueuedRequest] {
        state.withLock { $0.rows.requests(states: states, after: after, limit: limit).map(\.request) }
    }

    /// See ``QueueReading/finishedAt(_:)``.
    public func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? {
        state.withLock { $0.rows.finishedAt(id) }
    }
}
