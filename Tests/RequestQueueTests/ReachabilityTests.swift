import TestKit
import Testing

@testable import RequestQueue

/// An application reports whether there is a network: nothing is tried without one, and no attempt is used up.
@Suite struct ReachabilityTests {
    @Test func withoutANetworkEverythingWaitsAndAgesOnly() throws {
        let world = QueueWorld { $0.limits.attempts = 2 }
        world.machine.setReachable(false, now: world.now)
        let write = try world.append(post("/a"))
        let read = try world.append(APIRequestConfig(path: "/b"), lane: "l")
        world.run(3_600_000)
        #expect(world.sent.isEmpty && world.machine.depth == 2)
        #expect(world.machine.obstacles(write, now: world.now) == ["there is no network"])
        world.machine.setReachable(true, now: world.now)
        world.run(100)
        #expect(Set(world.sent.map(\.target)) == ["/a", "/b"])
        #expect(world.machine.counts.done == 2 && world.machine.counts.retried == 0)
        #expect(try world.store.request(read)?.attempts == 1)
    }

    /// The network is lost while requests are in flight: whatever their policy, they have not been attempted.
    @Test(arguments: [NetworkFailure.notConnectedToInternet, .cannotFindHost, .cannotConnectToHost])
    func attemptsThatDidNotReachTheHostAreTakenBack(_ failure: NetworkFailure) throws {
        let world = QueueWorld { $0.limits.attempts = 1 }
        world.backend = { _ in .network(failure, latency: 50) }
        let tokens = [
            try world.append(post("/a")), try world.append(APIRequestConfig(path: "/b"), lane: "l"),
        ]
        world.machine.setReachable(false, now: world.now)
        world.run(600_000)
        #expect(world.sent.count == 2 && world.machine.depth == 2)
        for token in tokens {
            let request = try #require(world.machine.request(token))
            #expect(request.attempts == 0 && request.doubts == 0 && request.state == .pending)
        }
        world.backend = { _ in .status(200) }
        world.machine.setReachable(true, now: world.now)
        world.run(100)
        #expect(world.machine.counts.done == 2)
    }

    /// What one tenant's connection carries is sent when it is open again, and stops nothing of another tenant.
    @Test func anOpenConnectionEndsThePausesOfItsTenant() throws {
        let world = QueueWorld { $0.backoff = Backoff(base: 300_000, cap: 300_000) }
        world.backend = { _ in .network(.noOpenConnection) }
        var config = post("/a")
        (config.host, config.includeSessionKey) = ("socket", false)
        let tokens = try ["one", "two"].map { try world.append(NewRequest(config, tenant: $0)) }
        for _ in 0..<10 { world.run(400_000) }
        let attempts = world.sent.count
        #expect(try attempts >= 20 && tokens.allSatisfy { try world.state($0) == .pending })
        // No breaker keeps the other tenants from a host of which one connection is closed.
        let obstacles = tokens.flatMap { world.machine.obstacles($0, now: world.now) }
        #expect(!obstacles.contains("the host cannot be reached"))
        world.backend = { _ in .status(200) }
        world.machine.connected(host: "socket", tenant: "one", now: world.now)
        world.machine.connected(host: "unknown", tenant: "two", now: world.now)
        world.run(100)
        #expect(try world.state(tokens[0]) == .done)
    }

    /// A connection opens after an attempt found none, and before the queue is told of its failure.
    @Test func aConnectionThatOpensDuringTheAttemptCounts() throws {
        let world = QueueWorld { $0.backoff = Backoff(base: 300_000, cap: 300_000) }
        world.backend = { _ in .network(.noOpenConnection, latency: 50) }
        var config = post("/a")
        (config.host, config.includeSessionKey) = ("socket", false)
        let token = try world.append(NewRequest(config, tenant: "one"))
        world.machine.connected(host: "socket", tenant: "one", now: world.now)
        world.run(100)
        #expect(world.sent.count == 2)
        // Once for each connection.
        world.run(200)
        #expect(world.sent.count == 2)
        #expect(try world.state(token) == .pending)
    }

    /// A connection that broke may have carried the request; that counts as always.
    @Test func aBrokenConnectionStaysADoubt() throws {
        let world = QueueWorld()
        world.backend = { _ in .network(.networkConnectionLost, latency: 50) }
        let token = try world.append(post("/a"))
        world.machine.setReachable(false, now: world.now)
        world.run(600_000)
        #expect(world.machine.request(token)?.doubts == 1 && world.sent.count == 1)
        world.backend = { _ in .status(200) }
        world.machine.setReachable(true, now: world.now)
        world.run(600_000)
        #expect(world.machine.counts.done == 1 && world.machine.counts.doubtful == 1)
    }

    /// The pause of a host that could not be reached, and those of its requests, end with the network's return.
    @Test func theReturnOfTheNetworkEndsPauses() throws {
        let world = QueueWorld {
            $0.backoff = Backoff(base: 300_000, cap: 300_000)
            $0.breaker = .init(threshold: 1, pause: 600_000, longestPause: 600_000)
        }
        world.backend = { _ in .network(.cannotConnectToHost) }
        for lane in ["1", "2", "3"] { try world.append(post("/\(lane)"), lane: lane) }
        world.run(1_000)
        let before = world.sent.count
        world.machine.setReachable(false, now: world.now)
        world.run(1_000)
        #expect(world.sent.count == before)
        world.backend = { _ in .status(200) }
        world.machine.setReachable(true, now: world.now)
        world.run(1_000)
        #expect(world.machine.counts.done == 3)
    }

    /// A pause that the backend asked for does not end with the network.
    @Test func thePauseOfAnAnswerStays() throws {
        let world = QueueWorld()
        world.backend = { _ in .status(429, retryAfter: 50_000) }
        try world.append(post("/a"))
        world.run(1_000)
        world.machine.setReachable(false, now: world.now)
        world.machine.setReachable(true, now: world.now)
        world.run(40_000)
        #expect(world.sent.count == 1)
        world.run(20_000)
        #expect(world.sent.count > 1)
    }

    /// Without the report of an application, "no network" is one request's failure, and no sign of a host's.
    @Test func aRequestWithoutANetworkDoesNotCloseItsHost() throws {
        let world = QueueWorld { $0.breaker = .init(threshold: 1, pause: 600_000, longestPause: 600_000) }
        world.backend = { $0.resolved.target == "/a" ? .network(.notConnectedToInternet) : .status(200) }
        try world.append(post("/a"), lane: "1")
        world.run(100)
        try world.append(post("/b"), lane: "2")
        world.run(100)
        #expect(world.sent.map(\.target).contains("/b") && world.machine.counts.done == 1)
    }

    /// Reporting the same twice changes nothing.
    @Test func theSameReportTwiceChangesNothing() throws {
        let world = QueueWorld()
        world.backend = { _ in .network(.cannotConnectToHost) }
        try world.append(post("/a"))
        world.run(10)
        let count = world.sent.count
        for _ in 0..<100 { world.machine.setReachable(true, now: world.now) }
        world.turn()
        #expect(world.sent.count == count)
    }
}
