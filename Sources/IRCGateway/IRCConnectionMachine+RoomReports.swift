// Reports of the protection of a connection's rooms.

import Envelope
import Protection
import Reports
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// The reports of all rooms of this connection, sorted by name.
    func roomReports() -> [RoomReport] {
        roomMembers.names.sorted().map { name in
            let others = roomMembers.others(in: name)
            let readers = Set(readers(in: name).map { ExactText($0.nick) })
            let verdict = judgement.outbound(
                .text, from: Sender(account, .sidecar), to: .sidecarRoom(.room(name), sidecarRoom(name)))
            let isSealed = if case .seal = verdict { true } else { false }
            return RoomReport(
                name: name, protection: isSealed ? "end-to-end" : hasFront ? "gateway in front" : "plaintext",
                isProtected: isProtected(room: name),
                others: others.count, readers: readers.count,
                outsiders: others.subtracting(readers).sorted().prefix(20).map(\.text))
        }
    }
}
