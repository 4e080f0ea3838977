// The tables that not every message writes, with their statements, writer and reads. Reports use connections of their own
// and one snapshot, so that they never delay the writer.

import Envelope
import GRDB
package import Protection
import SQLiteKit
import StoreBase
package import StorePort

/// A statement that writes rows of the rare tables.
enum RareStatement: Int, StatementName {
    case putDevice, removeSessionsOfOwner, removeSessionsOfPeer
    case forgetSessionsOfOwner, forgetSessionsOfPeer, forgetDevices, forgetConversationsAsFirst
    case forgetConversationsAsSecond, forgetDeliveries
    case putConversation, removeConversation, removeReversedConversation
    case setPolicy, removePolicy, audit, putRecord, removeRecord
    case pruneExpiredKeys, pruneEarlyKeys
    case addEvidence, countEvidence, evictEvidence, addObservation, countObservations, evictObservations, addTally

    var sql: String {
        switch self {
        case .putDevice:
            "INSERT OR REPLACE INTO device (id, account, sealed_identity, created_at, mac) VALUES (?1, ?2, ?3, ?4, ?5)"
        case .removeSessionsOfOwner: "DELETE FROM session WHERE owner = ?1"
        case .removeSessionsOfPeer: "DELETE FROM session WHERE peer = ?1"
        case .forgetSessionsOfOwner:
            "DELETE FROM session WHERE owner IN (SELECT id FROM device WHERE account = ?1)"
        case .forgetSessionsOfPeer: "DELETE FROM session WHERE peer IN (SELECT id FROM device WHERE account = ?1)"
        case .forgetDevices: "DELETE FROM device WHERE account = ?1"
        case .forgetConversationsAsFirst: "DELETE FROM conversation WHERE first = ?1"
        case .forgetConversationsAsSecond: "DELETE FROM conversation WHERE second = ?1"
        case .forgetDeliveries: "DELETE FROM delivery WHERE account = ?1"
        case .putConversation:
            """
            INSERT OR REPLACE INTO conversation
                (first, second, latch, since, peer_name_for_first, peer_name_for_second, mac)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            """
        case .removeConversation: "DELETE FROM conversation WHERE first = ?1 AND second = ?2"
        case .removeReversedConversation: "DELETE FROM conversation WHERE first = ?2 AND second = ?1"
        case .setPolicy: "INSERT OR REPLACE INTO policy (account, policy, mac) VALUES (?1, ?2, ?3)"
        case .removePolicy: "DELETE FROM policy WHERE account = ?1"
        case .audit: "INSERT INTO audit (at, actor, action, detail) VALUES (?1, ?2, ?3, ?4)"
        case .putRecord: "INSERT OR REPLACE INTO record (kind, name, value, mac) VALUES (?1, ?2, ?3, ?4)"
        case .removeRecord: "DELETE FROM record WHERE kind = ?1 AND name = ?2"
        case .pruneExpiredKeys:
            """
            DELETE FROM content_key WHERE (message, digest) IN
                (SELECT message, digest FROM content_key WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)
            """
        case .pruneEarlyKeys:
            """
            DELETE FROM content_key WHERE (message, digest) IN
                (SELECT message, digest FROM content_key WHERE message < ?1 ORDER BY message LIMIT ?2)
            """
        case .addEvidence:
            """
            INSERT INTO evidence (verified, name, software, asked, first_seen, last_seen, registrations)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT (verified, name, software) DO UPDATE SET asked = asked OR excluded.asked,
                last_seen = max(last_seen, excluded.last_seen), registrations = registrations + excluded.registrations
            """
        case .countEvidence: "SELECT count(*) FROM evidence"
        case .evictEvidence:
            """
            DELETE FROM evidence
            WHERE id IN (SELECT id FROM evidence ORDER BY verified, last_seen LIMIT ?1)
            """
        case .addObservation:
            """
            INSERT INTO observation (sender, target, recipient, messages, last_seen) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (sender, target, recipient) DO UPDATE SET messages = messages + excluded.messages,
                last_seen = excluded.last_seen
            """
        case .countObservations: "SELECT count(*) FROM observation"
        case .evictObservations:
            "DELETE FROM observation WHERE id IN (SELECT id FROM observation ORDER BY last_seen LIMIT ?1)"
        case .addTally:
            """
            INSERT INTO tally (hour, kind, count) VALUES (?1, ?2, ?3)
            ON CONFLICT (hour, kind) DO UPDATE SET count = count + excluded.count
            """
        }
    }
}

/// Writes the rare changes of one transaction.
struct RareWriter {
    private let database: Database
    private let authenticator: RowAuthenticator
    private var statements: Statements<RareStatement>
    /// Rows that the transaction has added, for ``BoundedTables``.
    private(set) var addedEvidence = 0
    private(set) var addedObservations = 0

    init(_ database: Database, _ authenticator: RowAuthenticator) {
        (self.database, self.authenticator) = (database, authenticator)
        statements = Statements(database)
    }

    mutating func apply(_ change: RareChange) throws {
        switch change {
        case .putDevice(let row): try put(row)
        case .removeSessions(let device): try removeSessions(device)
        case .forgetAccount(let account): try forget(account.text)
        case .putConversation(let row): try put(row)
        case .removeConversation(let id):
            try run(.removeConversation, id.first.text, id.second.text)
            try removeReversed(id)
        case .setPolicy(let account, let policy): try set(policy, for: account)
        case .audit(let row): try audit(row)
        case .putRecord(let row): try put(row)
        case .removeRecord(let kind, let name): try removeRecord(kind, name)
        case .pruneContentKeys(let time, let message, let limit): try prune(time, message, limit)
        case .addEvidence(let row): try add(row)
        case .addObservation(let row): try add(row)
        case .addTally(let row): try add(row)
        }
    }

    /// Evicts the oldest rows of a bounded table if it exceeds its limit, and returns the number of rows.
    mutating func evict(_ count: RareStatement, _ evict: RareStatement, limit: Int) throws -> Int {
        let rows = try statements[count].rows { Int($0.number(0)) }.first ?? 0
        guard rows > limit else { return rows }
        let excess = rows - limit + limit / StoreLimits.evictedShare
        let statement = try statements[evict]
        statement.bind(Int64(excess), at: 1)
        try statement.run()
        return rows - excess
    }

    private mutating func run(_ name: RareStatement, _ texts: String...) throws {
        let statement = try statements[name]
        for (index, text) in texts.enumerated() { statement.bind(text, at: Int32(index + 1)) }
        try statement.run()
    }

    // MARK: Devices and conversations

    private mutating func put(_ row: DeviceRow) throws {
        let statement = try statements[.putDevice]
        statement.bind(row.id.value, at: 1)
        statement.bind(row.account.text, at: 2)
        statement.bind(row.createdAt, at: 4)
        statement.bind(authenticator.code(AuthenticatedRow(row)), at: 5)
        try statement.run(bytes: row.sealedIdentity, at: 3)
    }

    private mutating func removeSessions(_ device: DeviceID) throws {
        for name in [RareStatement.removeSessionsOfOwner, .removeSessionsOfPeer] {
            let statement = try statements[name]
            statement.bind(device.value, at: 1)
            try statement.run()
        }
    }

    private mutating func forget(_ account: String) throws {
        try run(.forgetSessionsOfOwner, account)
        try run(.forgetSessionsOfPeer, account)
        try run(.forgetDevices, account)
        try run(.forgetConversationsAsFirst, account)
        try run(.forgetConversationsAsSecond, account)
        try run(.forgetDeliveries, account)
    }

    /// Removes the row that an earlier version has stored under the other order of the accounts; see
    /// ``ConversationID``.
    private mutating func removeReversed(_ id: ConversationID) throws {
        guard id.first != id.second else { return }
        try run(.removeReversedConversation, id.first.text, id.second.text)
    }

    private mutating func put(_ row: ConversationRow) throws {
        try removeReversed(row.id)
        let statement = try statements[.putConversation]
        statement.bind(row.id.first.text, at: 1)
        statement.bind(row.id.second.text, at: 2)
        statement.bind(Int64(row.latch.rawValue), at: 3)
        statement.bind(row.since, at: 4)
        statement.bind(row.peerNameForFirst, at: 5)
        statement.bind(row.peerNameForSecond, at: 6)
        let columns = AuthenticatedRow(
            conversation: row.id.first.text, row.id.second.text, latch: Int64(row.latch.rawValue), since: row.since,
            names: (row.peerNameForFirst, row.peerNameForSecond))
        statement.bind(authenticator.code(columns), at: 7)
        try statement.run()
    }

    // MARK: Policies, audit log, records

    private mutating func set(_ policy: Policy?, for account: AccountID?) throws {
        guard let policy else { return try run(.removePolicy, account?.text ?? "") }
        let statement = try statements[.setPolicy]
        statement.bind(account?.text ?? "", at: 1)
        statement.bind(Int64(policy.rawValue), at: 2)
        let columns = AuthenticatedRow(policy: account?.text ?? "", Int64(policy.rawValue))
        statement.bind(authenticator.code(columns), at: 3)
        try statement.run()
    }

    private mutating func audit(_ row: AuditRow) throws {
        let statement = try statements[.audit]
        statement.bind(row.at, at: 1)
        statement.bind(row.actor, at: 2)
        statement.bind(row.action, at: 3)
        statement.bind(row.detail, at: 4)
        try statement.run()
    }

    private mutating func put(_ row: RecordRow) throws {
        let statement = try statements[.putRecord]
        statement.bind(Int64(row.kind.rawValue), at: 1)
        statement.bind(row.name, at: 2)
        statement.bind(authenticator.code(AuthenticatedRow(row)), at: 4)
        try statement.run(bytes: row.value, at: 3)
    }

    private mutating func removeRecord(_ kind: RecordKind, _ name: String) throws {
        let statement = try statements[.removeRecord]
        statement.bind(Int64(kind.rawValue), at: 1)
        statement.bind(name, at: 2)
        try statement.run()
    }

    // MARK: Content keys

    /// Removes expired and early keys, and overwrites their bytes, so that freed pages do not hold them.
    private mutating func prune(_ time: Int64, _ message: MessageID, _ limit: Int) throws {
        try database.execute(sql: "PRAGMA secure_delete = ON")
        // Other removed rows are sealed under keys that are removed as well, or are overwritten in place.
        defer { try? database.execute(sql: "PRAGMA secure_delete = OFF") }
        let bounds = [(RareStatement.pruneExpiredKeys, time), (.pruneEarlyKeys, Int64(bitPattern: message.value))]
        for (name, bound) in bounds {
            let statement = try statements[name]
            statement.bind(bound, at: 1)
            statement.bind(Int64(limit), at: 2)
            try statement.run()
        }
    }

    // MARK: Reports

    private mutating func add(_ row: EvidenceRow) throws {
        addedEvidence += 1
        let statement = try statements[.addEvidence]
        statement.bind(Int64(row.verified ? 1 : 0), at: 1)
        statement.bind(row.name, at: 2)
        statement.bind(row.software, at: 3)
        statement.bind(Int64(row.asked ? 1 : 0), at: 4)
        statement.bind(row.firstSeen, at: 5)
        statement.bind(row.lastSeen, at: 6)
        statement.bind(Int64(row.registrations), at: 7)
        try statement.run()
    }

    private mutating func add(_ row: ObservationRow) throws {
        addedObservations += 1
        let statement = try statements[.addObservation]
        statement.bind(row.sender, at: 1)
        statement.bind(row.target, at: 2)
        statement.bind(row.recipient, at: 3)
        statement.bind(Int64(row.messages), at: 4)
        statement.bind(row.lastSeen, at: 5)
        try statement.run()
    }

    private mutating func add(_ row: TallyRow) throws {
        let statement = try statements[.addTally]
        statement.bind(row.hour, at: 1)
        statement.bind(row.kind, at: 2)
        statement.bind(Int64(row.count), at: 3)
        try statement.run()
    }
}

/// Upper bounds of the sizes of the bounded tables, so that rows are counted only if a table may be full.
struct BoundedTables: Sendable {
    private var evidence = Int.max / 2
    private var observations = Int.max / 2

    /// Evicts excess rows after a batch.
    mutating func settle(_ writer: inout RareWriter, _ limits: StoreLimits) throws {
        evidence += writer.addedEvidence
        if writer.addedEvidence > 0, evidence > limits.evidence {
            evidence = try writer.evict(.countEvidence, .evictEvidence, limit: limits.evidence)
        }
        observations += writer.addedObservations
        if writer.addedObservations > 0, observations > limits.observations {
            observations = try writer.evict(.countObservations, .evictObservations, limit: limits.observations)
        }
    }
}

extension SQLiteStore {
    package func load() throws(StoreError) -> StoreContents {
        try translating {
            try pool.read { database in
                var contents = StoreContents()
                contents.epochs = [.only]
                contents.policies = try SQLStatement(database, "SELECT account, policy, mac FROM policy").rows { row in
                    try authenticator.demand(AuthenticatedRow(policy: row.text(0), row.number(1)), has: row.bytes(2))
                    guard let policy = Policy(rawValue: UInt8(clamping: row.number(1))) else {
                        throw unreadable("policy")
                    }
                    let account = row.text(0)
                    return (account.isEmpty ? nil : AccountID(text: account), policy)
                }
                contents.conversations = try conversations(database, limit: -1)
                contents.devices = try SQLStatement(
                    database, "SELECT id, account, sealed_identity, created_at, mac FROM device"
                ).rows { row in
                    let device = DeviceRow(
                        id: DeviceID(row.identifier(0)), account: AccountID(text: row.text(1)),
                        sealedIdentity: row.bytes(2), createdAt: row.number(3))
                    try authenticator.demand(AuthenticatedRow(device), has: row.bytes(4))
                    return device
                }
                let highest = try SQLStatement(
                    database, "SELECT highest_request, highest_delivery FROM meta WHERE id = 1"
                ).rows { ($0.identifier(0), $0.identifier(1)) }.first
                (contents.highestMessage, contents.highestDelivery) = highest ?? (0, 0)
                guard max(contents.highestMessage, contents.highestDelivery) < StoreLimits.highestNumber else {
                    throw unreadable("meta")
                }
                return contents
            }
        }
    }

    package func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow? {
        try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(
                    database, "SELECT name, value, mac FROM record WHERE kind = ?1 AND name = ?2")
                statement.bind(Int64(kind.rawValue), at: 1)
                statement.bind(name, at: 2)
                return try statement.rows { try record(kind, $0) }.first
            }
        }
    }

    package func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] {
        try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(
                    database, "SELECT name, value, mac FROM record WHERE kind = ?1 ORDER BY name")
                statement.bind(Int64(kind.rawValue), at: 1)
                return try statement.rows { try record(kind, $0) }
            }
        }
    }

    package func records(
        _ kind: RecordKind, from: String, to: String, last limit: Int
    ) throws(StoreError) -> [RecordRow] {
        let rows = try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(
                    database,
                    """
                    SELECT name, value, mac FROM record WHERE kind = ?1 AND name >= ?2 AND name < ?3
                    ORDER BY name DESC LIMIT ?4
                    """)
                statement.bind(Int64(kind.rawValue), at: 1)
                statement.bind(from, at: 2)
                statement.bind(to, at: 3)
                statement.bind(Int64(max(limit, 0)), at: 4)
                return try statement.rows { try record(kind, $0) }
            }
        }
        return rows.reversed()
    }

    /// - Parameter row: name, value and code.
    private func record(_ kind: RecordKind, _ row: SQLColumns) throws -> RecordRow {
        let record = RecordRow(kind: kind, name: row.text(0), value: row.bytes(1))
        try authenticator.demand(AuthenticatedRow(record), has: row.bytes(2))
        return record
    }

    package func evidence(limit: Int) throws(StoreError) -> [EvidenceRow] {
        let sql = """
            SELECT name, verified, software, asked, first_seen, last_seen, registrations FROM evidence
            ORDER BY last_seen DESC LIMIT ?1
            """
        return try report(sql, Int64(limit)) { row in
            EvidenceRow(
                name: row.text(0), verified: row.number(1) != 0, software: row.text(2), asked: row.number(3) != 0,
                firstSeen: row.number(4), lastSeen: row.number(5), registrations: row.count(6))
        }
    }

    package func observations(limit: Int) throws(StoreError) -> [ObservationRow] {
        let sql = """
            SELECT sender, target, recipient, messages, last_seen FROM observation ORDER BY messages DESC LIMIT ?1
            """
        return try report(sql, Int64(limit)) { row in
            ObservationRow(
                sender: row.text(0), target: row.text(1), recipient: row.text(2), messages: row.count(3),
                lastSeen: row.number(4))
        }
    }

    package func tallies(sinceHour hour: Int64) throws(StoreError) -> [TallyRow] {
        try report("SELECT hour, kind, count FROM tally WHERE hour >= ?1 ORDER BY hour, kind", hour) { row in
            TallyRow(hour: row.number(0), kind: row.text(1), count: row.count(2))
        }
    }

    package func auditLog(limit: Int) throws(StoreError) -> [AuditRow] {
        try report("SELECT at, actor, action, detail FROM audit ORDER BY id DESC LIMIT ?1", Int64(limit)) { row in
            AuditRow(at: row.number(0), actor: row.text(1), action: row.text(2), detail: row.text(3))
        }.reversed()
    }

    package func deviceAccounts(limit: Int) throws(StoreError) -> [AccountID] {
        try report("SELECT DISTINCT account FROM device ORDER BY account LIMIT ?1", Int64(limit)) { row in
            AccountID(text: row.text(0))
        }
    }

    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        try translating { try pool.read { try conversations($0, limit: limit) } }
    }

    /// - Parameter limit: negative for all.
    func conversations(_ database: Database, limit: Int) throws -> [ConversationRow] {
        let statement = try SQLStatement(
            database,
            """
            SELECT first, second, latch, since, peer_name_for_first, peer_name_for_second, mac FROM conversation
            ORDER BY since LIMIT ?1
            """)
        statement.bind(Int64(limit), at: 1)
        return try statement.rows { row in
            let columns = AuthenticatedRow(
                conversation: row.text(0), row.text(1), latch: row.number(2), since: row.number(3),
                names: (row.text(4), row.text(5)))
            try authenticator.demand(columns, has: row.bytes(6))
            guard let latch = Protection(rawValue: UInt8(clamping: row.number(2))) else {
                throw unreadable("conversation")
            }
            return ConversationRow(
                id: ConversationID(AccountID(text: row.text(0)), AccountID(text: row.text(1))), latch: latch,
                since: row.number(3), peerNameForFirst: row.text(4), peerNameForSecond: row.text(5))
        }
    }
}
