// Rooms whose members hold their own keys: a message is sealed once under the sender's key, which each reader has
// received in a direct message.
//
// The key is sent, before the message, to each device that does not have it. After a reader has left, a new key is
// made.
// The message with the new key has the number of messages under earlier keys, so that losses at a server split are
// reported although the key has changed.

import CommitLoop
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    // MARK: Sending

    /// The requests to send before a message: for a room, its key for readers without it; else a changed device list.
    mutating func distributions(
        _ job: SealJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [Request] {
        guard let room = job.recipient.roomName else { return try news(job, own, now, &unit) }
        let readers = try readers(of: job.members, own)
        let all = Set(readers.flatMap(\.devices))
        let key = own.roomKey(for: room, readers: all, random: &vault.random)
        var requests: [Request] = []
        for (member, devices) in readers {
            guard let message = own.distribution(of: key, room: room, to: devices) else { continue }
            let controlJob = SealJob(
                connection: job.connection, ticket: job.ticket, sender: job.sender, recipient: member.account,
                target: member.nick, senderName: job.senderName, recipientName: member.nick, verb: "NOTICE",
                body: message.body, capacity: member.capacity)
            let envelope = try deviceEnvelope(controlJob, MessageID(requestIDs.next(in: .only, at: now)), own, &unit)
            requests.append(try insert(envelope, controlJob, now, &unit))
        }
        own.give(to: all, in: room)
        return requests
    }

    /// The members that the key can be sent to, with those of their devices that have a session.
    private mutating func readers(
        of members: [SealJob.Member], _ own: OwnDevice
    ) throws -> [(member: SealJob.Member, devices: [DeviceID])] {
        var readers: [(SealJob.Member, [DeviceID])] = []
        for member in members {
            var found: [DeviceID] = []
            for listed in own.devices(of: member.account) {
                if try own.sessions(with: listed.id, in: vault)?.sessions.peerIdentity == listed.identity {
                    found.append(listed.id)
                }
            }
            if !found.isEmpty { readers.append((member, found)) }
        }
        return readers
    }

    mutating func roomEnvelope(
        _ job: SealJob, _ room: String, _ id: MessageID, _ own: OwnDevice, _ unit: inout Unit
    ) throws -> Envelope {
        let all = Set(try readers(of: job.members, own).flatMap(\.devices))
        let key = own.roomKey(for: room, readers: all, random: &vault.random)
        let body = try padded(job.body, besides: SenderKeyMessage.overhead, capacity: job.capacity)
        let associated = OwnDevice.associatedData(from: own.id, to: DeviceID(0), room: job.recipient, id, vault)
        var message: [UInt8] = []
        try key.key.encrypt(body.span, associatedData: associated.span, into: &message)
        unit.changes.append(try own.row(of: key, room: room, random: &vault.random))
        return Envelope(kind: .room, sender: own.id, messageID: id, ratchetMessage: message)
    }

    // MARK: Requests to the other members of a room

    /// Signs a request to the other members of a room. The person's own decision also changes the room's latch.
    mutating func ask(
        _ job: RoomRequestJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) {
        let request = own.request(job.act, room: job.room, network: job.network, now, &unit.changes)
        if job.nicks == nil {
            let room = AccountID.room(job.room)
            switch job.act {
            case .protect: _ = latch(room, custody, now, &unit)
            case .plain:
                let conversation = ConversationID(room, room)
                if vault.noteUnlatched(conversation) { lowered(conversation, &unit) }
                unit.changes.append(.removeConversation(ConversationID(room, room)))
            }
            let row = AuditRow(at: now.wall, actor: "operator", action: "sidecar", detail: "\(job.act) \(job.room)")
            unit.changes.append(.audit(row))
        }
        unit.reply = (job.connection, .sidecar(.roomAsked(job, ControlMessage.roomRequest(request).body)))
    }

    // MARK: Receiving

    mutating func openedInRoom(
        _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        guard let recipient = job.recipients.first, let room = recipient.roomName else {
            throw OpenError(reason: .notAuthentic)
        }
        try own.check(job.source, of: envelope.sender)
        let sender = try own.owner(of: envelope, from: job.source)
        let associated = OwnDevice.associatedData(
            from: envelope.sender, to: DeviceID(0), room: recipient, envelope.messageID, vault)
        let (plaintext, skipped) = try own.open(
            envelope, associated, in: room, random: &vault.random, &unit.changes)
        var body = try Body(plaintext)
        guard body.kind != .control else { throw OpenError(reason: .malformed) }
        var opened = try shown(job, envelope, sender, &body, skipped, own, now, &unit)
        if job.latchesRoom, raise(room: room, now, &unit), opened.event == nil {
            opened.event = .roomProtected(room)
        }
        return opened
    }

    /// Raises the latch of a room in which a message was received end to end, behind a gateway in front.
    ///
    /// - Returns: whether it was down.
    private mutating func raise(
        room: String, _ now: Timestamp, _ unit: inout Unit
    ) -> Bool {
        let account = AccountID.room(room)
        guard vault.noteLatched(ConversationID(account, account)) else { return false }
        latch(
            .init(
                conversation: ConversationID(account, account), account: account, peer: account, peerName: "",
                accountName: "", protection: .device), now, &unit)
        return true
    }
}
