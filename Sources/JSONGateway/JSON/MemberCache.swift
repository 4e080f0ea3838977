// A cache of the members of conversations, from recent answers of the backend. The keys do not depend on it, because
// all hosted members are one recipient, the vault. It decides which messages are refused and which outsiders are
// reported.

package import Protection
import RequestQueue
import Synchronization

/// The members of conversations.
package final class MemberCache: Sendable {
    /// Ours: lifetime of an entry, unless a change is noticed earlier. In nanoseconds.
    package static let memory: Int64 = 30_000_000_000
    /// Ours: maximum cached conversations; beyond it the whole cache is dropped.
    package static let limit = 50_000
    /// Ours: maximum members of one conversation; a longer answer counts as unknown.
    package static let memberLimit = 20_000

    private let members = Mutex<[ExactText: (members: [AccountID], until: Int64)]>([:])

    package init() {}

    /// The members of a conversation; nil if the backend has to be asked.
    package func members(of conversation: String, now: Int64) -> [AccountID]? {
        members.withLock { members in
            guard let entry = members[ExactText(conversation)], entry.until > now else { return nil }
            return entry.members
        }
    }

    /// The conversations in the cache, expired ones too, for reports.
    package var known: [String] { members.withLock { $0.keys.map(\.text) } }

    /// The last known members of a conversation, for reports; nil if there are none in the cache.
    package func lastMembers(of conversation: String) -> [AccountID]? {
        members.withLock { $0[ExactText(conversation)]?.members }
    }

    package func remember(_ found: [AccountID], of conversation: String, now: Int64) {
        members.withLock { members in
            if members.count >= Self.limit { members.removeAll() }
            members[ExactText(conversation)] = (found, now + Self.memory)
        }
    }

    /// The members of current entries for which `isBehind` is false.
    ///
    /// - Parameter limit: maximum number of results.
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

    /// Drops the entry of a conversation that may have changed.
    package func forget(_ conversation: String) {
        members.withLock { $0[ExactText(conversation)] = nil }
    }
}
