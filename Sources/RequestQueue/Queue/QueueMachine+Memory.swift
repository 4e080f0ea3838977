// What is remembered of the finished, and for how long.

import DequeModule

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
                id: request.id, token: request.token, at: at, key: KeyName(request),
                creates: request.creates.map { TenantReference(tenant: request.tenant, reference: $0) }))
    }

    /// Keeps an answer, and forgets the oldest ones that have no room beside it.
    mutating func keepResponse(of id: UInt64, size: Int) {
        guard size > 0 else { return }
        responses.append((id, size))
        responseBytes += size
        while responseBytes > limits.responses, let oldest = responses.popFirst() {
            responseBytes -= oldest.size
            steps.append(.change(.forgetResponse(id: oldest.id), nil))
        }
    }

    /// A finished request is not finished any more: nothing that was remembered of its end goes on counting.
    mutating func forgetEnd(of id: UInt64) {
        if let place = finished.firstIndex(where: { $0.id == id }) { finished.remove(at: place) }
        if let place = responses.firstIndex(where: { $0.id == id }) {
            responseBytes -= responses.remove(at: place).size
        }
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
            highestPruned = max(highestPruned, oldest.id)
            if let response = responses.first, response.id == oldest.id {
                responses.removeFirst()
                responseBytes -= response.size
            }
        }
        while let oldest = learnt.first, oldest.at < before || learnt.count > limits.mappings {
            learnt.removeFirst()
            map.forget(oldest.mapping)
            horizon = max(horizon ?? oldest.at, oldest.at)
        }
        // What shares the last one's millisecond stays in the store a little longer than in memory.
        if let horizon { steps.append(.change(.prune(before: horizon, below: highestPruned + 1), nil)) }
    }
}
