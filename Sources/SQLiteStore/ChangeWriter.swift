// One transaction's changes, as statements. It knows rows and their order, neither files nor transactions.

import Envelope
import GRDB
import GRDBSQLite
import GatewayCore
import RequestQueue
import SQLiteKit

/// Writes changes through one connection while a transaction is open.
struct ChangeWriter {
    let database: Database
    private var statements: [SQLStatement?]
    private var coalescer: SessionCoalescer
    /// What the transaction may have added to, for ``settle(_:_:)``.
    private(set) var highestRequest: UInt64 = 0
    private(set) var highestDelivery: UInt64 = 0
    var addedEvidence = 0
    var addedObservations = 0

    init(_ database: Database, _ groups: [[StoreChange]]) {
        self.database = database
        statements = Array(repeating: nil, count: ChangeStatement.allCases.count)
        coalescer = SessionCoalescer(groups)
    }

    mutating func statement(_ name: ChangeStatement) throws -> SQLStatement {
        if let statement = statements[name.rawValue] { return statement }
        let statement = try SQLStatement(database, name.sql)
        statements[name.rawValue] = statement
        return statement
    }

    private var changed: Bool { sqlite3_changes(database.sqliteConnection) > 0 }

    /// Takes the sessions of a group that has succeeded into account, or forgets those of one that has failed.
    mutating func endGroup(succeeded: Bool) { coalescer.endGroup(succeeded: succeeded) }

    /// Writes one change.
    ///
    /// - Returns: why its group fails; then this change has written nothing.
    /// - Throws: what fails the whole transaction.
    mutating func apply(_ change: StoreChange) throws -> StoreError? {
        switch change {
        case .putSession(let row):
            return try put(row) ? nil : .fenced
        case .insertRequest(let request):
            return try insert(request) ? nil : .corrupt("The request exists already.")
        case .updateRequest(let id, let state, let remoteID, let reason, let at):
            let statement = try statement(.updateRequest)
            statement.bind(id, at: 1)
            statement.bind(Int64(state.rawValue), at: 2)
            statement.bind(remoteID, at: 3)
            statement.bind(reason, at: 4)
            if state == .pending { statement.bindNothing(at: 5) } else { statement.bind(at, at: 5) }
            try statement.run()
        case .retryRequest(let id): try run(.retryRequest, id)
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
        case .pruneRequests(let time): try run(.pruneRequests, UInt64(bitPattern: time))
        case .forgetAccount(let account, let reason, let at): try forget(account.text, reason, at)
        case .putContentKey(let row):
            let statement = try statement(.putContentKey)
            statement.bind(row.message.value, at: 1)
            statement.bind(row.digest.bytes, at: 2)
            statement.bind(row.expiresAt, at: 3)
            try statement.run(bytes: row.sealedKey, at: 4)
        case .spendRequestID(let id): highestRequest = max(highestRequest, id)
        case .putConversation, .removeConversation, .setPolicy, .addEvidence, .addObservation, .addTally, .audit,
            .putRecord, .removeRecord, .pruneContentKeys:
            try applyRare(change)
        }
        return nil
    }

    /// Writes the sessions that were held back. Called once, before the commit.
    mutating func flush() throws {
        for row in coalescer.takePending() where try !write(row) {
            throw StoreError.corrupt("A session's fence moved inside a transaction.")
        }
    }

    mutating func raiseHighest() throws {
        guard highestRequest > 0 || highestDelivery > 0 else { return }
        let statement = try statement(.raiseHighest)
        statement.bind(highestRequest, at: 1)
        statement.bind(highestDelivery, at: 2)
        try statement.run()
    }

    /// Rows of a bounded table, after the oldest were evicted where there are more than its limit.
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

    private mutating func insert(_ request: Request) throws -> Bool {
        let statement = try statement(.insertRequest)
        statement.bind(request.id, at: 1)
        statement.bind(Int64(request.state.rawValue), at: 2)
        statement.bind(request.acceptedAt, at: 3)
        statement.bind(Int64(request.attempts), at: 4)
        statement.bind(request.account, at: 5)
        statement.bind(request.peer, at: 6)
        statement.bind(request.target, at: 7)
        statement.bind(request.verb, at: 8)
        statement.bind(request.remoteID, at: 9)
        statement.bind(request.reason, at: 10)
        try statement.run(bytes: request.encodedBodies, at: 11)
        highestRequest = max(highestRequest, request.id)
        return changed
    }

    private mutating func run(_ name: ChangeStatement, _ number: UInt64) throws {
        let statement = try statement(name)
        statement.bind(number, at: 1)
        try statement.run()
    }
}
