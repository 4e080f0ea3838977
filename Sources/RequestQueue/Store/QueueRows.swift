// The tables of the queue as values, for stores in memory: alone, or beside other tables.

/// The contents of the tables. Requests are kept in their stored form, as in a driver.
package struct QueueRows: Sendable {
    fileprivate struct Row {
        var request: QueuedRequest
        var form: [UInt8]
        var finishedAt: Int64?
        var outcome: RequestOutcome?
        var undelivered: Int?
    }

    fileprivate struct Learnt {
        var mapping: IdentifierMapping
        var at: Int64
        /// Rises in the order in which mappings were learnt.
        var place: Int
    }

    private var rows: [UInt64: Row] = [:]
    private var mappings: [TenantReference: Learnt] = [:]
    private var learnt = 0
    private var highest: UInt64 = 0
    private var sessions: [ExactText: [UInt8]] = [:]

    /// Empty tables.
    package init() {}

    /// Damages the stored form of a request.
    mutating func damage(_ token: RequestToken) {
        for (id, row) in rows where row.request.token == token {
            rows[id]?.form = [RequestForm.versions.upperBound]
        }
    }

    /// All that a process needs to start.
    package var contents: QueueContents {
        var contents = QueueContents()
        contents.highest = highest
        contents.sessions = sessions
        contents.learnt = mappings.values.sorted { ($0.at, $0.place) < ($1.at, $1.place) }
            .map { .init(mapping: $0.mapping, at: $0.at) }
        for (id, row) in rows.sorted(by: { $0.key < $1.key }) {
            let (request, reason) = row.read()
            if let reason {
                if row.finishedAt == nil { contents.unreadable.append(.init(id: id, reason: reason)) }
                continue
            }
            guard let at = row.finishedAt else {
                contents.requests.append(request)
                continue
            }
            contents.finished.append(
                .init(request: request, at: at, responseSize: row.outcome?.responseSize ?? 0))
            if let times = row.undelivered, let outcome = row.outcome {
                contents.undelivered.append(.init(request: request, outcome: outcome, times: times))
            }
        }
        contents.finished.sort { $0.at < $1.at }
        return contents
    }

    /// How a finished request ended; nil if it is not finished.
    package func outcome(_ token: RequestToken) -> RequestOutcome? { row(token)?.outcome }

    /// When a request ended, in milliseconds since 1970; nil if it has not.
    package func finishedAt(_ id: UInt64) -> Int64? { rows[id]?.finishedAt }

    /// A request, finished or not, and when it ended, in milliseconds since 1970.
    package func request(_ token: RequestToken) -> (request: QueuedRequest, finishedAt: Int64?)? {
        row(token).map { ($0.read().request, $0.finishedAt) }
    }

    /// Requests in these states with an id above `after`, in the order of their ids.
    package func requests(
        states: [RequestState], after: UInt64 = 0, limit: Int
    ) -> [(request: QueuedRequest, finishedAt: Int64?)] {
        let found = rows.filter { $0.key > after && states.contains($0.value.request.state) }
        return found.sorted { $0.key < $1.key }.prefix(limit).map { ($0.value.read().request, $0.value.finishedAt) }
    }

    /// The remote identifier of an entity; nil if it is unknown.
    package func remote(_ reference: EntityReference, tenant: String) -> String? {
        mappings[TenantReference(tenant: tenant, reference: reference)]?.mapping.remote
    }

    private func row(_ token: RequestToken) -> Row? { rows.values.first { $0.request.token == token } }
}

extension QueueRows.Row {
    /// - Returns: the request, and why its form cannot be read; nil if it can.
    fileprivate func read() -> (request: QueuedRequest, reason: String?) {
        var content = RequestForm.Content.unreadable
        var reason: String?
        do throws(RequestForm.Unreadable) { content = try RequestForm.decode(form) } catch { reason = "\(error)" }
        var read = request
        read.payload = content.payload
        read.creates = content.creates
        read.dependsOn = content.dependsOn
        read.identifiers = content.identifiers
        read.coalescingKey = content.coalescingKey
        read.metadata = content.metadata
        return (read, reason)
    }
}

extension QueueRows {
    /// Applies one change.
    package mutating func apply(_ change: QueueChange) {
        switch change {
        case .insert(let request, let form):
            rows[request.id] = .init(request: request, form: form)
            highest = max(highest, request.id)
        case .lease(let id, let lease):
            guard rows[id]?.finishedAt == nil else { return }
            rows[id]?.request.state = .inFlight
            rows[id]?.request.lease = lease
            rows[id]?.request.attempts += 1
        case .requeue(let id, let lease, let wait):
            guard rows[id]?.request.lease == lease else { return }
            rows[id]?.request.apply(wait)
        case .finish(let id, let lease, let outcome, let keeping, let at):
            guard let row = rows[id], row.finishedAt == nil, row.request.lease == lease else { return }
            rows[id]?.request.state = outcome.state
            rows[id]?.request.lease = nil
            rows[id]?.request.cause = outcome.cause
            rows[id]?.finishedAt = at
            rows[id]?.outcome = keeping == .result ? .init(outcome.result, cause: outcome.cause) : outcome
            rows[id]?.undelivered = keeping == .delivery ? 0 : nil
        case .redeliver(let id, let times): if rows[id]?.undelivered != nil { rows[id]?.undelivered = times }
        case .handled(let id): rows[id]?.undelivered = nil
        case .forgetResponse(let id):
            guard let outcome = rows[id]?.outcome, outcome.responseSize > 0 else { return }
            rows[id]?.outcome = .init(outcome.result, cause: outcome.cause, isCut: true)
        case .quarantine(let id, let cause, let at):
            guard rows[id]?.finishedAt == nil else { return }
            rows[id]?.request.state = .dead
            rows[id]?.request.cause = cause
            rows[id]?.request.lease = nil
            rows[id]?.finishedAt = at
        case .map(let mapping, let at):
            learnt += 1
            mappings[TenantReference(tenant: mapping.tenant, reference: mapping.reference)] = .init(
                mapping: mapping, at: at, place: learnt)
        case .hold(let id, let isHeld, let at):
            rows[id]?.request.hold = isHeld ? 1 : -at
        case .rewrite(let id, let form): rows[id]?.form = form
        case .revive(let id, let at):
            guard let row = rows[id], row.request.state == .dead else { return }
            rows[id]?.request.apply(
                .init(notBefore: 0, attempts: 0, crashes: 0, doubts: row.request.doubts, cause: nil))
            rows[id]?.request.hold = 0
            rows[id]?.request.timestamp = at
            rows[id]?.finishedAt = nil
            rows[id]?.outcome = nil
            rows[id]?.undelivered = nil
        case .remove(let id): rows[id] = nil
        case .session(let tenant, let sealed): sessions[ExactText(tenant)] = sealed
        case .prune(let before, let below, let names):
            rows = rows.filter { id, row in
                id >= below || (row.finishedAt ?? .max) >= before || row.undelivered != nil
                    || row.request.state == .dead
            }
            mappings = mappings.filter { $0.value.at >= names ?? before }
        }
    }
}
