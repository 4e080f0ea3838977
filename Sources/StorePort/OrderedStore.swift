// The store as the participants of a commit loop use it. The next batch is prepared while the earlier one is being
// committed; a read in between would see the rows before that batch, while memory is behind it. So a read waits until
// the commit under way has ended. One rule for all reads is simpler than a list of what each job reads, and cannot be
// forgotten. What is hot is in memory: sessions, keys of recent messages, requests that wait.

import Synchronization

/// A store whose reads wait for the commit under way, and whose commits do not.
@usableFromInline
package final class OrderedStore: ForwardingStore {
    private let base: any Store
    package let sharding: Sharding
    /// The epochs by which the process owned its shards when it loaded the store.
    package let loadedEpochs: [ShardEpoch]
    /// A closure as the value of the mutex itself would be wrapped once more by each access, and each call of it would
    /// pass through all wrappers; a property of a structure is not wrapped.
    private struct Wait {
        var untilCommitted: (@Sendable () -> Void)?
    }

    private let wait = Mutex(Wait())

    /// - Parameter epochs: those of ``StoreContents``, as the state in memory is that of these epochs.
    package init(_ base: any Store, by epochs: [ShardEpoch]) {
        (self.base, sharding, loadedEpochs) = (base, base.sharding, epochs)
    }

    /// Sets what runs before each read; it returns when no commit is under way.
    package func beforeReads(_ wait: @escaping @Sendable () -> Void) { self.wait.withLock { $0.untilCommitted = wait } }

    /// The store behind this one, when no commit is under way. Tables that it returns have to be read at once.
    package var store: any Store {
        wait.withLock { $0.untilCommitted }?()
        return base
    }

    package func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        try base.commit(groups, by: epochs)
    }
}

/// How a commit ended.
package enum CommitOutcome: Sendable {
    /// The transaction is committed. For each group nil, or why the store rejected it.
    case done([StoreError?])
    /// Nothing is committed.
    case failed(StoreError)
    /// It is unknown whether the transaction is committed.
    case unknown(StoreError)
}

extension Store {
    /// Commits groups, and returns how that ended.
    package func outcome(of commit: PreparedCommit) -> CommitOutcome {
        do {
            return .done(try self.commit(commit.groups, by: commit.epochs))
        } catch {
            if case .unknown = error { return .unknown(error) }
            return .failed(error)
        }
    }
}
