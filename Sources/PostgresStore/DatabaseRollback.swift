// Accepts a database that was rolled back: the ratchets have advanced further than it knows, and continuing would use keys
// twice. So sessions are removed, and set up anew inside the vault. What `SQLiteStore` does for a file.

import DeviceDirectory
import RequestQueue
import SQLiteKit
import SQLiteQueue
package import StoreBase
package import StorePort

/// The operator's command to accept an older state of a database.
package enum DatabaseRollback {
    /// The cause of requests that waited in an accepted state and are dead.
    static let cause = "An older state of the database was accepted. It may have been sent since."

    /// Accepts the state of the database, in one transaction. No gateway runs on it.
    ///
    /// - Parameters:
    ///   - directory: of the gateway's files; its witness knows what the database should know.
    ///   - actor: for the audit log.
    ///   - now: in milliseconds since 1970.
    /// - Throws: ``StoreError``, as for opening; `unavailable` if nothing was rolled back.
    package static func accept(
        _ address: StoreAddress, directory: String, key: StorageKey.Source, actor: String, now: Int64
    ) throws(StoreError) {
        let hasWitness = FileSystem.exists(Witness.path(directory))
        let joining = try Joining(address, directory: directory, key: key, acceptsRollback: true)
        let known = joining.witness.knowledge
        let found = try joining.control.use { connection throws(StoreError) in
            try Witness.read(connection, gateway: known.gateway)
        }
        guard let found else { throw .unreadableRow("shard") }
        // Without a witness, or with one that was none, the operator knows better. Another gateway may have found it.
        let isNoted = try joining.control.read("SELECT rolled_back FROM pawl.cluster WHERE id = 1") { rows in
            rows.count == 1 && rows.number(0, 0) != 0
        }
        guard isNoted || !hasWitness || known == Witness.Knowledge() || Witness.isOlder(found, than: known) else {
            throw .nothingToAccept(directory)
        }
        let membership = try Membership(joining)
        defer { membership.leave() }
        let state = try membership.own()
        let counters = try Counters(over: joining.writer)
        // Above what was ever used, so that the witness of before fits.
        let settled = zip(known.shards, found.shards).map { known, found in
            (epoch: max(known.epoch, found.epoch + 1) + 1, commits: max(known.commits, found.commits) + 1)
        }
        let behind = zip(known.shards, found.shards).count { $1.epoch < $0.epoch || $1.commits < $0.commits }
        let line = AuditRow(
            at: now, actor: actor, action: "store.rollback_accepted",
            detail: "\(behind) of \(Schema.shards) shards were behind")
        let authenticator = RowAuthenticator(joining.key)
        try joining.control.use { connection throws(StoreError) in
            do throws(StatementFailure) {
                try connection.begin(timeout: DatabaseCopy.timeout)
                let transaction = Transaction(connection: connection, authenticator: authenticator)
                try transaction.own(state.gateway)
                try transaction.settle(settled.map(\.epoch), settled.map(\.commits), now)
                try transaction.note(line, number: counters.audit + 1, gateway: state.gateway)
                try connection.end(commits: true, timeout: DatabaseCopy.timeout)
            } catch {
                throw StoreError(error)
            }
        }
    }

    /// The statements.
    private struct Transaction {
        let connection: Connection
        let authenticator: RowAuthenticator

        @discardableResult
        private func run(_ sql: String, _ parameters: [Parameter] = []) throws(StatementFailure) -> Rows {
            try connection.run(sql, parameters, isPrepared: false, timeout: DatabaseCopy.timeout)
        }

        /// Locks the row of this process, which another gateway has removed if it has taken over.
        func own(_ gateway: Int64) throws(StatementFailure) {
            let rows = try run("SELECT id FROM pawl.gateway WHERE id = $1::int8 FOR UPDATE", [.number(gateway)])
            guard rows.count == 1 else { throw .own(.takenOver()) }
        }

        func settle(_ epochs: [Int64], _ commits: [Int64], _ now: Int64) throws(StatementFailure) {
            try run("DELETE FROM pawl.session")
            let removed = RecordKind.allCases.filter { $0.afterRollback == .removed }.map { Int64($0.rawValue) }
            try run("DELETE FROM pawl.record WHERE kind = ANY($1::int8[])", [.numbers(removed)])
            try removeOneTimeKeys()
            let result = OutcomeColumns.write(.failure(status: nil), isCut: false).result
            try run(
                """
                UPDATE pawl.queue_progress SET state = 2, lease = NULL, is_held = 0, doubts = doubts + 1,
                    finished_at = $1::int8, result = $2::int8, cause = $3::bytea WHERE state = 0
                """, [.number(now), .number(result), .bytes(Array(DatabaseRollback.cause.utf8))])
            // Gateways that have stopped because of it may begin again.
            try run("UPDATE pawl.cluster SET generation = generation + 1, rolled_back = 0")
            // Ids that are skipped, because the ids after the highest may be in use elsewhere.
            try run(
                """
                UPDATE pawl.shard AS s SET epoch = n.epoch, commits = n.commits,
                    highest_request = $4::int8 + greatest(s.highest_request,
                        (SELECT coalesce(max(id), 0) FROM pawl.queue_request)),
                    highest_message = s.highest_message + $4::int8, highest_delivery = s.highest_delivery + $4::int8
                FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS n(id, epoch, commits) WHERE s.id = n.id
                """,
                [
                    .numbers(epochs.indices.map { Int64($0) }), .numbers(epochs), .numbers(commits),
                    .number(StoreLimits.idGap),
                ])
        }

        /// Removes the one-time prekeys of users' devices, which the directory may have handed out since.
        private func removeOneTimeKeys() throws(StatementFailure) {
            let kind = RecordKind.directoryDevice
            let rows = try run(
                "SELECT name, value, mac FROM pawl.record WHERE kind = $1::int8", [.number(Int64(kind.rawValue))])
            for row in 0..<rows.count {
                let stored = RecordRow(kind: kind, name: rows.text(row, 0), value: rows.bytes(row, 1))
                do throws(StoreError) {
                    try authenticator.demand(AuthenticatedRow(stored), has: rows.bytes(row, 2))
                } catch {
                    throw .own(error)
                }
                let key: [Parameter] = [.number(Int64(kind.rawValue)), .bytes(NameKey.of(stored.name))]
                guard let kept = stored.withoutOneTimeKeys else {
                    try run("DELETE FROM pawl.record WHERE kind = $1::int8 AND name_key = $2::bytea", key)
                    continue
                }
                try run(
                    """
                    UPDATE pawl.record SET value = $3::bytea, mac = $4::bytea
                    WHERE kind = $1::int8 AND name_key = $2::bytea
                    """, key + [.bytes(kept.value), .bytes(authenticator.code(AuthenticatedRow(kept)))])
            }
        }

        func note(_ row: AuditRow, number: Int64, gateway: Int64) throws(StatementFailure) {
            let texts = [row.actor, row.action, row.detail].map { Parameter.bytes(Array($0.utf8)) }
            try run(
                """
                INSERT INTO pawl.audit (n, gateway, at, actor, action, detail)
                VALUES ($1::int8, $2::int8, $3::int8, $4::bytea, $5::bytea, $6::bytea)
                """, [.number(number), .number(gateway), .number(row.at)] + texts)
        }
    }
}
