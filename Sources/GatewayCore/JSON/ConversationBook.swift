// Who is in which conversation, as the backend has said lately. The keys do not depend on it: all hosted members are one
// recipient, the vault. It decides what is refused and whom the operator is told of.

import Synchronization

/// The members of conversations.
package final class ConversationBook: Sendable {
    /// Ours: how long an answer counts, where nothing was heard of a change. In nanoseconds.
    package static let memory: Int64 = 30_000_000_000
    /// Ours: conversations remembered; with more, all of them are asked for again.
    package static let limit = 50_000
    /// Ours: members of one conversation that are looked at.
    package static let memberLimit = 20_000

    private let members = Mutex<[String: (members: [AccountID], until: Int64)]>([:])

    package init() {}

    /// The members of a conversation; nothing where they have to be asked for.
    package func members(of conversation: String, now: Int64) -> [AccountID]? {
        members.withLock { members in
            guard let entry = members[conversation], entry.until > now else { return nil }
            return entry.members
        }
    }

    package func remember(_ found: [AccountID], of conversation: String, now: Int64) {
        members.withLock { members in
            if members.count >= Self.limit { members.removeAll() }
            members[conversation] = (found, now + Self.memory)
        }
    }

    package func forgetAll() { members.withLock { $0.removeAll() } }

    /// Something has been done to it.
    package func forget(_ conversation: String) {
        members.withLock { $0[conversation] = nil }
    }
}
