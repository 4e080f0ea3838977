// Stopping of the gateway: waiting messages are sent while there is time, and senders are notified of the others.

import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort

extension IRCConnectionMachine {
    /// Whether nothing of this connection is in progress that would finish within a short time.
    package var isSettled: Bool {
        guard isRegistered, phase.isOpen else { return true }
        return outbound.isSettled && inbound.isEmpty && lines.backlog == nil
    }

    /// Sends a PING; its answer shows that the backend has delivered everything for this connection.
    package func askForLastPong(_ out: MachineOutput) {
        guard isProtecting, isRegistered, phase.isOpen else { return }
        outbound.outstanding.askForLastPong()
        out.upstream.writeString("PING :\(labelPrefix)-0\r\n")
    }

    /// Notifies the client that the gateway is stopping and still sends what waits.
    package func announceStop(_ out: MachineOutput) {
        if isRegistered { notify(ownWords(Notices.stopping), out) }
    }

    /// Notifies the client of unsent messages, by target. Nothing is sent afterwards.
    package func stop(_ out: MachineOutput) {
        var counts: [ExactText: (lost: Int, waiting: Int, doubtful: Int)] = [:]
        func note(_ request: Request, isSent: Bool) {
            if survives(request) {
                counts[request.target, default: (0, 0, 0)].waiting += 1
            } else if isSent {
                counts[request.target, default: (0, 0, 0)].doubtful += 1
            } else {
                counts[request.target, default: (0, 0, 0)].lost += 1
            }
        }
        var isCounted: Set<UInt64> = []
        let unsent = outbound.takeUnsent()
        for entry in unsent.entries {
            switch entry {
            case .request(let request) where request.body?.kind == .control: isCounted.insert(request.request.id)
            case .request(let request):
                isCounted.insert(request.request.id)
                note(request.request, isSent: request.next > 0)
            case .line(let raw): for target in targets(of: raw) { counts[target, default: (0, 0, 0)].lost += 1 }
            }
        }
        let wasAhead = lines.backlog != nil
        var rest = lines.takeBacklog()
        while let piece = lines.downstream.next(&rest) {
            guard case .line(let raw, _) = piece else { continue }
            for target in targets(of: raw) { counts[target, default: (0, 0, 0)].lost += 1 }
        }
        for request in unsent.held { note(request.request, isSent: false) }
        for request in unsent.unacknowledged
        where !isCounted.contains(request.request.id) && request.body?.kind != .control {
            note(request.request, isSent: true)
        }
        for seal in unsent.seals where seal.body.kind != .control {
            counts[seal.target, default: (0, 0, 0)].lost += 1
        }
        if case .sidecar(let sidecar) = role {
            for target in sidecar.exchange.waitingTargets + sidecar.front.waitingTargets {
                counts[target, default: (0, 0, 0)].lost += 1
            }
        }
        for (target, count) in counts.sorted(by: { $0.key < $1.key }) {
            func notify(_ count: Int, _ text: (Int, String) -> String) {
                guard count > 0 else { return }
                self.notify(ownWords(text(count, target.text)), about: target.text, out)
            }
            notify(count.lost, Notices.notSentAtStop)
            notify(count.doubtful, Notices.perhapsSentAtStop)
            notify(count.waiting, Notices.keptAtStop)
        }
        if wasAhead { notify(ownWords(Notices.unreadAtStop), out) }
    }

    /// A text about the gateway as this program says it of itself.
    private func ownWords(_ text: String) -> String { role.isSidecar ? Notices.ofSidecar(text) : text }

    /// Whether a request is sent after the next start: the backend vouches for both accounts. Always in a sidecar.
    func survives(_ request: Request) -> Bool {
        switch role {
        case .front: AccountID(text: request.account).isVerified && AccountID(text: request.peer).isVerified
        case .sidecar: true
        }
    }

    /// The targets of a line of the client; empty if it is not a message.
    func targets(of raw: ByteBuffer) -> [String] {
        let content = raw.readableBytesView.prefix { $0 != 0x0D && $0 != 0x0A }.count
        guard let line = parse(raw, content), line.key.isText else { return [] }
        return line.names(0)
    }
}
