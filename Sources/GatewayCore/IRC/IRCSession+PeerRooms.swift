// Rooms of a sidecar: who there can be given a key, and what is due to a message because of it.

import Envelope
import IRCCodec
import NIOCore
import RequestQueue

extension IRCSession {
    /// Ours: a room is protected by itself while it has at most so many others; a larger one would need as many letters.
    static let automaticMembers = 50
    /// Ours: how often a missing key is asked for, in nanoseconds.
    private static let askingPause: Int64 = 15_000_000_000

    /// What is due to a message to a room. It is protected once everybody in it can read it, and from then on.
    func peerVerdict(inRoom name: String, _ recipient: AccountID) -> Verdict {
        let room = AccountID.room(name)
        let isProtected = environment.latches.latch(of: ConversationID(room, room)) > .plaintext
        guard isMember(of: name) else { return isProtected ? .refuse(.notInRoom) : .plaintext }
        if isProtected || policy.demandsDevices { return .seal(recipient) }
        let others = roomMembers.others(in: name)
        let isWhole =
            !others.isEmpty && others.count <= Self.automaticMembers && readers(in: name).count == others.count
        return isWhole ? .seal(recipient) : .plaintext
    }

    /// What becomes of plaintext in a protected room: from somebody who has keys it is not believed. Nothing where the
    /// room is not protected.
    func peerVerdict(forPlaintext line: IRCLine) -> Policy.Inbound? {
        guard let room = line.text(0).flatMap(room) else { return nil }
        let account = AccountID.room(room.name)
        guard environment.latches.latch(of: ConversationID(account, account)) > .plaintext else { return nil }
        return isKnownPeer(line.folded(line.sourceNick, support.caseMapping)) ? .withhold : .mark
    }

    /// The members of a room that can be given its key.
    func readers(in room: String) -> [SealJob.Member] {
        guard let peers = environment.peers else { return [] }
        return roomMembers.others(in: room).sorted().map(\.text).compactMap { nick in
            guard case .capable(let account) = person(nick, peers) else { return nil }
            return SealJob.Member(
                account: account, nick: nick, capacity: lineCapacity(verb: "NOTICE", target: nick))
        }
    }

    /// Tells the person who in a protected room cannot read, when that has changed.
    func tellOutsiders(in room: String, _ written: String, _ out: SessionOutput) {
        let outsiders = roomMembers.others(in: room).subtracting(readers(in: room).map { ExactText($0.nick) })
        guard exchange.outsiders[room, default: []] != outsiders else { return }
        exchange.outsiders[room] = outsiders
        if !outsiders.isEmpty { notify(Remarks.roomOutsiders(written, outsiders.sorted().map(\.text)), out) }
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
        case .quit: roomMembers.removeEverywhere(source)
        case .nick: roomMembers.rename(source, to: fold(line.text(0) ?? ""))
        default:
            guard line.key.numeric == 353, let room = line.text(2), let list = line.text(3) else { return }
            roomMembers.add(listedNicks(list), to: fold(room), besides: own)
        }
    }

    private func gone(_ nick: String, _ own: String, _ room: String) {
        if ExactText(nick) == ExactText(own) { roomMembers.end(room) } else { roomMembers.remove(nick, from: room) }
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
