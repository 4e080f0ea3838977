// What people ask. Read through connections of their own, from one snapshot: a report never stalls the writer.

import Envelope
import GRDB
package import GatewayCore
package import RequestQueue
import SQLiteKit

extension SQLiteStore {
    static let selectRequest = """
        SELECT id, account, peer, target, verb, bodies, state, remote_id, reason, accepted_at, attempts, finished_at
        FROM request
        """

    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        // In words that the partial indexes know.
        let condition =
            states.count == 1
            ? "state = \(states[0].rawValue)"
            : "state IN (\(states.map { String($0.rawValue) }.joined(separator: ", ")))"
        return try report("\(Self.selectRequest) WHERE \(condition) ORDER BY id LIMIT ?1", Int64(limit), request)
    }

    package func request(_ id: UInt64) throws(StoreError) -> Request? {
        try report("\(Self.selectRequest) WHERE id = ?1", Int64(bitPattern: id), request).first
    }

    package func requestCounts() throws(StoreError) -> [RequestState: Int] {
        let sql = """
            SELECT
                (SELECT count(*) FROM request WHERE state = 0),
                (SELECT count(*) FROM request WHERE state = 2),
                (SELECT count(*) FROM request)
            """
        let (pending, dead, all) = try report(sql) { row in
            (Int(row.number(0)), Int(row.number(1)), Int(row.number(2)))
        }[0]
        let counts: [RequestState: Int] = [.pending: pending, .dead: dead, .done: all - pending - dead]
        return counts.filter { $0.value > 0 }
    }

    package func evidence(limit: Int) throws(StoreError) -> [EvidenceRow] {
        let sql = """
            SELECT name, verified, software, asked, first_seen, last_seen, registrations FROM evidence
            ORDER BY last_seen DESC LIMIT ?1
            """
        return try report(sql, Int64(limit)) { row in
            EvidenceRow(
                name: row.text(0), verified: row.number(1) != 0, software: row.text(2), asked: row.number(3) != 0,
                firstSeen: row.number(4), lastSeen: row.number(5), registrations: Int(row.number(6)))
        }
    }

    package func observations(limit: Int) throws(StoreError) -> [ObservationRow] {
        let sql = """
            SELECT sender, target, recipient, messages, last_seen FROM observation ORDER BY messages DESC LIMIT ?1
            """
        return try report(sql, Int64(limit)) { row in
            ObservationRow(
                sender: row.text(0), target: row.text(1), recipient: row.text(2), messages: Int(row.number(3)),
                lastSeen: row.number(4))
        }
    }

    package func tallies(sinceHour hour: Int64) throws(StoreError) -> [TallyRow] {
        try report("SELECT hour, kind, count FROM tally WHERE hour >= ?1 ORDER BY hour, kind", hour) { row in
            TallyRow(hour: row.number(0), kind: row.text(1), count: Int(row.number(2)))
        }
    }

    package func auditLog(limit: Int) throws(StoreError) -> [AuditRow] {
        try report("SELECT at, actor, action, detail FROM audit ORDER BY id DESC LIMIT ?1", Int64(limit)) { row in
            AuditRow(at: row.number(0), actor: row.text(1), action: row.text(2), detail: row.text(3))
        }.reversed()
    }

    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        try translating { try pool.read { try conversations($0, limit: limit) } }
    }

    /// - Parameter limit: below zero for all.
    func conversations(_ database: Database, limit: Int) throws -> [ConversationRow] {
        let statement = try SQLStatement(
            database,
            """
            SELECT first, second, latch, since, peer_name_for_first, peer_name_for_second FROM conversation
            ORDER BY since LIMIT ?1
            """)
        statement.bind(Int64(limit), at: 1)
        return try statement.rows { row in
            guard let latch = Protection(rawValue: UInt8(clamping: row.number(2))) else {
                throw unreadable("conversation")
            }
            return ConversationRow(
                id: ConversationID(AccountID(text: row.text(0)), AccountID(text: row.text(1))), latch: latch,
                since: row.number(3), peerNameForFirst: row.text(4), peerNameForSecond: row.text(5))
        }
    }

    func request(_ row: SQLColumns) throws -> Request {
        guard let state = RequestState(rawValue: UInt8(clamping: row.number(6))),
            let bodies = Request.decodeBodies(row.bytes(5))
        else { throw unreadable("request") }
        return Request(
            id: row.identifier(0), account: row.text(1), peer: row.text(2), target: row.text(3), verb: row.text(4),
            bodies: bodies, state: state, remoteID: row.optionalText(7), reason: row.optionalText(8),
            acceptedAt: row.number(9), attempts: Int(row.number(10)), finishedAt: row.optionalNumber(11))
    }

    private func report<Value>(
        _ sql: String, _ argument: Int64? = nil, _ value: (SQLColumns) throws -> Value
    ) throws(StoreError) -> [Value] {
        try translating(files.store) {
            try pool.read { database in
                let statement = try SQLStatement(database, sql)
                if let argument { statement.bind(argument, at: 1) }
                return try statement.rows(value)
            }
        }
    }
}
