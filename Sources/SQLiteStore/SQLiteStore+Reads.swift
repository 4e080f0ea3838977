// Reads for the start, and reads of the vault. They use the writer's connection: only the vault writes all the time,
// and this connection's cache holds the sessions.

package import Envelope
import GRDB
package import Protection
package import RequestQueue
import SQLiteKit
import SQLiteQueue
package import StorePort

extension SQLiteStore {
    package func load() throws(StoreError) -> StoreContents {
        try translating {
            try pool.read { database in
                var contents = StoreContents()
                contents.policies = try SQLStatement(database, "SELECT account, policy FROM policy").rows { row in
                    guard let policy = Policy(rawValue: UInt8(clamping: row.number(1))) else {
                        throw unreadable("policy")
                    }
                    let account = row.text(0)
                    return (account.isEmpty ? nil : AccountID(text: account), policy)
                }
                contents.conversations = try conversations(database, limit: -1)
                contents.devices = try SQLStatement(
                    database, "SELECT id, account, sealed_identity, created_at FROM device"
                ).rows { row in
                    DeviceRow(
                        id: DeviceID(row.identifier(0)), account: AccountID(text: row.text(1)),
                        sealedIdentity: row.bytes(2), createdAt: row.number(3))
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

    package func queueContents() throws(StoreError) -> QueueContents {
        try translating { try pool.read { try QueueReader($0).load() } }
    }

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

    package func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow? {
        try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(database, "SELECT value FROM record WHERE kind = ?1 AND name = ?2")
                statement.bind(Int64(kind.rawValue), at: 1)
                statement.bind(name, at: 2)
                return try statement.rows { RecordRow(kind: kind, name: name, value: $0.bytes(0)) }.first
            }
        }
    }

    package func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] {
        try translating {
            try pool.writeWithoutTransaction { database in
                let statement = try SQLStatement(
                    database, "SELECT name, value FROM record WHERE kind = ?1 ORDER BY name")
                statement.bind(Int64(kind.rawValue), at: 1)
                return try statement.rows { RecordRow(kind: kind, name: $0.text(0), value: $0.bytes(1)) }
            }
        }
    }

    package var queueTables: any QueueReading { StoredQueue(store: self) }

    package func queuedRequest(_ id: UInt64) throws(StoreError) -> QueuedRequest? {
        try translating {
            try pool.writeWithoutTransaction { try QueueReader($0).stored(id)?.request }
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

    /// The error for a row with contents that this program never writes.
    func unreadable(_ table: String) -> StoreError {
        .corrupt(StoreError.damaged(files.store, "a row of \(table) cannot be understood"))
    }
}
