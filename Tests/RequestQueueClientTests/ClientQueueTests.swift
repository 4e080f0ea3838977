import AsyncHTTPClient
import Crypto
import Foundation
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import Synchronization
import TestKit
import Testing

/// The queue as an application uses it, against a real HTTP server.
@Suite struct ClientQueueTests {
    /// A server, the network, a store, and what is made of them.
    final class Stage: Sendable {
        let backend: ChatBackend
        let http: HTTPClient
        let store = InMemoryQueueStore()

        init(_ answer: @escaping @Sendable (ChatBackend.Received) -> ChatBackend.Answer) async throws {
            backend = try await ChatBackend(answer)
            http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        }

        func queue(
            session: SessionKey? = SessionKey(bearer: "t0ken-of-anna"), _ handlers: any APIClientQueueResponseHandler...
        ) throws -> APIClientQueue {
            var settings = QueueMachine.Settings()
            settings.backoff = Backoff(base: 10, cap: 50)
            settings.breaker = .init(threshold: 1000, pause: 10, longestPause: 10)
            let client = ChatClient(networkClient: HTTPNetworkClient(http), host: backend.url + "/api")
            return try APIClientQueue(
                client: client, store: store, settings: settings, sessions: session.map { ["": $0] } ?? [:],
                handlers: handlers)
        }

        func stop() async throws {
            try await http.shutdown()
            try await backend.stop()
        }
    }

    private let draft = EntityReference(type: "message", local: "draft")

    private func post(_ path: APIRequestPath, _ body: RequestBody? = nil) -> APIRequestConfig {
        APIRequestConfig(method: .post, path: path, body: body)
    }

    @Test func aMessageItsEditAndItsDeletion() async throws {
        let stage = try await Stage { $0.uri == "/api/messages" ? .status(201, body: #"{"id":"m/7"}"#) : .status(204) }
        let listener = Listener()
        let queue = try stage.queue(listener)
        let create = try await queue.append(
            NewRequest(post("/messages", .json(["text": "hello"])), creates: [draft]))
        let edit = try await queue.append(
            APIRequestConfig(method: .patch, path: "/messages/\(draft)", body: .json(["edit_of": .reference(draft)])))
        let delete = try await queue.append(APIRequestConfig(method: .delete, path: "/messages/\(draft)"))
        try await eventuallyAsync("three outcomes") { listener.all.count == 3 }
        #expect(listener.all.map(\.token) == [create, edit, delete])
        #expect(listener.all.map(\.result) == ["success 201", "success 204", "success 204"])
        let received = stage.backend.received
        #expect(received.map(\.method) == ["POST", "PATCH", "DELETE"])
        #expect(received.map(\.uri) == ["/api/messages", "/api/messages/m%2F7", "/api/messages/m%2F7"])
        #expect(received.map(\.body) == [#"{"text":"hello"}"#, #"{"edit_of":"m/7"}"#, ""])
        #expect(
            received.allSatisfy { $0.header("Authorization") == "Bearer t0ken-of-anna" && $0.header("X-App") == "chat" }
        )
        #expect(received.map { $0.header("Idempotency-Key") } == [create, edit, delete].map(\.description))
        await queue.close()
        try await stage.stop()
    }

    @Test func aResponseThatIsLostIsAskedForAgainWithTheSameKey() async throws {
        let seen = Mutex<Set<String>>([])
        let stage = try await Stage { received in
            let isNew = seen.withLock { $0.insert(received.header("Idempotency-Key") ?? "").inserted }
            return isNew ? .hangUp : .status(200)
        }
        let listener = Listener()
        let queue = try stage.queue(listener)
        for number in 0..<20 { try await queue.append(post("/\(number)")) }
        try await eventuallyAsync("twenty outcomes") { listener.all.count == 20 }
        let received = stage.backend.received
        #expect(received.count == 40 && seen.withLock { $0.count } == 20)
        #expect(received.map(\.uri) == (0..<20).flatMap { ["/api/\($0)", "/api/\($0)"] })
        #expect(try queue.requests(states: [.done]).allSatisfy { $0.doubts == 1 && $0.attempts == 2 })
        await queue.close()
        try await stage.stop()
    }

    @Test func appendingReturnsWhileTheBackendIsSilent() async throws {
        let stage = try await Stage { _ in .silence }
        let queue = try stage.queue()
        for number in 0..<100 { try await queue.append(post("/\(number)")) }
        #expect(try queue.requests(states: [.pending, .inFlight], limit: 1000).count == 100)
        await queue.close(deadline: .zero)
        try await stage.stop()
    }

    @Test func whatTheLastProcessLeftGoesOnByItself() async throws {
        let isUp = Mutex(false)
        let stage = try await Stage { _ in isUp.withLock { $0 } ? .status(200) : .silence }
        let first = try stage.queue()
        var tokens: [RequestToken] = []
        for number in 0..<10 { tokens.append(try await first.append(post("/\(number)"))) }
        try await eventuallyAsync("the first is under way") { !stage.backend.received.isEmpty }
        await first.close(deadline: .zero)
        isUp.withLock { $0 = true }
        let listener = Listener()
        let second = try stage.queue(listener)
        try await eventuallyAsync("ten outcomes") { listener.all.count == 10 }
        #expect(listener.all.map(\.token) == tokens)
        // It was stopped in an orderly way: no crash, and yet the backend may have done it.
        let done = try second.requests(states: [.done]).first
        #expect(done?.crashes == 0 && done?.doubts == 1 && done?.attempts == 2)
        await second.close()
        try await stage.stop()
    }

    @Test func anOutcomeBetweenTheAnswerAndTheHandlerIsKept() async throws {
        let stage = try await Stage { _ in .status(200) }
        let never = Listener { try? await Task.sleep(for: .seconds(3600)) }
        let first = try stage.queue(never)
        let token = try await first.append(post("/a"))
        try await eventuallyAsync("the answer is stored") { try first.requests(states: [.done]).count == 1 }
        // This process never comes to the end of its handler.
        let listener = Listener()
        let second = try stage.queue(listener)
        try await eventuallyAsync("the outcome") { listener.all.map(\.token) == [token] }
        await second.close()
        let third = Listener()
        let last = try stage.queue(third)
        try await last.append(post("/b"))
        try await eventuallyAsync("the next outcome") { !third.all.isEmpty }
        #expect(third.all.allSatisfy { $0.token != token })
        #expect(stage.backend.received.map(\.uri) == ["/api/a", "/api/b"])
        await last.close()
        try await stage.stop()
    }

    @Test func theSessionKeyIsNowhereInTheStoreAndIsAskedForAgain() async throws {
        let stage = try await Stage { $0.header("Authorization") == "Bearer new" ? .status(200) : .status(401) }
        let queue = try stage.queue()
        let token = try await queue.append(post("/a", .json(["text": "x"])))
        try await eventuallyAsync("the old key is refused") {
            await queue.obstacles(token) == ["waits for the next login"]
        }
        #expect(stage.backend.received.count == 1)
        let stored = try stage.store.load()
        #expect(!"\(stored)".contains("t0ken"))
        queue.setSession(SessionKey(bearer: "new"))
        try await eventuallyAsync("it is done") { try queue.requests(states: [.done]).count == 1 }
        #expect(stage.backend.received.count == 2)
        #expect(
            !"\(SessionKey(bearer: "new"))".contains("new")
                && !String(reflecting: SessionKey(bearer: "new")).contains("new"))
        await queue.close()
        // After a restart it waits, visibly, for the login.
        let again = try stage.queue(session: nil)
        let waiting = try await again.append(post("/b"))
        try await eventuallyAsync("it waits") { await again.obstacles(waiting) == ["waits for the next login"] }
        await again.close()
        try await stage.stop()
    }

    @Test func aRefusedSessionKeyIsReportedToAllThatWaitForIt() async throws {
        let stage = try await Stage { $0.header("Authorization") == "Bearer new" ? .status(200) : .status(401) }
        let events = Mutex<[QueueEvent]>([])
        let queue = try APIClientQueue(
            client: ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url),
            store: stage.store,
            held: ["b"]
        ) { event in events.withLock { $0.append(event) } }
        queue.setSession(SessionKey(bearer: "old"), for: "a")
        queue.setSession(SessionKey(bearer: "new"), for: "b")
        let token = try await queue.append(NewRequest(post("/a"), tenant: "a"))
        let other = try await queue.append(NewRequest(post("/b"), tenant: "b"))
        func refusals() -> [(tenant: String, waiting: [RequestToken])] {
            events.withLock { $0 }.compactMap { event in
                if case .refused(let tenant, .failure(.status(401), _, _, _), let waiting) = event {
                    return (tenant, waiting.map(\.token))
                }
                return nil
            }
        }
        try await eventuallyAsync("it is told") { !refusals().isEmpty }
        #expect(refusals().map(\.tenant) == ["a"] && refusals().first?.waiting == [token])
        #expect(await queue.waitingForSession().map(\.token) == [token])
        #expect(await queue.report().census.held == 1 && stage.backend.received.map(\.uri) == ["/a"])
        try await queue.hold(tenant: "b", false)
        try await queue.cancel(token, cause: "Unwanted.")
        try await eventuallyAsync("it is done") { try queue.requests(states: [.done]).map(\.token) == [other] }
        let cancelled = try #require(try queue.requests(states: [.cancelled]).first)
        #expect(cancelled.cause == "Unwanted.")
        #expect(try queue.request(number: cancelled.id)?.token == token)
        #expect(try queue.request(number: cancelled.id + 2) == nil && queue.request(number: 0) == nil)
        let sent = events.withLock { $0 }.count { if case .sent = $0 { true } else { false } }
        #expect(sent == 2)
        await queue.close()
        try await stage.stop()
    }

    /// A request under a known key is the earlier one, and its end is reported once, when the store has it.
    @Test func anEndIsReportedOnceUnderTheFirstToken() async throws {
        let stage = try await Stage { _ in .status(201, body: "done") }
        let ends = Mutex<[(token: RequestToken, outcome: RequestOutcome, isStored: Bool)]>([])
        var settings = QueueMachine.Settings()
        settings.keepsOutcomes = true
        let queue = try APIClientQueue(
            client: ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url),
            store: stage.store, settings: settings, sessions: ["": SessionKey(bearer: "t")]
        ) { event in
            guard case .ended(let request, let outcome) = event else { return }
            let stored = try? stage.store.outcome(request.token)
            ends.withLock { $0.append((request.token, outcome, stored == outcome)) }
        }
        let request = NewRequest(post("/a"), idempotencyKey: "k")
        let token = try await queue.append(request)
        #expect(try await queue.append(request) == token)
        try await eventuallyAsync("it is told") { ends.withLock { !$0.isEmpty } }
        let reported = ends.withLock { $0 }
        #expect(reported.map(\.token) == [token] && reported.map(\.isStored) == [true])
        #expect(
            reported.first?.outcome.result == .success(status: 201)
                && reported.first?.outcome.body == Array("done".utf8))
        await queue.close()
        try await stage.stop()
    }

    /// Seals with AES-GCM under a key that the application would have in a key chain.
    struct Sealer: SessionSealing {
        let key = SymmetricKey(size: .bits256)

        func seal(_ plaintext: [UInt8], tenant: String) throws -> [UInt8] {
            Array(try AES.GCM.seal(plaintext, using: key, authenticating: Array(tenant.utf8)).combined ?? Data())
        }

        func open(_ sealed: [UInt8], tenant: String) throws -> [UInt8] {
            Array(try AES.GCM.open(.init(combined: sealed), using: key, authenticating: Array(tenant.utf8)))
        }
    }

    @Test func sealedSessionKeysOutliveTheProcess() async throws {
        let stage = try await Stage { $0.header("Authorization") == "Bearer t0ken" ? .status(200) : .status(401) }
        let sealer = Sealer()
        func queue(_ sealer: Sealer) throws -> APIClientQueue {
            try APIClientQueue(
                client: ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url),
                store: stage.store, credentials: .sealed(sealer))
        }
        let first = try queue(sealer)
        first.setSession(SessionKey(bearer: "t0ken"))
        // Of two names that look alike each has a key of its own.
        first.setSession(SessionKey(bearer: "one"), for: "zo\u{EB}")
        first.setSession(SessionKey(bearer: "other"), for: "zoe\u{308}")
        try await first.append(post("/a"))
        try await eventuallyAsync("done") { try first.requests(states: [.done]).count == 1 }
        await first.close()
        let stored = try stage.store.load().sessions
        #expect(stored.count == 3 && !String(decoding: stored[""] ?? [], as: UTF8.self).contains("t0ken"))
        let second = try queue(sealer)
        try await second.append(post("/b"))
        try await eventuallyAsync("done without a login") { try second.requests(states: [.done]).count == 2 }
        await second.close()
        // Under another key it waits for the login.
        let third = try queue(Sealer())
        let waiting = try await third.append(post("/c"))
        try await eventuallyAsync("it waits") { await third.obstacles(waiting) == ["waits for the next login"] }
        for tenant in ["", "zo\u{EB}", "zoe\u{308}"] { third.setSession(nil, for: tenant) }
        await third.close()
        #expect(try stage.store.load().sessions.isEmpty)
        try await stage.stop()
    }

    @Test func cancellingHoldingAndSendingAgain() async throws {
        let isAllowed = Mutex(false)
        let stage = try await Stage { received in
            if received.uri.hasSuffix("/hang") { return .silence }
            return isAllowed.withLock { $0 } ? .status(200) : .status(403, body: "not yet")
        }
        let listener = Listener()
        let queue = try stage.queue(listener)
        let hanging = try await queue.append(NewRequest(post("/hang"), lane: "x"))
        try await eventuallyAsync("it is under way") { stage.backend.received.count == 1 }
        try await queue.cancel(hanging)
        try await eventuallyAsync("it is cancelled") { listener.all.map(\.result) == ["aborted"] }
        await #expect(throws: QueueActError.self) { try await queue.cancel(hanging) }

        let refused = try await queue.append(post("/a"))
        try await eventuallyAsync("it is dead") { listener.all.count == 2 }
        #expect(listener.all[1].result == "The host answered with status 403: not yet")
        isAllowed.withLock { $0 = true }
        try await queue.retry(refused)
        try await eventuallyAsync("it is done") { listener.all.count == 3 }
        #expect(listener.all[2].token == refused && listener.all[2].result == "success 200")
        await #expect(throws: QueueActError.unknown) { try await queue.retry(RequestToken(high: 0, low: 0)) }

        let report = await queue.report()
        #expect(report.depth == 0 && report.inFlight == 0 && report.bytes == 0)
        let counts = report.counts
        #expect(counts.restored + counts.appended + counts.revived == counts.done + counts.dead + counts.cancelled)
        await queue.close()
        await #expect(throws: QueueError.self) { try await queue.append(post("/late")) }
        try await stage.stop()
    }

    @Test func handlersInTheirOrderAndOnesThatHaveLeft() async throws {
        let stage = try await Stage { _ in .status(200) }
        let order = Mutex<[String]>([])
        let (first, second) = (
            Listener { order.withLock { $0.append("first") } }, Listener { order.withLock { $0.append("second") } }
        )
        let queue = try stage.queue(first)
        queue.register(second)
        queue.register(second)
        try await queue.append(post("/a"))
        try await eventuallyAsync("both") { second.all.count == 1 }
        queue.unregister(first)
        try await queue.append(post("/b"))
        try await eventuallyAsync("one more") { second.all.count == 2 }
        #expect(order.withLock { $0 } == ["first", "second", "second"])
        await queue.close()
        try await stage.stop()
    }

    /// While no secure connection can be set up everything waits, and it goes out when one can. With the default limits.
    @Test func aWrongCertificateKillsNothing() async throws {
        let stage = try await Stage { _ in .status(200) }
        let isWrong = Mutex(true)
        let network = HTTPNetworkClient(stage.http)
        // A server without TLS fails the handshake of those who ask for it.
        let client = ChatClient(
            networkClient: InMemoryNetworkClient { (request) throws(NetworkFailure) in
                var request = request
                if isWrong.withLock({ $0 }) { request.url = request.url.replacing("http:", with: "https:") }
                return try await network.send(request)
            }, host: stage.backend.url)
        var settings = QueueMachine.Settings()
        settings.breaker = .init(threshold: 5, pause: 50, longestPause: 50)
        settings.backoff = Backoff(base: 10, cap: 50)
        let listener = Listener()
        let queue = try APIClientQueue(client: client, store: stage.store, settings: settings, handlers: [listener])
        queue.setSession(SessionKey(bearer: "k"))
        for number in 0..<30 { try await queue.append(NewRequest(post("/\(number)"), lane: "\(number)")) }
        try await eventuallyAsync("many attempts") { await queue.report().counts.retried > 30 }
        #expect(listener.all.isEmpty && stage.backend.received.isEmpty)
        isWrong.withLock { $0 = false }
        try await eventuallyAsync("all are done") { listener.all.count == 30 }
        #expect(await queue.report().counts.done == 30)
        await queue.close()
        try await stage.stop()
    }

    /// The document's pattern: the queue is made first, and what handles its outcomes comes later, perhaps in another process.
    @Test func aHandlerAddedLaterReceivesAll() async throws {
        let stage = try await Stage { _ in .status(200) }
        let client = ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url)
        func open() throws -> APIClientQueue {
            try APIClientQueue(client: client, store: stage.store, awaitsHandlers: true)
        }
        let before = try open()
        before.setSession(SessionKey(bearer: "k"))
        let tokens = [try await before.append(post("/a")), try await before.append(post("/b"))]
        try await eventuallyAsync("both are done") { await before.report().counts.done == 2 }
        await before.close(deadline: .seconds(60))
        let queue = try open()
        queue.setSession(SessionKey(bearer: "k"))
        let last = try await queue.append(post("/c"))
        #expect(try await queue.outcome(of: last).result == .success(status: 200))
        let listener = Listener()
        queue.register(listener)
        try await eventuallyAsync("all three") { listener.all.count == 3 }
        #expect(listener.all.map(\.token) == tokens + [last])
        await queue.close()
        try await stage.stop()
    }

    /// Without a word at the beginning, a handler hears what ends from its registration on.
    @Test func registeringAloneIsEnough() async throws {
        let stage = try await Stage { _ in .status(200) }
        let client = ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url)
        let queue = try APIClientQueue(client: client, store: stage.store)
        queue.setSession(SessionKey(bearer: "k"))
        let early = try await queue.append(post("/a"))
        await #expect(throws: QueueActError.self) { try await queue.outcome(of: early) }
        try await eventuallyAsync("it is done") { await queue.report().counts.done == 1 }
        let listener = Listener()
        queue.register(listener)
        let late = try await queue.append(post("/b"))
        try await eventuallyAsync("the outcome") { listener.all.map(\.token) == [late] }
        #expect(try await queue.outcome(of: late).result == .success(status: 200))
        await queue.close()
        try await stage.stop()
    }

    /// A handler that hangs holds up no end, and its outcome is the next process's.
    @Test func closingWaitsAtMostItsTimeout() async throws {
        let stage = try await Stage { _ in .status(200) }
        let (gate, opener) = AsyncStream<Void>.makeStream()
        let stuck = Stuck(gate)
        let client = ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url)
        let queue = try APIClientQueue(client: client, store: stage.store, handlers: [stuck])
        queue.setSession(SessionKey(bearer: "k"))
        let token = try await queue.append(post("/a"))
        try await eventuallyAsync("the handler has it") { stuck.hasBegun }
        await queue.close(deadline: .milliseconds(50))
        let listener = Listener()
        let next = try stage.queue(listener)
        try await eventuallyAsync("the outcome") { listener.all.map(\.token) == [token] }
        await next.close()
        opener.finish()
        try await stage.stop()
    }

    /// Nothing reads zero because a commit fails, and it is told once when it fails and once when it works again.
    @Test func aFailingStoreHidesNothing() async throws {
        let stage = try await Stage { _ in .silence }
        let client = ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url)
        let reported = Mutex<[String]>([])
        let queue = try APIClientQueue(client: client, store: stage.store) { event in
            guard case .store(let error) = event else { return }
            reported.withLock { $0.append(error?.message ?? "works") }
        }
        queue.setSession(SessionKey(bearer: "k"))
        for number in 0..<3 { try await queue.append(post("/\(number)")) }
        stage.store.failCommits(.max)
        for _ in 0..<3 { await #expect(throws: QueueError.self) { try await queue.append(post("/lost")) } }
        let report = await queue.report()
        #expect(report.depth == 3 && report.counts.appended == 3 && report.counts.refused == 3)
        let tokens = try queue.requests().map(\.token)
        let last = try #require(tokens.last)
        #expect(await queue.obstacles(last).isEmpty)
        #expect(reported.withLock { $0 } == ["The disk is full (pretended)."])
        stage.store.failCommits(0)
        try await queue.append(post("/kept"))
        #expect(reported.withLock { $0 } == ["The disk is full (pretended).", "works"])
        await queue.close(deadline: .zero)
        #expect(await queue.report().depth > 0)
        try await stage.stop()
    }

    @Test func readsAtOnceAndOnce() async throws {
        let stage = try await Stage { received in
            received.uri.hasSuffix("/gone") ? .status(410, body: "gone") : .status(200, body: #"{"id":"x"}"#)
        }
        let client = ChatClient(networkClient: HTTPNetworkClient(stage.http), host: stage.backend.url)
        let response = try await client.send(APIRequestConfig(path: "/me"), session: SessionKey(bearer: "k"))
        #expect(try response.jsonCoderConfig.decoder.decode(ChatClient.Created.self, from: response.data).id == "x")
        #expect(stage.backend.received[0].header("Authorization") == "Bearer k")
        await #expect(throws: APIError.noSession) { try await client.send(APIRequestConfig(path: "/me")) }
        await #expect(throws: APIError.api(status: 410, APIErrorPayload(message: "gone"))) {
            try await client.send(APIRequestConfig(path: "/gone", includeSessionKey: false))
        }
        #expect(stage.backend.received.count == 2)
        try await stage.stop()
    }

    /// A thousand writers of one key: one request, one effect.
    @Test func oneKeyFromManySides() async throws {
        let stage = try await Stage { _ in .status(200) }
        let listener = Listener()
        let queue = try stage.queue(listener)
        let config = post("/pay")
        let tokens = try await withThrowingTaskGroup(of: RequestToken.self) { group in
            for _ in 0..<1000 { group.addTask { try await queue.append(NewRequest(config, idempotencyKey: "k")) } }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(tokens.count == 1)
        try await eventuallyAsync("the outcome") { listener.all.count == 1 }
        #expect(stage.backend.received.count == 1)
        await queue.close()
        try await stage.stop()
    }

    @Test func aFailingStoreIsReportedAndSurvived() async throws {
        let stage = try await Stage { _ in .status(200) }
        let listener = Listener()
        let queue = try stage.queue(listener)
        try await queue.append(post("/a"))
        try await eventuallyAsync("the first, and the mark that its handlers are done") {
            try listener.all.count == 1 && stage.store.load().undelivered.isEmpty
        }
        stage.store.failCommits(1)
        await #expect(throws: QueueError.self) { try await queue.append(post("/b")) }
        stage.store.failCommits(0)
        try await queue.append(post("/c"))
        try await eventuallyAsync("the last") { stage.backend.received.last?.uri == "/api/c" }
        await queue.close()
        try await stage.stop()
    }
}

/// A handler that does not return before a stream ends.
private final class Stuck: APIClientQueueResponseHandler {
    private let gate: Mutex<AsyncStream<Void>?>
    private let begun = Mutex(false)

    init(_ gate: AsyncStream<Void>) { self.gate = Mutex(gate) }

    var hasBegun: Bool { begun.withLock { $0 } }

    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        begun.withLock { $0 = true }
        // Of its own, so that cancelling whoever calls does not end it.
        let stream = gate.withLock { $0 }
        await Task { if let stream { for await _ in stream {} } }.value
    }
}
