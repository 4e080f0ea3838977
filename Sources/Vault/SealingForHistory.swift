// Sealing for a backend that keeps history. Both ends of the session are in this vault: the ratchet transports the
// message's key to the other end at once, steps at both ends, and the key is stored for later readers.

package import CommitLoop
import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

extension VaultHolding {
    /// Seals a text for a conversation. Ratchet states, key and latch are one group of changes.
    ///
    /// - Parameter id: the message's id, not used before.
    /// - Throws: ``SealFailure``, or errors of the ratchet and the store; then the caller cancels the unit.
    package mutating func seal(
        _ job: SealMessageJob, _ id: MessageID, _ now: Timestamp, _ unit: inout Unit
    ) throws -> SealedEnvelope {
        let bytes = try written(job, id, now, &unit)
        unit.changes.append(.spendMessageID(id.value))
        let isFirst = latch(job.conversation, .gateway, now, &unit)
        noteFirst(isFirst ? id : nil, in: ConversationID(job.conversation, job.conversation))
        return SealedEnvelope(bytes: bytes, message: id, isFirstOfConversation: isFirst)
    }

    /// Steps both ratchets and returns the envelope.
    ///
    /// - Throws: ``SealFailure``, or errors of the ratchet and the store. Then a ratchet may have advanced by a message
    ///   that
    ///   is not sent, which its other end counts as lost; a ratchet never goes back.
    private mutating func written(
        _ job: SealMessageJob, _ id: MessageID, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [UInt8] {
        guard let body = try? Content.padded(job.plaintext),
            job.readers.count < MultiRecipientMessage.recipientLimit
        else { throw SealFailure.tooLong }
        let sender = try device(job.sender, now, &unit)
        let conversation = try device(job.conversation, now, &unit)
        let ends = try ends(sender, conversation)
        let readers = try job.readers.map { try reader($0, of: sender, in: ends.sending.id.shard) }
        unit.shared = [ends.sending.id, ends.receiving.id] + readers.map(\.id)
        // The upper bound is checked first, so that no ratchet steps for a message that is too long.
        let longest = ([ends.sending] + readers).reduce(MultiRecipientMessage.overhead + Envelope.headerLength) {
            $0 + MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + vault.overhead($1.box)
        }
        let limit = min(vault.carrier.maximumLength, job.maximumLength ?? .max)
        guard longest + body.count <= limit else { throw SealFailure.tooLong }

        for id in unit.shared { vault.sessionCache.markDirty(id) }
        func associated(to device: DeviceID) -> [UInt8] {
            vault.associatedData(job.sender, sender.id, job.conversation, device, id)
        }
        var sealer = MultiRecipientSealer(
            body.span, associatedData: associated(to: .all), random: &vault.sessionCache.random)
        for end in [ends.sending] + readers {
            try sealer.add(
                end.device.value, &end.box.sessions, associatedData: associated(to: end.device),
                random: &vault.sessionCache.random)
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

    /// Both ends of the session of two devices in this vault, set up if there is none.
    private mutating func ends(
        _ sender: HostedDevice, _ recipient: HostedDevice
    ) throws -> (sending: End, receiving: End) {
        let ends = SessionCache.ends(
            sender: sender.id, recipient: recipient.id,
            in: vault.sharding.shard(from: sender.account, to: recipient.account))
        for isNew in [false, true] {
            if isNew { try vault.sessionCache.pair(sender, recipient, in: ends.sending.shard) }
            if let sending = try vault.sessionCache.session(ends.sending),
                let receiving = try vault.sessionCache.session(ends.receiving)
            {
                return ((ends.sending, recipient.id, sending), (ends.receiving, sender.id, receiving))
            }
        }
        throw StoreError.corrupt("A new session is missing.")
    }

    private mutating func reader(
        _ reader: SealMessageJob.Reader, of sender: HostedDevice, in shard: Shard
    ) throws -> End {
        let id = SessionID(owner: sender.id, peer: reader.device, in: shard)
        guard let box = try vault.sessionCache.session(id) else { throw SealFailure.keysMissing }
        return (id, reader.device, box)
    }

    /// Keeps the key of an envelope: in the store if it outlives the process, and always in memory, after the commit.
    private mutating func keep(
        _ key: consuming [UInt8], of envelope: [UInt8], _ id: MessageID, _ job: SealMessageJob, _ now: Timestamp,
        _ unit: inout Unit
    ) throws {
        let digest = EnvelopeDigest(of: envelope)
        // An account without a login ends with its connection, and its device with it. Over JSON every account has one.
        let outlives = vault.historyRetention > 0 && job.sender.isVerified && job.conversation.isVerified
        let expiry = vault.historyRetention > 0 ? now.wall + vault.historyRetention : .max
        if outlives {
            let label = Vault.label(ofKey: id, digest, job.conversation, expiry)
            let sealed = try vault.sealer.seal(key, label: label, random: &vault.sessionCache.random)
            unit.changes.append(
                .putContentKey(ContentKeyRow(message: id, digest: digest, expiresAt: expiry, sealedKey: sealed)))
        }
        let kept = ContentKey(message: id, digest: digest, expiresAt: expiry, bytes: key)
        unit.onCommit { state, _, _ in state.vault.contentKeys.remember(kept) }
    }
}

extension Vault {
    /// The place to which the sealed key of a message is bound.
    package static func label(
        ofKey message: MessageID, _ digest: EnvelopeDigest, _ conversation: AccountID, _ expiry: Int64
    ) -> String {
        "content key \(message.value) \(digest.name) \(expiry) \(conversation.text)"
    }

    // MARK: Expiry

    /// Ours: keys removed at a time, for each reason. That is twice as many as a busy gateway writes between two ticks,
    /// and the batch that removes them takes no longer than others.
    static var pruneLimit: Int { 8192 }
    /// Ours: how often the store is checked for expired keys, in nanoseconds. A minute of delay is acceptable.
    package static var pruneInterval: Int64 { 60_000_000_000 }

    /// Removes expired keys: by the expiry that was stored with them, and by the present retention.
    package func pruneKeys(_ now: Timestamp, _ changes: inout [StoreChange]) {
        guard now.monotonic >= prunesKeysAt else { return }
        let first = firstReadable(now)
        guard let oldest = try? store.oldestContentKeys(), oldest.expiresAt <= now.wall || oldest.message < first
        else { return prunesKeysAt = now.monotonic + Self.pruneInterval }
        changes.append(.pruneContentKeys(expiredBy: now.wall, before: first, limit: Self.pruneLimit))
    }

    /// The first id whose key has not expired by the present retention: ids rise with time.
    func firstReadable(_ now: Timestamp) -> MessageID {
        guard historyRetention > 0 else { return MessageID(UInt64(Int64.max)) }
        return MessageID(UInt64(max(now.wall - historyRetention, 0)) << 10)
    }
}

extension DeviceID {
    /// Stands for all recipients in the associated data of a body.
    package static let all = DeviceID(0)
}
