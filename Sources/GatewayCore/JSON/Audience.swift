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
        let recipient = audience.recipient(in: room)
        let verdict = audience.policy(of: sender, in: room, policies).outbound(to: recipient, latch: latch)
        // A backend that cannot say now who is there must not protect a large room for good, nor let a private text out.
        if members == nil, mapping.members != nil, verdict == .seal(room),
            policies.policy(inRoom: room, by: sender).outbound(to: recipient, latch: latch) == .plaintext
        {
            return .refuse(.members)
        }
        return verdict
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
        let own = policies.policy(of: reader)
        // An account under `off` takes no part in what everyone has, only in what a room demands.
        let everyone = own.takesPart ? policies.everyone : .off
        let room = conversation.map { policies.accounts[.room($0)] ?? .off } ?? policies.strictestRoom
        return max(own, room, everyone).inbound(fromExempt: false, latch: latch)
    }

    /// Whether nothing that an account reads can have to be marked or withheld, so that it may be anything.
    func passesUnread(to reader: AccountID) -> Bool { inbound(to: reader, in: nil, policies.snapshot) == .deliver }

    /// Whether there is nothing to open either: no conversation is protected, and nobody has published a device.
    func hasNothingSealed(for reader: AccountID) -> Bool {
        latches.isEmpty && directory.isEmpty && passesUnread(to: reader)
    }
}

extension JSONEnvironment {
    /// How words for people name the readers of a conversation: the other one of two. Ids of conversations say nothing to people.
    func recipientName(_ members: [AccountID]?, besides sender: AccountID) -> String? {
        let others = members?.filter { $0 != sender } ?? []
        return others.count == 1 ? others[0].name : nil
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

    /// The policy for a message: between two people the strictest of both and the conversation's own, else the room's. If nobody can
    /// tell how many there are, the strictest of all.
    func policy(of sender: AccountID, in room: AccountID, _ policies: PolicySnapshot) -> Policy {
        let inRoom = policies.policy(inRoom: room, by: sender)
        guard let others else { return max(policies.policy(of: sender), inRoom) }
        guard others.count <= 1 else { return inRoom }
        let policy = max(policies.policy(of: sender), policies.accounts[room] ?? .off)
        guard let other = others.first, outsiders.isEmpty else { return policy }
        return Policy.ofConversation(policy, policies.policy(of: other))
    }

    /// How it is counted for reports.
    func observed(in room: AccountID) -> ObservedRecipient {
        switch recipient(in: room) {
        case .outsider: .outsider
        case .legacy: .legacy
        case .capable, .changed, .exempt, .room: .room
        }
    }
}
