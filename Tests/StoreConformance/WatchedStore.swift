// A store that is looked at while a vault uses it, and that fails when it is told to.

package import Envelope
package import StorePort
import Synchronization

/// Any store, watched.
package final class WatchedStore: ForwardingStore {
    private struct State {
        var keyReads = 0
        var failsCommits = false
        var failsReads = false
        var beforeCommits: (@Sendable () throws(StoreError) -> Void)?
    }

    package let store: any Store
    private let state = Mutex(State())

    package init(_ store: any Store) { self.store = store }

    /// How often keys were asked for.
    package var keyReads: Int { state.withLock { $0.keyReads } }

    package var failsCommits: Bool {
        get { state.withLock { $0.failsCommits } }
        set { state.withLock { $0.failsCommits = newValue } }
    }

    package var failsReads: Bool {
        get { state.withLock { $0.failsReads } }
        set { state.withLock { $0.failsReads = newValue } }
    }

    /// Sets what runs before each commit, such as a wait; the commit fails if it throws.
    package func beforeCommits(_ body: @escaping @Sendable () throws(StoreError) -> Void) {
        state.withLock { $0.beforeCommits = body }
    }

    package func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        try state.withLock({ $0.beforeCommits })?()
        if failsCommits { throw .unavailable("The disk is full (pretended).") }
        return try store.commit(groups, by: epochs)
    }

    package func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow] {
        if failsReads { throw .unavailable("The disk does not answer (pretended).") }
        state.withLock { $0.keyReads += 1 }
        return try store.contentKeys(of: messages)
    }
}
