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
        guard let shown = outbound.endRecovery(ticket, returned: Set(requests.map(\.id))) else { return }
        inbound.recovered(lines, at: shown) { rooms.contains($0) }
        var ready: [OutboundEntry] = []
        for request in requests {
            let entry = OutboundRequest(request: request, body: nil, clientLabel: nil)
            if isReachable(AccountID(text: request.peer), now) {
                ready.append(.request(entry))
            } else {
                outbound.hold(entry, now: now.monotonic)
            }
        }
        outbound.resolve(ticket, with: ready)
        scheduleWake(now, out)
    }

    /// Moves held requests into the lane if their recipients are back and no operator holds them.
    func releaseHeld(_ now: Timestamp, _ out: MachineOutput) {
        guard phase.isOpen else { return }
        let expired = outbound.releaseHeld(now: now.monotonic) { entry in
            if environment.requests.gate.isHeld(entry.request) { return .stopped }
            return isReachable(AccountID(text: entry.request.peer), now) ? .reachable : .unreachable
        }
        for entry in expired { fail(entry, Notices.expired(target: entry.request.target), out) }
    }

    // MARK: Operators

    /// Removes a request that an operator has dropped, and notifies its sender.
    package func dropped(_ id: UInt64, _ target: String, _ out: MachineOutput) {
        let dropped = outbound.drop(id)
        environment.tally.add(.failed)
        reply(531, [target], Notices.dropped(target: target), label: dropped?.clientLabel, out)
    }

    /// Notifies the sender of requests that expired while the person or the backend was away.
    package func expired(_ target: String, _ count: Int, _ out: MachineOutput) {
        environment.tally.add(.failed, count)
        reply(531, [target], Notices.expired(count, target: target), label: nil, out)
    }
}
