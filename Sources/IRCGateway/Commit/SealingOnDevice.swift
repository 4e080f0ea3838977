// The person's own device in a sidecar: sealing for other people's devices, whose private keys are not in this vault.

import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    /// The associated data of a message between devices. It has no names of people: the session binds both identities,
    /// and each end may know the other by a different name.
    func associatedData(
        from sender: DeviceID, to recipient: DeviceID, room: AccountID?, _ message: MessageID
    ) -> [UInt8] {
        AssociatedData(
            protocolName: vault.carrier.protocolName, network: "", sender: "", senderDevice: sender,
            recipient: room?.text ?? "",
            recipientDevice: recipient, messageID: message, protection: .device
        ).bytes
    }

    /// The sessions with a remote device; nil if there are none, or if their record cannot be read. In the second case
    /// the device counts as one without keys until it begins a new session, and other members of a room can still be
    /// reached.
    ///
    /// - Throws: ``StoreError`` if the store itself cannot be read, so that no device is mistaken for one without keys.
    mutating func peerSession(_ id: SessionID) throws -> SessionBox? {
        do {
            return try vault.session(id)
        } catch {
            guard case .corrupt = error else { throw error }
            if unreadable.insert(id).inserted { onUnreadable(id) }
            return nil
        }
    }

    // MARK: Sealing

    /// Seals a message for all devices of its recipient, and for the person's other devices.
    ///
    /// - Throws: ``SealRefusal``, or what the ratchet throws.
    mutating func deviceEnvelope(
        _ job: SealJob, _ id: MessageID, _ device: OwnDevice, _ unit: inout Unit
    ) throws -> Envelope {
        let boxes = try recipients(job, device)
        guard let first = boxes.first else { throw SealRefusal.keysMissing }
        let sessions = boxes.map { device.session(with: $0.device) }
        unit.shared += sessions
        for id in sessions { vault.markDirty(id) }
        let own = device.id
        if boxes.count == 1 {
            let body = try padded(job.body, besides: vault.overhead(first.box), capacity: job.capacity)
            let message = try encrypt(body, first, own, id)
            return Envelope(sender: own, messageID: id, ratchetMessage: message)
        }
        let fixed = boxes.reduce(MultiRecipientMessage.overhead) {
            $0 + MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + vault.overhead($1.box)
        }
        let body = try padded(job.body, besides: fixed, capacity: job.capacity)
        var sealer = MultiRecipientSealer(
            body.span, associatedData: associatedData(from: own, to: DeviceID(0), room: nil, id),
            random: &vault.random)
        for recipient in boxes {
            try sealer.add(
                recipient.device.value, &recipient.box.sessions,
                associatedData: associatedData(from: own, to: recipient.device, room: nil, id),
                random: &vault.random)
        }
        var bytes: [UInt8] = []
        sealer.finish().serialize(into: &bytes)
        return Envelope(kind: .several, sender: own, messageID: id, ratchetMessage: bytes)
    }

    private typealias Recipient = (device: DeviceID, box: SessionBox)

    private mutating func recipients(_ job: SealJob, _ own: OwnDevice) throws -> [Recipient] {
        let readers = own.readers(of: job)
        var found: [Recipient] = []
        for (id, identity) in readers.devices {
            guard let box = try peerSession(own.session(with: id)) else { continue }
            // A session is used only if its identity key is the pinned one; a device id alone proves nothing.
            if let identity, identity != box.sessions.peerIdentity { continue }
            found.append((id, box))
        }
        // The person's other devices get a copy; they are no recipients if there is no other.
        guard !found.isEmpty else { return [] }
        for listed in readers.copies {
            guard let box = try peerSession(own.session(with: listed.id)),
                box.sessions.peerIdentity == listed.identity
            else { continue }
            found.append((listed.id, box))
        }
        return found
    }

    private mutating func encrypt(
        _ plaintext: [UInt8], _ recipient: Recipient, _ own: DeviceID, _ id: MessageID
    ) throws -> [UInt8] {
        let associated = associatedData(from: own, to: recipient.device, room: nil, id)
        var message: [UInt8] = []
        try recipient.box.sessions.encrypt(
            plaintext.span, associatedData: associated.span, random: &vault.random, into: &message)
        return message
    }

    /// The requests that send our list to a peer with an older version of it; to be sent before the next message.
    mutating func news(
        _ job: SealJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [Request] {
        guard job.body.kind != .control, let message = own.news(for: job.recipient, &unit.changes) else { return [] }
        var controlJob = job
        controlJob.verb = "NOTICE"
        controlJob.body = message.body
        let envelope = try deviceEnvelope(controlJob, MessageID(requestIDs.next(in: .only, at: now)), own, &unit)
        return [try insert(envelope, controlJob, now, &unit)]
    }
}
