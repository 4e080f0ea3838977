// Messages of a room that a backend plays back: readable for members who were in the room when they were sent, and for
// no others. `RoomTable` counts before and after, in the order in which connections joined rooms.
//
// A message counts as sent when its sender's acknowledgement or its first reader's line arrives, whichever is first.

import CommitLoop
import Devices
import Envelope
import Protection
import RequestQueue
import StorePort
import Vault

/// When messages to rooms that are no longer in flight were sent at the latest, by id.
package struct RelayTimes: Sendable {
    /// Ours: messages remembered. An older one is not shown to a connection that receives it for the first time.
    package static let limit = 4096

    private var times: [UInt64: UInt64] = [:]
    private var order: [UInt64] = []

    subscript(request: UInt64) -> UInt64? { times[request] }

    mutating func note(_ request: UInt64, _ time: UInt64) {
        guard times.updateValue(time, forKey: request) == nil else { return }
        order.append(request)
        guard order.count >= Self.limit * 2 else { return }
        for old in order.prefix(Self.limit) { times[old] = nil }
        order.removeFirst(Self.limit)
    }
}

extension Request {
    var isForRoom: Bool { AccountID(text: peer).roomName != nil }
}

extension IRCParticipants {
    /// The result for an envelope to a room that was opened before, or that was sent before its reader joined.
    ///
    /// The session is not used. Nil if the envelope has to be opened.
    mutating func known(
        _ job: OpenJob, _ envelope: Envelope, _ now: Timestamp, _ unit: inout Unit
    ) -> Result<Opened, OpenError>? {
        guard let room = job.recipients.first, room.roomName != nil else { return nil }
        let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: room)
        if let copy = copies[key], copy.ratchetMessage == envelope.ratchetMessage {
            let sender = copy.sender
            // The sender may have left since, or changed the nick.
            let isSame = job.isReplay && copy.audience?.source == Self.source(of: job)
            guard isSame || job.senders.contains(sender) else { return nil }
            return self.copy(job, envelope, sender, room, now, &unit)
        }
        guard let relayBound = bound(on: envelope, by: job) else { return nil }
        switch relayBound {
        case .unknown: return .failure(.init(reason: .forgotten))
        case .by(let time):
            let joinedLater = (job.presence?.since ?? .max) > time
            return joinedLater ? .failure(.init(reason: .notRecipient)) : nil
        }
    }

    private enum Bound { case by(UInt64), unknown }

    /// When a message that was not opened yet was sent at the latest; nil if it may be on its way.
    private func bound(on envelope: Envelope, by job: OpenJob) -> Bound? {
        let id = envelope.messageID.value
        if let entry = inFlight[id] {
            // A message that the backend marks as older than the reader's arrival was sealed before it.
            return (entry.relayedAt ?? (job.isReplay ? entry.sealedAt : nil)).map { .by($0) }
        }
        if let time = relayTimes[id] { return .by(time) }
        return job.isReplay ? .unknown : nil
    }

    /// When a message that has just been opened was sent at the latest; nil if it is no longer known.
    func relayedAt(of message: MessageID, from sender: AccountID, by job: OpenJob, for recipient: AccountID) -> UInt64?
    {
        guard recipient.roomName != nil else { return 0 }
        let now = job.presence?.now ?? rooms.time
        if let entry = inFlight[message.value] { return min(entry.relayedAt ?? now, now) }
        if let time = relayTimes[message.value] { return min(time, now) }
        return queue.request(Request.token(message.value)).map { AccountID(text: $0.tenant) } == sender ? now : nil
    }

    /// The readers of a message to a room, besides the accounts whose line is stored.
    func audience(
        _ job: OpenJob, of recipient: AccountID, _ room: String, _ sender: AccountID,
        _ sequences: [AccountID: UInt64], _ relayedAt: UInt64
    ) -> OpenedMessage.Audience {
        var readers: Set = [job.account, sender]
        if !recipient.isPartOfRoom {
            readers.formUnion(rooms.awaitedAccounts(in: room, by: relayedAt))
            if sequences.isEmpty { readers.formUnion(rooms.verifiedAccounts(in: room, by: relayedAt)) }
        }
        return OpenedMessage.Audience(relayedAt: relayedAt, readers: readers, source: Self.source(of: job))
    }

    /// The nick in the source of a line.
    private static func source(of job: OpenJob) -> [UInt8] {
        Array(job.lineHead.dropFirst().prefix { $0 != UInt8(ascii: "!") && $0 != 0x20 })
    }
}
