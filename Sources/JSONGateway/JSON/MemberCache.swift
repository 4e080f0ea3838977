// A cache of the members of conversations, from recent answers of the backend. The keys do not depend on it, because
// all hosted members are one recipient, the vault. It decides which messages are refused and which outsiders are
// reported.

package import Protection
import RequestQueue
import Synchronization

/// The members of conversations.
///
/// What the backend has told a member counts for all. To others it may name fewer, so such an answer counts for its reader
/// alone: it must not decide about the messages of the members.
package final class MemberCache: Sendable {
    /// Ours: lifetime of an entry, unless a change is noticed earlier. In nanoseconds.
    package static let memory: Int64 = 30_000_000_000
    /// Ours: maximum cached conversations; beyond it the whole cache is dropped.
    package static let limit = 50_000
    /// Ours: maximum members of one conversation; a longer answer counts as unknown.
    package static let memberLimit = 20_000

    private typealias Entry = (members: [AccountID], until: Int64)

    private let members = Mutex<[ExactText: Entry]>([:])
    /// What the backend has told accounts that are not members.
    private let told = Mutex<[ExactText: [AccountID: Entry]]>([:])
    /// Ours: conversations with such answers, and accounts for one of them.
    private static let (toldLimit, readerLimit) = (1_000, 16)

    package init() {}

    /// The members of a conversation; nil if the backend has to be asked.
    ///
    /// - Parameter reader: the account that would ask.
    package func members(of conversation: String, for reader: AccountID? = nil, now: Int64) -> [AccountID]? {
        let shared = members.withLock { $0[ExactText(conversation)] }
        if let shared, shared.until > now { return shared.members }
        guard let reader, let own = told.withLock({ $0[ExactText(conversation)]?[reader] }), own.until > now
        else { return nil }
        return own.members
    }

    /// The conversations in the cache, expired ones too, for reports.
    package var known: [String] { members.withLock { $0.keys.map(\.text) } }

    /// The last known members of a conversation, for reports; nil if there are none in the cache.
    package func lastMembers(of conversation: String) -> [AccountID]? {
        members.withLock { $0[ExactText(conversation)]?.members }
    }

    /// - Parameter reader: the account that has asked; nil if it is a member.
    package func remember(
        _ found: [AccountID], of conversation: String, toldTo reader: AccountID? = nil, now: Int64
    ) {
        if let reader, !found.contains(reader) {
            return told.withLock { told in
                if told.count >= Self.toldLimit { told.removeAll() }
                var entries = told[ExactText(conversation)] ?? [:]
                if entries.count >= Self.readerLimit { entries.removeAll() }
                entries[reader] = (found, now + Self.memory)
                told[ExactText(conversation)] = entries
            }
        }
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

    package func forgetAll() {
        members.withLock { $0.removeAll() }
        told.withLock { $0.removeAll() }
    }

    /// Drops the entry of a conversation that may have changed.
    package func forget(_ conversation: String) {
        members.withLock { $0[ExactText(conversation)] = nil }
        told.withLock { $0[ExactText(conversation)] = nil }
    }
}
