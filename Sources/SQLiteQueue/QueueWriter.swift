// Writes one transaction's changes of the queue as statements. It uses neither files nor transactions, so that a store
// with further tables can change both in one transaction.

package import GRDB
package import RequestQueue
import SQLiteKit

/// Writes changes of the queue through one connection while a transaction is open.
package struct QueueWriter {
    private let database: Database
    private var statements: [SQLStatement?]

    package init(_ database: Database) {
        self.database = database
        statements = Array(repeating: nil, count: QueueStatement.allCases.count)
    }

    private mutating func statement(_ name: QueueStatement) throws -> SQLStatement {
        if let statement = statements[name.rawValue] { return statement }
        let statement = try SQLStatement(database, name.sql)
        statements[name.rawValue] = statement
        return statement
    }

    private var changed: Bool { database.changesCount > 0 }

    /// Writes one change.
    ///
    /// - Throws: `DatabaseError`; the caller has to roll the transaction back then.
    package mutating func apply(_ change: QueueChange) throws {
        switch change {
        case .insert(let request, let form): try insert(request, form)
        case .lease(let id, let lease): try run(.lease, id, Int64(bitPattern: lease))
        case .requeue(let id, let lease, let wait): try requeue(id, lease, wait)
        case .finish(let id, let lease, let outcome, let keeping, let at):
            try finish(id, lease, outcome, keeping, at)
        case .redeliver(let id, let times): try run(.redeliver, id, Int64(times))
        case .handled(let id): try run(.handled, id)
        case .forgetResponse(let id):
            try run(.removeResponse, id)
            if changed { try run(.markCut, id) }
        case .quarantine(let id, let cause, let at):
            let statement = try statement(.quarantine)
            statement.bind(cause, at: 3)
            try run(.quarantine, id, at)
        case .map(let mapping, let at):
            let statement = try statement(.map)
            statement.bind(mapping.tenant, at: 1)
            statement.bind(mapping.reference.type, at: 2)
            statement.bind(mapping.reference.local, at: 3)
            statement.bind(mapping.remote, at: 4)
            statement.bind(at, at: 5)
            try statement.run()
        case .hold(let id, let isHeld, let at): try run(.hold, id, isHeld ? 1 : -at)
        case .rewrite(let id, let form):
            let statement = try statement(.rewrite)
            statement.bind(id, at: 1)
            try statement.run(bytes: form, at: 2)
        case .revive(let id, let at):
            try run(.revive, id, at)
            if changed { try run(.removeResponse, id) }
        case .session(let tenant, let sealed):
            let statement = try statement(sealed == nil ? .removeSession : .putSession)
            statement.bind(tenant, at: 1)
            if let sealed { try statement.run(bytes: sealed, at: 2) } else { try statement.run() }
        case .remove(let id):
            try raiseHighest()
            for name in [QueueStatement.removeRequest, .removeProgress, .removeResponse] { try run(name, id) }
        case .prune(let before, let below, let names):
            try raiseHighest()
            let time = UInt64(bitPattern: before)
            for name in [QueueStatement.pruneResponses, .pruneRequests, .pruneProgress] {
                try run(name, time, Int64(clamping: below))
            }
            try run(.pruneMappings, UInt64(bitPattern: names ?? before))
        }
    }

    /// Overwrites a commit that failed so late that all of it may be in the log.
    ///
    /// If only the sync failed, the next process could read the commit there as if it had succeeded. So a small change
    /// is committed in its place at once. The failed commit stays only if the disk refuses this one as well and the
    /// process ends before its next commit.
    package static func supersede(_ database: Database) { try? touch(database) }

    /// Commits a change without effect.
    package static func touch(_ database: Database) throws {
        try database.inTransaction(.immediate) {
            var writer = QueueWriter(database)
            try writer.statement(.supersede).run()
            return .commit
        }
    }

    // MARK: Hot

    private mutating func insert(_ request: QueuedRequest, _ form: [UInt8]) throws {
        let accepted = try statement(.insertRequest)
        accepted.bind(request.id, at: 1)
        accepted.bind(request.token.high, at: 2)
        accepted.bind(request.token.low, at: 3)
        accepted.bind(request.tenant, at: 4)
        accepted.bind(request.lane, at: 5)
        accepted.bind(request.ownKey ?? "", at: 6)
        accepted.bind(Int64(request.size), at: 7)
        try accepted.run(bytes: form, at: 8)
        let progress = try statement(.insertProgress)
        progress.bind(request.id, at: 1)
        progress.bind(request.state == .inFlight ? 0 : Int64(request.state.rawValue), at: 2)
        progress.bind(request.timestamp, at: 3)
        progress.bind(Int64(request.attempts), at: 4)
        progress.bind(Int64(request.crashes), at: 5)
        progress.bind(Int64(request.doubts), at: 6)
        progress.bind(request.notBefore, at: 7)
        progress.bind(request.hold, at: 8)
        progress.bind(request.lease, at: 9)
        progress.bind(request.cause, at: 10)
        try progress.run()
    }

    private mutating func requeue(_ id: UInt64, _ lease: UInt64, _ wait: QueueChange.Wait) throws {
        let statement = try statement(.requeue)
        statement.bind(id, at: 1)
        statement.bind(lease, at: 2)
        statement.bind(wait.notBefore, at: 3)
        statement.bind(Int64(wait.attempts), at: 4)
        statement.bind(Int64(wait.crashes), at: 5)
        statement.bind(Int64(wait.doubts), at: 6)
        statement.bind(wait.cause, at: 7)
        try statement.run()
    }

    private mutating func finish(
        _ id: UInt64, _ lease: UInt64?, _ outcome: RequestOutcome, _ keeping: QueueChange.Keeping, _ at: Int64
    ) throws {
        let statement = try statement(.finish)
        statement.bind(id, at: 1)
        statement.bind(lease, at: 2)
        statement.bind(Int64(outcome.state.rawValue), at: 3)
        statement.bind(at, at: 4)
        let (result, status) = OutcomeColumns.write(outcome.result, isCut: keeping != .result && outcome.isCut)
        statement.bind(result, at: 5)
        statement.bind(status, at: 6)
        statement.bind(keeping == .delivery ? Int64(0) : nil, at: 7)
        statement.bind(outcome.cause, at: 8)
        try statement.run()
        guard changed, keeping != .result, !outcome.headers.isEmpty || !outcome.body.isEmpty else { return }
        let response = try self.statement(.insertResponse)
        response.bind(id, at: 1)
        response.bind(RequestForm.encode(outcome.headers), at: 2)
        try response.run(bytes: outcome.body, at: 3)
    }

    // MARK: Rare

    /// Stores the highest id before its row is removed, because no id is used twice.
    private mutating func raiseHighest() throws { try statement(.raiseHighest).run() }

    private mutating func run(_ name: QueueStatement, _ id: UInt64) throws {
        let statement = try statement(name)
        statement.bind(id, at: 1)
        try statement.run()
    }

    private mutating func run(_ name: QueueStatement, _ id: UInt64, _ number: Int64) throws {
        try statement(name).bind(number, at: 2)
        try run(name, id)
    }
}

/// The result of an outcome in two columns.
package enum OutcomeColumns {
    /// Added to the result if part of the answer is missing.
    package static let cut: Int64 = 4

    package static func write(_ result: RequestOutcome.Result, isCut: Bool) -> (result: Int64, status: Int64?) {
        let mark = isCut ? cut : 0
        return switch result {
        case .success(let status): (0 | mark, Int64(status))
        case .failure(let status): (1 | mark, status.map(Int64.init))
        case .aborted: (2 | mark, nil)
        }
    }

    package static func isCut(_ result: Int64?) -> Bool { result.map { $0 & cut != 0 } ?? false }

    /// - Returns: nil if no outcome is stored, or one that this program never writes.
    package static func read(_ result: Int64?, _ status: Int64?) -> RequestOutcome.Result? {
        switch result.map({ $0 & ~cut }) {
        case 0: .success(status: Int(status ?? 0))
        case 1: .failure(status: status.map(Int.init))
        case 2: .aborted
        default: nil
        }
    }
}
