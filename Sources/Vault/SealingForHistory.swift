// Sealing for a backend that keeps what was said. Both ends of the session are in this vault: the ratchet carries the
// message's key from one to the other at once, steps at both, and the key is kept for those who read it later.

import CommitLoop
import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

extension Vault {
    /// Seals a text for a conversation; states, key and latch are one group of changes.
    mutating func write(
        _ job: WriteJob, _ now: Moment, _ unit: inout Unit
    ) {
        unit.failure = (job.connection, .writeFailed(ticket: job.ticket, .store))
        do {
            let id = MessageID(nextRequest(now))
            let envelope = try written(job, id, now, &unit)
            unit.changes.append(.spendMessageID(id.value))
            let isFirst = latch(job.conversation, now, &unit)
            noteFirst(isFirst ? id : nil, in: ConversationID(job.conversation, job.conversation))
            unit.reply = (
                job.connection,
                .wrote(ticket: job.ticket, envelope: envelope, message: id, firstOfConversation: isFirst)
            )
        } catch {
            unit.cancel(in: &self, now: now)
            unit.shared = []
            if let failure = error as? WriteFailure {
                unit.failure = (job.connection, .writeFailed(ticket: job.ticket, failure))
            }
            unit.reply = unit.failure
        }
    }

    /// Ours: conversations whose first message is remembered; of more none is forgotten when it is refused.
    private static var firstMessageLimit: Int { 10_000 }

    /// Remembers which message has protected a conversation, as long as it is the only one there.
    private mutating func noteFirst(_ message: MessageID?, in conversation: ConversationID) {
        if message != nil, firstMessages.count >= Self.firstMessageLimit { return }
        firstMessages[conversation] = message
    }

    /// Lowers the latch that a message has raised which the backend does not have, such as one to a conversation that does not
    /// exist. Anything else that was sealed there keeps it up.
    mutating func refused(
        _ conversation: ConversationID, _ message: MessageID, _ unit: inout Unit
    ) {
        guard firstMessages[conversation] == message else { return }
        firstMessages[conversation] = nil
        guard latches.latch(of: conversation) == .gateway, conversations.remove(conversation) != nil else { return }
        unit.changes.append(.removeConversation(conversation))
        lowered(conversation, &unit)
    }

    /// Lowers the latch that connections see, after the commit; the caller has removed the conversation.
    mutating func lowered(_ conversation: ConversationID, _ unit: inout Unit) {
        unit.onCommit { vault, _, _ in vault.latches.reset(conversation) }
        unit.onRollback { vault, _, _, _ in vault.conversations.insert(conversation) }
    }

    /// The envelope, after both ratchets have stepped.
    ///
    /// - Throws: ``WriteFailure``, or what the ratchet or the store throws. Then a ratchet may have gone on by a message that
    ///   nobody gets, which its other end takes as lost; it never goes back.
    private mutating func written(
        _ job: WriteJob, _ id: MessageID, _ now: Moment, _ unit: inout Unit
    ) throws -> [UInt8] {
        guard let body = try? Content.padded(job.plaintext),
            job.readers.count < MultiRecipientMessage.recipientLimit
        else { throw WriteFailure.tooLong }
        let sender = try device(job.sender, now, &unit)
        let conversation = try device(job.conversation, now, &unit)
        let ends = try ends(sender, conversation)
        let readers = try job.readers.map { try reader($0, of: sender) }
        unit.shared = [ends.sending.id, ends.receiving.id] + readers.map(\.id)
        // The longest that it may become, so that nothing has been sealed when it turns out to be too long.
        let longest = ([ends.sending] + readers).reduce(MultiRecipientMessage.overhead + Envelope.headerLength) {
            $0 + MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + overhead($1.box)
        }
        guard longest + body.count <= carrier.maximumLength else { throw WriteFailure.tooLong }

        for id in unit.shared { keeper.markDirty(id) }
        func associated(to device: DeviceID) -> [UInt8] {
            associatedData(job.sender, sender.id, job.conversation, device, id)
        }
        var sealer = MultiRecipientSealer(
            body.span, associatedData: associated(to: .all), random: &keeper.random)
        for end in [ends.sending] + readers {
            try sealer.add(
                end.device.value, &end.box.sessions, associatedData: associated(to: end.device),
                random: &keeper.random)
        }
        let message = sealer.finish()
        var bytes: [UInt8] = []
        message.serialize(into: &bytes)
        let envelope = Envelope(kind: .several, sender: sender.id, messageID: id, ratchetMessage: bytes).bytes

        let bound = message.authenticated(associated(to: conversation.id))
        let wrapped = message.keys[0].message
        var key: [UInt8] = []
        _ = try ends.receiving.box.sessions.decrypt(wrapped.span, associatedData: bound.span, into: &key)
        try keep(key, of: envelope, id, job, now, &unit)
        return envelope
    }

    private typealias End = (id: SessionID, device: DeviceID, box: SessionBox)

    /// Both ends of the session of two devices in this vault, set up where there is none.
    private mutating func ends(
        _ sender: HostedDevice, _ recipient: HostedDevice
    ) throws -> (sending: End, receiving: End) {
        let ends = SessionKeeper<Random>.ends(sender: sender.id, recipient: recipient.id)
        for isNew in [false, true] {
            if isNew { try keeper.pair(sender, recipient) }
            if let sending = try keeper.session(ends.sending), let receiving = try keeper.session(ends.receiving) {
                return ((ends.sending, recipient.id, sending), (ends.receiving, sender.id, receiving))
            }
        }
        throw StoreError.corrupt("A new session is not there.")
    }

    private mutating func reader(_ reader: WriteJob.Reader, of sender: HostedDevice) throws -> End {
        let id = SessionID(owner: sender.id, peer: reader.device)
        guard let box = try keeper.session(id) else { throw WriteFailure.keysMissing }
        return (id, reader.device, box)
    }

    /// Keeps the key of an envelope: in the store where it outlives the process, in any case in memory, after the commit.
    private mutating func keep(
        _ key: consuming [UInt8], of envelope: [UInt8], _ id: MessageID, _ job: WriteJob, _ now: Moment,
        _ unit: inout Unit
    ) throws {
        let digest = EnvelopeDigest(of: envelope)
        // An account without a login ends with its connection, and its device with it. Over JSON every account has one.
        let outlives = historyRetention > 0 && job.sender.isVerified && job.conversation.isVerified
        let expiry = historyRetention > 0 ? now.wall + historyRetention : .max
        if outlives {
            let place = Self.place(ofKey: id, digest, job.conversation, expiry)
            let sealed = try sealer.seal(key, place: place, random: &keeper.random)
            unit.changes.append(
                .putContentKey(ContentKeyRow(message: id, digest: digest, expiresAt: expiry, sealedKey: sealed)))
        }
        let kept = ContentKey(message: id, digest: digest, expiresAt: expiry, bytes: key)
        unit.onCommit { vault, _, _ in vault.contentKeys.remember(kept) }
    }

    /// Where the key of a message lies.
    package static func place(
        ofKey message: MessageID, _ digest: EnvelopeDigest, _ conversation: AccountID, _ expiry: Int64
    ) -> String {
        "content key \(message.value) \(digest.name) \(expiry) \(conversation.text)"
    }

    // MARK: Expiry

    /// Ours: keys that go at a time, for each reason. A tick has twice as many as a busy gateway writes between two of them,
    /// and the batch that removes them takes no longer than others.
    static var pruneLimit: Int { 8192 }
    /// Ours: how often the store is asked whether any are due, in nanoseconds: a minute later than was said is soon enough.
    static var pruneInterval: Int64 { 60_000_000_000 }

    /// Removes keys whose time has come: by what was said of them when they were written, and by what is said now.
    mutating func pruneKeys(_ now: Moment, _ changes: inout [StoreChange]) {
        guard now.monotonic >= prunesKeysAt else { return }
        let first = firstReadable(now)
        guard let oldest = try? store.oldestContentKeys(), oldest.expiresAt <= now.wall || oldest.message < first
        else { return prunesKeysAt = now.monotonic + Self.pruneInterval }
        changes.append(.pruneContentKeys(expiredBy: now.wall, before: first, limit: Self.pruneLimit))
    }

    /// The first id that may still have a key in the store: ids rise with time.
    func firstReadable(_ now: Moment) -> MessageID {
        guard historyRetention > 0 else { return MessageID(UInt64(Int64.max)) }
        return MessageID(UInt64(max(now.wall - historyRetention, 0)) << 10)
    }
}

extension DeviceID {
    /// Stands for all recipients in what is bound to a body.
    package static let all = DeviceID(0)
}
