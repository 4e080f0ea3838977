// Who is in which conversation, as the backend has said lately. The keys do not depend on it: all hosted members are one
// recipient, the vault. It decides what is refused and whom the operator is told of.

package import Protection
import RequestQueue
import Synchronization

/// The members of conversations.
package final class ConversationBook: Sendable {
    /// Ours: how long an answer counts, where nothing was heard of a change. In nanoseconds.
    package static let memory: Int64 = 30_000_000_000
    /// Ours: conversations remembered; with more, all of them are asked for again.
    package static let limit = 50_000
    /// Ours: members of one conversation that are looked at.
    package static let memberLimit = 20_000

    private let members = Mutex<[ExactText: (members: [AccountID], until: Int64)]>([:])

    package init() {}

    /// The members of a conversation; nothing where they have to be asked for.
    package func members(of conversation: String, now: Int64) -> [AccountID]? {
        members.withLock { members in
            guard let entry = members[ExactText(conversation)], entry.until > now else { return nil }
            return entry.members
        }
    }

    /// The conversations whose members were asked for, for reports.
    package var known: [String] { members.withLock { $0.keys.map(\.text) } }

    /// The members of a conversation when they were last asked for, for reports; nil if they were not.
    package func lastMembers(of conversation: String) -> [AccountID]? {
        members.withLock { $0[ExactText(conversation)]?.members }
    }

    package func remember(_ found: [AccountID], of conversation: String, now: Int64) {
        members.withLock { members in
            if members.count >= Self.limit { members.removeAll() }
            members[ExactText(conversation)] = (found, now + Self.memory)
        }
    }

    /// Members of the conversations that were asked for lately, of whom this is not true.
    ///
    /// - Parameter limit: at most so many.
    package func outsiders(
        now: Int64, limit: Int, isBehind: (AccountID) -> Bool
    ) -> [(account: AccountID, conversation: String)] {
        let known = members.withLock { $0.filter { $0.value.until > now } }
        var found: [(account: AccountID, conversation: String)] = []
        for (conversation, entry) in known.sorted(by: { $0.key < $1.key }) {
            for member in entry.members where !isBehind(member) {
                found.append((member, conversation.text))
                if found.count == limit { return found }
            }
        }
        return found
    }

    package func forgetAll() { members.withLock { $0.removeAll() } }

    /// Something has been done to it.
    package func forget(_ conversation: String) {
        members.withLock { $0[ExactText(conversation)] = nil }
    }
}
