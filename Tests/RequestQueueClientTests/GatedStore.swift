import Foundation
import RequestQueue
import Synchronization

/// A store whose commits wait until they are let go, and fail where the test says so.
final class GatedStore: QueueStore {
    private struct State {
        var isShut = false
        /// So many go through all the same.
        var passes = 0
        var fails = false
        var waiting = 0
        var commits: [Int] = []

        mutating func mayPass() -> Bool {
            guard isShut, passes > 0 else { return !isShut }
            passes -= 1
            return true
        }
    }

    private let store = InMemoryQueueStore()
    private let state = Mutex(State())

    /// The sizes of the batches that were committed.
    var commits: [Int] { state.withLock { $0.commits } }
    var isWaiting: Bool { state.withLock { $0.waiting > 0 } }
    func shut() { state.withLock { $0.isShut = true } }
    func letOneThrough() { state.withLock { $0.passes = 1 } }
    func open(failing: Bool = false) {
        state.withLock { state in
            state.isShut = false
            state.fails = failing
        }
    }

    func commit(_ changes: [QueueChange]) throws(QueueStoreError) {
        state.withLock { $0.waiting += 1 }
        while state.withLock({ !$0.mayPass() }) { Thread.sleep(forTimeInterval: 0.001) }
        let fails = state.withLock { state in
            state.waiting -= 1
            defer { state.fails = false }
            return state.fails
        }
        if fails { throw QueueStoreError("The disk is full (pretended).") }
        try store.commit(changes)
        state.withLock { $0.commits.append(changes.count) }
    }

    func load() throws(QueueStoreError) -> QueueContents { try store.load() }
    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? { try store.outcome(token) }
    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? { try store.request(token) }
    func requests(
        states: [RequestState], after: UInt64, limit: Int
    ) throws(QueueStoreError) -> [QueuedRequest] {
        try store.requests(states: states, after: after, limit: limit)
    }
    func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? { try store.finishedAt(id) }
}
