import Testing

@testable import RequestQueue

/// Who goes first, who waits for whom, and who is not held up.
@Suite struct LaneOrderTests {
    @Test func aBarrierHoldsBackItsOwnLaneOnly() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1000) }
        for lane in ["a", "b"] {
            for number in 0..<3 { try world.append(post("/\(lane)\(number)"), lane: lane) }
        }
        world.run(10_000)
        #expect(world.targets == ["/a0", "/b0", "/a1", "/b1", "/a2", "/b2"])
        #expect(world.sent.map(\.at) == [5000, 5000, 6000, 6000, 7000, 7000])
    }

    @Test func readsOfOneLaneGoTogetherUpToABarrier() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1000) }
        for target: APIRequestPath in ["/r1", "/r2"] { try world.append(read(target)) }
        try world.append(post("/w"))
        for target: APIRequestPath in ["/r3", "/r4"] { try world.append(read(target)) }
        world.run(10_000)
        #expect(world.targets == ["/r1", "/r2", "/w", "/r3", "/r4"])
        #expect(world.sent.map(\.at) == [5000, 5000, 6000, 7000, 7000])
    }

    /// In the queue whose interface this has, one more request left the queue while a barrier was under way.
    @Test func nothingPassesABarrierThatIsUnderWay() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1000) }
        try world.append(post("/w"))
        world.turn()
        try world.append(read("/r"))
        world.run(500)
        #expect(world.targets == ["/w"])
    }

    @Test func aRetryKeepsItsPlace() throws {
        let world = QueueWorld()
        world.backend = { $0.resolved.target == "/1" && $0.request.attempts < 3 ? .status(500) : .status(200) }
        for number in 1...3 { try world.append(post("/\(number)")) }
        world.run()
        #expect(world.targets == ["/1", "/1", "/1", "/2", "/3"])
    }

    /// An operator sends a dead one again, at its place, while the one behind it is under way. They are under way together
    /// only if neither is a barrier.
    @Test(arguments: [true, false], [true, false])
    func aRevivedOneRunsBesideNoBarrier(isBarrier: Bool, isBesideBarrier: Bool) throws {
        let world = QueueWorld()
        func strategy(_ isBarrier: Bool) -> QueueingStrategy {
            QueueingStrategy(synchronization: isBarrier ? .barrier : .concurrent, retryPolicy: [])
        }
        var isFirst = true
        world.backend = { dispatch in
            guard dispatch.resolved.target == "/1", isFirst else { return .status(200, latency: 500) }
            isFirst = false
            return .status(422)
        }
        let first = try world.append(post("/1", strategy: strategy(isBarrier)), lane: "1")
        world.run(100)
        #expect(try world.state(first) == .dead)
        try world.append(post("/2", strategy: strategy(isBesideBarrier)), lane: "1")
        try world.machine.revive(#require(try world.store.request(first)), now: world.now)
        world.run(100)
        let areTogether = !isBarrier && !isBesideBarrier
        #expect(world.targets == (areTogether ? ["/1", "/2", "/1"] : ["/1", "/2"]))
        world.run()
        #expect(world.targets == ["/1", "/2", "/1"] && world.machine.depth == 0)
    }

    @Test func aConcurrentOneInItsPauseHoldsNobodyUp() throws {
        let world = QueueWorld { $0.backoff = Backoff(base: 60_000) }
        let strategy = QueueingStrategy(synchronization: .concurrent, retryPolicy: [.onTransientStatus])
        world.backend = { $0.resolved.target == "/1" ? .status(503) : .status(200) }
        try world.append(post("/1", strategy: strategy))
        world.run(100)
        try world.append(post("/2", strategy: strategy))
        world.run(100)
        #expect(world.targets == ["/1", "/2"])
    }

    @Test func dependenciesAcrossLanes() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1000) }
        let first = try world.append(post("/first"), lane: "a")
        try world.append(NewRequest(post("/second"), lane: "b", dependsOn: [first]))
        try world.append(post("/free"), lane: "c")
        world.run(10_000)
        #expect(world.targets == ["/first", "/free", "/second"])
        // Of one that is done already nobody has to wait.
        try world.append(NewRequest(post("/late"), lane: "b", dependsOn: [first]))
        world.run(10_000)
        #expect(world.targets.last == "/late")
    }

    @Test func whoDependsOnAFailureFailsWithItsCause() throws {
        let world = QueueWorld()
        world.backend = { $0.resolved.target == "/first" ? .status(403) : .status(200) }
        let first = try world.append(post("/first"), lane: "a")
        let second = try world.append(NewRequest(post("/second"), lane: "b", dependsOn: [first]))
        let third = try world.append(NewRequest(post("/third"), lane: "c", dependsOn: [second]))
        world.run()
        #expect(world.targets == ["/first"])
        #expect(try world.state(third) == .dead)
        #expect(try world.cause(third)?.contains("The host answered with status 403.") == true)
        #expect(throws: QueueError.self) { try world.append(NewRequest(post("/x"), dependsOn: [third])) }
        #expect(throws: QueueError.unknownDependency) {
            try world.append(NewRequest(post("/x"), dependsOn: [RequestToken(high: 1, low: 1)]))
        }
    }

    /// Where nobody but the queue can say what an entity is called, nobody waits for one that it does not know.
    @Test(arguments: [true, false]) func anEntityThatNobodyCreates(_ createsAll: Bool) throws {
        let world = QueueWorld { $0.createsAllEntities = createsAll }
        let known = EntityReference(type: "m", local: "known")
        let unknown = EntityReference(type: "m", local: "unknown")
        try world.append(NewRequest(post("/create"), creates: [known]))
        try world.append(NewRequest(post("/a/\(known)")))
        guard createsAll else {
            try world.append(NewRequest(post("/a/\(unknown)")))
            return
        }
        #expect(throws: QueueError.unknownDependency) { try world.append(NewRequest(post("/a/\(unknown)"))) }
        world.run()
        #expect(world.targets.first == "/create")
    }

    @Test func whoSomebodyWaitsForGoesFirst() throws {
        let world = QueueWorld { $0.limits.inFlight = 1 }
        for number in 0..<8 {
            _ = try world.offer(NewRequest(post("/background\(number)"), lane: "b\(number)"))
            _ = try world.offer(NewRequest(read("/foreground\(number)"), lane: "f\(number)"))
        }
        world.run()
        #expect(world.targets.count == 16)
        #expect(world.targets.prefix(8).filter { $0.hasPrefix("/foreground") }.count == 6)
        #expect(world.targets.prefix(8).filter { $0.hasPrefix("/background") }.count == 2)
    }

    // MARK: Bounds and fairness

    @Test func aFloodingTenantTakesNobodysTurn() throws {
        let world = QueueWorld(session: "quiet") { $0.limits.inFlight = 4 }
        world.machine.setSession("loud", present: true)
        world.backend = { _ in .status(200, latency: 100) }
        for number in 0..<5_000 {
            _ = try world.offer(NewRequest(post("/loud"), tenant: "loud", lane: "\(number)"))
        }
        world.turn()
        for number in 0..<20 {
            try world.append(NewRequest(post("/quiet"), tenant: "quiet", lane: "\(number)"))
        }
        let begin = world.now.uptime
        world.run(2_000)
        let quiet = world.sent.filter { $0.target == "/quiet" }
        #expect(quiet.count == 20)
        // Half of the turns are its own: twenty requests, two at a time, and one round that was under way.
        #expect(quiet.allSatisfy { $0.at <= begin + 1_200 })
    }

    @Test func boundsAreKept() throws {
        let world = QueueWorld(session: nil) {
            $0.limits.requestsPerTenant = 10
            $0.limits.requests = 15
        }
        for number in 0..<10 { try world.append(NewRequest(post("/\(number)"), tenant: "a")) }
        #expect(throws: QueueError.tenantFull(limit: .requests(10))) {
            try world.append(NewRequest(post("/x"), tenant: "a"))
        }
        for number in 0..<5 { try world.append(NewRequest(post("/\(number)"), tenant: "b")) }
        #expect(throws: QueueError.full(limit: .requests(15))) { try world.append(NewRequest(post("/x"), tenant: "c")) }
        world.machine.setSession("a", present: true)
        world.run()
        try world.append(NewRequest(post("/x"), tenant: "c"))

        let large = QueueWorld(session: nil) {
            $0.limits.requestSize = 1000
            $0.limits.bytesPerTenant = 1500
        }
        let body = RequestBody.rawData(Array(repeating: 0, count: 600))
        try large.append(post("/1", body: body))
        #expect(throws: QueueError.tenantFull(limit: .bytes(1500))) { try large.append(post("/2", body: body)) }
        let error = #expect(throws: QueueError.self) {
            try large.append(post("/3", body: .rawData(Array(repeating: 0, count: 1000))))
        }
        if case .tooLarge(_, let limit) = error {
            #expect(limit == 1000)
        } else {
            Issue.record("\(String(describing: error))")
        }
    }

    @Test func notMoreThanAllowedIsUnderWay() throws {
        let world = QueueWorld {
            $0.limits.inFlightPerTenant = 5
            $0.limits.inFlightPerLane = 2
        }
        world.backend = { _ in .status(200, latency: 100) }
        for lane in ["a", "b", "c", "d"] { for _ in 0..<3 { try world.append(read("/x"), lane: lane) } }
        #expect(world.machine.underWay == 5)
        let lanes = Dictionary(grouping: world.sent, by: \.dispatch.request.lane)
        #expect(lanes.values.allSatisfy { $0.count <= 2 })
        world.run()
        #expect(world.machine.counts.done == 12)
    }

    @Test func aTenantHasNoMoreThanItsShareUnderWay() throws {
        let world = QueueWorld(session: "one") { $0.limits.inFlightPerHost = 1_000 }
        world.machine.setSession("other", present: true)
        var ends: [String: [Int64]] = [:]
        var most: [String: Int] = [:]
        world.backend = { [unowned world] dispatch in
            let (tenant, now) = (dispatch.request.tenant, world.now.uptime)
            ends[tenant, default: []].append(now + 100)
            most[tenant] = max(most[tenant] ?? 0, ends[tenant]?.count { $0 > now } ?? 0)
            return .status(200, latency: 100)
        }
        for tenant in ["one", "other"] {
            for number in 0..<200 {
                _ = try world.offer(NewRequest(post("/\(number)"), tenant: tenant, lane: "\(number)"))
            }
        }
        world.run(10_000)
        let share = world.settings.limits.inFlightPerTenant
        #expect(world.machine.counts.done == 400 && most == ["one": share, "other": share])
    }

    /// A hundred reads of 100 ms, ten at a time: a second.
    @Test func concurrencyIsUsed() throws {
        let world = QueueWorld { $0.limits.inFlightPerLane = 10 }
        world.backend = { _ in .status(200, latency: 100) }
        for number in 0..<100 { try world.append(read("/\(number)")) }
        let begin = world.now.uptime
        world.run(10_000)
        #expect(world.sent.count == 100 && world.sent.map(\.at).max() == begin + 900)
    }

    @Test func aLimitIsNamedWithItsUnit() {
        #expect(QueueError.full(limit: .requests(1)).description.contains("1 request "))
        #expect(QueueError.tenantFull(limit: .requests(10)).description.contains("10 requests"))
        #expect(QueueError.tenantFull(limit: .bytes(1500)).description.contains("1500 bytes"))
    }

    // MARK: Sessions

    @Test func withoutASessionRequestsWaitForTheLogin() throws {
        let world = QueueWorld(session: nil)
        let token = try world.append(post("/a"))
        var open = post("/open")
        open.includeSessionKey = false
        try world.append(open, lane: "other")
        world.run(1_000)
        #expect(world.targets == ["/open"])
        #expect(world.machine.obstacles(token, now: world.now) == ["waits for the next login"])
        world.machine.setSession("", present: true)
        world.run(1_000)
        #expect(try world.state(token) == .done)
    }

    /// Its sender found no session key for it: the tenant has logged out meanwhile, or logged in again.
    @Test(arguments: [false, true]) func anAttemptWithoutASessionIsNoAttempt(hasSession: Bool) throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1 << 40) }
        let token = try world.append(post("/a"))
        let first = try #require(world.sent.first?.dispatch)
        world.machine.withhold(first.id, lease: first.lease, hasSession: hasSession, now: world.now)
        world.turn()
        #expect(world.machine.waitingForSession(token) == nil || !hasSession)
        #expect(world.sent.count == (hasSession ? 2 : 1))
        world.machine.setSession("", present: true)
        world.turn()
        #expect(world.sent.count == 2)
        #expect(world.sent.map(\.dispatch.request.attempts) == [1, 1])
        #expect(try world.store.request(token)?.attempts == 1)
        // The first lease has ended.
        world.machine.withhold(first.id, lease: first.lease, hasSession: false, now: world.now)
        #expect(world.machine.counts.late == 1 && world.machine.hasSession(""))
    }

    @Test func aSessionThatIsRefusedIsAskedForAgainOnce() throws {
        let world = QueueWorld()
        world.backend = { $0.request.attempts == 1 ? .status(401) : .status(200) }
        let first = try world.append(post("/a"))
        let second = try world.append(post("/b"), lane: "x")
        world.run(60_000)
        #expect(world.sent.count == 2)
        #expect(!world.machine.hasSession(""))
        world.machine.setSession("", present: true)
        world.run(1_000)
        #expect(try world.state(first) == .done && world.state(second) == .done)
    }

    // MARK: Cancelling, holding, replacing

    @Test func cancellingInEveryState() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1000) }
        let running = try world.append(post("/running"))
        let waiting = try world.append(post("/waiting"))
        try world.machine.cancel(waiting, now: world.now)
        try world.machine.cancel(running, now: world.now)
        world.turn()
        #expect(try world.state(running) == .cancelled && world.state(waiting) == .cancelled)
        #expect(world.withdrawn == [world.sent[0].dispatch.lease])
        #expect(try world.cause(running) == "It was cancelled. The backend may have done it.")
        world.run()
        #expect(world.machine.counts.late == 1)
        #expect(world.results.map(\.outcome.result) == [.aborted, .aborted])
        let done = try world.append(post("/done"))
        world.run()
        #expect(throws: QueueActError.finished(.done)) { try world.machine.cancel(done, now: world.now) }
        #expect(throws: QueueActError.unknown) {
            try world.machine.cancel(RequestToken(high: 0, low: 0), now: world.now)
        }
        // Before it has been committed.
        let fresh = try world.offer(NewRequest(post("/fresh")))
        try world.machine.cancel(fresh, now: world.now)
        world.turn()
        #expect(world.accepted.contains(fresh))
        #expect(try world.state(fresh) == .cancelled)
        #expect(world.machine.depth == 0)
    }

    @Test func holdingAndReleasing() throws {
        let world = QueueWorld(session: nil)
        let held = try world.append(post("/held"))
        let behind = try world.append(post("/behind"))
        try world.machine.hold(held, true, now: world.now)
        world.machine.setSession("", present: true)
        world.run()
        #expect(world.sent.isEmpty && world.machine.obstacles(held, now: world.now) == ["held by an operator"])
        try world.restart()
        world.run()
        #expect(world.sent.isEmpty)
        try world.machine.hold(held, false, now: world.now)
        world.run()
        #expect(world.targets == ["/held", "/behind"])
        #expect(try world.state(behind) == .done)
    }

    @Test func theSameKeyIsTheSameRequest() throws {
        let world = QueueWorld()
        func new(_ body: String) -> NewRequest {
            NewRequest(post("/a", body: .json(.string(body))), idempotencyKey: "k")
        }
        let first = try world.append(new("x"))
        #expect(try (0..<1000).allSatisfy { _ in try world.append(new("x")) == first })
        #expect(throws: QueueError.keyReused) { try world.append(new("y")) }
        // Another tenant's key is another key.
        #expect(try world.append(NewRequest(post("/b"), tenant: "t", idempotencyKey: "k")) != first)
        world.run()
        #expect(world.targets == ["/a"] && world.sent[0].dispatch.request.idempotencyKey == "k")
        #expect(try world.append(new("x")) == first)
        try world.restart()
        #expect(try world.append(new("x")) == first)
        #expect(throws: QueueError.keyReused) { try world.append(new("y")) }
        world.run()
        #expect(world.targets == ["/a"])
        // After the retention the key is free.
        world.pass(world.settings.limits.retention + 120_000)
        world.turn()
        #expect(try world.append(new("y")) != first)
    }

    @Test func aLaterRequestReplacesOneThatWaits() throws {
        let world = QueueWorld(session: nil)
        func typing(_ body: String) -> NewRequest {
            NewRequest(post("/typing", body: .json(.string(body))), coalescingKey: "typing")
        }
        let first = try world.append(typing("1"))
        try world.append(post("/between"))
        let second = try world.append(typing("2"))
        #expect(world.results.map(\.request.token) == [first])
        #expect(world.results[0].outcome.result == .aborted)
        world.machine.setSession("", present: true)
        world.backend = { _ in .status(200, latency: 1000) }
        world.run(1_500)
        #expect(world.targets == ["/between", "/typing"])
        // One that is under way is not replaced.
        let third = try world.append(typing("3"))
        world.run(5_000)
        #expect(try world.state(second) == .done && world.state(third) == .done)
        #expect(
            world.sent.map { String(decoding: $0.dispatch.resolved.body, as: UTF8.self) } == ["", "\"2\"", "\"3\""])
    }

    @Test func aRequestThatIsReplacedBeforeItIsStoredIsStoredAllTheSame() throws {
        let world = QueueWorld(session: nil)
        let first = try world.offer(NewRequest(post("/1"), coalescingKey: "k"))
        let second = try world.offer(NewRequest(post("/2"), coalescingKey: "k"))
        world.turn()
        #expect(world.accepted == [first, second] && world.results.map(\.request.token) == [first])
        #expect(try world.state(first) == .cancelled && world.state(second) == .pending)
        #expect(try world.store.outcome(first)?.result == .aborted)
    }

    /// What others depend on is not replaced; they would wait in vain.
    @Test func aRequestOnWhichOthersDependIsNotReplaced() throws {
        let world = QueueWorld(session: nil)
        let first = try world.append(NewRequest(post("/1"), creates: [message], coalescingKey: "k"))
        let byToken = try world.append(NewRequest(post("/behind"), lane: "x", dependsOn: [first]))
        let second = try world.append(NewRequest(post("/2"), coalescingKey: "k"))
        let third = try world.append(
            NewRequest(post("/3"), creates: [EntityReference(type: "m", local: "3")], coalescingKey: "k"))
        let byName = try world.append(
            NewRequest(post("/m/\(EntityReference(type: "m", local: "3"))"), lane: "y"))
        let fourth = try world.append(NewRequest(post("/4"), coalescingKey: "k"))
        world.backend = {
            $0.request.creates.isEmpty
                ? .status(200)
                : .created(
                    .both(type: $0.request.creates[0].type, local: $0.request.creates[0].local, remote: "r"))
        }
        world.machine.setSession("", present: true)
        world.run()
        #expect(try world.state(second) == .cancelled)
        for token in [first, byToken, third, byName, fourth] { #expect(try world.state(token) == .done) }
    }

    /// A marker a second for a day leaves nothing behind but what the retention keeps.
    @Test func replacedRequestsAreForgottenInTime() throws {
        let world = QueueWorld(session: nil) {
            $0.limits.retention = 60_000
            $0.limits.finished = 100
        }
        var tokens: [RequestToken] = []
        for _ in 0..<2_000 {
            tokens.append(try world.append(NewRequest(post("/typing"), coalescingKey: "k")))
            world.pass(1_000)
        }
        world.pass(120_000)
        world.turn()
        #expect(world.machine.keys.count < 10 && world.machine.finished.count < 10 && world.machine.ended.count < 10)
        #expect(throws: QueueActError.unknown) { try world.machine.cancel(tokens[0], now: world.now) }
        _ = try world.append(NewRequest(post("/typing"), coalescingKey: "k"))
        let last = try #require(tokens.last)
        #expect(throws: QueueActError.finished(.cancelled)) { try world.machine.cancel(last, now: world.now) }
    }

    /// A small limit of finished requests is exceeded by no more than itself.
    @Test func fewFinishedRequestsAreKeptUnderASmallLimit() throws {
        let world = QueueWorld(session: nil) { $0.limits.finished = 10 }
        for _ in 0..<50 {
            try world.append(NewRequest(post("/typing"), coalescingKey: "k"))
            #expect(world.machine.finished.count <= 20 && world.machine.ended.count <= 20)
        }
    }

    @Test func whatWasReplacedComesBackWhenTheOtherCannotBeStored() throws {
        let world = QueueWorld(session: nil)
        let first = try world.append(NewRequest(post("/1"), coalescingKey: "k"))
        world.store.failCommits(1)
        let second = try world.append(NewRequest(post("/2"), coalescingKey: "k"))
        #expect(world.refused == [second])
        world.machine.setSession("", present: true)
        world.run()
        #expect(world.targets == ["/1"])
        #expect(try world.state(first) == .done)
    }
}
