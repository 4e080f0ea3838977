// Opening the history that a backend returns, repeatedly and in any order, with stored content keys. No ratchet is
// used, and nothing is written.
//
// An envelope without a stored key is not tried on the ratchet. Both ends step in the transaction that stores the key,
// so there is no message that the ratchet could still open and the store does not know.

import Devices
import DoubleRatchet
package import Envelope
package import Protection
import StorePort

extension Vault {
    /// Opens the envelopes of a job. Each envelope fails alone.
    ///
    /// - Parameters:
    ///   - highest: the highest message id that was assigned.
    ///   - isElsewhere: whether a device is published by a client, and so is not hosted in this vault.
    package func open(
        _ job: OpenMessagesJob, highest: UInt64, isElsewhere: (DeviceID) -> Bool, _ now: Timestamp
    ) -> [OpenOutcome] {
        var bytes = 0
        let claims = job.items.enumerated().map { index, item in
            bytes += item.envelope.count
            guard index < OpenMessagesJob.itemLimit, bytes <= OpenMessagesJob.byteLimit || index == 0 else {
                return Result<Claim, OpenError>.failure(OpenError(reason: .store))
            }
            return Result { () throws(OpenError) in try claim(item, isElsewhere) }
        }
        let keys = Result { () throws(StoreError) in try contentKeys(of: claims.compactMap { try? $0.get() }, now) }
        return claims.map { claim -> OpenOutcome in
            do {
                return try text(of: claim.get(), keys, highest, now)
            } catch {
                return .failed((error as? OpenError)?.reason ?? .store)
            }
        }
    }

    /// The unproven statements of an envelope and of the backend about it.
    private struct Claim {
        package var envelope: Envelope
        package var digest: EnvelopeDigest
        /// The owner of the device that the envelope names.
        package var sender: AccountID
        package var conversation: AccountID
    }

    private func claim(_ item: OpenMessagesJob.Item, _ isElsewhere: (DeviceID) -> Bool) throws(OpenError) -> Claim {
        let envelope: Envelope
        do throws(EnvelopeError) {
            envelope = try Envelope(item.envelope, in: carrier)
        } catch {
            throw OpenError(reason: OpenFailure(error))
        }
        if isElsewhere(envelope.sender) { throw OpenError(reason: .wrongSource) }
        guard envelope.kind == .several else { throw OpenError(reason: .malformed) }
        guard let owner = sessionCache.owner(of: envelope.sender) else { throw OpenError(reason: .unknownSender) }
        guard item.sender == nil || item.sender == owner else { throw OpenError(reason: .wrongSource) }
        return Claim(
            envelope: envelope, digest: EnvelopeDigest(of: item.envelope), sender: owner,
            conversation: item.conversation)
    }

    /// The rows for envelopes without a cached key, in one read.
    private func contentKeys(
        of claims: [Claim], _ now: Timestamp
    ) throws(StoreError) -> [MessageID: [ContentKeyRow]] {
        guard historyRetention > 0 else { return [:] }
        var missing: [MessageID] = []
        for claim in claims where contentKeys.key(of: claim.envelope.messageID)?.digest != claim.digest {
            missing.append(claim.envelope.messageID)
        }
        guard !missing.isEmpty else { return [:] }
        return Dictionary(grouping: try store.contentKeys(of: missing), by: \.message)
    }

    private func text(
        of claim: Claim, _ rows: Result<[MessageID: [ContentKeyRow]], StoreError>, _ highest: UInt64,
        _ now: Timestamp
    ) throws -> OpenOutcome {
        let envelope = claim.envelope
        let id = envelope.messageID
        let key = try contentKey(of: claim, rows, highest, now)
        guard let message = try? MultiRecipientMessage(serialized: envelope.ratchetMessage.span) else {
            throw OpenError(reason: .malformed)
        }
        var body: [UInt8] = []
        let isOpen = networks.contains { network in
            let associated = associatedData(
                claim.sender, envelope.sender, claim.conversation, .all, id, network: network)
            body = []
            do {
                try key.withBytes { try message.openBody(contentKey: $0.span, associatedData: associated, into: &body) }
                return true
            } catch {
                return false
            }
        }
        guard isOpen else { throw OpenError(reason: .notAuthentic) }
        guard let plaintext = try? Content.plaintext(of: body) else { throw OpenError(reason: .malformed) }
        contentKeys.remember(key)
        return .text(plaintext, sender: claim.sender, protection: .gateway, message: id)
    }

    private func contentKey(
        of claim: Claim, _ rows: Result<[MessageID: [ContentKeyRow]], StoreError>, _ highest: UInt64,
        _ now: Timestamp
    ) throws -> ContentKey {
        let id = claim.envelope.messageID
        let remembered = contentKeys.key(of: id)
        if let remembered, remembered.digest == claim.digest {
            guard remembered.expiresAt > now.wall else { throw OpenError(reason: .forgotten) }
            return remembered
        }
        let rows = try rows.get()[id] ?? []
        guard let row = rows.first(where: { $0.digest == claim.digest }) else {
            // The id belongs to other bytes, or was not assigned yet.
            let isAltered = remembered != nil || !rows.isEmpty || id.value > highest
            throw OpenError(reason: isAltered ? .notAuthentic : .forgotten)
        }
        guard row.expiresAt > now.wall, id >= firstReadable(now) else { throw OpenError(reason: .forgotten) }
        let label = Self.label(ofKey: id, claim.digest, claim.conversation, row.expiresAt)
        guard let bytes = try? sealer.open(row.sealedKey, label: label) else {
            throw OpenError(reason: .notAuthentic)
        }
        return ContentKey(message: id, digest: row.digest, expiresAt: row.expiresAt, bytes: bytes)
    }
}
