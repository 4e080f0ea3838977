// Commit pipelining, without a thread: while one batch is being committed, the jobs of the next one are prepared, so that
// neither the disk nor the processor waits for the other. This pays if a commit takes long: a slow disk, or a database
// behind a network.
//
// One batch ahead, and that one stays open: its units are prepared, but it ends (the queue's turn, the rows of the ratchet
// states) only when the earlier batch is committed. Reasons:
// - A failure is simple. If the earlier batch is not committed entirely, the open units are rolled back first, the last
//   one first, then the earlier batch as if nothing had come after it, and then the jobs are prepared again from the
//   repaired state: once, because nothing is before them any more. Nobody is told before. Their ciphertexts were in no
//   transaction and are dropped with the ratchet states, so no message key is used for two texts that leave.
// - The queue's machine and the ratchet states never have more than one batch that may fail.
// - All jobs that arrive during a commit share the next one, as without pipelining.
//
// Not every job is prepared ahead (`Lookahead`). Jobs in one batch do not see each other's completions, so a job ahead
// does not see those of the earlier batch: the frequent jobs are written for that, and rare ones wait. A job that reads
// the store waits for the commit under way (`OrderedStore`), so that it sees what memory has.
//
// After a commit with an unknown outcome nothing is answered any more.

package import Protection
package import StorePort

/// Prepares, completes and repeats batches in their order. One thread at a time uses it.
package struct CommitPipeline<State: Participants> {
    package typealias Replies = [AddressedReply<State.Reply>]

    /// What a batch has brought about.
    package struct Result {
        package var replies: Replies = []
        /// The batches that were not committed, with their jobs.
        package var failures: [(error: StoreError, jobs: [State.Job])] = []
    }

    /// Ours: jobs of one transaction; a longer one would let the first wait for the last.
    package static var batchLimit: Int { 2048 }

    private struct Batch {
        var commit: CommitBatch<State>
        var jobs: [[State.Job]]
    }

    private enum Stage {
        case idle
        case committing(Batch)
        /// The outcome of a commit is unknown.
        case lost
    }

    /// A batch whose outcome is known, to be completed or rolled back.
    private struct Ended {
        var batch: Batch
        /// What the store returned; nil if nothing is committed.
        var committed: [StoreError?]?
        var failure: StoreError?
    }

    package var participants: State
    private var stage = Stage.idle
    /// The open batch: its jobs as they came, and the unit of each.
    private var jobs: [[State.Job]] = []
    private var units: [UnitOfWork<State>] = []
    /// Whether units of the open batch were rolled back and their jobs have to be prepared again.
    private var isTakenBack = false
    private var ended: [Ended] = []

    package init(_ participants: consuming State) { self.participants = participants }

    /// Whether a commit is under way.
    package var isCommitting: Bool { if case .committing = stage { true } else { false } }

    /// How many jobs are prepared and not yet part of a commit.
    package var openJobs: Int { units.count }

    /// How many of these jobs can be prepared now, from the first one on.
    package func room(for waiting: ArraySlice<State.Job>) -> Int {
        let room = Self.batchLimit - units.count
        switch stage {
        case .idle: return min(waiting.count, room)
        case .committing: return participants.countAhead(waiting.prefix(room))
        case .lost: return 0
        }
    }

    /// Prepares jobs, no more than there is ``room(for:)``.
    package mutating func prepare(_ new: [State.Job], now: Timestamp) {
        participants.prepare(new, into: &units, now: now)
        jobs.append(new)
    }

    /// Ends the open batch.
    ///
    /// - Returns: the groups to commit, whose outcome goes to ``ended(_:now:)``; nil if there is nothing to commit, or if
    ///   a commit is under way.
    package mutating func close(now: Timestamp) -> [ChangeGroup]? {
        guard case .idle = stage, !units.isEmpty else { return nil }
        var (jobs, units): ([[State.Job]], [UnitOfWork<State>]) = ([], [])
        swap(&jobs, &self.jobs)
        swap(&units, &self.units)
        let batch = Batch(commit: participants.batch(of: consume units, now: now), jobs: jobs)
        if let failure = batch.commit.failure {
            ended.append(Ended(batch: batch, committed: nil, failure: failure))
            return nil
        }
        guard !batch.commit.isEmpty else {
            ended.append(Ended(batch: batch, committed: batch.commit.allCommitted))
            return nil
        }
        stage = .committing(batch)
        return batch.commit.groups
    }

    /// Takes the outcome of the commit under way. ``settle(now:)`` completes its batch.
    ///
    /// - Returns: the groups to commit next, if the open batch can follow at once.
    package mutating func ended(_ outcome: CommitOutcome, now: Timestamp) -> [ChangeGroup]? {
        guard case .committing(let batch) = stage else { preconditionFailure("no commit is under way") }
        stage = .idle
        switch outcome {
        case .done(let committed):
            ended.append(Ended(batch: batch, committed: committed))
            if committed.allSatisfy({ $0 == nil }) { return close(now: now) }
        case .failed(let error): ended.append(Ended(batch: batch, committed: nil, failure: error))
        case .unknown:
            stage = .lost
            (jobs, units) = ([], [])
            return nil
        }
        isTakenBack = !units.isEmpty
        let repeated = zip(jobs.joined(), units).filter { participants.lookahead(of: $0.0) == .repeated }
        participants.takeBack(repeated.map(\.1), now)
        return nil
    }

    /// Completes or rolls back the batches that have ended, in their order, and prepares again what was rolled back because
    /// of them. If the open batch has jobs then, it has to be closed.
    package mutating func settle(now: Timestamp) -> Result {
        var result = Result()
        var ended: [Ended] = []
        swap(&ended, &self.ended)
        for batch in ended {
            if let failure = batch.failure { result.failures.append((failure, Array(batch.batch.jobs.joined()))) }
            let replies = participants.complete(batch.batch.commit, committed: batch.committed, now: now)
            if result.replies.isEmpty { result.replies = replies } else { result.replies += replies }
        }
        guard isTakenBack else { return result }
        isTakenBack = false
        for (index, job) in jobs.joined().enumerated() where participants.lookahead(of: job) == .repeated {
            units[index] = participants.unit(of: job, now: now)
        }
        return result
    }
}
