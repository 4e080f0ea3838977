import RequestQueue
import StorePort
import Testing

@Suite struct RequestTests {
    private let request = Request(
        id: 1, account: "a", peer: "b", target: "B/ü", verb: "PRIVMSG", bodies: [[1, 2], [], [3]], acceptedAt: 5)

    @Test func bodiesRoundTrip() {
        let encoded: [UInt8] = [0, 2, 1, 2, 0, 0, 0, 1, 3]
        #expect(Request.decodeBodies(encoded) == request.bodies)
        for length in 1..<encoded.count where length != 4 && length != 6 {
            #expect(Request.decodeBodies(Array(encoded.prefix(length))) == nil, "\(length)")
        }
    }

    /// Until stored form 4 a request was stored as an HTTP POST; one that waits over an upgrade is read.
    @Test func theFormBeforeIsRead() throws {
        let config = Request.config(target: "B/ü", verb: "PRIVMSG", encodedBodies: [0, 2, 1, 2, 0, 0, 0, 1, 3])
        let queued = QueuedRequest(
            id: 1, token: Request.token(1), tenant: "a", lane: "b", payload: .http(config), creates: [], dependsOn: [],
            identifiers: nil, idempotencyKey: "", coalescingKey: nil, timestamp: 5)
        #expect(Request(queued) == request)
    }

    /// What goes into the queue comes out of it, whoever has it meanwhile.
    @Test(arguments: ["B/ü", "", "#room"]) func itStandsInTheQueue(_ target: String) throws {
        var request = request
        request.target = target
        var settings = QueueMachine.Settings()
        settings.isCarried = true
        var machine = QueueMachine(settings, lease: 7)
        let now = QueueTime(wall: 5, uptime: 5)
        _ = try machine.append(request.queued, token: Request.token(1), id: 1, now: now)
        let store = InMemoryQueueStore()
        try store.commit(machine.turn(now: now).changes)
        let underWay = try #require(try store.request(Request.token(1)))
        #expect(underWay.state == .inFlight && underWay.lane == "b")
        request.attempts = 1
        #expect(Request(underWay, remoteID: "r")?.remoteID == "r")
        #expect(Request(underWay) == request)
        // Its connection has ended before it was begun.
        machine.giveBack(Request.token(1), isBegun: false, cause: "", now: now)
        try store.commit(machine.turn(now: now).changes)
        request.attempts = 0
        let waiting = try #require(try store.request(Request.token(1)))
        #expect(waiting.state == .pending)
        #expect(Request(waiting) == request)
    }
}
