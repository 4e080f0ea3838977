import Foundation
import RequestQueue
import Synchronization
import TestKit
import Testing

@testable import RequestQueueClient

/// What an application learns of its requests while they are under way: events, log entries, background tasks.
@Suite struct ObservationTests {
    private struct Client: APIClient {
        let networkClient: any NetworkClient
        let identifier = "chat"
        let host = "https://chat.example"
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
        var logHandler: (@Sendable (APIClientLogEntry) -> Void)?
    }

    private func network(
        _ answer: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse = {
            (_) throws(NetworkFailure) in NetworkResponse(status: 200)
        }
    ) -> InMemoryNetworkClient { InMemoryNetworkClient(answer) }

    private func queue(
        _ client: Client, _ handlers: [any APIClientQueueResponseHandler] = [], tasks: (any APIBackgroundTasks)? = nil,
        store: any QueueStore = InMemoryQueueStore()
    ) throws -> APIClientQueue {
        var settings = QueueMachine.Settings()
        settings.backoff = Backoff(base: 10, cap: 50)
        return try APIClientQueue(
            client: client, store: store, settings: settings, sessions: ["": SessionKey(bearer: "key")],
            handlers: handlers, backgroundTasks: tasks)
    }

    private func post(_ path: APIRequestPath, tag: String? = nil) -> APIRequestConfig {
        APIRequestConfig(method: .post, path: path, tag: tag)
    }

    private func name(_ event: QueueEvent) -> String {
        switch event {
        case .appended(let request): "appended \(request.wrapped.config.tag ?? "")"
        case .sent(let request): "sent \(request.wrapped.config.tag ?? "")"
        case .answered(let request, .success(let status, _, _, _, _)):
            "answered \(request.wrapped.config.tag ?? "") \(status)"
        case .answered(let request, .failure): "failed \(request.wrapped.config.tag ?? "")"
        case .ended(let request, let outcome): "ended \(request.wrapped.config.tag ?? "") \(outcome.state.name)"
        case .refused: "refused"
        case .reachable(let isReachable): "reachable \(isReachable)"
        case .backgroundTimeEnded: "background time ended"
        case .store(let error): "store \(error == nil)"
        case .missed: "missed"
        }
    }

    // MARK: Events

    /// Without handlers as well: an observer needs no stored outcomes.
    @Test(arguments: [true, false]) func eachObserverGetsTheLifeOfARequest(_ hasHandler: Bool) async throws {
        let tries = Mutex(0)
        let network = network { (_) throws(NetworkFailure) in
            let number = tries.withLock { tries in
                tries += 1
                return tries
            }
            return NetworkResponse(status: number == 1 ? 500 : 201)
        }
        let queue = try queue(Client(networkClient: network), hasHandler ? [Listener()] : [])
        let observers = [queue.events, queue.events]
        let loops = observers.map { events in
            Task {
                var names: [String] = []
                for await event in events { names.append(name(event)) }
                return names
            }
        }
        let token = try await queue.append(post("/a", tag: "t"))
        try await eventuallyAsync("it is done") { try queue.requests(states: [.done]).map(\.token) == [token] }
        await queue.close()
        for loop in loops {
            #expect(
                await loop.value == [
                    "appended t", "sent t", "failed t", "sent t", "answered t 201", "ended t done",
                ])
        }
        for await event in queue.events { Issue.record("\(event) after the end") }
    }

    @Test func cancellingTheNetworkAndTheStoreAreEvents() async throws {
        let store = InMemoryQueueStore()
        let queue = try queue(Client(networkClient: network()), store: store)
        let loop = Task { [events = queue.events] in
            var names: [String] = []
            for await event in events { names.append(name(event)) }
            return names
        }
        queue.setReachable(false)
        queue.setReachable(false)
        let token = try await queue.append(post("/a", tag: "t"))
        try await queue.cancel(token)
        store.failCommits(1)
        await #expect(throws: QueueError.self) { try await queue.append(post("/b")) }
        _ = try await queue.append(post("/c", tag: "c"))
        await queue.close()
        let names = await loop.value
        #expect(
            names == [
                "reachable false", "appended t", "ended t cancelled", "store false", "store true", "appended c",
            ])
    }

    @Test func anObserverThatIsTooSlowIsToldWhatItMissed() async throws {
        let observers = QueueObservers()
        let events = observers.add()
        for _ in 0..<QueueEvents.capacity + 7 { observers.send(.reachable(true)) }
        observers.close()
        var (count, missed) = (0, 0)
        for await event in events {
            if case .missed(let number) = event { missed += number } else { count += 1 }
        }
        #expect(count == QueueEvents.capacity && missed == 7)
    }

    @Test func anObserverThatLeavesIsForgotten() async throws {
        let observers = QueueObservers()
        for _ in 0..<10 { _ = observers.add() }
        #expect(observers.isEmpty)
        let events = observers.add()
        let loop = Task { for await _ in events {} }
        loop.cancel()
        await loop.value
        #expect(observers.isEmpty)
    }

    // MARK: Log

    /// The attributes that the document has for logs arrive there, and nothing secret does.
    @Test func tagAndIdentifierReachTheLog() async throws {
        let lines = Mutex<[String]>([])
        let network = network { (request) throws(NetworkFailure) in
            if request.url.contains("bad") { return NetworkResponse(status: 400, body: Array("{}".utf8)) }
            return NetworkResponse(status: 200)
        }
        let client = Client(networkClient: network) { entry in lines.withLock { $0.append("\(entry)") } }
        let queue = try queue(client, [Listener()])
        var rename = post("/rooms/7?token=secret", tag: "rename")
        rename.headers = ["X-Secret": "secret"]
        try await queue.append(rename)
        try await eventuallyAsync("it is done") { try queue.requests(states: [.done]).count == 1 }
        try await queue.append(post("/bad"))
        try await eventuallyAsync("it is dead") { try queue.requests(states: [.dead]).count == 1 }
        _ = try await queue.send(APIRequestConfig(path: "/me", query: ["q": "secret"], tag: "profile"))
        await #expect(throws: APIError.self) { try await queue.send(APIRequestConfig(path: "/bad/me")) }
        await queue.close()
        #expect(
            lines.withLock { $0 } == [
                "chat: POST /rooms/7 (rename): appended", "chat: POST /rooms/7 (rename): sent",
                "chat: POST /rooms/7 (rename): answered with status 200", "chat: POST /rooms/7 (rename): done",
                "chat: POST /bad: appended", "chat: POST /bad: sent",
                "chat: POST /bad: failed: the host answered with status 400",
                "chat: POST /bad: dead: The host answered with status 400.",
                "chat: GET /me (profile): sent", "chat: GET /me (profile): answered with status 200",
                "chat: GET /bad/me: sent", "chat: GET /bad/me: failed: the host answered with status 400",
            ])
    }

    // MARK: Background tasks

    /// The system's side of background tasks.
    private final class Tasks: APIBackgroundTasks {
        private let state = Mutex((begun: 0, ended: 0, expire: [@Sendable () -> Void]()))
        let isAllowed = Mutex(true)
        let expiresAtOnce: Bool

        init(expiresAtOnce: Bool = false) { self.expiresAtOnce = expiresAtOnce }

        var begun: Int { state.withLock { $0.begun } }
        var ended: Int { state.withLock { $0.ended } }

        func begin(expired: @escaping @Sendable () -> Void) -> (@Sendable () -> Void)? {
            guard isAllowed.withLock({ $0 }) else { return nil }
            state.withLock { state in
                state.begun += 1
                state.expire.append(expired)
            }
            if expiresAtOnce { expired() }
            return { self.state.withLock { $0.ended += 1 } }
        }

        func expire() { for expire in state.withLock({ $0.expire }) { expire() } }
    }

    /// Holds answers back until it is opened.
    private final class Gate: Sendable {
        private let isOpen = Mutex(false)
        func open() { isOpen.withLock { $0 = true } }
        @Sendable func answer(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
            while !isOpen.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(2)) }
            return NetworkResponse(status: 200)
        }
    }

    /// One task for all that are in flight together, and for what follows them in their lanes.
    @Test func oneTaskCoversAllUntilTheirOutcomesAreStored() async throws {
        let (tasks, gate) = (Tasks(), Gate())
        let queue = try queue(Client(networkClient: network(gate.answer)), tasks: tasks)
        for number in 0..<6 { try await queue.append(NewRequest(post("/\(number)"), lane: "\(number % 2)")) }
        try await eventuallyAsync("two are in flight") { await queue.report().inFlight == 2 }
        #expect(tasks.begun == 1 && tasks.ended == 0)
        gate.open()
        try await eventuallyAsync("the task ends") { tasks.ended == 1 }
        #expect(try queue.requests(states: [.done]).count == 6 && tasks.begun == 1)
        await queue.close()
        #expect(tasks.ended == 1)
    }

    /// The commit of the outcome takes long: the system's time is given back after it.
    @Test func theTaskLastsUntilTheCommit() async throws {
        let (tasks, gate, store) = (Tasks(), Gate(), GatedStore())
        let queue = try queue(Client(networkClient: network(gate.answer)), tasks: tasks, store: store)
        let events = queue.events
        try await queue.append(post("/a"))
        try await eventuallyAsync("it is in flight") { tasks.begun == 1 }
        store.shut()
        gate.open()
        for await event in events { if case .answered = event { break } }
        try await eventuallyAsync("its outcome is being committed") { store.isWaiting }
        #expect(tasks.ended == 0)
        store.open()
        try await eventuallyAsync("the task ends") { tasks.ended == 1 }
        #expect(try queue.requests(states: [.done]).count == 1)
        await queue.close()
    }

    @Test func requestsWithoutTheAttributeNeedNoTask() async throws {
        let tasks = Tasks()
        let queue = try queue(Client(networkClient: network()), [Listener()], tasks: tasks)
        var config = post("/a")
        config.background = false
        try await queue.append(config)
        try await eventuallyAsync("it is done") { try queue.requests(states: [.done]).count == 1 }
        _ = try await queue.send(APIRequestConfig(path: "/b", background: false))
        #expect(tasks.begun == 0)
        _ = try await queue.send(APIRequestConfig(path: "/b"))
        #expect(tasks.begun == 1 && tasks.ended == 1)
        await queue.close()
    }

    /// The system takes its time back. What is in flight goes on while the process does, and the next request asks again.
    @Test func aTaskThatExpiresEndsAtOnceAndLosesNothing() async throws {
        let (tasks, gate) = (Tasks(), Gate())
        let queue = try queue(Client(networkClient: network(gate.answer)), tasks: tasks)
        let events = queue.events
        try await queue.append(post("/a"))
        try await eventuallyAsync("it is in flight") { tasks.begun == 1 }
        tasks.expire()
        #expect(tasks.ended == 1)
        tasks.expire()
        #expect(tasks.ended == 1)
        for await event in events { if case .backgroundTimeEnded = event { break } }
        try await queue.append(NewRequest(post("/b"), lane: "other"))
        try await eventuallyAsync("the next asks again") { tasks.begun == 2 }
        gate.open()
        try await eventuallyAsync("both are done") { tasks.ended == 2 }
        #expect(try queue.requests(states: [.done]).count == 2)
        await queue.close()
    }

    @Test(arguments: [true, false]) func aSystemWithoutTimeStopsNothing(_ isAllowed: Bool) async throws {
        let tasks = Tasks(expiresAtOnce: true)
        tasks.isAllowed.withLock { $0 = isAllowed }
        let queue = try queue(Client(networkClient: network()), tasks: tasks)
        for number in 0..<5 { try await queue.append(post("/\(number)")) }
        try await eventuallyAsync("all are done") { try queue.requests(states: [.done]).count == 5 }
        try await eventuallyAsync("each task has ended") { tasks.ended == tasks.begun }
        #expect((tasks.begun > 0) == isAllowed)
        await queue.close()
    }

    /// An attempt that never returns is left behind by the queue, and so is its task.
    @Test func anAttemptThatHangsHoldsNoTaskForEver() async throws {
        let tasks = Tasks()
        let hung = Mutex<[CheckedContinuation<Void, Never>]>([])
        let isFirst = Mutex(true)
        let network = network { (_) throws(NetworkFailure) in
            let hangs = isFirst.withLock { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            if hangs { await withCheckedContinuation { continuation in hung.withLock { $0.append(continuation) } } }
            return NetworkResponse(status: 200)
        }
        let queue = try queue(Client(networkClient: network), tasks: tasks)
        var config = post("/a")
        config.timeoutInterval = 1
        try await queue.append(config)
        try await eventuallyAsync("it is done in the end") { try queue.requests(states: [.done]).count == 1 }
        try await eventuallyAsync("no task is left") { tasks.begun == tasks.ended && tasks.begun > 0 }
        for continuation in hung.withLock({ $0 }) { continuation.resume() }
        await queue.close()
    }

    // MARK: Idleness

    /// What waits for a pause, a login or a network does not keep a background refresh of the application going.
    @Test func idleIsWhatHasNothingToSend() async throws {
        let gate = Gate()
        let queue = try queue(Client(networkClient: network(gate.answer)))
        await queue.waitUntilIdle()
        for number in 0..<20 { try await queue.append(NewRequest(post("/\(number)"), lane: "\(number % 2)")) }
        let isIdle = Mutex(false)
        let waiting = Task {
            await queue.waitUntilIdle()
            isIdle.withLock { $0 = true }
        }
        try await eventuallyAsync("two are in flight") { await queue.report().inFlight == 2 }
        #expect(!isIdle.withLock { $0 })
        gate.open()
        await waiting.value
        #expect(try queue.requests(states: [.done]).count == 20)
        try await queue.append(NewRequest(post("/later"), tenant: "without a login"))
        await queue.waitUntilIdle()
        queue.setReachable(false)
        try await queue.append(post("/offline"))
        await queue.waitUntilIdle()
        #expect(await queue.report().depth == 2)
        await queue.close()
        await queue.waitUntilIdle()
    }

    /// The system may end the process as soon as its task is done.
    @Test func idleIsWhatHasStoredItsOutcomes() async throws {
        let store = GatedStore()
        let isOpen = Mutex(false)
        let network = network { (_) throws(NetworkFailure) in
            while !isOpen.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(1)) }
            return NetworkResponse(status: 201)
        }
        let queue = try queue(Client(networkClient: network), [], store: store)
        let events = queue.events
        let answered = Task { for await event in events { if case .answered = event { return } } }
        let token = try await queue.append(post("/a"))
        // While a commit is under way, the answer comes, and the question after it.
        store.shut()
        let other = Task { try await queue.hold(token, true) }
        try await eventuallyAsync("a commit waits") { store.isWaiting }
        isOpen.withLock { $0 = true }
        await answered.value
        let hasReturned = Mutex(false)
        let idle = Task {
            await queue.waitUntilIdle()
            hasReturned.withLock { $0 = true }
            return try queue.requests(states: [.done]).count
        }
        try await Task.sleep(for: .milliseconds(50))
        store.letOneThrough()
        try await eventuallyAsync("the outcome is being stored") { store.commits.count == 2 && store.isWaiting }
        try await Task.sleep(for: .milliseconds(50))
        #expect(!hasReturned.withLock { $0 })
        store.open()
        #expect(try await idle.value == 1)
        try await other.value
        await queue.close()
    }

    @Test func aCancelledTaskDoesNotWait() async throws {
        let gate = Gate()
        let queue = try queue(Client(networkClient: network(gate.answer)))
        try await queue.append(post("/a"))
        let waiting = Task { await queue.waitUntilIdle() }
        waiting.cancel()
        await waiting.value
        #expect(await queue.report().inFlight == 1)
        gate.open()
        await queue.close()
    }
}
