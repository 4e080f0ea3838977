// Which names of conversations are ids, for requests that may name a conversation in another way: by another name it would
// have neither its policy nor its latch.

import RequestQueue
import Synchronization

/// The names of conversations of which the backend has confirmed that they are ids, since the gateway's start.
package final class ConfirmedConversations: Sendable {
    /// Ours: maximum names; beyond it all are dropped, and the backend is asked again.
    package static let limit = 50_000

    private let names = Mutex<Set<ExactText>>([])

    package init() {}

    package func contains(_ conversation: String) -> Bool { names.withLock { $0.contains(ExactText(conversation)) } }

    package func add(_ conversation: String) {
        names.withLock { names in
            if names.count >= Self.limit { names.removeAll() }
            names.insert(ExactText(conversation))
        }
    }

    package func forgetAll() { names.withLock { $0.removeAll() } }
}

extension JSONEnvironment {
    /// Whether the backend has to confirm the conversation of a message before it is judged.
    ///
    /// While nothing is protected it does not matter.
    func isUnconfirmed(_ found: FoundMessage) -> Bool {
        found.shape.isConfirmed && isProtecting && !confirmed.contains(found.conversation)
    }
}
