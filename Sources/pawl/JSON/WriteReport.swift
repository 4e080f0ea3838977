// Reports on one write: `pawl queue show` and `pawl trace` in front of a backend that speaks HTTP.

import JSONGateway
import Outbox
import RequestQueue

extension RequestReport {
    /// The report on one write.
    init(_ request: QueuedRequest, _ writes: WriteQueue, isHeld: Bool) async throws {
        self.init(
            id: "\(request.id)", state: request.state.name, held: !request.state.isFinal && isHeld,
            account: request.tenant, target: request.target, verb: request.config.method.name, bytes: request.size,
            accepted: Table.time(request.timestamp), finished: try writes.store.finishedAt(request.id).map(Table.time),
            attempts: request.attempts, doubts: request.doubts,
            remoteID: await writes.remoteIDs(of: [request])[request.id], reason: request.cause,
            failures: writes.traces.failures(of: request.token).map { "\(Table.time($0.at)): \($0.reason)" },
            waitsFor: await writes.waitsFor(request))
    }
}

extension Trace.Report {
    /// The trace of a write.
    init(_ request: QueuedRequest, _ writes: WriteQueue) async throws {
        let (trace, sealedAt, openedAt) = writes.traces.life(of: request.token)
        var events: [(at: Int64, event: String, detail: String?)] = [(request.timestamp, "accepted", nil)]
        // A write is sealed just before it is accepted.
        if let sealedAt { events.insert((min(sealedAt, request.timestamp), "sealed", nil), at: 0) }
        for (number, at) in (trace?.sentAt ?? []).enumerated() {
            let first = (trace?.attempts ?? 0) - (trace?.sentAt.count ?? 0)
            events.append((at, "sent", first + number > 0 ? "attempt \(first + number + 1)" : nil))
        }
        for failure in writes.traces.failures(of: request.token) {
            events.append((failure.at, "failed", failure.reason))
        }
        if let at = trace?.acknowledgedAt { events.append((at, "answered", nil)) }
        if let at = openedAt { events.append((at, "read", "handed to the first of its other readers")) }
        if let at = try writes.store.finishedAt(request.id) {
            events.append((at, request.state.name, request.cause))
        }
        var notes: [String] = []
        if trace == nil {
            notes.append(
                "It was accepted before this gateway started, or more than \(RequestTraces.limit) messages ago: the times "
                    + "in between are no longer known.")
        } else if openedAt == nil, request.state == .done, sealedAt != nil {
            notes.append("Not read yet: it has not been handed to another reader behind this gateway.")
        }
        if !request.state.isFinal, let cause = request.cause { notes.append(cause) }
        if request.doubts > 0 {
            notes.append("\(request.doubts) attempts ended without an answer: the backend may have done it twice.")
        }
        self.init(
            id: "\(request.id)", state: request.state.name, account: request.tenant,
            target: request.target, events: Trace.ordered(events), waitsFor: await writes.waitsFor(request),
            notes: notes)
    }
}
