// Which conversations a change of policies would protect for good. Names of people and rooms appear here, for the operator.

import Envelope

/// A conversation that was observed or has members now.
package struct KnownConversation: Sendable, Equatable {
    /// Whose latch it is.
    package var id: ConversationID
    /// As people know it.
    package var name: String
    /// Whether the policies of its people count: it has two, or nobody can tell how many.
    package var isPrivate: Bool
    /// Accounts that write there or are there now.
    package var people: Set<AccountID>
    /// Names of its members who are not behind the gateway.
    package var outsiders: Set<String>

    package init(
        id: ConversationID, name: String, isPrivate: Bool, people: Set<AccountID>, outsiders: Set<String> = []
    ) {
        (self.id, self.name, self.isPrivate) = (id, name, isPrivate)
        (self.people, self.outsiders) = (people, outsiders)
    }

    /// The strictest policy for a message of any of its people.
    package func policy(_ policies: PolicySnapshot) -> Policy {
        let room = id.first.roomName == nil ? nil : id.first
        var strictest = room.map { policies.policy(inRoom: $0, by: nil) } ?? policies.everyone
        if isPrivate, let first = people.first {
            strictest = people.reduce(policies.policy(of: first)) { max($0, policies.policy(of: $1)) }
            if let room { strictest = max(strictest, policies.accounts[room] ?? .off) }
        } else if let room {
            strictest = people.reduce(strictest) { max($0, policies.policy(inRoom: room, by: $1)) }
        }
        return strictest
    }
}

/// Conversations that become protected for good with the next message in them.
package struct LatchForecast: Codable, Sendable, Equatable {
    package struct Rise: Codable, Sendable, Equatable {
        package var conversation: String
        /// Members who are not behind the gateway, and could not read what is written from then on.
        package var outsiders: [String]
    }

    /// In the order of their names.
    package var rises: [Rise]

    /// Nothing is known.
    package init() { rises = [] }

    /// - Parameter conversations: all that are known; each once.
    package init(
        _ conversations: [KnownConversation], from old: PolicySnapshot, to new: PolicySnapshot, _ latches: LatchTable
    ) {
        rises = conversations.filter { conversation in
            latches.latch(of: conversation.id) == .plaintext && !conversation.policy(old).sealsEndToGateway
                && conversation.policy(new).sealsEndToGateway
        }.map { Rise(conversation: $0.name, outsiders: $0.outsiders.sorted()) }
            .sorted { $0.conversation < $1.conversation }
    }
}
