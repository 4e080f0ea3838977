// Reads the tables into the types of the port.

package import GRDB
package import RequestQueue
import SQLiteKit

/// Reads the queue through one connection.
package struct QueueReader {
    private let database: Database

    package init(_ database: Database) { self.database = database }

    /// The columns of ``request(_:)``, then those of ``Ending``. Progress is the outer table because it is the smaller
    /// one.
    private static let select = "SELECT \(columns) \(tables)"
    private static let columns = """
         p.id, r.token_high, r.token_low, r.tenant, r.lane, r.idempotency_key, r.size, r.form,
            p.state, p.accepted_at, p.attempts, p.crashes, p.doubts, p.not_before, p.is_held, p.lease, p.cause,
            p.finished_at, p.undelivered, p.result, p.status
        """
    private static let tables = "FROM queue_progress AS p CROSS JOIN queue_request AS r ON r.id = p.id"
    /// Only the size of a response, which SQLite knows without reading the bytes.
    private static let responseSize = "(SELECT length(headers) + length(body) FROM queue_response WHERE id = p.id)"

    static let live = "\(select) WHERE p.state = 0 ORDER BY p.id"
    static let finished =
        "SELECT \(columns), \(responseSize) \(tables) WHERE p.finished_at IS NOT NULL ORDER BY p.id"
    static let one = "\(select) WHERE p.id = ?1"
    static let report = "\(select) WHERE p.state = ?1 AND p.id > ?2 ORDER BY p.id LIMIT ?3"
    static let waiting = "\(select) WHERE p.state = 0 AND p.lease IS NULL AND p.id > ?2 ORDER BY p.id LIMIT ?3"
    static let underWay = "\(select) WHERE p.state = 0 AND p.lease IS NOT NULL AND p.id > ?2 ORDER BY p.id LIMIT ?3"
    /// Searches each existing part of the index of tokens, the newest first; see ``QueueTables/tokenPart``.
    static let byToken = """
        WITH RECURSIVE part (number) AS (
            SELECT max(id) >> \(QueueTables.tokenPart) FROM queue_request
            UNION ALL
            SELECT (SELECT max(id) >> \(QueueTables.tokenPart) FROM queue_request
                    WHERE id < part.number << \(QueueTables.tokenPart))
            FROM part WHERE part.number IS NOT NULL
        )
        SELECT p.id, p.result, p.status, p.cause
        FROM part CROSS JOIN queue_request AS r ON r.id >> \(QueueTables.tokenPart) = part.number AND r.token_low = ?2
            CROSS JOIN queue_progress AS p ON p.id = r.id
        WHERE r.token_high = ?1 LIMIT 1
        """
    static let response = "SELECT headers, body FROM queue_response WHERE id = ?1"
    static let mappings = "SELECT tenant, type, local, remote, learnt_at FROM queue_mapping ORDER BY learnt_at, id"
    static let remotes =
        "SELECT local, remote FROM queue_mapping WHERE type = ?1 AND local = coalesce(?2, local) ORDER BY id"
    static let sessions = "SELECT tenant, sealed FROM queue_session"
    static let highest = """
        SELECT max(coalesce((SELECT highest FROM queue_meta), 0), coalesce((SELECT max(id) FROM queue_request), 0))
        """

    /// All that a process needs to start.
    package func load() throws -> QueueContents {
        var contents = QueueContents()
        contents.highest = try SQLStatement(database, Self.highest).rows { $0.identifier(0) }.first ?? 0
        guard contents.highest < UInt64(Int64.max) / 2 else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT, message: "the highest number of a request is out of range")
        }
        contents.learnt = try learnt()
        for (tenant, sealed) in try SQLStatement(database, Self.sessions).rows({ ($0.text(0), $0.bytes(1)) }) {
            contents.sessions[ExactText(tenant)] = sealed
        }
        for (request, reason) in try SQLStatement(database, Self.live).rows(request) {
            if let reason {
                contents.unreadable.append(.init(id: request.id, reason: reason))
            } else {
                contents.requests.append(request)
            }
        }
        let finished = try SQLStatement(database, Self.finished).rows { row in
            (try request(row), Ending(row), Int(row.optionalNumber(21) ?? 0))
        }
        for ((request, reason), ending, size) in finished where reason == nil {
            contents.finished.append(.init(request: request, at: ending.at, responseSize: size))
            guard let times = ending.undelivered, let result = ending.result else { continue }
            let outcome = try outcome(request.id, result, request.cause, isCut: ending.isCut)
            contents.undelivered.append(.init(request: request, outcome: outcome, times: times))
        }
        contents.finished.sort { ($0.at, $0.request.id) < ($1.at, $1.request.id) }
        return contents
    }

    package func request(_ token: RequestToken) throws -> QueuedRequest? {
        try found(token) { $0.identifier(0) }.flatMap { try stored($0) }?.request
    }

    /// A request, finished or not, and when it ended, in milliseconds since 1970.
    package func stored(_ id: UInt64) throws -> (request: QueuedRequest, finishedAt: Int64?)? {
        let statement = try SQLStatement(database, Self.one)
        statement.bind(id, at: 1)
        return try statement.rows(stored).first
    }

    private func stored(_ row: SQLColumns) throws -> (request: QueuedRequest, finishedAt: Int64?) {
        (try request(row).request, row.optionalNumber(17))
    }

    /// Remote identifiers of the entities of a type, by local identifier; only of one entity if `local` is given.
    package func remotes(of type: String, local: String? = nil) throws -> [String: String] {
        let statement = try SQLStatement(database, Self.remotes)
        statement.bind(type, at: 1)
        statement.bind(local, at: 2)
        // Of two rows the later counts.
        return Dictionary(try statement.rows { ($0.text(0), $0.text(1)) }) { $1 }
    }

    private func found<Value>(_ token: RequestToken, _ value: (SQLColumns) -> Value) throws -> Value? {
        let statement = try SQLStatement(database, Self.byToken)
        statement.bind(token.high, at: 1)
        statement.bind(token.low, at: 2)
        return try statement.rows(value).first
    }

    package func outcome(_ token: RequestToken) throws -> RequestOutcome? {
        let ending = try found(token) { row in
            (
                row.identifier(0), OutcomeColumns.read(row.optionalNumber(1), row.optionalNumber(2)),
                row.optionalText(3), OutcomeColumns.isCut(row.optionalNumber(1))
            )
        }
        guard let (id, result, cause, isCut) = ending, let result else { return nil }
        return try outcome(id, result, cause, isCut: isCut)
    }

    package func finishedAt(_ id: UInt64) throws -> Int64? { try stored(id)?.finishedAt }

    /// Requests in these states with an id above `after`, in the order of their ids; for reports. One whose form cannot
    /// be read has no contents.
    package func requests(states: [RequestState], after: UInt64, limit: Int) throws -> [QueuedRequest] {
        try stored(states: states, after: after, limit: limit).map(\.request)
    }

    /// The same, with the time at which each ended, in milliseconds since 1970.
    package func stored(
        states: [RequestState], after: UInt64, limit: Int
    ) throws -> [(request: QueuedRequest, finishedAt: Int64?)] {
        var found: [(request: QueuedRequest, finishedAt: Int64?)] = []
        var states = Set(states)
        func read(_ sql: String, _ state: RequestState) throws {
            let statement = try SQLStatement(database, sql)
            statement.bind(Int64(state.rawValue), at: 1)
            statement.bind(Int64(clamping: after), at: 2)
            statement.bind(Int64(max(limit, 0)), at: 3)
            found += try statement.rows(stored)
        }
        if states.isSuperset(of: [.pending, .inFlight]) {
            states.subtract([.pending, .inFlight])
            try read(Self.report, .pending)
        }
        for state in states {
            switch state {
            case .pending: try read(Self.waiting, state)
            case .inFlight: try read(Self.underWay, state)
            case .done, .dead, .cancelled: try read(Self.report, state)
            }
        }
        return Array(found.sorted { $0.request.id < $1.request.id }.prefix(max(limit, 0)))
    }

    // MARK: Rows

    /// How a request ended.
    private struct Ending {
        let at: Int64
        let undelivered: Int?
        let result: RequestOutcome.Result?
        let isCut: Bool

        init(_ row: SQLColumns) {
            at = row.number(17)
            undelivered = row.optionalNumber(18).map { Int($0) }
            result = OutcomeColumns.read(row.optionalNumber(19), row.optionalNumber(20))
            isCut = OutcomeColumns.isCut(row.optionalNumber(19))
        }
    }

    /// - Returns: the request, and why its form cannot be read; nil if it can.
    private func request(_ row: SQLColumns) throws -> (request: QueuedRequest, reason: String?) {
        var content = RequestForm.Content.unreadable
        var reason: String?
        do throws(RequestForm.Unreadable) { content = try RequestForm.decode(row.bytes(7)) } catch {
            reason = "\(error)"
        }
        var request = QueuedRequest(
            id: row.identifier(0), token: RequestToken(high: row.identifier(1), low: row.identifier(2)),
            tenant: row.text(3), lane: row.optionalText(4), payload: content.payload, creates: content.creates,
            dependsOn: content.dependsOn, identifiers: content.identifiers, idempotencyKey: row.text(5),
            coalescingKey: content.coalescingKey, metadata: content.metadata, timestamp: row.number(9))
        let lease = row.optionalNumber(15).map { UInt64(bitPattern: $0) }
        let state = RequestState(rawValue: UInt8(clamping: row.number(8))) ?? .dead
        request.setProgress(
            state: state == .pending && lease != nil ? .inFlight : state, attempts: Int(row.number(10)),
            crashes: Int(row.number(11)), doubts: Int(row.number(12)), lease: lease, notBefore: row.number(13),
            isHeld: false, cause: row.optionalText(16), size: Int(row.number(6)))
        request.hold = row.number(14)
        return (request, reason)
    }

    private func outcome(
        _ id: UInt64, _ result: RequestOutcome.Result, _ cause: String?, isCut: Bool
    ) throws -> RequestOutcome {
        let statement = try SQLStatement(database, Self.response)
        statement.bind(id, at: 1)
        let response = try statement.rows { (RequestForm.decodeHeaders($0.bytes(0)) ?? [], $0.bytes(1)) }.first
        return RequestOutcome(result, cause: cause, headers: response?.0 ?? [], body: response?.1 ?? [], isCut: isCut)
    }

    private func learnt() throws -> [QueueContents.Learnt] {
        let rows = try SQLStatement(database, Self.mappings).rows { row in
            QueueContents.Learnt(
                mapping: IdentifierMapping(
                    tenant: row.text(0), reference: EntityReference(type: row.text(1), local: row.text(2)),
                    remote: row.text(3)), at: row.number(4))
        }
        var last: [IdentifierMapping.Entity: Int] = [:]
        for (place, row) in rows.enumerated() { last[row.mapping.entity] = place }
        guard last.count < rows.count else { return rows }
        return rows.enumerated().filter { last[$1.mapping.entity] == $0 }.map(\.element)
    }
}

extension IdentifierMapping {
    fileprivate struct Entity: Hashable {
        let tenant: ExactText
        let reference: EntityReference
    }

    fileprivate var entity: Entity { Entity(tenant: ExactText(tenant), reference: reference) }
}
