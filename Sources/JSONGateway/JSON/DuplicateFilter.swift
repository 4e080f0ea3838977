// Hides duplicates caused by retrying a write after a lost response.

import Envelope
import Synchronization

/// The backend id under which each message was first seen.
final class DuplicateFilter: Sendable {
    /// Ours: maximum stored messages; beyond it the older half is dropped.
    package static let limit = 100_000

    private struct State {
        package var remoteIDs: [MessageID: String] = [:]
        package var order: [MessageID] = []
    }

    private let state = Mutex(State())

    /// Whether the message was seen before under another id of the backend.
    func isCopy(_ message: MessageID, as remoteID: String) -> Bool {
        state.withLock { state in
            if let first = state.remoteIDs[message] { return first != remoteID }
            state.remoteIDs[message] = remoteID
            state.order.append(message)
            if state.order.count > Self.limit {
                for old in state.order.prefix(Self.limit / 2) { state.remoteIDs[old] = nil }
                state.order.removeFirst(Self.limit / 2)
            }
            return false
        }
    }
}
