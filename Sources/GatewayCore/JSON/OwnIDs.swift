// The ids by which clients call messages that wait to be sent, or were sent lately.

import Synchronization

/// What clients have called their messages themselves. Whoever edits or deletes a message that the backend has not named
/// yet can name it by nothing else.
package final class OwnIDs: Sendable {
    /// Ours: ids remembered; with more, the older half is forgotten.
    package static let limit = 200_000

    private struct State {
        var known: Set<String> = []
        var order: [String] = []
    }

    private let state = Mutex(State())

    package init() {}

    /// The name of a message in the queue: nobody else's id, and none of another conversation, is the same.
    static func name(_ id: String, of account: AccountID, in conversation: String) -> String {
        "\(account.text) \(conversation) \(id)"
    }

    package func remember(_ name: String) {
        state.withLock { state in
            guard state.known.insert(name).inserted else { return }
            state.order.append(name)
            guard state.order.count > Self.limit else { return }
            state.known.subtract(state.order.prefix(Self.limit / 2))
            state.order.removeFirst(Self.limit / 2)
        }
    }

    package func contains(_ name: String) -> Bool { state.withLock { $0.known.contains(name) } }
}
