// Drives the queue of writes in the commit loop: events of the queue are jobs, and the batches of its machine come back
// as replies to one address.

package import CommitLoop
package import JSONGateway
package import NIOCore
package import NIOSupport
import Outbox
package import Protection
package import RequestQueue
import Synchronization

/// The queue's place in the commit loop of a JSON gateway.
package final class CommitLoopQueue: QueueDriver, CommitClient {
    package let eventLoop: any EventLoop
    private let executor: EventLoopExecutor
    private let submit: @Sendable ([JSONJob]) -> Void
    private let drained: @Sendable (any EventLoop) -> EventLoopFuture<Void>
    private let clock: @Sendable () -> Timestamp
    private let state = Mutex(State())

    private struct State {
        var act: (@Sendable (QueueBatch, QueueAnswers) -> Void)?
        var isStopped = false
        /// When the queue is woken, in milliseconds of uptime, and the timer for it.
        var wake: Int64?
        var timer: Scheduled<Void>?
    }

    /// - Parameters:
    ///   - eventLoop: on which requests are sent.
    ///   - submit: hands jobs to the commit thread.
    ///   - drained: completes when the commit thread has nothing left to do.
    package init(
        on eventLoop: any EventLoop, submit: @escaping @Sendable ([JSONJob]) -> Void,
        drained: @escaping @Sendable (any EventLoop) -> EventLoopFuture<Void>,
        clock: @escaping @Sendable () -> Timestamp
    ) {
        (self.eventLoop, self.submit, self.drained, self.clock) = (eventLoop, submit, drained, clock)
        executor = EventLoopExecutor(eventLoop)
    }

    /// An answer arrives on the event loop, and the attempt ends there: it changes its thread only for the commit.
    package var taskExecutor: (any TaskExecutor)? { executor }

    /// Drives the queue with a commit thread, as the addressee of its turns.
    package convenience init<State: Participants>(
        on eventLoop: any EventLoop, thread: CommitThread<State>, clock: @escaping @Sendable () -> Timestamp
    ) where State.Job == JSONJob, State.Reply == JSONReply {
        self.init(on: eventLoop, submit: { thread.submit($0) }, drained: { thread.drained(on: $0) }, clock: clock)
    }

    package func start(_ act: @escaping @Sendable (QueueBatch, QueueAnswers) -> Void) {
        state.withLock { $0.act = act }
        // The first turn begins what an earlier process has left.
        submit([.wake])
    }

    @discardableResult
    package func post(_ event: @escaping MachineEvent) -> Bool {
        guard state.withLock({ !$0.isStopped }) else { return false }
        submit([.queue(event)])
        return true
    }

    package func stop() {
        let (wasStopped, timer) = state.withLock { state in
            defer { (state.isStopped, state.timer) = (true, nil) }
            return (state.isStopped, state.timer)
        }
        // The event loop may be gone by a second time.
        guard !wasStopped else { return }
        timer?.cancel()
        try? drained(eventLoop).wait()
    }

    package func answered(_ replies: [JSONReply]) {
        for case .turn(let turn) in replies {
            if let batch = turn.batch { state.withLock { $0.act }?(batch, turn.answers) }
            turn.answers.giveAll()
            wake(at: turn.wake)
        }
    }

    /// Sets the timer. Called on the event loop, with the most recent time that the queue has named.
    private func wake(at time: Int64?) {
        let now = clock().queueTime.uptime
        let old: Scheduled<Void>? = state.withLock { state in
            guard state.wake != time || state.timer == nil else { return nil }
            let old = state.timer
            (state.wake, state.timer) = (time, nil)
            guard let time, !state.isStopped else { return old }
            state.timer = eventLoop.scheduleTask(in: .milliseconds(max(time - now, 0))) { [weak self] in self?.due() }
            return old
        }
        old?.cancel()
    }

    private func due() {
        state.withLock { $0.timer = nil }
        submit([.wake])
    }
}

/// Runs the parts of tasks on an event loop.
private final class EventLoopExecutor: TaskExecutor {
    private let eventLoop: any EventLoop

    init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        eventLoop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
