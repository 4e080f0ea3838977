// Reads of the queue's tables.

import RequestQueue
import SQLiteQueue
import StorePort

/// The queue's tables in a database.
struct StoredQueue: QueueReading {
    let store: PostgresStore

    /// A request, finished or not, and when it ended, in milliseconds since 1970.
    typealias Stored = (request: QueuedRequest, finishedAt: Int64?)

    private static let columns = """
        p.id, r.token_high, r.token_low, r.tenant, r.lane, r.idempotency_key, r.size, r.form, \(Progress.columns)
        """
    private static let tables = "FROM pawl.queue_progress AS p JOIN pawl.queue_request AS r ON r.id = p.id"
    private static let responseSize =
        "(SELECT length(headers) + length(body) FROM pawl.queue_response AS a WHERE a.id = p.id)::int8"

    private static let byToken = "WHERE r.token_high = $1::int8 AND r.token_low = $2::int8"

    // MARK: The port

    func load() throws(QueueStoreError) -> QueueContents {
        do throws(StoreError) { return try contents() } catch { throw Self.error(error) }
    }

    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        do throws(StoreError) {
            guard let row = try rows(Self.byToken, Self.token(token)).first else { return nil }
            return try outcome(row)
        } catch {
            throw Self.error(error)
        }
    }

    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        do throws(StoreError) {
            return try rows(Self.byToken, Self.token(token)).first?.request
        } catch {
            throw Self.error(error)
        }
    }

    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest] {
        do throws(StoreError) { return try stored(states: states, after: after, limit: limit).map(\.request) } catch {
            throw Self.error(error)
        }
    }

    func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? {
        do throws(StoreError) { return try stored(id)?.finishedAt } catch { throw Self.error(error) }
    }

    private static func error(_ error: StoreError) -> QueueStoreError {
        let isDamage = if case .corrupt = error { true } else { false }
        return QueueStoreError(error.message, isDamage: isDamage)
    }

    private static func token(_ token: RequestToken) -> [Parameter] { [.number(token.high), .number(token.low)] }

    // MARK: Rows

    /// One request with its progress. The reason says why its form cannot be read; nil if it can.
    private struct Row {
        var request: QueuedRequest
        var reason: String?
        var progress: Progress
        var responseSize: Int
    }

    private func rows(_ condition: String, _ parameters: [Parameter] = []) throws(StoreError) -> [Row] {
        try store.reader.read("SELECT \(Self.columns), \(Self.responseSize) \(Self.tables) \(condition)", parameters) {
            rows in rows.map { Self.row($0) }
        }
    }

    private static func row(_ row: RowView) -> Row {
        var content = RequestForm.Content.unreadable
        var reason: String?
        do throws(RequestForm.Unreadable) { content = try RequestForm.decode(row.bytes(7)) } catch {
            reason = "\(error)"
        }
        let progress = Progress(row, from: 8)
        var request = QueuedRequest(
            id: row.identifier(0), token: RequestToken(high: row.identifier(1), low: row.identifier(2)),
            tenant: row.text(3), lane: row.optionalText(4), payload: content.payload, creates: content.creates,
            dependsOn: content.dependsOn, identifiers: content.identifiers, idempotencyKey: row.text(5),
            coalescingKey: content.coalescingKey, metadata: content.metadata, timestamp: progress.acceptedAt)
        let state = RequestState(rawValue: UInt8(clamping: progress.state)) ?? .dead
        request.setProgress(
            state: state == .pending && progress.lease != nil ? .inFlight : state, attempts: Int(progress.attempts),
            crashes: Int(progress.crashes), doubts: Int(progress.doubts), lease: progress.lease,
            notBefore: progress.notBefore, isHeld: false, cause: progress.cause, size: Int(row.number(6)))
        request.hold = progress.hold
        return Row(request: request, reason: reason, progress: progress, responseSize: Int(row.optionalNumber(21) ?? 0))
    }

    func stored(_ id: UInt64) throws(StoreError) -> Stored? {
        try rows("WHERE p.id = $1::int8", [.number(id)]).first.map { ($0.request, $0.progress.finishedAt) }
    }

    func stored(states: [RequestState], after: UInt64, limit: Int) throws(StoreError) -> [Stored] {
        let states = Set(states)
        var conditions = states.compactMap { state in
            switch state {
            case .pending: "p.state = 0 AND p.lease IS NULL"
            case .inFlight: "p.state = 0 AND p.lease IS NOT NULL"
            case .done, .dead, .cancelled: "p.state = \(state.rawValue)"
            }
        }
        guard !conditions.isEmpty else { return [] }
        conditions.sort()
        let found = try rows(
            """
            WHERE (\(conditions.joined(separator: " OR "))) AND p.id > $1::int8 ORDER BY p.id LIMIT $2::int8
            """, [.number(Int64(clamping: after)), .number(Int64(max(limit, 0)))])
        return found.map { ($0.request, $0.progress.finishedAt) }
    }

    private func outcome(_ row: Row) throws(StoreError) -> RequestOutcome? {
        guard let result = OutcomeColumns.read(row.progress.result, row.progress.status) else { return nil }
        let response = try store.reader.read(
            "SELECT headers, body FROM pawl.queue_response WHERE id = $1::int8", [.number(row.request.id)]
        ) { rows in rows.map { (RequestForm.decodeHeaders($0.bytes(0)) ?? [], $0.bytes(1)) }.first }
        return RequestOutcome(
            result, cause: row.progress.cause, headers: response?.0 ?? [], body: response?.1 ?? [],
            isCut: OutcomeColumns.isCut(row.progress.result))
    }

    // MARK: Start

    private func contents() throws(StoreError) -> QueueContents {
        var contents = QueueContents()
        contents.highest = try store.reader.read("SELECT max(highest_request) FROM pawl.shard") { rows in
            rows.count == 1 ? rows.identifier(0, 0) : .max
        }
        guard contents.highest < UInt64(Int64.max) / 2 else { throw .unreadableRow("shard") }
        contents.learnt = try store.reader.read(
            "SELECT tenant, type, local, remote, learnt_at FROM pawl.queue_mapping ORDER BY learnt_at, place"
        ) { rows in
            rows.map { row in
                QueueContents.Learnt(
                    mapping: IdentifierMapping(
                        tenant: row.text(0), reference: EntityReference(type: row.text(1), local: row.text(2)),
                        remote: row.text(3)), at: row.number(4))
            }
        }
        let sessions = try store.reader.read("SELECT tenant, sealed FROM pawl.queue_session") { rows in
            rows.map { ($0.text(0), $0.bytes(1)) }
        }
        for (tenant, sealed) in sessions { contents.sessions[ExactText(tenant)] = sealed }
        for row in try rows("WHERE p.state = 0 ORDER BY p.id") {
            if let reason = row.reason {
                contents.unreadable.append(.init(id: row.request.id, reason: reason))
            } else {
                contents.requests.append(row.request)
            }
        }
        for row in try rows("WHERE p.finished_at IS NOT NULL ORDER BY p.finished_at, p.id") where row.reason == nil {
            guard let at = row.progress.finishedAt else { continue }
            contents.finished.append(.init(request: row.request, at: at, responseSize: row.responseSize))
            guard let times = row.progress.undelivered, let outcome = try outcome(row) else { continue }
            contents.undelivered.append(.init(request: row.request, outcome: outcome, times: Int(times)))
        }
        // In the order of their ids.
        contents.undelivered.sort { $0.request.id < $1.request.id }
        return contents
    }
}
