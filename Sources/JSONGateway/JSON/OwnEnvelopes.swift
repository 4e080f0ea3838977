// Envelopes that clients have sealed themselves.

import DeviceDirectory
import Devices
import DoubleRatchet
package import Envelope
import JSONCodec
package import Protection

extension JSONEnvironment {
    /// What a client has put into the place of an envelope.
    package enum ClientEnvelope: Equatable, Sendable {
        /// Nothing that could be one: words.
        case none
        /// Sealed by a published device of the very account.
        case own(DeviceID)
        /// It names a device of somebody else, or one that nobody has published.
        case foreign
    }

    /// Whether an account has devices of its own.
    package func isCapable(_ account: AccountID) -> Bool {
        guard !directory.isEmpty, let entry = directory[account] else { return false }
        return !entry.isBlocked && !entry.published.isEmpty
    }

    /// What a message of an account is: the flag alone says nothing, nor does a name of a device.
    package func envelope(in message: FoundMessage, of account: AccountID) -> ClientEnvelope {
        guard message.isFlagged, let bytes = message.envelope, let envelope = try? Envelope(bytes, in: .json),
            envelope.isWellFormed
        else { return .none }
        guard directory.publishes(envelope.sender, by: account), isCapable(account) else { return .foreign }
        return .own(envelope.sender)
    }
}

extension Envelope {
    /// Whether what stands behind the header can be what the kind says. Words behind a header are not.
    var isWellFormed: Bool {
        switch kind {
        case .several:
            guard let message = try? MultiRecipientMessage(serialized: ratchetMessage.span) else { return false }
            return !message.keys.isEmpty && message.sealedBody.count >= 16
        case .direct: return ratchetMessage.count >= 72 && OpenFailure(versionOf: ratchetMessage) == nil
        case .room: return ratchetMessage.count >= 89 && ratchetMessage.first == 1
        case .introduction: return false
        }
    }
}
