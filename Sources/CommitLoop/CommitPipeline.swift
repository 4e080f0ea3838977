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
// The pipeline has the epochs by which the process owns its shards, and every commit names those of the shards that it
// touches. A commit under a lost epoch fails like any other. From then on jobs of that shard are refused before they are
// prepared, those prepared ahead included, and the jobs of other shards go on.
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

    /// A job of a shard that another gateway owns.
    private struct Refused {
        var shard: Shard
        var job: State.Job
    }

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
    private var owned: OwnedShards
    private var refused: [Refused] = []

    package init(_ participants: consuming State) {
        owned = OwnedShards(participants.store.loadedEpochs, in: participants.store.sharding)
        self.participants = participants
    }

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
        let new = owned.ownsAll ? new : withoutForeign(new)
        participants.prepare(new, into: &units, now: now)
        jobs.append(new)
    }

    /// Refuses the jobs of shards that this process does not own.
    ///
    /// - Returns: the others.
    private mutating func withoutForeign(_ jobs: [State.Job]) -> [State.Job] {
        jobs.filter { job in
            guard let shard = owned.foreign(participants.placement(of: job)) else { return true }
            refused.append(Refused(shard: shard, job: job))
            return false
        }
    }

    /// Ends the open batch.
    ///
    /// - Returns: the commit to run, whose outcome goes to ``ended(_:now:)``; nil if there is nothing to commit, or if
    ///   a commit is under way.
    package mutating func close(now: Timestamp) -> PreparedCommit? {
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
        return owned.commit(of: batch.commit.groups)
    }

    /// Takes the outcome of the commit under way. ``settle(now:)`` completes its batch.
    ///
    /// - Returns: the commit to run next, if the open batch can follow at once.
    package mutating func ended(_ outcome: CommitOutcome, now: Timestamp) -> PreparedCommit? {
        guard case .committing(let batch) = stage else { preconditionFailure("no commit is under way") }
        stage = .idle
        switch outcome {
        case .done(let committed):
            ended.append(Ended(batch: batch, committed: committed))
            if committed.allSatisfy({ $0 == nil }) { return close(now: now) }
        case .failed(let error):
            if case .epochLost(let shard) = error { owned.lose(shard) }
            ended.append(Ended(batch: batch, committed: nil, failure: error))
        case .unknown:
            stage = .lost
            (jobs, units, refused) = ([], [], [])
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
        prepareAgain(now: now)
        answerRefused(&result, now: now)
        return result
    }

    /// Prepares jobs whose units were taken back. Those of a shard that was lost meanwhile are refused instead.
    private mutating func prepareAgain(now: Timestamp) {
        guard isTakenBack else { return }
        isTakenBack = false
        let before = (jobs: jobs.joined(), units: units)
        (jobs, units) = ([], [])
        var kept: [State.Job] = []
        for (job, unit) in zip(before.jobs, before.units) {
            if participants.lookahead(of: job) != .repeated {
                units.append(unit)
            } else if let shard = owned.foreign(unit.placement) {
                refused.append(Refused(shard: shard, job: job))
                continue
            } else {
                units.append(participants.unit(of: job, now: now))
            }
            kept.append(job)
        }
        jobs = [kept]
    }

    /// Adds the replies of refused jobs to a result, and the jobs to its failures.
    private mutating func answerRefused(_ result: inout Result, now: Timestamp) {
        var refused: [Refused] = []
        swap(&refused, &self.refused)
        for refused in refused {
            result.replies += participants.refuse(refused.job, now: now)
            let error = StoreError.epochLost(refused.shard)
            if let place = result.failures.firstIndex(where: { $0.error == error }) {
                result.failures[place].jobs.append(refused.job)
            } else {
                result.failures.append((error, [refused.job]))
            }
        }
    }
}
