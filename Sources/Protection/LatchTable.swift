// The latch: the lowest protection that a conversation may use from now on. It rises when a message is committed with
// that protection. It falls only if an operator resets it, or if the backend refuses that message and no other was
// sealed.

package import Envelope
import RequestQueue
import Synchronization

/// The latches that are up, all in memory. A connection reads it for every message.
package final class LatchTable: Sendable {
    private struct State {
        private(set) var latches: [ConversationID: Protection] = [:]
        /// How many latches are at each protection.
        private(set) var counts: [Protection: Int] = [:]
        /// The names by which each account last knew the peers of its latched conversations.
        ///
        /// Plaintext under such a name is withheld if the gateway does not know its sender.
        package var names: [AccountID: [ExactText: AccountID]] = [:]

        mutating func set(_ conversation: ConversationID, to protection: Protection?) {
            if let old = latches.removeValue(forKey: conversation) { counts[old, default: 0] -= 1 }
            guard let protection else { return }
            latches[conversation] = protection
            counts[protection, default: 0] += 1
        }
    }

    private let state = Mutex(State())
    private let counter = Atomic<Int>(0)
    /// Notified when the first latch goes up.
    package let listeners = ChangeListeners()

    package init() {}

    /// Whether no latch is up; costs one load.
    package var isEmpty: Bool { counter.load(ordering: .relaxed) == 0 }

    package var count: Int { counter.load(ordering: .relaxed) }

    /// How many latches are at a protection.
    package func count(at protection: Protection) -> Int { state.withLock { $0.counts[protection] ?? 0 } }

    package func latch(of conversation: ConversationID) -> Protection {
        guard !isEmpty else { return .plaintext }
        return state.withLock { $0.latches[conversation] ?? .plaintext }
    }

    /// Raises a latch; returns whether it was lower before.
    @discardableResult
    package func raise(_ conversation: ConversationID, to protection: Protection) -> Bool {
        let (isRaised, isFirst) = state.withLock { state in
            guard state.latches[conversation, default: .plaintext] < protection else { return (false, false) }
            let isFirst = state.latches.isEmpty
            state.set(conversation, to: protection)
            counter.store(state.latches.count, ordering: .relaxed)
            return (true, isFirst)
        }
        if isFirst { listeners.notify() }
        return isRaised
    }

    /// Lowers a latch to plaintext.
    ///
    /// Only for an operator's reset, for accounts that cease to exist, and for a first message that the backend has
    /// refused.
    package func reset(_ conversation: ConversationID) {
        state.withLock { state in
            state.set(conversation, to: nil)
            state.names[conversation.first]?.remove(peer: conversation.second)
            state.names[conversation.second]?.remove(peer: conversation.first)
            counter.store(state.latches.count, ordering: .relaxed)
        }
    }

    /// Removes all entries of an account that has ceased to exist.
    package func forget(_ account: AccountID) {
        guard !isEmpty else { return }
        let conversations = state.withLock { state in
            state.latches.keys.filter { $0.first == account || $0.second == account }
        }
        conversations.forEach(reset)
        state.withLock { $0.names[account] = nil }
    }

    /// Stores the folded nick by which an account knows the peer of a protected conversation; an empty one is none.
    package func remember(name: String, of peer: AccountID, for account: AccountID) {
        guard !name.isEmpty else { return }
        state.withLock { $0.names[account, default: [:]][name] = peer }
    }

    /// The peer of an account's protected conversation that was last known by this folded nick; nil if there is none.
    package func peer(named name: String, for account: AccountID) -> AccountID? {
        guard !isEmpty else { return nil }
        return state.withLock { $0.names[account]?[name] }
    }

    /// Whether plaintext under this folded nick would appear in one of the account's protected conversations.
    package func isProtectedName(_ name: String, for account: AccountID) -> Bool {
        guard !isEmpty else { return false }
        return state.withLock { $0.names[account]?[name] != nil }
    }
}

extension [ExactText: AccountID] {
    fileprivate mutating func remove(peer: AccountID) {
        self = filter { $0.value != peer }
    }
}
