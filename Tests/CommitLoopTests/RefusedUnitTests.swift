import StorePort
import Testing

/// Batches in which the store refuses single units or shared rows.
@Suite struct RefusedUnitTests {
    @Test func onlyTheRefusedUnitIsRolledBack() throws {
        var loop = try Loop()
        #expect(loop.run([.add("b", 1)]) == ["1: done b=1"])
        #expect(
            loop.run(
                [.add("a", 1), .notify(7)],
                [.add("b", 10), .stale, .add("c", 10), .add("b", 10), .notify(8), .look("b")],
                [.add("d", 2), .number, .notify(9)])
                == [
                    "7: 1.1 committed at 2", "1: done a=1", "2: failed", "8: 2.4 taken back at 2: unit",
                    "9: 3.2 committed at 2", "3: done d=2 #1",
                ])
        // The only reads are those of the records that the unit changed.
        #expect(
            loop.state.journal == [
                "prepare 1", "prepare 2", "prepare 3", "close", "seal []", "closed true",
                "take back 2.4 unit", "take back 2.3 unit", "take back 2.2 unit", "take back 2.0 unit", "restore b",
                "restore c", "complete 1.1", "complete 3.2",
            ])
        try loop.expect(["a=1", "b=1", "d=2", "#1"])
    }

    /// Refused units are rolled back last first, before the others are completed; the replies keep the order of the jobs.
    @Test func repliesKeepTheOrderOfJobs() throws {
        var loop = try Loop()
        #expect(
            loop.run(
                [.stale, .notify(7), .number], [.number, .notify(8)], [.notify(9), .silent, .stale, .number],
                [.stale, .cancel], [.cancel, .stale])
                == [
                    "1: failed", "7: 1.1 taken back at 2: unit", "8: 2.1 committed at 2", "2: done #2", "3: failed",
                    "9: 3.0 taken back at 2: unit", "4: cancelled", "5: cancelled and failed",
                ])
        #expect(
            loop.state.journal.dropFirst(7) == [
                "close", "seal []", "closed true", "take back 3.3 unit", "take back 3.0 unit", "take back 1.2 unit",
                "take back 1.1 unit", "complete 2.1",
            ])
        // The numbers of refused units are not used again.
        try loop.expect(["#3"])
    }

    /// A record is restored from the store, where another unit of the batch may have written it.
    @Test func aRecordOfSeveralUnitsIsRestored() throws {
        var loop = try Loop()
        #expect(loop.run([.add("a", 3)], [.add("a", 5), .stale]) == ["1: done a=3", "2: failed"])
        try loop.expect(["a=3", "#0"])
        // The later job has added to the value of the refused one.
        #expect(loop.run([.add("a", 5), .stale], [.add("a", 1)]) == ["1: failed", "2: done a=9"])
        try loop.expect(["a=9", "#0"])
        #expect(loop.run([.remove("a"), .stale]) == ["1: failed"])
        try loop.expect(["a=9", "#0"])
    }

    /// Shared rows of a refused unit are committed, and read again before the next use.
    @Test func sharedRowsOfARefusedUnitAreCommitted() throws {
        var loop = try Loop()
        #expect(
            loop.run([.turn(1), .turn(2)], [.turn(1), .stale], [.turn(3)])
                == ["1: done wheel 1=1 wheel 2=1", "2: failed", "3: done wheel 3=1"])
        #expect(loop.state.journal.suffix(3) == ["seal [1, 2, 3]", "closed true", "drop [1]"])
        #expect(loop.state.wheels == [2: .init(turns: 1, fence: 1), 3: .init(turns: 1, fence: 1)])
        try loop.expect(["wheel 1=2", "wheel 2=1", "wheel 3=1", "#0"])
        #expect(loop.run([.turn(1), .turn(2)]) == ["1: done wheel 1=3 wheel 2=2"])
        #expect(loop.state.journal == ["prepare 1", "read wheel 1", "close", "seal [1, 2]", "closed true"])
        try loop.expect(["wheel 1=3", "wheel 2=2", "wheel 3=1", "#0"])
    }

    // MARK: Refused shared rows

    @Test func unitsThatDependOnARefusedRowAreRefused() throws {
        var loop = try Loop()
        #expect(loop.run([.turn(1), .turn(2)]) == ["1: done wheel 1=1 wheel 2=1"])
        try loop.takeOver(wheel: 1, turns: 50)
        #expect(
            loop.run(
                [.turn(1), .notify(7)], [.turn(2), .add("a", 1), .notify(8)], [.turn(2), .turn(1), .notify(9)],
                [.add("b", 1)])
                == [
                    "1: failed", "7: 1.1 taken back at 2: unit", "8: 2.2 committed at 2", "2: done wheel 2=2 a=1",
                    "3: failed", "9: 3.2 taken back at 2: unit", "4: done b=1",
                ])
        #expect(
            loop.state.journal == [
                "prepare 1", "prepare 2", "prepare 3", "prepare 4", "close", "seal [1, 2]", "closed true",
                // The refused rows first, then those of each refused unit.
                "drop [1]", "drop [1, 2]", "take back 3.2 unit", "drop [1]", "take back 1.1 unit", "complete 2.2",
            ])
        try loop.expect(["a=1", "b=1", "wheel 1=50", "wheel 2=3", "#0"])
        // The next job reads the row of the other process.
        #expect(loop.run([.turn(1)]) == ["1: done wheel 1=51"])
        try loop.expect(["a=1", "b=1", "wheel 1=51", "wheel 2=3", "#0"])
    }

    /// All units are refused, and the end of the batch is committed.
    @Test func allRowsAreRefused() throws {
        var loop = try Loop()
        #expect(loop.run([.turn(1), .turn(2)]) == ["1: done wheel 1=1 wheel 2=1"])
        try loop.takeOver(wheel: 1, turns: 50)
        try loop.takeOver(wheel: 2, turns: 60)
        #expect(loop.run([.turn(1), .number], [.turn(2)]) == ["1: failed", "2: failed"])
        #expect(loop.state.wheels.isEmpty)
        try loop.expect(["wheel 1=50", "wheel 2=60", "#1"])
    }

    /// Memory agrees with the store about records of a unit whose shared row is refused.
    @Test func recordsOfAUnitWithARefusedRowAreRestored() throws {
        var loop = try Loop()
        #expect(loop.run([.turn(1), .add("a", 1)]) == ["1: done wheel 1=1 a=1"])
        try loop.takeOver(wheel: 1, turns: 50)
        #expect(loop.run([.turn(1), .add("a", 10)], [.add("b", 1)]) == ["1: failed", "2: done b=1"])
        #expect(loop.state.journal.suffix(3) == ["drop [1]", "take back 1.1 unit", "restore a"])
        #expect(try loop.inMemory() == loop.stored())
    }

    /// A unit's rows are committed together with its shared rows or not at all.
    @Test func aUnitWithARefusedRowWritesNothing() throws {
        var loop = try Loop()
        #expect(loop.run([.turn(1), .add("a", 1)]) == ["1: done wheel 1=1 a=1"])
        try loop.takeOver(wheel: 1, turns: 50)
        #expect(loop.run([.turn(1), .add("a", 10)]) == ["1: failed"])
        try loop.expect(["a=1", "wheel 1=50", "#0"])
    }

    /// The end of a batch is a group, so the store can refuse it alone.
    @Test func aRefusedEndOfTheBatchIsNotCommitted() throws {
        var loop = try Loop()
        loop.state.closesStale = true
        #expect(loop.run([.number, .add("a", 1)]) == ["1: done #1 a=1"])
        #expect(try loop.stored() == ["a=1", "#0"])
        #expect(loop.state.journal.contains("closed false"))
    }
}
