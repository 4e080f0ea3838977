// The stored rows that a batch's changes depend on, read before its commit. Nobody else writes rows of shards that this
// process owns, and the commit fails if it no longer owns them: so what is read before is still true.

import Envelope
import Protection
import RequestQueue
import StorePort

/// The key of a content key's row.
struct ContentKeyName: Hashable {
    let message: MessageID
    let digest: EnvelopeDigest
}

/// The key of a mapping's row.
struct MappingName: Hashable {
    let tenant: ExactText
    let type: ExactText
    let local: ExactText
}

/// What changes of a batch have to know of stored rows.
struct BatchNeeds {
    /// A removal of old requests.
    struct QueuePrune: Hashable {
        let before: Int64
        let below: UInt64
    }

    /// A removal of old content keys.
    struct KeyPrune: Hashable {
        let time: Int64
        let message: MessageID
        let limit: Int
    }

    var progress: Set<UInt64> = []
    var queuePrunes: Set<QueuePrune> = []
    var mappingPrunes: Set<Int64> = []
    var keyPrunes: Set<KeyPrune> = []
    var devices: Set<DeviceID> = []
    var accounts: Set<AccountID> = []

    var isEmpty: Bool {
        progress.isEmpty && queuePrunes.isEmpty && mappingPrunes.isEmpty && keyPrunes.isEmpty && devices.isEmpty
            && accounts.isEmpty
    }

    init(_ groups: [ChangeGroup]) {
        var inserted: Set<UInt64> = []
        for group in groups {
            for change in group.changes {
                switch change {
                case .queue(.insert(let request, _)): inserted.insert(request.id)
                case .queue(let change): add(change, inserted)
                case .rare(let change): add(change)
                case .putSession, .insertDelivery, .removeDelivery, .putContentKey, .spendMessageID: break
                }
            }
        }
        if !accounts.isEmpty {
            // Their sessions go too.
            for group in groups {
                for case .rare(.putDevice(let row)) in group.changes where accounts.contains(row.account) {
                    devices.insert(row.id)
                }
            }
        }
    }

    private mutating func add(_ change: QueueChange, _ inserted: Set<UInt64>) {
        switch change {
        case .lease(let id, _), .requeue(let id, _, _), .finish(let id, _, _, _, _), .redeliver(let id, _),
            .handled(let id), .forgetResponse(let id), .quarantine(let id, _, _), .hold(let id, _, _),
            .revive(let id, _):
            if !inserted.contains(id) { progress.insert(id) }
        case .prune(let before, let below, let names):
            queuePrunes.insert(QueuePrune(before: before, below: below))
            mappingPrunes.insert(names ?? before)
        case .insert, .map, .rewrite, .remove, .session: break
        }
    }

    private mutating func add(_ change: RareChange) {
        switch change {
        case .removeSessions(let device): devices.insert(device)
        case .forgetAccount(let account): accounts.insert(account)
        case .pruneContentKeys(let time, let message, let limit):
            keyPrunes.insert(KeyPrune(time: time, message: message, limit: limit))
        case .putDevice, .putConversation, .removeConversation, .setPolicy, .audit, .putRecord, .removeRecord,
            .addEvidence, .addObservation, .addTally:
            break
        }
    }
}

/// Stored rows that a batch's changes depend on.
struct BatchReads {
    var progress: [UInt64: Progress] = [:]
    var pruned: [BatchNeeds.QueuePrune: [UInt64]] = [:]
    var prunedMappings: [Int64: [MappingName]] = [:]
    /// First the expired keys, by expiry, then the early ones, by message.
    var prunedKeys: [BatchNeeds.KeyPrune: (expired: [ContentKeyName], early: [ContentKeyName])] = [:]
    var devices: [AccountID: [DeviceID]] = [:]
    /// Sessions of devices whose sessions are removed.
    var sessions: [SessionID] = []
    var conversations: [AccountID: [ConversationID]] = [:]
    var deliveries: [AccountID: [UInt64]] = [:]
    /// The fences of the sessions of the batch; nil if they were not read. A session without one is not stored.
    var fences: [SessionID: UInt64]?

    init() {}

    /// Reads what is needed.
    init(_ needs: BatchNeeds, _ link: Link) throws(StoreError) {
        if !needs.progress.isEmpty { progress = try Self.progress(needs.progress, link) }
        for prune in needs.queuePrunes { pruned[prune] = try Self.pruned(prune, link) }
        for time in needs.mappingPrunes { prunedMappings[time] = try Self.mappings(before: time, link) }
        for prune in needs.keyPrunes { prunedKeys[prune] = try Self.keys(prune, link) }
        for account in needs.accounts { try read(account, link) }
        let devices = needs.devices.union(devices.values.joined())
        if !devices.isEmpty { sessions = try Self.sessions(of: devices, link) }
    }

    private static func progress(_ ids: Set<UInt64>, _ link: Link) throws(StoreError) -> [UInt64: Progress] {
        let sql = """
            SELECT p.id, \(Progress.columns), CASE WHEN r.id IS NULL THEN 0 ELSE 1 END::int8
            FROM pawl.queue_progress AS p LEFT JOIN pawl.queue_response AS r ON r.id = p.id
            WHERE p.id = ANY($1::int8[])
            """
        let rows = try link.read(sql, [.numbers(ids.sorted())]) { rows in
            rows.map { row in
                var progress = Progress(row, from: 1)
                progress.hasResponse = row.number(14) != 0
                return (row.identifier(0), progress)
            }
        }
        return Dictionary(rows) { $1 }
    }

    private static func pruned(_ prune: BatchNeeds.QueuePrune, _ link: Link) throws(StoreError) -> [UInt64] {
        let sql = """
            SELECT id FROM pawl.queue_progress
            WHERE id < $1::int8 AND finished_at < $2::int8 AND undelivered IS NULL AND state <> 2
            """
        return try link.read(sql, [.number(Int64(clamping: prune.below)), .number(prune.before)]) { rows in
            rows.map { $0.identifier(0) }
        }
    }

    private static func mappings(before time: Int64, _ link: Link) throws(StoreError) -> [MappingName] {
        let sql = "SELECT tenant, type, local FROM pawl.queue_mapping WHERE learnt_at < $1::int8"
        return try link.read(sql, [.number(time)]) { rows in
            rows.map { row in
                MappingName(
                    tenant: ExactText(row.text(0)), type: ExactText(row.text(1)), local: ExactText(row.text(2)))
            }
        }
    }

    private static func keys(
        _ prune: BatchNeeds.KeyPrune, _ link: Link
    ) throws(StoreError) -> (expired: [ContentKeyName], early: [ContentKeyName]) {
        func read(_ condition: String, _ bound: Int64, limit: Int) throws(StoreError) -> [ContentKeyName] {
            let sql = "SELECT message, digest FROM pawl.content_key WHERE \(condition) LIMIT $2::int8"
            return try link.read(sql, [.number(bound), .number(Int64(limit))]) { rows throws(StoreError) in
                try rows.map { row throws(StoreError) in
                    guard let digest = EnvelopeDigest(row.bytes(1)) else { throw .unreadableRow("content_key") }
                    return ContentKeyName(message: MessageID(row.identifier(0)), digest: digest)
                }
            }
        }
        let limit = min(max(prune.limit, 0), 1 << 30)
        // Expired ones among the early ones are removed first.
        return (
            try read("expires_at <= $1::int8 ORDER BY expires_at", prune.time, limit: limit),
            try read("message < $1::int8 ORDER BY message", Int64(bitPattern: prune.message.value), limit: limit * 2)
        )
    }

    private mutating func read(_ account: AccountID, _ link: Link) throws(StoreError) {
        let key = Parameter.bytes(NameKey.of(account.text))
        devices[account] = try link.read("SELECT id FROM pawl.device WHERE account_key = $1::bytea", [key]) { rows in
            rows.map { DeviceID($0.identifier(0)) }
        }
        conversations[account] = try link.read(
            "SELECT first, second FROM pawl.conversation WHERE first_key = $1::bytea OR second_key = $1::bytea", [key]
        ) { rows in
            rows.map { ConversationID(AccountID(text: $0.text(0)), AccountID(text: $0.text(1))) }
        }
        deliveries[account] = try link.read(
            "SELECT sequence FROM pawl.delivery WHERE account_key = $1::bytea", [key]
        ) { rows in rows.map { $0.identifier(0) } }
    }

    private static func sessions(of devices: Set<DeviceID>, _ link: Link) throws(StoreError) -> [SessionID] {
        let ids = Parameter.numbers(devices.map(\.value).sorted())
        let sql = """
            SELECT shard::int8, owner, peer FROM pawl.session
            WHERE owner = ANY($1::int8[]) OR peer = ANY($1::int8[])
            """
        return try link.read(sql, [ids]) { rows in
            rows.map { SessionID($0) }
        }
    }

    /// Reads the fences of the sessions that groups write.
    mutating func readFences(_ groups: [ChangeGroup], _ link: Link) throws(StoreError) {
        var ids: Set<SessionID> = []
        for group in groups {
            for case .putSession(let row) in group.changes { ids.insert(row.id) }
        }
        let wanted = Array(ids)
        let sql = """
            SELECT s.shard::int8, s.owner, s.peer, s.fence FROM pawl.session AS s
            JOIN unnest($1::int8[], $2::int8[], $3::int8[]) AS n(shard, owner, peer)
            ON s.owner = n.owner AND s.peer = n.peer AND s.shard = n.shard
            """
        let parameters: [Parameter] = [
            .numbers(wanted.map { Int64($0.shard.number) }), .numbers(wanted.map(\.owner.value)),
            .numbers(wanted.map(\.peer.value)),
        ]
        let rows = try link.read(sql, parameters) { rows in
            rows.map { (SessionID($0), $0.identifier(3)) }
        }
        fences = Dictionary(rows) { $1 }
    }
}

extension SessionID {
    /// From a row that begins with shard, owner and peer.
    fileprivate init(_ row: RowView) {
        self.init(
            owner: DeviceID(row.identifier(1)), peer: DeviceID(row.identifier(2)),
            in: Shard(UInt8(clamping: row.number(0))))
    }
}
