// Writes one transaction's changes as statements. It uses neither files nor transactions.

import Envelope
import GRDB
import GRDBSQLite
import Protection
import RequestQueue
import SQLiteKit
import SQLiteQueue
import StorePort

/// Writes changes through one connection while a transaction is open.
struct ChangeWriter {
    let database: Database
    private var statements: [SQLStatement?]
    private var coalescer: SessionCoalescer
    private var queue: QueueWriter
    /// Ids and counts that the transaction has raised, for ``raiseHighest()`` and `BoundedTables.settle`.
    private(set) var highestMessage: UInt64 = 0
    private(set) var highestDelivery: UInt64 = 0
    var addedEvidence = 0
    var addedObservations = 0

    init(_ database: Database, _ groups: [ChangeGroup]) {
        self.database = database
        statements = Array(repeating: nil, count: ChangeStatement.allCases.count)
        coalescer = SessionCoalescer(groups)
        queue = QueueWriter(database)
    }

    mutating func statement(_ name: ChangeStatement) throws -> SQLStatement {
        if let statement = statements[name.rawValue] { return statement }
        let statement = try SQLStatement(database, name.sql)
        statements[name.rawValue] = statement
        return statement
    }

    private var changed: Bool { sqlite3_changes(database.sqliteConnection) > 0 }

    /// Keeps the staged sessions of a group that succeeded, or drops those of one that failed.
    mutating func endGroup(succeeded: Bool) { coalescer.endGroup(succeeded: succeeded) }

    /// Writes one change.
    ///
    /// - Returns: why its group fails, and the change has written nothing; nil if it succeeded.
    /// - Throws: an error that fails the whole transaction.
    mutating func apply(_ change: StoreChange) throws -> StoreError? {
        switch change {
        case .putSession(let row):
            return try put(row) ? nil : .fenced
        case .queue(let change): try queue.apply(change)
        case .insertDelivery(let row):
            let statement = try statement(.insertDelivery)
            statement.bind(row.sequence, at: 1)
            statement.bind(row.account.text, at: 2)
            try statement.run(bytes: row.sealedLine, at: 3)
            highestDelivery = max(highestDelivery, row.sequence)
        case .removeDelivery(let sequence): try run(.removeDelivery, sequence)
        case .putDevice(let row):
            let statement = try statement(.putDevice)
            statement.bind(row.id.value, at: 1)
            statement.bind(row.account.text, at: 2)
            statement.bind(row.createdAt, at: 4)
            try statement.run(bytes: row.sealedIdentity, at: 3)
        case .removeSessions(let device):
            try run(.removeSessionsOfOwner, device.value)
            try run(.removeSessionsOfPeer, device.value)
        case .forgetAccount(let account): try forget(account.text)
        case .putContentKey(let row):
            let statement = try statement(.putContentKey)
            statement.bind(row.message.value, at: 1)
            statement.bind(row.digest.bytes, at: 2)
            statement.bind(row.expiresAt, at: 3)
            try statement.run(bytes: row.sealedKey, at: 4)
        case .spendMessageID(let id): highestMessage = max(highestMessage, id)
        case .putConversation(let row): try put(row)
        case .removeConversation(let id): try removeConversation(id)
        case .setPolicy(let account, let policy): try set(policy, for: account)
        case .addEvidence(let row): try add(row)
        case .addObservation(let row): try add(row)
        case .addTally(let row): try add(row)
        case .audit(let row): try audit(row)
        case .putRecord(let row): try put(row)
        case .removeRecord(let kind, let name): try removeRecord(kind, name)
        case .pruneContentKeys(let time, let message, let limit): try prune(time, message, limit)
        }
        return nil
    }

    /// Writes the sessions that were held back. Call it once, before the commit.
    mutating func flush() throws {
        for row in coalescer.takePending() where try !write(row) {
            throw StoreError.corrupt("A session's fence moved inside a transaction.")
        }
    }

    mutating func raiseHighest() throws {
        guard highestMessage > 0 || highestDelivery > 0 else { return }
        let statement = try statement(.raiseHighest)
        statement.bind(highestMessage, at: 1)
        statement.bind(highestDelivery, at: 2)
        try statement.run()
    }

    /// Evicts the oldest rows of a bounded table if it exceeds its limit, and returns the number of rows.
    mutating func evict(
        _ count: ChangeStatement, _ evict: ChangeStatement, limit: Int
    ) throws -> Int {
        let rows = try statement(count).rows { Int($0.number(0)) }.first ?? 0
        guard rows > limit else { return rows }
        let excess = rows - limit + limit / StoreLimits.evictedShare
        try run(evict, UInt64(excess))
        return rows - excess
    }

    // MARK: Hot

    private mutating func put(_ row: SessionRow) throws -> Bool {
        guard coalescer.holds(row.id) else { return try write(row) }
        if let fence = try coalescer.fence(row.id) ?? storedFence(row.id), fence >= row.fence { return false }
        coalescer.stage(row)
        return true
    }

    private mutating func write(_ row: SessionRow) throws -> Bool {
        let statement = try statement(.putSession)
        statement.bind(row.id.owner.value, at: 1)
        statement.bind(row.id.peer.value, at: 2)
        statement.bind(row.fence, at: 3)
        try statement.run(bytes: row.sealedState, at: 4)
        return changed
    }

    private mutating func storedFence(_ id: SessionID) throws -> UInt64? {
        let statement = try statement(.readFence)
        statement.bind(id.owner.value, at: 1)
        statement.bind(id.peer.value, at: 2)
        return try statement.rows { $0.identifier(0) }.first
    }

    private mutating func run(_ name: ChangeStatement, _ number: UInt64) throws {
        let statement = try statement(name)
        statement.bind(number, at: 1)
        try statement.run()
    }
}
