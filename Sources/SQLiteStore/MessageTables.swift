// The tables that messages write: sessions, deliveries and content keys, with their statements, writer and reads. The
// reads use the writer's connection: only it writes all the time, and its cache holds the sessions.

package import Envelope
import GRDB
import GRDBSQLite
package import Protection
import SQLiteKit
import SQLiteQueue
import StoreBase
package import StorePort

/// A statement that writes the rows of messages.
enum MessageStatement: Int, StatementName {
    case putSession, readFence, insertDelivery, removeDelivery, putContentKey, raiseHighest

    var sql: String {
        switch self {
        case .putSession:
            """
            INSERT INTO session (owner, peer, fence, sealed_state) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (owner, peer) DO UPDATE SET fence = excluded.fence, sealed_state = excluded.sealed_state
            WHERE excluded.fence > fence
            """
        case .readFence: "SELECT fence FROM session WHERE owner = ?1 AND peer = ?2"
        case .insertDelivery: "INSERT OR REPLACE INTO delivery (sequence, account, sealed_line) VALUES (?1, ?2, ?3)"
        case .removeDelivery: "DELETE FROM delivery WHERE sequence = ?1"
        case .putContentKey:
            "INSERT OR REPLACE INTO content_key (message, digest, expires_at, sealed_key) VALUES (?1, ?2, ?3, ?4)"
        case .raiseHighest:
            """
            UPDATE meta SET highest_request = max(highest_request, ?1), highest_delivery = max(highest_delivery, ?2)
            WHERE id = 1
            """
        }
    }
}

/// Writes the changes of one transaction. It uses neither files nor transactions.
struct ChangeWriter {
    private let database: Database
    private var statements: Statements<MessageStatement>
    private var coalescer: SessionCoalescer
    private var queue: QueueWriter
    var rare: RareWriter
    /// Ids that the transaction has used, for ``flush()``.
    private var highestMessage: UInt64 = 0
    private var highestDelivery: UInt64 = 0

    init(_ database: Database, _ groups: [ChangeGroup], _ authenticator: RowAuthenticator) {
        self.database = database
        statements = Statements(database)
        coalescer = SessionCoalescer(groups)
        queue = QueueWriter(database)
        rare = RareWriter(database, authenticator)
    }

    /// Keeps the staged sessions of a group that succeeded, or drops those of one that failed.
    mutating func endGroup(succeeded: Bool) { coalescer.endGroup(succeeded: succeeded) }

    /// Writes one change.
    ///
    /// - Returns: why its group fails, and the change has written nothing; nil if it succeeded.
    /// - Throws: an error that fails the whole transaction.
    mutating func apply(_ change: StoreChange) throws -> StoreError? {
        switch change {
        case .putSession(let row): return try put(row) ? nil : .fenced
        case .queue(let change): try queue.apply(change)
        case .insertDelivery(let row):
            let statement = try statements[.insertDelivery]
            statement.bind(row.sequence, at: 1)
            statement.bind(row.account.text, at: 2)
            try statement.run(bytes: row.sealedLine, at: 3)
            highestDelivery = max(highestDelivery, row.sequence)
        case .removeDelivery(let sequence):
            let statement = try statements[.removeDelivery]
            statement.bind(sequence, at: 1)
            try statement.run()
        case .putContentKey(let row):
            let statement = try statements[.putContentKey]
            statement.bind(row.message.value, at: 1)
            statement.bind(row.digest.bytes, at: 2)
            statement.bind(row.expiresAt, at: 3)
            try statement.run(bytes: row.sealedKey, at: 4)
        case .spendMessageID(let id): highestMessage = max(highestMessage, id)
        case .rare(let change): try rare.apply(change)
        }
        return nil
    }

    /// Writes what was held back: sessions, and the highest ids. Call it once, before the commit.
    mutating func flush() throws {
        for row in coalescer.takePending() where try !write(row) {
            throw StoreError.corrupt("A session's fence moved inside a transaction.")
        }
        guard highestMessage > 0 || highestDelivery > 0 else { return }
        let statement = try statements[.raiseHighest]
        statement.bind(highestMessage, at: 1)
        statement.bind(highestDelivery, at: 2)
        try statement.run()
    }

    private mutating func put(_ row: SessionRow) throws -> Bool {
        guard coalescer.holds(row.id) else { return try write(row) }
        if let fence = try coalescer.fence(row.id) ?? storedFence(row.id), fence >= row.fence { return false }
        coalescer.stage(row)
        return true
    }

    /// - Returns: whether the row was written, which an old fence prevents.
    private mutating func write(_ row: SessionRow) throws -> Bool {
        let statement = try statements[.putSession]
        statement.bind(row.id.owner.value, at: 1)
        statement.bind(row.id.peer.value, at: 2)
        statement.bind(row.fence, at: 3)
        try statement.run(bytes: row.sealedState, at: 4)
        return sqlite3_changes(database.sqliteConnection) > 0
    }

    private mutating func storedFence(_ id: SessionID) throws -> UInt64? {
        let statement = try statements[.readFence]
        statement.bind(id.owner.value, at: 1)
        statement.bind(id.peer.value, at: 2)
        return try statement.rows { $0.identifier(0) }.first
    }
}

extension SQLiteStore {
    package func session(_ id: SessionID) throws(StoreError) -> SessionRow? {
        try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(
                    database, "SELECT fence, sealed_state FROM session WHERE owner = ?1 AND peer = ?2")
                statement.bind(id.owner.value, at: 1)
                statement.bind(id.peer.value, at: 2)
                return try statement.rows { SessionRow(id: id, fence: $0.identifier(0), sealedState: $0.bytes(1)) }
                    .first
            }
        }
    }

    package func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow] {
        try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(
                    database, "SELECT sequence, sealed_line FROM delivery WHERE account = ?1 ORDER BY sequence")
                statement.bind(account.text, at: 1)
                return try statement.rows { row in
                    DeliveryRow(sequence: row.identifier(0), account: account, sealedLine: row.bytes(1))
                }
            }
        }
    }

    package func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow] {
        try translating {
            try pool.writeWithoutTransaction { database in
                // The list is one text, so that pages of all lengths share a statement.
                let statement = try SQLStatement(
                    database,
                    """
                    SELECT message, digest, expires_at, sealed_key FROM content_key
                    WHERE message IN (SELECT value FROM json_each(?1))
                    """)
                let ids = messages.map { String(Int64(bitPattern: $0.value)) }
                statement.bind("[\(ids.joined(separator: ","))]", at: 1)
                return try statement.rows { row in
                    guard let digest = EnvelopeDigest(row.bytes(1)) else { throw unreadable("content_key") }
                    return ContentKeyRow(
                        message: MessageID(row.identifier(0)), digest: digest, expiresAt: row.number(2),
                        sealedKey: row.bytes(3))
                }
            }
        }
    }

    package func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)? {
        try translating {
            try pool.writeWithoutTransaction { database in
                try SQLStatement(
                    database,
                    "SELECT (SELECT min(expires_at) FROM content_key), (SELECT min(message) FROM content_key)"
                ).rows { row in row.isNull(0) ? nil : (row.number(0), MessageID(row.identifier(1))) }.first ?? nil
            }
        }
    }
}
