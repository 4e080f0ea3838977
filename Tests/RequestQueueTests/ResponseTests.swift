import Testing

@testable import RequestQueue

/// What is kept of the backend's answers, and for how long.
@Suite struct ResponseTests {
    /// Room for three answers of a hundred bytes.
    private func world(responses: Int = 350) -> QueueWorld {
        let world = QueueWorld {
            $0.limits.responses = responses
            $0.limits.responseSize = 200
        }
        world.backend = { _ in
            .init(reply: .success(status: 200, headers: [], body: Array(repeating: 7, count: 96), identifiers: []))
        }
        return world
    }

    private func sizes(_ world: QueueWorld, _ tokens: [RequestToken]) throws -> [Int?] {
        try tokens.map { try world.store.outcome($0)?.body.count }
    }

    @Test func theOldestGoFirst() throws {
        let world = world()
        let tokens = try (0..<5).map { number in
            let token = try world.append(post("/\(number)"))
            world.run(100)
            return token
        }
        #expect(try sizes(world, tokens) == [0, 0, 96, 96, 96])
        let outcomes = try tokens.map { try #require(try world.store.outcome($0)) }
        #expect(outcomes.map(\.isCut) == [true, true, false, false, false])
        #expect(outcomes.allSatisfy { $0.result == .success(status: 200) })
        // Handlers were given all of each.
        #expect(world.results.map(\.outcome.body.count) == [96, 96, 96, 96, 96])
        #expect(world.machine.responseBytes == 300)
        // The next process counts them as well, and one with less room makes room.
        try world.restart()
        #expect(world.machine.responseBytes == 300)
        world.machine = QueueMachine(self.world(responses: 100).settings, lease: 1)
        world.machine.restore(try world.store.load(), now: world.now)
        world.turn()
        #expect(try sizes(world, tokens) == [0, 0, 0, 0, 96])
    }

    @Test func whatIsForgottenWholeCountsNoMore() throws {
        let world = world()
        for number in 0..<3 { try world.append(post("/\(number)")) }
        world.run(100)
        #expect(world.machine.responseBytes == 300)
        world.pass(world.settings.limits.retention + 1)
        world.turn()
        world.turn()
        #expect(world.machine.responseBytes == 0 && world.machine.responses.isEmpty)
        #expect(try world.store.load().finished.count <= 1)
    }

    @Test func oneThatIsSentAgainHasNoAnswerYet() throws {
        let world = world()
        world.backend = { _ in
            .init(
                reply: .failure(
                    .status(403), retryAfter: nil, headers: [.init("a", "b")], body: Array(repeating: 7, count: 86)))
        }
        let token = try world.append(post("/a"))
        world.run(100)
        #expect(
            world.machine.responseBytes == 100 && world.machine.finished.count + world.machine.deadLetters.count == 1)
        let dead = try #require(try world.store.request(token))
        try world.machine.revive(dead, now: world.now)
        #expect(world.machine.responseBytes == 0 && world.machine.finished.isEmpty)
        world.run(100)
        #expect(
            world.machine.responseBytes == 100 && world.machine.finished.count + world.machine.deadLetters.count == 1)
    }

    @Test func anOutcomeThatIsTooLargeIsCutAndMarked() throws {
        let world = world()
        world.backend = { _ in
            .init(reply: .success(status: 200, headers: [], body: Array(repeating: 7, count: 201), identifiers: []))
        }
        let token = try world.append(post("/a"))
        world.run(100)
        let outcome = try #require(try world.store.outcome(token))
        #expect(outcome.body.count == 200 && outcome.isCut)
        #expect(world.results.map(\.outcome) == [outcome])
    }

    /// The outcome is there for callers that ask, and the next process delivers nothing.
    @Test func anOutcomeWithoutDeliveryIsDueToNobody() throws {
        let world = QueueWorld { $0.deliversOutcomes = false }
        world.handles = false
        world.backend = { _ in
            .init(reply: .success(status: 200, headers: [], body: [1, 2, 3], identifiers: []))
        }
        let token = try world.append(post("/a"))
        world.run(100)
        #expect(world.results.map(\.request.token) == [token])
        #expect(try world.store.load().undelivered.isEmpty)
        try world.restart()
        #expect(world.deliveries.count == 1)
        #expect(try world.store.outcome(token)?.body == [1, 2, 3])
    }

    /// Where nobody wants outcomes nothing is kept, and nothing is counted.
    @Test func nothingIsKeptForNobody() throws {
        let world = QueueWorld { $0.keepsOutcomes = false }
        world.backend = { _ in
            .init(reply: .success(status: 200, headers: [], body: [1, 2, 3], identifiers: []))
        }
        try world.append(post("/a"))
        world.run(100)
        #expect(world.machine.counts.done == 1 && world.machine.responseBytes == 0)
    }
}
