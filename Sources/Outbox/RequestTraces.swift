// Traces of the last messages, in memory only: an event costs a few writes under a lock. After a restart a trace shows
// the stored facts: when the request was accepted, when it ended, and why.

package import Devices
import Synchronization

/// The events of one message since its commit. Times are in milliseconds since 1970.
package struct RequestTrace: Sendable, Equatable {
    package var id: UInt64
    /// Nil if that was before the process started.
    package var committedAt: Int64?
    /// When each attempt to send it began; only the last ``attemptLimit``.
    package var sentAt: [Int64] = []
    package var attempts = 0
    package var acknowledgedAt: Int64?
    package var openedAt: Int64?
    /// When the first client was shown the message, and how many clients were.
    package var shownAt: Int64?
    package var shownTo = 0
    /// The last time that a line with its id could not be opened, and why.
    package var notOpenedAt: Int64?
    package var notOpened: OpenFailure?

    /// Ours: attempts whose times are kept.
    static let attemptLimit = 8
}

/// The traces of the last messages, by id.
package final class RequestTraces: Sendable {
    /// An event of a message.
    package enum Event {
        case committed, sent, acknowledged, opened, shown
        case notOpened(OpenFailure)
    }

    fileprivate struct State {
        package var ring: [RequestTrace] = []
        package var indices: [UInt64: Int] = [:]
        package var next = 0
    }

    /// Ours: messages with a trace, about 200 bytes each.
    package static let limit = 8192
    private let limit: Int
    private let state = Mutex(State())

    package init(limit: Int = RequestTraces.limit) { self.limit = max(limit, 1) }

    package subscript(id: UInt64) -> RequestTrace? {
        state.withLock { state in state.indices[id].map { state.ring[$0] } }
    }

    /// Notes an event. Only messages that this gateway has committed or sent get a trace: ids in lines from the backend
    /// are chosen by others.
    package func note(_ event: Event, of id: UInt64, at time: Int64) {
        state.withLock { state in
            let isOurs: Bool =
                switch event {
                case .committed, .sent: true
                default: false
                }
            guard let index = state.indices[id] ?? (isOurs ? state.add(id, limit) : nil) else { return }
            state.ring[index].note(event, at: time)
        }
    }
}

extension RequestTraces.State {
    fileprivate mutating func add(_ id: UInt64, _ limit: Int) -> Int {
        let trace = RequestTrace(id: id)
        if ring.count < limit {
            indices[id] = ring.count
            ring.append(trace)
            return ring.count - 1
        }
        defer { next = (next + 1) % limit }
        indices[ring[next].id] = nil
        indices[id] = next
        ring[next] = trace
        return next
    }
}

extension RequestTrace {
    fileprivate mutating func note(_ event: RequestTraces.Event, at time: Int64) {
        switch event {
        case .committed: committedAt = committedAt ?? time
        case .sent:
            attempts += 1
            if sentAt.count == Self.attemptLimit { sentAt.removeFirst() }
            sentAt.append(time)
        case .acknowledged: acknowledgedAt = acknowledgedAt ?? time
        case .opened: openedAt = openedAt ?? time
        case .shown:
            shownAt = shownAt ?? time
            shownTo += 1
        case .notOpened(let failure): (notOpenedAt, notOpened) = (time, failure)
        }
    }
}
