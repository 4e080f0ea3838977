// The machine of a sidecar's rooms: which are sealed, which have just become plaintext, and which notices and requests
// are due.
//
// On a bare server a room is sealed while all its members have keys. If a member without keys joins, each sidecar
// notifies its user in the room's window and refuses plaintext for ``RoomProtection/readingTime``; the first to send
// plaintext announces that to the room. The store remembers that a room was sealed, so that a restart skips none of
// this. The latch of a room rises only on request of a person (`pawl sidecar protect`): the decision is stored and
// audited, then sent to the other members as a signed request, which each user follows or not.
//
// The machine knows no lines: the connection reports events with the people it sees, and performs the actions.

import Devices
import Envelope
import Protection
import Reports
import RequestQueue

/// The protection of the rooms of one connection. All names are folded.
struct RoomProtection {
    /// What the connection does next.
    enum Action: Equatable {
        /// Notify the person in the room's window.
        case notify(String, room: String)
        /// Send a notice to the room, with the announcement of this sidecar: sidecars of new members send their keys.
        case announce(String, room: String)
        /// Store whether the room is sealed, for connections after this one.
        case store(isSealed: Bool, room: String)
        /// Have the vault sign the request to protect a room, for these members.
        case requestProtection(room: String, nicks: [String])
    }

    /// A room as this connection last saw it.
    private enum State {
        case sealed
        /// A member has no keys. The person and the members are notified before the first plaintext.
        case justPlain(since: Int64, isAnnounced: Bool)
        case plain
    }

    /// Ours: how long plaintext to a room is refused after the notice that it is no longer encrypted, in nanoseconds.
    /// The person needs that time to read the notice.
    static let readingTime: Int64 = 5_000_000_000
    /// Ours: the pause before the same request of the same member is shown again, in nanoseconds.
    static let requestPause: Int64 = 3_600_000_000_000

    private let peers: PeerCache
    private let latches: LatchTable
    private var states: [ExactText: State] = [:]
    /// Members of sealed rooms who cannot read them, as last shown to the person.
    private var outsiders: [ExactText: Set<ExactText>] = [:]
    /// People without keys in sealed rooms who have received the announcement of a sidecar.
    private var notified: [ExactText: Set<ExactText>] = [:]
    /// Readers in protected rooms to whom this connection has sent the request to protect the room too.
    private var requested: [ExactText: Set<ExactText>] = [:]
    /// The times at which requests about rooms were last shown, by nick, act and room.
    private var shownRequests: [ExactText: Int64] = [:]

    init(_ peers: PeerCache, _ latches: LatchTable) { (self.peers, self.latches) = (peers, latches) }

    /// Whether this connection has sent or received a sealed message in a room that has not become plaintext since.
    func isSealed(_ room: String) -> Bool {
        if case .sealed = states[room] { true } else { false }
    }

    /// The same, by the store if this connection has seen neither.
    func wasSealed(_ room: String) -> Bool { states[room] == nil ? peers.isSealed(room: room) : isSealed(room) }

    /// Whether the latch of a room is up.
    func isProtected(_ room: String) -> Bool { latches.latch(of: .ofRoom(room)) > .plaintext }

    private mutating func set(_ state: State, of room: String) {
        // The sealed rooms are in the store too, so the table can be emptied.
        if states.count >= RoomMembers.roomLimit { states = [:] }
        states[room] = state
    }

    // MARK: Sealed and plain

    /// A sealed message was sent or received in a room.
    mutating func noteSealed(_ room: String, _ people: SidecarPeople) -> [Action] {
        let store = Action.store(isSealed: true, room: room)
        guard !isSealed(room) else { return [store] }
        set(.sealed, of: room)
        let text = Notices.roomSealed(
            room, readers: people.readers(in: room).count, isProtected: isProtected(room))
        return [store, .notify(text, room: room)]
    }

    /// The members of a room have changed, or the request to protect it was withdrawn: it may be plaintext now.
    mutating func check(_ room: String, _ people: SidecarPeople, now: Int64) -> [Action] {
        guard wasSealed(room), !isProtected(room), !people.isWhole(room) else { return [] }
        set(.justPlain(since: now, isAnnounced: false), of: room)
        return [.notify(Notices.roomPlain(room, people.namesWithoutKeys(in: room)), room: room)]
    }

    /// The person sends plaintext to a room.
    ///
    /// The person may not have read the notice yet. All members are notified before the first plaintext line.
    ///
    /// - Returns: whether it is too early for that, and what to do.
    mutating func plaintext(
        to room: String, _ people: SidecarPeople, now: Int64
    ) -> (isEarly: Bool, actions: [Action]) {
        guard case .justPlain(let since, let isAnnounced) = states[room] else { return (false, []) }
        var actions: [Action] = []
        let isDue = !isAnnounced && !people.others(in: room).isEmpty
        if isDue {
            actions.append(.announce(Notices.plainAnnouncement(people.namesWithoutKeys(in: room)), room: room))
        }
        let isEarly = since + Self.readingTime > now
        if isEarly {
            set(.justPlain(since: since, isAnnounced: isAnnounced || isDue), of: room)
        } else {
            set(.plain, of: room)
            actions.append(.store(isSealed: false, room: room))
        }
        return (isEarly, actions)
    }

    // MARK: People without a sidecar

    /// Sends the notices due before a message to a room is sealed.
    ///
    /// The person and the members without keys are notified. In a protected room new readers are asked to protect it.
    ///
    /// - Parameters:
    ///   - written: the room as the person wrote it.
    ///   - isOnBareServer: false behind a gateway, whose rules for rooms are its own.
    mutating func beforeSealing(
        in room: String, written: String, isOnBareServer: Bool, _ people: SidecarPeople
    ) -> [Action] {
        let readers = Set(people.readers(in: room).map { ExactText($0.nick) })
        var actions = noteOutsiders(people.others(in: room).subtracting(readers), in: room, written)
        guard isOnBareServer else { return actions }
        let others = people.withoutKeys(in: room)
        let known = notified[room, default: []]
        if !others.isSubset(of: known) {
            notified[room] = known.count < SidecarPeople.nickLimit ? known.union(others) : others
            let nicks = others.subtracting(known).sorted().map(\.text)
            actions.append(.announce(Notices.sealedAnnouncement(nicks), room: room))
        }
        guard isProtected(room) else { return actions }
        let asked = requested[room, default: []]
        guard !readers.isSubset(of: asked) else { return actions }
        requested[room] = asked.count < SidecarPeople.nickLimit ? asked.union(readers) : readers
        return actions + [.requestProtection(room: room, nicks: readers.subtracting(asked).sorted().map(\.text))]
    }

    /// Notifies the person which members of a sealed room cannot read it, if that has changed.
    private mutating func noteOutsiders(_ now: Set<ExactText>, in room: String, _ written: String) -> [Action] {
        guard outsiders[room, default: []] != now else { return [] }
        outsiders[room] = now
        guard !now.isEmpty else { return [] }
        let nicks = now.sorted().map(\.text)
        return [.notify(Notices.roomOutsiders(written, nicks, isProtected: isProtected(room)), room: room)]
    }

    /// Another sidecar has sent a notice to a room: this one does not repeat it.
    ///
    /// - Parameter text: without the marker of envelopes.
    mutating func received(notice text: some Collection<UInt8>, in room: String, _ people: SidecarPeople) {
        if text.starts(with: Notices.plainAnnouncementStart.utf8) {
            guard case .justPlain(let since, _) = states[room] else { return }
            states[room] = .justPlain(since: since, isAnnounced: true)
        } else if text.starts(with: Notices.sealedAnnouncementStart.utf8) {
            notified[room, default: []].formUnion(people.withoutKeys(in: room))
        }
    }

    // MARK: Requests

    /// The person has decided about a room, and the decision is sent to these readers.
    mutating func decided(_ act: RoomRequest.Act, _ room: String, readers: [String]) {
        requested[room] = act == .protect ? Set(readers.map { ExactText($0) }) : []
    }

    /// A member has sent a request about a room. The vault has verified its signature.
    ///
    /// - Parameter network: the server's name for its network; empty if unknown.
    mutating func received(_ request: RoomRequest, by nick: Nick, network: String, now: Int64) -> [Action] {
        let room = request.room
        guard request.network == network else {
            return [.notify(Notices.requestElsewhere(nick.written, room), room: room)]
        }
        guard isProtected(room) != (request.act == .protect) else { return [] }
        let key = "\(nick.folded) \(request.act) \(room)"
        shownRequests = shownRequests.filter { $0.value + Self.requestPause > now }
        guard shownRequests[key] == nil, shownRequests.count < SidecarPeople.nickLimit else { return [] }
        shownRequests[key] = now
        return [.notify(Notices.asks(nick.written, request.act, room), room: room)]
    }
}
