// What is kept of finished requests, and for how long.

import DequeModule

extension QueueMachine {
    /// Milliseconds between two prunings, and the excess over a limit that causes one earlier, at most as much as the limit.
    static let prunePause: Int64 = 60_000
    static let slack = 1024

    /// The cause of a request that ended without one.
    static let cancelled = "it was cancelled"

    /// Why an entity has no remote identifier although its creator is done.
    static let unnamed = "The backend has done it, but its answer has no identifier of what it created."

    /// Notes why an entity will never be created, for requests that name it.
    mutating func noteFailure(of name: TenantReference, _ cause: String) {
        failedCreators[name] = "\(name.reference) was never created: \(cause)"
    }

    mutating func remember(_ request: QueuedRequest, at: Int64) {
        let cause = request.state == .done ? "" : request.cause ?? Self.cancelled
        ended[request.token] = Ending(state: request.state, cause: cause)
        let record = FinishedRecord(
            id: request.id, token: request.token, state: request.state, at: at, key: KeyName(request),
            creates: request.creates.map { TenantReference(tenant: request.tenant, reference: $0) })
        guard request.state == .dead else { return finished.append(record) }
        deadLetters[request.id] = record
        deadOrder.append((request.id, at))
    }

    /// Counts a stored response, and removes the oldest ones that exceed the limit.
    mutating func keepResponse(of id: UInt64, size: Int) {
        guard size > 0 else { return }
        responseBytes += size - (responses.updateValue(size, forKey: id) ?? 0)
        responseOrder.append(id)
        while responseBytes > limits.responses, let oldest = responseOrder.popFirst() {
            guard forgetResponse(of: oldest) else { continue }
            steps.append(.change(.forgetResponse(id: oldest), nil))
        }
    }

    /// - Returns: whether there was one.
    @discardableResult
    private mutating func forgetResponse(of id: UInt64) -> Bool {
        guard let size = responses.removeValue(forKey: id) else { return false }
        responseBytes -= size
        while let first = responseOrder.first, responses[first] == nil { responseOrder.removeFirst() }
        return true
    }

    /// Forgets how a dead request ended, because it is queued again.
    mutating func forgetEnd(of id: UInt64) {
        deadLetters[id] = nil
        forgetResponse(of: id)
        trimDeadOrder()
    }

    /// Removes a dead request from memory and store.
    mutating func bury(_ id: UInt64) {
        guard let record = deadLetters.removeValue(forKey: id) else { return }
        forget(record)
        steps.append(.change(.remove(id: id), nil))
        trimDeadOrder()
    }

    private mutating func trimDeadOrder() {
        while let first = deadOrder.first, deadLetters[first.id]?.at != first.at { deadOrder.removeFirst() }
        guard deadOrder.count > 2 * deadLetters.count + Self.slack else { return }
        deadOrder = Deque(deadOrder.filter { deadLetters[$0.id]?.at == $0.at })
    }

    /// Forgets a finished request that was never committed, with its count.
    ///
    /// - Returns: its token; nil if the id is unknown.
    mutating func forgetFinished(_ id: UInt64) -> RequestToken? {
        let record: FinishedRecord
        if let dead = deadLetters.removeValue(forKey: id) {
            record = dead
            trimDeadOrder()
        } else if let place = finished.lastIndex(where: { $0.id == id }) {
            record = finished.remove(at: place)
        } else {
            return nil
        }
        switch record.state {
        case .done: counts.done -= 1
        case .dead: counts.dead -= 1
        case .cancelled: counts.cancelled -= 1
        case .pending, .inFlight: break
        }
        forget(record)
        return record.token
    }

    /// The id of a request that is live or remembered as finished; nil if it is neither.
    func id(of token: RequestToken) -> UInt64? {
        if let id = tokens[token] { return id }
        guard ended[token] != nil else { return nil }
        // Only rollbacks ask for a finished one, so there is no index.
        return (finished.last { $0.token == token } ?? deadLetters.values.first { $0.token == token })?.id
    }

    private mutating func forget(_ record: FinishedRecord) {
        ended[record.token] = nil
        unhandled.remove(record.id)
        if keys[record.key]?.token == record.token { forgetKey(record.key) }
        for name in record.creates { failedCreators[name] = nil }
        forgetResponse(of: record.id)
    }

    mutating func forgetKey(_ key: KeyName) {
        keys[key] = nil
        forgottenKeys?.append(key)
    }

    /// The idempotency keys in the form of tokens of all requests that wait or are remembered.
    package var knownKeys: [RequestToken] { keys.keys.compactMap(\.token) }

    /// Returns the idempotency keys in the form of tokens that were forgotten since the last call, without those that
    /// were accepted again. Keys are collected from the first call on.
    package mutating func takeForgottenKeys() -> [RequestToken] {
        defer { forgottenKeys = [] }
        return (forgottenKeys ?? []).compactMap { keys[$0] == nil ? $0.token : nil }
    }

    /// Forgets finished requests and mappings that exceed their age or count. The next batch removes them from the
    /// store.
    mutating func prune(now: QueueTime) {
        let isFull =
            Self.isFull(finished.count, limits.finished) || Self.isFull(learnt.count, limits.mappings)
            || Self.isFull(deadLetters.count, limits.deadLetters)
        guard isFull || now.uptime >= nextPrune else { return }
        nextPrune = now.uptime + Self.prunePause
        let before = now.wall - limits.retention
        var horizon: Int64?
        while let oldest = finished.first, oldest.at < before || finished.count > limits.finished {
            finished.removeFirst()
            forget(oldest)
            horizon = oldest.at
            highestPruned = max(highestPruned, oldest.id)
        }
        // A waiting request may name an entity until it expires.
        let namesBefore = now.wall - max(limits.retention, limits.age)
        var namesHorizon: Int64?
        while let oldest = learnt.first, oldest.at < namesBefore || learnt.count > limits.mappings {
            learnt.removeFirst()
            map.forget(oldest.mapping)
            namesHorizon = oldest.at
        }
        // Rows with the same time as the last one stay in the store a little longer than in memory.
        if horizon != nil || namesHorizon != nil {
            steps.append(
                .change(
                    .prune(before: horizon ?? .min, below: highestPruned + 1, names: namesHorizon ?? .min), nil))
        }
        pruneDeadLetters(now: now)
    }

    private static func isFull(_ count: Int, _ limit: Int) -> Bool { count > limit + min(slack, limit) }

    private mutating func pruneDeadLetters(now: QueueTime) {
        // Without a limit of age, no dead request is too old.
        let before = limits.deadRetention == .max ? .min : now.wall - limits.deadRetention
        while let oldest = deadOrder.first, oldest.at < before || deadLetters.count > limits.deadLetters {
            bury(oldest.id)
        }
    }
}
