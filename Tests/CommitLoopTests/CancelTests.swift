import Testing

/// Jobs that cancel themselves while they are prepared.
@Suite struct CancelTests {
    @Test func aCancelledJobWritesAndCompletesNothing() throws {
        var loop = try Loop()
        #expect(loop.run([.add("a", 5), .remove("b"), .notify(9), .look("a"), .cancel]) == ["1: cancelled"])
        // Rollbacks that run before the commit send no replies.
        #expect(
            loop.state.journal == [
                "prepare 1", "cancel 1.4", "take back 1.2 cancelled", "take back 1.1 cancelled",
                "take back 1.0 cancelled", "close", "seal []", "closed true",
            ])
        try loop.expect(["#0"])
    }

    /// Each rollback sets the value from before its own step, so only the reverse order restores that from before the job.
    @Test func rollbacksRunInReverseOrder() throws {
        var loop = try Loop()
        #expect(loop.run([.add("a", 1), .number]) == ["1: done a=1 #1"])
        #expect(
            loop.run(
                [.add("a", 10), .number, .add("a", 100), .number, .remove("a"), .cancel], [.add("a", 1), .number])
                == ["1: cancelled", "2: done a=2 #2"])
        #expect(
            loop.state.journal == [
                "prepare 1", "cancel 1.5", "take back 1.4 cancelled", "take back 1.3 cancelled",
                "take back 1.2 cancelled", "take back 1.1 cancelled", "take back 1.0 cancelled", "prepare 2", "close",
                "seal []", "closed true",
            ])
        try loop.expect(["a=2", "#2"])
    }

    @Test func theOtherJobsOfTheBatchAreCommitted() throws {
        var loop = try Loop()
        #expect(
            loop.run(
                [.add("a", 1), .number, .notify(7)], [.add("a", 10), .add("b", 10), .number, .notify(8), .cancel],
                [.add("a", 2), .number, .notify(9)])
                == [
                    "7: 1.2 committed at 2", "1: done a=1 #1", "2: cancelled", "9: 3.2 committed at 2",
                    "3: done a=3 #2",
                ])
        try loop.expect(["a=3", "#2"])
    }

    /// A job may add rows and completions after it has cancelled itself.
    @Test func stepsAfterTheCancellationCount() throws {
        var loop = try Loop()
        #expect(
            loop.run([.add("a", 5), .notify(7), .cancel, .add("b", 2), .notify(8), .number])
                == ["8: 1.4 committed at 2", "1: cancelled b=2 #1"])
        #expect(
            loop.state.journal == [
                "prepare 1", "cancel 1.2", "take back 1.1 cancelled", "take back 1.0 cancelled", "close", "seal []",
                "closed true", "complete 1.4",
            ])
        try loop.expect(["b=2", "#1"])
    }

    @Test func eachRollbackRunsOnce() throws {
        var loop = try Loop()
        #expect(loop.run([.add("a", 1), .cancel, .add("a", 2), .cancel, .cancel]) == ["1: cancelled"])
        #expect(
            loop.state.journal == [
                "prepare 1", "cancel 1.1", "take back 1.0 cancelled", "cancel 1.3", "take back 1.2 cancelled",
                "cancel 1.4", "close", "seal []", "closed true",
            ])
        try loop.expect(["#0"])
    }

    /// If the batch fails as well, only the steps after the cancellation are rolled back and restored.
    @Test func aFailedBatchRollsBackTheLaterSteps() throws {
        var loop = try Loop()
        let steps: [Step] = [.add("a", 1), .notify(7), .cancel, .add("b", 2), .notify(8)]
        #expect(
            loop.run(steps, [.add("a", 3), .cancel], fault: .store)
                == ["1: cancelled and failed", "8: 1.4 taken back at 2: batch", "2: cancelled and failed"])
        #expect(
            loop.state.journal == [
                "prepare 1", "cancel 1.2", "take back 1.1 cancelled", "take back 1.0 cancelled", "prepare 2",
                "cancel 2.1", "take back 2.0 cancelled", "close", "seal []", "closed false", "take back 1.4 batch",
                "take back 1.3 batch", "restore b",
            ])
        try loop.expect(["#0"])
    }

    /// The cancellation also removes a row that the store would refuse.
    @Test func aStaleRowIsNotWritten() throws {
        var loop = try Loop()
        #expect(
            loop.run([.stale, .cancel, .add("a", 1)], [.cancel, .stale])
                == ["1: cancelled a=1", "2: cancelled and failed"])
        try loop.expect(["a=1", "#0"])
    }

    /// Shared rows are not rolled back: they are written, and the job still depends on them.
    @Test func sharedRowsStay() throws {
        var loop = try Loop()
        #expect(loop.run([.turn(1), .add("a", 1), .cancel], [.turn(1)]) == ["1: cancelled", "2: done wheel 1=2"])
        try loop.expect(["wheel 1=2", "#0"])
        try loop.takeOver(wheel: 1, turns: 50)
        #expect(loop.run([.turn(1), .cancel], [.add("a", 1)]) == ["1: cancelled and failed", "2: done a=1"])
        try loop.expect(["a=1", "wheel 1=50", "#0"])
    }
}
