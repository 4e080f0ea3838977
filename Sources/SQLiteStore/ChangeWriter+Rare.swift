// Changes that are rare, not part of every message.

import Envelope
import GRDB
import Protection
import SQLiteKit
import StorePort

extension ChangeWriter {
    private mutating func run(_ name: ChangeStatement, _ texts: String...) throws {
        let statement = try statement(name)
        for (index, text) in texts.enumerated() { statement.bind(text, at: Int32(index + 1)) }
        try statement.run()
    }

    mutating func forget(_ account: String) throws {
        try run(.forgetSessionsOfOwner, account)
        try run(.forgetSessionsOfPeer, account)
        try run(.forgetDevices, account)
        try run(.forgetConversationsAsFirst, account)
        try run(.forgetConversationsAsSecond, account)
        try run(.forgetDeliveries, account)
    }

    /// Removes expired and early keys, and overwrites their bytes, so that freed pages do not hold them.
    mutating func prune(_ time: Int64, _ message: MessageID, _ limit: Int) throws {
        try database.execute(sql: "PRAGMA secure_delete = ON")
        // Other removed rows are sealed under keys that are removed as well, or are overwritten in place.
        defer { try? database.execute(sql: "PRAGMA secure_delete = OFF") }
        let bounds = [(ChangeStatement.pruneExpiredKeys, time), (.pruneEarlyKeys, Int64(bitPattern: message.value))]
        for (name, bound) in bounds {
            let statement = try statement(name)
            statement.bind(bound, at: 1)
            statement.bind(Int64(limit), at: 2)
            try statement.run()
        }
    }

    mutating func removeConversation(_ id: ConversationID) throws {
        try run(.removeConversation, id.first.text, id.second.text)
    }

    mutating func set(_ policy: Policy?, for account: AccountID?) throws {
        guard let policy else { return try run(.removePolicy, account?.text ?? "") }
        let statement = try statement(.setPolicy)
        statement.bind(account?.text ?? "", at: 1)
        statement.bind(Int64(policy.rawValue), at: 2)
        try statement.run()
    }

    mutating func add(_ row: TallyRow) throws {
        let statement = try statement(.addTally)
        statement.bind(row.hour, at: 1)
        statement.bind(row.kind, at: 2)
        statement.bind(Int64(row.count), at: 3)
        try statement.run()
    }

    mutating func audit(_ row: AuditRow) throws {
        let statement = try statement(.audit)
        statement.bind(row.at, at: 1)
        statement.bind(row.actor, at: 2)
        statement.bind(row.action, at: 3)
        statement.bind(row.detail, at: 4)
        try statement.run()
    }

    mutating func put(_ row: RecordRow) throws {
        let statement = try statement(.putRecord)
        statement.bind(Int64(row.kind.rawValue), at: 1)
        statement.bind(row.name, at: 2)
        try statement.run(bytes: row.value, at: 3)
    }

    mutating func removeRecord(_ kind: RecordKind, _ name: String) throws {
        let statement = try statement(.removeRecord)
        statement.bind(Int64(kind.rawValue), at: 1)
        statement.bind(name, at: 2)
        try statement.run()
    }

    mutating func put(_ row: ConversationRow) throws {
        let statement = try statement(.putConversation)
        statement.bind(row.id.first.text, at: 1)
        statement.bind(row.id.second.text, at: 2)
        statement.bind(Int64(row.latch.rawValue), at: 3)
        statement.bind(row.since, at: 4)
        statement.bind(row.peerNameForFirst, at: 5)
        statement.bind(row.peerNameForSecond, at: 6)
        try statement.run()
    }

    mutating func add(_ row: EvidenceRow) throws {
        addedEvidence += 1
        let statement = try statement(.addEvidence)
        statement.bind(Int64(row.verified ? 1 : 0), at: 1)
        statement.bind(row.name, at: 2)
        statement.bind(row.software, at: 3)
        statement.bind(Int64(row.asked ? 1 : 0), at: 4)
        statement.bind(row.firstSeen, at: 5)
        statement.bind(row.lastSeen, at: 6)
        statement.bind(Int64(row.registrations), at: 7)
        try statement.run()
    }

    mutating func add(_ row: ObservationRow) throws {
        addedObservations += 1
        let statement = try statement(.addObservation)
        statement.bind(row.sender, at: 1)
        statement.bind(row.target, at: 2)
        statement.bind(row.recipient, at: 3)
        statement.bind(Int64(row.messages), at: 4)
        statement.bind(row.lastSeen, at: 5)
        try statement.run()
    }
}
