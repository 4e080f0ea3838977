import Testing

@testable import RequestQueue

/// What an operator holds and asks.
@Suite struct HoldTests {
    private func post(of tenant: String) -> NewRequest { NewRequest(write("/\(tenant)"), tenant: tenant) }

    @Test func allOfATenantIsHeldNowAndLater() throws {
        let world = QueueWorld(session: nil)
        for tenant in ["a", "b"] { world.machine.setSession(tenant, present: true) }
        world.machine.hold(tenant: "a", true)
        let first = try world.append(post(of: "a"))
        try world.append(post(of: "b"))
        world.run(1_000)
        #expect(world.targets == ["/b"])
        #expect(world.machine.obstacles(first, now: world.now) == ["held by an operator"])
        #expect(world.machine.census().held == 1)
        try world.append(post(of: "a"))
        world.run(1_000)
        #expect(world.machine.census().held == 2 && world.sent.count == 1)
        world.machine.hold(tenant: "a", false)
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
        world.machine.hold(tenant: one, true)
        let reference = EntityReference(type: "m", local: "1")
        let held = try world.append(
            NewRequest(write("/one"), tenant: one, creates: [reference], idempotencyKey: "k", coalescingKey: "c"))
        let waiting = try world.append(
            NewRequest(write("/other"), tenant: other, creates: [reference], idempotencyKey: "k", coalescingKey: "c"))
        #expect(held != waiting)
        #expect(world.machine.waitingForSession(of: other).map(\.token) == [waiting])
        world.machine.hold(tenant: other, true)
        world.machine.hold(tenant: one, false)
        world.machine.setSession(other, present: true)
        world.run(1_000)
        #expect(world.targets == ["/one"])
        #expect(try world.state(waiting) == .pending)
        world.machine.hold(tenant: other, false)
        world.run(1_000)
        #expect(world.targets == ["/one", "/other"])
    }

    @Test func whatIsHeldDoesNotAge() throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let held = try world.append(write("/held"), lane: "1")
        try world.machine.hold(held, true)
        let aging = try world.append(write("/aging"), lane: "2")
        world.machine.setSession("", present: true)
        world.machine.hold(tenant: "", true)
        world.run(600_000)
        #expect(try world.state(held) == .pending && world.state(aging) == .pending)
        world.machine.hold(tenant: "", false)
        world.run(1_000)
        #expect(try world.state(aging) == .done && world.state(held) == .pending)
        try world.machine.hold(held, false)
        world.run(1_000)
        #expect(try world.state(held) == .done)
    }

    @Test func theCensusTellsDoubtsAndLogins() throws {
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
