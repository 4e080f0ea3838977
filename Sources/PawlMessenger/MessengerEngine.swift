// Runs the machine of a messenger: jobs are prepared, committed and answered on a queue of their own, and the calls that
// the machine asks for are made as tasks. After a commit that failed the machine is made again from the store.

import CommitLoop
import Devices
import Dispatch
import DoubleRatchet
import Envelope
import Foundation
import Messenger
import Protection
import StorePort
import Synchronization
import Vault

/// The queue that owns the machine of a messenger.
final class MessengerEngine: Sendable {
    /// Makes the machine of a carrier from the store, and commits what its start changes.
    typealias Factory = @Sendable (Carrier) throws(StoreError) -> MessengerParticipants

    private struct State {
        var jobs: [MessengerJob] = []
        var isRunning = false
        var isClosed = false
        var nextTicket = MessengerParticipants.events + 1
        var waiters: [UInt64: CheckedContinuation<MessengerReply, any Error>] = [:]
        /// The time of the timer that is set, in milliseconds of uptime.
        var wake = Int64.max
        /// What the machine was told about the transport.
        var transport = Transport()
        var onEvent: (@Sendable (MessengerEvent) -> Void)?
        var onAttempt: (@Sendable (Attempt) -> Void)?
    }

    private struct Transport: Equatable {
        var isAuthenticated = false
        var sendsSeveral = false
    }

    /// Only the queue uses it; that makes it safe to call this `Sendable`.
    private final class Confined: @unchecked Sendable {
        /// Nil if the machine could not be made again, or if the messenger is closed: then the store is closed too.
        var pipeline: CommitPipeline<MessengerParticipants>?
        var factory: Factory?
        var carrier = Carrier.app

        init(_ participants: MessengerParticipants, _ factory: @escaping Factory) {
            (pipeline, self.factory) = (CommitPipeline(participants), factory)
        }
    }

    private let state = Mutex(State())
    private let confined: Confined
    private let queue = DispatchQueue(label: "pawl.messenger")

    init(_ factory: @escaping Factory) throws(StoreError) {
        confined = Confined(try factory(.app), factory)
    }

    /// Sets where events and attempts go, from the queue and in their order.
    func start(
        onEvent: @escaping @Sendable (MessengerEvent) -> Void, onAttempt: @escaping @Sendable (Attempt) -> Void
    ) {
        state.withLock { ($0.onEvent, $0.onAttempt) = (onEvent, onAttempt) }
        submit(.tick)
    }

    /// Ends. Waiting jobs are refused. The store is closed when the queue has done what it does now.
    func close() {
        let waiters = state.withLock { state in
            defer { state.waiters = [:] }
            state.isClosed = true
            (state.onEvent, state.onAttempt) = (nil, nil)
            return state.waiters.values
        }
        for waiter in waiters { waiter.resume(throwing: MessengerClosed()) }
        queue.async { [confined] in (confined.pipeline, confined.factory) = (nil, nil) }
    }

    /// Waits until the store is closed. Not from the queue.
    func waitUntilClosed() { queue.sync {} }

    /// Does a job, and returns its reply after the commit.
    ///
    /// - Throws: ``MessengerRefusal`` or ``MessengerClosed``
    func perform(_ job: (UInt64) -> MessengerJob) async throws -> MessengerReply {
        let ticket = state.withLock { state in
            defer { state.nextTicket += 1 }
            return state.nextTicket
        }
        let job = job(ticket)
        let reply = try await withCheckedThrowingContinuation { continuation in
            let isClosed = state.withLock { state in
                if !state.isClosed { state.waiters[ticket] = continuation }
                return state.isClosed
            }
            if isClosed { return continuation.resume(throwing: MessengerClosed()) }
            submit(job)
        }
        if case .refused(let refusal) = reply { throw refusal }
        return reply
    }

    func submit(_ job: MessengerJob) {
        let starts = state.withLock { state in
            guard !state.isClosed else { return false }
            state.jobs.append(job)
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if starts { queue.async { self.run() } }
    }

    /// Sets what the transport can do, for the messages from now on.
    func configure(isAuthenticated: Bool, sendsSeveral: Bool) {
        let transport = Transport(isAuthenticated: isAuthenticated, sendsSeveral: sendsSeveral)
        let before = state.withLock { state in
            defer { state.transport = transport }
            return state.transport
        }
        // As jobs, so that they take effect before messages that are written after this call.
        if before.sendsSeveral != sendsSeveral { submit(.sendsSeveral(sendsSeveral)) }
        if before.isAuthenticated != isAuthenticated { submit(.authenticated(isAuthenticated)) }
    }

    /// Sets how the transport carries envelopes. Before the first job.
    func use(_ carrier: Carrier) {
        queue.async { [self] in
            guard confined.carrier != carrier, confined.factory != nil else { return }
            confined.carrier = carrier
            makeAgain()
        }
    }

    /// What the machine knows, between two batches.
    ///
    /// - Throws: ``MessengerClosed``
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (borrowing MessengerParticipants) -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            queue.async { [confined] in
                guard let participants = confined.pipeline?.participants else {
                    return continuation.resume(throwing: MessengerClosed())
                }
                continuation.resume(returning: body(participants))
            }
        }
    }

    // MARK: The queue

    private func run() {
        while true {
            let jobs = state.withLock { state in
                defer { state.jobs = [] }
                state.isRunning = !state.jobs.isEmpty
                return state.jobs
            }
            guard !jobs.isEmpty else { return setTimer() }
            var rest = jobs[...]
            while !rest.isEmpty {
                let batch = rest.prefix(CommitPipeline<MessengerParticipants>.batchLimit)
                rest = rest.dropFirst(batch.count)
                commit(Array(batch))
            }
        }
    }

    private func commit(_ jobs: [MessengerJob]) {
        if confined.pipeline == nil { makeAgain() }
        guard let store = confined.pipeline?.participants.store else { return jobs.forEach(refuse) }
        var now = SystemTime.now()
        confined.pipeline?.prepare(jobs, now: now)
        var hasFailed = false
        if let commit = confined.pipeline?.close(now: now) {
            let outcome = store.outcome(of: commit)
            now = SystemTime.now()
            switch outcome {
            case .done(let results): hasFailed = results.contains { $0 != nil }
            case .failed, .unknown: hasFailed = true
            }
            _ = confined.pipeline?.ended(outcome, now: now)
        }
        guard let result = confined.pipeline?.settle(now: now) else { return }
        hasFailed = hasFailed || !result.failures.isEmpty
        // A request that was not stored is not sent; the others are handed out again by the next machine.
        send(hasFailed ? result.replies.filter { !$0.reply.isAttempt } : result.replies)
        guard hasFailed else { return }
        // What a failed batch has left in memory is not undone: the store is what counts.
        jobs.forEach(refuse)
        makeAgain()
    }

    /// Makes the machine again from the store.
    private func makeAgain() {
        confined.pipeline = nil
        // If the store cannot be read, the next job tries again.
        guard let participants = try? confined.factory?(confined.carrier) else { return }
        confined.pipeline = CommitPipeline(participants)
        let transport = state.withLock { $0.transport }
        confined.pipeline?.participants.sendsSeveral = transport.sendsSeveral
        if transport.isAuthenticated { submit(.authenticated(true)) }
        // The job that has asked for it may be stored although its commit has failed.
        guard let onEvent = state.withLock({ $0.onEvent }) else { return }
        for user in participants.waitingUsers { onEvent(.keysWanted(user)) }
        for reference in participants.wantedGroups { onEvent(.groupWanted(reference)) }
    }

    /// Answers a job that was not done and has no reply yet.
    private func refuse(_ job: MessengerJob) {
        guard let ticket = job.ticket else { return }
        let waiter = state.withLock { $0.waiters.removeValue(forKey: ticket) }
        waiter?.resume(returning: .refused(.notCommitted))
    }

    private func send(_ replies: [AddressedReply<MessengerReply>]) {
        for reply in replies {
            switch reply.reply {
            case .event(let event): state.withLock { $0.onEvent }?(event)
            case .attempt(let attempt): state.withLock { $0.onAttempt }?(attempt)
            default:
                let waiter = state.withLock { $0.waiters.removeValue(forKey: reply.connection.value) }
                waiter?.resume(returning: reply.reply)
            }
        }
    }

    /// Ours: the shortest pause between two ticks, in milliseconds.
    private static let shortestPause: Int64 = 5

    private func setTimer() {
        let now = SystemTime.now()
        guard let next = confined.pipeline?.participants.nextWake(now) else { return }
        let uptime = now.monotonic / 1_000_000
        let at = max(next, uptime + Self.shortestPause)
        let isEarlier = state.withLock { state in
            guard at < state.wake, !state.isClosed else { return false }
            state.wake = at
            return true
        }
        guard isEarlier else { return }
        queue.asyncAfter(deadline: .now() + .milliseconds(Int(min(at - uptime, 3_600_000)))) { [weak self] in
            self?.state.withLock { $0.wake = .max }
            self?.submit(.tick)
        }
    }
}

/// The messenger was closed, or is not open yet.
public struct MessengerClosed: Error, Sendable {}

extension MessengerReply {
    fileprivate var isAttempt: Bool { if case .attempt = self { true } else { false } }
}

extension MessengerJob {
    /// The ticket that waits for a reply; nil if there is none.
    fileprivate var ticket: UInt64? {
        switch self {
        case .send(let ticket, _), .signal(let ticket, _), .receive(let ticket, _, _, _),
            .receivePlaintext(let ticket, _, _, _),
            .receipt(let ticket, _, _, _), .keys(let ticket, _, _, _, _), .replenish(let ticket, _),
            .restored(let ticket), .found(let ticket), .join(let ticket, _),
            .adopt(let ticket, _), .revoke(let ticket, _), .decide(let ticket, _, _), .markRead(let ticket, _),
            .setTimer(let ticket, _, _), .history(let ticket, _, _, _), .chats(let ticket),
            .proposeGroup(let ticket, _, _), .publishedGroup(let ticket, _, _), .readGroup(let ticket, _, _, _),
            .groups(let ticket), .introduce(let ticket), .lost(let ticket, _, _, _):
            ticket
        case .authenticated, .sendsSeveral, .attempted, .tick: nil
        }
    }
}

/// The clocks of the system.
enum SystemTime {
    static func now() -> Timestamp {
        var (wall, monotonic) = (timespec(), timespec())
        clock_gettime(CLOCK_REALTIME, &wall)
        clock_gettime(CLOCK_MONOTONIC, &monotonic)
        return Timestamp(
            monotonic: Int64(monotonic.tv_sec) * 1_000_000_000 + Int64(monotonic.tv_nsec),
            wall: Int64(wall.tv_sec) * 1000 + Int64(wall.tv_nsec) / 1_000_000)
    }
}
