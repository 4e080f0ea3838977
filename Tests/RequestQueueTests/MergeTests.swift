import Testing

@testable import RequestQueue

/// Local and remote identifiers: whatever the order of things, no placeholder ever goes out.
@Suite struct MergeTests {
    static let remote = EntityIdentifier.both(type: "message", local: "L1", remote: "$42")

    @Test func identifiersMerge() throws {
        let local = EntityIdentifier.local(type: "m", "L")
        let remote = EntityIdentifier.remote(type: "m", "R")
        #expect(try local.merged(with: remote) == .both(type: "m", local: "L", remote: "R"))
        #expect(try remote.merged(with: local) == .both(type: "m", local: "L", remote: "R"))
        #expect(try local.merged(with: local) == local)
        #expect(throws: MergeConflict.differentLocals("m", "L", "K")) { try local.merged(with: .local(type: "m", "K")) }
        #expect(throws: MergeConflict.differentRemotes("m", "R", "S")) {
            try remote.merged(with: .remote(type: "m", "S"))
        }
        #expect(throws: MergeConflict.differentTypes("m", "n")) { try local.merged(with: .local(type: "n", "L")) }
    }

    /// The dependants stand in other lanes, so that only the name holds them back.
    @Test func dependantsWaitForTheNameInEveryPlace() throws {
        let world = QueueWorld()
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(Self.remote, latency: 1000) }
        try world.append(NewRequest(post("/m"), creates: [message]))
        let dependants: [APIRequestConfig] = [
            post("/m/\(message)"), APIRequestConfig(method: .put, path: "/q", query: ["id": .reference(message)]),
            APIRequestConfig(method: .put, path: "/h", headers: ["X-Id": .reference(message)]),
            post("/f", body: .formURLEncoded(["id": .reference(message)])),
            post("/j", body: .json(["a": [["id": .reference(message)]]])),
        ]
        for (number, config) in dependants.enumerated() { try world.append(config, lane: "\(number)") }
        world.run(999)
        #expect(world.targets == ["/m"])
        world.run()
        #expect(world.targets == ["/m", "/m/%2442", "/q?id=%2442", "/h", "/f", "/j"])
        #expect(world.sent[3].dispatch.resolved.headers.contains(.init("X-Id", "$42")))
        #expect(world.sent[4].dispatch.resolved.body == Array("id=%2442".utf8))
        #expect(world.sent[5].dispatch.resolved.body == Array(#"{"a":[{"id":"$42"}]}"#.utf8))
    }

    @Test func appendedAfterTheMergeAndAfterARestart() throws {
        let world = QueueWorld()
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(Self.remote) }
        try world.append(NewRequest(post("/m"), creates: [message]))
        world.run()
        try world.append(post("/1/\(message)"))
        world.run()
        try world.restart()
        try world.append(post("/2/\(message)"))
        world.run()
        #expect(world.targets == ["/m", "/1/%2442", "/2/%2442"])
    }

    @Test func aRetryIsResolvedAgain() throws {
        let world = QueueWorld()
        world.backend = { dispatch in
            if dispatch.resolved.target == "/m" { return .created(Self.remote) }
            return dispatch.request.attempts == 1 ? .status(503) : .status(200)
        }
        try world.append(NewRequest(post("/m"), creates: [message]))
        try world.append(APIRequestConfig(method: .delete, path: "/m/\(message)"), lane: "x")
        world.run(20)
        try world.restart()
        world.run()
        #expect(world.targets == ["/m", "/m/%2442", "/m/%2442"])
    }

    @Test func withoutACreatorItWaitsForTheHandlersWord() throws {
        let world = QueueWorld()
        let token = try world.append(post("/m/\(message)"))
        world.run()
        #expect(world.sent.isEmpty)
        #expect(world.machine.obstacles(token, now: world.now) == ["waits for the backend's name of message:L1"])
        try world.machine.merge(Self.remote, tenant: "", now: world.now)
        world.run()
        #expect(world.targets == ["/m/%2442"])
    }

    @Test func aTenantsNamesAreItsOwn() throws {
        let world = QueueWorld()
        world.machine.setSession("other", present: true)
        try world.machine.merge(Self.remote, tenant: "", now: world.now)
        try world.append(NewRequest(post("/m/\(message)"), tenant: "other"))
        world.run()
        #expect(world.sent.isEmpty)
    }

    @Test func whenTheCreationFailsItsDependantsAreDeadWithTheCause() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(422, latency: 100) }
        let create = try world.append(NewRequest(post("/m"), creates: [message]))
        let edit = try world.append(post("/m/\(message)"), lane: "x")
        world.run()
        #expect(world.targets == ["/m"])
        #expect(try world.state(edit) == .dead)
        #expect(try world.cause(edit)?.contains("status 422") == true)
        let late = #expect(throws: QueueError.self) { try world.append(post("/m/\(message)/late")) }
        #expect(late?.description.contains("message:L1 was never created") == true)
        try world.restart()
        #expect(throws: QueueError.self) { try world.append(post("/m/\(message)/late")) }
        // Sent again by an operator, it keeps its key and its place, and then the entity is there.
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(Self.remote) }
        let dead = try world.store.requests(states: [.dead], after: 0, limit: 10)
        #expect(dead.map(\.token) == [create, edit])
        for request in dead { try world.machine.revive(request, now: world.now) }
        world.run()
        #expect(world.targets == ["/m", "/m", "/m/%2442"])
        #expect(world.sent[0].dispatch.request.idempotencyKey == world.sent[1].dispatch.request.idempotencyKey)
    }

    @Test func cancellingTheCreationCancelsWhatHangsOnIt() throws {
        let world = QueueWorld(session: nil)
        let create = try world.append(NewRequest(post("/m"), creates: [message]))
        let edit = try world.append(post("/m/\(message)"), lane: "x")
        try world.machine.cancel(create, now: world.now)
        world.turn()
        #expect(try world.state(edit) == .dead)
    }

    @Test func conflictsAreTypedAndChangeNothing() throws {
        let world = QueueWorld()
        try world.machine.merge(Self.remote, tenant: "", now: world.now)
        let other = EntityIdentifier.both(type: "message", local: "L1", remote: "$43")
        #expect(throws: MergeConflict.differentRemotes("message", "$42", "$43")) {
            try world.machine.merge(other, tenant: "", now: world.now)
        }
        for remote in ["", ".", "..", "a\nb", String(repeating: "x", count: 1025)] {
            #expect(throws: MergeConflict.unusableRemote("message")) {
                try world.machine.merge(
                    .both(type: "message", local: "L9", remote: remote), tenant: "", now: world.now)
            }
        }
        world.backend = { _ in .created(other) }
        let token = try world.append(post("/m"))
        world.run()
        // The backend has done it: to send it again would do it twice.
        #expect(try world.state(token) == .done)
        #expect(try world.cause(token)?.contains("cannot have two remote identifiers") == true)
        world.backend = { _ in .status(200) }
        try world.append(post("/m/\(message)"))
        world.run()
        #expect(world.targets.last == "/m/%2442")
    }

    @Test func whatANameThatCannotBeHangsOnFails() throws {
        let world = QueueWorld()
        world.backend = { _ in .created(.both(type: "message", local: "L1", remote: ".."), latency: 100) }
        let create = try world.append(NewRequest(post("/m"), creates: [message]))
        let edit = try world.append(post("/m/\(message)"), lane: "x")
        world.run()
        #expect(try world.state(create) == .done && world.state(edit) == .dead)
        #expect(world.targets == ["/m"])
    }

    /// A queue as a gateway has it: nobody but the backend's answers names entities.
    private func worldWithoutHandlers() -> QueueWorld {
        QueueWorld { ($0.createsAllEntities, $0.deliversOutcomes) = (true, false) }
    }

    /// A backend may answer with 200 and an error in the body. What waits for the name must not hold up its lane.
    @Test func anAnswerWithoutTheNameFailsWhatWaitsForIt() throws {
        let world = worldWithoutHandlers()
        world.backend = { _ in .status(200, latency: 100) }
        let create = try world.append(NewRequest(post("/m"), lane: "1", creates: [message]))
        let edit = try world.append(post("/m/\(message)"), lane: "1")
        let next = try world.append(post("/next"), lane: "1")
        world.run()
        #expect(world.targets == ["/m", "/next"])
        #expect(try world.state(create) == .done && world.state(edit) == .dead && world.state(next) == .done)
        #expect(try world.cause(edit)?.contains("its answer has no identifier") == true)
        #expect(throws: QueueError.self) { try world.append(post("/m/\(message)/late")) }
        let dead = try #require(try world.store.request(edit))
        #expect(throws: QueueActError.self) { try world.machine.revive(dead, now: world.now) }
        try world.restart()
        #expect(throws: QueueError.self) { try world.append(post("/m/\(message)/late")) }
        #expect(world.machine.depth == 0)
    }

    /// With handlers the name may come from one of them, as in the document's example.
    @Test func aHandlerMayMergeWhatTheAnswerDoesNotName() throws {
        let world = QueueWorld { $0.createsAllEntities = true }
        try world.append(NewRequest(post("/m"), creates: [message]))
        try world.append(post("/m/\(message)"))
        world.run()
        #expect(world.targets == ["/m"])
        try world.machine.merge(Self.remote, tenant: "", now: world.now)
        world.run()
        #expect(world.targets == ["/m", "/m/%2442"])
    }

    /// An earlier version has left a request that waits for a name that nobody gives any more.
    @Test(arguments: [false, true]) func whatWaitsInVainFailsAtTheStart(isForgotten: Bool) throws {
        let world = worldWithoutHandlers()
        let store = world.store
        let edit = NewRequest(post("/m/\(message)"), lane: "1")
        let stored = QueuedRequest(
            id: 2, token: RequestToken(number: 2), edit, dependsOn: [], timestamp: world.now.wall)
        if !isForgotten {
            let create = QueuedRequest(
                id: 1, token: RequestToken(number: 1), NewRequest(post("/m"), lane: "1", creates: [message]),
                dependsOn: [], timestamp: world.now.wall)
            try store.commit([
                .insert(create, form: RequestForm.encode(create)),
                .finish(
                    id: 1, lease: nil, outcome: RequestOutcome(.success(status: 200)), keeping: .result,
                    at: world.now.wall),
            ])
        }
        try store.commit([.insert(stored, form: RequestForm.encode(stored))])
        try world.restart()
        #expect(try world.state(stored.token) == .dead)
        let next = try world.append(post("/next"), lane: "1")
        world.run()
        #expect(try world.state(next) == .done)
    }

    /// Without the one that it depends on, it would be sent alone.
    @Test func oneThatDependsOnADeadOneIsRevivedAfterIt() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(422) }
        let first = try world.append(post("/1"), lane: "1")
        let second = try world.offer(NewRequest(post("/2"), lane: "2", dependsOn: [first]))
        world.run()
        let dead = try world.store.requests(states: [.dead], after: 0, limit: 10)
        #expect(dead.map(\.token) == [first, second])
        #expect(throws: QueueActError.self) { try world.machine.revive(dead[1], now: world.now) }
        world.backend = { _ in .status(200) }
        for request in dead { try world.machine.revive(request, now: world.now) }
        world.run()
        #expect(world.targets == ["/1", "/1", "/2"])
    }

    // MARK: Requests that would wait for each other

    private static let other = EntityReference(type: "message", local: "L2")

    @Test func aCircleOfNamesIsRefused() throws {
        let world = QueueWorld()
        try world.append(NewRequest(post("/x/\(Self.other)"), lane: "1", creates: [message]))
        let error = #expect(throws: QueueError.self) {
            try world.append(NewRequest(post("/y/\(message)"), lane: "2", creates: [Self.other]))
        }
        #expect(error?.description.contains("would wait for each other") == true, "\(String(describing: error))")
        // Without the circle it may come.
        world.backend = { dispatch in
            .created(.both(type: "message", local: dispatch.request.creates[0].local, remote: dispatch.resolved.target))
        }
        try world.append(NewRequest(post("/y"), lane: "2", creates: [Self.other]))
        world.run()
        #expect(world.machine.depth == 0 && world.targets.count == 2)
    }

    @Test func whatAnEarlierRequestOfItsLaneWaitsForIsRefused() throws {
        let world = QueueWorld()
        try world.append(post("/x/\(message)"), lane: "1")
        try world.append(post("/between"), lane: "1")
        #expect(throws: QueueError.self) { try world.append(NewRequest(post("/m"), lane: "1", creates: [message])) }
        // Through a request of another lane that waits for one of this.
        let last = try world.append(post("/last"), lane: "1")
        #expect(throws: QueueError.self) {
            try world.append(NewRequest(post("/m"), lane: "2", creates: [message], dependsOn: [last]))
        }
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(Self.remote) }
        try world.append(NewRequest(post("/m"), lane: "2", creates: [message]))
        world.run()
        #expect(world.machine.depth == 0)
        // One that is no barrier passes those before it.
        var concurrent = NewRequest(post("/n"), lane: "3", creates: [Self.other])
        concurrent.config.queueingStrategy.synchronization = .concurrent
        var waiting = NewRequest(read("/x/\(Self.other)"), lane: "3")
        waiting.config.queueingStrategy.synchronization = .concurrent
        world.backend = {
            $0.request.creates.isEmpty
                ? .status(200) : .created(.both(type: "message", local: "L2", remote: "r2"))
        }
        try world.append(waiting)
        try world.append(concurrent)
        world.run()
        #expect(world.machine.depth == 0)
    }

    /// More requests wait for a name than the machine looks at: behind them, the creator of the name would never be sent.
    @Test func aCreatorBehindAllThatTheLookaheadSeesIsRefused() throws {
        func concurrent(_ config: APIRequestConfig, _ lane: String, creates: [EntityReference] = []) -> NewRequest {
            var new = NewRequest(config, lane: lane, creates: creates)
            new.config.queueingStrategy.synchronization = .concurrent
            return new
        }
        let world = QueueWorld { $0.limits.lookahead = 4 }
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(Self.remote) }
        for number in 0..<3 { try world.append(concurrent(read("/\(number)/\(message)"), "1")) }
        // There is one place left, also behind others that are sent.
        for number in 3..<9 { try world.append(concurrent(read("/\(number)"), "1")) }
        let creator = try world.append(concurrent(post("/m"), "1", creates: [message]))
        world.run()
        #expect(try world.machine.depth == 0 && world.state(creator) == .done)

        let other = QueueWorld { $0.limits.lookahead = 4 }
        other.backend = world.backend
        for number in 0..<4 { try other.append(concurrent(read("/\(number)/\(message)"), "1")) }
        let last = try other.append(concurrent(read("/last"), "1"))
        #expect(throws: QueueError.self) { try other.append(concurrent(post("/m"), "1", creates: [message])) }
        // Through another lane, whose last request waits behind those.
        #expect(throws: QueueError.self) {
            var new = concurrent(post("/m"), "2", creates: [message])
            new.dependsOn = [last]
            try other.append(new)
        }
        try other.append(concurrent(post("/m"), "2", creates: [message]))
        other.run()
        #expect(other.machine.depth == 0)
    }

    /// The first of ten thousand fails, and all others with it, with one short cause.
    @Test func aLongChainFailsWithoutDepth() throws {
        let world = QueueWorld { $0.limits.requestsPerTenant = 20_000 }
        world.backend = { _ in .status(400, latency: 1_000) }
        var last = try world.append(post("/0"), lane: "0")
        let first = last
        for number in 1..<10_000 {
            last = try world.offer(NewRequest(post("/\(number)"), lane: "\(number)", dependsOn: [last]))
        }
        world.run(5_000)
        #expect(world.machine.depth == 0 && world.machine.counts.dead == 10_000)
        let id = try #require(try world.store.request(first)?.id)
        #expect(
            try world.store.request(last)?.cause
                == "It depends on request \(id), which failed: The host answered with status 400.")
    }

    @Test func oneEntityHasOneCreator() throws {
        let world = QueueWorld(session: nil)
        try world.append(NewRequest(post("/m"), creates: [message]))
        let error = #expect(throws: QueueError.self) { try world.append(NewRequest(post("/n"), creates: [message])) }
        #expect(error?.description.contains("created by another request") == true)
    }

    /// The completion holds the name, and what is sent next reads it: ten thousand times.
    @Test func creationsAndWhatFollowsThem() throws {
        let world = QueueWorld()
        world.backend = { dispatch in
            guard let reference = dispatch.request.creates.first else { return .status(200, latency: 1) }
            return .created(.both(type: "m", local: reference.local, remote: "r\(reference.local)"), latency: 1)
        }
        for batch in 0..<20 {
            for number in 0..<500 {
                let reference = EntityReference(type: "m", local: "\(batch).\(number)")
                _ = try world.offer(NewRequest(post("/c"), lane: "\(number)", creates: [reference]))
                _ = try world.offer(NewRequest(post("/\(reference)"), lane: "\(number + 500 * (number % 2))"))
            }
            world.run(1_000)
        }
        #expect(world.machine.counts.done == 20_000 && world.machine.depth == 0)
        let followers = world.targets.filter { $0 != "/c" }
        #expect(followers.count == 10_000 && followers.allSatisfy { $0.hasPrefix("/r") })
    }

    /// What is old is forgotten for its age, and not for that of the process.
    @Test func namesAreNotYoungerAfterARestart() throws {
        let world = QueueWorld {
            $0.limits.retention = 1_000_000
            $0.limits.age = 1_000_000
        }
        world.backend = { $0.request.creates.isEmpty ? .status(200) : .created(Self.remote) }
        try world.append(NewRequest(post("/m"), creates: [message]))
        world.run(1_000)
        try world.restart(after: 600_000)
        #expect(world.machine.map.count == 1)
        world.run(500_000)
        #expect(world.machine.map.count == 0)
        world.turn()
        #expect(try world.store.load().learnt.count <= 1)
    }
}

/// Names that look alike.
@Suite struct ExactNameTests {
    /// One letter, and the same letter with an accent of its own.
    @Test func entitiesAreNamedByTheirBytes() throws {
        let (one, other) = ("caf\u{E9}", "cafe\u{301}")
        let (first, second) = (EntityReference(type: "m", local: one), EntityReference(type: "m", local: other))
        #expect(first != second && Set([first, second]).count == 2)
        #expect(EntityReference(type: one, local: "1") != EntityReference(type: other, local: "1"))
        #expect(EntityReference(type: "m", local: one) == first)
        #expect(throws: MergeConflict.self) {
            try EntityIdentifier.local(type: "m", one).merged(with: .both(type: "m", local: other, remote: "1"))
        }
        let world = QueueWorld()
        world.backend = {
            $0.request.creates.first.map {
                .created(.both(type: "m", local: $0.local, remote: "r\($0.local.utf8.count)"))
            }
                ?? .status(200)
        }
        for reference in [first, second] { try world.append(NewRequest(post("/m"), creates: [reference])) }
        world.run()
        try world.append(read("/m/\(first)"))
        try world.append(read("/m/\(second)"))
        world.run()
        #expect(world.targets.suffix(2) == ["/m/r5", "/m/r6"])
        try world.restart()
        try world.append(read("/m/\(first)"))
        try world.append(read("/m/\(second)"))
        world.run()
        #expect(world.targets.suffix(2) == ["/m/r5", "/m/r6"])
        #expect(throws: MergeConflict.self) {
            try world.machine.merge(.both(type: "m", local: one, remote: "other"), tenant: "", now: world.now)
        }
    }
}
