// Notifies connections of a change to a table that all connections share.

import Synchronization

/// Connections to notify at once. A connection without traffic would not notice the change.
package final class ChangeListeners: Sendable {
    private let listeners = Mutex<[ConnectionID: @Sendable () -> Void]>([:])

    init() {}

    /// - Parameter listener: called on any thread, after the change.
    package func add(_ connection: ConnectionID, _ listener: @escaping @Sendable () -> Void) {
        listeners.withLock { $0[connection] = listener }
    }

    package func remove(_ connection: ConnectionID) { listeners.withLock { $0[connection] = nil } }

    package func notify() {
        for listener in listeners.withLock({ Array($0.values) }) { listener() }
    }
}
