// A write whose answer was lost is said again, and a backend that cannot tell keeps it twice. People see it once.

import Envelope
import Synchronization

/// Under which id of the backend each message was first seen.
final class FirstSights: Sendable {
    /// Ours: messages remembered; with more, the older half is forgotten.
    package static let limit = 100_000

    private struct State {
        package var remoteIDs: [MessageID: String] = [:]
        package var order: [MessageID] = []
    }

    private let state = Mutex(State())

    /// Whether the same message was seen before under another id.
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
