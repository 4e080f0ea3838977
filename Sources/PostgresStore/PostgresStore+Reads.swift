// Reads of rows, and reports. What the writer's participants read goes over the writer's connection; reports have their own.

package import Envelope
package import Protection
package import RequestQueue
import StoreBase
package import StorePort
import Synchronization

extension PostgresStore {
    /// - Throws: ``StoreError/unknown(_:)`` until ``settle()`` has settled a commit with an unknown outcome.
    package func load() throws(StoreError) -> StoreContents {
        let (epochs, doubt) = state.withLock { ($0.epochs, $0.doubt?.cause) }
        if let doubt { throw .unknown("A commit is not settled: \(doubt).") }
        var contents = StoreContents()
        // Those by which this process took the shards: if they were taken from it since, its commits fail.
        contents.epochs = epochs
        let authenticator = authenticator
        contents.policies = try writer.read("SELECT account, policy, mac FROM pawl.policy") { rows throws(StoreError) in
            try rows.map { row throws(StoreError) in
                try authenticator.demand(AuthenticatedRow(policy: row.text(0), row.number(1)), has: row.bytes(2))
                guard let policy = Policy(rawValue: UInt8(clamping: row.number(1))) else {
                    throw .unreadableRow("policy")
                }
                let account = row.text(0)
                return (account.isEmpty ? nil : AccountID(text: account), policy)
            }
        }
        contents.conversations = try conversations(over: writer, limit: .max)
        contents.devices = try writer.read(
            "SELECT id, account, sealed_identity, created_at, mac FROM pawl.device"
        ) { rows throws(StoreError) in
            try rows.map { row throws(StoreError) in
                let device = DeviceRow(
                    id: DeviceID(row.identifier(0)), account: AccountID(text: row.text(1)),
                    sealedIdentity: row.bytes(2), createdAt: row.number(3))
                try authenticator.demand(AuthenticatedRow(device), has: row.bytes(4))
                return device
            }
        }
        (contents.highestMessage, contents.highestDelivery) = try writer.read(
            "SELECT max(highest_message), max(highest_delivery) FROM pawl.shard"
        ) { rows in rows.count == 1 ? (rows.identifier(0, 0), rows.identifier(0, 1)) : (.max, .max) }
        guard max(contents.highestMessage, contents.highestDelivery) < UInt64(Int64.max) / 2 else {
            throw .unreadableRow("shard")
        }
        return contents
    }

    package func session(_ id: SessionID) throws(StoreError) -> SessionRow? {
        let parameters: [Parameter] = [
            .number(Int64(id.shard.number)), .number(id.owner.value), .number(id.peer.value),
        ]
        let sql = """
            SELECT fence, sealed_state FROM pawl.session
            WHERE shard = $1::int8 AND owner = $2::int8 AND peer = $3::int8
            """
        return try writer.read(sql, parameters) { rows in
            rows.map { SessionRow(id: id, fence: $0.identifier(0), sealedState: $0.bytes(1)) }.first
        }
    }

    package func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow] {
        try writer.read(
            "SELECT sequence, sealed_line FROM pawl.delivery WHERE account_key = $1::bytea ORDER BY sequence",
            [.bytes(NameKey.of(account.text))]
        ) { rows in
            rows.map { DeliveryRow(sequence: $0.identifier(0), account: account, sealedLine: $0.bytes(1)) }
        }
    }

    // MARK: Records

    package func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow? {
        try records(
            kind, "name_key = $2::bytea", [.number(Int64(kind.rawValue)), .bytes(NameKey.of(name))]
        ).first
    }

    package func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] {
        try records(kind, "true ORDER BY name", [.number(Int64(kind.rawValue))])
    }

    package func records(
        _ kind: RecordKind, from: String, to: String, last limit: Int
    ) throws(StoreError) -> [RecordRow] {
        let condition = """
            name >= $2::bytea AND name < $3::bytea AND name_key >= $4::bytea AND name_key < $5::bytea
            ORDER BY name DESC LIMIT $6::int8
            """
        let parameters: [Parameter] = [
            .number(Int64(kind.rawValue)), .bytes(Array(from.utf8)), .bytes(Array(to.utf8)),
            .bytes(NameKey.lowest(from: from)), .bytes(NameKey.highest(to: to)), .number(Int64(max(limit, 0))),
        ]
        return try records(kind, condition, parameters).reversed()
    }

    private func records(
        _ kind: RecordKind, _ condition: String, _ parameters: [Parameter]
    ) throws(StoreError) -> [RecordRow] {
        let authenticator = authenticator
        return try writer.read(
            "SELECT name, value, mac FROM pawl.record WHERE kind = $1::int8 AND \(condition)", parameters
        ) { rows throws(StoreError) in
            try rows.map { row throws(StoreError) in
                let record = RecordRow(kind: kind, name: row.text(0), value: row.bytes(1))
                try authenticator.demand(AuthenticatedRow(record), has: row.bytes(2))
                return record
            }
        }
    }

    // MARK: Content keys

    package func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow] {
        guard !messages.isEmpty else { return [] }
        return try writer.read(
            """
            SELECT message, digest, expires_at, sealed_key FROM pawl.content_key WHERE message = ANY($1::int8[])
            """, [.numbers(messages.map(\.value))]
        ) { rows throws(StoreError) in
            try rows.map { row throws(StoreError) in
                guard let digest = EnvelopeDigest(row.bytes(1)) else { throw .unreadableRow("content_key") }
                return ContentKeyRow(
                    message: MessageID(row.identifier(0)), digest: digest, expiresAt: row.number(2),
                    sealedKey: row.bytes(3))
            }
        }
    }

    package func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)? {
        try writer.read(
            "SELECT (SELECT min(expires_at) FROM pawl.content_key), (SELECT min(message) FROM pawl.content_key)"
        ) { rows in
            rows.count == 1 && !rows.isNull(0, 0) ? (rows.number(0, 0), MessageID(rows.identifier(0, 1))) : nil
        }
    }

    // MARK: Reports

    package func evidence(limit: Int) throws(StoreError) -> [EvidenceRow] {
        let sql = """
            SELECT name, verified, software, asked, first_seen, last_seen, registrations FROM pawl.evidence
            ORDER BY last_seen DESC LIMIT $1::int8
            """
        return try reader.read(sql, [.number(Int64(limit))]) { rows in
            rows.map { row in
                EvidenceRow(
                    name: row.text(0), verified: row.number(1) != 0, software: row.text(2), asked: row.number(3) != 0,
                    firstSeen: row.number(4), lastSeen: row.number(5), registrations: row.count(6))
            }
        }
    }

    package func observations(limit: Int) throws(StoreError) -> [ObservationRow] {
        let sql = """
            SELECT sender, target, recipient, messages, last_seen FROM pawl.observation
            ORDER BY messages DESC LIMIT $1::int8
            """
        return try reader.read(sql, [.number(Int64(limit))]) { rows in
            rows.map { row in
                ObservationRow(
                    sender: row.text(0), target: row.text(1), recipient: row.text(2), messages: row.count(3),
                    lastSeen: row.number(4))
            }
        }
    }

    package func tallies(sinceHour hour: Int64) throws(StoreError) -> [TallyRow] {
        try reader.read(
            "SELECT hour, kind, count FROM pawl.tally WHERE hour >= $1::int8 ORDER BY hour, kind", [.number(hour)]
        ) { rows in rows.map { TallyRow(hour: $0.number(0), kind: $0.text(1), count: $0.count(2)) } }
    }

    package func auditLog(limit: Int) throws(StoreError) -> [AuditRow] {
        try reader.read(
            "SELECT at, actor, action, detail FROM pawl.audit ORDER BY n DESC, gateway DESC LIMIT $1::int8",
            [.number(Int64(limit))]
        ) { rows in
            rows.map { AuditRow(at: $0.number(0), actor: $0.text(1), action: $0.text(2), detail: $0.text(3)) }
        }.reversed()
    }

    package func deviceAccounts(limit: Int) throws(StoreError) -> [AccountID] {
        try reader.read(
            "SELECT DISTINCT account FROM pawl.device ORDER BY account LIMIT $1::int8", [.number(Int64(limit))]
        ) { rows in rows.map { AccountID(text: $0.text(0)) } }
    }

    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        try conversations(over: reader, limit: limit)
    }

    private func conversations(over link: Link, limit: Int) throws(StoreError) -> [ConversationRow] {
        let authenticator = authenticator
        let sql = """
            SELECT first, second, latch, since, peer_name_for_first, peer_name_for_second, mac FROM pawl.conversation
            ORDER BY since LIMIT $1::int8
            """
        return try link.read(sql, [.number(Int64(limit))]) { rows throws(StoreError) in
            try rows.map { row throws(StoreError) in
                guard let latch = Protection(rawValue: UInt8(clamping: row.number(2))) else {
                    throw .unreadableRow("conversation")
                }
                let conversation = ConversationRow(
                    id: ConversationID(AccountID(text: row.text(0)), AccountID(text: row.text(1))), latch: latch,
                    since: row.number(3), peerNameForFirst: row.text(4), peerNameForSecond: row.text(5))
                try authenticator.demand(AuthenticatedRow(conversation), has: row.bytes(6))
                return conversation
            }
        }
    }

    // MARK: Requests

    package var queueTables: any QueueReading { StoredQueue(store: self) }

    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        let states = states + (states.contains(.pending) ? [.inFlight] : [])
        let rows = try StoredQueue(store: self).stored(states: states, after: 0, limit: limit)
        let names = try rows.isEmpty ? [:] : messageNames(of: rows.map { "\($0.request.id)" })
        return rows.compactMap { Request($0.request, finishedAt: $0.finishedAt, remoteID: names["\($0.request.id)"]) }
    }

    package func request(_ id: UInt64) throws(StoreError) -> Request? {
        guard let row = try StoredQueue(store: self).stored(id) else { return nil }
        let names = try messageNames(of: ["\(id)"])
        return Request(row.request, finishedAt: row.finishedAt, remoteID: names["\(id)"])
    }

    /// The backend's ids of messages, by local id.
    private func messageNames(of locals: [String]) throws(StoreError) -> [String: String] {
        let rows = try reader.read(
            """
            SELECT local, remote FROM pawl.queue_mapping WHERE type_key = $1::bytea AND local_key = ANY($2::bytea[])
            ORDER BY place
            """, [.bytes(NameKey.of(Request.message)), .keys(locals)]
        ) { rows in rows.map { ($0.text(0), $0.text(1)) } }
        // Of two rows the later counts.
        return Dictionary(rows) { $1 }
    }

    package func requestCounts() throws(StoreError) -> [RequestState: Int] {
        let counts = try reader.read("SELECT state, count(*)::int8 FROM pawl.queue_progress GROUP BY state") { rows in
            rows.map { row in
                (RequestState(rawValue: UInt8(clamping: row.number(0))) ?? .dead, Int(row.number(1)))
            }
        }
        return Dictionary(counts) { $0 + $1 }
    }
}
