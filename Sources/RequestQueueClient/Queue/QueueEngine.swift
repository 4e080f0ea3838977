// The thread that owns the machine: takes what has come in, has one batch committed for all of it, and does what the batch
// allows. While one is being committed it makes the next one, so that the disk need not wait for the machine.

import Dispatch
import Foundation
import RequestQueue
import Synchronization

/// Runs a ``QueueMachine`` on a thread of its own, and larger commits on another one. Commits block those and nobody else.
final class QueueEngine: Sendable {
    /// Something that changes the machine. What it returns is given when the batch is committed, or with why it is not.
    typealias Event = @Sendable (inout QueueMachine, QueueTime) -> QueueAnswer?
    /// Does what a batch allows. It may give answers that stand behind it anyway.
    typealias Act = @Sendable (QueueBatch, QueueAnswers) -> Void

    /// Milliseconds until the next try after a commit has failed.
    static let pause: Int64 = 1_000
    /// A smaller batch is committed where it is made: the way to another thread would cost more than can be done meanwhile.
    static let small = 32
    /// So many events are taken in while a commit goes on; fewer wait until it has ended.
    static let handful = 64
    /// So many make a batch. More would cost less each; but those who are told of one commit come back together, and the disk
    /// has nothing to do until then, unless there are others. And who comes in between waits for one batch and not for all.
    static let batch = 256

    /// In a list a function is kept in a box of its own, unless it is part of something.
    private struct Boxed {
        let event: Event
    }

    private struct Inbox {
        var events: [Boxed] = []
        /// The thread is told of that many.
        var threshold = 1
        /// How the commits on the other thread have ended.
        var committed: [Result<Void, QueueStoreError>] = []
        var isStopping = false
        var hasEnded = false
    }

    private let inbox = Mutex(Inbox())
    private let signal = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let store: any QueueStore
    private let committer: QueueCommitter
    /// Does what a commit allows.
    private let aftermath = DispatchQueue(label: "pawl.queue.aftermath")

    /// Told when commits begin to fail, and when they work again.
    private let storeChanged: @Sendable (QueueStoreError?) -> Void

    init(store: any QueueStore, storeChanged: @escaping @Sendable (QueueStoreError?) -> Void = { _ in }) {
        self.store = store
        self.storeChanged = storeChanged
        committer = QueueCommitter(store)
    }

    /// Begins. Only then something may be posted.
    ///
    /// - Parameter act: called with each batch that is committed, in their order, on any thread.
    func start(_ machine: consuming QueueMachine, act: @escaping Act) {
        let machine = machine
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

    /// Hands something to the thread.
    ///
    /// - Returns: whether it will be done; not when the thread has ended.
    @discardableResult
    func post(_ event: @escaping Event) -> Bool {
        let (isPosted, isDue) = inbox.withLock { inbox in
            guard !inbox.hasEnded else { return (false, false) }
            inbox.events.append(Boxed(event: event))
            // One signal for all that comes in before the thread looks.
            return (true, inbox.events.count == inbox.threshold)
        }
        if isDue { signal.signal() }
        return isPosted
    }

    /// Ends the thread when what has come in is committed.
    func stop() {
        inbox.withLock { $0.isStopping = true }
        signal.signal()
        ended.wait()
        ended.signal()
    }

    /// Where the clock that only goes on began. It goes on while the machine sleeps: pauses and ages pass overnight.
    private static let epoch = ContinuousClock.now

    static func now() -> QueueTime {
        let wall = Date().timeIntervalSince1970
        return QueueTime(wall: Int64(wall * 1000), uptime: (ContinuousClock.now - epoch).milliseconds)
    }

    // MARK: The thread

    /// A batch and those who wait for its commit.
    private struct Flight {
        var batch: QueueBatch
        var answers: [QueueAnswer]
    }

    /// What has come in.
    private struct News {
        var events: [Boxed]
        var committed: [Result<Void, QueueStoreError>]
        /// Whether nothing comes any more.
        var isEnd = false
    }

    /// Waits until there is something to do, unless the time comes before.
    ///
    /// - Parameters:
    ///   - threshold: so many events are; and so is each commit that has ended.
    ///   - spare: what is given for the events; with nothing, they stay where they are.
    private func wait(until wake: Int64?, threshold: Int, _ spare: [Boxed]?) -> News {
        let isDue = inbox.withLock { inbox in
            inbox.threshold = threshold
            let isEnding = inbox.isStopping && !inbox.hasEnded && spare != nil
            return inbox.events.count >= threshold || !inbox.committed.isEmpty || isEnding
        }
        if !isDue {
            if let wake {
                let left = max(wake - Self.now().uptime, 0)
                // Looked at each minute, because this wait stands still while the machine sleeps.
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

    /// What the thread has in hand.
    private struct Loop {
        let engine: QueueEngine
        var machine: QueueMachine
        let act: Act
        /// What is being committed on the other thread, and what is to be committed next.
        var underWay: [Flight] = []
        /// What has come in, and the place of the first that the machine has not taken in.
        var events: [Boxed] = []
        var next = 0
        /// How many the machine has taken in since the last turn, and those who wait for them.
        var taken = 0
        var answers: [QueueAnswer] = []
        /// Whether the last commit has failed.
        var isFailing = false

        mutating func run() {
            var wake: Int64? = QueueEngine.now().uptime
            var isLast = false
            repeat {
                // Nothing can be handed on before a commit has ended, whatever the time.
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

        /// So many events are worth being looked at.
        private var threshold: Int {
            if taken == QueueEngine.batch { return .max }
            if !events.isEmpty { return 0 }
            return underWay.isEmpty ? 1 : min(QueueEngine.handful, QueueEngine.batch - taken)
        }

        /// As many as there is room for in one batch.
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

        /// Commits what has come in, or begins to.
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

        /// What a large batch allows is done on another thread, in the order of the batches: each who waits and each attempt is
        /// a task to be woken, and meanwhile the machine can go on.
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

        /// All that has been made since stands on what has failed, and fails with it, the last first.
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
