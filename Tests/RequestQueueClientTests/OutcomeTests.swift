import Foundation
import PeerKit
import RequestQueue
import RequestQueueClient
import SQLiteQueue
import Synchronization
import TestKit
import Testing

/// Who appends a request, or knows its token, is told how it ended.
@Suite struct OutcomeTests {
    /// A host in memory that says nothing until it is let go, and then one thing, byte for byte.
    private final class Host: NetworkClient {
        private let isOpen = Mutex(false)
        private let log = Mutex<[NetworkRequest]>([])
        let response: NetworkResponse

        init(_ response: NetworkResponse) { self.response = response }

        var received: [NetworkRequest] { log.withLock { $0 } }
        func open() { isOpen.withLock { $0 = true } }

        func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
            log.withLock { $0.append(request) }
            while !isOpen.withLock({ $0 }) {
                do { try await Task.sleep(for: .milliseconds(2)) } catch { throw .cancelled }
            }
            return response
        }
    }

    private static let answer = NetworkResponse(
        status: 201, headers: [.init("X-B", "2"), .init("X-A", "1"), .init("X-B", "3")], body: [0, 255, 0x7B])

    private func queue(_ host: Host, _ store: any QueueStore = InMemoryQueueStore()) throws -> APIClientQueue {
        var settings = QueueMachine.Settings()
        settings.keepsOutcomes = true
        return try APIClientQueue(
            client: ChatClient(networkClient: host, host: "http://host.invalid"), store: store, settings: settings)
    }

    private func write(_ key: String? = nil, body: [UInt8] = [1]) -> NewRequest {
        NewRequest(
            APIRequestConfig(method: .post, path: "/a", body: .rawData(body), includeSessionKey: false),
            idempotencyKey: key)
    }

    private func expectAnswer(_ outcome: RequestOutcome) {
        #expect(outcome.result == .success(status: Self.answer.status))
        #expect(outcome.headers == Self.answer.headers && outcome.body == Self.answer.body)
    }

    /// The process before has closed its store when its last thread and its last attempt have let go of it.
    private func store(_ path: String) async throws -> SQLiteQueueStore {
        var store: SQLiteQueueStore?
        try await eventuallyAsync("the store is closed") {
            store = try? SQLiteQueueStore(path: path)
            return store != nil
        }
        return try #require(store)
    }

    @Test func beforeAndAfterTheEnd() async throws {
        let host = Host(Self.answer)
        let queue = try queue(host)
        let token = try await queue.append(write())
        let waiting = (0..<3).map { _ in Task { try await queue.outcome(of: token) } }
        try await eventuallyAsync("it is under way") { !host.received.isEmpty }
        host.open()
        for task in waiting { expectAnswer(try await task.value) }
        expectAnswer(try await queue.outcome(of: token))
        await queue.close()
        // What is stored can be told by a queue that is closed.
        expectAnswer(try await queue.outcome(of: token))
    }

    /// A backend whose cookies are for whoever watches, and whose 401 ends a request.
    private struct Careful: APIClient {
        let networkClient: any NetworkClient
        let identifier = "careful"
        let host = "http://host.invalid"
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
        func keepsHeader(_ name: String) -> Bool { name != "X-A" }
        func waitsForLogin(_ request: APIClientQueueRequest, refused _: SessionKey) -> Bool { request.attempts > 1 }
    }

    @Test func whatIsNotStored() async throws {
        let host = Host(Self.answer)
        host.open()
        var settings = QueueMachine.Settings()
        settings.keepsOutcomes = true
        let seen = Mutex<[String]>([])
        let queue = try APIClientQueue(
            client: Careful(networkClient: host), store: InMemoryQueueStore(), settings: settings
        ) { event in
            guard case .answered(_, .success(_, let headers, _, _, _)) = event else { return }
            seen.withLock { $0 += headers.map(\.name) }
        }
        let outcome = try await queue.outcome(of: queue.append(write()))
        #expect(outcome.headers.map(\.name) == ["X-B", "X-B"])
        #expect(seen.withLock { $0 } == ["X-B", "X-A", "X-B"])
        await queue.close()
    }

    @Test func aRefusalThatIsFinalKeepsNobodyElseWaiting() async throws {
        let host = Host(NetworkResponse(status: 401, body: [7]))
        host.open()
        var settings = QueueMachine.Settings()
        settings.keepsOutcomes = true
        let queue = try APIClientQueue(
            client: Careful(networkClient: host), store: InMemoryQueueStore(), settings: settings,
            sessions: ["": SessionKey(bearer: "key")])
        for _ in 0..<2 {
            let token = try await queue.append(APIRequestConfig(method: .post, path: "/a"))
            let outcome = try await queue.outcome(of: token)
            #expect(outcome.result == .failure(status: 401) && outcome.body == [7])
        }
        #expect(await queue.waitingForSession().isEmpty)
        await queue.close()
    }

    @Test func ofAProcessBefore() async throws {
        let scratch = try ScratchDirectory()
        let path = scratch.file("queue.sqlite")
        let host = Host(Self.answer)
        var tokens: [RequestToken] = []
        do {
            let queue = try queue(host, try await store(path))
            host.open()
            tokens.append(try await queue.append(write()))
            expectAnswer(try await queue.outcome(of: tokens[0]))
            await queue.close()
        }
        let silent = Host(Self.answer)
        do {
            let queue = try queue(silent, try await store(path))
            tokens.append(try await queue.append(write()))
            try await eventuallyAsync("the second is under way") { !silent.received.isEmpty }
            await queue.close(deadline: .zero)
        }
        let queue = try queue(silent, try await store(path))
        expectAnswer(try await queue.outcome(of: tokens[0]))
        let second = tokens[1]
        let waiting = Task { try await queue.outcome(of: second) }
        silent.open()
        expectAnswer(try await waiting.value)
        await queue.close()
    }

    @Test func theWordsOfAFailureAreTheBackends() async throws {
        let host = Host(NetworkResponse(status: 403, headers: [.init("X-Why", "quota")], body: Array("no".utf8)))
        host.open()
        let queue = try queue(host)
        let outcome = try await queue.outcome(of: try await queue.append(write()))
        #expect(outcome.result == .failure(status: 403))
        #expect(outcome.headers == host.response.headers && outcome.body == host.response.body)
        await queue.close()
    }

    @Test func oneKeyIsOneRequestAndOneAnswer() async throws {
        let host = Host(Self.answer)
        let queue = try queue(host)
        #expect(try await queue.request(idempotencyKey: "k") == nil)
        let token = try await queue.append(write("k"))
        // Again while it is under way, and again when it is done.
        #expect(try await queue.append(write("k")) == token)
        #expect(try await queue.request(idempotencyKey: "k")?.token == token)
        #expect(try await queue.request(idempotencyKey: "k", tenant: "other") == nil)
        host.open()
        expectAnswer(try await queue.outcome(of: token))
        #expect(try await queue.append(write("k")) == token)
        #expect(try await queue.request(idempotencyKey: "k")?.state == .done)
        // Other bytes under the same key are another request: who seals looks for the key first.
        await #expect(throws: QueueError.keyReused) { try await queue.append(write("k", body: [2])) }
        #expect(host.received.count == 1)
        await queue.close()
    }

    @Test func whoNeedNotWait() async throws {
        let host = Host(Self.answer)
        let queue = try queue(host)
        await #expect(throws: QueueActError.unknown) { try await queue.outcome(of: RequestToken(high: 0, low: 0)) }
        let token = try await queue.append(write())
        let impatient = Task { try await queue.outcome(of: token) }
        let patient = Task { try await queue.outcome(of: token) }
        try await eventuallyAsync("it is under way") { !host.received.isEmpty }
        impatient.cancel()
        await #expect(throws: CancellationError.self) { try await impatient.value }
        let late = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await queue.outcome(of: token)
        }
        await #expect(throws: CancellationError.self) { try await late.value }
        await queue.close(deadline: .zero)
        await #expect(throws: QueueError.closed) { try await patient.value }
        await #expect(throws: QueueError.closed) { try await queue.outcome(of: token) }
    }

    @Test func cancelledReplacedAndSentAgain() async throws {
        let host = Host(Self.answer)
        let queue = try queue(host)
        let running = try await queue.append(write())
        var draft = write()
        draft.coalescingKey = "draft"
        let replaced = try await queue.append(draft)
        let waiting = Task { try await queue.outcome(of: replaced) }
        try await queue.append(draft)
        #expect(try await waiting.value.result == .aborted)
        try await queue.cancel(running)
        #expect(try await queue.outcome(of: running).result == .aborted)
        await queue.close(deadline: .zero)
    }

    /// The commit that would store the outcome fails: nobody is told what is not stored, and all are told when it is.
    @Test func nothingIsReportedThatIsNotStored() async throws {
        let store = InMemoryQueueStore()
        let host = Host(Self.answer)
        let queue = try queue(host, store)
        let token = try await queue.append(write())
        try await eventuallyAsync("it is under way") { !host.received.isEmpty }
        store.failCommits(2)
        host.open()
        let outcome = try await queue.outcome(of: token)
        expectAnswer(outcome)
        #expect(try store.outcome(token) == outcome)
        await queue.close()
    }

    // MARK: As it came

    @Test func targetHeadersAndBytesAsTheyAre() async throws {
        let stage = try await ClientQueueTests.Stage { _ in .status(200, headers: ["X-Answer": "yes"], body: "ok") }
        let queue = try stage.queue(Listener())
        for target in [
            "/a%2Fb/%c3%A9//c/.././?x=%20+&&y", "/r/$ev:host;v=1/(a,b)!*'@~", "/?q=1?2/3", "/%00",
        ] {
            var headers = Parameters()
            for (name, value) in [("X-B", "2"), ("x-a", " 1"), ("X-B", "3"), ("Idempotency-Key", "own")] {
                headers.items.append(.init(name: name, value: .text(value)))
            }
            let token = try await queue.append(
                NewRequest(
                    APIRequestConfig(
                        method: .put, path: .raw(target), headers: headers, body: .rawData(Array("b\u{0}\r\n".utf8)),
                        includeSessionKey: false)))
            let outcome = try await queue.outcome(of: token)
            #expect(outcome.headers.contains(.init("X-Answer", "yes")) && outcome.body == Array("ok".utf8))
            let received = try #require(stage.backend.received.last)
            #expect(received.uri == "/api" + target && received.body == "b\u{0}\r\n")
            let names = ["x-b", "x-a", "idempotency-key"]
            let sent = received.headers.filter { names.contains($0.0.lowercased()) }
            #expect(sent.map(\.0) == ["X-B", "x-a", "X-B", "Idempotency-Key"])
            #expect(sent.map { $0.1.trimmingCharacters(in: .whitespaces) } == ["2", "1", "3", "own"])
        }
        for target in ["/a b", "/a#b", "/é", "/a\r\nX: y"] {
            await #expect(throws: QueueError.malformed("its raw path is no request target")) {
                try await queue.append(APIRequestConfig(method: .post, path: .raw(target)))
            }
        }
        await queue.close()
        try await stage.stop()
    }
}
