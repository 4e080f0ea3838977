package import CommitLoop
package import Protection
package import StorePort
import Testing

extension Store {
    /// Commits groups, and records it if a row is not in its group's shard.
    package func checkedOutcome(of commit: PreparedCommit) -> CommitOutcome {
        let outcome = outcome(of: commit)
        guard case .done(let results) = outcome else { return outcome }
        for case .corrupt(let text) in results { Issue.record("\(text)") }
        return outcome
    }
}

extension SessionID {
    /// One side of the session of two hosted devices.
    package init(of owner: DeviceRow, with peer: DeviceRow, in sharding: Sharding) {
        let (sender, recipient) = owner.account.roomName == nil ? (owner, peer) : (peer, owner)
        let shard = sharding.shard(from: sender.account, to: recipient.account)
        self.init(owner: owner.id, peer: peer.id, in: shard)
    }
}

extension CommitPipeline {
    /// Runs jobs to their end: in one batch, or in two if possible, of which the second one is prepared while the first one
    /// is being committed.
    package mutating func run(
        _ jobs: [State.Job], isSplit: Bool = true, now: Timestamp, _ commit: (PreparedCommit) -> CommitOutcome
    ) -> Replies {
        var limit = isSplit ? jobs.count - jobs.count / 2 : jobs.count
        var waiting = jobs[...]
        var prepared: PreparedCommit?
        var replies: Replies = []
        repeat {
            let next = Array(waiting.prefix(min(limit, room(for: waiting))))
            waiting.removeFirst(next.count)
            limit = .max
            prepare(next, now: now)
            prepared = prepared.map { ended(commit($0), now: now) } ?? close(now: now)
            replies += settle(now: now).replies
        } while !waiting.isEmpty || prepared != nil || openJobs > 0
        return replies
    }
}
