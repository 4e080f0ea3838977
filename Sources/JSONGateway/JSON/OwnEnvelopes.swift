// Envelopes that clients have sealed themselves.

import DeviceDirectory
import Devices
import DoubleRatchet
package import Envelope
import JSONCodec
package import Protection

extension JSONEnvironment {
    /// The kind of envelope in a client's message.
    package enum ClientEnvelope: Equatable, Sendable {
        /// No envelope.
        case none
        /// Sealed by a published device of the sending account.
        case own(DeviceID)
        /// Names a device of another account, or an unpublished one.
        case foreign
    }

    /// Whether an account has published devices of its own and is not blocked.
    package func isCapable(_ account: AccountID) -> Bool {
        guard !directory.isEmpty, let entry = directory[account] else { return false }
        return !entry.isBlocked && !entry.published.isEmpty
    }

    /// Classifies the envelope in a message of an account. Neither the flag nor the device id is sufficient alone.
    package func envelope(in message: FoundMessage, of account: AccountID) -> ClientEnvelope {
        guard message.isFlagged, let bytes = message.envelope, let envelope = try? Envelope(bytes, in: .json),
            envelope.isWellFormed
        else { return .none }
        guard directory.publishes(envelope.sender, by: account), isCapable(account) else { return .foreign }
        return .own(envelope.sender)
    }
}

extension Envelope {
    /// Whether the bytes after the header have the form of the envelope's kind, and are not text.
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
