import CommitLoop
import Protection
import StorePort
import Testing

/// Batches of which nothing is committed.
@Suite struct FailedBatchTests {
    /// A loop with two counters, a wheel and a number in the store.
    private func begun() throws -> Loop {
        var loop = try Loop()
        #expect(
            loop.run([.add("a", 1), .add("b", 1), .turn(1), .number]) == ["1: done a=1 b=1 wheel 1=1 #1"])
        return loop
    }

    private static let jobs: [[Step]] = [
        [.add("a", 10), .number, .notify(7), .look("a")],
        [.turn(1), .turn(2), .remove("b"), .silent],
        [.number, .add("a", 100), .notify(8), .notify(9), .add("c", 100)],
    ]

    /// Failures in the order of the jobs, each before the replies of its own rollbacks.
    private static let failures = [
        "1: failed", "7: 1.2 taken back at 2: batch", "2: failed", "3: failed", "9: 3.3 taken back at 2: batch",
        "8: 3.2 taken back at 2: batch",
    ]

    @Test func theLastUnitIsRolledBackFirst() throws {
        var loop = try begun()
        let before = try loop.stored()
        #expect(loop.run(jobs: Loop.jobs(Self.jobs), fault: .store) == Self.failures)
        #expect(
            loop.state.journal == [
                "prepare 1", "prepare 2", "read wheel 2", "prepare 3", "close", "seal [1, 2]",
                // The end of the batch and the shared rows come before any unit.
                "closed false", "drop [1, 2]",
                "take back 3.4 batch", "take back 3.3 batch", "take back 3.2 batch", "take back 3.1 batch",
                "take back 3.0 batch", "restore a", "restore c",
                "take back 2.2 batch", "restore b",
                "take back 1.2 batch", "take back 1.1 batch", "take back 1.0 batch", "restore a",
            ])
        #expect(loop.state.wheels.isEmpty)
        try loop.expect(before)
    }

    @Test func theNextBatchWorks() throws {
        var loop = try begun()
        #expect(loop.run(jobs: Loop.jobs(Self.jobs), fault: .store) == Self.failures)
        #expect(
            loop.run(jobs: Loop.jobs(Self.jobs))
                == [
                    "7: 1.2 committed at 2", "1: stored a=111", "1: done a=11 #2", "8: 3.2 committed at 2",
                    "9: 3.3 committed at 2", "3: done #3 a=111 c=100",
                ])
        #expect(
            loop.state.journal == [
                "prepare 1", "prepare 2", "read wheel 1", "read wheel 2", "prepare 3", "close", "seal [1, 2]",
                "closed true", "complete 1.2", "complete 1.3", "complete 3.2", "complete 3.3",
            ])
        try loop.expect(["a=111", "c=100", "wheel 1=2", "wheel 2=1", "#3"])
        #expect(loop.state.wheels[1] == .init(turns: 2, fence: 2))
    }

    /// Each record of a unit is restored once. Names are compared by their bytes, and kinds keep them apart.
    @Test func eachRecordOfAUnitIsRestoredOnce() throws {
        var loop = try Loop()
        let (composed, decomposed) = ("\u{E9}", "e\u{301}")
        #expect(
            loop.run([.add(composed, 1), .add(decomposed, 2), .add("a", 3), .add("a", 4, .mailboxEntry)])
                == ["1: done \u{E9}=1 e\u{301}=2 a=3 a/mailboxEntry=4"])
        let before = try loop.stored()
        #expect(
            loop.run(
                [.add("a", 1), .remove("a"), .add("a", 5, .mailboxEntry), .add(composed, 1), .add("a", 1)],
                [.remove(decomposed), .add("a", 1)], fault: .store) == ["1: failed", "2: failed"])
        let restored = loop.state.journal.filter { $0.hasPrefix("restore") }.map { Array($0.unicodeScalars) }
        let expected = [
            "restore e\u{301}", "restore a", "restore a", "restore a/mailboxEntry", "restore \u{E9}",
        ]
        #expect(restored == expected.map { Array($0.unicodeScalars) })
        try loop.expect(before)
    }

    /// A failed batch also fails jobs without rows, and those that send no reply after a commit.
    @Test func jobsWithoutRowsFail() throws {
        var loop = try Loop()
        #expect(loop.run([], [.silent], [.add("a", 1)], fault: .store) == ["1: failed", "2: failed", "3: failed"])
        try loop.expect(["#0"])
    }

    /// Only the end of the batch has changes.
    @Test func aBatchOfNumbersFails() throws {
        var loop = try Loop()
        #expect(loop.run([.number], fault: .store) == ["1: failed"])
        #expect(
            loop.state.journal == [
                "prepare 1", "close", "seal []", "closed false", "take back 1.0 batch",
            ])
        try loop.expect(["#0"])
        #expect(loop.run([.number]) == ["1: done #1"])
        try loop.expect(["#1"])
    }

    // MARK: Shared rows that cannot be made

    @Test func aBatchWhoseSharedRowsCannotBeMadeIsNotCommitted() throws {
        var loop = try begun()
        let before = try loop.stored()
        loop.state.cannotSeal = true
        loop.state.journal = []
        let batch = loop.state.prepare(Loop.jobs(Self.jobs), now: Timestamp(monotonic: 1, wall: 1))
        #expect(batch.groups.isEmpty && batch.isEmpty && batch.allCommitted.isEmpty)
        // Its units fail although a store commits a batch without groups.
        let replies = loop.state.complete(batch, committed: [], now: Timestamp(monotonic: 2, wall: 2))
        #expect(Loop.texts(replies) == Self.failures)
        #expect(
            loop.state.journal.filter { !$0.hasPrefix("drop") } == [
                "prepare 1", "prepare 2", "read wheel 2", "prepare 3", "close", "seal [1, 2]", "closed false",
                "take back 3.4 batch", "take back 3.3 batch", "take back 3.2 batch", "take back 3.1 batch",
                "take back 3.0 batch", "restore a", "restore c", "take back 2.2 batch", "restore b",
                "take back 1.2 batch", "take back 1.1 batch", "take back 1.0 batch", "restore a",
            ])
        #expect(try loop.stored() == before)
    }

    @Test func theBatchAfterOneWithoutSharedRowsWorks() throws {
        var loop = try begun()
        #expect(loop.run([.add("a", 5), .number], [], fault: .sealing) == ["1: failed", "2: failed"])
        try loop.expect(["a=1", "b=1", "wheel 1=1", "#1"])
        #expect(loop.run([.add("a", 1), .turn(1), .number]) == ["1: done a=2 wheel 1=2 #2"])
        try loop.expect(["a=2", "b=1", "wheel 1=2", "#2"])
    }

    /// Shared rows that were not made are read again, like those that were not committed.
    @Test func sharedRowsThatCannotBeMadeAreDropped() throws {
        var loop = try begun()
        #expect(loop.run([.turn(1)], fault: .sealing) == ["1: failed"])
        #expect(loop.run([.add("a", 1)]) == ["1: done a=2"])
        try loop.expect(["a=2", "b=1", "wheel 1=1", "#1"])
    }
}
