// The rooms of a connection, from the lines of the backend.

import IRCCodec
import NIOCore
import Protection
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// The room of a target, folded, with the status that its readers must have; nil if the target is a person.
    package func room(_ target: String) -> (name: String, status: String)? {
        let bytes = Array(target.utf8)
        guard let first = bytes.first, support.isRoom(first, then: bytes.dropFirst().first) else { return nil }
        let status = bytes.prefix { !support.channelTypes.contains($0) }
        let name = String(decoding: bytes.dropFirst(status.count), as: UTF8.self)
        return (support.caseMapping.fold(name), String(decoding: status, as: UTF8.self))
    }

    /// Whether the client sees itself in a room, also during an outage.
    package func isMember(of room: String) -> Bool {
        rooms.contains(room) || restoration.rooms.contains(room) || phase.outage?.rooms.contains(room) == true
    }

    /// Whether a held request can be sent to its recipient now.
    func isReachable(_ peer: AccountID, _ now: Timestamp) -> Bool {
        // A sidecar learns only from the server's answer whether the recipient is there.
        if role.isSidecar, peer.roomName == nil { return true }
        return !isAwaited(peer, now) && (peer.roomName.map(rooms.contains) ?? environment.roster.isPresent(peer))
    }

    /// Updates the rooms of this connection from a line of the backend.
    func trackRooms(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        switch line.key {
        case .join:
            for room in names(line, 0) {
                if isSelf(line) { history.joined(room, at: line.tag("time")) }
                if isSelf(line) { joined(room, now, out) } else { environment.rooms.saw([source(line)], in: room) }
            }
        case .part: for room in names(line, 0) { memberLeft(source(line), from: room) }
        case .kick: for room in names(line, 0) { memberLeft(names(line, 1).first ?? "", from: room) }
        case .quit: environment.rooms.lost(source(line), from: rooms.lazy.map(\.text))
        case .nick: environment.rooms.renamed(source(line), to: names(line, 0).first ?? "")
        default: if line.key.numeric == 353 { listed(line) }
        }
    }

    package var foldedNick: String { nick.map(support.caseMapping.fold) ?? "" }

    private func source(_ line: IRCLine) -> String { line.folded(line.sourceNick, support.caseMapping) }

    /// RPL_NAMREPLY: `me = #room :@nick +nick nick!user@host`.
    private func listed(_ line: IRCLine) {
        guard let room = line.text(2), rooms.contains(support.caseMapping.fold(room)), let list = line.text(3) else {
            return
        }
        environment.rooms.saw(RoomMembers.nicks(in: list, support.caseMapping.fold), in: support.caseMapping.fold(room))
    }

    private func memberLeft(_ nick: String, from room: String) {
        if ExactText(nick) == ExactText(foldedNick) {
            left(room)
        } else {
            environment.rooms.lost(nick, from: [room])
        }
    }

    private func names(_ line: IRCLine, _ index: Int) -> [String] {
        line.names(index).map(support.caseMapping.fold)
    }

    private func joined(_ room: String, _ now: Timestamp, _ out: MachineOutput) {
        rooms.insert(room)
        if policy.takesPart { environment.rooms.put(id, of: account, as: foldedNick, into: room) }
        inbound.joined(room)
        releaseHeld(now, out)
    }

    private func left(_ room: String) {
        rooms.remove(room)
        restoration.remove(room)
        environment.rooms.remove(id, as: foldedNick, from: room)
        history.left(room)
    }

    /// Updates the connection's entries in the room table after a login or a change of policy.
    func updateRooms() {
        for room in rooms.lazy.map(\.text) {
            if policy.takesPart {
                environment.rooms.put(id, of: account, as: foldedNick, into: room)
            } else {
                environment.rooms.remove(id, as: foldedNick, from: room)
            }
        }
    }

    /// Removes the connection from all its rooms.
    package func leaveRooms() {
        for room in rooms.union(restoration.rooms).union(phase.outage?.rooms ?? []).lazy.map(\.text) {
            environment.rooms.remove(id, as: foldedNick, from: room)
        }
        rooms.removeAll()
    }
}
