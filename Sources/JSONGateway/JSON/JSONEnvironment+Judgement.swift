// Judges messages: supplies the members of the conversation and the client's device. `Judgement` decides.

import DeviceDirectory
import Envelope
package import Protection

extension JSONEnvironment {
    /// Decides about a text.
    ///
    /// - Parameters:
    ///   - capability: whether the writing client has proven a device.
    ///   - members: the members of the conversation; nil if unknown.
    package func verdict(
        on room: AccountID, by sender: AccountID, _ capability: Capability, _ members: [AccountID]?,
        _ policies: PolicySnapshot
    ) -> Verdict {
        Judgement(policies, latches)
            .outbound(.text, from: Sender(sender, capability), to: audience(of: room, sender, members, policies))
    }

    /// Decides about an envelope of the sender's own device.
    ///
    /// - Parameter members: the members of the conversation; nil if unknown.
    func verdictOnEnvelope(
        to room: AccountID, by sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> EnvelopeVerdict {
        Judgement(policies, latches).envelope(from: sender, to: audience(of: room, sender, members, policies))
    }

    /// Returns the readers of a message, and counts the message for reports.
    private func audience(
        of room: AccountID, _ sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> Audience {
        let members = self.members(members, besides: sender, policies)
        observations.note(
            room.roomName ?? "", ObservedRecipient(members.recipient(in: room)), by: sender)
        return .conversation(room, members)
    }

    private func members(_ members: [AccountID]?, besides sender: AccountID, _ policies: PolicySnapshot) -> Members {
        Members(
            members, besides: sender, canBeAsked: mapping.members != nil, isBehind: { isBehind($0, policies) },
            isCapable: isCapable)
    }

    /// The category under which a message of an account is counted for reports.
    func observed(
        on room: AccountID, by sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> ObservedRecipient {
        ObservedRecipient(self.members(members, besides: sender, policies).recipient(in: room))
    }

    /// Decides about plaintext that the backend delivers to an account.
    ///
    /// - Parameter conversation: nil if unknown; the strictest conversation then decides.
    package func inbound(to reader: AccountID, in conversation: String?, _ policies: PolicySnapshot) -> InboundVerdict {
        Judgement(policies, latches).inbound(to: reader, .conversation(conversation.map { .room($0) }))
    }

    /// Whether all plaintext for an account is delivered unmarked, so that content need not be inspected.
    func passesUnread(to reader: AccountID) -> Bool { inbound(to: reader, in: nil, policies.snapshot) == .deliver }

    /// Whether an account can receive nothing sealed: no latch, no published device, no held key, and
    /// ``passesUnread(to:)``.
    func hasNothingSealed(for reader: AccountID) -> Bool {
        latches.isEmpty && directory.isEmpty && !holdsKeys && passesUnread(to: reader)
    }

    /// The recipients in texts for people, without those who have no device; nil if there are no two members.
    func recipient(_ members: [AccountID]?, besides sender: AccountID) -> NamedRecipient? {
        let others = members?.filter { $0 != sender } ?? []
        return others.count == 1 ? NamedRecipient(name: others[0].name) : nil
    }

    /// The recipients in the text of a refusal.
    ///
    /// - Parameters:
    ///   - members: those of the conversation; nil if unknown.
    ///   - capability: whether the sender's client has proven a device.
    func recipient(
        of refusal: Refusal, _ members: [AccountID]?, besides sender: AccountID, _ capability: Capability
    ) -> NamedRecipient? {
        guard refusal == .room, let members else { return recipient(members, besides: sender) }
        let without = members.filter { $0 != sender && !isCapable($0) }.map(\.name)
        return NamedRecipient(withoutDevice: (capability == .client ? [] : ["you"]) + without)
    }
}

extension ObservedRecipient {
    /// The category under which a message is counted for reports.
    fileprivate init(_ recipient: Recipient) {
        self =
            switch recipient {
            case .outsider: .outsider
            case .legacy: .legacy
            case .capable, .changed, .exempt, .room: .room
            }
    }
}
