// Runs the commit loop on a thread of its own. While one batch is being committed the next one gathers, so that many messages
// share one sync (group commit) and no message waits for a timer.
//
// A commit that takes long runs on a second thread, and the first one prepares the jobs that arrive meanwhile
// (`CommitPipeline`). Short commits run on the first thread: two changes of thread cost more than such a commit.

package import CommitLoop
import Dispatch
package import NIOCore
import NIOPosix
package import Protection
package import StorePort
import Synchronization

/// A connection that receives the replies to its jobs.
package protocol CommitClient<Reply>: AnyObject, Sendable {
    associatedtype Reply: Sendable
    var eventLoop: any EventLoop { get }
    /// Receives the replies of one batch. Called on ``eventLoop``.
    func answered(_ replies: [Reply])
}

/// When the next batch is prepared while one is being committed.
package enum Pipelining: Sendable {
    /// If the last commit took longer than this, in nanoseconds.
    case afterCommits(longerThan: Int64)
    case always

    /// Ours: 1 ms. The two changes of thread take some 40 µs on a busy machine, at most a few percent of such a commit.
    package static let whenSlow = Pipelining.afterCommits(longerThan: 1_000_000)
}

/// The thread that prepares, commits and completes the jobs of all connections.
package final class CommitThread<State: Participants>: Sendable {
    package typealias Client = any CommitClient<State.Reply>

    /// Ours: jobs that are prepared ahead at a time; then the outcome of the commit is looked for. Some 2 ms of work.
    private static var stride: Int { 64 }
    /// Ours: with this number of jobs the thread wakes during a commit; fewer wait until it has ended.
    private static var handful: Int { 16 }

    private struct Queue {
        var jobs = JobQueue<State.Job>()
        var isRunning = false
        var isStopped = false
        var clients: [ConnectionID: Client] = [:]
        var idle: [EventLoopPromise<Void>] = []
        /// The commit on the other thread.
        var handedOver = HandedOver.none
        /// The number of jobs at which the thread is signalled during a commit.
        var threshold = Int.max
    }

    /// A commit on the other thread. It takes a number of nanoseconds.
    private enum HandedOver {
        case none
        case underWay
        case ended(CommitOutcome, after: Int64)
    }

    /// Only the one thread of ``pool`` uses the pipeline; that makes it safe to call this `Sendable`.
    private final class Confined: @unchecked Sendable {
        var pipeline: CommitPipeline<State>
        /// How long the last commit took, in nanoseconds.
        var lastCommit: Int64 = 0

        init(_ participants: consuming State) { pipeline = CommitPipeline(participants) }
    }

    private let queue = Mutex(Queue())
    private let confined: Confined
    private let store: OrderedStore
    private let pool = NIOThreadPool(numberOfThreads: 1)
    /// Runs commits that take long.
    private let committer = NIOThreadPool(numberOfThreads: 1)
    /// Wakes the thread during such a commit.
    private let signal = DispatchSemaphore(value: 0)
    private let pipelining: Pipelining
    private let clock: @Sendable () -> Timestamp
    private let onFailure: @Sendable (StoreError, [State.Job]) -> Void
    private let onUnknown: @Sendable (StoreError) -> Void

    /// - Parameters:
    ///   - onFailure: called on the thread with the jobs of a batch that was not committed.
    ///   - onUnknown: called on the thread if it is not known whether a batch was committed. No job is answered from then on; the
    ///     process has to start again from what is stored.
    package init(
        participants: consuming State, pipelining: Pipelining = .whenSlow, clock: @escaping @Sendable () -> Timestamp,
        onFailure: @escaping @Sendable (StoreError, [State.Job]) -> Void,
        onUnknown: @escaping @Sendable (StoreError) -> Void
    ) {
        store = participants.store
        confined = Confined(participants)
        self.pipelining = pipelining
        self.clock = clock
        self.onFailure = onFailure
        self.onUnknown = onUnknown
        pool.start()
        committer.start()
        store.beforeReads { [weak self] in self?.waitForCommit() }
    }

    package func register(_ client: Client, as id: ConnectionID) {
        queue.withLock { $0.clients[id] = client }
    }

    package func unregister(_ id: ConnectionID) {
        queue.withLock { $0.clients[id] = nil }
    }

    /// Hands jobs over; returns at once.
    package func submit(_ jobs: [State.Job]) {
        let (starts, wakes) = queue.withLock { queue in
            guard !queue.isStopped else { return (false, false) }
            queue.jobs.append(jobs)
            guard queue.isRunning else {
                queue.isRunning = true
                return (true, false)
            }
            guard queue.jobs.count >= queue.threshold else { return (false, false) }
            queue.threshold = .max
            return (false, true)
        }
        if starts { pool.submit { _ in self.run() } }
        if wakes { signal.signal() }
    }

    /// Completes when nothing is left to do.
    package func drained(on loop: any EventLoop) -> EventLoopFuture<Void> {
        let promise = loop.makePromise(of: Void.self)
        let isIdle = queue.withLock { queue in
            guard queue.isRunning || !queue.jobs.isEmpty else { return true }
            queue.idle.append(promise)
            return false
        }
        if isIdle { promise.succeed(()) }
        return promise.futureResult
    }

    /// Takes no more jobs and ends the thread.
    package func stop() async {
        queue.withLock { $0.isStopped = true }
        try? await pool.shutdownGracefully()
        try? await committer.shutdownGracefully()
        // Clients may hold this thread.
        queue.withLock { $0.clients = [:] }
    }

    /// Jobs that wait, for reports.
    package var depth: Int { queue.withLock { $0.jobs.count } }

    // MARK: The thread

    /// Works until nothing is left to do.
    private func run() {
        while true {
            if confined.pipeline.isCommitting {
                lookAhead()
            } else if confined.pipeline.openJobs > 0 {
                // Jobs that are prepared again.
                closeAndCommit()
            } else if let jobs = next() {
                for jobs in jobs { confined.pipeline.prepare(jobs, now: clock()) }
                closeAndCommit()
            } else {
                return
            }
        }
    }

    /// The jobs that wait, up to the limit of a batch; nil if there are none, then the thread rests.
    private func next() -> [[State.Job]]? {
        let (jobs, idle): ([[State.Job]]?, [EventLoopPromise<Void>]) = queue.withLock { queue in
            guard !queue.jobs.isEmpty else {
                queue.isRunning = false
                defer { queue.idle = [] }
                return (nil, queue.idle)
            }
            return (queue.jobs.take(atMost: CommitPipeline<State>.batchLimit), [])
        }
        for promise in idle { promise.succeed(()) }
        return jobs
    }

    private func closeAndCommit() {
        if let next = confined.pipeline.close(now: clock()) { commit(next) } else { settle() }
    }

    /// Commits groups, on this thread or on the other one.
    private func commit(_ commit: PreparedCommit) {
        if isSlow { handOver(commit) } else { commitHere(commit) }
    }

    private var isSlow: Bool {
        switch pipelining {
        case .always: true
        case .afterCommits(let limit): confined.lastCommit > limit
        }
    }

    private func commitHere(_ commit: PreparedCommit) {
        let begun = clock().monotonic
        let outcome = store.outcome(of: commit)
        confined.lastCommit = clock().monotonic - begun
        end(outcome)
    }

    private func handOver(_ commit: PreparedCommit) {
        queue.withLock { $0.handedOver = .underWay }
        committer.submit { [self] _ in
            let begun = clock().monotonic
            let outcome = store.outcome(of: commit)
            let duration = clock().monotonic - begun
            queue.withLock { $0.handedOver = .ended(outcome, after: duration) }
            signal.signal()
        }
    }

    /// Completes a batch whose commit has ended. The next one is committed meanwhile if it can be.
    private func end(_ outcome: CommitOutcome) {
        let next = confined.pipeline.ended(outcome, now: clock())
        if case .unknown(let error) = outcome {
            queue.withLock { queue in
                queue.isStopped = true
                queue.jobs.removeAll()
            }
            return onUnknown(error)
        }
        guard let next else { return settle() }
        if isSlow {
            handOver(next)
            settle()
        } else {
            settle()
            commitHere(next)
        }
    }

    private func settle() {
        let result = confined.pipeline.settle(now: clock())
        for (error, jobs) in result.failures { onFailure(error, jobs) }
        send(result.replies)
    }

    // MARK: During a commit on the other thread

    /// Waits for the end of the commit or for jobs, and handles what comes first.
    private func lookAhead() {
        let (outcome, jobs): (CommitOutcome?, [State.Job]) = queue.withLock { queue in
            queue.threshold = .max
            if case .ended(let outcome, let duration) = queue.handedOver {
                queue.handedOver = .none
                confined.lastCommit = duration
                return (outcome, [])
            }
            // A job that is not prepared ahead stops those behind it.
            if queue.jobs.isEmpty { queue.threshold = Self.handful }
            return (nil, queue.jobs.takeFirst { confined.pipeline.room(for: $0.prefix(Self.stride)) })
        }
        if let outcome {
            end(outcome)
        } else if jobs.isEmpty {
            signal.wait()
        } else {
            confined.pipeline.prepare(jobs, now: clock())
        }
    }

    /// Waits for the end of the commit on the other thread. ``lookAhead()`` takes its outcome.
    private func waitForCommit() {
        while queue.withLock({ if case .underWay = $0.handedOver { true } else { false } }) { signal.wait() }
    }

    /// Sends replies that do not come from the participants.
    package func send(_ replies: State.Replies) {
        guard !replies.isEmpty else { return }
        // A client receives all its replies at once, so that its socket is written once.
        let answers = State.byConnection(replies)
        let clients = queue.withLock { queue in answers.map { queue.clients[$0.connection] } }
        var perLoop: [ObjectIdentifier: (loop: any EventLoop, calls: [@Sendable () -> Void])] = [:]
        for ((_, replies), client) in zip(answers, clients) {
            guard let client else { continue }
            let loop = client.eventLoop
            perLoop[ObjectIdentifier(loop), default: (loop, [])].calls.append { client.answered(replies) }
        }
        for (loop, calls) in perLoop.values {
            loop.execute { for call in calls { call() } }
        }
    }
}
