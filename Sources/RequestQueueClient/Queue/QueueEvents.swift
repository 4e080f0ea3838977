// What happens in a queue, for observers.

public import RequestQueue
import Synchronization

/// An event of a request, of the network or of the store.
public enum QueueEvent: Sendable {
    /// A request is stored. A dead one that is queued again is reported as well.
    case appended(APIClientQueueRequest)
    /// An attempt begins.
    case sent(APIClientQueueRequest)
    /// An attempt has ended, with success or not.
    case answered(APIClientQueueRequest, AttemptReply)
    /// A request has ended, and that is stored.
    case ended(APIClientQueueRequest, RequestOutcome)
    /// The backend no longer accepts the session key of a tenant. These requests wait for the next login.
    case refused(tenant: String, AttemptReply, [QueuedRequest])
    /// The application has reported that there is a network, or that there is none.
    case reachable(Bool)
    /// The system has ended the background task under which requests were in flight.
    case backgroundTimeEnded
    /// Commits have begun to fail with this error, or work again if nil. Nothing is accepted while they fail.
    case store(QueueStoreError?)
    /// This observer was too slow, and missed this number of events.
    case missed(Int)
}

/// The events of a queue from the moment at which the sequence was made until the queue is closed.
///
/// Each value of this type observes on its own. It is for one loop.
public struct QueueEvents: AsyncSequence, Sendable {
    /// An event.
    public typealias Element = QueueEvent
    /// It cannot fail.
    public typealias Failure = Never

    /// Ours: events that wait for a slow observer. Of more, the oldest are dropped, and ``QueueEvent/missed(_:)`` is
    /// their number.
    public static let capacity = 1024

    fileprivate let stream: AsyncStream<QueueEvent>
    fileprivate let missed: MissedEvents

    /// Iterates over the events.
    public struct Iterator: AsyncIteratorProtocol {
        fileprivate var base: AsyncStream<QueueEvent>.Iterator
        fileprivate let missed: MissedEvents

        /// The next event; nil if the queue is closed or the task is cancelled.
        public mutating func next() async -> QueueEvent? {
            if let count = missed.take() { return .missed(count) }
            return await base.next()
        }

        /// The next event; nil if the queue is closed or the task is cancelled.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> QueueEvent? {
            if let count = missed.take() { return .missed(count) }
            return await base.next(isolation: actor)
        }
    }

    /// Begins to iterate.
    public func makeAsyncIterator() -> Iterator { Iterator(base: stream.makeAsyncIterator(), missed: missed) }
}

/// The number of events that an observer has missed and does not know of yet.
private final class MissedEvents: Sendable {
    private let count = Mutex(0)

    func add() { count.withLock { $0 += 1 } }

    func take() -> Int? {
        count.withLock { count in
            defer { count = 0 }
            return count > 0 ? count : nil
        }
    }
}

/// Passes events on to all observers.
final class QueueObservers: Sendable {
    private struct Observer {
        let continuation: AsyncStream<QueueEvent>.Continuation
        let missed: MissedEvents
    }

    private struct State {
        var observers: [UInt64: Observer] = [:]
        var next: UInt64 = 0
        var isClosed = false
    }

    private let state = Mutex(State())

    var isEmpty: Bool { state.withLock { $0.observers.isEmpty } }

    func add() -> QueueEvents {
        let (stream, continuation) = AsyncStream<QueueEvent>.makeStream(
            bufferingPolicy: .bufferingNewest(QueueEvents.capacity))
        let missed = MissedEvents()
        let number: UInt64? = state.withLock { state in
            guard !state.isClosed else { return nil }
            state.next += 1
            state.observers[state.next] = Observer(continuation: continuation, missed: missed)
            return state.next
        }
        if let number {
            continuation.onTermination = { [weak self] _ in self?.remove(number) }
        } else {
            continuation.finish()
        }
        return QueueEvents(stream: stream, missed: missed)
    }

    private func remove(_ number: UInt64) {
        // Released outside of the lock, because that may end another stream.
        _ = state.withLock { $0.observers.removeValue(forKey: number) }
    }

    func send(_ event: QueueEvent) {
        for observer in state.withLock({ Array($0.observers.values) }) {
            if case .dropped = observer.continuation.yield(event) { observer.missed.add() }
        }
    }

    func close() {
        let observers = state.withLock { state in
            state.isClosed = true
            defer { state.observers = [:] }
            return Array(state.observers.values)
        }
        for observer in observers { observer.continuation.finish() }
    }
}
