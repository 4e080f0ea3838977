// The hot path: batches of changes, one statement each.

import SQLiteKit
import StoreBase
package import StorePort
import Synchronization

extension PostgresStore {
    /// What is not known after a commit whose answer was lost.
    struct Doubt {
        let cause: String
        let committer: CommitStatement.Committer
    }

    /// Ours: how often a commit is repeated that the server has refused because of another transaction.
    private static let attempts = 5

    package func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        let result = state.withLock { state -> Result<[StoreError?], StoreError> in
            do throws(StoreError) {
                if let doubt = state.doubt { throw Self.unknown(doubt.cause) }
                return .success(try commit(groups, epochs, &state))
            } catch {
                return .failure(error)
            }
        }
        return try health.committing { () throws(StoreError) in try result.get() }
    }

    private static func unknown(_ cause: String) -> StoreError {
        .unknown("It is unknown whether the database has committed a transaction: \(cause).")
    }

    private func commit(
        _ groups: [ChangeGroup], _ epochs: [ShardEpoch], _ state: inout State
    ) throws(StoreError) -> [StoreError?] {
        let named = Set(epochs.map(\.shard))
        let failures = groups.map { group in
            group.unnamedShard(in: sharding, named: named).map { StoreError.epochLost($0) } ?? misplaced(group)
        }
        let committer = state.committer(epochs)
        let needs = BatchNeeds(zip(groups, failures).filter { $1 == nil }.map(\.0))
        var reads = try needs.isEmpty ? BatchReads() : BatchReads(needs, writer)
        // Fences are only read if one was refused.
        while true {
            var batch = Batch(reads, in: sharding, after: state.counters)
            let outcomes = batch.apply(groups, failures)
            let statement = CommitStatement(batch, by: committer, authenticator)
            guard !statement.isEmpty else {
                if let lost = try lostShard(of: epochs) { throw .epochLost(lost) }
                return outcomes
            }
            switch try run(statement, committer, &state) {
            case .committed:
                state.counters = batch.counters
                state.count(committer, witness)
                evict(after: batch, &state)
                return outcomes
            case .refused:
                // A server behind a pooler may have changed without a reconnect here.
                let witness = witness
                try writer.use { connection throws(StoreError) in try witness.demand(connection) }
                if let lost = try lostShard(of: epochs) { throw .epochLost(lost) }
                try demandOwnership(state)
                guard reads.fences == nil else {
                    throw .corrupt("The database refused a commit whose epochs and fences are right.")
                }
                try reads.readFences(groups, writer)
            }
        }
    }

    private enum Ending { case committed, refused }

    /// Runs a commit's statement. A connection that was closed before is made anew; what the server has rolled back because
    /// of another transaction is repeated.
    private func run(
        _ statement: CommitStatement, _ committer: CommitStatement.Committer, _ state: inout State
    ) throws(StoreError) -> Ending {
        var failed = 0
        while true {
            switch writer.commit(statement.sql, statement.parameters) {
            case .success: return .committed
            case .failure(.refused(.divisionByZero, _)): return .refused
            case .failure(.lost(let cause)):
                state.doubt = Doubt(cause: cause, committer: committer)
                throw Self.unknown(cause)
            case .failure(let failure):
                failed += 1
                let isRepeated =
                    switch failure {
                    case .refused(let code, _): code.isTransient && failed < Self.attempts
                    case .unreachable: failed < 2
                    case .lost, .own: false
                    }
                guard isRepeated else { throw StoreError(failure) }
            }
        }
    }

    /// The first named shard whose epoch in the database is another one; nil if there is none.
    private func lostShard(of epochs: [ShardEpoch]) throws(StoreError) -> Shard? {
        guard !epochs.isEmpty else { return nil }
        let present = Set(try storedEpochs())
        return epochs.first { !present.contains($0) }?.shard
    }

    /// - Throws: ``StoreError/locked(_:)`` if another gateway has removed the row of this one.
    private func demandOwnership(_ state: State) throws(StoreError) {
        let isThere = try writer.read("SELECT id FROM pawl.gateway WHERE id = $1::int8", [.number(state.gateway)]) {
            $0.count > 0
        }
        guard isThere else { throw .takenOver() }
        // A setting that another client has left on a server connection of a pooler.
        try writer.use { connection throws(StoreError) in
            try Self.demandSafe(connection, within: Link.statementTimeout)
        }
    }

    /// Why a group is not where its rows are, as far as their keys tell; nil if it is.
    private func misplaced(_ group: ChangeGroup) -> StoreError? {
        for change in group.changes {
            let own = change.placement(in: sharding)
            switch (group.placement, own) {
            case (_, .unsharded), (.several, _): continue
            case (.shard(let shard), .shard(let other)) where other == shard: continue
            case (.shard, nil):
                if case .rare(let change) = change, change.record != nil { continue }
            default: break
            }
            return .corrupt("A change is in \(own.map { "\($0)" } ?? "no shard"), and its group in \(group.placement).")
        }
        return nil
    }

    // MARK: Bounded tables

    /// Evicts the oldest rows of a bounded table that may be full, in a statement of its own: rows in it are of no shard.
    private func evict(after batch: Batch, _ state: inout State) {
        state.evidence += batch.evidence.count
        state.observations += batch.observations.count
        if !batch.evidence.isEmpty, state.evidence > limits.evidence {
            state.evidence = evict(
                "evidence", key: "verified, name_key, software_key", order: "verified, last_seen",
                limit: limits.evidence)
        }
        if !batch.observations.isEmpty, state.observations > limits.observations {
            state.observations = evict(
                "observation", key: "sender_key, target_key, recipient_key", order: "last_seen",
                limit: limits.observations)
        }
    }

    /// - Returns: an upper bound of the number of rows.
    private func evict(_ table: String, key: String, order: String, limit: Int) -> Int {
        do throws(StoreError) {
            let rows = try writer.read("SELECT count(*)::int8 FROM pawl.\(table)") { rows in
                rows.count == 1 ? rows.number(0, 0) : 0
            }
            guard rows > Int64(limit) else { return Int(rows) }
            let excess = Int(rows) - limit + limit / 16
            _ = try writer.read(
                """
                DELETE FROM pawl.\(table) WHERE (\(key)) IN (SELECT \(key) FROM pawl.\(table) ORDER BY \(order)
                LIMIT $1::int8)
                """, [.number(Int64(excess))]
            ) { _ in }
            return Int(rows) - excess
        } catch {
            // The next commit tries again.
            return .max / 2
        }
    }
}
