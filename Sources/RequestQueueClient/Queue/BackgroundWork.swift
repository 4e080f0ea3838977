// Background tasks of the system: time that an application may ask for before it is suspended.

import RequestQueue
import Synchronization

/// Asks the system for time in the background.
///
/// On iOS that is `UIApplication.beginBackgroundTask(withName:expirationHandler:)` and `endBackgroundTask(_:)`.
public protocol APIBackgroundTasks: Sendable {
    /// Begins a task. Called on any thread, before the first of some requests with `APIRequestConfig.background` is
    /// sent. One task is for all that are in flight together.
    ///
    /// - Parameter expired: to be called when the system's time ends. The task is then ended before this returns.
    /// - Returns: ends the task, and is called once: after the outcomes of all these requests are stored, or during
    ///   `expired`. Nil if the system allows no task.
    func begin(expired: @escaping @Sendable () -> Void) -> (@Sendable () -> Void)?
}

/// Holds one background task while any request needs it.
final class BackgroundWork: Sendable {
    /// A request in flight.
    enum Key: Hashable, Sendable {
        /// An attempt of a queued request, by its lease.
        case attempt(UInt64)
        /// A request that is not queued.
        case direct(UInt64)
    }

    private struct State {
        var keys: Set<Key> = []
        /// Names the task of the system, or the one that is being begun; nil if there is none.
        var task: UInt64?
        var end: (@Sendable () -> Void)?
        var next: UInt64 = 0

        mutating func takeEnd() -> (@Sendable () -> Void)? {
            defer { (task, end) = (nil, nil) }
            return end
        }
    }

    private let tasks: any APIBackgroundTasks
    private let state = Mutex(State())
    private let expired: @Sendable () -> Void

    /// - Parameter expired: called after a task was ended because the system's time is over.
    init(_ tasks: any APIBackgroundTasks, expired: @escaping @Sendable () -> Void) {
        (self.tasks, self.expired) = (tasks, expired)
    }

    func begin(_ key: Key) {
        let number: UInt64? = state.withLock { state in
            state.keys.insert(key)
            guard state.task == nil else { return nil }
            state.next += 1
            state.task = state.next
            return state.next
        }
        guard let number else { return }
        // Outside of the lock: the application may call back at once.
        let end = tasks.begin { [weak self] in self?.expire(number) }
        let isOver = state.withLock { state in
            guard state.task == number else { return true }
            state.end = end
            // Refused: the next request asks again.
            if end == nil { state.task = nil }
            return false
        }
        if isOver { end?() }
    }

    func end(_ key: Key) {
        let end: (@Sendable () -> Void)? = state.withLock { state in
            guard state.keys.remove(key) != nil, state.keys.isEmpty else { return nil }
            return state.takeEnd()
        }
        end?()
    }

    private func expire(_ number: UInt64) {
        let (isCurrent, end) = state.withLock { state -> (Bool, (@Sendable () -> Void)?) in
            guard state.task == number else { return (false, nil) }
            return (true, state.takeEnd())
        }
        end?()
        if isCurrent { expired() }
    }

    /// Ends the task, whatever is in flight.
    func close() {
        let end = state.withLock { state in
            state.keys = []
            return state.takeEnd()
        }
        end?()
    }
}
