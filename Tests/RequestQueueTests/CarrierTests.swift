import Testing

@testable import RequestQueue

/// The queue as connections use it: numbers before there are bytes, requests that come back unsent, ends that others tell.
@Suite struct CarrierTests {
    private static let strategy = QueueingStrategy(synchronization: .concurrent, retryPolicy: [])

    private func world(_ change: (inout QueueMachine.Settings) -> Void = { _ in }) -> QueueWorld {
        let world = QueueWorld(session: nil) {
            $0.keepsOutcomes = false
            $0.isCarried = true
            ($0.limits.inFlight, $0.limits.inFlightPerHost) = (.max, .max)
            ($0.limits.inFlightPerTenant, $0.limits.inFlightPerLane) = (.max, .max)
            $0.limits.lookahead = .max
            change(&$0)
        }
        // Nobody answers but the test.
        world.backend = { _ in .status(200, latency: 1 << 40) }
        return world
    }

    private func offer(_ world: QueueWorld, _ id: UInt64? = nil, tenant: String = "a") throws -> RequestToken {
        let id = id ?? world.machine.highestID + 1
        let config = APIRequestConfig(
            method: .post, path: "/", includeSessionKey: false, queueingStrategy: Self.strategy)
        let token = RequestToken(number: id)
        _ = try world.machine.append(
            NewRequest(config, tenant: tenant, lane: "peer"), token: token, id: id, now: world.now)
        return token
    }

    private func append(_ world: QueueWorld, _ id: UInt64? = nil, tenant: String = "a") throws -> RequestToken {
        let token = try offer(world, id, tenant: tenant)
        world.turn()
        return token
    }

    private static let success = RequestOutcome(.success(status: 0))

    @Test func numbersRiseWithTime() throws {
        let world = world()
        #expect(world.machine.highestID == 0)
        let late = try append(world, 1001)
        let early = try append(world, 1000)
        #expect(world.machine.highestID == 1001)
        #expect(world.machine.requests.map(\.token) == [early, late])
        let next = try world.append(NewRequest(post("/"), tenant: "a"))
        #expect(world.machine.request(next)?.id == 1002)
        try world.restart(session: nil)
        #expect(world.machine.highestID == 1002)
    }

    /// Appends one that a connection has given back.
    private func waiting(_ world: QueueWorld, isBegun: Bool = false, tenant: String = "a") throws -> RequestToken {
        let token = try append(world, tenant: tenant)
        world.machine.giveBack(token, isBegun: isBegun, cause: "It ended.", now: world.now)
        world.turn()
        return token
    }

    @Test func allOfALaneIsHandedOutInItsOrder() throws {
        let world = world()
        let tokens = try (0..<305).map { _ in try append(world) }
        #expect(world.sent.map(\.dispatch.request.token) == tokens)
        #expect(world.sent.allSatisfy { $0.dispatch.request.attempts == 1 })
        #expect(world.machine.depth(of: "a") == 305 && world.machine.depth(of: "b") == 0)
        #expect(world.machine.requests(of: "a").map(\.token) == tokens)
        #expect(world.machine.requests(of: "b").isEmpty)
    }

    @Test func whatComesBackUnsentHasHadNoAttempt() throws {
        let world = world()
        let (unsent, begun) = (try waiting(world), try waiting(world, isBegun: true))
        for token in [unsent, begun] {
            let (kept, stored) = (try #require(world.machine.request(token)), try world.store.request(token))
            #expect(kept == stored)
            #expect(kept.state == .pending && kept.lease == nil)
        }
        #expect(world.machine.request(unsent).map { [$0.attempts, $0.doubts] } == [0, 0])
        #expect(world.machine.request(begun).map { [$0.attempts, $0.doubts] } == [1, 1])
        #expect(world.machine.request(begun)?.cause == "It ended.")
        // Once more changes nothing.
        world.machine.giveBack(begun, isBegun: true, cause: "Again.", now: world.now)
        // What is new goes out; what has come back waits until it is asked for, by its tenant.
        let new = try append(world)
        world.machine.unpark("b")
        world.run(1_000)
        #expect(world.sent.map(\.dispatch.request.token) == [unsent, begun, new])
        world.machine.unpark("a")
        world.turn()
        #expect(world.sent.suffix(2).map(\.dispatch.request.token) == [unsent, begun])
        // Who had asked is gone before they were handed anything.
        let later = try waiting(world)
        world.machine.unpark("a")
        world.machine.park("a")
        world.turn()
        #expect(world.machine.request(later)?.state == .pending)
    }

    @Test func whoNeverArrivesIsGivenUp() throws {
        let world = world { $0.limits.attempts = 3 }
        let token = try append(world)
        for _ in 0..<3 {
            #expect(world.machine.request(token)?.state == .inFlight)
            world.machine.giveBack(token, isBegun: true, cause: "It ended.", now: world.now)
            world.machine.unpark("a")
            world.turn()
        }
        #expect(try world.state(token) == .dead)
        #expect(try world.cause(token)?.contains("tried 3 times") == true)
        #expect(world.machine.counts.dead == 1)
    }

    /// A connection that fails before it sends anything uses up no attempt, in an outage of any length.
    @Test func anOutageUsesUpNoAttempts() throws {
        let world = world { $0.limits.attempts = 3 }
        let token = try append(world)
        for _ in 0..<100 {
            #expect(world.machine.request(token)?.state == .inFlight)
            world.machine.giveBack(token, isBegun: false, cause: "It ended.", now: world.now)
            world.machine.unpark("a")
            world.turn()
        }
        #expect(world.machine.request(token).map { [$0.attempts, $0.doubts] } == [1, 0])
    }

    /// Attempts of earlier processes are no failures of this one.
    @Test func onlyAttemptsOfThisProcessAreCounted() throws {
        let world = world { $0.limits.attempts = 2 }
        let token = try append(world)
        for _ in 0..<3 {
            try world.restart(session: nil)
            world.machine.unpark("a")
            world.turn()
        }
        #expect(world.machine.request(token)?.attempts == 4)
        world.machine.giveBack(token, isBegun: true, cause: "It ended.", now: world.now)
        #expect(world.machine.request(token)?.state == .pending)
        world.machine.unpark("a")
        world.turn()
        world.machine.giveBack(token, isBegun: true, cause: "It ended.", now: world.now)
        world.turn()
        #expect(try world.state(token) == .dead)
    }

    /// Told of one that waits, of one that is under way, and of one that was accepted a moment ago.
    @Test func endsAreReportedFromElsewhere() throws {
        let world = world()
        let waiting = try waiting(world)
        let underWay = try append(world, tenant: "b")
        let fresh = try offer(world, tenant: "b")
        let name = EntityIdentifier.both(type: "message", local: "1", remote: "r")
        #expect(
            world.machine.conclude(waiting, Self.success, identifiers: [name], now: world.now)?.state == .done)
        #expect(
            world.machine.conclude(underWay, .init(.failure(status: nil), cause: "no"), now: world.now)?.cause == "no")
        #expect(world.machine.conclude(fresh, Self.success, now: world.now)?.state == .done)
        world.turn()
        for token in [waiting, underWay, fresh] {
            #expect(world.machine.conclude(token, Self.success, now: world.now) == nil)
        }
        #expect(try [waiting, underWay, fresh].map { try world.state($0) } == [.done, .dead, .done])
        #expect(try world.store.load().learnt.map(\.mapping.remote) == ["r"])
        #expect(world.machine.depth == 0 && world.machine.underWay == 0)
        let counts = world.machine.counts
        #expect((counts.appended, counts.done, counts.dead) == (3, 2, 1))
        // A late word about what was under way is not heard.
        world.run(1 << 41)
        #expect(world.machine.counts.late == 2 && world.machine.counts.done == 2)
    }

    @Test func whatIsTakenBackHasNeverBeen() throws {
        let world = world()
        let kept = try append(world)
        let taken = try offer(world)
        let other = try offer(world)
        world.machine.retract(taken)
        // What is stored is not taken back.
        world.machine.retract(kept)
        world.turn()
        #expect(world.sent.map(\.dispatch.request.token) == [kept, other])
        #expect(try world.store.request(taken) == nil)
        #expect(world.machine.counts.appended == 2 && world.machine.depth == 2)
        #expect(world.machine.token(idempotencyKey: taken.description, tenant: "a") == nil)
    }

    /// The store has refused the insertion, and taken everything else of the batch.
    @Test func whatTheStoreHasRefusedHasNeverBeen() throws {
        let world = world()
        let kept = try append(world)
        let refused = try append(world)
        let counts = world.machine.counts
        world.machine.discard(refused, now: world.now)
        #expect(world.machine.depth == 1 && world.machine.underWay == 1)
        #expect(world.machine.counts.appended == counts.appended - 1)
        #expect(world.machine.counts.refused == counts.refused + 1)
        #expect(world.machine.token(idempotencyKey: refused.description, tenant: "a") == nil)
        // A second time, and one that is unknown, change nothing.
        world.machine.discard(refused, now: world.now)
        #expect(world.machine.counts.refused == counts.refused + 1)
        #expect(world.machine.conclude(kept, Self.success, now: world.now)?.state == .done)
        #expect(world.machine.depth == 0 && world.machine.underWay == 0)
    }

    /// It is under way when its time has come, among others that have theirs before them.
    @Test func whatComesBackAfterItsTimeIsGivenUp() throws {
        let world = world { $0.limits.age = 60_000 }
        let late = try append(world)
        world.run(50_000)
        let other = try waiting(world)
        world.run(15_000)
        #expect(try world.state(late) == .inFlight)
        world.machine.giveBack(late, isBegun: false, cause: "It ended.", now: world.now)
        world.run(10_000)
        #expect(try world.state(late) == .dead && world.state(other) == .pending)
        #expect(world.expired == [late])
        world.run(60_000)
        #expect(world.expired == [late, other])
    }

    /// It is handed out, for it may have been handed out before; it does not age, also while nobody is there to send it.
    @Test func whatIsHeldIsKeptBackByWhoeverSendsIt() throws {
        let world = world { $0.limits.age = 60_000 }
        let (held, aging) = (try waiting(world), try waiting(world))
        try world.machine.hold(held, true, now: world.now)
        world.run(100_000)
        #expect(try world.state(held) == .pending)
        #expect(try world.state(aging) == .dead)
        try world.restart(session: nil)
        let before = world.sent.count
        world.machine.unpark("a")
        world.turn()
        #expect(world.sent.dropFirst(before).map(\.dispatch.request.token) == [held])
        #expect(world.machine.request(held)?.isHeld == true)
    }

    @Test func aCommitThatFailsHandsOutNothing() throws {
        let world = world()
        let waiting = try waiting(world)
        let done = try append(world)
        let before = world.sent.count
        world.machine.unpark("a")
        world.machine.conclude(done, Self.success, now: world.now)
        let lost = try offer(world)
        world.store.failCommits(1)
        world.turn()
        #expect(world.sent.count == before && world.refused == [lost])
        #expect(world.machine.request(lost) == nil)
        // What had ended has ended, and is written down with the next.
        #expect(try world.store.request(done)?.state == .inFlight)
        world.turn()
        #expect(try world.store.request(done)?.state == .done)
        #expect(world.sent.dropFirst(before).map(\.dispatch.request.token) == [waiting])
    }

    @Test func namesWithoutSessionsAreForgotten() {
        var machine = QueueMachine(.init(), lease: 0)
        for number in 0..<10 {
            machine.setSession("\(number)", present: true)
            machine.setSession("\(number)", present: false)
            #expect(!machine.hasSession("\(number)"))
            #expect(machine.tenants["\(number)"] == nil)
        }
    }
}
