// Requests that wait for their recipient or for an operator. They are outside the lane, so that nothing else waits.

import Envelope
import IRCCodec
import NIOCore
import Outbox
package import Protection
import Reports
import RequestQueue
package import StorePort
import Vault

extension IRCConnectionMachine {
    package func recovered(
        _ ticket: UInt64, _ requests: [Request], _ lines: [RecoveredLine], _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let inboundTicket = recoveries.removeValue(forKey: ticket) else { return }
        inbound.resolve(
            inboundTicket,
            with: lines.filter { isShownNow($0) }.map { InboundEntry($0) })
        roomLines += lines.filter { !isShownNow($0) }
        // A request that was being sealed when the backend was lost is in both places.
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

    /// Whether a recovered line is shown now. A line of a room waits until the client is in that room again.
    private func isShownNow(_ line: RecoveredLine) -> Bool { line.room.map(rooms.contains) ?? true }

    /// Ours: how long held requests wait for their recipient, in nanoseconds.
    static let heldPatience: Int64 = 60_000_000_000

    /// Holds a request until its recipient is back.
    package func hold(_ request: OutboundRequest, _ now: Timestamp) {
        held.append(request)
        heldDeadline = now.monotonic + Self.heldPatience
    }

    /// Whether an earlier request to the same recipient is held, which this one must not overtake.
    func isBehindHeld(_ request: Request) -> Bool {
        held.contains { $0.request.peer == request.peer && $0.request.id < request.id }
    }

    /// Moves held requests into the lane if their recipients are back and no operator holds them.
    func releaseHeld(_ now: Timestamp, _ out: MachineOutput) {
        guard !held.isEmpty, !isUpstreamClosed, outage == nil, recoveries.isEmpty else { return }
        let expired = heldDeadline.map { $0 <= now.monotonic } ?? false
        var waiting: [OutboundRequest] = []
        var released: [OutboundRequest] = []
        // A request held by an operator stops all later ones to the same recipient.
        var stopped: Set<ExactText> = []
        for entry in held {
            let peer = entry.request.peer
            if stopped.contains(peer) || environment.requests.gate.isHeld(entry.request) {
                stopped.insert(peer)
                waiting.append(entry)
            } else if isReachable(AccountID(text: peer), now) {
                released.append(entry)
            } else if expired {
                fail(entry, Notices.expired(target: entry.request.target), out)
            } else {
                waiting.append(entry)
            }
        }
        held = waiting
        // The recipient's time does not run while an operator holds a request.
        if !stopped.isEmpty { heldDeadline = now.monotonic + Self.heldPatience }
        guard !released.isEmpty else { return }
        // Later requests to the same recipients are in the lane, behind entries that wait for the pacer.
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

    /// Removes a request that an operator has dropped, and notifies its sender.
    package func dropped(_ id: UInt64, _ target: String, _ out: MachineOutput) {
        var dropped = held.filter { $0.request.id == id }
        held.removeAll { $0.request.id == id }
        for case .request(let entry) in outbound.removeReady(where: {
            if case .request(let entry) = $0 { entry.request.id == id } else { false }
        }) {
            dropped.append(entry)
        }
        environment.tally.add(.failed)
        reply(531, [target], Notices.dropped(target: target), label: dropped.first?.clientLabel, out)
    }

    /// Notifies the sender of requests that expired while the person or the backend was away.
    package func expired(_ target: String, _ count: Int, _ out: MachineOutput) {
        environment.tally.add(.failed, count)
        reply(531, [target], Notices.expired(count, target: target), label: nil, out)
    }
}
