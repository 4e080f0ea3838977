// Which conversation a message is in, for requests that name a message only: `PATCH /messages/{message_id}`; and for edits
// that name both, because the backend may go by the message alone.

package import Protection
import RequestQueue
import Synchronization

/// The conversations of messages that accounts have written or read through this gateway, since its start.
///
/// An id counts for the account only that has met it: another account's message gives it no conversation. An id that
/// was met in two conversations gives none either.
package final class MessageConversations: Sendable {
    /// Ours: maximum ids; beyond it the older half is dropped, and the backend is asked for their conversations.
    package static let limit = 50_000

    private struct Key: Hashable {
        let account: AccountID
        let id: ExactText
    }

    private struct State {
        /// Nil for an ambiguous id.
        var conversations: [Key: String?] = [:]
        var order: [Key] = []
    }

    private let state = Mutex(State())

    package init() {}

    package func remember(_ conversation: String, of message: String, for account: AccountID) {
        let key = Key(account: account, id: ExactText(message))
        state.withLock { state in
            if let known = state.conversations[key] {
                if let known, !known.utf8.elementsEqual(conversation.utf8) {
                    state.conversations.updateValue(nil, forKey: key)
                }
                return
            }
            state.conversations.updateValue(conversation, forKey: key)
            state.order.append(key)
            guard state.order.count > Self.limit else { return }
            for old in state.order.prefix(Self.limit / 2) { state.conversations.removeValue(forKey: old) }
            state.order.removeFirst(Self.limit / 2)
        }
    }

    package func forgetAll() { state.withLock { $0 = State() } }

    /// What is known of a message.
    package enum Finding: Equatable, Sendable {
        case conversation(String)
        case ambiguous
        case unknown
    }

    package func find(_ message: String, for account: AccountID) -> Finding {
        state.withLock { state in
            switch state.conversations[Key(account: account, id: ExactText(message))] {
            case .some(.some(let conversation)): .conversation(conversation)
            case .some(.none): .ambiguous
            case .none: .unknown
            }
        }
    }
}

/// Whether an edited message is in the conversation that its edit names.
package enum EditedPlace: Equatable, Sendable {
    /// It is, or nothing depends on it.
    case here
    /// It is in another one, or in several.
    case elsewhere
    /// The account has not met the message with this id.
    case unknown(String)
}

extension JSONEnvironment {
    /// Where the message is that a message edits, as far as the gateway knows.
    ///
    /// While nothing is protected it does not matter. A message that waits in the queue is where it was written.
    package func place(ofEdited found: FoundMessage, by account: AccountID) -> EditedPlace {
        guard isProtecting, let id = found.edited else { return .here }
        switch messages.find(id, for: account) {
        case .conversation(let conversation):
            return ExactText(conversation) == ExactText(found.conversation) ? .here : .elsewhere
        case .ambiguous: return .elsewhere
        case .unknown:
            let waits = writes.waiting.reference(of: WaitingWrites.name(id, of: account, in: found.conversation))
            return waits == nil ? .unknown(id) : .here
        }
    }
}
