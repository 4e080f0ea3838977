// The thread that commits and waits for the disk.

import Dispatch
import Foundation
import RequestQueue
import Synchronization

/// A thread that commits one batch after the other. After a failure it commits nothing until ``forget()`` is called.
final class QueueCommitter: Sendable {
    typealias Then = @Sendable (Result<Void, QueueStoreError>) -> Void

    private struct Work: Sendable {
        var changes: [QueueChange]
        var then: Then
    }

    private struct State {
        var work: [Work] = []
        var hasFailed = false
        var isRunning = false
        var isStopping = false
    }

    private let store: any QueueStore
    private let state = Mutex(State())
    private let signal = DispatchSemaphore(value: 0)

    init(_ store: any QueueStore) { self.store = store }

    /// Commits on its own thread, which the first call starts.
    ///
    /// - Parameter then: called on that thread, unless an earlier commit fails.
    func begin(_ changes: [QueueChange], then: @escaping Then) {
        let isNew = state.withLock { state in
            state.work.append(Work(changes: changes, then: then))
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if isNew {
            let thread = Thread { [self] in run() }
            thread.name = "pawl.queue.commit"
            thread.start()
        }
        signal.signal()
    }

    /// Drops the work behind a failed commit, and continues with later work.
    func forget() {
        state.withLock { state in
            state.work = []
            state.hasFailed = false
        }
    }

    func stop() {
        state.withLock { $0.isStopping = true }
        signal.signal()
    }

    private func run() {
        while true {
            signal.wait()
            let (work, isStopping) = state.withLock { state in
                (state.hasFailed || state.work.isEmpty ? nil : state.work.removeFirst(), state.isStopping)
            }
            if let work {
                do throws(QueueStoreError) {
                    try store.commit(work.changes)
                    work.then(.success(()))
                } catch {
                    state.withLock { $0.hasFailed = true }
                    work.then(.failure(error))
                }
            }
            if isStopping { return }
        }
    }
}
