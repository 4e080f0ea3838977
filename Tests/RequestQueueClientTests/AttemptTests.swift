import Foundation
import RequestQueue
import Synchronization
import TestKit
import Testing

@testable import RequestQueueClient

/// One attempt and its end: what is sent with it, and what becomes of one that does not end by itself.
@Suite struct AttemptTests {
    /// Answers as a test says, and notes what it was sent.
    private final class Network: NetworkClient {
        private let requests = Mutex<[NetworkRequest]>([])
        private let answer: @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse

        init(_ answer: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse) {
            self.answer = answer
        }

        var sent: [NetworkRequest] { requests.withLock { $0 } }

        func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
            requests.withLock { $0.append(request) }
            return try await answer(request)
        }
    }

    private struct Client: APIClient {
        let networkClient: any NetworkClient
        let identifier = "test"
        var host = "https://chat.example/api"
        var deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
        var timeoutInterval: Int64 = 600_000
        var allowed: Set<String> = []
        var preparation: @Sendable () async -> Void = {}
        /// The key of a request's own device.
        var ownKey: SessionKey?
        /// Called with the answer.
        var answered: @Sendable () -> Void = {}

        func session(for request: APIClientQueueRequest) -> SessionKey? { ownKey }

        func identifiers(
            in response: APIClientResponse<Data>, for request: APIClientQueueRequest
        ) -> [EntityIdentifier] {
            answered()
            return []
        }
        func sendsSession(to host: String) -> Bool { allowed.contains(host) }

        func prepareRequest(_ requestConfig: APIRequestConfig) async -> APIRequestConfig {
            await preparation()
            return requestConfig
        }
    }

    /// Never ends, whatever is done to its task.
    private static func hang() async {
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            hung.withLock { $0.append(continuation) }
        }
    }
    private static let hung = Mutex<[CheckedContinuation<Void, Never>]>([])

    private func queue(
        _ client: Client, _ store: InMemoryQueueStore = .init(), _ handlers: [any APIClientQueueResponseHandler] = [],
        awaitsHandlers: Bool = false, _ change: (inout QueueMachine.Settings) -> Void = { _ in }
    ) throws -> APIClientQueue {
        var settings = QueueMachine.Settings()
        settings.backoff = Backoff(base: 10, cap: 50)
        change(&settings)
        return try APIClientQueue(
            client: client, store: store, settings: settings, sessions: ["": SessionKey(bearer: "key")],
            handlers: handlers, awaitsHandlers: awaitsHandlers)
    }

    private func post(_ path: APIRequestPath) -> APIRequestConfig { APIRequestConfig(method: .post, path: path) }

    // MARK: Where a session key goes

    @Test(arguments: [
        ("https://chat.example/other", true), ("https://CHAT.example:443/", true), ("https://chat.example", true),
        ("http://chat.example/api", false), ("https://chat.example:8443/api", false),
        ("https://chat.example.org", false),
        ("https://chat.example@evil.example/", false), ("https://evil.example/", false),
        ("https://known.example/", true),
        ("https://chat.example\\.evil.example/", false), ("https://chat.example%2eevil/", false),
        ("//chat.example/", false),
        ("chat.example", false),
    ])
    func aSessionKeyGoesToNoOtherHostByItself(_ host: String, _ goes: Bool) async throws {
        let network = Network { (_) throws(NetworkFailure) in NetworkResponse(status: 200) }
        let client = Client(networkClient: network, allowed: ["https://known.example/"])
        var config = APIRequestConfig(path: "/me", host: host)
        _ = try await client.send(config, session: SessionKey(bearer: "key"))
        #expect(network.sent.map { $0.header("Authorization") != nil } == [goes])
        config = post("/write")
        config.host = host
        let listener = Listener()
        let queue = try queue(client, InMemoryQueueStore(), [listener])
        try await queue.append(config)
        try await eventuallyAsync("it is sent") { listener.all.count == 1 }
        #expect(network.sent.map { $0.header("Authorization") != nil } == [goes, goes])
        await queue.close()
    }

    /// A host that was shown no key has refused none.
    @Test func anotherHostsRefusalEndsNoSession() async throws {
        let network = Network { (request) throws(NetworkFailure) in
            NetworkResponse(status: request.url.contains("other") ? 401 : 200)
        }
        let listener = Listener()
        let queue = try queue(Client(networkClient: network), InMemoryQueueStore(), [listener])
        var config = post("/a")
        config.host = "https://other.example"
        try await queue.append(NewRequest(config, lane: "1"))
        try await eventuallyAsync("it is dead") { listener.all.count == 1 }
        #expect(listener.all[0].result == "The host answered with status 401.")
        try await queue.append(NewRequest(post("/b"), lane: "2"))
        try await eventuallyAsync("the session goes on") { listener.all.count == 2 }
        #expect(listener.all[1].result == "success 200")
        await queue.close()
    }

    // MARK: Which session key, and its end

    private static func authorized(_ tokens: String...) -> Network {
        let accepted = tokens.map { "Bearer \($0)" }
        return Network { (request) throws(NetworkFailure) in
            NetworkResponse(status: request.header("Authorization").map(accepted.contains) == true ? 200 : 401)
        }
    }

    /// The tenant logs out just before an attempt. It is not sent without a key, and is no attempt.
    @Test func withoutAKeyNothingIsSent() async throws {
        let network = Self.authorized("key")
        let made = Mutex<APIClientQueue?>(nil)
        let isOut = Mutex(true)
        let client = Client(
            networkClient: network,
            preparation: { if isOut.withLock({ $0 }) { made.withLock { $0 }?.setSession(nil) } })
        let listener = Listener()
        let queue = try queue(client, InMemoryQueueStore(), [listener])
        made.withLock { $0 = queue }
        let token = try await queue.append(post("/a"))
        try await eventuallyAsync("it waits") { await queue.obstacles(token) == ["waits for the next login"] }
        #expect(network.sent.isEmpty)
        #expect(await queue.waitingForSession(token)?.attempts == 0)
        isOut.withLock { $0 = false }
        queue.setSession(SessionKey(bearer: "key"))
        try await eventuallyAsync("it is done") { listener.all.count == 1 }
        #expect(listener.all[0].result == "success 200" && network.sent.count == 1)
        made.withLock { $0 = nil }
        await queue.close()
    }

    /// The tenant logs in anew while the backend refuses the old key.
    @Test func aLoginDuringARefusalIsUsed() async throws {
        let made = Mutex<APIClientQueue?>(nil)
        let network = Network { (request) throws(NetworkFailure) in
            if request.header("Authorization") == "Bearer new" { return NetworkResponse(status: 200) }
            made.withLock { $0 }?.setSession(SessionKey(bearer: "new"))
            return NetworkResponse(status: 401)
        }
        let listener = Listener()
        let queue = try queue(Client(networkClient: network), InMemoryQueueStore(), [listener])
        made.withLock { $0 = queue }
        try await queue.append(post("/a"))
        try await eventuallyAsync("it is done") { listener.all.count == 1 }
        #expect(listener.all[0].result == "success 200")
        #expect(network.sent.map { $0.header("Authorization") } == ["Bearer key", "Bearer new"])
        made.withLock { $0 = nil }
        await queue.close()
    }

    /// The key of its own device is refused. After a login of its tenant, with the key that it had, it is sent again.
    @Test func aRefusedKeyOfOneRequestWaitsForTheLoginOfItsTenant() async throws {
        let network = Self.authorized("key")
        let client = Client(networkClient: network, ownKey: SessionKey(bearer: "own"))
        let queue = try queue(client)
        let token = try await queue.append(post("/a"))
        try await eventuallyAsync("it waits") { await queue.obstacles(token) == ["waits for the next login"] }
        #expect(network.sent.map { $0.header("Authorization") } == ["Bearer own"])
        queue.setSession(SessionKey(bearer: "key"))
        try await eventuallyAsync("it is sent again") { network.sent.count == 2 }
        await queue.close()
    }

    /// The next process asks for a login at once.
    @Test func aRefusedKeyIsNoLongerStored() async throws {
        let store = InMemoryQueueStore()
        let sealer = ClientQueueTests.Sealer()
        func queue() throws -> APIClientQueue {
            try APIClientQueue(
                client: Client(networkClient: Self.authorized("new")), store: store, credentials: .sealed(sealer))
        }
        let first = try queue()
        first.setSession(SessionKey(bearer: "old"))
        let token = try await first.append(post("/a"))
        try await eventuallyAsync("it waits") { await first.obstacles(token) == ["waits for the next login"] }
        #expect(try store.load().sessions.isEmpty)
        first.setSession(SessionKey(bearer: "new"))
        try await eventuallyAsync("it is done") { try first.requests(states: [.done]).count == 1 }
        #expect(try store.load().sessions.count == 1)
        await first.close()
    }

    // MARK: Ends

    /// Whatever of an application does not return: its lane goes on.
    @Test(arguments: [true, false]) func anAttemptThatDoesNotReturnIsLeftBehind(_ hangsBefore: Bool) async throws {
        let calls = Mutex(0)
        let isFirst: @Sendable () -> Bool = {
            calls.withLock { calls in
                calls += 1
                return calls == 1
            }
        }
        let network = Network { (_) throws(NetworkFailure) in
            if !hangsBefore, isFirst() { await Self.hang() }
            return NetworkResponse(status: 200)
        }
        var client = Client(networkClient: network)
        if hangsBefore { client.preparation = { if isFirst() { await Self.hang() } } }
        let listener = Listener()
        let queue = try queue(client, InMemoryQueueStore(), [listener])
        var first = post("/a")
        first.timeoutInterval = 100
        try await queue.append(first)
        try await queue.append(post("/b"))
        try await eventuallyAsync("both are done") { listener.all.count == 2 }
        #expect(listener.all.map(\.result) == ["success 200", "success 200"])
        #expect(await queue.report().counts.doubtful == 1)
        await queue.close()
    }

    @Test func whatThePreparationTakesIsPartOfTheTime() async throws {
        let network = Network { (_) throws(NetworkFailure) in NetworkResponse(status: 200) }
        let client = Client(
            networkClient: network, timeoutInterval: 60_000,
            preparation: { try? await Task.sleep(for: .milliseconds(50)) })
        let listener = Listener()
        let queue = try queue(client, InMemoryQueueStore(), [listener])
        try await queue.append(post("/a"))
        try await eventuallyAsync("it is done") { listener.all.count == 1 }
        #expect(network.sent.allSatisfy { $0.timeoutInterval <= 59_950 })
        await queue.close()
    }

    @Test func equalReadsOfTheQueueAreSentOnce() async throws {
        let gate = Mutex(false)
        let network = Network { (_) throws(NetworkFailure) in
            while !gate.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(5)) }
            return NetworkResponse(status: 200)
        }
        let deduplicator = APIRequestDeduplicator()
        let listener = Listener()
        let queue = try queue(
            Client(networkClient: network, deduplicator: deduplicator), InMemoryQueueStore(), [listener])
        for number in 0..<4 { try await queue.append(NewRequest(APIRequestConfig(path: "/me"), lane: "\(number)")) }
        try await eventuallyAsync("all wait for one answer") { await deduplicator.waiting == 4 }
        gate.withLock { $0 = true }
        try await eventuallyAsync("all are done") { listener.all.count == 4 }
        #expect(network.sent.count == 1)
        await queue.close()
    }

    // MARK: Threads

    /// Runs tasks on a queue of its own.
    private final class Executor: TaskExecutor {
        private static let mark = DispatchSpecificKey<Bool>()
        private let queue = DispatchQueue(label: "executor")

        init() { queue.setSpecific(key: Self.mark, value: true) }

        static var isCurrent: Bool { DispatchQueue.getSpecific(key: mark) == true }

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    /// An engine whose attempts run on an executor.
    private struct Driver: QueueDriver {
        let engine: QueueEngine
        let taskExecutor: (any TaskExecutor)?

        func start(_ act: @escaping @Sendable (QueueBatch, QueueAnswers) -> Void) { engine.start(act) }
        func post(_ event: @escaping MachineEvent) -> Bool { engine.post(event) }
        func stop() { engine.stop() }
    }

    /// The network answers on another thread, and none of Swift's pool is needed for what follows.
    @Test(arguments: [false, true]) func anAnswerIsProcessedOnTheDriversExecutor(hasExecutor: Bool) async throws {
        let network = Network { (_) throws(NetworkFailure) in
            await withCheckedContinuation { continuation in
                DispatchQueue.global().asyncAfter(deadline: .now() + 0.005) { continuation.resume() }
            }
            return NetworkResponse(status: 200)
        }
        let isOnExecutor = Mutex<Bool?>(nil)
        let client = Client(
            networkClient: network, answered: { isOnExecutor.withLock { $0 = Executor.isCurrent } })
        let store = InMemoryQueueStore()
        let driver = Driver(
            engine: QueueEngine(QueueMachine(QueueMachine.Settings(), lease: 1), store: store),
            taskExecutor: hasExecutor ? Executor() : nil)
        let sessions = TenantSessions(client, .memory, stored: [:], sessions: [:])
        let queue = APIClientQueue(
            client: client, store: store, driver: driver, credentials: sessions, keepsOutcomes: false, watch: { _ in })
        queue.setSession(SessionKey(bearer: "key"))
        try await queue.append(post("/a"))
        try await eventuallyAsync("it is done") { try queue.requests(states: [.done]).count == 1 }
        #expect(isOnExecutor.withLock { $0 } == hasExecutor)
        await queue.close()
    }

    // MARK: Handlers

    @Test func handlersThatComeLaterGetWhatHasEnded() async throws {
        let network = Network { (_) throws(NetworkFailure) in NetworkResponse(status: 200) }
        let (store, client) = (InMemoryQueueStore(), Client(networkClient: network))
        let first = try queue(client, store, awaitsHandlers: true)
        let token = try await first.append(post("/a"))
        _ = try await first.outcome(of: token)
        // Nobody has registered: it is left to the next process.
        await first.close()
        let second = try queue(client, store, awaitsHandlers: true)
        let other = try await second.append(post("/b"))
        _ = try await second.outcome(of: other)
        let listener = Listener()
        second.register(listener)
        try await eventuallyAsync("both are handed over") { listener.all.count == 2 }
        #expect(listener.all.map(\.token) == [token, other])
        await second.close()
        let third = try queue(client, store, [listener])
        try await third.append(post("/c"))
        try await eventuallyAsync("only the third") { listener.all.count == 3 }
        #expect(listener.all[2].token != token)
        await third.close()
    }

    @Test func aQueueWithoutHandlersTakesOneLater() async throws {
        let network = Network { (_) throws(NetworkFailure) in NetworkResponse(status: 200) }
        let queue = try queue(Client(networkClient: network))
        let before = try await queue.append(post("/a"))
        await #expect(throws: QueueActError.self) { try await queue.outcome(of: before) }
        let listener = Listener()
        queue.register(listener)
        let after = try await queue.append(post("/b"))
        try await eventuallyAsync("the handler is called") { listener.all.contains { $0.token == after } }
        #expect(try await queue.outcome(of: after).result == .success(status: 200))
        await queue.close()
    }

    /// One batch ends more requests than may wait for handlers, which have taken them before the pause begins.
    @Test func handlersThatHaveCaughtUpPauseNothing() async throws {
        let isOpen = Mutex(false)
        let network = Network { (request) throws(NetworkFailure) in
            guard request.url.hasSuffix("/first") else { return NetworkResponse(status: 200) }
            while !isOpen.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(5)) }
            return NetworkResponse(status: 422)
        }
        let listener = Listener()
        let others = APIClientQueue.backlog + 100
        let ends = Mutex(0)
        let queue = try APIClientQueue(
            client: Client(networkClient: network), store: InMemoryQueueStore(),
            sessions: ["": SessionKey(bearer: "key")], handlers: [listener]
        ) { event in
            guard case .ended = event else { return }
            let number = ends.withLock { ends in
                ends += 1
                return ends
            }
            // At the last outcome of the batch, handlers have all others.
            guard number == others + 1 else { return }
            // This is the queue's own thread.
            while listener.all.count < others { usleep(1000) }
        }
        let first = try await queue.append(NewRequest(post("/first"), lane: "first"))
        for number in 0..<others {
            try await queue.append(NewRequest(post("/\(number)"), lane: "\(number)", dependsOn: [first]))
        }
        isOpen.withLock { $0 = true }
        try await eventuallyAsync("all have failed") { listener.all.count == others + 1 }
        let next = try await queue.append(NewRequest(post("/next"), lane: "next"))
        try await eventuallyAsync("the queue goes on") { listener.all.contains { $0.token == next } }
        await queue.close()
    }

    /// What it was given goes to the next process.
    @Test func aHandlerThatHangsDoesNotKeepTheQueueOpen() async throws {
        let network = Network { (_) throws(NetworkFailure) in NetworkResponse(status: 200) }
        let (store, client) = (InMemoryQueueStore(), Client(networkClient: network))
        let called = Mutex(0)
        let hanging = Listener {
            called.withLock { $0 += 1 }
            await Self.hang()
        }
        let first = try queue(client, store, [hanging])
        let tokens = [try await first.append(post("/a")), try await first.append(post("/b"))]
        try await eventuallyAsync("it hangs") { called.withLock { $0 } == 1 }
        await first.close(deadline: .milliseconds(200))
        let listener = Listener()
        let second = try queue(client, store, [listener])
        try await eventuallyAsync("both are handed over") { listener.all.count == 2 }
        #expect(listener.all.map(\.token) == tokens)
        #expect(called.withLock { $0 } == 1)
        await second.close()
    }
}
