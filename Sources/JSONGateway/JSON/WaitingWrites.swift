// What waits in the queue, as exchanges have to know it.

package import Protection
import RequestQueue
import Synchronization

/// The messages and conversations of writes that are not done yet. It is as large as the queue may be.
///
/// Whoever edits or deletes a message that the backend has not named yet can name it by nothing but what its client has called
/// it. When the backend has named it, its client knows that name, and the client's own may be the backend's for another message.
package final class WaitingWrites: Sendable {
    private struct Lane: Hashable {
        package let account: ExactText
        package let conversation: ExactText

        package init(_ account: String, _ conversation: String) {
            (self.account, self.conversation) = (ExactText(account), ExactText(conversation))
        }
    }

    private struct State {
        /// What the queue calls the messages of each name, the last one last.
        package var names: [ExactText: [String]] = [:]
        package var lanes: [Lane: Int] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// What a client's own id is a name for: nobody else's, and none of another conversation, is the same.
    package static func name(_ id: String, of account: AccountID, in conversation: String) -> String {
        "\(account.text) \(conversation) \(id)"
    }

    /// What the queue calls a message of this name: each write its own, because clients may give an id twice.
    package static func reference(_ name: String, mark: String) -> String { "\(name) \(mark)" }

    private static func name(of reference: String) -> ExactText {
        ExactText(String(reference[..<(reference.lastIndex(of: " ") ?? reference.endIndex)]))
    }

    /// A write is about to be in the queue.
    ///
    /// - Parameter references: what the queue calls the message that it makes.
    package func begin(_ account: String, in conversation: String, _ references: [String]) {
        state.withLock { state in
            state.lanes[Lane(account, conversation), default: 0] += 1
            for reference in references { state.names[Self.name(of: reference), default: []].append(reference) }
        }
    }

    /// It is done, or will not be.
    package func end(_ account: String, in conversation: String, _ references: [String]) {
        state.withLock { state in
            let lane = Lane(account, conversation)
            if let count = state.lanes[lane] { state.lanes[lane] = count > 1 ? count - 1 : nil }
            for reference in references {
                let name = Self.name(of: reference)
                guard let place = state.names[name]?.firstIndex(of: reference) else { continue }
                state.names[name]?.remove(at: place)
                if state.names[name]?.isEmpty == true { state.names[name] = nil }
            }
        }
    }

    /// What the queue calls the message of this name that waits; the last one of them.
    package func reference(of name: String) -> String? { state.withLock { $0.names[ExactText(name)]?.last } }

    /// Whether something that an account has written in a conversation waits.
    package func holds(_ account: AccountID, in conversation: String) -> Bool {
        state.withLock { $0.lanes[Lane(account.text, conversation)] != nil }
    }
}
