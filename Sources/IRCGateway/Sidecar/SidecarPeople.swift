// The people whom a sidecar's connection sees: which nick is whom, which rooms they are in, and who has keys.
//
// A nick is known by the last sender under it, by its account if the backend sends accounts, and by itself. A member of
// a shared room who changes nick keeps the keys; otherwise a change of nick would make a room plaintext.

import Devices
import IRCCodec
import Protection
import RequestQueue

/// The machine that follows people and room members in the lines of the backend. All names are folded.
struct SidecarPeople {
    /// Ours: a room with more other members is not protected automatically: the key goes to each in a control message.
    static let automaticMembers = 50
    /// Ours: entries of each table of nicks on a sidecar's connection; a server that invents people must not fill memory.
    static let nickLimit = 10_000

    private let peers: PeerCache
    private let latches: LatchTable
    private var accounts = NickAccounts()
    /// New nicks of known people, from the changes of nick that this connection saw.
    private var newNicks: [ExactText: AccountID] = [:]
    private var members = RoomMembers()

    init(_ peers: PeerCache, _ latches: LatchTable) { (self.peers, self.latches) = (peers, latches) }

    // MARK: Identity

    /// The names under which a nick may be known, the most likely first.
    func accountNames(_ nick: String) -> [AccountID] {
        (accounts.account(of: nick).map { [.services($0)] } ?? []) + [.nick(nick)]
    }

    /// The person behind a nick, by the known keys: first the last sender under it, then the backend's account.
    func person(_ nick: String) -> Recipient {
        let seen = [newNicks[nick], latches.peer(named: nick, for: .own)]
        let names = seen.compactMap { $0 } + accountNames(nick)
        guard let peer = names.lazy.compactMap({ peers[$0] }).first else { return .outsider }
        return peer.offered == nil ? .capable(peer.name) : .changed(peer.name)
    }

    /// The account of a nick whose keys are known, accepted or not; nil if there are none.
    private func knownName(_ nick: String) -> AccountID? {
        switch person(nick) {
        case .capable(let name), .changed(let name): name
        case .outsider, .legacy, .exempt, .room: nil
        }
    }

    /// Whether a nick belongs to a peer with an established session.
    func isKnownPeer(_ nick: String) -> Bool { knownName(nick).map { peers[$0]?.isEstablished == true } ?? false }

    /// Whether a nick was that of another device of the person, which they have removed.
    func isRemovedDevice(_ nick: String) -> Bool {
        guard let own = peers.own?.deviceList, own.hasRemovals, let peer = knownName(nick).flatMap({ peers[$0] }),
            own.continues(peer.deviceList)
        else { return false }
        return peer.hasRemovedDevice
    }

    /// Stores the account of a nick that a directory has returned.
    mutating func note(_ nick: String, account: AccountID) { accounts.note(nick, account: account) }

    // MARK: Rooms

    /// The rooms of this connection.
    var rooms: [String] { members.names.sorted() }

    /// The members of a room without the connection's own nick.
    func others(in room: String) -> Set<ExactText> { members.others(in: room) }

    func isMember(_ nick: String, of room: String) -> Bool { members.contains(nick, in: room) }

    /// The members of a room whose keys are not known.
    func withoutKeys(in room: String) -> Set<ExactText> {
        members.others(in: room).filter { person($0.text) == .outsider }
    }

    /// The same, sorted, for a notice.
    func namesWithoutKeys(in room: String) -> [String] { withoutKeys(in: room).sorted().map(\.text) }

    /// The members of a room that can receive its key, sorted by nick.
    func readers(in room: String) -> [(nick: String, account: AccountID)] {
        members.others(in: room).sorted().compactMap { nick in
            guard case .capable(let account) = person(nick.text) else { return nil }
            return (nick.text, account)
        }
    }

    /// Whether all members of a room have keys, and the room is not too large.
    ///
    /// A member whose keys have changed gets no room key until the person accepts the new ones. Such a member does not
    /// make the room plaintext: otherwise a server could do that, with keys of its own.
    func isWhole(_ room: String) -> Bool {
        let others = members.others(in: room)
        return !others.isEmpty && others.count <= Self.automaticMembers && withoutKeys(in: room).isEmpty
    }

    /// The members without keys of those rooms that are small enough to be protected automatically.
    func strangers(in rooms: some Sequence<String>) -> Set<ExactText> {
        rooms.reduce(into: []) { strangers, room in
            guard members.count(in: room) <= Self.automaticMembers else { return }
            strangers.formUnion(withoutKeys(in: room))
        }
    }

    /// The rooms that a person shares with this connection.
    func rooms(of nick: String) -> [String] { members.rooms(of: nick) }

    // MARK: Lines of the backend

    /// Updates people and rooms from a line of the backend.
    ///
    /// - Parameters:
    ///   - own: the connection's own nick.
    ///   - tagsAccounts: whether lines of logged-in people have the account tag.
    mutating func learn(_ line: IRCLine, own: String, tagsAccounts: Bool, _ support: ServerSupport) {
        accounts.learn(line, tagsAccounts: tagsAccounts, support)
        let fold: (String) -> String = { support.caseMapping.fold($0) }
        let source = line.folded(line.sourceNick, support.caseMapping)
        switch line.key {
        case .join:
            let isOwn = !own.isEmpty && ExactText(source) == ExactText(own)
            for room in line.names(0).map(fold) {
                if isOwn { members.begin(room) } else { members.add([source], to: room, besides: own) }
            }
        case .part: for room in line.names(0).map(fold) { left(source, own, room) }
        case .kick: for room in line.names(0).map(fold) { left(fold(line.text(1) ?? ""), own, room) }
        case .quit:
            members.removeEverywhere(source)
            newNicks[source] = nil
        case .nick: renamed(source, to: fold(line.text(0) ?? ""))
        default:
            guard line.key.numeric == 353, let room = line.text(2), let list = line.text(3) else { return }
            members.add(RoomMembers.nicks(in: list, fold), to: fold(room), besides: own)
        }
    }

    private mutating func left(_ nick: String, _ own: String, _ room: String) {
        if ExactText(nick) == ExactText(own) { return members.end(room) }
        members.remove(nick, from: room)
        // The connection no longer sees when another person takes the nick.
        if !members.isAnywhere(nick) { newNicks[nick] = nil }
    }

    private mutating func renamed(_ old: String, to new: String) {
        let known = knownName(old)
        newNicks[old] = nil
        newNicks[new] = nil
        if let known, members.isAnywhere(old), newNicks.count < Self.nickLimit { newNicks[new] = known }
        members.rename(old, to: new)
    }
}
