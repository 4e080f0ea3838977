import TestKit
import Testing

@testable import RequestQueue

/// Requests that end before their insertion is committed: both are stored together, or the request has never been.
@Suite struct UncommittedEndTests {
    private let world = QueueWorld(session: nil)

    private func dependant(on token: RequestToken, key: String? = "k") -> NewRequest {
        NewRequest(post("/b"), dependsOn: [token], idempotencyKey: key)
    }

    /// Offers a request, and ends it before the next turn by the failure of another one that it depends on.
    private func failing(_ key: String? = "k") throws -> RequestToken {
        let first = try world.append(post("/a"))
        let token = try world.offer(dependant(on: first, key: key))
        try world.machine.cancel(first, now: world.now)
        #expect(world.machine.request(token) == nil, "it has ended")
        return token
    }

    private func expectSums() {
        let (machine, counts) = (world.machine, world.machine.counts)
        #expect(
            counts.restored + counts.appended + counts.revived
                == counts.done + counts.dead + counts.cancelled + machine.depth)
    }

    private func token(of key: String) -> RequestToken? { world.machine.token(idempotencyKey: key, tenant: "") }

    @Test func insertionAndEndAreStoredTogether() throws {
        let token = try failing()
        world.turn()
        #expect(world.accepted.last == token && world.results.last?.request.token == token)
        #expect(try world.store.request(token)?.state == .dead)
        #expect(self.token(of: "k") == token)
        // The key names a request that can be looked up and sent again.
        let stored = try #require(try world.store.request(token))
        try world.machine.revive(stored, now: world.now)
        expectSums()
        try world.restart()
        world.run()
        #expect(try world.state(token) == .dead, "the revival was not committed")
        #expect(self.token(of: "k") == token)
    }

    @Test func theKeyIsFreeIfTheBatchFails() throws {
        world.store.failCommits(1)
        let first = try world.offer(NewRequest(post("/a")))
        let token = try world.offer(dependant(on: first))
        try world.machine.cancel(first, now: world.now)
        world.turn()
        #expect(world.refused == [first, token])
        #expect(self.token(of: "k") == nil && self.token(of: first.description) == nil)
        expectSums()
        // Nothing of them is stored with the next batch, and no handler gets their outcomes.
        let again = try world.append(NewRequest(post("/b"), idempotencyKey: "k"))
        #expect(again != token && world.accepted == [again] && world.results.isEmpty)
        #expect(try world.store.requests(states: RequestState.allCases, after: 0, limit: 9).map(\.token) == [again])
        #expect(throws: QueueError.unknownDependency) { try world.offer(NewRequest(post("/c"), dependsOn: [token])) }
        expectSums()
    }

    /// An operator's drop is undone by a revival, which must not bring back a request whose insertion was undone as well.
    @Test func whatWasForgottenIsNotRevived() throws {
        let token = try world.offer(NewRequest(post("/a")))
        let outcome = RequestOutcome(.failure(status: nil), cause: "dropped")
        let concluded = world.machine.conclude(token, outcome, now: world.now)
        let ended = try #require(concluded)
        let batch = world.machine.turn(now: world.now)
        #expect(world.machine.failed(batch) == [token])
        #expect(throws: QueueActError.unknown) { try world.machine.revive(ended, now: world.now) }
        #expect(world.machine.depth == 0)
        expectSums()
    }

    /// The store has rejected the insertion, and has committed the rest of its batch.
    @Test func theKeyIsFreeIfOnlyTheInsertionIsRejected() throws {
        let token = try failing()
        world.turn()
        let refused = world.machine.counts.refused
        for _ in 0..<2 { world.machine.discard(token, now: world.now) }
        #expect(world.machine.counts.refused == refused + 1)
        #expect(self.token(of: "k") == nil)
        expectSums()
        #expect(try world.offer(NewRequest(post("/b"), idempotencyKey: "k")) != token)
    }

    /// The store has rejected a message, and has committed its edit in the same batch.
    @Test func whatDependsOnARejectedInsertionFails() throws {
        let create = try world.offer(NewRequest(post("/m"), lane: "1", creates: [message]))
        let edit = try world.offer(NewRequest(post("/m/\(message)"), lane: "1"))
        let last = try world.offer(NewRequest(post("/last"), lane: "2", dependsOn: [create]))
        world.turn()
        world.machine.discard(create, now: world.now)
        world.turn()
        #expect(try world.state(edit) == .dead && world.state(last) == .dead)
        #expect(world.machine.depth == 0)
        expectSums()
        // The entity may be created by another request.
        try world.append(NewRequest(post("/m"), lane: "1", creates: [message]))
    }

    @Test func theKeyIsFreeIfItIsTakenBack() throws {
        let token = try failing()
        world.machine.retract(token)
        #expect(self.token(of: "k") == nil)
        expectSums()
        world.turn()
        #expect(try world.store.request(token) == nil)
        #expect(world.results.map(\.request.token).contains(token) == false)
    }

    /// The earlier of two requests with one coalescing key is refused as well: it is neither stored nor sent.
    @Test func whatWasReplacedInTheFailedBatchIsRefused() throws {
        world.store.failCommits(1)
        let drafts = try (1...2).map { try world.offer(NewRequest(post("/\($0)"), coalescingKey: "draft")) }
        world.turn()
        #expect(world.refused == drafts && world.machine.depth == 0)
        world.machine.setSession("", present: true)
        world.run()
        #expect(world.sent.isEmpty)
        #expect(try drafts.allSatisfy { try world.state($0) == nil })
        expectSums()
    }

    /// Keys, dependencies, failures, cancellations and a failing disk under a seed; every other seed commits a batch
    /// late, every third one two. A key is known if, and only if, its request is stored.
    @Test(arguments: 1...40) func aKeyIsKnownIfItsRequestIsStored(_ seed: Int) throws {
        var random = SeededGenerator(seed: UInt64(seed))
        func chance(_ percent: UInt64) -> Bool { random.next() % 100 < percent }
        let world = QueueWorld(seed: UInt64(seed))
        world.lag = seed % 3
        var backend = SeededGenerator(seed: UInt64(seed) &* 31)
        world.backend = { _ in .status(backend.next() % 4 == 0 ? 404 : 200, latency: Int64(backend.next() % 50)) }
        var recent: [RequestToken] = []
        var seen: Set<RequestToken> = []
        for _ in 0..<400 {
            if chance(8) { world.store.failCommits(1 + Int(random.next() % 3)) }
            // Nothing depends on the request that was accepted last.
            var newest: RequestToken?
            for _ in 0...random.next() % 3 {
                var new = NewRequest(
                    post("/x"), lane: "\(random.next() % 3)", idempotencyKey: "k\(random.next() % 60)")
                if chance(20) {
                    new.coalescingKey = "c\(random.next() % 2)"
                } else if chance(60), let other = recent.randomElement(using: &random) {
                    new.dependsOn = [other]
                }
                guard let token = try? world.offer(new) else { continue }
                recent.append(token)
                newest = seen.insert(token).inserted ? token : nil
            }
            if chance(20), let token = recent.randomElement(using: &random) {
                try? world.machine.cancel(token, now: world.now)
            }
            if chance(10), let newest { world.machine.retract(newest) }
            recent = recent.suffix(6)
            if chance(60) { world.turn() }
            if chance(30) { world.run(Int64(random.next() % 100)) }
        }
        world.store.failCommits(0)
        world.run(10_000_000)
        let rows = try world.store.requests(states: RequestState.allCases, after: 0, limit: .max)
        #expect(Set(world.machine.keys.values.map(\.token)) == Set(rows.map(\.token)))
        #expect(world.machine.keys.count == rows.count && rows.count > 20)
        let handled = Set(world.results.map(\.request.token))
        #expect(handled.symmetricDifference(rows.map(\.token)).isEmpty, "each outcome is handled")
        let counts = world.machine.counts
        #expect(world.machine.depth == 0 && counts.appended == rows.count)
        for (state, count) in [(RequestState.done, counts.done), (.dead, counts.dead), (.cancelled, counts.cancelled)] {
            #expect(rows.count { $0.state == state } == count, "\(state)")
        }
    }
}
