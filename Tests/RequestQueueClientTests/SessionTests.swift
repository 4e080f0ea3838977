import Foundation
import RequestQueue
import RequestQueueClient
import RequestQueueURLSession
import Synchronization
import TestKit
import Testing

/// The queue over `URLSession`, against a real server: what an application without any other library gets.
@Suite struct SessionTests {
    private func queue(
        _ backend: ChatBackend, store: any QueueStore = InMemoryQueueStore(),
        _ handlers: any APIClientQueueResponseHandler...
    ) throws -> APIClientQueue {
        var settings = QueueMachine.Settings()
        settings.backoff = Backoff(base: 10, cap: 50)
        return try APIClientQueue(
            client: ChatClient(networkClient: URLSessionNetworkClient(), host: backend.url), store: store,
            settings: settings, sessions: ["": SessionKey(bearer: "key")], handlers: handlers)
    }

    private let draft = EntityReference(type: "message", local: "draft")

    private func post(_ path: APIRequestPath) -> APIRequestConfig { APIRequestConfig(method: .post, path: path) }

    @Test func aMessageAndItsEdit() async throws {
        let backend = try await ChatBackend { received in
            received.method == "POST" ? .status(201, body: #"{"id":"m/7"}"#) : .status(204)
        }
        let listener = Listener()
        let queue = try queue(backend, listener)
        try await queue.append(NewRequest(post("/messages"), creates: [draft]))
        try await queue.append(
            APIRequestConfig(
                method: .patch, path: "/messages/\(draft)", body: try .json(encoding: ["edit_of": draft])))
        try await eventuallyAsync("both outcomes") { listener.all.count == 2 }
        #expect(listener.all.map(\.result) == ["success 201", "success 204"])
        #expect(backend.received.map(\.uri) == ["/messages", "/messages/m%2F7"])
        #expect(backend.received.last?.body == #"{"edit_of":"m/7"}"#)
        #expect(Set(backend.received.map { $0.header("Idempotency-Key") }).count == 2)
        #expect(backend.received.allSatisfy { $0.header("Authorization") == "Bearer key" })
        await queue.close()
        try await backend.stop()
    }

    /// The application reports that it is offline while the server hangs up. Nothing is tried and nothing fails.
    @Test func offlineAndOnline() async throws {
        let isWorking = Mutex(false)
        let backend = try await ChatBackend { _ in isWorking.withLock { $0 } ? .status(200) : .hangUp }
        let listener = Listener()
        let queue = try queue(backend, listener)
        queue.setReachable(false)
        let tokens = [
            try await queue.append(NewRequest(post("/a"), lane: "1")),
            try await queue.append(NewRequest(APIRequestConfig(path: "/b"), lane: "2")),
        ]
        for token in tokens { #expect(await queue.obstacles(token) == ["there is no network"]) }
        #expect(backend.received.isEmpty && listener.all.isEmpty)
        isWorking.withLock { $0 = true }
        queue.setReachable(true)
        try await eventuallyAsync("both are done") { listener.all.count == 2 }
        #expect(listener.all.allSatisfy { $0.result == "success 200" })
        #expect(try queue.requests(states: [.done]).allSatisfy { $0.attempts == 1 })
        await queue.close()
        try await backend.stop()
    }

    /// A request is cancelled while it waits, while it is in flight, and after its end.
    @Test func cancellingInEveryState() async throws {
        let backend = try await ChatBackend { $0.uri == "/hang" ? .silence : .status(200) }
        let listener = Listener()
        let queue = try queue(backend, listener)
        let inFlight = try await queue.append(NewRequest(post("/hang"), lane: "1"))
        let pending = try await queue.append(NewRequest(post("/behind"), lane: "1"))
        try await eventuallyAsync("one is in flight") { backend.received.count == 1 }
        let interface: any APIClientQueuing = queue
        try await interface.cancel(pending)
        try await interface.cancel(inFlight)
        try await eventuallyAsync("both are cancelled") { listener.all.count == 2 }
        #expect(listener.all.map(\.token) == [pending, inFlight])
        #expect(listener.all.allSatisfy { $0.result == "aborted" })
        try await eventuallyAsync("the connection is closed") { backend.openConnections == 0 }
        let done = try await queue.append(NewRequest(post("/done"), lane: "1"))
        try await eventuallyAsync("it is done") { listener.all.count == 3 }
        for (token, state) in [(done, RequestState.done), (pending, .cancelled)] {
            await #expect(throws: QueueActError.finished(state)) { try await interface.cancel(token) }
        }
        await #expect(throws: QueueActError.unknown) { try await interface.cancel(RequestToken(high: 1, low: 1)) }
        #expect(backend.received.map(\.uri) == ["/hang", "/done"])
        await queue.close()
        try await backend.stop()
    }

    /// Names that the queue has learnt are known to reads outside of it, and to the application, also after a restart.
    @Test func namesAreKnownEverywhere() async throws {
        let backend = try await ChatBackend { received in
            received.method == "POST" ? .status(201, body: #"{"id":"42"}"#) : .status(200)
        }
        let store = InMemoryQueueStore()
        let listener = Listener()
        let first = try queue(backend, store: store, listener)
        await #expect(throws: APIError.queue("The backend has not named message:draft yet.")) {
            try await first.send(APIRequestConfig(path: "/messages/\(draft)"))
        }
        try await first.append(NewRequest(post("/messages"), creates: [draft]))
        try await eventuallyAsync("it is done") { listener.all.count == 1 }
        await first.close()
        let second = try queue(backend, store: store)
        let unknown = EntityReference(type: "message", local: "other")
        #expect(await second.remoteIdentifier(of: draft) == "42")
        #expect(await second.remoteIdentifier(of: unknown) == nil)
        #expect(await second.remoteIdentifiers(of: [draft, unknown]) == [draft: "42"])
        #expect(await second.remoteIdentifiers(of: [draft], tenant: "other").isEmpty)
        _ = try await second.send(APIRequestConfig(path: "/messages/\(draft)"))
        #expect(backend.received.last?.uri == "/messages/42")
        #expect(backend.received.last?.header("Authorization") == "Bearer key")
        await #expect(throws: APIError.noSession) { try await second.send(APIRequestConfig(path: "/me"), tenant: "x") }
        await second.close()
        try await backend.stop()
    }
}
