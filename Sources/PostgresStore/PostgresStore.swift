// The store in a PostgreSQL database. Secrets in the rows are sealed before they get here.
//
// The database may have several gateways, of which one serves at a time: it owns all 256 shards, and each of its commits
// checks and locks the epochs of the shards that it touches. The others stand by (`Membership`), and take over what a
// gateway has left that does not run any more; if that one runs again after all, its commits fail.
//
// Connections: one writes and reads what the writer needs, one reads for reports, one is for the beat only, so that a
// long report or a slow commit does not stop it.
//
//     DIR/storage.key            the storage key, unless it is kept elsewhere
//     DIR/deliveries.journal     see DeliveryJournal.swift of SQLiteStore
//     DIR/database.witness       what the database has acknowledged; see Witness.swift
//     DIR/pawl.lock              held while a process uses the directory

import Foundation
package import SQLiteKit
package import StoreBase
package import StorePort
import Synchronization

/// A store in a database. It gives its shards back when the last reference is released.
package final class PostgresStore: Store {
    /// What changes with commits and with ownership.
    struct State {
        var gateway: Int64
        /// The epochs by which this process owns the shards.
        var epochs: [ShardEpoch]
        /// The number of the last commit of each shard, and of the commits that touched none.
        var commits: [Shard: Int64]
        var unshardedCommits: Int64 = 0
        var counters: Counters
        /// Upper bounds of the sizes of the bounded tables.
        var evidence = Int.max / 2
        var observations = Int.max / 2
        var doubt: PostgresStore.Doubt?

        /// Counts a commit.
        mutating func count(_ committer: CommitStatement.Committer, _ witness: Witness) {
            if committer.epochs.isEmpty {
                unshardedCommits += 1
                witness.note(unshardedCommits, of: nil)
            }
            for epoch in committer.epochs {
                let number = (commits[epoch.shard] ?? 0) + 1
                commits[epoch.shard] = number
                witness.note(number, of: epoch.shard)
            }
        }

        /// Who commits changes of shards.
        func committer(_ epochs: [ShardEpoch]) -> CommitStatement.Committer {
            CommitStatement.Committer(
                gateway: gateway, epochs: epochs, commits: epochs.map { commits[$0.shard] ?? 0 },
                unsharded: unshardedCommits)
        }
    }

    /// The key that seals the rows of this store.
    package let key: StorageKey
    /// The directory of the files beside the database.
    package let directory: String
    /// Whether commits succeed.
    package let health = StoreHealth("the database")
    package let sharding = Sharding.shared

    let writer: Link
    let reader: Link
    let limits: StoreLimits
    let authenticator: RowAuthenticator
    let state: Mutex<State>
    let witness: Witness
    package let membership: Membership

    /// Opens the store of a database; the first start makes its tables and the key.
    ///
    /// - Parameter directory: of the key, the journal and the lock. It must not hold a store of its own.
    /// - Throws: ``StoreError``, with the remedy; `locked` if another gateway serves.
    package static func open(
        _ address: StoreAddress, directory: String, key source: StorageKey.Source, limits: StoreLimits = StoreLimits()
    ) throws(StoreError) -> PostgresStore {
        try PostgresStore(.join(address, directory: directory, key: source), limits)
    }

    /// Opens the store of a database whose shards a gateway owns; waits until it does.
    ///
    /// - Throws: ``StoreError``; `locked` if another gateway serves. The gateway has left then.
    package init(_ membership: Membership, _ limits: StoreLimits) throws(StoreError) {
        try membership.refuseOthers()
        let joining = membership.joining
        var state = try membership.own()
        do throws(StoreError) {
            // Not over the beat's connection: this may take longer than a beat may be late.
            state.counters = try Counters(over: joining.writer)
        } catch {
            membership.leave()
            throw error
        }
        (key, directory, witness) = (joining.key, joining.directory, joining.witness)
        (writer, reader, self.limits) = (joining.writer, joining.reader, limits)
        authenticator = RowAuthenticator(joining.key)
        self.state = Mutex(state)
        self.membership = membership
    }

    deinit { leave() }

    /// Gives the shards back, so that the next gateway does not wait for a beat. Nothing can be committed afterwards.
    package func leave() { membership.leave() }

    /// Commits a change without effect, to find out whether the database accepts it.
    package func probe() {
        let gateway = state.withLock { $0.doubt == nil ? $0.gateway : nil }
        guard let gateway else { return }
        try? health.committing { () throws(StoreError) in
            try writer.read("SELECT id FROM pawl.gateway WHERE id = $1::int8", [.number(gateway)]) { _ in }
        }
    }

    // MARK: Ownership

    /// Whether another gateway has removed the row of this one, as it does when it takes the shards; false if the database
    /// gives no answer in the time of a beat.
    package func isTakenOver() -> Bool {
        let isMember = writer.exchange(
            "SELECT id FROM pawl.gateway WHERE id = $1::int8", [.number(membership.joining.gateway)],
            timeout: ClusterStatements.beatTimeout, connectTimeout: ClusterStatements.connectTimeout
        ) { $0.count > 0 }
        return (try? isMember.get()) == false
    }

    /// The epochs by which this process owns the shards, which are the present ones until another gateway takes over.
    package func epochs() throws(StoreError) -> [ShardEpoch] { state.withLock { $0.epochs } }

    /// The epochs in the database.
    func storedEpochs() throws(StoreError) -> [ShardEpoch] {
        try writer.read("SELECT id, epoch FROM pawl.shard ORDER BY id") { rows in
            rows.map { ShardEpoch(Shard(UInt8(clamping: $0.number(0))), $0.identifier(1)) }
        }
    }

    /// Settles a commit with an unknown outcome: raises the epochs of all shards first, so that what is under way can no
    /// longer be committed, and then compares the numbers of the last commits. The caller has to load the store again.
    ///
    /// - Returns: whether the commit took place; nil if no outcome was unknown.
    /// - Throws: ``StoreError/epochLost(_:)`` or ``StoreError/locked(_:)`` if another gateway has taken over meanwhile.
    package func settle() throws(StoreError) -> Bool? {
        try state.withLock { (state) throws(StoreError) in try settle(&state) }
    }

    private func settle(_ state: inout State) throws(StoreError) -> Bool? {
        guard let doubt = state.doubt else { return nil }
        writer.close()
        let raised = try membership.raise(in: sharding)
        let committer = doubt.committer
        let shards = committer.epochs.map(\.shard)
        let isCommitted: Bool
        if shards.isEmpty {
            // Raising adds two.
            isCommitted = (raised.unsharded - state.unshardedCommits) % 2 == 1
        } else {
            switch shards.map({ (raised.commits[$0] ?? 0) - (state.commits[$0] ?? 0) }) {
            case let steps where steps.allSatisfy { $0 == 0 }: isCommitted = false
            case let steps where steps.allSatisfy { $0 == 1 }: isCommitted = true
            default: throw .corrupt("The numbers of the database's last commits are not those of this program.")
            }
        }
        (state.epochs, state.commits) = (raised.epochs, raised.commits)
        (state.unshardedCommits, state.doubt) = (raised.unsharded, nil)
        witness.note(state)
        // Numbers that the commit may have used are not used again.
        state.counters = try Counters(over: writer)
        return isCommitted
    }

    /// The settings of the server without which a commit is not durable, checked on each connection.
    ///
    /// - Parameter timeout: in milliseconds.
    static func demandSafe(_ connection: Connection, within timeout: Int) throws(StoreError) {
        let sql = """
            SELECT CASE WHEN current_setting('fsync') = 'off' THEN 1 ELSE 0 END::int8,
                CASE WHEN current_setting('synchronous_commit') = 'off' THEN 1 ELSE 0 END::int8,
                CASE WHEN current_setting('full_page_writes') = 'off' THEN 1 ELSE 0 END::int8,
                CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END::int8, current_setting('server_version_num')::int8
            """
        let rows: Rows
        do throws(StatementFailure) {
            rows = try connection.run(sql, [], isPrepared: false, timeout: timeout)
        } catch {
            throw StoreError(error)
        }
        guard rows.count == 1 else { throw .unavailable("The database did not tell its settings.") }
        let consequences = [
            ("fsync", "what it commits is lost when its machine stops"),
            ("synchronous_commit", "what it has just committed is lost when it stops"),
            ("full_page_writes", "its files may be damaged when its machine stops"),
        ]
        for (column, setting) in consequences.enumerated() where rows.number(0, Int32(column)) == 1 {
            throw .unsafeServer(setting.0, consequence: setting.1)
        }
        guard rows.number(0, 3) == 0 else { throw .standby() }
        guard rows.number(0, 4) >= 140_000 else { throw .olderServer(rows.number(0, 4)) }
    }
}

/// The key-check value of a database.
enum KeyCheck {
    private static let text = Array("pawl storage key check postgresql 1".utf8)

    static func value(_ key: StorageKey) -> [UInt8] { key.check(text) }

    static func matches(_ value: [UInt8], _ key: StorageKey) -> Bool { key.matches(check: value, text) }
}
