// Rooms whose members hold their own keys: a message is sealed once under the sender's key, which each reader has
// received in a direct message.
//
// The key is sent, before the message, to each device that does not have it. After a reader has left, a new key is
// made.
// The message with the new key has the number of messages under earlier keys, so that losses at a server split are
// reported although the key has changed.

import CommitLoop
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
        _ job: SealJob, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [Request] {
        guard let room = job.recipient.roomName else { return try news(job, now, &unit) }
        let readers = try readers(of: job.members)
        let all = Set(readers.flatMap(\.devices))
        guard let key = devices?.roomKeys.key(for: room, readers: all, random: &vault.sessionCache.random) else {
            return []
        }
        var requests: [Request] = []
        let before = devices?.roomKeys.readers(in: room) ?? []
        for (member, owned) in readers where !Set(owned).isSubset(of: before) {
            let message = ControlMessage.senderKey(
                room: room, key.key.distribution, ended: devices?.roomKeys.ended(for: owned, in: room) ?? [])
            let controlJob = SealJob(
                connection: job.connection, ticket: job.ticket, sender: job.sender, recipient: member.account,
                target: member.nick, senderName: job.senderName, recipientName: member.nick, verb: "NOTICE",
                body: message.body, capacity: member.capacity)
            let envelope = try deviceEnvelope(controlJob, MessageID(requestIDs.next(in: .only, at: now)), &unit)
            requests.append(try insert(envelope, controlJob, now, &unit))
        }
        devices?.roomKeys.give(to: all, in: room)
        return requests
    }

    /// The members that the key can be sent to, with those of their devices that have a session.
    private mutating func readers(
        of members: [SealJob.Member]
    ) throws -> [(member: SealJob.Member, devices: [DeviceID])] {
        var readers: [(SealJob.Member, [DeviceID])] = []
        for member in members {
            guard let peer = devices?.peers[member.account], peer.offered == nil else { continue }
            var found: [DeviceID] = []
            for listed in peer.deviceList.current {
                if let id = session(with: listed.id),
                    try peerSession(id)?.sessions.peerIdentity == listed.identity
                {
                    found.append(listed.id)
                }
            }
            if !found.isEmpty { readers.append((member, found)) }
        }
        return readers
    }

    mutating func roomEnvelope(
        _ job: SealJob, _ room: String, _ id: MessageID, _ unit: inout Unit
    ) throws -> Envelope {
        guard let own = devices?.device.id else { throw SealRefusal.keysMissing }
        let all = Set(try readers(of: job.members).flatMap(\.devices))
        guard let key = devices?.roomKeys.key(for: room, readers: all, random: &vault.sessionCache.random) else {
            throw SealRefusal.keysMissing
        }
        let body = try padded(job.body, besides: SenderKeyMessage.overhead, capacity: job.capacity)
        let associated = associatedData(from: own, to: DeviceID(0), room: job.recipient, id)
        var message: [UInt8] = []
        try key.key.encrypt(body.span, associatedData: associated.span, into: &message)
        if let row = try devices?.roomKeys.row(own: key, room: room, random: &vault.sessionCache.random) {
            unit.changes.append(row)
        }
        return Envelope(kind: .room, sender: own, messageID: id, ratchetMessage: message)
    }

    // MARK: Requests to the other members of a room

    /// Signs a request to the other members of a room. The person's own decision also changes the room's latch.
    mutating func ask(
        _ job: RoomRequestJob, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (job.connection, .sidecar(.roomAsked(job, nil)))
        unit.reply = unit.failure
        guard let own = devices?.device, let number = devices?.nextRequest(now, &unit.changes) else { return }
        if job.nicks == nil {
            let room = AccountID.room(job.room)
            switch job.act {
            case .protect: _ = latch(room, custody, now, &unit)
            case .plain:
                let conversation = ConversationID(room, room)
                if vault.conversations.remove(conversation) != nil { lowered(conversation, &unit) }
                unit.changes.append(.removeConversation(ConversationID(room, room)))
            }
            let row = AuditRow(at: now.wall, actor: "operator", action: "sidecar", detail: "\(job.act) \(job.room)")
            unit.changes.append(.audit(row))
        }
        let request = RoomRequest(
            act: job.act, number: number, room: job.room, network: job.network, device: own.id, identity: own.identity)
        unit.reply = (job.connection, .sidecar(.roomAsked(job, ControlMessage.roomRequest(request).body)))
    }

    // MARK: Receiving

    mutating func take(
        _ distribution: SenderKeyDistribution, of sender: DeviceID, in room: String,
        _ unit: inout Unit
    ) {
        guard devices?.roomKeys.take(distribution, from: sender, in: room) == true else { return }
        if let row = try? devices?.roomKeys.row(from: sender, in: room, random: &vault.sessionCache.random) {
            unit.changes.append(row)
        }
    }

    mutating func openedInRoom(
        _ job: OpenJob, _ envelope: Envelope, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        guard let recipient = job.recipients.first, let room = recipient.roomName else {
            throw OpenError(reason: .notAuthentic)
        }
        try checkSource(job, envelope.sender)
        let sender = try owner(envelope, job)
        let associated = associatedData(
            from: envelope.sender, to: DeviceID(0), room: recipient, envelope.messageID)
        let (plaintext, skipped) = try decrypt(envelope, associated, room)
        openedRoomKey = room
        if let row = try devices?.roomKeys.row(from: envelope.sender, in: room, random: &vault.sessionCache.random) {
            unit.changes.append(row)
        }
        var body = try Body(plaintext)
        guard body.kind != .control else { throw OpenError(reason: .malformed) }
        var opened = try shown(job, envelope, sender, &body, skipped, now, &unit)
        if job.latchesRoom, raise(room: room, now, &unit), opened.event == nil {
            opened.event = .roomProtected(room)
        }
        return opened
    }

    private func decrypt(_ envelope: Envelope, _ associated: [UInt8], _ room: String) throws -> ([UInt8], Int) {
        var reason = OpenFailure.keyMissing
        for key in devices?.roomKeys.received(from: envelope.sender, in: room) ?? [] {
            var plaintext: [UInt8] = []
            do throws(RatchetError) {
                let received = try key.receiver.decrypt(
                    envelope.ratchetMessage.span, associatedData: associated.span, into: &plaintext)
                return (plaintext, received.skipped)
            } catch {
                switch error {
                case .unknownSenderKey: continue
                case .duplicate: throw OpenError(reason: .copy)
                case .tooFarAhead: reason = .tooFarAhead
                case .beforeDistribution: reason = .beforeJoining
                case .malformed, .unsupportedVersion: reason = .malformed
                default: reason = .notAuthentic
                }
            }
        }
        throw OpenError(reason: reason)
    }

    /// Raises the latch of a room in which a message was received end to end, behind a gateway in front.
    ///
    /// - Returns: whether it was down.
    private mutating func raise(
        room: String, _ now: Timestamp, _ unit: inout Unit
    ) -> Bool {
        let account = AccountID.room(room)
        guard vault.conversations.insert(ConversationID(account, account)).inserted else { return false }
        latch(
            .init(
                conversation: ConversationID(account, account), account: account, peer: account, peerName: "",
                accountName: "", protection: .device), now, &unit)
        return true
    }
}
