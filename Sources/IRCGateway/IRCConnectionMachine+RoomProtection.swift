// The protection of a sidecar's rooms on a server without a front gateway: notices about changes, and requests between
// members.
//
// On a bare server a room is sealed while all its members have keys. If a member without keys joins, each sidecar
// notifies its user in the room's window and refuses plaintext for ``RoomState/readingTime``; the first to send
// plaintext announces that to the room. The store remembers that a room was sealed, so that a restart skips none of
// this. The latch of a room rises only on request of a person (`pawl sidecar protect`): the decision is stored and
// audited, then sent to the other members as a signed request, which each user follows or not.

import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
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

    func state(of room: String, _ sidecar: SidecarConnection) -> RoomState {
        sidecar.exchange.rooms[room] ?? RoomState(isSealed: sidecar.peers.isSealed(room: room))
    }

    private func set(_ state: RoomState, of room: String, _ sidecar: SidecarConnection) {
        // The sealed rooms are in the store too, so the table can be emptied.
        if sidecar.exchange.rooms.count >= RoomMembers.roomLimit { sidecar.exchange.rooms = [:] }
        sidecar.exchange.rooms[room] = state
    }

    /// Stores whether a room is sealed, for connections after this one.
    private func store(isSealed: Bool, room: String, _ sidecar: SidecarConnection, _ out: MachineOutput) {
        guard sidecar.peers.setSealed(isSealed, room: room) else { return }
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
    func noteSealed(_ room: String, _ sidecar: SidecarConnection, _ out: MachineOutput) {
        guard sidecar.isOnBareServer else { return }
        store(isSealed: true, room: room, sidecar, out)
        guard sidecar.exchange.rooms[room]?.isSealed != true else { return }
        set(RoomState(isSealed: true), of: room, sidecar)
        let text = Notices.roomSealed(
            room, readers: sidecar.people.readers(in: room).count, isProtected: isProtected(room: room))
        notify(text, inRoom: room, out)
    }

    /// Checks whether a line about members makes a sealed room plaintext.
    func noteMembers(_ line: IRCLine, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard sidecar.isOnBareServer else { return }
        let rooms: [String]
        switch line.key {
        case .join where !isSelf(line): rooms = line.names(0)
        case .nick: rooms = sidecar.exchange.rooms.filter { $0.value.isSealed }.map { $0.key.text }.sorted()
        default:
            guard line.key.numeric == 366, let room = line.text(1) else { return }
            rooms = [room]
        }
        for room in rooms.map(support.caseMapping.fold) where !sidecar.people.others(in: room).isEmpty {
            notePlain(room, sidecar, now, out)
        }
    }

    /// Notifies the person if a sealed room is no longer sealed.
    private func notePlain(_ room: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard state(of: room, sidecar).isSealed, isMember(of: room), !isProtected(room: room), !policy.demandsDevices,
            !sidecar.people.isWhole(room)
        else { return }
        set(RoomState(isSealed: false, plainSince: now.monotonic), of: room, sidecar)
        notify(Notices.roomPlain(room, sidecar.people.withoutKeys(in: room).sorted().map(\.text)), inRoom: room, out)
    }

    /// Whether plaintext to a room is refused because the room has just stopped being sealed.
    ///
    /// The person may not have read the notice yet. All members are notified before the first plaintext line.
    func isTooEarly(
        _ message: OutboundMessage, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) -> Bool {
        guard sidecar.isOnBareServer, message.body.kind == .text, let room = room(message.target)?.name,
            isMember(of: room)
        else { return false }
        notePlain(room, sidecar, now, out)
        var state = state(of: room, sidecar)
        guard let since = state.plainSince else { return false }
        if !state.isAnnounced, !sidecar.people.others(in: room).isEmpty {
            let nicks = sidecar.people.withoutKeys(in: room).sorted().map(\.text)
            announce(Notices.plainAnnouncement(nicks), inRoom: room, withAnnouncement: true, now, out)
            state.isAnnounced = true
        }
        let isEarly = since + RoomState.readingTime > now.monotonic
        if !isEarly {
            state.plainSince = nil
            store(isSealed: false, room: room, sidecar, out)
        }
        set(state, of: room, sidecar)
        return isEarly
    }

    // MARK: People without a sidecar

    /// Sends the notices due before a message to a room is sealed.
    ///
    /// The person and the members without keys are notified. In a protected room new readers are asked to protect it.
    func beforeSealing(
        in room: String, _ written: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        notifyOfOutsiders(in: room, written, sidecar, out)
        guard sidecar.isOnBareServer else { return }
        let others = sidecar.people.withoutKeys(in: room)
        let known = sidecar.exchange.notified[room, default: []]
        if !others.isSubset(of: known) {
            sidecar.exchange.notified[room] = known.count < KeyExchange.nickLimit ? known.union(others) : others
            let nicks = others.subtracting(known).sorted().map(\.text)
            announce(Notices.sealedAnnouncement(nicks), inRoom: room, withAnnouncement: true, now, out)
        }
        guard isProtected(room: room) else { return }
        let readers = Set(sidecar.people.readers(in: room).map { ExactText($0.nick) })
        let asked = sidecar.exchange.requested[room, default: []]
        guard !readers.isSubset(of: asked) else { return }
        sidecar.exchange.requested[room] = asked.count < KeyExchange.nickLimit ? asked.union(readers) : readers
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
    func receiveNotice(
        _ line: IRCLine, _ raw: ByteBuffer, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        let text = line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? []
        let bare = receiveAnnouncement(line, text, verb: .notice, sidecar, now, out)
        pass(bare?.line ?? line, bare?.raw ?? raw, out)
        let source = line.folded(line.sourceNick, support.caseMapping)
        guard let room = line.text(0).flatMap(room)?.name, sidecar.people.isMember(source, of: room) else { return }
        let words = text.dropFirst(Armour.marker.count)
        if words.starts(with: Notices.plainAnnouncementStart.utf8) {
            sidecar.exchange.rooms[room]?.isAnnounced = true
        } else if words.starts(with: Notices.sealedAnnouncementStart.utf8) {
            sidecar.exchange.notified[room, default: []].formUnion(sidecar.people.withoutKeys(in: room))
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
    func roomAsked(
        _ job: RoomRequestJob, _ body: Body?, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        defer { job.done?(body != nil) }
        guard let body else { return }
        let readers = sidecar.people.readers(in: job.room).map(\.nick)
        if job.nicks == nil {
            sidecar.exchange.requested[job.room] = job.act == .protect ? Set(readers.map { ExactText($0) }) : []
            if sidecar.isOnBareServer { notePlain(job.room, sidecar, now, out) }
        }
        for nick in job.nicks ?? readers { control(body, to: nick, device: nil, sidecar, now, out) }
    }

    /// Shows the person a member's request. The vault has verified its signature.
    func asked(
        _ request: RoomRequest, by nick: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard isMember(of: request.room),
            sidecar.people.isMember(support.caseMapping.fold(nick), of: request.room)
        else { return }
        guard request.network == support.network ?? "" else {
            return notify(Notices.requestElsewhere(nick, request.room), inRoom: request.room, out)
        }
        guard isProtected(room: request.room) != (request.act == .protect) else { return }
        let key = "\(support.caseMapping.fold(nick)) \(request.act) \(request.room)"
        sidecar.exchange.shownRequests = sidecar.exchange.shownRequests.filter {
            $0.value + Self.requestPause > now.monotonic
        }
        guard sidecar.exchange.shownRequests[key] == nil, sidecar.exchange.shownRequests.count < KeyExchange.nickLimit
        else { return }
        sidecar.exchange.shownRequests[key] = now.monotonic
        notify(Notices.asks(nick, request.act, request.room), inRoom: request.room, out)
    }
}
