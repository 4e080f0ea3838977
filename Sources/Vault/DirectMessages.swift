// Sealing and opening between two hosted accounts, or a hosted account and a room, with the sessions of this vault. The
// caller stores and sends the envelope.

package import CommitLoop
package import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// The result of trying an envelope on the session of one recipient.
package enum DirectOpening {
    case opened([UInt8], skipped: Int)
    /// The session has opened this message before.
    case duplicate
    /// The session does not open it. The reason is nil if the session of another recipient may open it.
    case failed(OpenFailure?)
}

extension VaultHolding {
    /// Seals a plaintext. The ratchet state and new devices are committed with the unit.
    ///
    /// - Throws: errors of the ratchet and the store; then the caller cancels the unit.
    package mutating func seal(
        _ plaintext: [UInt8], from senderAccount: AccountID, to recipientAccount: AccountID, _ id: MessageID,
        _ now: Timestamp, _ unit: inout Unit
    ) throws -> Envelope {
        let sender = try device(senderAccount, now, &unit)
        let recipient = try device(recipientAccount, now, &unit)
        let shard = vault.sharding.shard(from: senderAccount, to: recipientAccount)
        let ends = SessionCache.ends(sender: sender.id, recipient: recipient.id, in: shard)
        unit.shared = [ends.sending, ends.receiving]
        let box = try session(ends.sending, or: sender, recipient)
        let associated = vault.associatedData(senderAccount, sender.id, recipientAccount, recipient.id, id)
        var message: [UInt8] = []
        vault.sessionCache.markDirty(ends.sending)
        try box.sessions.encrypt(
            plaintext.span, associatedData: associated.span, random: &vault.sessionCache.random, into: &message)
        return Envelope(sender: sender.id, messageID: id, ratchetMessage: message)
    }

    /// Tries an envelope of a hosted sender on the session of one recipient, under each name of the network.
    ///
    /// - Throws: ``StoreError`` if the session cannot be read.
    package mutating func open(
        _ envelope: Envelope, from sender: AccountID, to recipient: AccountID, _ unit: inout Unit
    ) throws(StoreError) -> DirectOpening {
        guard let device = vault.sessionCache.device(of: recipient) else { return .failed(nil) }
        // The id in the envelope has named the shard of the job. It is authenticated: none is opened in another one.
        let shard = vault.sharding.shard(from: sender, to: recipient)
        let ends = SessionCache.ends(sender: envelope.sender, recipient: device.id, in: shard)
        guard let box = try vault.sessionCache.session(ends.receiving) else { return .failed(nil) }
        for network in vault.networks {
            let associated = vault.associatedData(
                sender, envelope.sender, recipient, device.id, envelope.messageID, network: network)
            var plaintext: [UInt8] = []
            do throws(RatchetError) {
                let received = try box.sessions.decrypt(
                    envelope.ratchetMessage.span, associatedData: associated.span, into: &plaintext)
                unit.shared.append(ends.receiving)
                vault.sessionCache.markDirty(ends.receiving)
                return .opened(plaintext, skipped: received.skipped)
            } catch {
                switch error {
                case .duplicate: return .duplicate
                case .tooFarAhead: return .failed(.tooFarAhead)
                case .malformed, .unsupportedVersion, .downgrade: return .failed(.malformed)
                default: continue
                }
            }
        }
        return .failed(nil)
    }
}
