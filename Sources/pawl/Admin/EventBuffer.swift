// The events that a subscriber has not taken yet.

import Synchronization

/// A bounded queue of events. A reader that falls behind gets one last event instead of those that wait.
struct EventBuffer<Event: Sendable>: Sendable {
    /// What a reader gets.
    enum Next: Sendable {
        case event(Event)
        /// Nothing waits now.
        case wait
        /// There are no more events.
        case end
    }

    private let limit: Int
    private var events: [Event] = []
    /// Whether later events are accepted.
    private(set) var isOpen = true

    init(limit: Int) { self.limit = limit }

    /// Adds an event. If too many wait, they are dropped, and `overflow` is the last event.
    ///
    /// - Returns: whether later events are accepted.
    mutating func add(_ event: Event, overflow: Event) -> Bool {
        guard isOpen else { return false }
        if events.count < limit { events.append(event) } else { (events, isOpen) = ([overflow], false) }
        return isOpen
    }

    /// Accepts no more events. Those that wait are still read, and then this one.
    mutating func end(with last: Event? = nil) {
        guard isOpen else { return }
        isOpen = false
        if let last { events.append(last) }
    }

    mutating func next() -> Next {
        guard !events.isEmpty else { return isOpen ? .wait : .end }
        return .event(events.removeFirst())
    }
}

/// An ``EventBuffer`` between a task that adds events and one that reads them.
final class EventChannel<Event: Sendable>: Sendable {
    private struct State {
        var buffer: EventBuffer<Event>
        /// The reader that waits for an event.
        var reader: CheckedContinuation<Event?, Never>?
    }

    private let state: Mutex<State>
    /// Called once, when no more events are accepted.
    private let onEnd: @Sendable () -> Void

    init(limit: Int, onEnd: @escaping @Sendable () -> Void) {
        state = Mutex(State(buffer: EventBuffer(limit: limit)))
        self.onEnd = onEnd
    }

    /// Adds an event; see ``EventBuffer/add(_:overflow:)``.
    func add(_ event: Event, overflow: Event) -> Bool {
        change { $0.add(event, overflow: overflow) }
    }

    /// Accepts no more events.
    func end(with last: Event? = nil) { change { $0.end(with: last) } }

    /// Waits for the next event; nil after the last, or if the task is cancelled.
    func next() async -> Event? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { reader in
                hand { state in
                    precondition(state.reader == nil, "one task reads the events of a channel")
                    state.reader = reader
                }
            }
        } onCancel: {
            // A reader that waits has read everything, so it gets the end.
            end()
        }
    }

    private func change<Result: Sendable>(_ body: (inout EventBuffer<Event>) -> Result) -> Result {
        var ends = false
        let result = hand { state in
            let wasOpen = state.buffer.isOpen
            defer { ends = wasOpen && !state.buffer.isOpen }
            return body(&state.buffer)
        }
        if ends { onEnd() }
        return result
    }

    /// Changes the state, and hands the next event to a reader that waits.
    @discardableResult private func hand<Result: Sendable>(_ body: (inout State) -> Result) -> Result {
        let (result, reader, event): (Result, CheckedContinuation<Event?, Never>?, Event?) = state.withLock { state in
            let result = body(&state)
            guard let reader = state.reader else { return (result, nil, nil) }
            switch state.buffer.next() {
            case .wait: return (result, nil, nil)
            case .event(let event):
                state.reader = nil
                return (result, reader, event)
            case .end:
                state.reader = nil
                return (result, reader, nil)
            }
        }
        reader?.resume(returning: event)
        return result
    }
}
