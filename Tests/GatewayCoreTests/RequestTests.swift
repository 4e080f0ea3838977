import RequestQueue
import StorePort
import Testing

@Suite struct RequestTests {
    private let request = Request(
        id: 1, account: "a", peer: "b", target: "B/ü", verb: "PRIVMSG", bodies: [[1, 2], [], [3]], acceptedAt: 5)

    @Test func bodiesRoundTrip() {
        #expect(Request.decodeBodies(request.encodedBodies) == request.bodies)
        for length in 1..<request.encodedBodies.count where length != 4 && length != 6 {
            #expect(Request.decodeBodies(Array(request.encodedBodies.prefix(length))) == nil, "\(length)")
        }
    }

    /// What goes into the queue comes out of it, whoever has it meanwhile.
    @Test(arguments: ["B/ü", "", "#room"]) func itStandsInTheQueue(_ target: String) throws {
        var request = request
        request.target = target
        var machine = QueueMachine(.init(), lease: 7)
        let now = QueueTime(wall: 5, uptime: 5)
        #expect(machine.reserveID(atLeast: 1) == 1)
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
