// The readers of a conversation of a backend whose conversations are all rooms, some of them of two people.

/// What is known of the readers of one conversation.
package struct Members: Sendable, Equatable {
    /// All members but the sender; nil if the backend has not said who they are.
    package let others: [AccountID]?
    /// Those of them that the gateway cannot give a key.
    package let outsiders: [AccountID]
    /// Whether there are others, and all of them have devices of their own.
    package let areCapable: Bool
    /// Whether the backend can say who is in a conversation at all.
    package let canBeAsked: Bool

    /// - Parameters:
    ///   - members: the sender may be among them; nil if the backend has not said who they are.
    ///   - canBeAsked: whether the backend can say it at all.
    ///   - isBehind: whether an account is behind this gateway and takes part.
    ///   - isCapable: whether an account has devices of its own.
    package init(
        _ members: [AccountID]?, besides sender: AccountID, canBeAsked: Bool, isBehind: (AccountID) -> Bool,
        isCapable: (AccountID) -> Bool
    ) {
        let others = members?.filter { $0 != sender }
        self.others = others
        self.canBeAsked = canBeAsked
        outsiders = (others ?? []).filter { !isBehind($0) }
        areCapable = others.map { !$0.isEmpty && $0.allSatisfy(isCapable) } ?? false
    }

    /// The members as one recipient. What is sealed is sealed for the conversation; the vault reads in its place.
    package func recipient(in room: AccountID) -> Recipient {
        guard let others, others.count == 1 else { return .room(room) }
        return outsiders.isEmpty ? .legacy(room) : .outsider
    }

    /// The policy for a message: between two people the strictest of both and the conversation's own, else the room's. If the number of
    /// readers is not known, the strictest of all.
    package func policy(of sender: AccountID, in room: AccountID, _ policies: PolicySnapshot) -> Policy {
        let inRoom = policies.policy(inRoom: room, by: sender)
        guard let others else { return max(policies.policy(of: sender), inRoom) }
        guard others.count <= 1 else { return inRoom }
        let policy = max(policies.policy(of: sender), policies.accounts[room] ?? .off)
        guard let other = others.first, outsiders.isEmpty else { return policy }
        return Policy.ofConversation(policy, policies.policy(of: other))
    }
}
