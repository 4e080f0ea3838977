import Ownership
import StorePort
import Testing

/// One gateway's machine, event by event.
@Suite struct OwnershipMachineTests {
    private static let shard = Shard(0)

    // MARK: Shards

    @Test func aGatewayAloneTakesAllShardsEightAtATime() {
        var bench = Bench(shards: 20)
        #expect(!bench.machine.isFresh(now: bench.now))
        bench.read()
        #expect(bench.words() == (0..<8).map { "take \($0) seen 1" })
        bench.read()
        #expect(bench.words().isEmpty, "the takes are under way")
        var second = Bench(shards: 20)
        second.read()
        second.settle()
        #expect(second.machine.ownedShards == (0..<20).map { ShardEpoch(Shard($0), 2) })
    }

    @Test func aShardIsTakenFromASuspectOnly() {
        var bench = Bench(others: [Bench.other])
        bench.members[1].isDraining = true
        bench.rows[0].owner = Bench.other
        for _ in 0..<4 { bench.read() }
        #expect(bench.words().isEmpty)
        // Six reads with the same beat: five in which it has not changed.
        for _ in 0..<4 { bench.read(alive: [Bench.own]) }
        // An answer that does not come counts for nothing.
        for _ in 0..<10 {
            guard let operation = bench.beat() else { continue }
            bench.give(.unanswered(operation))
        }
        _ = bench.take()
        #expect(bench.words().isEmpty)
        bench.read(alive: [Bench.own])
        #expect(bench.words() == ["take 0 seen 1 from 2"])
    }

    /// A take names the beat that has not changed, and a refused one is not repeated before the suspect is judged anew.
    @Test func aTakeFromASuspectThatBeatsAgainIsRefused() {
        var bench = Bench(others: [Bench.other])
        bench.rows[0].owner = Bench.other
        bench.members[1].isDraining = true
        bench.members[1].beat = 40
        for _ in 0..<6 { bench.read(alive: [Bench.own]) }
        guard case .take(let operation, _, _, let suspect)? = bench.take().last else {
            Issue.record("no take")
            return
        }
        #expect(suspect == Suspect(id: Bench.other, beat: 40))
        bench.give(.refused(operation))
        #expect(bench.words().isEmpty, "it waits for the next view")
        bench.read()
        for _ in 0..<4 { bench.read(alive: [Bench.own]) }
        #expect(bench.words().isEmpty)
        bench.read(alive: [Bench.own])
        #expect(bench.words() == ["take 0 seen 1 from 2"])
        // Its row is removed meanwhile: then there is no beat to demand.
        var second = Bench(others: [Bench.other])
        second.rows[0].owner = Bench.other
        second.members.removeLast()
        second.read()
        guard case .take(_, _, _, let gone)? = second.take().last else {
            Issue.record("no take")
            return
        }
        #expect(gone == Suspect(id: Bench.other, beat: nil))
    }

    @Test func aBeatThatChangesEndsASuspicion() {
        var bench = Bench(others: [Bench.other])
        bench.members[1].isDraining = true
        bench.rows[0].owner = Bench.other
        for _ in 0..<3 {
            bench.read()
            for _ in 0..<4 { bench.read(alive: [Bench.own]) }
        }
        #expect(bench.words().isEmpty)
    }

    @Test func aDrainingGatewayReleasesAndTakesNothing() {
        var bench = Bench.owner()
        bench.give(.submit(token(1), Self.shard, "a"))
        let commit = bench.operation
        bench.give(.drain)
        bench.members[0].isDraining = true
        bench.read()
        #expect(bench.words() == ["commit [\"0/2/1\"] [\"a\"]"], "it waits for the commit under way")
        bench.give(.committed(commit!, [JobResult("A", after: 0)]))
        #expect(bench.words() == ["answer done(\"A\")", "drop 0", "release 0 in 2 after 1"])
        #expect(!bench.machine.isDrained)
    }

    @Test func aShardThatIsOwnedWithoutItsKnowingIsReleased() {
        var bench = Bench(others: [Bench.other])
        // One of two shards belongs to the other one.
        let place = Rendezvous.owner(of: Self.shard, among: [Bench.own, Bench.other])
        bench.rows[0].owner = Bench.own
        bench.read()
        #expect(bench.words() == [place == Bench.own ? "take 0 seen 1" : "release 0 in 1 after 0"])
        var draining = Bench()
        draining.rows[0].owner = Bench.own
        draining.members[0].isDraining = true
        draining.read()
        #expect(draining.words() == ["release 0 in 1 after 0"])
    }

    @Test func anotherEpochInAViewEndsTheOwnership() {
        var bench = Bench.owner(others: [Bench.other])
        bench.give(.job(Bench.other, SentJob(token: token(1), shard: Self.shard, epoch: 2, job: "a")))
        _ = bench.take()
        bench.give(.job(Bench.other, SentJob(token: token(2), shard: Self.shard, epoch: 2, job: "b")))
        bench.rows[0] = ShardRow(owner: Bench.other, mark: ShardMark(epoch: 3, commits: 0))
        bench.read()
        #expect(bench.words() == ["drop 0", "reply notMine in 2 to 2"])
        #expect(bench.machine.ownedShards.isEmpty)
    }

    @Test func anotherOwnerInTheSameEpochEndsTheOwnership() {
        var bench = Bench.owner(others: [Bench.other])
        bench.rows[0].owner = Bench.other
        bench.read()
        #expect(bench.words() == ["drop 0"] && bench.machine.ownedShards.isEmpty)
    }

    /// Of gateways of which one serves, the others take nothing from it, whatever the hashes say.
    @Test func aShardStaysWhereItIs() {
        for number in UInt64(20)..<40 {
            var bench = Bench(placement: .kept)
            bench.read()
            bench.settle()
            bench.members.append(Member(id: GatewayID(number), address: "", beat: 0, isDraining: false, seen: 0))
            for _ in 0..<3 { bench.read(alive: [Bench.own, GatewayID(number)]) }
            _ = bench.take()
            #expect(bench.machine.ownedShards == [ShardEpoch(Self.shard, 2)])
            // It drains, and the other one gets it.
            bench.give(.drain)
            bench.members[0].isDraining = true
            bench.read()
            #expect(bench.words() == ["drop 0", "release 0 in 2 after 0"])
        }
        // What nobody owns goes to the same gateway for all.
        let heir = Rendezvous.owner(of: Self.shard, among: [Bench.own, Bench.other])
        var bench = Bench(others: [Bench.other], placement: .kept)
        bench.read()
        #expect(bench.words() == (heir == Bench.own ? ["take 0 seen 1"] : []))
    }

    /// A gateway that has raised its epoch itself keeps its shard, also if a view from before arrives afterwards.
    @Test func anEpochThatWasRaisedHere() {
        var bench = Bench.owner()
        guard let early = bench.beat() else { return }
        let view = bench.view
        bench.rows[0].mark = ShardMark(epoch: 3, commits: 7)
        bench.give(.settled(Self.shard, bench.rows[0].mark))
        bench.give(.view(early, view))
        bench.read()
        #expect(bench.words().isEmpty)
        #expect(bench.machine.ownedShards == [ShardEpoch(Self.shard, 3)])
        // A lower one is not its own.
        bench.give(.settled(Self.shard, ShardMark(epoch: 2, commits: 7)))
        #expect(bench.machine.ownedShards == [ShardEpoch(Self.shard, 3)])
    }

    @Test func aLoadThatShowsAnotherEpochDoesNotOwn() {
        var bench = Bench()
        bench.read()
        guard let take = bench.operation else { return }
        bench.give(.taken(take, ShardMark(epoch: 2, commits: 0)))
        guard let load = bench.operation else { return }
        bench.give(.loaded(load, epoch: 3))
        #expect(bench.words() == ["take 0 seen 1", "load 0 in 2", "drop 0"])
        #expect(bench.machine.ownedShards.isEmpty)
    }

    // MARK: Time

    @Test func freshnessCountsFromTheSendingOfTheBeat() {
        var bench = Bench.owner()
        let operation = bench.beat()
        let sent = bench.now
        bench.now += 900
        bench.give(.view(operation!, bench.view))
        bench.now = sent + OwnershipLimits.freshTime - 1
        #expect(bench.machine.isFresh(now: bench.now))
        bench.now += 1
        #expect(!bench.machine.isFresh(now: bench.now))
        // Nothing is committed then, and a late answer makes nobody fresh.
        _ = bench.take()
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.give(.view(operation!, bench.view))
        #expect(bench.words().isEmpty)
        bench.read()
        #expect(bench.words() == ["commit [\"0/2/1\"] [\"a\"]"])
    }

    @Test func aGatewayWithoutARowEnds() {
        var bench = Bench.owner()
        let operation = bench.beat()
        bench.give(.rowMissing(operation!))
        #expect(bench.words() == ["drop 0", "end"])
        bench.now += 10_000
        bench.give(.tick)
        #expect(bench.words().isEmpty && !bench.machine.isFresh(now: bench.now))
    }

    @Test func theRowOfASilentGatewayIsRemoved() {
        var bench = Bench.owner(others: [Bench.other])
        for _ in 0..<OwnershipLimits.removeReads { bench.read(alive: [Bench.own]) }
        #expect(bench.words() == ["remove 2 at 1"])
    }

    // MARK: Commits

    @Test func anUnknownCommitIsSettledBeforeAnAnswer() {
        for happened in [true, false] {
            var bench = Bench.owner()
            bench.give(.submit(token(1), Self.shard, "a"))
            guard let commit = bench.operation else { return }
            bench.give(.submit(token(2), Self.shard, "b"))
            bench.give(.unknown(commit))
            guard let take = bench.operation else { return }
            #expect(bench.words() == ["commit [\"0/2/1\"] [\"a\"]", "drop 0", "take 0 seen 2"])
            bench.give(.committed(commit, [JobResult("A", after: 0)]))
            #expect(bench.words().isEmpty, "it comes too late")
            bench.rows[0].mark = ShardMark(epoch: 3, commits: happened ? 1 : 0)
            bench.give(.taken(take, bench.rows[0].mark))
            guard let load = bench.operation else { return }
            bench.give(.loaded(load, epoch: 3))
            #expect(bench.words() == ["load 0 in 3", "commit [\"0/3/\(happened ? 2 : 1)\"] [\"a\", \"b\"]"])
        }
    }

    @Test func anEpochThatCouldNotBeRaisedIsRaisedAgain() {
        var bench = Bench.owner()
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.give(.unknown(bench.operation!))
        bench.give(.unanswered(bench.operation!))
        _ = bench.take()
        // The first try was executed after all.
        bench.rows[0].mark.epoch = 3
        bench.read()
        #expect(bench.words() == ["take 0 seen 3"])
    }

    @Test func anotherOwnerSettlesWhatIsUnknown() {
        var bench = Bench.owner(others: [Bench.other])
        bench.give(.connected(Bench.other))
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.give(.unknown(bench.operation!))
        bench.give(.refused(bench.operation!))
        _ = bench.take()
        bench.rows[0] = ShardRow(owner: Bench.other, mark: ShardMark(epoch: 3, commits: 0))
        bench.read()
        #expect(bench.words() == ["drop 0", "send a in 3 to 2"], "the same token")
    }

    @Test func aFencedCommitLosesTheShardAndRepeatsTheOthers() {
        var bench = Bench.owner(shards: 2)
        bench.give(.submit(token(1), Shard(0), "a"))
        let first = bench.operation
        bench.give(.submit(token(2), Shard(0), "b"))
        bench.give(.submit(token(3), Shard(1), "c"))
        bench.give(.committed(first!, [JobResult("A", after: 0)]))
        let second = bench.operation
        _ = bench.take()
        bench.give(.fenced(second!, Shard(0)))
        #expect(bench.words() == ["drop 0", "commit [\"1/2/1\"] [\"c\"]"])
    }

    @Test func aRefusedCommitIsNotSentUnlessItsTokenIsStored() {
        var bench = Bench.owner()
        bench.give(.submit(token(1), Self.shard, "a"))
        let first = bench.operation
        bench.give(.failed(first!, isKnown: [false]))
        #expect(bench.words() == ["commit [\"0/2/1\"] [\"a\"]", "answer notSent"])
        bench.give(.submit(token(2), Self.shard, "b"))
        #expect(bench.words().isEmpty, "it waits for a tick")
        bench.now += 100
        bench.give(.tick)
        let second = bench.operation
        bench.give(.failed(second!, isKnown: [true]))
        bench.now += 100
        bench.give(.tick)
        #expect(bench.words() == ["commit [\"0/2/1\"] [\"b\"]", "commit [\"0/2/1\"] [\"b\"]"])
    }

    // MARK: Jobs

    private static func client() -> Bench {
        var bench = Bench(others: [Bench.other])
        bench.members[0].isDraining = true
        bench.rows[0] = ShardRow(owner: Bench.other, mark: ShardMark(epoch: 5, commits: 7))
        bench.read()
        _ = bench.take()
        return bench
    }

    private static func reply(_ outcome: JobOutcome<String>, in epoch: UInt64) -> SentReply<String> {
        SentReply(token: token(1), shard: shard, epoch: epoch, outcome: outcome)
    }

    @Test func aJobGoesToTheOwnerWithItsEpoch() {
        var bench = Self.client()
        bench.give(.submit(token(1), Self.shard, "a"))
        #expect(bench.words().isEmpty, "there is no link")
        bench.give(.connected(Bench.other))
        #expect(bench.words() == ["send a in 5 to 2"])
        bench.give(.reply(Bench.other, Self.reply(.notMine, in: 5)))
        #expect(bench.words().isEmpty)
        bench.rows[0].mark.epoch = 6
        bench.read()
        #expect(bench.words() == ["send a in 6 to 2"])
        bench.give(.reply(Bench.other, Self.reply(.failed, in: 5)))
        #expect(bench.words().isEmpty, "of an earlier copy")
        bench.give(.reply(Bench.other, Self.reply(.done("A"), in: 5)))
        bench.give(.reply(Bench.other, Self.reply(.done("A"), in: 6)))
        #expect(bench.words() == ["answer done(\"A\")"])
    }

    @Test func oneCopyThatFailedIsNotSentAndTwoAreAskedAgain() {
        var bench = Self.client()
        bench.give(.connected(Bench.other))
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.give(.reply(Bench.other, Self.reply(.failed, in: 5)))
        #expect(bench.words() == ["send a in 5 to 2", "answer notSent"])
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.give(.disconnected(Bench.other))
        bench.give(.connected(Bench.other))
        bench.give(.reply(Bench.other, Self.reply(.failed, in: 5)))
        #expect(bench.words() == ["send a in 5 to 2", "send a in 5 to 2"])
        bench.read()
        #expect(bench.words() == ["send a in 5 to 2"])
    }

    @Test func onlyWhatWasSentNowhereIsGivenUp() {
        var bench = Self.client()
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.now += OwnershipLimits.routeTime
        bench.give(.tick)
        #expect(bench.words() == ["answer notSent"])
        bench.give(.connected(Bench.other))
        bench.give(.submit(token(1), Self.shard, "a"))
        bench.give(.disconnected(Bench.other))
        bench.now += OwnershipLimits.routeTime
        bench.give(.tick)
        #expect(bench.words() == ["send a in 5 to 2"])
    }

    @Test func anOwnerTakesJobsOfItsEpochOnceAtATime() {
        var bench = Bench.owner(others: [Bench.other])
        let job = SentJob(token: token(1), shard: Self.shard, epoch: 2, job: "a")
        var old = job
        old.epoch = 1
        bench.give(.job(Bench.other, old))
        bench.give(.job(Bench.other, job))
        let commit = bench.operation
        bench.give(.job(Bench.other, job))
        bench.give(.committed(commit!, [JobResult("A", after: 0)]))
        #expect(
            bench.words() == [
                "reply notMine in 1 to 2", "commit [\"0/2/1\"] [\"a\"]", "reply notMine in 2 to 2",
                "reply done(\"A\") in 2 to 2",
            ])
    }

    // MARK: Barriers

    @Test func anAnswerWaitsUntilAllGatewaysHaveReadTheRise() {
        var bench = Bench.owner(others: [Bench.other, Bench.third])
        bench.give(.submit(token(1), Self.shard, "a"))
        let commit = bench.operation
        _ = bench.take()
        bench.give(.committed(commit!, [JobResult("A", after: 4)]))
        #expect(bench.words() == ["announce 4"])
        (bench.version, bench.rows[0].mark.commits) = (4, 1)
        bench.read()
        bench.members[1].seen = 4
        bench.read()
        #expect(bench.words().isEmpty)
        bench.give(.acknowledged(Bench.third, version: 3))
        #expect(bench.words().isEmpty)
        bench.give(.acknowledged(Bench.third, version: 4))
        #expect(bench.words() == ["answer done(\"A\")"])
    }

    @Test func theListOfGatewaysIsReadAfterTheRise() {
        var bench = Bench.owner()
        let before = bench.beat()
        let view = bench.view
        bench.give(.raised(version: 1, ticket: 9))
        _ = bench.take()
        // A gateway has come meanwhile, which this view does not have.
        bench.give(.view(before!, view))
        #expect(bench.words().isEmpty)
        bench.version = 1
        bench.members.append(Member(id: Bench.other, address: "", beat: 0, isDraining: true, seen: 0))
        bench.read()
        #expect(bench.words().isEmpty)
        bench.members[1].seen = 1
        bench.read()
        #expect(bench.words() == ["in effect 9"])
    }

    @Test func aBarrierEndsWhenEveryoneElseIsStale() {
        var bench = Bench.owner(others: [Bench.other])
        bench.give(.raised(version: 1, ticket: 9))
        let opened = bench.now
        bench.version = 1
        while bench.now + OwnershipLimits.beatInterval <= opened + OwnershipLimits.barrierTime {
            bench.read(alive: [Bench.own, Bench.other])
        }
        _ = bench.take()
        bench.now = opened + OwnershipLimits.barrierTime + 1
        bench.give(.tick)
        #expect(bench.words() == ["in effect 9"])
        // What is known to be in effect waits for nothing.
        bench.give(.raised(version: 1, ticket: 10))
        #expect(bench.words() == ["in effect 10"])
    }

    @Test func aReadingThatLeavesRisesOutMakesNobodyFresh() {
        var bench = Bench()
        let operation = bench.beat()
        _ = bench.take()
        var view = bench.view
        (view.version, view.isWhole) = (64, false)
        bench.give(.view(operation!, view))
        #expect(!bench.machine.isFresh(now: bench.now))
        guard case .beat(_, let seen, _)? = bench.take().last else {
            Issue.record("the rest is not read")
            return
        }
        #expect(seen == 64)
    }

    // MARK: Rollback

    @Test func aDatabaseThatKnowsLessStopsTheGateway() {
        var bench = Bench.owner()
        bench.give(.submit(token(1), Self.shard, "a"))
        let commit = bench.operation
        bench.give(.committed(commit!, [JobResult("A", after: 0)]))
        _ = bench.take()
        // The commit is lost.
        bench.read()
        #expect(bench.words() == ["rolled back", "drop 0"])
        #expect(bench.machine.isRolledBack && !bench.machine.isFresh(now: bench.now))
        bench.isRolledBack = true
        bench.read()
        #expect(bench.words().isEmpty)
        // The operator accepts.
        (bench.isRolledBack, bench.generation) = (false, 1)
        bench.rows[0] = ShardRow(owner: nil, mark: ShardMark(epoch: 1002, commits: 1000))
        bench.read()
        #expect(bench.words() == ["take 0 seen 1002"])
    }

    @Test func aViewFromBeforeACommitIsNoRollback() {
        var bench = Bench.owner()
        bench.give(.submit(token(1), Self.shard, "a"))
        let commit = bench.operation
        let beat = bench.beat()
        let view = bench.view
        bench.give(.committed(commit!, [JobResult("A", after: 0)]))
        bench.give(.view(beat!, view))
        #expect(!bench.machine.isRolledBack && bench.machine.ownedShards.count == 1)
    }

    @Test func theWitnessOfTheProcessBeforeCounts() {
        var first = Bench.owner()
        first.give(.submit(token(1), Self.shard, "a"))
        first.give(.committed(first.operation!, [JobResult("A", after: 0)]))
        var second = Bench(witness: first.machine.witness)
        second.read()
        #expect(second.machine.isRolledBack)
    }

    @Test func anotherGatewaysReportStopsAll() {
        var bench = Bench.owner()
        bench.isRolledBack = true
        bench.read()
        #expect(bench.words() == ["drop 0"] && bench.machine.isRolledBack)
        // Nothing of this time is in effect after the operator has accepted.
        bench.give(.raised(version: 1, ticket: 9))
        (bench.isRolledBack, bench.generation, bench.version) = (false, 1, 1000)
        for _ in 0..<3 { bench.read() }
        #expect(!bench.words().contains("in effect 9"))
    }
}
