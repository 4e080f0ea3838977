import Testing

@testable import RequestQueue

/// The queue as connections use it: numbers before there are bytes, requests that come back unsent, ends that others tell.
@Suite struct CarrierTests {
    private static let strategy = QueueingStrategy(synchronization: .concurrent, retryPolicy: [])

    private func world(_ change: (inout QueueMachine.Settings) -> Void = { _ in }) -> QueueWorld {
        let world = QueueWorld(session: nil) {
            $0.keepsOutcomes = false
            $0.handsOutHeld = true
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
        let id = id ?? world.machine.reserveID()
        let config = post("/", strategy: Self.strategy)
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
        #expect(world.machine.reserveID() == 1)
        #expect(world.machine.reserveID(atLeast: 1000) == 1000)
        #expect(world.machine.reserveID(atLeast: 500) == 1001)
        let late = try append(world, 1001)
        let early = try append(world, 1000)
        #expect(world.machine.requests.map(\.token) == [early, late])
        let next = try world.append(NewRequest(post("/"), tenant: "a"))
        #expect(world.machine.request(next)?.id == 1002)
        try world.restart(session: nil)
        #expect(world.machine.highestID == 1002)
    }

    @Test func allOfALaneIsHandedOutInItsOrder() throws {
        let world = world()
        let first = try (0..<5).map { _ in try append(world) }
        #expect(world.sent.isEmpty)
        world.machine.setSession("a", present: true)
        world.turn()
        let rest = try (0..<300).map { _ in try append(world) }
        #expect(world.sent.map(\.dispatch.request.token) == first + rest)
        #expect(world.sent.allSatisfy { $0.dispatch.request.attempts == 1 })
        #expect(world.machine.depth(of: "a") == 305 && world.machine.depth(of: "b") == 0)
        #expect(world.machine.requests(of: "a").map(\.token) == first + rest)
        #expect(world.machine.requests(of: "b").isEmpty)
    }

    @Test func whatComesBackUnsentHasHadNoAttempt() throws {
        let world = world()
        world.machine.setSession("a", present: true)
        let (unsent, begun) = (try append(world), try append(world))
        world.machine.setSession("a", present: false)
        world.machine.giveBack(unsent, isBegun: false, cause: "It ended.", now: world.now)
        world.machine.giveBack(begun, isBegun: true, cause: "It ended.", now: world.now)
        world.turn()
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
        world.machine.setSession("a", present: true)
        world.turn()
        #expect(world.sent.suffix(2).map(\.dispatch.request.token) == [unsent, begun])
    }

    @Test func whoNeverArrivesIsGivenUp() throws {
        let world = world { $0.limits.attempts = 3 }
        world.machine.setSession("a", present: true)
        let token = try append(world)
        for _ in 0..<3 {
            #expect(world.machine.request(token)?.state == .inFlight)
            world.machine.giveBack(token, isBegun: true, cause: "It ended.", now: world.now)
            world.turn()
        }
        #expect(try world.state(token) == .dead)
        #expect(try world.cause(token)?.contains("tried 3 times") == true)
        #expect(world.machine.counts.dead == 1)
    }

    /// Told of one that waits, of one that is under way, and of one that was accepted a moment ago.
    @Test func endsAreToldFromElsewhere() throws {
        let world = world()
        let waiting = try append(world)
        world.machine.setSession("b", present: true)
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
        #expect(world.machine.counts.late == 1 && world.machine.counts.done == 2)
    }

    @Test func whatIsTakenBackHasNeverBeen() throws {
        let world = world()
        world.machine.setSession("a", present: true)
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

    /// It is handed out, for it may have been handed out before; it does not age, also while nobody is there to send it.
    @Test func whatIsHeldIsKeptBackByWhoeverSendsIt() throws {
        let world = world { $0.limits.age = 60_000 }
        let (held, aging) = (try append(world), try append(world))
        try world.machine.hold(held, true)
        world.run(100_000)
        #expect(try world.state(held) == .pending)
        #expect(try world.state(aging) == .dead)
        try world.restart(session: "a")
        #expect(world.sent.map(\.dispatch.request.token) == [held])
        #expect(world.machine.request(held)?.isHeld == true)
    }

    @Test func aCommitThatFailsHandsOutNothing() throws {
        let world = world()
        let waiting = try append(world)
        let done = try append(world)
        world.machine.setSession("a", present: true)
        world.machine.conclude(done, Self.success, now: world.now)
        let lost = try offer(world)
        world.store.failCommits(1)
        world.turn()
        #expect(world.sent.isEmpty && world.refused == [lost])
        #expect(world.machine.request(lost) == nil)
        // What had ended has ended, and is written down with the next.
        #expect(try world.store.request(done)?.state == .pending)
        world.turn()
        #expect(try world.store.request(done)?.state == .done)
        #expect(world.sent.map(\.dispatch.request.token) == [waiting])
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
