// A commit is one statement: it checks and locks the epochs, and writes the rows as arrays. It is its own transaction, so a
// process that is stopped in the middle of it leaves no open transaction behind, and one round trip is enough.

import Envelope
import Protection
import RequestQueue
import StoreBase
import StorePort

/// The statement of a commit, and its parameters.
struct CommitStatement {
    /// By whom the commit is made.
    struct Committer {
        let gateway: Int64
        let epochs: [ShardEpoch]
        /// The number of the last commit of each of these shards.
        let commits: [Int64]
        /// The number of the gateway's last commit that touched no shard.
        let unsharded: Int64
    }

    private(set) var parameters: [Parameter] = []
    private var parts: [String] = []
    private var conditions: [String] = []
    /// Whether the batch changes anything.
    private(set) var isEmpty = true

    /// The text: an error, and so nothing written, unless all conditions hold.
    var sql: String {
        """
        WITH \(parts.joined(separator: ",\n")) SELECT 1 / (CASE WHEN current_setting('synchronous_commit') <> 'off' \
        AND \(conditions.joined(separator: " AND ")) THEN 1 ELSE 0 END)::int8
        """
    }

    init(_ batch: Batch, by committer: Committer, _ authenticator: RowAuthenticator) {
        fence(batch, committer)
        sessions(batch)
        messages(batch)
        accounts(batch, authenticator)
        reports(batch, gateway: committer.gateway)
        queue(batch)
    }

    /// Adds a part.
    ///
    /// - Parameter sql: with `%` for each parameter.
    private mutating func add(_ name: String, _ sql: String, _ values: [Parameter], countsRows count: Int? = nil) {
        var part = "\(name) AS ("
        for (place, text) in sql.split(separator: "%", omittingEmptySubsequences: false).enumerated() {
            if place > 0 {
                parameters.append(values[place - 1])
                part += "$\(parameters.count)::\(values[place - 1].kind.name)"
            }
            part += text
        }
        parts.append(part + ")")
        guard let count else { return }
        parameters.append(.number(Int64(count)))
        conditions.append("(SELECT count(*) FROM \(name)) = $\(parameters.count)::int8")
    }

    /// Adds a part that writes or removes rows, if there are any.
    private mutating func write(_ name: String, _ sql: String, rows: Int, _ values: @autoclosure () -> [Parameter]) {
        guard rows > 0 else { return }
        isEmpty = false
        add(name, sql, values())
    }

    /// Adds a part that removes rows, if there are any.
    ///
    /// - Parameters:
    ///   - columns: those of the table's key.
    ///   - values: an array for each of them.
    private mutating func remove(
        _ table: String, by columns: [String], rows: Int, _ values: @autoclosure () -> [Parameter]
    ) {
        let names = columns.joined(separator: ", ")
        let places = columns.map { _ in "%" }.joined(separator: ", ")
        let conditions = columns.map { "t.\($0) = n.\($0)" }.joined(separator: " AND ")
        let sql =
            columns.count == 1
            ? "DELETE FROM pawl.\(table) WHERE \(names) = ANY(%)"
            : "DELETE FROM pawl.\(table) AS t USING unnest(\(places)) AS n(\(names)) WHERE \(conditions)"
        write("removed_\(table)", sql, rows: rows, values())
    }

    // MARK: Fence

    /// The epochs of the shards, whose rows stay locked until the end, in their order. A commit that touches no shard is
    /// fenced by the row of its gateway. The numbers of the last commits have to be those that this process knows: a database
    /// that was rolled back has lower ones.
    private mutating func fence(_ batch: Batch, _ committer: Committer) {
        if !batch.highest.isEmpty { isEmpty = false }
        guard !committer.epochs.isEmpty else {
            return add(
                "numbered", "UPDATE pawl.gateway SET commits = commits + 1 WHERE id = % AND commits = % RETURNING id",
                [.number(committer.gateway), .number(committer.unsharded)], countsRows: 1)
        }
        let ids = committer.epochs.map { Int64($0.shard.number) }
        add(
            "locked",
            """
            SELECT s.id FROM pawl.shard AS s JOIN unnest(%, %, %) AS n(id, epoch, commits)
            ON s.id = n.id AND s.epoch = n.epoch AND s.commits = n.commits ORDER BY s.id FOR UPDATE OF s
            """, [.numbers(ids), .numbers(committer.epochs.map(\.epoch)), .numbers(committer.commits)])
        let highest = committer.epochs.map { batch.highest[$0.shard] ?? Batch.Highest() }
        add(
            "numbered",
            """
            UPDATE pawl.shard AS s SET commits = s.commits + 1,
                highest_request = greatest(s.highest_request, n.request),
                highest_message = greatest(s.highest_message, n.message),
                highest_delivery = greatest(s.highest_delivery, n.delivery)
            FROM unnest(%, %, %, %) AS n(id, request, message, delivery), locked
            WHERE s.id = n.id AND s.id = locked.id RETURNING s.id
            """,
            [
                .numbers(ids), .numbers(highest.map(\.request)), .numbers(highest.map(\.message)),
                .numbers(highest.map(\.delivery)),
            ], countsRows: ids.count)
    }

    // MARK: Rows of messages

    private mutating func sessions(_ batch: Batch) {
        let rows = batch.sessions.compactMap { $1 }.sorted { one, other in
            (one.id.owner.value, one.id.peer.value) < (other.id.owner.value, other.id.peer.value)
        }
        let fenced = rows.filter { !batch.replaced.contains($0.id) }
        func values(_ rows: [SessionRow]) -> [Parameter] {
            [
                .numbers(rows.map { Int64($0.id.shard.number) }), .numbers(rows.map(\.id.owner.value)),
                .numbers(rows.map(\.id.peer.value)), .numbers(rows.map(\.fence)),
                .byteStrings(rows.map(\.sealedState)),
            ]
        }
        let insert = """
            INSERT INTO pawl.session AS t (shard, owner, peer, fence, sealed_state) SELECT * FROM unnest(%, %, %, %, %)
            ON CONFLICT (owner, peer, shard) DO UPDATE SET fence = excluded.fence, sealed_state = excluded.sealed_state
            """
        if !fenced.isEmpty {
            isEmpty = false
            // A row with an old fence does not come back.
            add(
                "put_session", insert + " WHERE excluded.fence > t.fence RETURNING 1", values(fenced),
                countsRows: fenced.count)
        }
        // The row shows only the last fence; that of an earlier group has to be higher than the stored one too.
        let repeated = fenced.compactMap { row in
            batch.firstFences[row.id].flatMap { $0 < row.fence ? (id: row.id, fence: $0) : nil }
        }
        if !repeated.isEmpty {
            add(
                "fenced_session",
                """
                SELECT 1 FROM pawl.session AS t JOIN unnest(%, %, %, %) AS n(shard, owner, peer, fence)
                ON t.owner = n.owner AND t.peer = n.peer AND t.shard = n.shard WHERE t.fence >= n.fence
                """,
                [
                    .numbers(repeated.map { Int64($0.id.shard.number) }), .numbers(repeated.map(\.id.owner.value)),
                    .numbers(repeated.map(\.id.peer.value)), .numbers(repeated.map(\.fence)),
                ], countsRows: 0)
        }
        let replaced = rows.filter { batch.replaced.contains($0.id) }
        write("replaced_session", insert, rows: replaced.count, values(replaced))
        let removed = batch.sessions.removed()
        remove(
            "session", by: ["shard", "owner", "peer"], rows: removed.count,
            [
                .numbers(removed.map { Int64($0.shard.number) }), .numbers(removed.map(\.owner.value)),
                .numbers(removed.map(\.peer.value)),
            ])
    }

    private mutating func messages(_ batch: Batch) {
        let deliveries = batch.deliveries.compactMap { $1 }.sorted { $0.sequence < $1.sequence }
        write(
            "put_delivery",
            """
            INSERT INTO pawl.delivery (sequence, shard, account_key, account, sealed_line)
            SELECT sequence, sequence & 255, account_key, account, line
            FROM unnest(%, %, %, %) AS n(sequence, account_key, account, line)
            ON CONFLICT (sequence) DO UPDATE SET account_key = excluded.account_key, account = excluded.account,
                sealed_line = excluded.sealed_line
            """, rows: deliveries.count,
            [
                .numbers(deliveries.map(\.sequence)), .keys(deliveries.map(\.account.text)),
                .names(deliveries.map(\.account.text)), .byteStrings(deliveries.map(\.sealedLine)),
            ])
        let delivered = batch.deliveries.removed().sorted()
        remove("delivery", by: ["sequence"], rows: delivered.count, [.numbers(delivered)])
        let keys = batch.contentKeys.compactMap { $1 }.sorted { $0.message < $1.message }
        write(
            "put_content_key",
            """
            INSERT INTO pawl.content_key (message, digest, expires_at, sealed_key) SELECT * FROM unnest(%, %, %, %)
            ON CONFLICT (message, digest) DO UPDATE SET expires_at = excluded.expires_at, sealed_key = excluded.sealed_key
            """, rows: keys.count,
            [
                .numbers(keys.map(\.message.value)), .byteStrings(keys.map(\.digest.bytes)),
                .numbers(keys.map(\.expiresAt)), .byteStrings(keys.map(\.sealedKey)),
            ])
        let gone = batch.contentKeys.removed()
        remove(
            "content_key", by: ["message", "digest"], rows: gone.count,
            [.numbers(gone.map(\.message.value)), .byteStrings(gone.map(\.digest.bytes))])
    }

    // MARK: Rows of accounts

    private mutating func accounts(_ batch: Batch, _ authenticator: RowAuthenticator) {
        devices(batch, authenticator)
        conversations(batch, authenticator)
        let policies = batch.policies.compactMap { account, policy in policy.map { (account?.text ?? "", $0) } }
        write(
            "put_policy",
            """
            INSERT INTO pawl.policy (account_key, account, policy, mac) SELECT * FROM unnest(%, %, %, %)
            ON CONFLICT (account_key) DO UPDATE SET policy = excluded.policy, mac = excluded.mac
            """, rows: policies.count,
            [
                .keys(policies.map(\.0)), .names(policies.map(\.0)), .numbers(policies.map { Int64($0.1.rawValue) }),
                .byteStrings(
                    policies.map { authenticator.code(AuthenticatedRow(policy: $0.0, Int64($0.1.rawValue))) }),
            ])
        let unset = batch.policies.removed().map { $0?.text ?? "" }
        remove("policy", by: ["account_key"], rows: unset.count, [.keys(unset)])
        let records = batch.records.compactMap { $1 }
        write(
            "put_record",
            """
            INSERT INTO pawl.record (kind, name_key, name, value, mac) SELECT * FROM unnest(%, %, %, %, %)
            ON CONFLICT (kind, name_key) DO UPDATE SET value = excluded.value, mac = excluded.mac
            """, rows: records.count,
            [
                .numbers(records.map { Int64($0.kind.rawValue) }), .keys(records.map(\.name)),
                .names(records.map(\.name)), .byteStrings(records.map(\.value)),
                .byteStrings(records.map { authenticator.code(AuthenticatedRow($0)) }),
            ])
        let removed = batch.records.removed()
        remove(
            "record", by: ["kind", "name_key"], rows: removed.count,
            [.numbers(removed.map { Int64($0.kind.rawValue) }), .keys(removed.map(\.name.text))])
    }

    private mutating func devices(_ batch: Batch, _ authenticator: RowAuthenticator) {
        let devices = batch.devices.compactMap { $1 }
        write(
            "put_device",
            """
            INSERT INTO pawl.device (id, account_key, account, sealed_identity, created_at, mac)
            SELECT * FROM unnest(%, %, %, %, %, %)
            ON CONFLICT (id) DO UPDATE SET account_key = excluded.account_key, account = excluded.account,
                sealed_identity = excluded.sealed_identity, created_at = excluded.created_at, mac = excluded.mac
            """, rows: devices.count,
            [
                .numbers(devices.map(\.id.value)), .keys(devices.map(\.account.text)),
                .names(devices.map(\.account.text)), .byteStrings(devices.map(\.sealedIdentity)),
                .numbers(devices.map(\.createdAt)),
                .byteStrings(devices.map { authenticator.code(AuthenticatedRow($0)) }),
            ])
        let removed = batch.devices.removed().map(\.value)
        remove("device", by: ["id"], rows: removed.count, [.numbers(removed)])
    }

    private mutating func conversations(_ batch: Batch, _ authenticator: RowAuthenticator) {
        let rows = batch.conversations.compactMap { $1 }
        let shards = rows.map { Int64(Sharding.shared.shard(of: $0.id).number) }
        write(
            "put_conversation",
            """
            INSERT INTO pawl.conversation (first_key, second_key, shard, first, second, latch, since,
                peer_name_for_first, peer_name_for_second, mac)
            SELECT * FROM unnest(%, %, %, %, %, %, %, %, %, %)
            ON CONFLICT (first_key, second_key) DO UPDATE SET latch = excluded.latch, since = excluded.since,
                peer_name_for_first = excluded.peer_name_for_first,
                peer_name_for_second = excluded.peer_name_for_second, mac = excluded.mac
            """, rows: rows.count,
            [
                .keys(rows.map(\.id.first.text)), .keys(rows.map(\.id.second.text)), .numbers(shards),
                .names(rows.map(\.id.first.text)), .names(rows.map(\.id.second.text)),
                .numbers(rows.map { Int64($0.latch.rawValue) }), .numbers(rows.map(\.since)),
                .names(rows.map(\.peerNameForFirst)), .names(rows.map(\.peerNameForSecond)),
                .byteStrings(rows.map { authenticator.code(AuthenticatedRow($0)) }),
            ])
        let removed = batch.conversations.removed()
        remove(
            "conversation", by: ["first_key", "second_key"], rows: removed.count,
            [.keys(removed.map(\.first.text)), .keys(removed.map(\.second.text))])
    }

    // MARK: Reports

    private mutating func reports(_ batch: Batch, gateway: Int64) {
        write(
            "put_audit",
            """
            INSERT INTO pawl.audit (n, gateway, at, actor, action, detail)
            SELECT n, %, at, actor, action, detail FROM unnest(%, %, %, %, %) AS n(n, at, actor, action, detail)
            """, rows: batch.audit.count,
            [
                .number(gateway), .numbers(batch.audit.map(\.n)), .numbers(batch.audit.map(\.row.at)),
                .names(batch.audit.map(\.row.actor)), .names(batch.audit.map(\.row.action)),
                .names(batch.audit.map(\.row.detail)),
            ])
        let tallies = batch.tallies.values.sorted { ($0.hour, $0.kind) < ($1.hour, $1.kind) }
        write(
            "put_tally",
            """
            INSERT INTO pawl.tally AS t (hour, kind, count) SELECT * FROM unnest(%, %, %)
            ON CONFLICT (hour, kind) DO UPDATE SET count = t.count + excluded.count
            """, rows: tallies.count,
            [
                .numbers(tallies.map(\.hour)), .names(tallies.map(\.kind)), .numbers(tallies.map { Int64($0.count) }),
            ])
        let evidence = batch.evidence.values.sorted { ($0.name, $0.software) < ($1.name, $1.software) }
        write(
            "put_evidence",
            """
            INSERT INTO pawl.evidence AS t (verified, name_key, software_key, name, software, asked, first_seen,
                last_seen, registrations) SELECT * FROM unnest(%, %, %, %, %, %, %, %, %)
            ON CONFLICT (verified, name_key, software_key) DO UPDATE SET asked = greatest(t.asked, excluded.asked),
                last_seen = greatest(t.last_seen, excluded.last_seen),
                registrations = t.registrations + excluded.registrations
            """, rows: evidence.count,
            [
                .numbers(evidence.map { Int64($0.verified ? 1 : 0) }), .keys(evidence.map(\.name)),
                .keys(evidence.map(\.software)), .names(evidence.map(\.name)), .names(evidence.map(\.software)),
                .numbers(evidence.map { Int64($0.asked ? 1 : 0) }), .numbers(evidence.map(\.firstSeen)),
                .numbers(evidence.map(\.lastSeen)), .numbers(evidence.map { Int64($0.registrations) }),
            ])
        let observations = batch.observations.values.sorted { ($0.sender, $0.target) < ($1.sender, $1.target) }
        write(
            "put_observation",
            """
            INSERT INTO pawl.observation AS t (sender_key, target_key, recipient_key, sender, target, recipient,
                messages, last_seen) SELECT * FROM unnest(%, %, %, %, %, %, %, %)
            ON CONFLICT (sender_key, target_key, recipient_key) DO UPDATE
                SET messages = t.messages + excluded.messages, last_seen = excluded.last_seen
            """, rows: observations.count,
            [
                .keys(observations.map(\.sender)), .keys(observations.map(\.target)),
                .keys(observations.map(\.recipient)), .names(observations.map(\.sender)),
                .names(observations.map(\.target)), .names(observations.map(\.recipient)),
                .numbers(observations.map { Int64($0.messages) }), .numbers(observations.map(\.lastSeen)),
            ])
    }

    // MARK: Queue

    private mutating func queue(_ batch: Batch) {
        requests(batch)
        progress(batch)
        responses(batch)
        names(batch)
    }

    private mutating func requests(_ batch: Batch) {
        let rows = batch.requests.values.compactMap { $0 }.sorted { $0.request.id < $1.request.id }
        write(
            "put_request",
            """
            INSERT INTO pawl.queue_request (id, token_high, token_low, tenant, lane, idempotency_key, size, form)
            SELECT * FROM unnest(%, %, %, %, %, %, %, %)
            """, rows: rows.count,
            [
                .numbers(rows.map(\.request.id)), .numbers(rows.map(\.request.token.high)),
                .numbers(rows.map(\.request.token.low)), .names(rows.map(\.request.tenant)),
                .optionalNames(rows.map(\.request.lane)), .names(rows.map { $0.request.ownKey ?? "" }),
                .numbers(rows.map { Int64($0.request.size) }), .byteStrings(rows.map(\.form)),
            ])
        let forms = batch.forms.sorted { $0.key < $1.key }
        write(
            "put_form",
            """
            UPDATE pawl.queue_request AS t SET form = n.form FROM unnest(%, %) AS n(id, form) WHERE t.id = n.id
            """, rows: forms.count, [.numbers(forms.map(\.key)), .byteStrings(forms.map(\.value))])
        let removed = batch.requests.removed().sorted()
        remove("queue_request", by: ["id"], rows: removed.count, [.numbers(removed)])
    }

    private mutating func progress(_ batch: Batch) {
        let rows = batch.progress.compactMap { id, row in row.map { (id: id, row: $0) } }.sorted { $0.id < $1.id }
        write(
            "put_progress",
            """
            INSERT INTO pawl.queue_progress (id, shard, state, accepted_at, attempts, crashes, doubts, not_before,
                is_held, lease, finished_at, result, status, undelivered, cause)
            SELECT id, id & 255, state, accepted_at, attempts, crashes, doubts, not_before, is_held, lease, finished_at,
                result, status, undelivered, cause
            FROM unnest(%, %, %, %, %, %, %, %, %, %, %, %, %, %) AS n(id, state, accepted_at, attempts, crashes,
                doubts, not_before, is_held, lease, finished_at, result, status, undelivered, cause)
            ON CONFLICT (id) DO UPDATE SET state = excluded.state, accepted_at = excluded.accepted_at,
                attempts = excluded.attempts, crashes = excluded.crashes, doubts = excluded.doubts,
                not_before = excluded.not_before, is_held = excluded.is_held, lease = excluded.lease,
                finished_at = excluded.finished_at, result = excluded.result, status = excluded.status,
                undelivered = excluded.undelivered, cause = excluded.cause
            """, rows: rows.count,
            [
                .numbers(rows.map(\.id)), .numbers(rows.map(\.row.state)), .numbers(rows.map(\.row.acceptedAt)),
                .numbers(rows.map(\.row.attempts)), .numbers(rows.map(\.row.crashes)),
                .numbers(rows.map(\.row.doubts)), .numbers(rows.map(\.row.notBefore)),
                .numbers(rows.map(\.row.hold)),
                .numbers(rows.map { $0.row.lease.map { Int64(bitPattern: $0) } }), .numbers(rows.map(\.row.finishedAt)),
                .numbers(rows.map(\.row.result)), .numbers(rows.map(\.row.status)),
                .numbers(rows.map(\.row.undelivered)), .optionalNames(rows.map(\.row.cause)),
            ])
        let removed = batch.progress.removed().sorted()
        remove("queue_progress", by: ["id"], rows: removed.count, [.numbers(removed)])
    }

    private mutating func responses(_ batch: Batch) {
        let rows = batch.responses.compactMap { id, row in row.map { (id: id, row: $0) } }.sorted { $0.id < $1.id }
        write(
            "put_response",
            """
            INSERT INTO pawl.queue_response (id, headers, body) SELECT * FROM unnest(%, %, %)
            ON CONFLICT (id) DO UPDATE SET headers = excluded.headers, body = excluded.body
            """, rows: rows.count,
            [
                .numbers(rows.map(\.id)), .byteStrings(rows.map(\.row.headers)), .byteStrings(rows.map(\.row.body)),
            ])
        let removed = batch.responses.removed().sorted()
        remove("queue_response", by: ["id"], rows: removed.count, [.numbers(removed)])
    }

    private mutating func names(_ batch: Batch) {
        let rows = batch.mappings.compactMap { name, row in row.map { (name: name, row: $0) } }
        write(
            "put_mapping",
            """
            INSERT INTO pawl.queue_mapping (tenant_key, type_key, local_key, tenant, type, local, remote, learnt_at, place)
            SELECT * FROM unnest(%, %, %, %, %, %, %, %, %)
            ON CONFLICT (type_key, local_key, tenant_key) DO UPDATE SET remote = excluded.remote,
                learnt_at = excluded.learnt_at, place = excluded.place
            """, rows: rows.count,
            [
                .keys(rows.map(\.name.tenant.text)), .keys(rows.map(\.name.type.text)),
                .keys(rows.map(\.name.local.text)), .names(rows.map(\.name.tenant.text)),
                .names(rows.map(\.name.type.text)), .names(rows.map(\.name.local.text)),
                .names(rows.map(\.row.remote)), .numbers(rows.map(\.row.at)), .numbers(rows.map(\.row.place)),
            ])
        let removed = batch.mappings.removed()
        remove(
            "queue_mapping", by: ["tenant_key", "type_key", "local_key"], rows: removed.count,
            [.keys(removed.map(\.tenant.text)), .keys(removed.map(\.type.text)), .keys(removed.map(\.local.text))])
        let sessions = batch.queueSessions.compactMap { name, sealed in sealed.map { (name: name, sealed: $0) } }
        write(
            "put_queue_session",
            """
            INSERT INTO pawl.queue_session (tenant_key, tenant, sealed) SELECT * FROM unnest(%, %, %)
            ON CONFLICT (tenant_key) DO UPDATE SET sealed = excluded.sealed
            """, rows: sessions.count,
            [
                .keys(sessions.map(\.name.text)), .names(sessions.map(\.name.text)),
                .byteStrings(sessions.map(\.sealed)),
            ])
        let ended = batch.queueSessions.removed().map(\.text)
        remove("queue_session", by: ["tenant_key"], rows: ended.count, [.keys(ended)])
    }
}

extension Dictionary {
    /// The keys of rows that a batch removes.
    fileprivate func removed<Row>() -> [Key] where Value == Row? { compactMap { $1 == nil ? $0 : nil } }
}

extension Parameter {
    static func names(_ names: [String]) -> Parameter { .byteStrings(names.map { Array($0.utf8) }) }
    static func keys(_ names: [String]) -> Parameter { .byteStrings(names.map { NameKey.of($0) }) }
    static func optionalNames(_ names: [String?]) -> Parameter { .byteStrings(names.map { $0.map { Array($0.utf8) } }) }
}

extension AuthenticatedRow {
    init(_ row: ConversationRow) {
        self.init(
            conversation: row.id.first.text, row.id.second.text, latch: Int64(row.latch.rawValue), since: row.since,
            names: (row.peerNameForFirst, row.peerNameForSecond))
    }
}
