// Signals that the state of the gateway has changed, for those who show it.

import Synchronization

/// Tells those who show the state that it has changed.
///
/// A signal is given after an act of an operator, and when the store fails or recovers.
/// Counters of messages and connections change too often for a signal; their readers look at intervals.
final class StateChanges: Sendable {
    private struct State {
        var last = 0
        var listeners: [Int: @Sendable () -> Void] = [:]
    }

    private let state = Mutex(State())

    /// Calls all listeners.
    func signal() {
        let listeners = state.withLock { Array($0.listeners.values) }
        for listener in listeners { listener() }
    }

    /// Adds a listener, which is called on any thread.
    ///
    /// - Returns: its number, for ``remove(_:)``.
    func add(_ listener: @escaping @Sendable () -> Void) -> Int {
        state.withLock { state in
            state.last += 1
            state.listeners[state.last] = listener
            return state.last
        }
    }

    func remove(_ number: Int) { state.withLock { $0.listeners[number] = nil } }
}
