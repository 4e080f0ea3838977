import Testing

@testable import RequestQueue

/// The machine goes on while a batch is being committed. When that fails, what has come in since fails with it.
@Suite struct PipelineTests {
    private let world = QueueWorld(session: nil)

    /// Offers one request, hands out its batch, and lets more happen before that fails.
    private func failing(
        _ new: NewRequest = NewRequest(post("/a")), _ meanwhile: (RequestToken) throws -> Void
    ) throws -> (token: RequestToken, refused: [RequestToken]) {
        let token = try world.offer(new)
        let batch = world.machine.turn(now: world.now)
        #expect(batch.accepted == [token])
        try meanwhile(token)
        return (token, world.machine.failed(batch))
    }

    private func expectSums() {
        let (machine, counts) = (world.machine, world.machine.counts)
        #expect(
            counts.restored + counts.appended + counts.revived
                == counts.done + counts.dead + counts.cancelled + machine.depth)
    }

    @Test func whatStandsOnItFailsAsWell() throws {
        var later: [RequestToken] = []
        let (first, refused) = try failing(NewRequest(post("/m"), creates: [message], idempotencyKey: "k")) { token in
            later.append(try world.offer(NewRequest(post("/b"), dependsOn: [token])))
            later.append(try world.offer(NewRequest(post("/m/\(message)"))))
            later.append(try world.offer(NewRequest(post("/other"), lane: "other")))
            // The same request again is told of the same end.
            #expect(try world.offer(NewRequest(post("/m"), creates: [message], idempotencyKey: "k")) == token)
        }
        #expect(Set(refused) == Set([first] + later) && refused.count == 4)
        #expect(world.machine.depth == 0 && world.machine.bytes == 0)
        expectSums()
        // Nothing is left of them: the key is free, and so is the name.
        world.machine.setSession("", present: true)
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(MergeTests.remote) }
        let again = try world.append(NewRequest(post("/m"), creates: [message], idempotencyKey: "k"))
        try world.append(post("/m/\(message)"))
        world.run()
        #expect(again != first && world.targets == ["/m", "/m/%2442"])
        expectSums()
    }

    @Test func whatItHadReplacedIsThereAgain() throws {
        func draft(_ path: APIRequestPath) -> NewRequest { NewRequest(post(path), coalescingKey: "draft") }
        world.machine.setSession("", present: false)
        let old = try world.append(draft("/old"))
        let (_, refused) = try failing(draft("/new")) { _ in _ = try world.offer(draft("/newest")) }
        #expect(refused.count == 2)
        #expect(world.machine.requests.map(\.token) == [old])
        expectSums()
        world.machine.setSession("", present: true)
        world.run()
        #expect(world.targets == ["/old"])
        expectSums()
    }

    /// Its sender is told that it could not be stored, and so is the caller that has cancelled it: it has never been.
    @Test func whatHasEndedSinceHasNeverBeen() throws {
        let (token, refused) = try failing { try world.machine.cancel($0, now: world.now) }
        #expect(refused == [token] && world.machine.depth == 0)
        world.turn()
        #expect(try world.state(token) == nil)
        #expect(world.results.isEmpty)
        #expect(world.machine.token(idempotencyKey: token.description, tenant: "") == nil)
        expectSums()
        try world.restart()
        #expect(world.machine.depth == 0)
    }

    @Test func anAttemptThatWasToBeginDoesNot() throws {
        let token = try world.append(post("/a"))
        world.machine.setSession("", present: true)
        let batch = world.machine.turn(now: world.now)
        #expect(batch.dispatches.map(\.request.token) == [token])
        let behind = try world.offer(NewRequest(read("/b"), lane: "b"))
        #expect(world.machine.failed(batch) == [behind])
        let request = try #require(world.machine.request(token))
        #expect(request.state == .pending && request.attempts == 0 && world.machine.underWay == 0)
        world.run()
        #expect(world.targets == ["/a"] && world.sent[0].dispatch.request.attempts == 1)
    }

    /// A batch was made behind another one that is being committed, and more has come in since. The last goes first.
    @Test func twoBatchesFail() throws {
        func draft(_ path: APIRequestPath) -> NewRequest { NewRequest(post(path), coalescingKey: "draft") }
        let old = try world.append(draft("/old"))
        let cancelled = try world.offer(NewRequest(post("/a"), lane: "a"))
        let new = try world.offer(draft("/new"))
        let first = world.machine.turn(now: world.now)
        try world.machine.cancel(cancelled, now: world.now)
        let newest = try world.offer(draft("/newest"))
        let second = world.machine.turn(now: world.now)
        let behind = try world.offer(NewRequest(post("/c"), lane: "c", dependsOn: [newest]))
        #expect(Set(world.machine.failed(second)) == [newest, behind])
        #expect(world.machine.failed(first) == [cancelled, new])
        #expect(world.machine.requests.map(\.token) == [old])
        expectSums()
        world.turn()
        #expect(try world.state(cancelled) == nil)
        world.machine.setSession("", present: true)
        world.run()
        #expect(world.targets == ["/old"])
        expectSums()
    }

    /// The recipient has opened it while the batch that leases it again is being committed, which fails.
    @Test func whatEndsUnderALeaseThatIsUndoneStaysEnded() throws {
        let token = try world.append(post("/a"))
        world.machine.setSession("", present: true)
        let batch = world.machine.turn(now: world.now)
        #expect(batch.dispatches.map(\.request.token) == [token])
        #expect(world.machine.conclude(token, RequestOutcome(.success(status: 200)), now: world.now) != nil)
        #expect(world.machine.failed(batch).isEmpty)
        world.turn()
        #expect(try world.state(token) == .done && world.results.map(\.request.token) == [token])
        expectSums()
        try world.restart()
        world.run()
        #expect(world.sent.isEmpty, "it is not sent again")
    }

    /// What an answer has ended stays ended, and is stored with the next batch, once.
    @Test func anAnswerIsKept() throws {
        world.machine.setSession("", present: true)
        world.backend = { _ in .status(200, latency: 1_000_000) }
        let tokens = try ["a", "b"].map { try world.append(NewRequest(post("/\($0)"), lane: $0)) }
        let sent = world.sent.map(\.dispatch)
        func answer(_ dispatch: QueueBatch.Dispatch) {
            world.machine.reply(
                dispatch.id, lease: dispatch.lease, .success(status: 200, headers: [], body: [], identifiers: []),
                now: world.now, random: 0)
        }
        answer(sent[0])
        let batch = world.machine.turn(now: world.now)
        answer(sent[1])
        #expect(world.machine.failed(batch).isEmpty && world.results.isEmpty)
        world.turn()
        #expect(world.results.map(\.request.token) == tokens)
        #expect(try tokens.map { try world.state($0) } == [.done, .done])
        expectSums()
    }
}
