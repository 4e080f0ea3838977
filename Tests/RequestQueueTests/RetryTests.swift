import TestKit
import Testing

@testable import RequestQueue

/// Which failure is followed by another attempt, and when.
@Suite struct RetryTests {
    static let transient = Set([408, 423, 425, 429]).union(
        Set(500..<600).subtracting([501, 502, 503, 504, 505, 506, 510, 511]))

    @Test func everyStatusHasAMeaning() {
        for status in 100..<700 where !RetryTable.isSuccess(status) {
            let expected: FailureKind =
                status == 401
                ? .unauthorized
                : status == 504
                    ? .timedOut
                    : [502, 503].contains(status)
                        ? .unexpected : Self.transient.contains(status) ? .transient : .permanent
            #expect(RetryTable.kind(of: status) == expected, "\(status)")
        }
        #expect((100..<700).filter(RetryTable.isSuccess) == Array(200..<300) + [304])
    }

    @Test func everyFailureOfTheNetworkHasAMeaning() {
        let kinds: [NetworkFailure: FailureKind] = [
            .notConnectedToInternet: .unreachable, .cannotFindHost: .unreachable, .cannotConnectToHost: .unreachable,
            .secureConnectionFailed: .unreachable, .networkConnectionLost: .interrupted, .timedOut: .timedOut,
            .badServerResponse: .interrupted, .responseTooLarge: .permanent, .badURL: .permanent,
            .cancelled: .permanent, .noFreeConnection: .unreachable, .certificateRefused: .unreachable,
            .noOpenConnection: .unreachable,
        ]
        for failure in NetworkFailure.allCases { #expect(failure.kind == kinds[failure], "\(failure)") }
        #expect(Set(NetworkFailure.allCases.map(\.text)).count == NetworkFailure.allCases.count)
    }

    @Test func policiesNameWhatIsRepeated() {
        func policy(_ policies: QueueingStrategy.RetryPolicy...) -> QueueingStrategy {
            .init(synchronization: .barrier, retryPolicy: policies)
        }
        let standard = QueueingStrategy.standard(for: .post)
        for status in [408, 425, 429, 500, 502, 503, 504] { #expect(standard.retries(after: .status(status))) }
        for status in [300, 400, 404, 409, 422, 501] { #expect(!standard.retries(after: .status(status))) }
        for failure in NetworkFailure.allCases {
            let expected: Set<FailureKind> = [.unreachable, .interrupted, .timedOut]
            #expect(standard.retries(after: .network(failure)) == expected.contains(failure.kind), "\(failure)")
            #expect(!QueueingStrategy.standard(for: .get).retries(after: .network(failure)))
            // All but nothing means all, except what a person has ended and what can never be sent.
            #expect(
                policy(.onAllErrorCodesExcept([])).retries(after: .network(failure))
                    == (failure != .cancelled && failure != .badURL))
        }
        #expect(policy(.onCustomErrorCodes([404])).retries(after: .status(404)))
        #expect(!policy(.onCustomErrorCodes([404])).retries(after: .status(405)))
        #expect(policy(.onAllErrorCodesExcept([404])).retries(after: .status(405)))
        #expect(!policy(.onAllErrorCodesExcept([404])).retries(after: .status(404)))
        #expect(policy(.onRequestTimeout).retries(after: .status(504)))
        #expect(!policy(.onNetworkInterrupt).retries(after: .status(503)))
        for status in [403, 404, 407] {
            #expect(!standard.retries(after: .status(status)) && standard.retries(after: .unexpected(status)))
        }
    }

    @Test func whatMayHaveBeenDoneTwiceIsADoubt() {
        for status in 400..<600 {
            let failure = AttemptFailure.status(status)
            #expect(failure.isAmbiguous(for: .post) == [500, 502, 504].contains(status), "\(status)")
            #expect(failure.isAmbiguous(for: .put) == (status == 504), "\(status)")
        }
        #expect(AttemptFailure.network(.timedOut).isAmbiguous(for: .put))
        #expect(!AttemptFailure.network(.secureConnectionFailed).isAmbiguous(for: .post))
    }

    /// An hour without a network, a wrong certificate, the page of a proxy: nobody has judged the request.
    @Test(arguments: [
        AttemptFailure.network(.notConnectedToInternet), .network(.cannotFindHost), .network(.cannotConnectToHost),
        .network(.secureConnectionFailed), .network(.certificateRefused), .status(502), .status(503), .status(504),
        .network(.noOpenConnection), .unexpected(403), .unexpected(404), .unexpected(407),
    ])
    func whatIsNoVerdictNeverKills(_ failure: AttemptFailure) throws {
        let world = QueueWorld { $0.limits.attempts = 3 }
        world.backend = { _ in
            .init(reply: .failure(failure, retryAfter: nil, headers: [], body: []))
        }
        let tokens = try (0..<10).map { try world.append(post("/\($0)"), lane: "\($0)") }
        world.run(12 * 3_600_000)
        #expect(try tokens.allSatisfy { try world.state($0) == .pending })
        #expect(world.sent.count > 100 && world.machine.counts.dead == 0)
        #expect((world.machine.counts.unexpected > 0) == failure.isUnexpected)
        world.backend = { _ in .status(200) }
        world.run(600_000)
        #expect(try tokens.allSatisfy { try world.state($0) == .done })
    }

    /// With the default limits a backend that fails for days kills nothing, and a dead request stays until it is removed.
    @Test func deadLettersStayUntilTheyAreRemoved() throws {
        let world = QueueWorld()
        world.backend = { $0.resolved.target == "/bad" ? .status(400) : .status(500) }
        let bad = try world.append(post("/bad"), lane: "x")
        let patient = try world.append(post("/patient"))
        world.run(20 * 86_400_000)
        #expect(try world.state(patient) == .pending && world.state(bad) == .dead)
        #expect(world.machine.census().deadLetters == 1)
        world.run(40 * 86_400_000)
        #expect(try world.state(patient) == .dead && world.state(bad) == .dead)
        #expect(try world.cause(patient)?.hasPrefix("It could not be sent for 21 days.") == true)
        try world.restart()
        #expect(world.machine.census().deadLetters == 2)
        // Sent again together.
        world.backend = { _ in .status(200) }
        for request in try world.store.requests(states: [.dead], after: 0, limit: 9) {
            try world.machine.revive(request, now: world.now)
        }
        world.run(1_000)
        #expect(try world.state(patient) == .done && world.state(bad) == .done)
        #expect(world.machine.census().deadLetters == 0)
    }

    @Test func deadLettersCanBeRemovedAndAreBounded() throws {
        let world = QueueWorld { $0.limits.deadLetters = 3 }
        world.backend = { _ in .status(400) }
        let tokens = try (0..<5).map { try world.append(post("/\($0)"), lane: "\($0)") }
        world.run(200_000)
        #expect(try tokens.map { try world.state($0) } == [nil, nil, .dead, .dead, .dead])
        let row = try #require(try world.store.request(tokens[2]))
        try world.machine.purge(row.id)
        world.turn()
        #expect(try world.state(tokens[2]) == nil && world.machine.census().deadLetters == 2)
        #expect(throws: QueueActError.unknown) { try world.machine.purge(row.id) }
        // Its key is free again, and nothing of it is remembered.
        #expect(try world.append(NewRequest(post("/2"), idempotencyKey: tokens[2].description)) != tokens[2])
        world.backend = { _ in .status(200, latency: 1_000_000) }
        let waiting = try world.append(post("/waits"), lane: "w")
        let id = try #require(world.machine.request(waiting)?.id)
        #expect(throws: QueueActError.notDead) { try world.machine.purge(id) }
    }

    /// A request in the middle of its longest life still finds the name of what it is about.
    @Test func namesAreKeptForAsLongAsARequestMayWait() throws {
        let world = QueueWorld()
        world.backend = { $0.request.creates.isEmpty ? .status(500) : .created(MergeTests.remote) }
        try world.append(NewRequest(post("/m"), creates: [message]))
        world.run(1_000)
        let edit = try world.append(post("/m/\(message)"))
        world.run(15 * 86_400_000)
        try world.restart()
        world.backend = { _ in .status(200) }
        world.run(600_000)
        #expect(try world.state(edit) == .done && world.targets.last == "/m/%2442")
    }

    @Test func longestTimesDoNotOverflow() throws {
        let world = QueueWorld {
            $0.limits.age = .max
            $0.limits.retention = .max
            $0.backoff = Backoff(base: .max, cap: .max, retryAfterCap: .max)
        }
        world.backend = { _ in .status(503, retryAfter: .max) }
        let token = try world.append(post("/a"))
        world.run(1_000)
        try world.restart()
        #expect(try world.state(token) == .pending)
    }

    // MARK: Pauses

    @Test func pausesAreSpreadUnderABoundThatDoubles() {
        let backoff = Backoff(base: 1000, cap: 60_000)
        #expect((1...8).map { backoff.bound(attempts: $0) } == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000])
        #expect(backoff.bound(attempts: 4000) == 60_000)
        var random = SeededGenerator(seed: 3)
        let pauses = (0..<10_000).map { _ in backoff.pause(attempts: 3, retryAfter: nil, random: random.next()) }
        #expect(pauses.allSatisfy { (0...4000).contains($0) })
        // Full jitter: a quarter of them in each quarter, more or less.
        for quarter in 0..<4 {
            let count = pauses.filter { $0 >= Int64(quarter) * 1000 && $0 < Int64(quarter + 1) * 1000 }.count
            #expect((2200...2800).contains(count))
        }
        #expect(backoff.pause(attempts: 1, retryAfter: 30_000, random: 0) == 30_000)
        #expect(backoff.pause(attempts: 1, retryAfter: .max, random: 0) == 3_600_000)
        #expect(backoff.pause(attempts: 1, retryAfter: -5, random: .max) == 1000)
    }

    @Test func retryAfterAsSecondsAndAsDate() {
        let now: Int64 = 784_111_777_000  // Sun, 06 Nov 1994 08:49:37 GMT, RFC 9110 section 5.6.7
        #expect(RetryAfter.milliseconds("120", now: now) == 120_000)
        #expect(RetryAfter.milliseconds(" 0 ", now: now) == 0)
        for date in ["Sun, 06 Nov 1994 08:50:37 GMT", "Sunday, 06-Nov-94 08:50:37 GMT", "Sun Nov  6 08:50:37 1994"] {
            #expect(RetryAfter.milliseconds(date, now: now) == 60_000, "\(date)")
            #expect(RetryAfter.milliseconds(date, now: now + 100_000) == 0, "\(date)")
        }
        // A number too large is a long time; what it is believed up to is another matter.
        #expect(RetryAfter.milliseconds("12345678901", now: now) == 12_345_678_901_000)
        #expect(RetryAfter.milliseconds(String(repeating: "9", count: 40), now: now) == .max)
        #expect(HTTPDate.seconds("Thu, 01 Jan 1970 00:00:00 GMT") == 0)
        #expect(HTTPDate.seconds("Thu, 29 Feb 2024 23:59:60 GMT") == 1_709_251_200)
        for nonsense in [
            "", " ", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 40 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 25:49:37 GMT", "Sun, 06 Nov 1994 8:9 GMT", "1e3",
        ] {
            #expect(RetryAfter.milliseconds(nonsense, now: now) == nil, "\(nonsense)")
        }
    }

    @Test func aRequestIsSentAgainWithTheSameKeyAndBytes() throws {
        let world = QueueWorld()
        var left = 3
        world.backend = { _ in
            left -= 1
            return left >= 0 ? .status(503) : .status(201)
        }
        let token = try world.append(post("/a", body: .json(["text": "x"])))
        world.run()
        #expect(world.sent.count == 4)
        #expect(Set(world.sent.map(\.dispatch.resolved)).count == 1)
        #expect(Set(world.sent.map(\.dispatch.request.idempotencyKey)) == [token.description])
        #expect(Set(world.sent.map(\.dispatch.lease)).count == 4)
        #expect(world.results.map(\.outcome.result) == [.success(status: 201)])
        #expect(world.machine.counts.retried == 3)
    }

    @Test func retryAfterIsHonoured() throws {
        let world = QueueWorld()
        world.backend = { $0.request.attempts == 1 ? .status(429, retryAfter: 30_000) : .status(200) }
        try world.append(post("/a"))
        world.run()
        #expect(world.sent.count == 2 && world.sent[1].at - world.sent[0].at >= 30_000)
    }

    /// Each line: a fault that was seen in the queue whose interface this has.
    @Test func aPermanentErrorDelaysNobody() throws {
        let world = QueueWorld()
        world.backend = { $0.resolved.target == "/bad" ? .status(400) : .status(200) }
        try world.append(post("/bad"))
        try world.append(post("/good"))
        world.run()
        #expect(world.targets == ["/bad", "/good"])
        #expect(world.sent[1].at - world.sent[0].at == 10)
    }

    @Test func newWorkShortensNoPause() throws {
        let world = QueueWorld { $0.backoff = Backoff(base: 60_000, cap: 60_000) }
        world.backend = { _ in .status(503, retryAfter: 60_000) }
        try world.append(post("/first"))
        world.run(1_000)
        for number in 0..<20 {
            try world.append(post("/\(number)"))
            world.run(500)
        }
        #expect(world.targets == ["/first"])
    }

    @Test func attemptsAreBoundedAndDeathIsExplained() throws {
        let world = QueueWorld { $0.limits.attempts = 4 }
        world.backend = { _ in .network(.networkConnectionLost) }
        let token = try world.append(post("/a"))
        world.run(10_000_000)
        #expect(world.sent.count == 4)
        #expect(try world.state(token) == .dead)
        #expect(
            try world.cause(token)
                == "The connection broke before the answer came, after 4 attempts. The backend may have done it.")
        #expect(world.results.map(\.outcome.result) == [.failure(status: nil)])
    }

    @Test func ageIsBounded() throws {
        let world = QueueWorld {
            $0.limits.age = 60_000; $0.limits.attempts = 1_000
        }
        world.backend = { _ in .status(503) }
        let token = try world.append(post("/a"))
        let waiting = try world.append(post("/b"))
        world.run(120_000)
        #expect(try world.state(token) == .dead && world.state(waiting) == .dead)
        #expect(try world.cause(waiting) == "It could not be sent for 60 seconds.")
        #expect(world.machine.depth == 0)
    }

    /// A request that waits over restarts gets no younger by them.
    @Test func ageGoesOnOverRestarts() throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let token = try world.append(post("/a"))
        world.run(25_000)
        try world.restart(session: nil, after: 10_000)
        world.run(15_000)
        #expect(try world.state(token) == .pending)
        try world.restart(session: nil, after: 1_000)
        world.run(8_000)
        #expect(try world.state(token) == .pending)
        world.run(2_000)
        #expect(try world.state(token) == .dead)
    }

    @Test func whatIsOfOneAgeEndsInItsOrder() throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let tokens = try (0..<20).map { try world.append(post("/\($0)"), lane: "\($0 % 3)") }
        world.run(120_000)
        #expect(world.expired == tokens)
    }

    /// What comes to be given up first is not the first that was accepted.
    @Test func aRequestThatIsTriedAgainDelaysNoOthersEnd() throws {
        let world = QueueWorld(session: nil) { $0.limits.age = 60_000 }
        let revived = try world.append(post("/a"))
        world.run(50_000)
        let waiting = try world.append(post("/b"))
        world.run(20_000)
        #expect(try world.state(revived) == .dead && world.state(waiting) == .pending)
        try world.machine.revive(#require(try world.store.request(revived)), now: world.now)
        world.run(41_000)
        #expect(try world.state(waiting) == .dead && world.state(revived) == .pending)
        world.run(20_000)
        #expect(try world.state(revived) == .dead)
    }

    // MARK: The breaker

    @Test func aHostThatIsDownIsAskedByOneRequestAtATime() throws {
        let world = QueueWorld()
        world.backend = { _ in .network(.cannotConnectToHost) }
        for number in 0..<50 { try world.append(post("/\(number)"), lane: "\(number)") }
        world.run(60_000)
        // As many as fit into flight at first, then probes after 1, 2, 4, 8, 16, 32 seconds.
        let first = world.settings.limits.inFlightPerTenant
        let probes = world.sent.count - first
        #expect((4...7).contains(probes), "\(world.sent.count)")
        #expect(world.machine.requests.filter { $0.attempts == 0 }.count >= 50 - first - probes)
        world.backend = { _ in .status(200) }
        world.run(120_000)
        #expect(world.machine.depth == 0 && world.machine.counts.done == 50)
    }

    @Test func anotherHostIsNotHeldUp() throws {
        let world = QueueWorld()
        world.backend = { $0.resolved.host == nil ? .network(.timedOut, latency: 1000) : .status(200) }
        for number in 0..<20 { try world.append(post("/\(number)"), lane: "\(number)") }
        world.run(5_000)
        var other = post("/other")
        other.host = "http://other"
        let token = try world.append(NewRequest(other, lane: "x"))
        world.run(20)
        #expect(try world.state(token) == .done)
    }

    @Test func conversationsThatHangKeepNobodyFromTheHost() throws {
        let world = QueueWorld {
            ($0.limits.inFlightPerHost, $0.limits.inFlightPerTenant) = (16, 8)
        }
        for tenant in ["eve", "mallory", "bob", "carol"] { world.machine.setSession(tenant, present: true) }
        world.backend = {
            ["eve", "mallory"].contains($0.request.tenant)
                ? .network(.timedOut, latency: 60_000) : .status(200)
        }
        for tenant in ["eve", "mallory"] {
            for number in 0..<12 {
                try world.append(NewRequest(post("/\(number)"), tenant: tenant, lane: "\(number)"))
            }
        }
        world.run(1_000)
        #expect(world.machine.underWay == 12)
        // Before, while and after they time out.
        for round in 0..<200 {
            let token = try world.append(NewRequest(post("/x"), tenant: round % 2 == 0 ? "bob" : "carol", lane: "x"))
            world.run(1_000)
            #expect(try world.state(token) == .done, "\(round)")
        }
        #expect(world.machine.counts.done == 200)
    }

    @Test func aLaneAloneDoesNotMakeAHostUnavailable() throws {
        let world = QueueWorld {
            $0.backoff = Backoff(base: 1, cap: 10)
            $0.limits.attempts = .max
        }
        world.backend = { $0.request.lane == "bad" ? .status(502) : .status(200) }
        try world.append(post("/a"), lane: "bad")
        world.run(5_000)
        #expect(world.sent.count > 100)
        let token = try world.append(post("/b"), lane: "good")
        world.turn()
        #expect(world.targets.last == "/b")
        world.run(20)
        #expect(try world.state(token) == .done)
    }

    @Test func aProbeWithoutAnAnswerIsFollowedByAnother() {
        var breaker = CircuitBreaker(.init(threshold: 2, pause: 1_000, longestPause: 60_000))
        breaker.failed(now: 0)
        breaker.failed(now: 0)
        #expect(breaker.state == .open(until: 1_000) && !breaker.allows(now: 999))
        breaker.began(now: 1_000)
        #expect(breaker.state == .halfOpen(until: 2_000) && !breaker.allows(now: 1_999) && breaker.allows(now: 2_000))
        breaker.began(now: 2_000)
        breaker.failed(now: 2_500)
        #expect(breaker.state == .open(until: 4_500))
        breaker.began(now: 4_500)
        breaker.withdrew(now: 5_000)
        #expect(breaker.state == .open(until: 5_000))
        breaker.succeeded()
        #expect(breaker.state == .closed)
        // No bound of an application's overflows.
        var patient = CircuitBreaker(.init(threshold: 1, pause: .max / 2, longestPause: .max))
        for now in [0, 1, Int64.max - 1] {
            patient.failed(now: now)
            patient.began(now: .max)
        }
        #expect(patient.allows(now: .max))
    }

    @Test func waitingForAConnectionIsNoAttempt() throws {
        let world = QueueWorld { $0.limits.attempts = 3 }
        var left = 20
        world.backend = { _ in
            left -= 1
            return left >= 0 ? .network(.noFreeConnection) : .status(200)
        }
        let token = try world.append(read("/a"))
        world.run(60_000)
        #expect(try world.state(token) == .done)
        #expect(world.sent.count == 21 && world.sent.allSatisfy { $0.dispatch.request.attempts == 1 })
        #expect(world.results.map(\.request.doubts) == [0])
    }

    @Test func aHostIsGivenTheTimeThatItAsksFor() throws {
        let world = QueueWorld(session: "alice")
        world.machine.setSession("bob", present: true)
        world.backend = {
            $0.resolved.target == "/limited" ? .status(429, retryAfter: 30_000) : .status(200)
        }
        try world.append(NewRequest(post("/limited"), tenant: "alice", lane: "1"))
        world.run(100)
        let begin = world.now.uptime
        // It has asked alice, in whatever conversation, and nobody else.
        try world.append(NewRequest(post("/a"), tenant: "alice", lane: "2"))
        try world.append(NewRequest(post("/b"), tenant: "bob", lane: "3"))
        world.run(20_000)
        #expect(world.targets == ["/limited", "/b"])
        world.run(20_000)
        let sent = try #require(world.sent.first { $0.target == "/a" })
        #expect((29_000...31_000).contains(sent.at - begin))
        // Others of hers wait no longer than a minute, however long one of them has to.
        world.backend = { $0.resolved.target == "/late" ? .status(503, retryAfter: .max) : .status(200) }
        try world.append(NewRequest(post("/late"), tenant: "alice", lane: "4"))
        world.run(100)
        let token = try world.append(NewRequest(post("/c"), tenant: "alice", lane: "5"))
        world.run(61_000)
        #expect(try world.state(token) == .done)
    }

    @Test func anAttemptEndsWithoutAnAnswer() throws {
        let world = QueueWorld { $0.attemptTimeout = 60_000 }
        world.backend = { $0.request.attempts == 1 ? .status(200, latency: .max / 2) : .status(200) }
        var quick = post("/quick")
        quick.timeoutInterval = 1_000
        let token = try world.append(post("/a"), lane: "a")
        try world.append(quick, lane: "b")
        world.run(30_000)
        #expect(world.targets == ["/a", "/quick", "/quick"])
        #expect(world.withdrawn == [world.sent[1].dispatch.lease])
        world.run(40_000)
        #expect(try world.state(token) == .done)
        #expect(world.withdrawn.count == 2 && world.machine.counts.doubtful == 2)
        #expect(world.sent[3].at - world.sent[0].at >= 60_000)
        // An answer that comes after all changes nothing.
        let first = world.sent[0].dispatch
        world.machine.reply(
            first.id, lease: first.lease, .success(status: 200, headers: [], body: [], identifiers: []),
            now: world.now, random: 0)
        #expect(world.machine.counts.late == 1)
    }

    @Test func noTimeOfAnApplicationOverflows() throws {
        let world = QueueWorld {
            $0.limits.age = .max
            $0.backoff = Backoff(base: .max, cap: .max, retryAfterCap: .max)
            $0.attemptTimeout = .max
        }
        world.backend = { $0.request.lane == "a" ? .status(503, retryAfter: .max) : .network(.timedOut) }
        let token = try world.append(post("/a"), lane: "a")
        try world.append(post("/b"), lane: "b")
        world.run(1_000)
        #expect(world.machine.depth == 2 && !world.machine.obstacles(token, now: world.now).isEmpty)
        try world.restart()
        world.run(1_000)
        #expect(world.machine.depth == 2)
    }
}
