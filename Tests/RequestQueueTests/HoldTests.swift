import Testing

@testable import RequestQueue

/// What an operator holds and asks.
@Suite struct HoldTests {
    private func post(of tenant: String) -> NewRequest { NewRequest(write("/\(tenant)"), tenant: tenant) }

    @Test func allOfATenantIsHeldNowAndLater() throws {
        let world = QueueWorld(session: nil)
        for tenant in ["a", "b"] { world.machine.setSession(tenant, present: true) }
        world.machine.hold(tenant: "a", true, now: world.now)
        let first = try world.append(post(of: "a"))
        try world.append(post(of: "b"))
        world.run(1_000)
        #expect(world.targets == ["/b"])
        #expect(world.machine.obstacles(first, now: world.now) == ["held by an operator"])
        #expect(world.machine.census().held == 1)
        try world.append(post(of: "a"))
        world.run(1_000)
        #expect(world.machine.census().held == 2 && world.sent.count == 1)
        world.machine.hold(tenant: "a", false, now: world.now)
        world.run(1_000)
        #expect(world.targets == ["/b", "/a", "/a"])
        #expect(world.machine.census() == QueueMachine.Census())
    }

    /// One writes an accent into its letter, the other behind it: to whoever compares bytes they are two people.
    @Test func namesThatLookAlikeAreTwoTenants() throws {
        let (one, other) = ("zo\u{EB}", "zoe\u{308}")
        let world = QueueWorld(session: nil) { $0.limits.requestsPerTenant = 1 }
        world.machine.setSession(one, present: true)
        #expect(!world.machine.hasSession(other))
        world.machine.hold(tenant: one, true, now: world.now)
        let reference = EntityReference(type: "m", local: "1")
        let held = try world.append(
            NewRequest(write("/one"), tenant: one, creates: [reference], idempotencyKey: "k", coalescingKey: "c"))
        let waiting = try world.append(
            NewRequest(write("/other"), tenant: other, creates: [reference], idempotencyKey: "k", coalescingKey: "c"))
        #expect(held != waiting)
        #expect(world.machine.waitingForSession(of: other).map(\.token) == [waiting])
        world.machine.hold(tenant: other, true, now: world.now)
        world.machine.hold(tenant: one, false, now: world.now)
        world.machine.setSession(other, present: true)
        world.run(1_000)
        #expect(world.targets == ["/one"])
        #expect(try world.state(waiting) == .pending)
        world.machine.hold(tenant: other, false, now: world.now)
        world.run(1_000)
        #expect(world.targets == ["/one", "/other"])
    }

    /// Held for longer than the age limit, released, and then the process ends.
    @Test(arguments: [false, true]) func theAgeCountsFromTheReleaseAlsoAfterARestart(ofTenant: Bool) throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let token = try world.append(write("/a"))
        func hold(_ isHeld: Bool) throws {
            if ofTenant {
                world.machine.hold(tenant: "", isHeld, now: world.now)
            } else {
                try world.machine.hold(token, isHeld, now: world.now)
            }
        }
        try hold(true)
        world.run(600_000)
        try hold(false)
        world.run(20_000)
        try world.restart(session: nil)
        world.run(20_000)
        #expect(try world.state(token) == .pending)
        world.run(30_000)
        #expect(try world.state(token) == .dead)
    }

    @Test func whatIsHeldDoesNotAge() throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let held = try world.append(write("/held"), lane: "1")
        try world.machine.hold(held, true, now: world.now)
        let aging = try world.append(write("/aging"), lane: "2")
        world.machine.setSession("", present: true)
        world.machine.hold(tenant: "", true, now: world.now)
        world.run(600_000)
        #expect(try world.state(held) == .pending && world.state(aging) == .pending)
        world.machine.hold(tenant: "", false, now: world.now)
        world.run(1_000)
        #expect(try world.state(aging) == .done && world.state(held) == .pending)
        try world.machine.hold(held, false, now: world.now)
        world.run(1_000)
        #expect(try world.state(held) == .done)
    }

    /// Whether one is let go on, or all of its tenant: it has its whole age before it, as if it had been accepted then.
    @Test(arguments: [false, true]) func theAgeOfWhatWasHeldCountsFromItsRelease(ofAll: Bool) throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let held = try world.append(write("/held"))
        let act = { isHeld throws in
            if ofAll {
                world.machine.hold(tenant: "", isHeld, now: world.now)
            } else {
                try world.machine.hold(held, isHeld, now: world.now)
            }
        }
        try act(true)
        world.run(600_000)
        try act(false)
        world.run(59_000)
        #expect(try world.state(held) == .pending)
        world.run(2_000)
        #expect(try world.state(held) == .dead)
    }

    @Test func theCensusReportsDoubtsAndLogins() throws {
        let world = QueueWorld(session: nil)
        world.machine.setSession("a", present: true)
        world.backend = { $0.request.attempts == 1 ? .network(.networkConnectionLost) : .status(200) }
        let begin = world.now.wall
        let doubtful = try world.append(post(of: "a"))
        let waiting = try world.append(post(of: "b"))
        world.run(11)
        var census = world.machine.census()
        #expect(census.doubtful == 1 && census.withoutSession == 1 && census.oldest == begin)
        #expect(world.machine.waitingForSession().map(\.token) == [waiting])
        #expect(world.machine.waitingForSession(waiting)?.token == waiting)
        #expect(world.machine.waitingForSession(doubtful) == nil)
        #expect(world.machine.waitingForSession(of: "a").isEmpty && world.machine.counts.doubtful == 0)
        world.run(60_000)
        census = world.machine.census()
        #expect(try world.state(doubtful) == .done && census.doubtful == 0 && world.machine.counts.doubtful == 1)
    }
}

/// Outside the suites, whose own helpers have the name of what they wrap.
private func write(_ path: APIRequestPath) -> APIRequestConfig { post(path) }
