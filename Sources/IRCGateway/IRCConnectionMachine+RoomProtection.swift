// The protection of a sidecar's rooms on a server without a front gateway: notices about changes, and requests between
// members.
//
// On a bare server a room is sealed while all its members have keys. If a member without keys joins, each sidecar
// notifies its user in the room's window and refuses plaintext for ``RoomState/readingTime``; the first to send
// plaintext announces that to the room. The store remembers that a room was sealed, so that a restart skips none of
// this. The latch of a room rises only on request of a person (`pawl sidecar protect`): the decision is stored and
// audited, then sent to the other members as a signed request, which each user follows or not.

package import Devices
package import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
import StorePort
import Vault

/// The protection of a room as a connection last saw it.
package struct RoomState {
    /// Ours: how long plaintext to a room is refused after the notice that it is no longer encrypted, in nanoseconds.
    /// The person needs that time to read the notice.
    static let readingTime: Int64 = 5_000_000_000

    package var isSealed: Bool
    /// The time of the notice that the room is no longer sealed; nil once plaintext has been sent.
    var plainSince: Int64?
    /// Whether everybody in the room has been notified of that.
    var isAnnounced = false
}

extension IRCConnectionMachine {
    /// Ours: the pause before the same request of the same member is shown again, in nanoseconds.
    private static let requestPause: Int64 = 3_600_000_000_000

    /// Whether this is a sidecar without a gateway in front. A front gateway has rules of its own for rooms.
    private var isOnBareServer: Bool { environment.peers != nil && !hasFront }

    package func state(of room: String) -> RoomState {
        exchange.rooms[room] ?? RoomState(isSealed: environment.peers?.isSealed(room: room) == true)
    }

    private func set(_ state: RoomState, of room: String) {
        // The sealed rooms are in the store too, so the table can be emptied.
        if exchange.rooms.count >= RoomMembers.roomLimit { exchange.rooms = [:] }
        exchange.rooms[room] = state
    }

    /// Stores whether a room is sealed, for connections after this one.
    private func store(isSealed: Bool, room: String, _ out: MachineOutput) {
        guard environment.peers?.setSealed(isSealed, room: room) == true else { return }
        let name = OwnDeviceState.sealedRecord + room
        out.jobs.append(
            .record([
                isSealed
                    ? .putRecord(RecordRow(kind: .ownDevices, name: name, value: []))
                    : .removeRecord(.ownDevices, name: name)
            ]))
    }

    // MARK: Sealed and plain

    /// Notes that a room is sealed, after a sealed message was sent or received there. Notifies the person.
    func noteSealed(_ room: String, _ out: MachineOutput) {
        guard isOnBareServer else { return }
        store(isSealed: true, room: room, out)
        guard exchange.rooms[room]?.isSealed != true else { return }
        set(RoomState(isSealed: true), of: room)
        let text = Notices.roomSealed(room, readers: readers(in: room).count, isProtected: isProtected(room: room))
        notify(text, inRoom: room, out)
    }

    /// Checks whether a line about members makes a sealed room plaintext.
    func noteMembers(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        guard isOnBareServer else { return }
        let rooms: [String]
        switch line.key {
        case .join where !isSelf(line): rooms = line.parameter(0).map { names(line, $0) } ?? []
        case .nick: rooms = exchange.rooms.filter { $0.value.isSealed }.map { $0.key.text }.sorted()
        default:
            guard line.key.numeric == 366, let room = line.text(1) else { return }
            rooms = [room]
        }
        for room in rooms.map(support.caseMapping.fold) where !roomMembers.others(in: room).isEmpty {
            notePlain(room, now, out)
        }
    }

    /// Notifies the person if a sealed room is no longer sealed.
    private func notePlain(_ room: String, _ now: Timestamp, _ out: MachineOutput) {
        guard state(of: room).isSealed, isMember(of: room), !isProtected(room: room), !policy.demandsDevices,
            !isWhole(room)
        else { return }
        set(RoomState(isSealed: false, plainSince: now.monotonic), of: room)
        notify(Notices.roomPlain(room, withoutKeys(in: room).sorted().map(\.text)), inRoom: room, out)
    }

    /// Whether plaintext to a room is refused because the room has just stopped being sealed.
    ///
    /// The person may not have read the notice yet. All members are notified before the first plaintext line.
    func isTooEarly(_ message: OutboundMessage, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard isOnBareServer, message.body.kind == .text, let room = room(message.target)?.name, isMember(of: room)
        else { return false }
        notePlain(room, now, out)
        var state = state(of: room)
        guard let since = state.plainSince else { return false }
        if !state.isAnnounced, !roomMembers.others(in: room).isEmpty {
            let nicks = withoutKeys(in: room).sorted().map(\.text)
            announce(Notices.plainAnnouncement(nicks), inRoom: room, withAnnouncement: true, now, out)
            state.isAnnounced = true
        }
        let isEarly = since + RoomState.readingTime > now.monotonic
        if !isEarly {
            state.plainSince = nil
            store(isSealed: false, room: room, out)
        }
        set(state, of: room)
        return isEarly
    }

    // MARK: People without a sidecar

    /// Sends the notices due before a message to a room is sealed.
    ///
    /// The person and the members without keys are notified. In a protected room new readers are asked to protect it.
    func beforeSealing(in room: String, _ written: String, _ now: Timestamp, _ out: MachineOutput) {
        notifyOfOutsiders(in: room, written, out)
        guard isOnBareServer else { return }
        let others = withoutKeys(in: room)
        let known = exchange.notified[room, default: []]
        if !others.isSubset(of: known) {
            exchange.notified[room] = known.count < KeyExchange.nickLimit ? known.union(others) : others
            let nicks = others.subtracting(known).sorted().map(\.text)
            announce(Notices.sealedAnnouncement(nicks), inRoom: room, withAnnouncement: true, now, out)
        }
        guard isProtected(room: room) else { return }
        let readers = Set(readers(in: room).map { ExactText($0.nick) })
        let asked = exchange.requested[room, default: []]
        guard !readers.isSubset(of: asked) else { return }
        exchange.requested[room] = asked.count < KeyExchange.nickLimit ? asked.union(readers) : readers
        var job = RoomRequestJob(connection: id, act: .protect, room: room)
        job.network = support.network ?? ""
        job.nicks = readers.subtracting(asked).sorted().map(\.text)
        out.jobs.append(.askRoom(job))
    }

    /// Sends an announcement to a room.
    ///
    /// - Parameter withHello: whether to announce this sidecar. Sidecars of new members answer with their keys.
    private func announce(
        _ text: String, inRoom room: String, withAnnouncement: Bool, _ now: Timestamp, _ out: MachineOutput
    ) {
        let hasTags = capabilities.has("message-tags")
        let marker = hasTags || !withAnnouncement ? [] : Announcement.marker
        let capacity = lineCapacity(verb: "NOTICE", target: room) - Armour.marker.count - marker.count
        var line = ByteBuffer()
        if hasTags, withAnnouncement { line.writeTags([IRCTag(key: Announcement.tag, value: "")]) }
        line.writeString("NOTICE \(room) :")
        line.writeBytes(Armour.marker)
        line.writeBytes(text.utf8.prefix(max(capacity, 0)))
        line.writeBytes(marker)
        line.writeString("\r\n")
        forward(line, now, out)
    }

    /// Handles an announcement of another sidecar or gateway: shows it, and does not repeat it.
    func receiveNotice(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        let text = line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? []
        let bare = receiveAnnouncement(line, text, verb: .notice, now, out)
        pass(bare?.line ?? line, bare?.raw ?? raw, out)
        let source = line.folded(line.sourceNick, support.caseMapping)
        guard let room = line.text(0).flatMap(room)?.name, roomMembers.contains(source, in: room) else { return }
        let words = text.dropFirst(Armour.marker.count)
        if words.starts(with: Notices.plainAnnouncementStart.utf8) {
            exchange.rooms[room]?.isAnnounced = true
        } else if words.starts(with: Notices.sealedAnnouncementStart.utf8) {
            exchange.notified[room, default: []].formUnion(withoutKeys(in: room))
        }
    }

    // MARK: Requests

    /// Sends the person's decision about a room to the vault.
    package func askRoom(_ job: RoomRequestJob, _ out: MachineOutput) {
        var job = job
        job.network = support.network ?? ""
        out.jobs.append(.askRoom(job))
    }

    /// The decision is stored: sends it to the other readers of the room.
    package func roomAsked(_ job: RoomRequestJob, _ body: Body?, _ now: Timestamp, _ out: MachineOutput) {
        defer { job.done?(body != nil) }
        guard let body else { return }
        let readers = readers(in: job.room).map(\.nick)
        if job.nicks == nil {
            exchange.requested[job.room] = job.act == .protect ? Set(readers.map { ExactText($0) }) : []
            if isOnBareServer { notePlain(job.room, now, out) }
        }
        for nick in job.nicks ?? readers { control(body, to: nick, device: nil, now, out) }
    }

    /// Shows the person a member's request. The vault has verified its signature.
    package func asked(_ request: RoomRequest, by nick: String, _ now: Timestamp, _ out: MachineOutput) {
        guard isMember(of: request.room), roomMembers.contains(support.caseMapping.fold(nick), in: request.room) else {
            return
        }
        guard request.network == support.network ?? "" else {
            return notify(Notices.requestElsewhere(nick, request.room), inRoom: request.room, out)
        }
        guard isProtected(room: request.room) != (request.act == .protect) else { return }
        let key = "\(support.caseMapping.fold(nick)) \(request.act) \(request.room)"
        exchange.shownRequests = exchange.shownRequests.filter { $0.value + Self.requestPause > now.monotonic }
        guard exchange.shownRequests[key] == nil, exchange.shownRequests.count < KeyExchange.nickLimit else { return }
        exchange.shownRequests[key] = now.monotonic
        notify(Notices.asks(nick, request.act, request.room), inRoom: request.room, out)
    }
}
