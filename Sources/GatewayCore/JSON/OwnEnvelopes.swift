// Envelopes that clients have sealed themselves, and what is due to conversations of people who can.

import DoubleRatchet
import Envelope
import JSONCodec

extension JSONEnvironment {
    /// What a client has put into the place of an envelope.
    enum ClientEnvelope: Equatable, Sendable {
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
    func envelope(in message: FoundMessage, of account: AccountID) -> ClientEnvelope {
        guard message.isFlagged, let bytes = message.envelope, let envelope = try? Envelope(bytes, in: .json),
            envelope.isWellFormed
        else { return .none }
        guard directory.publishes(envelope.sender, by: account), isCapable(account) else { return .foreign }
        return .own(envelope.sender)
    }

    /// What becomes of an envelope of the sender's own device: it goes as it is, or not at all.
    ///
    /// - Parameter members: of the conversation; nothing where the backend does not say.
    /// - Returns: why it does not go; and whether everybody in the conversation can encrypt, so that it stays so.
    func verdictOnEnvelope(
        to room: AccountID, by sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> (refusal: Refusal?, isForCapable: Bool) {
        let audience = Audience(members, besides: sender) { isBehind($0, policies) }
        observations.note(room.roomName ?? "", audience.observed(in: room), by: sender)
        let others = audience.others ?? []
        let isForCapable = audience.others != nil && others.allSatisfy(isCapable)
        guard !isForCapable, audience.policy(of: sender, in: room, policies).demandsDevices else {
            return (nil, isForCapable && !others.isEmpty)
        }
        return (others.count == 1 ? .required : .room, false)
    }

    /// Why words do not go although the table of policies would let them: the conversation is end to end, or could be.
    ///
    /// - Parameter canSeal: whether the client that writes has proven a device.
    func refusalOfWords(
        to room: AccountID, by sender: AccountID, _ members: [AccountID]?, canSeal: Bool, _ policies: PolicySnapshot
    ) -> Refusal? {
        guard policies.policy(of: sender).takesPart else { return nil }
        let others = members?.filter { $0 != sender } ?? []
        if canSeal, policies.policy(of: sender).seeksProtection, !others.isEmpty, others.allSatisfy(isCapable) {
            return .unsealed
        }
        return latches.latch(of: ConversationID(room, room)) == .device ? .latched : nil
    }

    /// What makes a conversation stay end to end; nothing where it does already.
    func protection(of room: AccountID) -> VaultJob? {
        let conversation = ConversationID(room, room)
        guard latches.latch(of: conversation) < .device else { return nil }
        return .protect(conversation, names: ("", ""))
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
