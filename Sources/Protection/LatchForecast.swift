// Predicts which conversations a change of policies would protect for good. The report for the operator contains names
// of people and rooms.

import Envelope

/// A conversation that was observed or has members now.
package struct KnownConversation: Sendable, Equatable {
    /// The key of its latch.
    package var id: ConversationID
    /// The name shown to people.
    package var name: String
    /// Whether the policies of its people count: it has two people, or their number is not known.
    package var isPrivate: Bool
    /// Accounts that write there or are there now.
    package var people: Set<AccountID>
    /// The names of its members who are not behind the gateway.
    package var outsiders: Set<String>

    package init(
        id: ConversationID, name: String, isPrivate: Bool, people: Set<AccountID>, outsiders: Set<String> = []
    ) {
        (self.id, self.name, self.isPrivate) = (id, name, isPrivate)
        (self.people, self.outsiders) = (people, outsiders)
    }

    /// The strictest policy for a message from any of its people.
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

/// Conversations that the next message in them protects for good.
package struct LatchForecast: Codable, Sendable, Equatable {
    package struct Rise: Codable, Sendable, Equatable {
        package var conversation: String
        /// Members who are not behind the gateway, and could not read later messages.
        package var outsiders: [String]
    }

    /// Sorted by name.
    package var rises: [Rise]

    /// An empty forecast.
    package init() { rises = [] }

    /// - Parameter conversations: all known conversations, each once.
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
