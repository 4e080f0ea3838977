// Who a message is for, and what is due to it: the table of design section 2 for backends whose conversations are all
// rooms, some of them of two people.

import Envelope

extension JSONEnvironment {
    /// What becomes of a text.
    ///
    /// - Parameter members: of the conversation; nothing where the backend does not say.
    func verdict(
        on room: AccountID, by sender: AccountID, _ members: [AccountID]?, _ policies: PolicySnapshot
    ) -> Verdict {
        let audience = Audience(members, besides: sender) { isBehind($0, policies) }
        observations.note(room.roomName ?? "", audience.observed(in: room), by: sender)
        let latch = latches.latch(of: ConversationID(room, room))
        return audience.policy(of: sender, in: room, policies).outbound(to: audience.recipient(in: room), latch: latch)
    }
}

extension JSONEnvironment {
    /// What becomes of plain text that the backend hands to an account.
    ///
    /// - Parameter conversation: nothing where nobody can tell: then it is what would become of it in the strictest.
    func inbound(to reader: AccountID, in conversation: String?, _ policies: PolicySnapshot) -> Policy.Inbound {
        let latch: Protection =
            if let conversation { latches.latch(of: .ofRoom(conversation)) } else {
                latches.isEmpty ? .plaintext : .gateway
            }
        let room = conversation.map { policies.accounts[.room($0)] ?? .off } ?? policies.strictestRoom
        let own = policies.policy(of: reader)
        // An account under `off` takes no part in what everyone has, only in what a room demands.
        let scope = own == .off ? room : max(room, policies.everyone)
        return max(own, scope).inbound(fromExempt: false, latch: latch)
    }

    /// Whether nothing that an account reads can have to be marked or withheld, so that it may be anything.
    func passesUnread(to reader: AccountID) -> Bool { inbound(to: reader, in: nil, policies.snapshot) == .deliver }

    /// Whether there is nothing to open either: no conversation is protected, and nobody has published a device.
    func hasNothingSealed(for reader: AccountID) -> Bool {
        latches.isEmpty && directory.isEmpty && passesUnread(to: reader)
    }
}

/// What is known of the readers of one conversation.
package struct Audience: Sendable, Equatable {
    /// Everybody but the sender; nothing where the backend has not said who they are.
    package var others: [AccountID]?
    /// Those of them that the gateway cannot give a key.
    package var outsiders: [AccountID]

    /// - Parameter isBehind: whether an account is behind this gateway and takes part.
    init(_ members: [AccountID]?, besides sender: AccountID, isBehind: (AccountID) -> Bool) {
        others = members?.filter { $0 != sender }
        outsiders = (others ?? []).filter { !isBehind($0) }
    }

    /// As the table of policies sees them. What is sealed is sealed for the conversation, in whose place the vault reads.
    func recipient(in room: AccountID) -> Recipient {
        guard let others, others.count == 1 else { return .room(room) }
        return outsiders.isEmpty ? .legacy(room) : .outsider
    }

    /// The policy that counts: the strictest of the sender, the room, and the other one of two.
    func policy(of sender: AccountID, in room: AccountID, _ policies: PolicySnapshot) -> Policy {
        var policy = policies.policy(of: sender)
        if let own = policies.accounts[room] { policy = max(policy, own) }
        if let others, others.count == 1, outsiders.isEmpty {
            policy = Policy.ofConversation(policy, policies.policy(of: others[0]))
        }
        return policy
    }

    /// How it is counted for reports.
    func observed(in room: AccountID) -> ObservedRecipient {
        switch recipient(in: room) {
        case .outsider: .outsider
        case .legacy: .legacy
        default: .room
        }
    }
}
