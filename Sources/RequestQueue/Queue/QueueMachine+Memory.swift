// What is remembered of the finished, and for how long.

import DequeModule

struct LearntMapping: Sendable {
    let mapping: IdentifierMapping
    /// Milliseconds since 1970.
    let at: Int64
}

extension QueueMachine {
    /// Milliseconds between two looks at what is old, and how many more than its number may be kept until then.
    static let prunePause: Int64 = 60_000
    static let slack = 1024

    /// The cause of what ended without one.
    static let cancelled = "it was cancelled"

    /// Why an entity will not come into being, for requests that name it.
    mutating func noteFailure(of name: TenantReference, _ cause: String) {
        failedCreators[name] = "\(name.reference) was never created: \(cause)"
    }

    mutating func remember(_ request: QueuedRequest, at: Int64) {
        ended[request.token] = request.state == .done ? "" : request.cause ?? Self.cancelled
        finished.append(
            FinishedRecord(
                token: request.token, at: at, key: TenantKey(tenant: request.tenant, key: request.idempotencyKey),
                creates: request.creates.map { TenantReference(tenant: request.tenant, reference: $0) }))
    }

    /// Forgets what is over its time or its number. What is stored is removed with the next batch.
    mutating func prune(now: QueueTime) {
        let isFull = finished.count > limits.finished + Self.slack || learnt.count > limits.mappings + Self.slack
        guard isFull || now.uptime >= nextPrune else { return }
        nextPrune = now.uptime + Self.prunePause
        let before = now.wall - limits.retention
        var horizon: Int64?
        while let oldest = finished.first, oldest.at < before || finished.count > limits.finished {
            finished.removeFirst()
            ended[oldest.token] = nil
            if keys[oldest.key]?.token == oldest.token { keys[oldest.key] = nil }
            for name in oldest.creates { failedCreators[name] = nil }
            horizon = oldest.at
        }
        while let oldest = learnt.first, oldest.at < before || learnt.count > limits.mappings {
            learnt.removeFirst()
            map.forget(oldest.mapping)
            horizon = max(horizon ?? oldest.at, oldest.at)
        }
        // What shares the last one's millisecond stays in the store a little longer than in memory.
        if let horizon { steps.append(.change(.prune(before: horizon), nil)) }
    }
}
