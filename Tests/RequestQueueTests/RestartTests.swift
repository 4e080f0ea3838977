import TestKit
import Testing

@testable import RequestQueue

/// What a process finds that another has left, and what it makes of a store that fails.
@Suite struct RestartTests {
    @Test func whatWasUnderWayGoesFirstAndInOrder() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1_000_000) }
        for number in 0..<5 { try world.append(read("/\(number)"), lane: "\(number)") }
        try world.append(post("/5"), lane: "4")
        #expect(world.sent.count == 5)
        world.sent = []
        try world.restart()
        // One at a time; the time of one that is not answered ends.
        #expect(world.targets == ["/0"])
        world.run(10_000)
        #expect(world.targets == ["/0", "/1", "/2", "/3", "/4"])
        #expect(zip(world.sent, world.sent.dropFirst()).allSatisfy { $1.at - $0.at >= QueueMachine.trialTime })
        #expect(world.sent.allSatisfy { $0.dispatch.request.attempts == 2 && $0.dispatch.request.crashes == 0 })
        #expect(world.sent.allSatisfy { $0.dispatch.request.doubts == 1 })
    }

    @Test func anAnswerToTheProcessBeforeChangesNothing() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1_000_000) }
        let token = try world.append(post("/a"))
        let old = world.sent[0].dispatch
        try world.restart()
        world.machine.reply(
            old.id, lease: old.lease, .success(status: 200, headers: [], body: [], identifiers: []), now: world.now,
            random: 0)
        #expect(world.machine.counts.late == 1 && world.machine.request(token)?.state == .inFlight)
        // Nor does the store take it.
        try world.store.commit([
            .finish(id: old.id, lease: old.lease, outcome: .init(.success(status: 200)), keeping: .result, at: 0)
        ])
        #expect(try world.store.load().requests.count == 1)
    }

    @Test func anOrderlyEndIsNoCrash() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1_000_000) }
        let token = try world.append(post("/a"))
        for _ in 0..<5 {
            world.machine.release(now: world.now)
            world.turn()
            #expect(try world.store.load().requests.map(\.state) == [.pending])
            try world.restart()
        }
        let request = try #require(world.machine.request(token))
        #expect(request.crashes == 0 && request.doubts == 5 && request.attempts == 6)
        #expect(throws: QueueError.closed) {
            world.machine.release(now: world.now)
            try world.append(post("/b"))
        }
    }

    /// The default limits.
    @Test func aRequestThatEndsTheProcessIsHeldAndNamed() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1_000_000) }
        let poison = try world.append(post("/poison"))
        let behind = try world.append(post("/behind"), lane: "other")
        // Both were under way at the first end, so it counts against neither.
        world.backend = { $0.resolved.target == "/poison" ? .status(200, latency: 1_000_000) : .status(200) }
        for crash in 0..<3 {
            try world.restart()
            #expect(world.machine.request(poison)?.crashes == crash)
            #expect(world.machine.request(poison)?.state == .inFlight)
        }
        try world.restart()
        let request = try #require(world.machine.request(poison))
        #expect(request.state == .pending && request.isHeld && request.crashes == 3)
        #expect(request.cause?.hasPrefix("The process ended 3 times in a row while only this request") == true)
        #expect(world.machine.census().heldAfterCrashes == [request.id])
        #expect(world.machine.obstacles(poison, now: world.now)[0].hasPrefix("held: the process ended 3 times"))
        world.run()
        #expect(try world.state(behind) == .done && world.state(poison) == .pending)
        // It stays so, and an operator lets it go.
        try world.restart()
        #expect(world.machine.request(poison)?.isHeld == true)
        world.backend = { _ in .status(200) }
        try world.machine.hold(poison, false, now: world.now)
        world.run()
        #expect(try world.state(poison) == .done && world.machine.census().heldAfterCrashes == [])
    }

    /// Three ends of the process in a row, with the default limits.
    @Test func whatWasUnderWayTogetherIsNeverHeldOrDead() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(200, latency: 1_000_000) }
        let tokens = try (0..<20).map { try world.append(post("/\($0)"), lane: "\($0)") }
        for _ in 0..<3 {
            world.run(60_000)
            #expect(world.machine.underWay == 20)
            try world.restart()
        }
        world.backend = { _ in .status(200) }
        // Longer than the answer takes that one of them waits for.
        world.run(2_000_000)
        #expect(try tokens.allSatisfy { try world.state($0) == .done })
        #expect(world.machine.counts.dead == 0)
    }

    /// Each time the poison is sent the process ends. Everything else is done, and the poison is found.
    @Test(arguments: 1...5) func poisonIsFoundAmongOthers(_ seed: Int) throws {
        let world = QueueWorld(seed: UInt64(seed))
        var isCrashing = false
        world.backend = { dispatch in
            if dispatch.resolved.target == "/poison" { isCrashing = true }
            return .status(200, latency: 200)
        }
        var tokens: [RequestToken] = []
        let place = seed * 3
        var poison: RequestToken?
        func crashIfDue() throws {
            while isCrashing {
                isCrashing = false
                try world.restart()
            }
        }
        for number in 0..<20 {
            if number == place { poison = try world.append(post("/poison"), lane: "p") }
            try crashIfDue()
            tokens.append(try world.append(post("/\(number)"), lane: "\(number)"))
            try crashIfDue()
        }
        for _ in 0..<100 {
            world.run(50)
            try crashIfDue()
        }
        #expect(try tokens.allSatisfy { try world.state($0) == .done })
        let found = try #require(poison.flatMap { world.machine.request($0) })
        #expect(found.isHeld && found.state == .pending && world.machine.depth == 1)
    }

    @Test func pausesGoOnAfterARestart() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(503, retryAfter: 600_000) }
        try world.append(post("/a"))
        world.run(100)
        try world.restart(after: 100_000)
        world.run(400_000)
        #expect(world.sent.count == 1)
        world.run(200_000)
        #expect(world.sent.count == 2)
    }

    @Test func theClockOfTheWallMayJump() throws {
        let world = QueueWorld()
        world.backend = { $0.request.attempts == 1 ? .status(503, retryAfter: 60_000) : .status(200) }
        for jump: Int64 in [3_600_000, -3_600_000] {
            let token = try world.append(post("/a"))
            world.run(100)
            world.now.wall += jump
            world.run(50_000)
            #expect(try world.state(token) == .pending)
            world.run(11_000)
            #expect(try world.state(token) == .done)
        }
        // Set back by a year while the process was down, no pause becomes longer than any can be.
        try world.append(post("/b"))
        world.run(100)
        world.now.wall -= 365 * 86_400_000
        try world.restart()
        world.run(3_700_000)
        #expect(world.machine.depth == 0)
    }

    @Test func anOutcomeThatNoHandlerHadIsDeliveredAfterTheRestart() throws {
        let world = QueueWorld()
        world.handles = false
        let token = try world.append(post("/a"))
        world.run()
        #expect(world.results.map(\.request.token) == [token])
        world.results = []
        // However often the process ends before a handler is called, the outcome is not given up.
        for _ in 0..<10 { try world.restart() }
        #expect(world.results.map(\.request.token) == Array(repeating: token, count: 10))
        #expect(world.results[0].outcome.result == .success(status: 200))
        #expect(world.sent.count == 1)
        // A handler that ends the process each time is not asked for ever.
        (world.results, world.poisonOutcome) = ([], token)
        for _ in 0..<5 {
            try world.restart()
            world.turn()
        }
        #expect(world.results.count == QueueMachine.deliveries)
        #expect(world.machine.counts.undelivered == 0)
        world.handles = true
        world.results = []
        try world.restart()
        #expect(world.results.isEmpty)
    }

    /// A handler that ends the process at one outcome costs no other.
    @Test func oneHandlersCrashLosesNoOtherOutcome() throws {
        let world = QueueWorld()
        world.handles = false
        let tokens = try (0..<500).map { try world.append(read("/\($0)"), lane: "\($0 % 50)") }
        world.run()
        #expect(world.results.count == 500)
        world.poisonOutcome = tokens[3]
        var handled: Set<RequestToken> = []
        world.handles = true
        for _ in 0..<(QueueMachine.deliveries + 2) {
            world.results = []
            try world.restart()
            world.turn()
            let place = world.results.firstIndex { $0.request.token == tokens[3] } ?? world.results.count
            handled.formUnion(world.results[..<place].map(\.request.token))
        }
        #expect(handled == Set(tokens).subtracting([tokens[3]]))
    }

    @Test func rowsThatCannotBeReadAreKeptAndStopNobody() throws {
        for damaged in 0..<3 {
            let world = QueueWorld(session: nil)
            let tokens = try (0..<3).map { try world.append(post("/\($0)")) }
            world.store.damage(tokens[damaged])
            try world.restart()
            world.run()
            #expect(world.targets == (0..<3).filter { $0 != damaged }.map { "/\($0)" })
            #expect(try world.state(tokens[damaged]) == .dead)
            #expect(try world.cause(tokens[damaged]) == "It cannot be read: its stored form is damaged.")
        }
    }

    /// What depends on a request that cannot be read is not sent as if that was done.
    @Test func dependantsOfARowThatCannotBeReadFail() throws {
        let world = QueueWorld(session: nil)
        let damaged = try world.append(post("/first"), lane: "1")
        let second = try world.append(NewRequest(post("/second"), lane: "2", dependsOn: [damaged]))
        let third = try world.append(NewRequest(post("/third"), lane: "3", dependsOn: [second]))
        try world.append(post("/other"), lane: "2")
        world.store.damage(damaged)
        try world.restart()
        world.run()
        #expect(world.targets == ["/other"])
        #expect(try [damaged, second, third].allSatisfy { try world.state($0) == .dead })
        let cause = try #require(try world.cause(second))
        #expect(cause.hasPrefix("It depends on request ") && cause.hasSuffix("its stored form is damaged."))
    }

    /// A dead request is sent again, and ends, while handlers still have its first outcome. The second stays due.
    @Test func confirmingAnOutcomeConfirmsNoLaterOne() throws {
        let world = QueueWorld()
        world.handles = false
        world.backend = { _ in .status(400) }
        let token = try world.append(post("/a"))
        world.run()
        let id = try #require(world.results.first?.request.id)
        try world.machine.revive(#require(try world.store.request(token)), now: world.now)
        world.backend = { _ in .status(200) }
        world.run()
        #expect(world.results.map(\.outcome.state) == [.dead, .done])
        world.machine.handled(id)
        world.turn()
        #expect(try world.store.load().undelivered.map(\.request.token) == [token])
        world.machine.handled(id)
        world.turn()
        #expect(try world.store.load().undelivered.isEmpty)
    }

    // MARK: A store that fails

    @Test func whatIsNotStoredIsNotAccepted() throws {
        let world = QueueWorld()
        world.store.failCommits(1)
        let lost = try world.append(post("/lost"))
        #expect(world.refused == [lost] && world.sent.isEmpty && world.machine.depth == 0)
        let kept = try world.append(post("/kept"))
        world.run()
        #expect(world.accepted == [kept] && world.targets == ["/kept"])
        // The key is free again.
        #expect(try world.append(NewRequest(post("/lost"), idempotencyKey: lost.description)) != lost)
    }

    /// What a failed batch leaves is stored in the order in which it was done.
    @Test func aFailedBatchIsStoredLaterInItsOrder() throws {
        let world = QueueWorld(session: nil)
        let held = try world.append(post("/held"))
        let row = try #require(world.machine.request(held)?.id)
        world.store.failCommits(1)
        let gone = try world.offer(NewRequest(post("/gone")))
        try world.machine.cancel(gone, now: world.now)
        try world.machine.hold(held, true, now: world.now)
        try world.machine.hold(held, false, now: world.now)
        world.turn()
        #expect(world.accepted == [held])
        // And what came in meanwhile comes behind it.
        try world.machine.hold(held, true, now: world.now)
        let batch = world.machine.turn(now: world.now)
        try world.machine.hold(held, false, now: world.now)
        _ = world.machine.failed(batch)
        let next = world.machine.turn(now: world.now)
        let holds = next.changes.compactMap { change -> Bool? in
            if case .hold(row, let isHeld, _) = change { isHeld } else { nil }
        }
        #expect(holds == [true, false, true, false])
        try world.store.commit(next.changes)
        #expect(try world.store.request(gone) == nil)
        try world.restart()
        world.run()
        #expect(world.targets == ["/held"])
        #expect(try world.state(gone) == nil && world.state(held) == .done)
    }

    @Test func nothingIsSentThatIsNotStoredAsSent() throws {
        let world = QueueWorld(session: nil)
        let token = try world.append(post("/a"))
        world.machine.setSession("", present: true)
        world.store.failCommits(1)
        world.turn()
        #expect(world.sent.isEmpty && world.machine.request(token)?.attempts == 0)
        world.run()
        #expect(world.targets == ["/a"] && world.sent[0].dispatch.request.attempts == 1)
    }

    @Test func anOutcomeThatCouldNotBeStoredIsStoredLater() throws {
        let world = QueueWorld()
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(MergeTests.remote) }
        let token = try world.append(NewRequest(post("/m"), creates: [message]))
        world.store.failCommits(3)
        world.run(50)
        #expect(world.results.isEmpty)
        for _ in 0..<3 { world.turn() }
        #expect(world.results.map(\.request.token) == [token])
        try world.restart()
        try world.append(post("/m/\(message)"))
        world.run()
        #expect(world.targets == ["/m", "/m/%2442"])
    }

    // MARK: Everything at once

    struct Plan {
        var lane: String
        var barrier: Bool
    }

    /// Tenants, lanes, dependencies, failures, kills, a failing disk: under a seed. From the eleventh on the machine is a batch ahead
    /// of the store, from the twenty-first on two.
    @Test(arguments: 1...30) func everythingAtOnce(_ seed: Int) throws {
        var random = SeededGenerator(seed: UInt64(seed))
        func chance(_ percent: UInt64) -> Bool { random.next() % 100 < percent }
        let world = QueueWorld(seed: UInt64(seed), session: nil) {
            $0.limits.inFlight = 8
            $0.backoff = Backoff(base: 50, cap: 2_000)
            $0.breaker = .init(threshold: 5, pause: 100, longestPause: 1_000)
        }
        world.lag = (seed - 1) / 10
        let tenants = ["a", "b", "c"]
        func logIn() { for tenant in tenants { world.machine.setSession(tenant, present: true) } }
        logIn()
        var backend = SeededGenerator(seed: UInt64(seed) &* 77)
        var effects: [RequestToken] = []
        world.backend = { dispatch in
            #expect(!dispatch.resolved.target.contains(":"))
            let latency = Int64(backend.next() % 200)
            switch backend.next() % 10 {
            case 0: return .status(503, latency: latency)
            case 1: return .network(.cannotConnectToHost, latency: latency)
            case 2:
                // Done, and the answer lost.
                effects.append(dispatch.request.token)
                return .network(.networkConnectionLost, latency: latency)
            default:
                effects.append(dispatch.request.token)
                guard let reference = dispatch.request.creates.first else { return .status(200, latency: latency) }
                return .created(
                    .both(type: "m", local: reference.local, remote: "r\(reference.local)"), latency: latency)
            }
        }
        var plans: [RequestToken: Plan] = [:]
        var order: [RequestToken] = []
        var created: [String: [EntityReference]] = [:]
        var needs: [RequestToken: RequestToken] = [:]
        var creator: [EntityReference: RequestToken] = [:]
        for number in 0..<300 {
            let tenant = tenants[Int(random.next() % 3)]
            let lane = "\(random.next() % 4)"
            var new = NewRequest(chance(70) ? post("/\(number)") : read("/\(number)"), tenant: tenant, lane: lane)
            new.config.queueingStrategy.retryPolicy = [.onNetworkInterrupt, .onTransientStatus]
            if chance(20) { new.creates = [EntityReference(type: "m", local: "\(number)")] }
            created[tenant]?.removeAll { creator[$0].map(world.refused.contains) ?? true }
            if chance(30), let known = created[tenant]?.randomElement(using: &random) {
                new.config.path = "/\(number)/\(known)"
            }
            if chance(10) { world.store.failCommits(Int(random.next() % 3)) }
            let token = try world.append(new)
            if !world.refused.contains(token) {
                order.append(token)
                plans[token] = Plan(lane: tenant + lane, barrier: !new.config.method.isSafe)
                if let reference = new.config.references.first { needs[token] = creator[reference] }
                for reference in new.creates {
                    created[tenant, default: []].append(reference)
                    creator[reference] = token
                }
            }
            if chance(50) { world.run(Int64(random.next() % 300)) }
            if chance(3) {
                try world.restart(session: nil, committed: chance(50))
                logIn()
                // What was under way to the store is there as a whole or not at all.
                let known = Set(
                    try world.store.requests(states: RequestState.allCases, after: 0, limit: .max).map(\.token))
                order.removeAll { !known.contains($0) }
                for tenant in tenants { created[tenant]?.removeAll { creator[$0].map(known.contains) != true } }
                #expect(Set(world.accepted).isSubset(of: known))
            }
        }
        world.store.failCommits(0)
        world.run(10_000_000)
        #expect(world.machine.depth == 0)
        order.removeAll(where: world.refused.contains)

        // Everything that was accepted is done, once for its handlers.
        let done = try world.store.requests(states: [.done], after: 0, limit: .max)
        #expect(Set(done.map(\.token)) == Set(order) && done.count == order.count)
        // Once for the handlers of each process: one that ended before it could say that they had it leaves it to the next.
        let outcomes = Dictionary(grouping: world.results, by: \.request.token)
        #expect(
            outcomes.count == order.count && outcomes.values.allSatisfy { Set($0.map(\.outcome.result)).count == 1 })
        #expect(Set(world.deliveries).count == world.deliveries.count)
        #expect(Set(effects) == Set(order))
        // A barrier has its first effect after all before it in its lane have had theirs, and before all behind it.
        var first: [RequestToken: Int] = [:]
        for (place, token) in effects.enumerated() where first[token] == nil { first[token] = place }
        for (lane, tokens) in Dictionary(grouping: order, by: { plans[$0]?.lane ?? "" }) {
            for (place, token) in tokens.enumerated() where plans[token]?.barrier == true {
                let own = first[token] ?? -1
                #expect(tokens[..<place].allSatisfy { (first[$0] ?? .max) < own }, "lane \(lane)")
                #expect(tokens[(place + 1)...].allSatisfy { (first[$0] ?? -1) > own }, "lane \(lane)")
            }
        }
        let accepted = Set(order)
        #expect(needs.allSatisfy { !accepted.contains($0.key) || (first[$0.value] ?? .max) < (first[$0.key] ?? -1) })
        // The counters add up, but for what processes before had counted.
        #expect(world.machine.counts.dead == 0 && world.machine.underWay == 0 && world.machine.bytes == 0)
    }
}
