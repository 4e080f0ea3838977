import Foundation
import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import Protection
import Synchronization
import TestKit
import TestThreads
import Testing

/// The memory for all collected bodies: a clear refusal without room, and every way out gives it back.
@Suite struct ByteBudgetTests {
    private static let limit = 300_000

    private static func bytes(_ count: Int) -> [UInt8] { [UInt8](repeating: 0x61, count: count) }

    private static func refusals(_ budget: ByteBudget, _ use: ByteBudget.Use) -> Int? {
        budget.refusals.first { $0.use == use }?.count
    }

    /// Collects requests, and answers with what came of it.
    private static let collecting: @Sendable (ExchangeEvent) -> [ExchangeAction] = { event in
        switch event {
        case .request: [.collectRequest(limit: 1 << 20)]
        case .requestBody(let body): [.respond(ResponseHead(200), ByteBuffer(string: "\(body.readableBytes)"))]
        default: []
        }
    }

    /// Forwards requests, and collects their answers.
    private static let reading: @Sendable (ExchangeEvent) -> [ExchangeAction] = { event in
        switch event {
        case .request(let head): [.passRequest(head)]
        case .response: [.collectResponse(limit: 16 << 20)]
        case .responseBody(let body): [.respond(ResponseHead(200), body)]
        default: []
        }
    }

    private static func head(_ length: Int) -> String {
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(length)\r\n\r\n"
    }

    // MARK: The budget itself

    @Test func aReservationGrowsUpToTheLimitAndIsGivenBackOnce() {
        let budget = ByteBudget(limit: 100)
        let (first, second) = (budget.reservation(), budget.reservation())
        #expect(first.resize(to: 60, for: .request) && second.resize(to: 40, for: .answer))
        #expect(!first.resize(to: 61, for: .request) && first.count == 60 && budget.used == 100)
        #expect(first.resize(to: 10, for: .request) && second.resize(to: 90, for: .answer))
        // Bytes that are there already count beyond the limit, and nothing is added to them.
        first.set(20)
        #expect(budget.used == 110 && !second.resize(to: 91, for: .lookup))
        first.release()
        first.release()
        #expect(budget.used == 90)
        #expect(Self.refusals(budget, .request) == 1 && Self.refusals(budget, .lookup) == 1)
        #expect(Self.refusals(budget, .answer) == 0)
        budget.setLimit(1000)
        #expect(first.resize(to: 910, for: .request) && !first.resize(to: 911, for: .request))
    }

    /// One account gets half, those that want all of it the same, and who comes later has room.
    @Test func anAccountLeavesAsMuchAsItHolds() {
        let budget = ByteBudget(limit: 120)
        let (alice, bob, carol) = (AccountID.services("alice"), AccountID.services("bob"), AccountID.services("carol"))
        var rooms: [ByteReservation] = []
        /// Takes bytes one after the other until there are no more.
        func fill(_ account: AccountID) -> Int {
            let room = budget.reservation(of: account)
            rooms.append(room)
            while room.resize(to: room.count + 1, for: .request) {}
            return room.count
        }
        #expect(!budget.reservation(of: alice).resize(to: 61, for: .answer))
        let taken = [fill(alice), fill(alice), fill(bob), fill(bob), fill(carol)]
        #expect(taken == [60, 0, 30, 0, 15])
        // What alice gives back, others may have.
        rooms[0].release()
        let more = [fill(bob), fill(carol)]
        #expect(more == [22, 19] && budget.used == 86)
        // What is there already counts for its account, and what no account causes has the rest.
        let read = budget.reservation(of: alice)
        read.set(20)
        #expect(!budget.reservation(of: alice).resize(to: 1, for: .webSocket))
        let lookup = budget.reservation()
        #expect(!lookup.resize(to: 15, for: .lookup) && lookup.resize(to: 14, for: .lookup))
        rooms = []
        read.release()
        lookup.release()
        #expect(budget.used == 0 && budget.reservation(of: bob).resize(to: 60, for: .answer))
    }

    @Test func aForgottenReservationIsGivenBack() {
        let budget = ByteBudget(limit: 100)
        do {
            let room = budget.reservation()
            #expect(room.resize(to: 100, for: .request) && budget.used == 100)
        }
        #expect(budget.used == 0)
    }

    @Test func manyThreadsNeverTakeMoreThanTheLimit() async {
        let budget = ByteBudget(limit: 1000)
        await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    let room = budget.reservation()
                    var isWithin = true
                    for step in 0..<2000 {
                        _ = room.resize(to: step * 37 % 400, for: .request)
                        isWithin = isWithin && budget.used <= 1000
                    }
                    return isWithin
                }
            }
            for await isWithin in group { #expect(isWithin) }
        }
        #expect(budget.used == 0)
    }

    // MARK: Requests

    @Test func aRequestWithoutRoomIsRefusedAndThereIsRoomAgainAfterTheClientsHangUp() async throws {
        let backend = try RawServer { _, _ in }
        let budget = ByteBudget(limit: Self.limit)
        let proxy = try await Proxy(to: backend.port, script: Self.collecting) { $0.budget = budget }
        try await blocking {
            let (first, second, third) = (try proxy.client(), try proxy.client(), try proxy.client())
            for (client, count) in [(first, 150_000), (second, 100_000)] {
                try client.send(Self.head(200_000))
                try client.send(Self.bytes(count))
            }
            try eventually("both have their place") { budget.used == 250_000 }
            try third.send(Self.head(100_000))
            try? third.send(Self.bytes(100_000))
            let (head, body) = try third.message()
            #expect(head.hasPrefix("HTTP/1.1 503 Service Unavailable\r\n") && head.contains("Retry-After: 5\r\n"))
            #expect(body.contains("PAWL_NO_ROOM") && body.contains("Try again in a few seconds"))
            #expect(Self.refusals(budget, .request) == 1)
            try eventually("the refused one holds nothing") { budget.used == 250_000 }
            // With an end, and with a reset.
            first.close()
            try eventually("the first has given back") { budget.used == 100_000 }
            let fourth = try proxy.client()
            try fourth.send(Self.head(100_000))
            try fourth.send(Self.bytes(100_000))
            #expect(try fourth.message().body == "100000")
            second.reset()
            try eventually("all is given back") { budget.used == 0 }
            // The whole of it can be used again.
            try fourth.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in 0..<3 {
                try fourth.send("\(String(90_000, radix: 16))\r\n")
                try fourth.send(Self.bytes(90_000))
                try fourth.send("\r\n")
            }
            try fourth.send("0\r\n\r\n")
            #expect(try fourth.message().body == "270000")
            try eventually("it is over") { budget.used == 0 }
        }
        await proxy.stop()
    }

    @Test func aRequestThatStopsHalfwayGivesBackInTime() async throws {
        let backend = try RawServer { _, _ in }
        let budget = ByteBudget(limit: Self.limit)
        let proxy = try await Proxy(to: backend.port, script: Self.collecting) {
            $0.budget = budget
            $0.limits.stall = .milliseconds(300)
        }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.head(200_000))
            try client.send(Self.bytes(100_000))
            #expect(try client.message().head.hasPrefix("HTTP/1.1 408 "))
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    @Test func streamsOfHTTP2GiveBackWhenTheyAreReset() async throws {
        let rig = try TLSRig()
        let backend = try RawServer { _, _ in }
        let budget = ByteBudget(limit: Self.limit)
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { services in
            services.budget = budget
            services.makeExchange = { _ in ScriptedExchange(script: Self.collecting) }
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(proxy.port, trust)
            for stream in [1, 3] {
                client.request(stream, FrameClient.head("POST", "/"), isEnd: false)
                try client.body(stream, Self.bytes(140_000))
            }
            try eventually("both have their place") { budget.used == 280_000 }
            client.request(5, FrameClient.head("POST", "/"), isEnd: false)
            try client.body(5, Self.bytes(30_000))
            let refused = try client.answer(5)
            #expect(refused.status == "503" && refused.text.contains("PAWL_NO_ROOM"))
            client.send(.reset, 0, 1, FrameClient.number(8))
            try eventually("one has given back") { budget.used == 140_000 }
            client.close()
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    // MARK: Answers

    enum Ending: CaseIterable { case clientResets, clientEnds, backendCloses, backendStalls }

    @Test(arguments: Ending.allCases) func anAnswerThatIsNotCollectedWholeGivesBack(_ ending: Ending) async throws {
        let budget = ByteBudget(limit: Self.limit)
        let hasEnded = Mutex(false)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            try socket.send(Self.bytes(150_000))
            switch ending {
            case .backendCloses: try eventually("they are collected") { budget.used == 150_000 }
            // It may have closed one direction only, so the gateway goes on until the backend ends.
            case .clientEnds: try eventually("the client ends") { hasEnded.withLock { $0 } }
            case .clientResets, .backendStalls: _ = socket.rest()
            }
        }
        let proxy = try await Proxy(to: backend.port, script: Self.reading) {
            $0.budget = budget
            if ending == .backendStalls { $0.limits.answer = .milliseconds(300) }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            if ending == .clientResets || ending == .clientEnds {
                try eventually("they are collected") { budget.used == 150_000 }
                if ending == .clientResets { client.reset() } else { client.close() }
                hasEnded.withLock { $0 = true }
            } else {
                #expect(
                    try client.message().head.hasPrefix(ending == .backendStalls ? "HTTP/1.1 504 " : "HTTP/1.1 502 "))
            }
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    @Test func anAnswerWithoutRoomIsRefusedOrPasses() async throws {
        let budget = ByteBudget(limit: Self.limit)
        let backend = try RawServer { socket, _ in
            while (try? socket.message()) != nil {
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                try socket.send(Self.bytes(1_000_000))
            }
        }
        let proxy = try await Proxy(to: backend.port) { event in
            switch event {
            case .request(let head): return [.passRequest(head)]
            case .response: return [.collectResponse(limit: 16 << 20)]
            // As if nothing was sealed for the reader.
            case .noRoom: return [.passResponse(ResponseHead(200))]
            default: return []
            }
        } _: {
            $0.budget = budget
        }
        let refusing = try await Proxy(to: backend.port, script: Self.reading) { $0.budget = budget }
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.message().body.utf8.count == 1_000_000)
                try eventually("the passed part is given back") { budget.used == 0 }
            }
            let other = try refusing.client()
            for _ in 0..<3 {
                try other.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                let (head, body) = try other.message()
                #expect(head.hasPrefix("HTTP/1.1 503 ") && body.contains("PAWL_NO_ROOM"))
                #expect(budget.used == 0)
            }
        }
        #expect(Self.refusals(budget, .answer) == 6)
        await proxy.stop()
        await refusing.stop()
    }

    /// What a client does not read is still in memory.
    @Test(arguments: [false, true]) func anAnswerCountsUntilItsClientHasIt(_ isRead: Bool) async throws {
        let size = 12 << 20
        let budget = ByteBudget(limit: 64 << 20)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            try socket.send(Self.bytes(size))
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port, script: Self.reading) { $0.budget = budget }
        try await blocking {
            let client = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            _ = try client.head()
            #expect(budget.used == size)
            if isRead { _ = try client.read(size) } else { client.close() }
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    /// An answer of the gateway's own counts too, and is refused without room.
    @Test func aLongAnswerOfTheGatewayNeedsRoom() async throws {
        let size = 12 << 20
        let budget = ByteBudget(limit: 2 * size)
        let backend = try RawServer { _, _ in }
        let proxy = try await Proxy(to: backend.port) { _ in
            [.respond(ResponseHead(200), ByteBuffer(repeating: 0x61, count: size))]
        } _: {
            $0.budget = budget
        }
        try await blocking {
            let clients = try (0..<2).map { _ in try RawSocket(port: proxy.port, receiveBuffer: 65536) }
            for (index, client) in clients.enumerated() {
                try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                _ = try client.head()
                #expect(budget.used == (index + 1) * size)
            }
            let other = try proxy.client()
            for (path, code) in [("/", "PAWL_NO_ROOM"), ("/_pawl/v1/messages", "pawl_no_room")] {
                try other.send("GET \(path) HTTP/1.1\r\nHost: x\r\n\r\n")
                let (head, body) = try other.message()
                #expect(head.hasPrefix("HTTP/1.1 503 ") && body.contains("\"\(code)\""))
            }
            #expect(Self.refusals(budget, .answer) == 2)
            _ = try clients[0].read(size)
            try eventually("one has given back") { budget.used == size }
            try other.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try other.message().body.utf8.count == size)
            clients[1].close()
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    @Test func anAnswerOverHTTP2CountsUntilItsClientHasIt() async throws {
        let size = 4 << 20
        let budget = ByteBudget(limit: 64 << 20)
        let rig = try TLSRig()
        let backend = try RawServer { socket, _ in
            while (try? socket.head()) != nil {
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
                try socket.send(Self.bytes(size))
            }
        }
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { services in
            services.budget = budget
            services.makeExchange = { _ in ScriptedExchange(script: Self.reading) }
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(proxy.port, trust, credits: false)
            for stream in [1, 3, 5] { client.get(stream) }
            try eventually("all are there") { budget.used == 3 * size }
            // The others may use up the window that they begin with.
            for (stream, count) in [(0, size + 131_070), (1, size)] {
                client.send(.windowUpdate, 0, stream, FrameClient.number(UInt32(count)))
            }
            _ = try client.answer(1)
            try eventually("one is read") { budget.used == 2 * size }
            client.send(.reset, 0, 3, FrameClient.number(8))
            try eventually("one is reset") { budget.used == size }
            client.close()
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }

    @Test func aLookupWithoutRoomHasNoAnswer() async throws {
        let budget = ByteBudget(limit: Self.limit)
        let backend = try RawServer { socket, _ in
            while let (head, _) = try? socket.message() {
                let size = head.contains("/long") ? 400_000 : 200_000
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
                try socket.send(Self.bytes(size))
            }
        }
        let proxy = try await Proxy(to: backend.port) { event in
            switch event {
            case .request(let head): return [.look(Lookup(.members, RequestHead("GET", head.target), limit: 1 << 20))]
            case .found(_, _, let body):
                return [.respond(ResponseHead(200), ByteBuffer(string: "\(body.readableBytes)"))]
            case .notFound: return [.respond(ResponseHead(404), ByteBuffer(string: "none"))]
            default: return []
            }
        } _: {
            $0.budget = budget
        }
        try await blocking {
            let client = try proxy.client()
            for (path, body) in [("/long", "none"), ("/short", "200000"), ("/long", "none")] {
                try client.send("GET \(path) HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.message().body == body)
                try eventually("all is given back") { budget.used == 0 }
            }
        }
        #expect(Self.refusals(budget, .lookup) == 2)
        await proxy.stop()
    }

    // MARK: WebSockets

    private static func relay(
        to backend: RawServer, _ adjust: (inout HTTPServices) -> Void
    ) async throws -> Proxy {
        let socketMachine = try Proxy.socketMachine()
        return try await Proxy(to: backend.port) { event in
            switch event {
            case .request(let head): [.passRequest(head)]
            case .response(let head): [.upgrade(head, socketMachine)]
            default: []
            }
        } _: {
            adjust(&$0)
        }
    }

    private static func upgraded(_ proxy: Proxy) throws -> RawSocket {
        let client = try proxy.client()
        try client.send(ProxyWebSocketTests.request)
        #expect(try client.head() == ProxyWebSocketTests.seen)
        return client
    }

    /// The beginning of a message of a megabyte.
    private static func unfinished(_ count: Int) -> [UInt8] {
        [0x82, 0xFF, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0] + bytes(count)
    }

    /// Echoes messages after their mask is taken off, and keeps the connection until the gateway ends it.
    private static func echo() throws -> RawServer {
        try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(ProxyWebSocketTests.answer)
            while let frame = try? ProxyWebSocketTests.read(socket), frame.opcode != 0x88 {
                try socket.send(ProxyWebSocketTests.frame(2, frame.payload, mask: nil))
            }
        }
    }

    @Test func aWebSocketWithoutRoomIsClosedWith1013() async throws {
        let backend = try Self.echo()
        let budget = ByteBudget(limit: 2 * Self.limit)
        let proxy = try await Self.relay(to: backend) { $0.budget = budget }
        try await blocking {
            let (first, second, third) =
                (try Self.upgraded(proxy), try Self.upgraded(proxy), try Self.upgraded(proxy))
            try first.send(Self.unfinished(150_000))
            // Fragments count like the part of a frame.
            try second.send(ProxyWebSocketTests.frame(2, Self.bytes(100_000), isFinal: false))
            try eventually("both have their place") { budget.used == 250_014 }
            try? third.send(Self.unfinished(100_000))
            let close = try ProxyWebSocketTests.read(third)
            #expect(close.opcode == 0x88 && close.payload.starts(with: [0x03, 0xF5]))
            #expect(String(decoding: close.payload.dropFirst(2), as: UTF8.self) == ExchangeRefusal.noRoomWords)
            #expect(Self.refusals(budget, .webSocket) == 1)
            try eventually("the refused one holds nothing") { budget.used == 250_014 }
            // The others go on.
            try second.send(ProxyWebSocketTests.frame(0, Self.bytes(10)))
            #expect(try ProxyWebSocketTests.read(second).payload.count == 100_010)
            first.close()
            try eventually("all is given back") { budget.used == 0 }
            let fourth = try Self.upgraded(proxy)
            try fourth.send(ProxyWebSocketTests.frame(2, Self.bytes(250_000)))
            #expect(try ProxyWebSocketTests.read(fourth).payload.count == 250_000)
            try fourth.send(Self.unfinished(100_000))
            try eventually("it has its place") { budget.used > 0 }
            fourth.reset()
            try eventually("all is given back again") { budget.used == 0 }
        }
        await proxy.stop()
    }

    @Test func anUnfinishedMessageEndsItsWebSocketInTime() async throws {
        let backend = try RawServer { socket, number in
            _ = try socket.head()
            try socket.send(ProxyWebSocketTests.answer)
            if number == 1 { try socket.send(ProxyWebSocketTests.frame(2, Self.bytes(100), isFinal: false, mask: nil)) }
            _ = socket.rest()
        }
        let budget = ByteBudget(limit: Self.limit)
        let proxy = try await Self.relay(to: backend) {
            $0.budget = budget
            $0.limits.stall = .milliseconds(300)
        }
        try await blocking {
            // Number 0: the client's message. Number 1: the backend's.
            for number in 0..<2 {
                let client = try Self.upgraded(proxy)
                if number == 0 { try client.send(Self.unfinished(100_000)) }
                let close = try ProxyWebSocketTests.read(client)
                #expect(close.opcode == 0x88 && close.payload.starts(with: [0x03, 0xF0]))
                try eventually("all is given back") { budget.used == 0 }
            }
        }
        await proxy.stop()
    }

    /// The relay has passed on what has come of it, and holds nothing.
    @Test(arguments: [true, false]) func anUnfinishedMessageThatPassesDoesSoToo(_ isClients: Bool) async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(ProxyWebSocketTests.answer)
            if !isClients { try socket.send([0x82, 0x7F, 0, 0, 0, 0, 0, 0x10, 0, 0, 0x61]) }
            _ = socket.rest()
        }
        let proxy = try await Self.relay(to: backend) {
            $0.limits.message = 1000
            $0.limits.stall = .milliseconds(300)
        }
        try await blocking {
            let client = try Self.upgraded(proxy)
            if isClients { try client.send(Self.unfinished(1)) }
            var frame = try ProxyWebSocketTests.read(client)
            if !isClients {
                #expect(frame.opcode == 0x02 && frame.payload == Self.bytes(1))
                frame = try ProxyWebSocketTests.read(client)
            }
            #expect(frame.opcode == 0x88 && frame.payload.starts(with: [0x03, 0xF0]))
        }
        await proxy.stop()
    }

    @Test func aBackendThatEndsInAMessageGivesBack() async throws {
        let budget = ByteBudget(limit: Self.limit)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(ProxyWebSocketTests.answer)
            try socket.send(ProxyWebSocketTests.frame(2, Self.bytes(100_000), isFinal: false, mask: nil))
            try eventually("it has its place") { budget.used == 100_000 }
        }
        let proxy = try await Self.relay(to: backend) { $0.budget = budget }
        try await blocking {
            let client = try Self.upgraded(proxy)
            _ = client.rest()
            try eventually("all is given back") { budget.used == 0 }
        }
        await proxy.stop()
    }
}
