// Rooms of a sidecar: who there can be given a key, and what is due to a message because of it.

import Devices
import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
package import Vault

extension IRCSession {
    /// Ours: a room is protected by itself while it has at most so many others; a larger one would need as many letters.
    static let automaticMembers = 50
    /// Ours: how often a missing key is asked for, in nanoseconds.
    private static let askingPause: Int64 = 15_000_000_000

    /// What is known about a room, for the judgement of messages to it.
    package func sidecarRoom(_ name: String) -> SidecarRoom {
        SidecarRoom(isMember: isMember(of: name), isWhole: isWhole(name), wasSealed: state(of: name).isSealed)
    }

    /// Whether the latch of a room is up.
    package func isProtected(room: String) -> Bool {
        environment.latches.latch(of: .ofRoom(room)) > .plaintext
    }

    /// Whether everybody in a room has keys. A member whose keys have changed gets no room key until the person accepts
    /// the new ones, and does not make the room plain: otherwise a server could, with keys of its own.
    package func isWhole(_ room: String) -> Bool {
        let others = roomMembers.others(in: room)
        return !others.isEmpty && others.count <= Self.automaticMembers && withoutKeys(in: room).isEmpty
    }

    /// The members of a room of whom no keys are known.
    func withoutKeys(in room: String) -> Set<ExactText> {
        guard let peers = environment.peers else { return [] }
        return roomMembers.others(in: room).filter { person($0.text, peers) == .outsider }
    }

    /// The members of a room that can be given its key.
    package func readers(in room: String) -> [SealJob.Member] {
        guard let peers = environment.peers else { return [] }
        return roomMembers.others(in: room).sorted().map(\.text).compactMap { nick in
            guard case .capable(let account) = person(nick, peers) else { return nil }
            return SealJob.Member(
                account: account, nick: nick, capacity: lineCapacity(verb: "NOTICE", target: nick))
        }
    }

    /// Notifies the person who in a sealed room cannot read, when that has changed.
    func tellOutsiders(in room: String, _ written: String, _ out: SessionOutput) {
        let outsiders = roomMembers.others(in: room).subtracting(readers(in: room).map { ExactText($0.nick) })
        guard exchange.outsiders[room, default: []] != outsiders else { return }
        exchange.outsiders[room] = outsiders
        guard !outsiders.isEmpty else { return }
        let nicks = outsiders.sorted().map(\.text)
        notify(Remarks.roomOutsiders(written, nicks, isProtected: isProtected(room: room)), inRoom: room, out)
    }

    /// Notes what a line of the backend says about who is in the rooms.
    func trackMembers(_ line: IRCLine) {
        let fold: (String) -> String = { self.support.caseMapping.fold($0) }
        let source = line.folded(line.sourceNick, support.caseMapping)
        let own = nick.map(fold) ?? ""
        let rooms = line.parameter(0).map { names(line, $0).map(fold) } ?? []
        switch line.key {
        case .join:
            for room in rooms {
                if isSelf(line) { roomMembers.begin(room) } else { roomMembers.add([source], to: room, besides: own) }
                // Somebody new may have a sidecar as well.
                exchange.greeted[room] = nil
            }
        case .part: for room in rooms { gone(source, own, room) }
        case .kick: for room in rooms { gone(fold(line.text(1) ?? ""), own, room) }
        case .quit:
            roomMembers.removeEverywhere(source)
            newNicks[source] = nil
        case .nick: renamed(source, to: fold(line.text(0) ?? ""))
        default:
            guard line.key.numeric == 353, let room = line.text(2), let list = line.text(3) else { return }
            roomMembers.add(listedNicks(list), to: fold(room), besides: own)
        }
    }

    private func gone(_ nick: String, _ own: String, _ room: String) {
        if ExactText(nick) == ExactText(own) { return roomMembers.end(room) }
        roomMembers.remove(nick, from: room)
        // Nobody notices any more when the nick becomes somebody else's.
        if !roomMembers.isAnywhere(nick) { newNicks[nick] = nil }
    }

    /// A member of a room has another nick: the keys are the same. Without this a change of nick would make a room plain.
    private func renamed(_ old: String, to new: String) {
        let known = environment.peers.map { person(old, $0) }
        newNicks[old] = nil
        newNicks[new] = nil
        if roomMembers.isAnywhere(old), newNicks.count < KeyExchange.nickLimit {
            switch known {
            case .capable(let name), .changed(let name): newNicks[new] = name
            default: break
            }
        }
        roomMembers.rename(old, to: new)
    }

    /// Asks a speaker for the key of a room.
    func askForKey(of room: String, from nick: String, _ now: Moment, _ out: SessionOutput) {
        let asked = "\(support.caseMapping.fold(nick)) \(room)"
        exchange.asked = exchange.asked.filter { $0.value + Self.askingPause > now.monotonic }
        guard exchange.asked[asked] == nil else { return }
        exchange.asked[asked] = now.monotonic
        control(ControlMessage.senderKeyWanted(room: room).body, to: nick, device: nil, now, out)
    }
}
