import CommitLoop
import Protection
import StorePort
import TestKit
import Testing

/// A pipeline over a new store. The store commits when the test says so.
private struct Line {
    let loop: Loop
    var pipeline: CommitPipeline<Counters>
    var groups: PreparedCommit?
    var replies: [String] = []
    var failures = 0
    var errors: [StoreError] = []
    /// The names of the jobs of each failure.
    var jobs: [[UInt64]] = []

    init(_ sharding: Sharding = .single) throws {
        loop = try Loop(sharding)
        pipeline = CommitPipeline(loop.state)
    }

    var journal: [String] {
        get { pipeline.participants.journal }
        set { pipeline.participants.journal = newValue }
    }

    /// Prepares jobs, and begins a commit if none is under way.
    ///
    /// - Returns: how many were prepared.
    @discardableResult
    mutating func take(_ jobs: [CounterJob]) -> Int {
        let room = pipeline.room(for: jobs[...])
        pipeline.prepare(Array(jobs.prefix(room)), now: Timestamp(monotonic: 1, wall: 1))
        if !pipeline.isCommitting { close() }
        return room
    }

    mutating func close() {
        groups = pipeline.close(now: Timestamp(monotonic: 1, wall: 1))
        if groups == nil { settle() }
    }

    /// Ends the commit under way.
    ///
    /// - Returns: the replies until the next commit ends.
    @discardableResult
    mutating func end(_ outcome: (PreparedCommit) -> CommitOutcome) throws -> [String] {
        let before = replies.count
        groups = pipeline.ended(outcome(try #require(groups)), now: Timestamp(monotonic: 1, wall: 1))
        settle()
        return Array(replies[before...])
    }

    /// Ends it as the store says.
    @discardableResult
    mutating func end() throws -> [String] {
        let store = loop.store
        return try end { store.outcome(of: $0) }
    }

    private mutating func settle() {
        let result = pipeline.settle(now: Timestamp(monotonic: 2, wall: 2))
        replies += Loop.texts(result.replies)
        failures += result.failures.count
        errors += result.failures.map(\.error)
        jobs += result.failures.map { $0.jobs.map(\.id) }
        if !pipeline.isCommitting, pipeline.openJobs > 0 { close() }
    }

    func expect(_ contents: [String], sourceLocation: SourceLocation = #_sourceLocation) throws {
        var loop = loop
        loop.state = pipeline.participants
        try loop.expect(contents, sourceLocation: sourceLocation)
    }
}

private func job(_ id: UInt64, _ steps: Step..., lookahead: Lookahead = .repeated) -> CounterJob {
    CounterJob(id: id, steps: steps, lookahead: lookahead)
}

/// Two batches at a time: one is being committed, and the next one is prepared on its state.
@Suite struct CommitPipelineTests {
    @Test func theNextBatchIsPreparedDuringACommitAndAnsweredAfterItsOwn() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1), .turn(1))])
        #expect(line.take([job(2, .add("a", 10), .turn(1)), job(3, .number)]) == 2)
        #expect(line.replies.isEmpty)
        #expect(try line.end() == ["1: done a=1 wheel 1=1"])
        // The end of the second batch comes after the commit of the first one, and its own commit is under way.
        #expect(
            line.journal == [
                "prepare 1", "read wheel 1", "close", "seal [1]", "prepare 2", "prepare 3", "close", "seal [1]",
                "closed true",
            ])
        #expect(try line.loop.stored() == ["a=1", "wheel 1=1", "#0"])
        #expect(try line.end() == ["2: done a=11 wheel 1=2", "3: done #1"])
        try line.expect(["a=11", "wheel 1=2", "#1"])
        #expect(!line.pipeline.isCommitting && line.pipeline.openJobs == 0)
    }

    /// The batch is taken back whole. Jobs of the shard are refused before they are prepared, those ahead included, and jobs
    /// of other shards go on.
    @Test func aLostShardIsRefusedAndOthersGoOn() throws {
        var line = try Line(.shared)
        line.take([job(1, .add("a", 1)), job(2, .add("b", 1))])
        line.take([job(1, .add("a", 10)), job(2, .add("b", 10)), job(1, .notify(7))])
        line.loop.store.take(Shard(1))
        line.journal = []
        #expect(try line.end() == ["1: failed", "2: failed", "1: refused", "1: refused"])
        #expect(line.errors == [.epochLost(Shard(1))])
        #expect(line.jobs == [[1, 2, 1, 1]])
        #expect(
            line.journal.filter { $0.hasPrefix("prepare") || $0.hasPrefix("refuse") }
                == ["prepare 2", "refuse 1", "refuse 1"])
        #expect(try line.loop.stored() == ["#0"])
        #expect(try line.end() == ["2: done b=10"])
        line.journal = []
        line.take([job(1, .turn(1)), job(3, .add("c", 1))])
        #expect(line.journal.filter { $0.hasPrefix("prepare") } == ["prepare 3"])
        #expect(try line.end() == ["3: done c=1", "1: refused"])
        line.take([job(1)])
        #expect(line.replies.last == "1: refused" && !line.pipeline.isCommitting && line.pipeline.openJobs == 0)
        try line.expect(["b=10", "c=1", "#0"])
    }

    /// The jobs that were prepared ahead are taken back first, the last one first, and prepared again once.
    @Test func afterAFailedCommitTheNextBatchIsPreparedAgain() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1), .number, .turn(1), .notify(7))])
        line.take([job(2, .add("a", 10), .number, .turn(1), .notify(8)), job(3, .number)])
        line.journal = []
        line.loop.store.failNextCommit()
        #expect(try line.end() == ["1: failed", "7: 1.3 taken back at 2: batch"])
        #expect(line.failures == 1)
        #expect(
            line.journal == [
                "drop [1]", "take back 3.0 ahead", "take back 2.3 ahead", "take back 2.1 ahead", "take back 2.0 ahead",
                "restore a", "closed false", "drop [1]", "take back 1.3 batch", "take back 1.1 batch",
                "take back 1.0 batch", "restore a", "prepare 2", "read wheel 1", "prepare 3", "close", "seal [1]",
            ])
        #expect(try line.end() == ["8: 2.3 committed at 2", "2: done a=10 #1 wheel 1=1", "3: done #2"])
        try line.expect(["a=10", "wheel 1=1", "#2"])
    }

    @Test func afterARefusedUnitTheNextBatchIsPreparedAgain() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1), .turn(1), .stale), job(2, .add("b", 1), .turn(2))])
        line.take([job(3, .add("a", 10), .turn(1)), job(4, .add("b", 10), .turn(2))])
        #expect(try line.end() == ["1: failed", "2: done b=1 wheel 2=1"])
        // The wheel of a refused unit is committed, as without a batch ahead.
        #expect(try line.end() == ["3: done a=10 wheel 1=2", "4: done b=11 wheel 2=2"])
        try line.expect(["a=10", "b=11", "wheel 1=2", "wheel 2=2", "#0"])
    }

    @Test func afterAnUnknownOutcomeNothingIsAnswered() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1))])
        line.take([job(2, .add("a", 10), .notify(8))])
        line.journal = []
        #expect(try line.end { _ in .unknown(.unknown("lost")) } == [])
        #expect(line.journal == [])
        #expect(line.take([job(3, .number)]) == 0)
        #expect(line.replies.isEmpty && line.pipeline.openJobs == 0)
    }

    @Test func aJobThatIsNotPreparedAheadStopsThoseBehindIt() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1))])
        let next = [job(2, .add("a", 10)), job(3, .add("a", 100), lookahead: .none), job(4, .add("a", 1000))]
        #expect(line.take(next) == 1)
        #expect(line.take(Array(next[1...])) == 0)
        #expect(try line.end() == ["1: done a=1"])
        // Still a batch is being committed: the second job's.
        #expect(line.take(Array(next[1...])) == 0)
        #expect(try line.end() == ["2: done a=11"])
        #expect(line.take(Array(next[1...])) == 2)
        #expect(try line.end() == ["3: done a=111", "4: done a=1111"])
        try line.expect(["a=1111", "#0"])
    }

    /// What a lasting job has changed stays in memory, and its rows are committed with the batch that follows.
    @Test func aLastingJobIsPreparedOnce() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1))])
        line.take([job(2, .add("b", 2), lookahead: .lasting), job(3, .add("a", 10))])
        line.loop.store.failNextCommit()
        #expect(try line.end() == ["1: failed"])
        #expect(
            line.journal.filter { $0.hasPrefix("prepare") } == ["prepare 1", "prepare 2", "prepare 3", "prepare 3"])
        #expect(try line.end() == ["2: done b=2", "3: done a=10"])
        try line.expect(["a=10", "b=2", "#0"])
    }

    /// The rows of a batch cannot be made while the one before is committed: that one is completed, this one is not.
    @Test func aBatchAheadThatCannotBeSealedFailsAlone() throws {
        var line = try Line()
        line.take([job(1, .turn(1))])
        line.take([job(2, .turn(1))])
        line.pipeline.participants.cannotSeal = true
        #expect(try line.end() == ["1: done wheel 1=1", "2: failed"])
        #expect(line.failures == 1 && !line.pipeline.isCommitting)
        line.pipeline.participants.cannotSeal = false
        line.take([job(3, .turn(1))])
        #expect(try line.end() == ["3: done wheel 1=2"])
        try line.expect(["wheel 1=2", "#0"])
    }

    @Test func aBatchAheadWithoutChangesIsAnsweredAfterTheOneBefore() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1))])
        line.take([job(2)])
        #expect(line.replies.isEmpty)
        #expect(try line.end() == ["1: done a=1", "2: done"])
        #expect(!line.pipeline.isCommitting)
    }

    @Test func aBatchHasALimit() throws {
        var line = try Line()
        line.take([job(1, .add("a", 1))])
        let limit = CommitPipeline<Counters>.batchLimit
        let jobs = (0..<UInt64(limit + 5)).map { job($0) }
        #expect(line.take(jobs) == limit)
        #expect(line.take(jobs) == 0)
    }

    // MARK: Every interleaving

    /// Random batches with random outcomes, and jobs that arrive at random times. Replies, store and memory are those of the
    /// same batches one after the other.
    @Test(arguments: 0..<80 as Range<UInt64>)
    func itDoesWhatOneBatchAfterTheOtherDoes(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var line = try Line()
        var batches: [Batch] = []
        var (waiting, open): ([CounterJob], [CounterJob]) = ([], [])
        var (lastJob, takeOvers): (UInt64, Int) = (0, 0)
        /// Notes the batch that was closed, and lets another process take over one of its wheels.
        func closed() throws {
            guard !open.isEmpty else { return }
            batches.append(Batch(jobs: open))
            open = []
            let wheels = batches[batches.count - 1].wheels
            guard line.pipeline.isCommitting, Int.random(in: 0...4, using: &random) == 0,
                let wheel = wheels.randomElement(using: &random)
            else { return }
            takeOvers += 1
            batches[batches.count - 1].takenOver = (wheel, takeOvers * 1000)
            try line.loop.takeOver(wheel: wheel, turns: takeOvers * 1000)
        }
        for step in 0..<160 {
            if step < 120, Int.random(in: 0...2, using: &random) > 0 {
                lastJob += 1
                waiting.append(Self.randomJob(lastJob, &random))
            }
            if !line.pipeline.isCommitting || Bool.random(using: &random) {
                let isIdle = !line.pipeline.isCommitting
                let count = line.take(waiting)
                open += waiting.prefix(count)
                waiting.removeFirst(count)
                if isIdle { try closed() }
            }
            guard line.pipeline.isCommitting, step >= 120 || Bool.random(using: &random) else { continue }
            if Int.random(in: 0...4, using: &random) == 0 {
                batches[batches.count - 1].fails = true
                line.loop.store.failNextCommit()
            }
            try line.end()
            try closed()
        }
        try #require(waiting.isEmpty && open.isEmpty && !line.pipeline.isCommitting)
        var model = try Loop()
        var replies: [String] = []
        for batch in batches {
            let prepared = model.state.prepare(batch.jobs, now: Timestamp(monotonic: 1, wall: 1))
            if let (wheel, turns) = batch.takenOver { try model.takeOver(wheel: wheel, turns: turns) }
            if batch.fails { model.store.failNextCommit() }
            let committed = prepared.isEmpty ? prepared.allCommitted : try? model.store.commit(prepared.groups)
            replies += Loop.texts(
                model.state.complete(prepared, committed: committed, now: Timestamp(monotonic: 2, wall: 2)))
        }
        try #require(line.replies == replies, "seed \(seed)")
        try line.expect(try model.stored())
        let turns = Self.turns(replies)
        #expect(Set(turns).count == turns.count, "a step of a wheel is answered twice")
    }

    /// The jobs of one transaction.
    private struct Batch {
        var jobs: [CounterJob]
        var fails = false
        /// A wheel that another process takes over before the commit, and its turns.
        var takenOver: (wheel: Int, turns: Int)?

        var wheels: [Int] { jobs.flatMap(\.steps).compactMap { if case .turn(let wheel) = $0 { wheel } else { nil } } }
    }

    /// The steps of wheels in replies to jobs that are done, such as "1=7" for the seventh of the first wheel.
    private static func turns(_ replies: [String]) -> [Substring] {
        replies.filter { $0.contains(": done ") }.flatMap { reply in
            let words = reply.split(separator: " ")
            return words.indices.dropFirst().filter { words[$0 - 1] == "wheel" }.map { words[$0] }
        }
    }

    private static func randomJob(_ id: UInt64, _ random: inout SeededGenerator) -> CounterJob {
        let lookahead: Lookahead =
            switch Int.random(in: 0...9, using: &random) {
            case 0: .none
            case 1: .lasting
            default: .repeated
            }
        // What a lasting job changes belongs to it alone.
        guard lookahead != .lasting else {
            return CounterJob(id: id, steps: [.add("own \(id)", 1)], lookahead: .lasting)
        }
        let steps: [Step] = (0..<Int.random(in: 0...4, using: &random)).map { _ in
            let name = ["a", "b", "c"].randomElement(using: &random) ?? "a"
            return switch Int.random(in: 0...11, using: &random) {
            case 0...3: .add(name, Int.random(in: 1...9, using: &random))
            case 4: .remove(name)
            case 5: .number
            case 6...8: .turn(Int.random(in: 1...3, using: &random))
            case 9: .notify(UInt64.random(in: 900...902, using: &random))
            case 10: .stale
            default: .cancel
            }
        }
        return CounterJob(id: id, steps: steps, lookahead: lookahead)
    }
}
