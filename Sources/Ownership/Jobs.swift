// Jobs between gateways, and what happens to a gateway's shards, as values.

package import StorePort

/// Names a job for good: 128 random bits, stored with what the job writes, so that it is performed once.
package struct JobToken: Hashable, Sendable {
    package let high: UInt64
    package let low: UInt64

    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// A job on its way to the owner of its shard.
package struct SentJob<Job: Sendable>: Sendable {
    package var token: JobToken
    package var shard: Shard
    /// The epoch in which the sender believes the receiver to own the shard.
    package var epoch: UInt64
    package var job: Job

    package init(token: JobToken, shard: Shard, epoch: UInt64, job: Job) {
        (self.token, self.shard, self.epoch, self.job) = (token, shard, epoch, job)
    }
}

/// How a job has ended at its owner.
package enum JobOutcome<Reply: Sendable>: Sendable {
    case done(Reply)
    /// The database refused the commit, and nothing of it is written.
    case failed
    /// This gateway does not own the shard in that epoch: ask again when another owner is known.
    case notMine
}

/// The answer to a job of another gateway.
package struct SentReply<Reply: Sendable>: Sendable {
    package var token: JobToken
    package var shard: Shard
    /// That of the job.
    package var epoch: UInt64
    package var outcome: JobOutcome<Reply>

    package init(token: JobToken, shard: Shard, epoch: UInt64, outcome: JobOutcome<Reply>) {
        (self.token, self.shard, self.epoch, self.outcome) = (token, shard, epoch, outcome)
    }
}

/// What a client's job came to.
package enum JobAnswer<Reply: Sendable>: Sendable {
    case done(Reply)
    /// Nothing is written, and nothing of it will ever be.
    case notSent
}

/// A job of a batch.
package struct BatchJob<Job: Sendable>: Sendable {
    package var token: JobToken
    package var shard: Shard
    package var job: Job
    var origin: JobOrigin
}

enum JobOrigin: Sendable {
    case own
    case gateway(GatewayID, epoch: UInt64)
}

/// What a job of a committed batch is answered with.
package struct JobResult<Reply: Sendable>: Sendable {
    package var reply: Reply
    /// The rise that all gateways must have in effect before the answer leaves; 0 if there is none.
    package var version: UInt64

    package init(_ reply: Reply, after version: UInt64) { (self.reply, self.version) = (reply, version) }
}

/// Names an exchange with the database. Its answer counts once, and only if it is still expected.
package struct Operation: Hashable, Sendable {
    package let number: UInt64

    package init(_ number: UInt64) { self.number = number }
}

/// What ``OwnershipMachine`` is told.
package enum OwnershipEvent<Job: Sendable, Reply: Sendable>: Sendable {
    /// Time has passed; at least five times a second.
    case tick

    // Answers to beats.
    case view(Operation, ClusterView)
    /// The gateway's own row is not there.
    case rowMissing(Operation)

    // Answers to takes, loads and releases.
    case taken(Operation, ShardMark)
    /// The shard is loaded, in this epoch.
    case loaded(Operation, epoch: UInt64)
    case released(Operation)
    /// The condition did not hold, and nothing is changed.
    case refused(Operation)
    /// No answer to any of them, nor to a beat: it may be executed, be lost, or be executed later.
    case unanswered(Operation)

    // Outcomes of commits.
    /// With a result for each job, in their order.
    case committed(Operation, [JobResult<Reply>])
    /// Nothing is written.
    ///
    /// - Parameter isKnown: for each job, whether its token was stored before.
    case failed(Operation, isKnown: [Bool])
    /// Nothing is written: this shard is in another epoch, or has another number.
    case fenced(Operation, Shard)
    /// It is not known whether the commit was executed, nor whether it will be.
    case unknown(Operation)

    /// A job of an own client.
    case submit(JobToken, Shard, Job)
    case job(GatewayID, SentJob<Job>)
    case reply(GatewayID, SentReply<Reply>)
    case connected(GatewayID)
    case disconnected(GatewayID)
    /// Another gateway has this rise in effect.
    case acknowledged(GatewayID, version: UInt64)
    /// An act of the operator that makes something stricter is committed, as this rise. It is not answered if the database
    /// is known to be rolled back.
    case raised(version: UInt64, ticket: UInt64)
    /// This gateway has raised the epoch of its shard itself, after a commit of unknown outcome that did not go through the
    /// machine. The shard is loaded.
    case settled(Shard, ShardMark)
    case drain
}

/// What has to be done, in this order.
package enum OwnershipAction<Job: Sendable, Reply: Sendable>: Sendable {
    /// Raise the beat, write the other two into the row, and read the cluster with all rises after `seen`.
    case beat(Operation, seen: UInt64, isDraining: Bool)
    /// Make this gateway the owner and add one to the epoch, if it is `seen`.
    ///
    /// - Parameter from: the suspect that owns the shard. If its beat is another one by now, nothing is taken; else its
    ///   connections to the database are ended before.
    case take(Operation, Shard, seen: UInt64, from: Suspect?)
    case load(Operation, Shard, epoch: UInt64)
    /// Make nobody the owner, if this gateway is and the mark fits.
    case release(Operation, Shard, ShardMark)
    /// Forget all that memory holds of a shard.
    case drop(Shard)
    /// Prepare the jobs and commit all they write in one transaction, which checks the fences and keeps their rows locked.
    case commit(Operation, [Fence], [BatchJob<Job>])
    case send(GatewayID, SentJob<Job>)
    case reply(GatewayID, SentReply<Reply>)
    case answer(JobToken, JobAnswer<Reply>)
    /// Send a rise to all gateways with a link. They put it into effect and acknowledge it.
    case announce(version: UInt64)
    /// The act with this ticket is in effect everywhere.
    case inEffect(ticket: UInt64)
    /// Remove the row of a gateway if its beat is still this one.
    case remove(GatewayID, beat: UInt64)
    /// Write into the database that it was rolled back, so that all gateways stop, if it is still in this generation.
    case reportRollback(generation: UInt64)
    /// End: another process must begin under a new id.
    case end
}

extension SentJob: Equatable where Job: Equatable {}
extension JobOutcome: Equatable where Reply: Equatable {}
extension SentReply: Equatable where Reply: Equatable {}
