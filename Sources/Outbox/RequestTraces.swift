// The lives of the last messages, in memory: each event is a few words written under a lock, and nothing of it goes to the
// store. After a restart a trace shows what the store has: when it was accepted, when it ended, and why.

package import Devices
import Synchronization

/// The life of one message since its commit. Times are in milliseconds since 1970.
package struct RequestTrace: Sendable, Equatable {
    package var id: UInt64
    /// Nothing where that was before the process started.
    package var committedAt: Int64?
    /// When each attempt to send it began; the oldest are dropped where there are more than ``attemptLimit``.
    package var sentAt: [Int64] = []
    package var attempts = 0
    package var acknowledgedAt: Int64?
    package var openedAt: Int64?
    /// When the first client was shown it, and how many were.
    package var shownAt: Int64?
    package var shownTo = 0
    /// The last time that a line with its id could not be opened, and why.
    package var notOpenedAt: Int64?
    package var notOpened: OpenFailure?

    /// Ours: attempts whose times are kept.
    static let attemptLimit = 8
}

/// The last messages, by id.
package final class RequestTraces: Sendable {
    /// Something that happens to a message.
    package enum Event {
        case committed, sent, acknowledged, opened, shown
        case notOpened(OpenFailure)
    }

    fileprivate struct State {
        package var ring: [RequestTrace] = []
        package var places: [UInt64: Int] = [:]
        package var next = 0
    }

    /// Ours: messages whose lives are kept, about 200 bytes each.
    package static let limit = 8192
    private let limit: Int
    private let state = Mutex(State())

    package init(limit: Int = RequestTraces.limit) { self.limit = max(limit, 1) }

    package subscript(id: UInt64) -> RequestTrace? {
        state.withLock { state in state.places[id].map { state.ring[$0] } }
    }

    /// Notes an event. Only what this gateway has committed or sent gets a trace: ids in lines of the backend are
    /// anybody's.
    package func note(_ event: Event, of id: UInt64, at time: Int64) {
        state.withLock { state in
            let isOurs: Bool =
                switch event {
                case .committed, .sent: true
                default: false
                }
            guard let place = state.places[id] ?? (isOurs ? state.add(id, limit) : nil) else { return }
            state.ring[place].note(event, at: time)
        }
    }
}

extension RequestTraces.State {
    fileprivate mutating func add(_ id: UInt64, _ limit: Int) -> Int {
        let trace = RequestTrace(id: id)
        if ring.count < limit {
            places[id] = ring.count
            ring.append(trace)
            return ring.count - 1
        }
        defer { next = (next + 1) % limit }
        places[ring[next].id] = nil
        places[id] = next
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
