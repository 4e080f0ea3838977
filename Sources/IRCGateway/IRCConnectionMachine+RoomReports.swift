// Reports of the protection of a connection's rooms.

import Envelope
import Protection
import Reports
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// The reports of all rooms of this connection, sorted by name.
    func roomReports(_ sidecar: SidecarConnection) -> [RoomReport] {
        sidecar.people.rooms.map { name in
            let others = sidecar.people.others(in: name)
            let readers = Set(sidecar.people.readers(in: name).map { ExactText($0.nick) })
            let verdict = judgement.outbound(
                .text, from: Sender(account, .sidecar), to: .sidecarRoom(.room(name), sidecarRoom(name, sidecar)))
            let isSealed = if case .seal = verdict { true } else { false }
            return RoomReport(
                name: name,
                protection: isSealed ? "end-to-end" : sidecar.front.isReady ? "gateway in front" : "plaintext",
                isProtected: isProtected(room: name),
                others: others.count, readers: readers.count,
                outsiders: others.subtracting(readers).sorted().prefix(20).map(\.text))
        }
    }
}
