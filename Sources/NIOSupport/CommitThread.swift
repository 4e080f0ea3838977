// Runs the commit loop on a thread of its own. While one batch is being committed the next one gathers, so that many messages
// share one sync (group commit) and no message waits for a timer.

package import CommitLoop
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

/// The thread that prepares, commits and completes the jobs of all connections.
package final class CommitThread<State: Participants>: Sendable {
    package typealias Client = any CommitClient<State.Reply>

    /// Ours: jobs of one transaction; a longer one would let the first wait for the last.
    package static var batchLimit: Int { 2048 }

    private struct Queue {
        var jobs: [State.Job] = []
        var isRunning = false
        var isStopped = false
        var clients: [ConnectionID: Client] = [:]
        var idle: [EventLoopPromise<Void>] = []
    }

    /// Only the one thread of ``pool`` uses the participants; that makes it safe to call this `Sendable`.
    private final class Confined: @unchecked Sendable {
        var participants: State
        init(_ participants: consuming State) { self.participants = participants }
    }

    private let queue = Mutex(Queue())
    private let confined: Confined
    private let store: any Store
    private let pool = NIOThreadPool(numberOfThreads: 1)
    private let clock: @Sendable () -> Timestamp
    private let onFailure: @Sendable (StoreError, [State.Job]) -> Void
    private let onUnknown: @Sendable (StoreError) -> Void

    /// - Parameters:
    ///   - onFailure: called on the thread with the jobs of a batch that was not committed.
    ///   - onUnknown: called on the thread if it is not known whether a batch was committed. No job is answered from then on; the
    ///     process has to start again from what is stored.
    package init(
        participants: State, store: any Store, clock: @escaping @Sendable () -> Timestamp,
        onFailure: @escaping @Sendable (StoreError, [State.Job]) -> Void,
        onUnknown: @escaping @Sendable (StoreError) -> Void
    ) {
        confined = Confined(participants)
        self.store = store
        self.clock = clock
        self.onFailure = onFailure
        self.onUnknown = onUnknown
        pool.start()
    }

    package func register(_ client: Client, as id: ConnectionID) {
        queue.withLock { $0.clients[id] = client }
    }

    package func unregister(_ id: ConnectionID) {
        queue.withLock { $0.clients[id] = nil }
    }

    /// Hands jobs over; returns at once.
    package func submit(_ jobs: [State.Job]) {
        let starts = queue.withLock { queue in
            guard !queue.isStopped else { return false }
            queue.jobs.append(contentsOf: jobs)
            guard !queue.isRunning else { return false }
            queue.isRunning = true
            return true
        }
        if starts { pool.submit { _ in self.run() } }
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
        // Clients may hold this thread.
        queue.withLock { $0.clients = [:] }
    }

    /// Jobs that wait, for reports.
    package var depth: Int { queue.withLock { $0.jobs.count } }

    private func run() {
        while let jobs = next() { send(commit(jobs)) }
    }

    private func next() -> [State.Job]? {
        let (jobs, idle): ([State.Job]?, [EventLoopPromise<Void>]) = queue.withLock { queue in
            guard !queue.jobs.isEmpty else {
                queue.isRunning = false
                defer { queue.idle = [] }
                return (nil, queue.idle)
            }
            if queue.jobs.count <= Self.batchLimit {
                defer { queue.jobs = [] }
                return (queue.jobs, [])
            }
            let batch = Array(queue.jobs.prefix(Self.batchLimit))
            queue.jobs.removeFirst(Self.batchLimit)
            return (batch, [])
        }
        for promise in idle { promise.succeed(()) }
        return jobs
    }

    private func stopAnswering() {
        queue.withLock { queue in
            queue.isStopped = true
            queue.jobs = []
        }
    }

    private func commit(_ jobs: [State.Job]) -> State.Replies {
        let batch = confined.participants.prepare(jobs, now: clock())
        var committed: [StoreError?]?
        if let failure = batch.failure {
            onFailure(failure, jobs)
        } else if batch.isEmpty {
            committed = batch.allCommitted
        } else {
            do {
                committed = try store.commit(batch.groups)
            } catch {
                if case .unknown = error {
                    stopAnswering()
                    onUnknown(error)
                    return []
                }
                onFailure(error, jobs)
            }
        }
        return confined.participants.complete(batch, committed: committed, now: clock())
    }

    /// Sends replies that do not come from the participants.
    package func send(_ replies: State.Replies) {
        guard !replies.isEmpty else { return }
        // A client receives all its replies at once, so that its socket is written once.
        var order: [ConnectionID] = []
        var perClient: [ConnectionID: [State.Reply]] = [:]
        for reply in replies {
            if perClient[reply.connection] == nil { order.append(reply.connection) }
            perClient[reply.connection, default: []].append(reply.reply)
        }
        var perLoop: [ObjectIdentifier: (loop: any EventLoop, calls: [@Sendable () -> Void])] = [:]
        let clients = queue.withLock { queue in order.map { queue.clients[$0] } }
        for (connection, client) in zip(order, clients) {
            guard let client, let replies = perClient[connection] else { continue }
            let loop = client.eventLoop
            perLoop[ObjectIdentifier(loop), default: (loop, [])].calls.append { client.answered(replies) }
        }
        for (loop, calls) in perLoop.values {
            loop.execute { for call in calls { call() } }
        }
    }
}
