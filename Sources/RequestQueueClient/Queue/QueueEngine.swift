// The thread that owns the machine. It processes events, commits one batch for all of them, and does what the batch
// allows. While a batch is being committed it makes the next one, so that the disk does not wait for the machine.

import Dispatch
import Foundation
import RequestQueue
import Synchronization

/// Runs a `QueueMachine` on a thread of its own, and larger commits on another one. Commits block only these threads.
final class QueueEngine: QueueDriver {
    typealias Act = @Sendable (QueueBatch, QueueAnswers) -> Void

    /// Milliseconds until the next try after a commit has failed.
    static let pause: Int64 = 1_000
    /// Ours: a batch with fewer changes is committed on the same thread, because the other thread costs more than it
    /// would save.
    static let small = 32
    /// Ours: with this number of events the thread wakes during a commit; fewer wait until the commit has ended.
    static let handful = 64
    /// Ours: maximum number of events in a batch. Larger batches cost less per event. But the producers of one commit
    /// return together, and the disk is idle until then unless there are others; and an event in between would wait for
    /// a longer commit.
    static let batch = 256

    /// Wrapping the closure saves an allocation for each array element.
    private struct Boxed {
        let event: MachineEvent
    }

    private struct Inbox {
        var events: [Boxed] = []
        /// Number of events at which the thread is signalled.
        var threshold = 1
        /// Results of the commits on the other thread.
        var committed: [Result<Void, QueueStoreError>] = []
        var isStopping = false
        var hasEnded = false
    }

    private let inbox = Mutex(Inbox())
    private let signal = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let store: any QueueStore
    private let committer: QueueCommitter
    /// Runs what a commit allows.
    private let aftermath = DispatchQueue(label: "pawl.queue.aftermath")

    /// Called when commits begin to fail, and when they work again.
    private let storeChanged: @Sendable (QueueStoreError?) -> Void

    /// The machine until the thread takes it.
    private let machine: Mutex<QueueMachine?>

    init(
        _ machine: QueueMachine, store: any QueueStore,
        storeChanged: @escaping @Sendable (QueueStoreError?) -> Void = { _ in }
    ) {
        self.machine = Mutex(machine)
        self.store = store
        self.storeChanged = storeChanged
        committer = QueueCommitter(store)
    }

    /// Starts the thread. Call it once, before ``post(_:)``.
    func start(_ act: @escaping Act) {
        let taken = machine.withLock { machine in
            defer { machine = nil }
            return machine
        }
        guard let machine = taken else { return }
        let thread = Thread { [self] in
            var loop = Loop(engine: self, machine: machine, act: act)
            loop.run()
            committer.stop()
            aftermath.sync {}
            ended.signal()
        }
        thread.name = "pawl.queue"
        thread.start()
    }

    /// Adds an event for the thread.
    ///
    /// - Returns: whether it will be processed; false if the thread has ended.
    @discardableResult
    func post(_ event: @escaping MachineEvent) -> Bool {
        let (isPosted, isDue) = inbox.withLock { inbox in
            guard !inbox.hasEnded else { return (false, false) }
            inbox.events.append(Boxed(event: event))
            // One signal for all events that come before the thread takes them.
            return (true, inbox.events.count == inbox.threshold)
        }
        if isDue { signal.signal() }
        return isPosted
    }

    /// Ends the thread once all posted events are committed.
    func stop() {
        inbox.withLock { $0.isStopping = true }
        signal.signal()
        ended.wait()
        ended.signal()
    }

    /// The zero of the uptime clock. The clock does not stop while the computer sleeps, so pauses and ages pass
    /// overnight.
    private static let epoch = ContinuousClock.now

    static func now() -> QueueTime {
        let wall = Date().timeIntervalSince1970
        return QueueTime(wall: Int64(wall * 1000), uptime: (ContinuousClock.now - epoch).milliseconds)
    }

    // MARK: The thread

    /// A batch, and the answers that wait for its commit.
    private struct Flight {
        var batch: QueueBatch
        var answers: [QueueAnswer]
    }

    /// Events and results that have arrived.
    private struct News {
        var events: [Boxed]
        var committed: [Result<Void, QueueStoreError>]
        /// Whether no more events will come.
        var isEnd = false
    }

    /// Waits until there is something to do, or until a time.
    ///
    /// - Parameters:
    ///   - threshold: number of events that end the wait. A finished commit ends it as well.
    ///   - spare: an empty array to exchange for the events; nil leaves them in the inbox.
    private func wait(until wake: Int64?, threshold: Int, _ spare: [Boxed]?) -> News {
        let isDue = inbox.withLock { inbox in
            inbox.threshold = threshold
            let isEnding = inbox.isStopping && !inbox.hasEnded && spare != nil
            return inbox.events.count >= threshold || !inbox.committed.isEmpty || isEnding
        }
        if !isDue {
            if let wake {
                let left = max(wake - Self.now().uptime, 0)
                // Checked each minute, because this wait stops while the computer sleeps.
                if left > 0 { _ = signal.wait(timeout: .now() + .milliseconds(Int(min(left, 60_000)))) }
            } else {
                signal.wait()
            }
        }
        return inbox.withLock { inbox in
            var news = News(events: spare ?? [], committed: inbox.committed)
            if spare != nil {
                swap(&news.events, &inbox.events)
                inbox.hasEnded = inbox.isStopping
            }
            news.isEnd = inbox.hasEnded
            inbox.committed.removeAll(keepingCapacity: true)
            return news
        }
    }

    /// The state of the thread.
    private struct Loop {
        let engine: QueueEngine
        var machine: QueueMachine
        let act: Act
        /// The batch that is being committed on the other thread, and the next one.
        var underWay: [Flight] = []
        /// Events that have arrived, and the index of the first that the machine has not processed.
        var events: [Boxed] = []
        var next = 0
        /// Number of events that the machine has processed since the last turn, and their answers.
        var taken = 0
        var answers: [QueueAnswer] = []
        /// Whether the last commit has failed.
        var isFailing = false

        mutating func run() {
            var wake: Int64? = QueueEngine.now().uptime
            var isLast = false
            repeat {
                // No batch can follow before a commit has ended, so no time limit is needed.
                let news = engine.wait(
                    until: underWay.isEmpty ? wake : nil, threshold: threshold, events.isEmpty ? events : nil)
                if events.isEmpty { events = news.events }
                let now = QueueEngine.now()
                var failure: QueueStoreError?
                for result in news.committed where !underWay.isEmpty {
                    switch result {
                    case .success: succeed(underWay.removeFirst())
                    case .failure(let error):
                        failure = error
                        fail(error)
                    }
                }
                takeIn(now)
                let isAwaited = underWay.isEmpty || underWay.count == 1 && taken == QueueEngine.batch
                if isAwaited, !isLast, failure == nil || taken > 0 || news.isEnd {
                    isLast = news.isEnd && events.isEmpty
                    failure = turn(now)
                }
                wake = failure == nil ? machine.nextWake() : now.uptime + QueueEngine.pause
            } while !isLast || !underWay.isEmpty
        }

        /// Number of events that are worth waking for.
        private var threshold: Int {
            if taken == QueueEngine.batch { return .max }
            if !events.isEmpty { return 0 }
            return underWay.isEmpty ? 1 : min(QueueEngine.handful, QueueEngine.batch - taken)
        }

        /// Processes as many events as there is room for in one batch.
        private mutating func takeIn(_ now: QueueTime) {
            let count = min(events.count - next, QueueEngine.batch - taken)
            for boxed in events[next..<next + count] {
                if let answer = boxed.event(&machine, now) { answers.append(answer) }
            }
            taken += count
            next += count
            guard next == events.count else { return }
            events.removeAll(keepingCapacity: true)
            next = 0
        }

        /// Commits the processed events, or begins to.
        private mutating func turn(_ now: QueueTime) -> QueueStoreError? {
            let flight = Flight(batch: machine.turn(now: now), answers: answers)
            (answers, taken) = ([], 0)
            guard underWay.isEmpty, flight.batch.changes.count < QueueEngine.small else {
                underWay.append(flight)
                engine.committer.begin(flight.batch.changes) { [engine] in engine.finished($0) }
                return nil
            }
            if !flight.batch.changes.isEmpty {
                do throws(QueueStoreError) {
                    try engine.store.commit(flight.batch.changes)
                } catch {
                    underWay.append(flight)
                    fail(error)
                    return error
                }
            }
            succeed(flight)
            return nil
        }

        /// Does what a committed batch allows; for a large one on another thread, in the order of the batches. Each
        /// answer and each attempt wakes a task, and the machine can continue meanwhile.
        private mutating func succeed(_ flight: Flight) {
            if isFailing, !flight.batch.changes.isEmpty {
                isFailing = false
                engine.storeChanged(nil)
            }
            let act = act
            let answers = QueueAnswers(flight.answers, nil)
            let work: @Sendable () -> Void = {
                act(flight.batch, answers)
                answers.giveAll()
            }
            let isLarge = flight.batch.changes.count >= QueueEngine.small
            if isLarge { engine.aftermath.async(execute: work) } else { engine.aftermath.sync(execute: work) }
        }

        /// Undoes the failed batch and all later changes, which depend on it, the last first.
        private mutating func fail(_ error: QueueStoreError) {
            if !isFailing { engine.storeChanged(error) }
            isFailing = true
            engine.committer.forget()
            for flight in underWay.reversed() { _ = machine.failed(flight.batch) }
            let all = QueueAnswers(underWay.flatMap(\.answers) + answers, error)
            (underWay, answers, taken) = ([], [], 0)
            all.giveAll()
        }
    }

    private func finished(_ result: Result<Void, QueueStoreError>) {
        inbox.withLock { $0.committed.append(result) }
        signal.signal()
    }
}

extension Duration {
    /// Whole milliseconds.
    var milliseconds: Int64 {
        let (seconds, attoseconds) = components
        let (milliseconds, overflow) = seconds.multipliedReportingOverflow(by: 1000)
        guard !overflow else { return seconds > 0 ? .max : .min }
        return milliseconds &+ attoseconds / 1_000_000_000_000_000
    }
}
