// A sidecar's connection and the protection of its rooms: reports lines and messages to ``RoomProtection``, and performs
// its actions.

import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCConnectionMachine {
    private func perform(
        _ actions: [RoomProtection.Action], _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        for action in actions {
            switch action {
            case .notify(let text, let room):
                // The first own message needs no other notice.
                if sidecar.ownLines.last(room) == nil { sidecar.ownLines.note(.sealed, room) }
                notify(text, inRoom: room, out)
            case .announce(let text, let room): announce(text, inRoom: room, now, out)
            case .store(let isSealed, let room):
                guard sidecar.peers.setSealed(isSealed, room: room) else { break }  // Stored already.
                let name = OwnDeviceState.sealedRecord + room
                out.jobs.append(
                    .record([
                        isSealed
                            ? .putRecord(RecordRow(kind: .ownDevices, name: name, value: []))
                            : .removeRecord(.ownDevices, name: name)
                    ]))
            case .requestProtection(let room, let nicks):
                var job = RoomRequestJob(connection: id, act: .protect, room: room)
                job.nicks = nicks
                askRoom(job, out)
            }
        }
    }

    /// Sends an announcement to a room, with the announcement of this sidecar.
    private func announce(_ text: String, inRoom room: String, _ now: Timestamp, _ out: MachineOutput) {
        let hasTags = capabilities.has("message-tags")
        let marker = hasTags ? [] : Announcement.marker
        let capacity = lineCapacity(verb: "NOTICE", target: room) - Armour.marker.count - marker.count
        var line = ByteBuffer()
        if hasTags { line.writeTags([IRCTag(key: Announcement.tag, value: "")]) }
        line.writeString("NOTICE \(room) :")
        line.writeBytes(Armour.marker)
        line.writeBytes(text.utf8.prefix(max(capacity, 0)))
        line.writeBytes(marker)
        line.writeString("\r\n")
        forward(line, now, out)
    }

    // MARK: Members

    /// Follows the people and members in a line, and requests the keys of new ones.
    func follow(_ line: IRCLine, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        sidecar.people.learn(line, own: foldedNick, tagsAccounts: capabilities.has("account-tag"), support)
        let rooms: [String]
        if line.sourceIsPerson, !isSelf(line), line.key == .join || line.key.isText {
            dismissRemovedDevices([line.string(line.sourceNick)], sidecar, now, out)
        }
        if line.key == .join {
            rooms = line.names(0).map(support.caseMapping.fold)
            // The new member may have a sidecar.
            for room in rooms { sidecar.exchange.memberJoined(room) }
        } else if line.key.numeric == 366 {
            rooms = line.text(1).map { [support.caseMapping.fold($0)] } ?? []
            let members = rooms.flatMap { sidecar.people.others(in: $0).sorted().map(\.text) }
            dismissRemovedDevices(members, sidecar, now, out)
        } else {
            return
        }
        askForMembers(of: rooms, sidecar, now, out)
    }

    /// Checks whether a line about members makes a sealed room plaintext.
    func noteMembers(_ line: IRCLine, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard sidecar.isOnBareServer else { return }
        let rooms: [String]
        switch line.key {
        case .join where !isSelf(line): rooms = line.names(0).map(support.caseMapping.fold)
        case .nick: rooms = line.text(0).map { sidecar.people.rooms(of: support.caseMapping.fold($0)) } ?? []
        default:
            guard line.key.numeric == 366, let room = line.text(1) else { return }
            rooms = [support.caseMapping.fold(room)]
        }
        for room in rooms where !sidecar.people.others(in: room).isEmpty { checkRoom(room, sidecar, now, out) }
    }

    /// Notifies the person if a sealed room is no longer sealed.
    private func checkRoom(_ room: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard isMember(of: room), !policy.demandsDevices else { return }
        perform(sidecar.protection.check(room, sidecar.people, now: now.monotonic), sidecar, now, out)
    }

    /// The members of a room that can receive its key.
    func readers(in room: String, _ sidecar: SidecarConnection) -> [SealJob.Member] {
        sidecar.people.readers(in: room).map { reader in
            SealJob.Member(
                account: reader.account, nick: reader.nick,
                capacity: lineCapacity(verb: "NOTICE", target: reader.nick))
        }
    }

    // MARK: Messages

    /// The state of a room, for the judgement of messages to it.
    func sidecarRoom(_ name: String, _ sidecar: SidecarConnection) -> SidecarRoom {
        SidecarRoom(
            isMember: isMember(of: name), isWhole: sidecar.people.isWhole(name),
            wasSealed: sidecar.protection.wasSealed(name))
    }

    /// A sealed message was sent or received in a room.
    func noteSealed(_ room: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard sidecar.isOnBareServer else { return }
        perform(sidecar.protection.noteSealed(room, sidecar.people), sidecar, now, out)
    }

    /// Sends the notices due before a message to a room is sealed.
    func beforeSealing(
        in room: String, _ written: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        let actions = sidecar.protection.beforeSealing(
            in: room, written: written, isOnBareServer: sidecar.isOnBareServer, sidecar.people)
        perform(actions, sidecar, now, out)
    }

    /// Whether plaintext to a room is refused because the room has just stopped being sealed.
    func isTooEarly(
        _ message: OutboundMessage, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) -> Bool {
        guard sidecar.isOnBareServer, message.body.isText, let room = room(message.target)?.name,
            isMember(of: room)
        else { return false }
        checkRoom(room, sidecar, now, out)
        let outcome = sidecar.protection.plaintext(to: room, sidecar.people, now: now.monotonic)
        perform(outcome.actions, sidecar, now, out)
        return outcome.isEarly
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
        sidecar.protection.received(notice: text.dropFirst(Armour.marker.count), in: room, sidecar.people)
    }

    // MARK: Requests

    /// Sends the person's decision about a room, or a request for new members, to the vault.
    func askRoom(_ job: RoomRequestJob, _ out: MachineOutput) {
        var job = job
        job.network = support.network ?? ""
        out.jobs.append(.sidecar(.askRoom(job)))
    }

    /// The decision is stored: sends it to the other readers of the room.
    func roomAsked(
        _ job: RoomRequestJob, _ body: Body?, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        defer { job.done?(body != nil) }
        guard let body else { return }
        let readers = sidecar.people.readers(in: job.room).map(\.nick)
        if job.nicks == nil {
            sidecar.protection.decided(job.act, job.room, readers: readers)
            if sidecar.isOnBareServer { checkRoom(job.room, sidecar, now, out) }
        }
        for nick in job.nicks ?? readers { control(body, to: nick, device: nil, sidecar, now, out) }
    }

    /// Shows the person a member's request. The vault has verified its signature.
    func received(
        _ request: RoomRequest, by nick: Nick, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        // A request about a room that the person or the sender has left is of no use to the person.
        guard isMember(of: request.room), sidecar.people.isMember(nick.folded, of: request.room) else { return }
        let actions = sidecar.protection.received(
            request, by: nick, network: support.network ?? "", now: now.monotonic)
        perform(actions, sidecar, now, out)
    }

    // MARK: Reports

    /// The reports of all rooms of this connection, sorted by name.
    func roomReports(_ sidecar: SidecarConnection) -> [RoomReport] {
        sidecar.people.rooms.map { name in
            let others = sidecar.people.others(in: name)
            let readers = Set(sidecar.people.readers(in: name).map { ExactText($0.nick) })
            let verdict = judgement.outbound(
                .text, from: Sender(account, .sidecar), to: .sidecarRoom(.room(name), sidecarRoom(name, sidecar)))
            let isSealed = if case .seal = verdict { true } else { false }
            return RoomReport(
                name: name,
                protection: isSealed ? "end-to-end" : sidecar.isOnBareServer ? "plaintext" : "gateway in front",
                isProtected: sidecar.protection.isProtected(name),
                others: others.count, readers: readers.count,
                outsiders: others.subtracting(readers).sorted().prefix(20).map(\.text))
        }
    }
}
