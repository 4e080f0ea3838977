import CommitLoop
import Protection
import StorePort
import Testing

/// Batches that the store commits without a refusal.
@Suite struct CommittedBatchTests {
    @Test func nothingIsCompletedBeforeTheCommit() throws {
        var loop = try Loop()
        let jobs = Loop.jobs([[.add("a", 5), .look("a"), .notify(9)], [.turn(3), .remove("b"), .number]])
        let batch = loop.state.prepare(jobs, now: Timestamp(monotonic: 1, wall: 1))
        let prepared = ["prepare 1", "prepare 2", "read wheel 3", "close", "seal [3]"]
        #expect(loop.state.journal == prepared)
        #expect(
            batch.groups == [
                ChangeGroup(
                    [.putSession(SessionRow(id: Counters.session(3), fence: 1, sealedState: Counters.bytes(1)))],
                    in: .shard(.only)),
                ChangeGroup(
                    [.putRecord(RecordRow(kind: .blob, name: "a", value: Counters.bytes(5)))], in: .shard(Shard(1))),
                // The second job has turned wheel 3.
                ChangeGroup([.removeRecord(.blob, name: "b")], in: .shard(Shard(2)), requires: [0]),
                ChangeGroup(
                    [.putRecord(RecordRow(kind: .sent, name: "number", value: Counters.bytes(1)))], in: .several),
            ])
        #expect(!batch.isEmpty)
        #expect(batch.allCommitted == [nil, nil, nil, nil])
        #expect(try loop.stored() == ["#0"])

        let committed = try loop.store.commit(batch.groups)
        #expect(loop.state.journal == prepared)
        let replies = loop.state.complete(batch, committed: committed, now: Timestamp(monotonic: 2, wall: 2))
        #expect(
            Loop.texts(replies) == [
                "1: stored a=5", "9: 1.2 committed at 2", "1: done a=5", "2: done wheel 3=1 b=nil #1",
            ])
        #expect(loop.state.journal == prepared + ["closed true", "complete 1.1", "complete 1.2"])
        try loop.expect(["a=5", "wheel 3=1", "#1"])
    }

    @Test func theEndOfABatchIsToldLast() throws {
        var loop = try Loop()
        loop.state.listener = ConnectionID(99)
        let jobs = Loop.jobs([[.number, .notify(9)], [.add("a", 1)]])
        let batch = loop.state.prepare(jobs, now: Timestamp(monotonic: 1, wall: 1))
        let replies = loop.state.complete(
            batch, committed: try loop.store.commit(batch.groups), now: Timestamp(monotonic: 2, wall: 2))
        #expect(Loop.texts(replies).last == "99: number 1 settled true")
        #expect(replies.count == 4)
        let failed = loop.state.prepare(jobs, now: Timestamp(monotonic: 3, wall: 3))
        let told = loop.state.complete(failed, committed: nil, now: Timestamp(monotonic: 4, wall: 4))
        #expect(Loop.texts(told).last == "99: number 2 settled false", "after the rollbacks")
    }

    /// A unit's completions run in the order in which they were added, then its reply follows.
    @Test func repliesFollowTheOrderOfJobs() throws {
        var loop = try Loop()
        let replies = loop.run(
            [.notify(8), .add("a", 1), .notify(7), .notify(8)], [], [.silent, .notify(7)], [.silent, .add("b", 1)],
            [.notify(9), .add("a", 2)])
        #expect(
            replies == [
                "8: 1.0 committed at 2", "7: 1.2 committed at 2", "8: 1.3 committed at 2", "1: done a=1", "2: done",
                "7: 3.1 committed at 2", "9: 5.0 committed at 2", "5: done a=3",
            ])
        #expect(
            loop.state.journal == [
                "prepare 1", "prepare 2", "prepare 3", "prepare 4", "prepare 5", "close", "seal []", "closed true",
                "complete 1.0", "complete 1.2", "complete 1.3", "complete 3.1", "complete 5.0",
            ])
        try loop.expect(["a=3", "b=1", "#0"])
    }

    /// A job sees the effects of earlier jobs of its batch.
    @Test func jobsSeeEarlierJobs() throws {
        var loop = try Loop()
        #expect(
            loop.run(
                [.add("a", 1), .turn(1), .number], [.add("a", 2), .turn(1), .number], [.remove("a")], [.add("a", 4)])
                == ["1: done a=1 wheel 1=1 #1", "2: done a=3 wheel 1=2 #2", "3: done a=nil", "4: done a=4"])
        try loop.expect(["a=4", "wheel 1=2", "#2"])
    }

    /// A shared row is written once for a batch, however many units change it.
    @Test func aSharedRowIsWrittenOnce() throws {
        var loop = try Loop()
        for turns in [2, 4, 6] {
            #expect(
                loop.run([.turn(1)], [.turn(1)]) == ["1: done wheel 1=\(turns - 1)", "2: done wheel 1=\(turns)"])
            let row = try #require(try loop.store.session(Counters.session(1)))
            #expect(row.fence == UInt64(turns / 2) && row.sealedState == Counters.bytes(turns))
        }
        // The last batch did not read it: it is in memory.
        #expect(loop.state.journal == ["prepare 1", "prepare 2", "close", "seal [1]", "closed true"])
    }

    /// Jobs that write nothing are completed without the store.
    @Test func aBatchWithoutRowsIsEmpty() throws {
        var loop = try Loop()
        let batch = loop.state.prepare(Loop.jobs([[.notify(9)], []]), now: Timestamp(monotonic: 1, wall: 1))
        #expect(batch.isEmpty)
        #expect(batch.groups.map(\.placement) == [.shard(Shard(1)), .shard(Shard(2)), .several])
        #expect(batch.allCommitted == [nil, nil, nil])
        let replies = loop.state.complete(batch, committed: batch.allCommitted, now: Timestamp(monotonic: 2, wall: 2))
        #expect(Loop.texts(replies) == ["9: 1.0 committed at 2", "1: done", "2: done"])
        #expect(
            loop.state.journal == ["prepare 1", "prepare 2", "close", "seal []", "closed true", "complete 1.0"])
    }

    @Test func aBatchWithoutJobsIsEmpty() throws {
        var loop = try Loop()
        let batch = loop.state.prepare([], now: Timestamp(monotonic: 1, wall: 1))
        #expect(batch.isEmpty && batch.groups == [ChangeGroup([], in: .several)])
        #expect(loop.run().isEmpty)
        #expect(loop.state.journal == ["close", "seal []", "closed true"])
    }

    /// A batch whose units write nothing is committed if its end has changes.
    @Test func theEndOfABatchIsCommitted() throws {
        var loop = try Loop()
        #expect(loop.run([.number, .silent]).isEmpty)
        try loop.expect(["#1"])
        #expect(loop.run([]) == ["1: done"])
        #expect(loop.state.journal == ["prepare 1", "close", "seal []", "closed true"])
        try loop.expect(["#1"])
    }
}
