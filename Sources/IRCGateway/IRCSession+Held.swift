// Requests that wait for their recipient or for an operator, beside the lane, so that nothing else waits with them.

import Envelope
import IRCCodec
import NIOCore
import Outbox
package import Protection
import Reports
import RequestQueue
package import StorePort
package import Vault

extension IRCSession {
    package func recovered(
        _ ticket: UInt64, _ requests: [Request], _ lines: [RecoveredLine], _ now: Moment, _ out: SessionOutput
    ) {
        guard let inboundTicket = recoveries.removeValue(forKey: ticket) else { return }
        inbound.resolve(
            inboundTicket,
            with: lines.filter { isShownNow($0) }.map { InboundEntry($0) })
        roomLines += lines.filter { !isShownNow($0) }
        // What was being sealed when the backend went is in both places.
        let again = Set(requests.map(\.id))
        _ = outbound.removeReady { entry in
            if case .request(let waiting) = entry { again.contains(waiting.request.id) } else { false }
        }
        held.removeAll { again.contains($0.request.id) }
        var ready: [OutboundEntry] = []
        for request in requests {
            let entry = OutboundRequest(request: request, body: nil, clientLabel: nil)
            if isReachable(AccountID(text: request.peer), now) {
                ready.append(.request(entry))
            } else {
                hold(entry, now)
            }
        }
        outbound.resolve(ticket, with: ready)
        scheduleWake(now, out)
    }

    /// What was said in a room is shown when the client is in it again.
    private func isShownNow(_ line: RecoveredLine) -> Bool { line.room.map(rooms.contains) ?? true }

    /// Ours: how long requests of before a restart wait for their recipient. In nanoseconds.
    static let heldPatience: Int64 = 60_000_000_000

    /// Lets a request wait for its recipient, and nothing else.
    package func hold(_ request: OutboundRequest, _ now: Moment) {
        held.append(request)
        heldDeadline = now.monotonic + Self.heldPatience
    }

    /// Whether something that was said before it to the same name waits: it must not be overtaken.
    func isBehindHeld(_ request: Request) -> Bool {
        held.contains { $0.request.peer == request.peer && $0.request.id < request.id }
    }

    /// What waits goes out when its recipient is back and no operator holds it.
    func releaseHeld(_ now: Moment, _ out: SessionOutput) {
        guard !held.isEmpty, !isUpstreamClosed, outage == nil, recoveries.isEmpty else { return }
        let expired = heldDeadline.map { $0 <= now.monotonic } ?? false
        var waiting: [OutboundRequest] = []
        var released: [OutboundRequest] = []
        // The first that an operator holds stops all that stand behind it to the same name.
        var stopped: Set<ExactText> = []
        for entry in held {
            let peer = entry.request.peer
            if stopped.contains(peer) || environment.requests.gate.isHeld(entry.request) {
                stopped.insert(peer)
                waiting.append(entry)
            } else if isReachable(AccountID(text: peer), now) {
                released.append(entry)
            } else if expired {
                fail(entry, Remarks.expired(target: entry.request.target), out)
            } else {
                waiting.append(entry)
            }
        }
        held = waiting
        // The time that an operator takes is not the recipient's.
        if !stopped.isEmpty { heldDeadline = now.monotonic + Self.heldPatience }
        guard !released.isEmpty else { return }
        // What has come meanwhile to the same names stands in the lane, behind what waits there for the pacer.
        let peers = Set(released.map(\.request.peer))
        for case .request(let entry) in outbound.removeReady(where: {
            if case .request(let entry) = $0 { entry.next == 0 && peers.contains(entry.request.peer) } else { false }
        }) {
            released.append(entry)
        }
        outbound.insertFirst(released.sorted { $0.request.id < $1.request.id }.map { .request($0) }) {
            if case .request(let entry) = $0 { entry.next > 0 } else { false }
        }
    }

    // MARK: Operators

    /// An operator has dropped a request of this connection.
    package func dropped(_ id: UInt64, _ target: String, _ out: SessionOutput) {
        var dropped = held.filter { $0.request.id == id }
        held.removeAll { $0.request.id == id }
        for case .request(let entry) in outbound.removeReady(where: {
            if case .request(let entry) = $0 { entry.request.id == id } else { false }
        }) {
            dropped.append(entry)
        }
        environment.tally.add(.failed)
        reply(531, [target], Remarks.dropped(target: target), label: dropped.first?.clientLabel, out)
    }

    /// What waited for too long while this person, or the backend, was away.
    package func lapsed(_ target: String, _ count: Int, _ out: SessionOutput) {
        environment.tally.add(.failed, count)
        reply(531, [target], Remarks.lapsed(count, target: target), label: nil, out)
    }
}
