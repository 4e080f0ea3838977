// Runs the vault on a thread of its own. While one batch is being committed the next one gathers, so that many messages
// share one sync (group commit) without anybody waiting for a timer.

package import DoubleRatchet
package import NIOCore
import NIOPosix
package import Protection
package import StorePort
import Synchronization
package import Vault

/// Where the answers of the vault go.
package protocol VaultClient: AnyObject, Sendable {
    var eventLoop: any EventLoop { get }
    /// Called on ``eventLoop``.
    func answered(_ replies: [VaultReply])
}

/// The thread of the vault.
package final class VaultRunner<Random: RandomSource & Sendable>: Sendable {
    /// Ours: jobs of one transaction; a longer one would let the first wait for the last.
    package static var batchLimit: Int { 2048 }

    private struct State {
        package var jobs: [VaultJob] = []
        package var isRunning = false
        package var isStopped = false
        package var clients: [ConnectionID: any VaultClient] = [:]
        package var idle: [EventLoopPromise<Void>] = []
    }

    /// The vault is touched by the one thread of ``pool`` and by nothing else; that is why it may be called `Sendable`.
    private final class Confined: @unchecked Sendable {
        package var vault: Vault<Random>
        init(_ vault: consuming Vault<Random>) { self.vault = vault }
    }

    private let state = Mutex(State())
    private let confined: Confined
    private let store: any Store
    private let pool = NIOThreadPool(numberOfThreads: 1)
    private let clock: @Sendable () -> Moment
    private let onFailure: @Sendable (StoreError, [StoreChange]) -> Void
    private let onUnreadable: @Sendable (SessionID) -> Void

    /// - Parameter onFailure: called on the vault's thread if a batch is not committed, with the records that were to be written.
    package init(
        vault: Vault<Random>, store: any Store, clock: @escaping @Sendable () -> Moment,
        onFailure: @escaping @Sendable (StoreError, [StoreChange]) -> Void,
        onUnreadable: @escaping @Sendable (SessionID) -> Void = { _ in }
    ) {
        confined = Confined(vault)
        self.store = store
        self.clock = clock
        self.onFailure = onFailure
        self.onUnreadable = onUnreadable
        pool.start()
    }

    package func register(_ client: any VaultClient, as id: ConnectionID) {
        state.withLock { $0.clients[id] = client }
    }

    package func unregister(_ id: ConnectionID) {
        state.withLock { $0.clients[id] = nil }
    }

    /// Hands jobs over; returns at once.
    package func submit(_ jobs: [VaultJob]) {
        let starts = state.withLock { state in
            guard !state.isStopped else { return false }
            state.jobs.append(contentsOf: jobs)
            guard !state.isRunning else { return false }
            state.isRunning = true
            return true
        }
        if starts { pool.submit { _ in self.run() } }
    }

    /// Completes when nothing is left to do.
    package func drained(on loop: any EventLoop) -> EventLoopFuture<Void> {
        let promise = loop.makePromise(of: Void.self)
        let isIdle = state.withLock { state in
            guard state.isRunning || !state.jobs.isEmpty else { return true }
            state.idle.append(promise)
            return false
        }
        if isIdle { promise.succeed(()) }
        return promise.futureResult
    }

    /// Takes no more jobs and ends the thread.
    package func stop() async {
        state.withLock { $0.isStopped = true }
        try? await pool.shutdownGracefully()
    }

    /// Jobs that wait, for reports.
    package var depth: Int { state.withLock { $0.jobs.count } }

    private func run() {
        while let jobs = next() {
            send(perform(jobs, &confined.vault))
        }
    }

    private func next() -> [VaultJob]? {
        let (jobs, idle): ([VaultJob]?, [EventLoopPromise<Void>]) = state.withLock { state in
            guard !state.jobs.isEmpty else {
                state.isRunning = false
                defer { state.idle = [] }
                return (nil, state.idle)
            }
            if state.jobs.count <= Self.batchLimit {
                defer { state.jobs = [] }
                return (state.jobs, [])
            }
            let batch = Array(state.jobs.prefix(Self.batchLimit))
            state.jobs.removeFirst(Self.batchLimit)
            return (batch, [])
        }
        for promise in idle { promise.succeed(()) }
        return jobs
    }

    private func perform(_ jobs: [VaultJob], _ vault: inout Vault<Random>) -> [AddressedReply] {
        let batch = vault.perform(jobs, now: clock())
        for session in batch.unreadable { onUnreadable(session) }
        var committed: [StoreError?]?
        if batch.groups.allSatisfy(\.isEmpty) {
            committed = batch.groups.map { _ in nil }
        } else {
            do {
                committed = try store.commit(batch.groups)
            } catch {
                onFailure(
                    error,
                    jobs.flatMap { job -> [StoreChange] in if case .record(let changes) = job { changes } else { [] } })
            }
        }
        return vault.settle(batch, committed: committed, now: clock())
    }

    /// Sends answers to connections from outside the vault.
    package func send(_ replies: [AddressedReply]) {
        guard !replies.isEmpty else { return }
        // A client hears all that is for it at once, so that it is written to once.
        var order: [ConnectionID] = []
        var perClient: [ConnectionID: [VaultReply]] = [:]
        for reply in replies {
            if perClient[reply.connection] == nil { order.append(reply.connection) }
            perClient[reply.connection, default: []].append(reply.reply)
        }
        var perLoop: [ObjectIdentifier: (loop: any EventLoop, calls: [(any VaultClient, [VaultReply])])] = [:]
        let clients = state.withLock { state in order.map { state.clients[$0] } }
        for (connection, client) in zip(order, clients) {
            guard let client, let replies = perClient[connection] else { continue }
            let loop = client.eventLoop
            perLoop[ObjectIdentifier(loop), default: (loop, [])].calls.append((client, replies))
        }
        for (loop, calls) in perLoop.values {
            loop.execute {
                for (client, replies) in calls { client.answered(replies) }
            }
        }
    }
}
