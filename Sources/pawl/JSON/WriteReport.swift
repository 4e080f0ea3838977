// Reports on one write: `pawl queue show` and `pawl trace` in front of a backend that speaks HTTP.

import Outbox
import RequestQueue
import SQLiteQueue

/// The report on one write.
struct WriteReport: Codable {
    var id: String
    var state: String
    var held: Bool
    var account: String
    var target: String
    var method: String
    var bytes: Int
    var accepted: String
    var finished: String?
    var attempts: Int
    /// Attempts that ended without an answer.
    var doubts: Int
    var remoteID: String?
    var reason: String?
    /// Why the last attempts of this process failed.
    var failures: [String]
    var waitsFor: String?

    init(_ request: QueuedRequest, on gateway: Gateway, _ writes: WriteQueue) async throws {
        id = "\(request.id)"
        state = request.state.name
        held = !request.state.isFinal && (request.isHeld || gateway.holdsAll(of: request.tenant))
        account = request.tenant
        target = request.target
        method = request.config.method.name
        bytes = request.size
        accepted = Table.time(request.timestamp)
        finished = try writes.store.finishedAt(request.id).map(Table.time)
        attempts = request.attempts
        doubts = request.doubts
        remoteID = await writes.remoteIDs(of: [request])[request.id]
        reason = request.cause
        failures = writes.traces.failures(of: request.token).map { "\(Table.time($0.at)): \($0.reason)" }
        waitsFor = await writes.waitsFor(request)
    }

    var text: String {
        var lines = [
            "request     \(id), \(state)" + (held ? ", held by an operator" : ""),
            "from        \(account)",
            "to          \(target), by \(method)",
            "size        \(bytes) bytes for the whole request; its text is sealed",
            "accepted    \(accepted)",
        ]
        if let waitsFor { lines.append("waits for   \(waitsFor)") }
        if let finished { lines.append("ended       \(finished)") }
        if let reason { lines.append("because     \(reason)") }
        if let remoteID { lines.append("remote id   \(remoteID)") }
        lines += failures.map { "failed      \($0)" }
        if doubts > 0 {
            lines.append(
                "in doubt    \(doubts) attempt\(doubts == 1 ? "" : "s") without an answer: the backend may have done it twice"
            )
        }
        lines.append("attempts    \(attempts); times: pawl trace \(id)")
        return lines.map(Printable.line).joined(separator: "\n")
    }
}

extension Trace.Report {
    /// The trace of a write.
    init(_ request: QueuedRequest, on gateway: Gateway, _ writes: WriteQueue) async throws {
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
