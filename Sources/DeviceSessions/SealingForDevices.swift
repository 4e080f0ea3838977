// Sealing for devices elsewhere, whose private keys are not in this vault, with the sessions of the person's own device.

import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort
package import Vault

extension OwnDevice {
    /// A device to seal for, with its sessions.
    package typealias Recipient = (device: DeviceID, box: SessionBox)

    /// The associated data of a message between devices. It has no names of people: the session binds both identities,
    /// and each end may know the other by a different name.
    package static func associatedData(
        from sender: DeviceID, to recipient: DeviceID, room: AccountID? = nil, _ message: MessageID, _ vault: Vault
    ) -> [UInt8] {
        AssociatedData(
            protocolName: vault.carrier.protocolName, network: "", sender: "", senderDevice: sender,
            recipient: room?.text ?? "",
            recipientDevice: recipient, messageID: message, protection: .device
        ).bytes
    }

    /// The devices of an account that have a session, and the person's other devices; or one device only.
    ///
    /// - Returns: none if no device of the account has a session.
    package func recipients(
        of account: AccountID, only device: DeviceID? = nil, in vault: Vault
    ) throws -> [Recipient] {
        let readers = readers(of: account, only: device)
        var found: [Recipient] = []
        for (id, identity) in readers.devices {
            guard let box = try sessions(with: id, in: vault) else { continue }
            // A session is used only if its identity key is the pinned one; a device id alone proves nothing.
            if let identity, identity != box.sessions.peerIdentity { continue }
            found.append((id, box))
        }
        // The person's other devices get a copy; they are no recipients if there is no other.
        guard !found.isEmpty else { return [] }
        for listed in readers.copies {
            guard let box = try sessions(with: listed.id, in: vault), box.sessions.peerIdentity == listed.identity
            else { continue }
            found.append((listed.id, box))
        }
        return found
    }

    /// Upper bound of bytes besides header and body in an envelope for these recipients.
    package func overhead(of recipients: [Recipient], in vault: Vault) -> Int {
        if recipients.count == 1 { return vault.overhead(recipients[0].box) }
        return recipients.reduce(MultiRecipientMessage.overhead) {
            $0 + MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + vault.overhead($1.box)
        }
    }

    /// Seals a padded body for a device whose session the caller ends. Nothing of the session is stored.
    package func lastEnvelope(
        _ body: [UInt8], _ message: MessageID, to device: DeviceID, with box: SessionBox, in vault: Vault
    ) throws -> Envelope {
        var sealed: [UInt8] = []
        try box.sessions.encrypt(
            body.span, associatedData: Self.associatedData(from: id, to: device, message, vault).span,
            random: &vault.random, into: &sealed)
        return Envelope(sender: id, messageID: message, ratchetMessage: sealed)
    }

    /// Seals a padded body for one or more devices in one envelope.
    ///
    /// - Returns: through `shared`, the sessions that have advanced.
    package func seal(
        _ body: [UInt8], _ message: MessageID, for recipients: [Recipient], in vault: Vault,
        _ shared: inout [SessionID]
    ) throws -> Envelope {
        for recipient in recipients {
            let id = session(with: recipient.device)
            shared.append(id)
            vault.markDirty(id)
        }
        if recipients.count == 1 {
            let associated = Self.associatedData(from: id, to: recipients[0].device, message, vault)
            var sealed: [UInt8] = []
            try recipients[0].box.sessions.encrypt(
                body.span, associatedData: associated.span, random: &vault.random, into: &sealed)
            return Envelope(sender: id, messageID: message, ratchetMessage: sealed)
        }
        var sealer = MultiRecipientSealer(
            body.span, associatedData: Self.associatedData(from: id, to: DeviceID(0), message, vault),
            random: &vault.random)
        for recipient in recipients {
            try sealer.add(
                recipient.device.value, &recipient.box.sessions,
                associatedData: Self.associatedData(from: id, to: recipient.device, message, vault),
                random: &vault.random)
        }
        var bytes: [UInt8] = []
        sealer.finish().serialize(into: &bytes)
        return Envelope(kind: .several, sender: id, messageID: message, ratchetMessage: bytes)
    }
}
