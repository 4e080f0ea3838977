// The hot path: batches of changes, one transaction each.

import GRDB
import SQLiteKit
import SQLiteQueue
import StoreBase
package import StorePort

extension SQLiteStore {
    /// A group failed after it had written something, and there is no savepoint to return to.
    private struct NeedsSavepoints: Error {}

    /// The epoch is checked without a statement: this process has the directory's lock, so nothing can raise it.
    package func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        for epoch in epochs where epoch != .only { throw .epochLost(epoch.shard) }
        guard !epochs.isEmpty else { return groups.map { _ in .epochLost(.only) } }
        return try health.committing { () throws(StoreError) in
            try translating {
                try writing { database, bounds in
                    do {
                        return try transact(groups, database, &bounds, savepoints: false)
                    } catch is NeedsSavepoints {
                        return try transact(groups, database, &bounds, savepoints: true)
                    }
                }
            }
        }
    }

    /// Runs a batch as one transaction. Savepoints cost a copy of each page that a group changes, and groups rarely
    /// fail, so a batch is tried without. If a group fails after it has written something, the transaction is rolled
    /// back and repeated with savepoints.
    private func transact(
        _ groups: [ChangeGroup], _ database: Database, _ bounds: inout BoundedTables, savepoints: Bool
    ) throws -> [StoreError?] {
        var outcomes: [StoreError?] = []
        outcomes.reserveCapacity(groups.count)
        var next = bounds
        var isComplete = false
        do {
            try database.inImmediateTransaction {
                var writer = ChangeWriter(database, groups, authenticator)
                for group in groups {
                    let missing = group.requires.lazy.compactMap { outcomes[$0] }.first
                    let failure =
                        try missing ?? write(group.changes, database, &writer, savepoints: savepoints)
                    writer.endGroup(succeeded: failure == nil)
                    outcomes.append(failure)
                }
                try writer.flush()
                try next.settle(&writer.rare, limits)
                isComplete = true
            }
        } catch {
            if isComplete { QueueWriter.supersede(database) }
            throw error
        }
        bounds = next
        return outcomes
    }

    private func write(
        _ group: [StoreChange], _ database: Database, _ writer: inout ChangeWriter, savepoints: Bool
    ) throws -> StoreError? {
        let savepoint = savepoints && group.count > 1
        if savepoint { try SQLStatement(database, "SAVEPOINT one_group").run() }
        var failure: StoreError?
        for (index, change) in group.enumerated() {
            failure = try writer.apply(change)
            guard failure != nil else { continue }
            // The failing change has written nothing; those before it have.
            if index > 0, !savepoint { throw NeedsSavepoints() }
            break
        }
        guard savepoint else { return failure }
        if failure != nil { try SQLStatement(database, "ROLLBACK TO one_group").run() }
        try SQLStatement(database, "RELEASE one_group").run()
        return failure
    }
}
