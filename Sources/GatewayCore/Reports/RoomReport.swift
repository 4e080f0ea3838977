// How the rooms of a sidecar's client are protected, for the person who asks.

import Protection
import Envelope
import RequestQueue

/// One room that a connection is in.
package struct RoomReport: Sendable, Equatable, Codable {
    /// The folded name.
    package var name: String
    /// What the next message to it gets: `end-to-end`, `plaintext`, or `gateway in front` where that one decides.
    package var protection: String
    /// Whether the person protects it: nothing goes there in plain text, whoever comes.
    package var isProtected: Bool
    /// Others who are in it.
    package var others: Int
    /// Those of them who can be given the room's key.
    package var readers: Int
    /// Those who cannot, sorted; at most 20 of them.
    package var outsiders: [String]
}

extension IRCSession {
    /// All rooms of this connection, by name.
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
