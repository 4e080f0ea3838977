// The thread that owns the machine: takes what has come in, has one batch committed for all of it, and does what the batch
// allows. While one is being committed the machine goes on with what comes in, and that is the next one.

import Dispatch
import Foundation
import RequestQueue
import Synchronization

/// Runs a ``QueueMachine`` on a thread of its own, and larger commits on another one. Commits block those and nobody else.
final class QueueEngine: Sendable {
    /// Something that changes the machine. What it returns is called when the batch is committed, or with why it is not.
    typealias Event = @Sendable (inout QueueMachine, QueueTime) -> Answer?
    typealias Answer = @Sendable (QueueStoreError?) -> Void
    typealias Dispatches = @Sendable (QueueBatch) -> Void

    /// Milliseconds until the next try after a commit has failed.
    static let pause: Int64 = 1_000
    /// A smaller batch is committed where it is made: the way to another thread would cost more than can be done meanwhile.
    static let small = 32
    /// So many events are taken in while a commit goes on; fewer wait until it has ended.
    static let handful = 64

    private struct Inbox {
        var events: [Event] = []
        /// The thread is told of that many.
        var threshold = 1
        /// How the commit on the other thread has ended.
        var committed: Result<Void, QueueStoreError>?
        var isStopping = false
        var hasEnded = false
    }

    private let inbox = Mutex(Inbox())
    private let signal = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let store: any QueueStore
    private let committer: Committer
    /// Does what a commit allows.
    private let aftermath = DispatchQueue(label: "pawl.queue.aftermath")

    init(store: any QueueStore) {
        self.store = store
        committer = Committer(store)
    }

    /// Begins. Only then something may be posted.
    ///
    /// - Parameter act: called with each batch that is committed, in their order, on any thread.
    func start(_ machine: consuming QueueMachine, act: @escaping Dispatches) {
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
            inbox.events.append(event)
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

    static func now() -> QueueTime {
        let wall = Date().timeIntervalSince1970
        return QueueTime(
            wall: Int64(wall * 1000), uptime: Int64(clamping: DispatchTime.now().uptimeNanoseconds / 1_000_000))
    }

    // MARK: The thread

    /// A batch and those who wait for its commit.
    private struct Flight {
        var batch: QueueBatch
        var answers: [Answer]
    }

    /// What has come in.
    private struct News {
        var events: [Event]
        var committed: Result<Void, QueueStoreError>?
        var isStopping: Bool
    }

    private func wait(until wake: Int64?, threshold: Int, _ spare: [Event]) -> News {
        let isDue = inbox.withLock { inbox in
            inbox.threshold = threshold
            return inbox.events.count >= threshold || inbox.committed != nil
        }
        if !isDue {
            if let wake {
                let left = max(wake - Self.now().uptime, 0)
                if left > 0 { _ = signal.wait(timeout: .now() + .milliseconds(Int(min(left, 3_600_000)))) }
            } else {
                signal.wait()
            }
        }
        return inbox.withLock { inbox in
            var news = News(events: spare, committed: inbox.committed, isStopping: inbox.isStopping)
            swap(&news.events, &inbox.events)
            inbox.committed = nil
            inbox.hasEnded = inbox.isStopping
            return news
        }
    }

    /// What the thread has in hand.
    private struct Loop {
        let engine: QueueEngine
        var machine: QueueMachine
        let act: Dispatches
        /// What is being committed on the other thread.
        var underWay: Flight?
        /// Those whose events the machine has taken in since the last turn.
        var answers: [Answer] = []

        mutating func run() {
            var wake: Int64? = QueueEngine.now().uptime
            var spare: [Event] = []
            var (isStopping, isLast) = (false, false)
            repeat {
                // Nothing can be handed on before the commit has ended, whatever the time.
                let news = engine.wait(
                    until: underWay == nil ? wake : nil, threshold: underWay == nil ? 1 : QueueEngine.handful, spare)
                isStopping = isStopping || news.isStopping
                let now = QueueEngine.now()
                var failure: QueueStoreError?
                if let committed = news.committed, let flight = underWay {
                    underWay = nil
                    switch committed {
                    case .success: succeed(flight)
                    case .failure(let error):
                        failure = error
                        fail(flight, error)
                    }
                }
                for event in news.events {
                    if let answer = event(&machine, now) { answers.append(answer) }
                }
                spare = news.events
                spare.removeAll(keepingCapacity: true)
                if underWay == nil, !isLast, failure == nil || !news.events.isEmpty || isStopping {
                    failure = turn(now)
                    isLast = isStopping
                }
                wake = failure == nil ? machine.nextWake() : now.uptime + QueueEngine.pause
            } while !isLast || underWay != nil
        }

        /// Commits what has come in, or begins to.
        private mutating func turn(_ now: QueueTime) -> QueueStoreError? {
            let flight = Flight(batch: machine.turn(now: now), answers: answers)
            answers = []
            guard flight.batch.changes.count < QueueEngine.small else {
                underWay = flight
                engine.committer.begin(flight.batch.changes) { [engine] in engine.finished($0) }
                return nil
            }
            if !flight.batch.changes.isEmpty {
                do throws(QueueStoreError) {
                    try engine.store.commit(flight.batch.changes)
                } catch {
                    fail(flight, error)
                    return error
                }
            }
            succeed(flight)
            return nil
        }

        /// What a large batch allows is done on another thread, in the order of the batches: each who waits and each attempt is
        /// a task to be woken, and meanwhile the machine can go on.
        private func succeed(_ flight: Flight) {
            let act = act
            let work: @Sendable () -> Void = {
                act(flight.batch)
                for answer in flight.answers { answer(nil) }
            }
            let isLarge = flight.batch.changes.count >= QueueEngine.small
            if isLarge { engine.aftermath.async(execute: work) } else { engine.aftermath.sync(execute: work) }
        }

        /// What has come in since stands on what has failed, and fails with it.
        private mutating func fail(_ flight: Flight, _ error: QueueStoreError) {
            _ = machine.failed(flight.batch)
            for answer in flight.answers + answers { answer(error) }
            answers = []
        }
    }

    private func finished(_ result: Result<Void, QueueStoreError>) {
        inbox.withLock { $0.committed = result }
        signal.signal()
    }
}

/// A thread that commits, one batch after the other.
private final class Committer: Sendable {
    private struct Work: Sendable {
        var changes: [QueueChange]
        var then: @Sendable (Result<Void, QueueStoreError>) -> Void
    }

    private struct State {
        var work: Work?
        var isRunning = false
        var isStopping = false
    }

    private let store: any QueueStore
    private let state = Mutex(State())
    private let signal = DispatchSemaphore(value: 0)

    init(_ store: any QueueStore) { self.store = store }

    /// Commits on its own thread, which is there from the first time on.
    func begin(_ changes: [QueueChange], then: @escaping @Sendable (Result<Void, QueueStoreError>) -> Void) {
        let isNew = state.withLock { state in
            state.work = Work(changes: changes, then: then)
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if isNew {
            let thread = Thread { [self] in run() }
            thread.name = "pawl.queue.commit"
            thread.start()
        }
        signal.signal()
    }

    func stop() {
        state.withLock { $0.isStopping = true }
        signal.signal()
    }

    private func run() {
        while true {
            signal.wait()
            let (work, isStopping) = state.withLock { state in
                defer { state.work = nil }
                return (state.work, state.isStopping)
            }
            if let work {
                let result: Result<Void, QueueStoreError>
                do throws(QueueStoreError) {
                    result = .success(try store.commit(work.changes))
                } catch {
                    result = .failure(error)
                }
                work.then(result)
            }
            if isStopping { return }
        }
    }
}
