// The readers of a conversation, for backends whose conversations are all rooms, some of them of two people.

/// The known readers of one conversation.
package struct Members: Sendable, Equatable {
    /// All members but the sender; nil if the backend has not listed them.
    package let others: [AccountID]?
    /// Members without a key from the gateway.
    package let outsiders: [AccountID]
    /// Whether there are other members, and all of them have devices of their own.
    package let areCapable: Bool
    /// Whether the backend can list the members of a conversation.
    package let canBeAsked: Bool

    /// - Parameters:
    ///   - members: may include the sender; nil if the backend has not listed them.
    ///   - canBeAsked: whether the backend can list them.
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

    /// The members as one recipient. Messages are sealed for the conversation; the vault opens them for its members.
    package func recipient(in room: AccountID) -> Recipient {
        guard let others, others.count == 1 else { return .room(room) }
        return outsiders.isEmpty ? .legacy(room) : .outsider
    }

    /// The policy for a message.
    ///
    /// Between two people: the strictest of both and the conversation's own. With more readers: that of the room. If
    /// the number of readers is not known: the stricter of the sender's and the room's.
    package func policy(of sender: AccountID, in room: AccountID, _ policies: PolicySnapshot) -> Policy {
        let inRoom = policies.policy(inRoom: room, by: sender)
        guard let others else { return max(policies.policy(of: sender), inRoom) }
        guard others.count <= 1 else { return inRoom }
        let policy = max(policies.policy(of: sender), policies.accounts[room] ?? .off)
        guard let other = others.first, outsiders.isEmpty else { return policy }
        return Policy.ofConversation(policy, policies.policy(of: other))
    }
}
