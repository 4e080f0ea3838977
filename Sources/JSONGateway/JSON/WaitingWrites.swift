// The writes that wait in the queue, for exchanges that refer to them.

package import Protection
import RequestQueue
import Synchronization

/// The messages and conversations of unfinished writes. Bounded by the queue's own limit.
///
/// Until the backend assigns an id, edits and deletes refer to a message by its client id. Afterwards that client id is
/// dropped: it may equal another message's backend id.
package final class WaitingWrites: Sendable {
    private struct Lane: Hashable {
        package let account: ExactText
        package let conversation: ExactText

        package init(_ account: String, _ conversation: String) {
            (self.account, self.conversation) = (ExactText(account), ExactText(conversation))
        }
    }

    private struct State {
        /// The queue's references of the messages with each name, the latest last.
        package var names: [ExactText: [String]] = [:]
        package var lanes: [Lane: Int] = [:]
    }

    private let state = Mutex(State())

    package init() {}

    /// The name of a message with a client id, unique for its account and conversation.
    package static func name(_ id: String, of account: AccountID, in conversation: String) -> String {
        "\(account.text) \(conversation) \(id)"
    }

    /// The queue's reference of a message with this name. Each write has its own, because clients may repeat an id.
    package static func reference(_ name: String, token: String) -> String { "\(name) \(token)" }

    private static func name(of reference: String) -> ExactText {
        ExactText(String(reference[..<(reference.utf8.lastIndex(of: UInt8(ascii: " ")) ?? reference.endIndex)]))
    }

    /// Adds a write, before it is queued.
    ///
    /// - Parameter references: the queue's references of the message that the write creates.
    package func begin(_ account: String, in conversation: String, _ references: [String]) {
        state.withLock { state in
            state.lanes[Lane(account, conversation), default: 0] += 1
            for reference in references { state.names[Self.name(of: reference), default: []].append(reference) }
        }
    }

    /// Removes a write that is done or has failed.
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

    /// The queue's reference of the latest waiting message with this name; nil if none waits.
    package func reference(of name: String) -> String? { state.withLock { $0.names[ExactText(name)]?.last } }

    /// Whether a write of an account in a conversation waits.
    package func holds(_ account: AccountID, in conversation: String) -> Bool {
        state.withLock { $0.lanes[Lane(account.text, conversation)] != nil }
    }
}
