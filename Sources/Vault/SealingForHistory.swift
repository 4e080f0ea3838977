// Sealing for a backend that keeps what was said. Both ends of the session are in this vault: the ratchet carries the
// message's key from one to the other at once, steps at both, and the key is kept for those who read it later.

package import CommitLoop
import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

extension VaultHolding {
    /// Seals a text for a conversation; states, key and latch are one group of changes.
    ///
    /// - Parameter id: of the message, used for nothing else.
    /// - Throws: ``WriteFailure``, or what the ratchet or the store throws; then the caller cancels the unit.
    package mutating func write(
        _ job: WriteJob, _ id: MessageID, _ now: Moment, _ unit: inout Unit
    ) throws -> WrittenEnvelope {
        let bytes = try written(job, id, now, &unit)
        unit.changes.append(.spendMessageID(id.value))
        let isFirst = latch(job.conversation, .gateway, now, &unit)
        noteFirst(isFirst ? id : nil, in: ConversationID(job.conversation, job.conversation))
        return WrittenEnvelope(bytes: bytes, message: id, isFirstOfConversation: isFirst)
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
            $0 + MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + vault.overhead($1.box)
        }
        guard longest + body.count <= vault.carrier.maximumLength else { throw WriteFailure.tooLong }

        for id in unit.shared { vault.keeper.markDirty(id) }
        func associated(to device: DeviceID) -> [UInt8] {
            vault.associatedData(job.sender, sender.id, job.conversation, device, id)
        }
        var sealer = MultiRecipientSealer(
            body.span, associatedData: associated(to: .all), random: &vault.keeper.random)
        for end in [ends.sending] + readers {
            try sealer.add(
                end.device.value, &end.box.sessions, associatedData: associated(to: end.device),
                random: &vault.keeper.random)
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
            if isNew { try vault.keeper.pair(sender, recipient) }
            if let sending = try vault.keeper.session(ends.sending),
                let receiving = try vault.keeper.session(ends.receiving)
            {
                return ((ends.sending, recipient.id, sending), (ends.receiving, sender.id, receiving))
            }
        }
        throw StoreError.corrupt("A new session is not there.")
    }

    private mutating func reader(_ reader: WriteJob.Reader, of sender: HostedDevice) throws -> End {
        let id = SessionID(owner: sender.id, peer: reader.device)
        guard let box = try vault.keeper.session(id) else { throw WriteFailure.keysMissing }
        return (id, reader.device, box)
    }

    /// Keeps the key of an envelope: in the store where it outlives the process, in any case in memory, after the commit.
    private mutating func keep(
        _ key: consuming [UInt8], of envelope: [UInt8], _ id: MessageID, _ job: WriteJob, _ now: Moment,
        _ unit: inout Unit
    ) throws {
        let digest = EnvelopeDigest(of: envelope)
        // An account without a login ends with its connection, and its device with it. Over JSON every account has one.
        let outlives = vault.historyRetention > 0 && job.sender.isVerified && job.conversation.isVerified
        let expiry = vault.historyRetention > 0 ? now.wall + vault.historyRetention : .max
        if outlives {
            let place = Vault<Random>.place(ofKey: id, digest, job.conversation, expiry)
            let sealed = try vault.sealer.seal(key, place: place, random: &vault.keeper.random)
            unit.changes.append(
                .putContentKey(ContentKeyRow(message: id, digest: digest, expiresAt: expiry, sealedKey: sealed)))
        }
        let kept = ContentKey(message: id, digest: digest, expiresAt: expiry, bytes: key)
        unit.onCommit { state, _, _ in state.vault.contentKeys.remember(kept) }
    }
}

extension Vault {
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
    package static var pruneInterval: Int64 { 60_000_000_000 }

    /// Removes keys whose time has come: by what was said of them when they were written, and by what is said now.
    package mutating func pruneKeys(_ now: Moment, _ changes: inout [StoreChange]) {
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
