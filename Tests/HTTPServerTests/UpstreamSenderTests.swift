import HTTPCodec
import HTTPServer
import JSONCodec
import JSONGateway
import NIOCore
import NIOPosix
import NIOSupport
import PeerKit
import Protection
import Reports
import Synchronization
import TestKit
import TestThreads
import Testing

/// Requests of the queue, over the connections that the requests of clients use.
@Suite struct UpstreamSenderTests {
    /// A sender and a listener for clients on the same event loop.
    private final class Rig: Sendable {
        let port: Int
        let pools: UpstreamPools
        let meters = HTTPMeters()
        private let environment: JSONEnvironment
        private let sender: UpstreamSender
        private let server: HTTPServer
        private let group: MultiThreadedEventLoopGroup

        init(to backend: Int, _ adjust: (inout HTTPServices) -> Void = { _ in }) async throws {
            let account = AccountSource(credentials: [], target: "/whoami", name: try JSONPath("$.name"))
            environment = JSONEnvironment(
                mapping: Mapping(name: "test", account: account),
                policies: PolicyTable(PolicySnapshot(everyone: .off)),
                writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))),
                answerLimit: 64 << 20)
            let downstream = DownstreamOptions(
                listeners: [ListenerOptions(host: "127.0.0.1", port: 0)], connectionLimit: 200)
            let upstream = UpstreamOptions(
                host: "127.0.0.1", port: backend, serverName: "localhost", connectTimeout: .seconds(10))
            var services = HTTPServices(
                environment: environment, budget: ByteBudget(limit: 512 << 20),
                clock: { Timestamp(monotonic: Int64(NIODeadline.now().uptimeNanoseconds), wall: 0) },
                downstream: { downstream }, upstream: { upstream })
            services.meters = meters
            adjust(&services)
            group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            pools = UpstreamPools(services: services, group: group)
            sender = try #require(pools.sender(on: group.next()))
            server = HTTPServer(services: services, pools: pools) { 1 << 32 }
            port = try await server.start().first?.port ?? 0
        }

        func send(
            _ head: RequestHead, _ body: String = "", timeout: TimeAmount = .minutes(3), limit: Int = 1000
        ) async throws -> WholeAnswer {
            try await sender.send(head, ByteBuffer(string: body), timeout: timeout, limit: limit)
        }

        /// The body of the answer to a GET.
        func get(_ target: String) async throws -> String {
            String(buffer: try await send(RequestHead("GET", target)).body)
        }

        /// Failures that were reported, to the log and in the counters.
        var reportedFailures: Int { environment.tally[.upstreamFailures] }

        func stop() async {
            await server.stop()
            try? await group.shutdownGracefully()
        }
    }

    /// Records requests, and answers each with the next text; after the last one with that again.
    private final class Backend: Sendable {
        private let requests = Mutex<[String]>([])
        private let answers: [String]

        init(_ answers: String...) { self.answers = answers }

        func server() throws -> RawServer {
            try RawServer { [self] socket, _ in
                while let (head, body) = try? socket.message() {
                    let number = requests.withLock { requests in
                        requests.append(head + body)
                        return requests.count - 1
                    }
                    try socket.send(answers[min(number, answers.count - 1)])
                }
            }
        }

        var received: [String] { requests.withLock { $0 } }
        /// The targets of the requests.
        var targets: [String] { received.map(UpstreamSenderTests.target) }
    }

    private static let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    private static let empty = "HTTP/1.1 204 No Content\r\n\r\n"

    private static func target(_ request: String) -> String {
        let words = request.split(separator: " ", maxSplits: 2)
        return words.count > 1 ? String(words[1]) : ""
    }

    // MARK: Requests

    /// The connection is closed with nothing more on it, and the next request goes over another one.
    ///
    /// - Parameter rest: what the backend read until the end of the first connection; nil before its end.
    private func expectANewConnection(
        _ rig: Rig, _ server: RawServer, rest: @escaping @Sendable () -> String?,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        try await eventuallyAsync("the connection is closed") { rest() != nil }
        let next = try await rig.get("/next")
        #expect(next == "ok", sourceLocation: sourceLocation)
        #expect(server.connections == 2, sourceLocation: sourceLocation)
        #expect(rest() == "", sourceLocation: sourceLocation)
    }

    @Test(
        arguments: [
            ("GET", "", nil), ("HEAD", "", nil), ("GET", "ab", "2"), ("POST", "hello", "5"), ("POST", "", "0"),
            ("PUT", "ab", "2"), ("PUT", "", "0"), ("DELETE", "", "0"),
        ] as [(String, String, String?)])
    func aRequestArrivesAsWritten(_ method: String, _ body: String, _ length: String?) async throws {
        let backend = Backend(Self.empty)
        let server = try backend.server()
        let rig = try await Rig(to: server.port)
        let answer = try await rig.send(RequestHead(method, "/a%2Fb?c=%20d", headers: ["X-b": "1", "x-A": "2"]), body)
        #expect(answer.head.status == 204)
        let host = "Host: localhost:\(server.port)\r\n"
        let framing = length.map { "Content-Length: \($0)\r\n" } ?? ""
        let request = "\(method) /a%2Fb?c=%20d HTTP/1.1\r\n\(host)X-b: 1\r\nx-A: 2\r\n\(framing)\r\n\(body)"
        #expect(backend.received == [request])
        await rig.stop()
    }

    @Test func aHostOfTheRequestStaysAndAWrongLengthIsReplaced() async throws {
        let backend = Backend(Self.empty)
        let server = try backend.server()
        let rig = try await Rig(to: server.port)
        let fields: HeaderFields = ["host": "tenant", "content-length": "99", "A": "b"]
        _ = try await rig.send(RequestHead("POST", "/", headers: fields), "ab")
        #expect(backend.received == ["POST / HTTP/1.1\r\nhost: tenant\r\ncontent-length: 2\r\nA: b\r\n\r\nab"])
        await rig.stop()
    }

    @Test func aLargeBodyArrivesWhole() async throws {
        let backend = Backend(Self.ok)
        let server = try backend.server()
        let rig = try await Rig(to: server.port)
        let body = String(repeating: "a", count: 3_000_000)
        _ = try await rig.send(RequestHead("POST", "/"), body)
        let isWhole = backend.received.first?.hasSuffix("\r\n\r\n" + body) == true
        #expect(isWhole)
        await rig.stop()
    }

    // MARK: Answers

    @Test(
        arguments: [
            "Content-Length: 5\r\n\r\nabcde",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            // Until the end of the connection.
            "\r\nabcde",
        ], [false, true])
    func anAnswerIsCollected(_ framing: String, isSplit: Bool) async throws {
        let server = try RawServer { socket, _ in
            _ = try socket.message()
            let answer = "HTTP/1.1 201 Made\r\nX-y: Z\r\n\(framing)"
            guard isSplit else { return try socket.send(answer) }
            for byte in answer.utf8 { try socket.send([byte]) }
        }
        let rig = try await Rig(to: server.port)
        let answer = try await rig.send(RequestHead("POST", "/"), "ab")
        #expect(answer.head.status == 201 && answer.head.reason == "Made")
        #expect(answer.head.headers.first("x-y") == "Z")
        #expect(String(buffer: answer.body) == "abcde")
        #expect(!answer.isCut)
        await rig.stop()
    }

    @Test func interimAnswersAreSkipped() async throws {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
        let server = try Backend(interim + Self.ok, Self.ok).server()
        let rig = try await Rig(to: server.port)
        let answer = try await rig.send(RequestHead("POST", "/"), "ab")
        #expect(answer.head.status == 200 && answer.head.headers.first("link") == nil)
        #expect(String(buffer: answer.body) == "ok")
        let next = try await rig.get("/")
        #expect(next == "ok")
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func theAnswerToAHeadRequestHasNoBody() async throws {
        let server = try Backend("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Self.ok).server()
        let rig = try await Rig(to: server.port)
        let answer = try await rig.send(RequestHead("HEAD", "/"))
        #expect(answer.head.headers.first("content-length") == "5")
        #expect(answer.body.readableBytes == 0 && !answer.isCut)
        let next = try await rig.get("/")
        #expect(next == "ok")
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func aChangeOfTheProtocolIsAnError() async throws {
        let server = try RawServer { socket, number in
            _ = try socket.message()
            guard number == 0 else { return try socket.send(Self.ok) }
            try socket.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            _ = socket.rest()
        }
        let rig = try await Rig(to: server.port)
        let failure = await #expect(throws: UpstreamSender.Failure.self) { _ = try await rig.get("/") }
        #expect(failure?.isSent == true)
        let next = try await rig.get("/")
        #expect(next == "ok")
        #expect(server.connections == 2)
        await rig.stop()
    }

    @Test func anAnswerThatIsNotHTTPIsAnError() async throws {
        let server = try Backend("nonsense\r\n\r\n").server()
        let rig = try await Rig(to: server.port)
        let failure = await #expect(throws: UpstreamSender.Failure.self) { _ = try await rig.get("/") }
        #expect(failure?.text.hasPrefix("unanswered: its answer is refused: ") == true)
        await rig.stop()
    }

    // MARK: The limit

    @Test(arguments: [
        "Content-Length: 10\r\n\r\n0123456789",
        "Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7\r\n3456789\r\n0\r\n\r\n",
        // Until the end of the connection, which does not come.
        "\r\n0123456789",
    ]) func aLongAnswerIsCutAndItsConnectionIsNotUsedAgain(_ framing: String) async throws {
        let rest = Mutex<String?>(nil)
        let server = try RawServer { socket, number in
            _ = try socket.message()
            guard number == 0 else { return try socket.send(Self.ok) }
            try socket.send("HTTP/1.1 200 OK\r\n\(framing)")
            let text = socket.restText
            rest.withLock { $0 = text }
        }
        let rig = try await Rig(to: server.port)
        let answer = try await rig.send(RequestHead("GET", "/long"), limit: 4)
        #expect(answer.head.status == 200)
        #expect(String(buffer: answer.body) == "0123")
        #expect(answer.isCut)
        try await expectANewConnection(rig, server) { rest.withLock { $0 } }
        await rig.stop()
    }

    @Test func anAnswerAsLongAsTheLimitIsWhole() async throws {
        let server = try Backend(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n0123",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r\n3\r\n123\r\n0\r\n\r\n"
        ).server()
        let rig = try await Rig(to: server.port)
        for _ in 0..<2 {
            let answer = try await rig.send(RequestHead("GET", "/"), limit: 4)
            #expect(String(buffer: answer.body) == "0123")
            #expect(!answer.isCut)
        }
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func anEndlessAnswerIsCut() async throws {
        let server = try RawServer { socket, _ in
            _ = try socket.message()
            try socket.send("HTTP/1.1 200 OK\r\n\r\n")
            let piece = [UInt8](repeating: 0x61, count: 65536)
            // Throws when the connection is closed.
            while true { try socket.send(piece) }
        }
        let rig = try await Rig(to: server.port)
        let answer = try await rig.send(RequestHead("GET", "/"), limit: 100_000)
        #expect(answer.body.readableBytes == 100_000 && answer.isCut)
        try await eventuallyAsync("the connection is closed") { server.complaints.count == 1 }
        await rig.stop()
    }

    // MARK: Time

    @Test(arguments: ["", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"])
    func anAnswerThatIsNotCompleteInTimeIsAnError(_ part: String) async throws {
        let rest = Mutex<String?>(nil)
        let server = try RawServer { socket, number in
            _ = try socket.message()
            try socket.send(Self.ok)
            guard number == 0 else { return }
            _ = try socket.message()
            try socket.send(part)
            let text = socket.restText
            rest.withLock { $0 = text }
        }
        let rig = try await Rig(to: server.port)
        // The second request uses an open connection, so it is sent before its time is over.
        let first = try await rig.get("/first")
        #expect(first == "ok")
        let failure = await #expect(throws: UpstreamSender.Failure.self) {
            _ = try await rig.send(RequestHead("GET", "/slow"), timeout: .milliseconds(50))
        }
        #expect(failure?.text == "unanswered: \(UpstreamError.timeout)")
        #expect(rig.reportedFailures == 1)
        try await expectANewConnection(rig, server) { rest.withLock { $0 } }
        await rig.stop()
    }

    /// A backend with one connection, which answers when it is allowed to.
    @Test func theTimeOfARequestIncludesTheWaitForAConnection() async throws {
        let targets = Mutex<[String]>([])
        let mayAnswer = Mutex(false)
        let server = try RawServer { socket, _ in
            while let (head, _) = try? socket.message() {
                targets.withLock { $0.append(Self.target(head)) }
                try eventually("the backend may answer") { mayAnswer.withLock { $0 } }
                try socket.send(Self.ok)
            }
        }
        let rig = try await Rig(to: server.port) { $0.limits.upstreamConnections = 1 }
        async let first = rig.get("/1")
        try await eventuallyAsync("the backend has the first request") { targets.withLock { $0.count == 1 } }
        let failure = await #expect(throws: UpstreamSender.Failure.self) {
            _ = try await rig.send(RequestHead("GET", "/2"), timeout: .milliseconds(20))
        }
        #expect(failure?.text == "unsent: \(UpstreamError.noFreeConnection)")
        #expect(rig.reportedFailures == 1)
        mayAnswer.withLock { $0 = true }
        let answers = [try await first, try await rig.get("/3")]
        #expect(answers == ["ok", "ok"])
        #expect(targets.withLock { $0 } == ["/1", "/3"])
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func requestsWaitIfThereAreTooManyConnections() async throws {
        let backend = Backend(Self.ok)
        let server = try backend.server()
        let rig = try await Rig(to: server.port) { $0.limits.upstreamConnections = 2 }
        try await withThrowingTaskGroup(of: String.self) { group in
            for number in 0..<20 { group.addTask { try await rig.get("/\(number)") } }
            for try await answer in group { #expect(answer == "ok") }
        }
        #expect(Set(backend.targets).count == 20)
        #expect(server.connections <= 2)
        await rig.stop()
    }

    // MARK: Failures of connections

    @Test func aRefusedConnectionIsAnError() async throws {
        // Reserved, so that no other test listens there meanwhile.
        let port = try FreePort()
        defer { withExtendedLifetime(port) {} }
        let rig = try await Rig(to: Int(port.number))
        for method in ["GET", "POST"] {
            let failure = await #expect(throws: UpstreamSender.Failure.self) {
                _ = try await rig.send(RequestHead(method, "/"))
            }
            #expect(failure?.isSent == false)
            #expect(failure?.cause is NIOConnectionError)
        }
        #expect(rig.meters.upstreamConnections == 0)
        #expect(rig.reportedFailures == 2)
        await rig.stop()
    }

    @Test(arguments: [
        "", "HTTP/1.1 ", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
    ]) func aConnectionThatClosesBeforeTheEndOfTheAnswerIsAnError(_ part: String) async throws {
        let server = try RawServer { socket, _ in
            _ = try socket.message()
            try socket.send(part)
        }
        let rig = try await Rig(to: server.port)
        for method in ["PUT", "POST"] {
            let failure = await #expect(throws: UpstreamSender.Failure.self) {
                _ = try await rig.send(RequestHead(method, "/"), "ab")
            }
            #expect(failure?.text == "unanswered: \(UpstreamError.closed)")
        }
        // A failure of a new connection is no reason to send a request again.
        #expect(server.connections == 2)
        #expect(rig.reportedFailures == 2)
        await rig.stop()
    }

    @Test(arguments: ["GET", "PUT", "DELETE"], [false, true])
    func anIdempotentRequestIsSentAgainOverANewConnection(_ method: String, resets: Bool) async throws {
        let received = Mutex<[String]>([])
        let server = try RawServer { socket, _ in
            while let (head, body) = try? socket.message() {
                let count = received.withLock { received in
                    received.append(head + body)
                    return received.count
                }
                // The backend closes the connection just as it is used again.
                guard count != 2 else { return resets ? socket.reset() : () }
                try socket.send(Self.ok)
            }
        }
        let rig = try await Rig(to: server.port)
        let first = try await rig.get("/first")
        #expect(first == "ok")
        let answer = try await rig.send(RequestHead(method, "/second"), method == "PUT" ? "ab" : "")
        #expect(String(buffer: answer.body) == "ok")
        let requests = received.withLock { $0 }
        #expect(requests.map(Self.target) == ["/first", "/second", "/second"])
        #expect(requests.dropFirst().allSatisfy { $0 == requests.last })
        #expect(server.connections == 2)
        #expect(rig.reportedFailures == 0)
        await rig.stop()
    }

    @Test(arguments: [false, true]) func itIsSentAgainOnlyOnce(resets: Bool) async throws {
        let targets = Mutex<[String]>([])
        let server = try RawServer { socket, _ in
            while let (head, _) = try? socket.message() {
                let count = targets.withLock { targets in
                    targets.append(Self.target(head))
                    return targets.count
                }
                guard count == 1 else { return resets ? socket.reset() : () }
                try socket.send(Self.ok)
            }
        }
        let rig = try await Rig(to: server.port)
        let first = try await rig.get("/first")
        #expect(first == "ok")
        let failure = await #expect(throws: UpstreamSender.Failure.self) {
            _ = try await rig.send(RequestHead("PUT", "/second"), "ab")
        }
        #expect(failure?.isSent == true)
        #expect(targets.withLock { $0 } == ["/first", "/second", "/second"])
        #expect(server.connections == 2)
        await rig.stop()
    }

    /// The first attempt has reached the backend, even if no second one could.
    @Test func aRequestThatCannotBeSentAgainMayHaveBeenDone() async throws {
        let listener = Mutex<RawServer?>(nil)
        let server = try RawServer { socket, _ in
            _ = try socket.message()
            try socket.send(Self.ok)
            _ = try socket.message()
            // New connections are refused, and this one is closed.
            listener.withLock { $0 }?.stop()
        }
        listener.withLock { $0 = server }
        let rig = try await Rig(to: server.port)
        let first = try await rig.get("/first")
        #expect(first == "ok")
        let failure = await #expect(throws: UpstreamSender.Failure.self) {
            _ = try await rig.send(RequestHead("PUT", "/second"), "ab")
        }
        #expect(failure?.isSent == true)
        listener.withLock { $0 = nil }
        await rig.stop()
    }

    @Test(arguments: [("POST", ""), ("PATCH", ""), ("PUT", "HTTP/1.1 ")])
    func aRequestThatMayHaveBeenDoneIsNotSentAgain(_ method: String, _ part: String) async throws {
        let server = try RawServer { socket, _ in
            _ = try socket.message()
            try socket.send(Self.ok)
            _ = try socket.message()
            try socket.send(part)
        }
        let rig = try await Rig(to: server.port)
        let first = try await rig.get("/first")
        #expect(first == "ok")
        let failure = await #expect(throws: UpstreamSender.Failure.self) {
            _ = try await rig.send(RequestHead(method, "/second"), "ab")
        }
        #expect(failure?.text == "unanswered: \(UpstreamError.closed)")
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func aConnectionThatTheBackendHasClosedIsNotUsed() async throws {
        let server = try RawServer { socket, _ in
            _ = try socket.message()
            try socket.send(Self.ok)
        }
        let rig = try await Rig(to: server.port)
        for number in 1...3 {
            let answer = try await rig.send(RequestHead("POST", "/"), "ab")
            #expect(String(buffer: answer.body) == "ok")
            try await eventuallyAsync("the connection is closed") { rig.meters.upstreamConnections == 0 }
            #expect(server.connections == number)
        }
        await rig.stop()
    }

    // MARK: Cancellation

    @Test(arguments: ["", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"])
    func cancellationClosesTheConnection(_ part: String) async throws {
        let hasRequest = Mutex(false)
        let rest = Mutex<String?>(nil)
        let server = try RawServer { socket, number in
            _ = try socket.message()
            guard number == 0 else { return try socket.send(Self.ok) }
            try socket.send(part)
            hasRequest.withLock { $0 = true }
            let text = socket.restText
            rest.withLock { $0 = text }
        }
        let rig = try await Rig(to: server.port)
        let task = Task { try await rig.get("/") }
        try await eventuallyAsync("the backend has the request") { hasRequest.withLock { $0 } }
        task.cancel()
        await #expect(throws: CancellationError.self) { _ = try await task.value }
        try await expectANewConnection(rig, server) { rest.withLock { $0 } }
        await rig.stop()
    }

    @Test func aTaskThatIsCancelledBeforeSendsNothing() async throws {
        let backend = Backend(Self.ok)
        let server = try backend.server()
        let rig = try await Rig(to: server.port)
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await rig.get("/cancelled")
        }
        await #expect(throws: CancellationError.self) { _ = try await task.value }
        let next = try await rig.get("/next")
        #expect(next == "ok")
        #expect(backend.targets == ["/next"])
        await rig.stop()
    }

    // MARK: The pool

    @Test func requestsOneAfterTheOtherShareAConnection() async throws {
        let backend = Backend(Self.ok, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
        let server = try backend.server()
        let rig = try await Rig(to: server.port)
        for method in ["GET", "POST", "PUT"] {
            let answer = try await rig.send(RequestHead(method, "/\(method)"), method == "GET" ? "" : "ab")
            #expect(String(buffer: answer.body) == "ok")
        }
        #expect(backend.targets == ["/GET", "/POST", "/PUT"])
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func clientsAndTheQueueShareConnections() async throws {
        let backend = Backend(Self.ok)
        let server = try backend.server()
        let rig = try await Rig(to: server.port)
        try await blocking {
            let client = try RawSocket(port: rig.port)
            for _ in 0..<2 {
                try client.send("POST /client HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
                #expect(try client.message().body == "ok")
                let answer = try await rig.get("/queue")
                #expect(answer == "ok")
            }
        }
        #expect(backend.targets == ["/client", "/queue", "/client", "/queue"])
        #expect(server.connections == 1)
        await rig.stop()
    }

    @Test func anEventLoopOfAnotherGroupHasNoSender() async throws {
        let server = try Backend(Self.ok).server()
        let rig = try await Rig(to: server.port)
        let other = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        #expect(rig.pools.sender(on: other.next()) == nil)
        try await other.shutdownGracefully()
        await rig.stop()
    }
}

extension UpstreamSender.Failure {
    /// Whether the backend may have received the request.
    fileprivate var isSent: Bool {
        switch self {
        case .unsent: false
        case .unanswered: true
        }
    }

    fileprivate var cause: any Error {
        switch self {
        case .unsent(let cause), .unanswered(let cause): cause
        }
    }

    fileprivate var text: String { "\(isSent ? "unanswered" : "unsent"): \(cause)" }
}
