// The judgement of messages: the members of a conversation and the device of the client are known here, the rest is Judgement's.

import DeviceDirectory
import Envelope
package import Protection

extension JSONEnvironment {
    /// What is done with a text.
    ///
    /// - Parameters:
    ///   - members: of the conversation; nil if the backend does not say.
    ///   - capability: whether the client that writes has proven a device.
    package func verdict(
        on room: AccountID, by sender: AccountID, _ capability: Capability, _ members: [AccountID]?,
        _ policies: PolicySnapshot
    ) -> Verdict {
        Judgement(policies, latches)
            .outbound(.text, from: Sender(sender, capability), to: audience(of: room, sender, members, policies))
    }

    /// What is done with an envelope of the sender's own device.
    ///
    /// - Parameter members: of the conversation; nil if the backend does not say.
    func verdictOnEnvelope(
        to room: AccountID, by sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> EnvelopeVerdict {
        Judgement(policies, latches).envelope(from: sender, to: audience(of: room, sender, members, policies))
    }

    /// The readers of a message, which is counted for reports.
    private func audience(
        of room: AccountID, _ sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> Audience {
        let members = Members(
            members, besides: sender, canBeAsked: mapping.members != nil, isBehind: { isBehind($0, policies) },
            isCapable: isCapable)
        observations.note(
            room.roomName ?? "", ObservedRecipient(members.recipient(in: room)), by: sender)
        return .conversation(room, members)
    }

    /// What is done with plaintext that the backend hands to an account.
    ///
    /// - Parameter conversation: nil if nobody can tell; then what would be done in the strictest.
    package func inbound(to reader: AccountID, in conversation: String?, _ policies: PolicySnapshot) -> InboundVerdict {
        Judgement(policies, latches).inbound(to: reader, .conversation(conversation.map { .room($0) }))
    }

    /// Whether nothing that an account reads can have to be marked or withheld, so that it may be anything.
    func passesUnread(to reader: AccountID) -> Bool { inbound(to: reader, in: nil, policies.snapshot) == .deliver }

    /// Whether there is nothing to open either: no conversation is protected, and nobody has published a device.
    func hasNothingSealed(for reader: AccountID) -> Bool {
        latches.isEmpty && directory.isEmpty && passesUnread(to: reader)
    }

    /// How texts for people name the readers of a conversation: the other one of two. Ids of conversations say nothing to people.
    package func recipientName(_ members: [AccountID]?, besides sender: AccountID) -> String? {
        let others = members?.filter { $0 != sender } ?? []
        return others.count == 1 ? others[0].name : nil
    }
}

extension ObservedRecipient {
    /// How a message in a conversation with named members is counted for reports.
    fileprivate init(_ recipient: Recipient) {
        self =
            switch recipient {
            case .outsider: .outsider
            case .legacy: .legacy
            case .capable, .changed, .exempt, .room: .room
            }
    }
}
