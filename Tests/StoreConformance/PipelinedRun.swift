package import CommitLoop
package import Protection
package import StorePort

extension CommitPipeline {
    /// Runs jobs to their end: in one batch, or in two if possible, of which the second one is prepared while the first one
    /// is being committed.
    package mutating func run(
        _ jobs: [State.Job], isSplit: Bool = true, now: Timestamp, _ commit: ([ChangeGroup]) -> CommitOutcome
    ) -> Replies {
        var limit = isSplit ? jobs.count - jobs.count / 2 : jobs.count
        var waiting = jobs[...]
        var groups: [ChangeGroup]?
        var replies: Replies = []
        repeat {
            let next = Array(waiting.prefix(min(limit, room(for: waiting))))
            waiting.removeFirst(next.count)
            limit = .max
            prepare(next, now: now)
            groups = groups.map { ended(commit($0), now: now) } ?? close(now: now)
            replies += settle(now: now).replies
        } while !waiting.isEmpty || groups != nil || openJobs > 0
        return replies
    }
}
