// Rooms of a sidecar: which members can receive the room's key, and whether a message is sealed.

import Devices
import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// Ours: a room with more other members is not protected automatically: the key goes to each in a control message.
    static let automaticMembers = 50
    /// Ours: the pause before the same missing key is requested again, in nanoseconds.
    private static let askingPause: Int64 = 15_000_000_000

    /// The state of a room, for the judgement of messages to it.
    package func sidecarRoom(_ name: String) -> SidecarRoom {
        SidecarRoom(isMember: isMember(of: name), isWhole: isWhole(name), wasSealed: state(of: name).isSealed)
    }

    /// Whether the latch of a room is up.
    package func isProtected(room: String) -> Bool {
        environment.latches.latch(of: .ofRoom(room)) > .plaintext
    }

    /// Whether all members of a room have keys, and the room is not too large.
    ///
    /// A member whose keys have changed gets no room key until the person accepts the new ones. Such a member does not
    /// make the room plaintext: otherwise a server could do that, with keys of its own.
    package func isWhole(_ room: String) -> Bool {
        let others = roomMembers.others(in: room)
        return !others.isEmpty && others.count <= Self.automaticMembers && withoutKeys(in: room).isEmpty
    }

    /// The members of a room whose keys are not known.
    func withoutKeys(in room: String) -> Set<ExactText> {
        guard let peers = environment.peers else { return [] }
        return roomMembers.others(in: room).filter { person($0.text, peers) == .outsider }
    }

    /// The members of a room that can receive its key.
    package func readers(in room: String) -> [SealJob.Member] {
        guard let peers = environment.peers else { return [] }
        return roomMembers.others(in: room).sorted().map(\.text).compactMap { nick in
            guard case .capable(let account) = person(nick, peers) else { return nil }
            return SealJob.Member(
                account: account, nick: nick, capacity: lineCapacity(verb: "NOTICE", target: nick))
        }
    }

    /// Notifies the person which members of a sealed room cannot read it, if that has changed.
    func notifyOfOutsiders(in room: String, _ written: String, _ out: MachineOutput) {
        let outsiders = roomMembers.others(in: room).subtracting(readers(in: room).map { ExactText($0.nick) })
        guard exchange.outsiders[room, default: []] != outsiders else { return }
        exchange.outsiders[room] = outsiders
        guard !outsiders.isEmpty else { return }
        let nicks = outsiders.sorted().map(\.text)
        notify(Notices.roomOutsiders(written, nicks, isProtected: isProtected(room: room)), inRoom: room, out)
    }

    /// Updates the members of the rooms from a line of the backend.
    func trackMembers(_ line: IRCLine) {
        let fold: (String) -> String = { self.support.caseMapping.fold($0) }
        let source = line.folded(line.sourceNick, support.caseMapping)
        let own = nick.map(fold) ?? ""
        let rooms = line.parameter(0).map { names(line, $0).map(fold) } ?? []
        switch line.key {
        case .join:
            for room in rooms {
                if isSelf(line) { roomMembers.begin(room) } else { roomMembers.add([source], to: room, besides: own) }
                // The new member may have a sidecar.
                exchange.announced[room] = nil
            }
        case .part: for room in rooms { memberLeft(source, own, room) }
        case .kick: for room in rooms { memberLeft(fold(line.text(1) ?? ""), own, room) }
        case .quit:
            roomMembers.removeEverywhere(source)
            newNicks[source] = nil
        case .nick: renamed(source, to: fold(line.text(0) ?? ""))
        default:
            guard line.key.numeric == 353, let room = line.text(2), let list = line.text(3) else { return }
            roomMembers.add(listedNicks(list), to: fold(room), besides: own)
        }
    }

    private func memberLeft(_ nick: String, _ own: String, _ room: String) {
        if ExactText(nick) == ExactText(own) { return roomMembers.end(room) }
        roomMembers.remove(nick, from: room)
        // The connection no longer sees when another person takes the nick.
        if !roomMembers.isAnywhere(nick) { newNicks[nick] = nil }
    }

    /// Keeps the keys of a member who changes nick. Otherwise a change of nick would make a room plaintext.
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

    /// Requests the key of a room from a sender.
    func askForKey(of room: String, from nick: String, _ now: Timestamp, _ out: MachineOutput) {
        let asked = "\(support.caseMapping.fold(nick)) \(room)"
        exchange.asked = exchange.asked.filter { $0.value + Self.askingPause > now.monotonic }
        guard exchange.asked[asked] == nil else { return }
        exchange.asked[asked] = now.monotonic
        control(ControlMessage.senderKeyWanted(room: room).body, to: nick, device: nil, now, out)
    }
}
