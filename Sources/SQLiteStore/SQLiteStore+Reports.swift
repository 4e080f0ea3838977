// Reads for reports. They use connections of their own and one snapshot, so that a report never delays the writer.

import Envelope
import GRDB
import Protection
package import RequestQueue
import SQLiteKit
import SQLiteQueue
package import StorePort

extension SQLiteStore {
    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        let states = states + (states.contains(.pending) ? [.inFlight] : [])
        return try translating(files.store) {
            try pool.read { database in
                let queue = QueueReader(database)
                let rows = try queue.stored(states: states, after: 0, limit: limit)
                let names = try rows.isEmpty ? [:] : queue.remotes(of: Request.message)
                return rows.compactMap { Request($0, finishedAt: $1, remoteID: names["\($0.id)"]) }
            }
        }
    }

    package func request(_ id: UInt64) throws(StoreError) -> Request? {
        try translating(files.store) {
            try pool.read { database in
                let queue = QueueReader(database)
                guard let (request, finishedAt) = try queue.stored(id) else { return nil }
                let names = try queue.remotes(of: Request.message, local: "\(id)")
                return Request(request, finishedAt: finishedAt, remoteID: names["\(id)"])
            }
        }
    }

    package func requestCounts() throws(StoreError) -> [RequestState: Int] {
        let counts = try report("SELECT state, count(*) FROM queue_progress GROUP BY state") { row in
            (RequestState(rawValue: UInt8(clamping: row.number(0))) ?? .dead, Int(row.number(1)))
        }
        return Dictionary(counts) { $0 + $1 }
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

    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        try translating { try pool.read { try conversations($0, limit: limit) } }
    }

    /// - Parameter limit: negative for all.
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
