import Foundation
import RequestQueue
import RequestQueueClient
import RequestQueueURLSession
import Synchronization
import TestKit
import Testing

// The application of the document. What Lucid's code generator makes for it stands here: `CoreManagerContainer`,
// `CoreManagerContainerClientQueueResponseHandler`, the entity, its manager and its payload.

@MainActor
protocol CoreManagerContainerClientQueueResponseHandler: APIClientQueueResponseHandler {
    var managers: CoreManagerContainer? { get set }
}

@MainActor
final class CoreManagerContainer {
    let myEntityManager = MyEntityManager()
}

typealias MyEntityIdentifier = EntityIdentifier

struct MyEntity {
    struct Payload: Decodable {
        var id: String
    }
    private(set) var identifier: MyEntityIdentifier

    init(payload: Payload) { identifier = .remote(type: "my_entity", payload.id) }
    mutating func merge(identifier other: MyEntityIdentifier) throws { identifier = try identifier.merged(with: other) }
}

struct DefaultEndpointMyEntityPayload: Decodable {
    var entityPayload: MyEntity.Payload
    var myEntityID: MyEntityIdentifier { .remote(type: "my_entity", entityPayload.id) }

    init(from decoder: any Decoder) throws { entityPayload = try MyEntity.Payload(from: decoder) }
}

@MainActor
final class MyEntityManager {
    private(set) var entities: [String: MyEntity] = [:]
    private(set) var asked: [String] = []

    func get(byID identifier: MyEntityIdentifier) async throws -> MyEntity? {
        asked.append(identifier.remote ?? "")
        return identifier.remote.flatMap { entities[$0] }
    }

    func setAndUpdateIdentifierInLocalStores(_ entity: MyEntity, originTimestamp: Int64) async throws {
        guard let remote = entity.identifier.remote, originTimestamp > 0 else { return }
        entities[remote] = entity
    }
}

// The first example: registering a response handler.

extension CoreManagerContainer {
    static func makeResponseHandler() -> (any CoreManagerContainerClientQueueResponseHandler)? {
        return MyResponseClientQueueHandler()
    }
}

@MainActor
final class MyResponseClientQueueHandler: CoreManagerContainerClientQueueResponseHandler {

    weak var managers: CoreManagerContainer?

    func clientQueue(
        _ clientQueue: any APIClientQueuing,
        didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        await forward(clientQueue, didReceiveResponse: result, for: request)
        await synchronize(clientQueue, didReceiveResponse: result, for: request)
    }

    // The second example: forward a response to a manager.

    private func forward(
        _ clientQueue: any APIClientQueuing,
        didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        guard request.wrapped.config.path == "/api/my_entity", request.wrapped.config.method == .post else {
            return
        }

        switch result {
        case .success(let response):
            let payloadDecoder = response.jsonCoderConfig.decoder

            do {
                let result = try payloadDecoder.decode(DefaultEndpointMyEntityPayload.self, from: response.data)
                _ = try await managers?
                    .myEntityManager
                    .get(byID: result.myEntityID)
            } catch {
                Issue.record("\(error)")
            }

        case .aborted:
            break

        case .failure(let error):
            Issue.record("\(error)")
        }
    }

    // The third example: synchronize a local entity's identifier with its remote counterpart.

    private func synchronize(
        _ clientQueue: any APIClientQueuing,
        didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        guard request.wrapped.config.path == "/api/my_entity", request.wrapped.config.method == .post else {
            return
        }

        guard let localIDsData = request.identifiers else {
            return
        }

        switch result {
        case .success(let response):
            let decoder = response.jsonCoderConfig.decoder

            do {
                // The local identifier, under which the entity was saved before the request was sent.
                let localIdentifier = try decoder.decode(MyEntityIdentifier.self, from: localIDsData)

                // The server's result.
                let result = try decoder.decode(DefaultEndpointMyEntityPayload.self, from: response.data)
                var myEntity = MyEntity(payload: result.entityPayload)

                // The remote identifier and its local counterpart are one.
                try myEntity.merge(identifier: localIdentifier)

                // Requests in the queue that depend on this identifier get its remote counterpart.
                try await clientQueue.merge(with: myEntity.identifier)

                // The local stores get the new identifier.
                try await managers?
                    .myEntityManager
                    .setAndUpdateIdentifierInLocalStores(myEntity, originTimestamp: request.timestamp)
            } catch {
                Issue.record("\(error)")
            }

        case .aborted:
            break

        case .failure(let error):
            Issue.record("\(error)")
        }
    }
}

// The client that the document asks for, with its four properties and two methods.

struct MyClient: APIClient {
    var networkClient: any NetworkClient = URLSessionNetworkClient()
    let identifier = "my_client"
    let host: String
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
    var logHandler: (@Sendable (APIClientLogEntry) -> Void)?

    func prepareRequest(_ requestConfig: APIRequestConfig) async -> APIRequestConfig {
        var config = requestConfig
        config.headers.items.append(.init(name: "X-Api-Key", value: "k"))
        return config
    }

    func errorPayload(from body: Data) -> APIErrorPayload? {
        struct Payload: Decodable {
            var message: String
        }
        return (try? JSONDecoder().decode(Payload.self, from: body)).map { APIErrorPayload(message: $0.message) }
    }
}

/// The document that users of such a queue write against: its examples above, and each attribute of its table.
///
/// Substitutions:
///
/// - Completions and publishers are `async`: `prepareRequest(_:)` returns its result, the handler's function is `async`, and
///   `merge(with:)`, `get(byID:)` and `setAndUpdateIdentifierInLocalStores` are `try await` in place of `sink` and `store`.
/// - `case .error` is `case .failure`. Beside it there is `case .aborted`, for requests that were cancelled or replaced.
/// - The handler is on the main actor, because it has a variable and the queue calls it from its own threads; a `weak`
///   variable needs `?`. It is given to the queue by `register(_:)`, in place of a function that a YAML file names.
/// - Protocols as types have `any`. `merge(identifier:)` of a value is `mutating` and throws.
/// - `URLSession` is `URLSessionNetworkClient`, which has one of its own: another one would follow redirections.
/// - `timeoutInterval` is in milliseconds, `timestamp` in milliseconds since 1970.
/// - `NSURLError` codes in a retry policy are HTTP statuses here; failures of the network have policies of their own.
@Suite struct DocumentTests {
    private func queue(_ client: MyClient, handlers: [any APIClientQueueResponseHandler] = []) throws -> APIClientQueue
    {
        var settings = QueueMachine.Settings()
        settings.backoff = Backoff(base: 10, cap: 50)
        return try APIClientQueue(
            client: client, store: InMemoryQueueStore(), settings: settings, sessions: ["": SessionKey(bearer: "s")],
            handlers: handlers, awaitsHandlers: true)
    }

    /// The handler learns the identifier after the response, and the requests that wait for it go out with it.
    @Test func aHandlerMergesTheIdentifierOfTheServer() async throws {
        let backend = try await ChatBackend { _ in .status(200, body: #"{"id":"42"}"#) }
        let queue = try queue(MyClient(host: backend.url + "/api/v1"))
        let managers = CoreManagerContainer()
        let handler = try #require(
            await MainActor.run {
                let handler = CoreManagerContainer.makeResponseHandler()
                handler?.managers = managers
                return handler
            })
        queue.register(handler)
        let local = MyEntityIdentifier.local(type: "my_entity", "L1")
        try await queue.append(
            NewRequest(
                APIRequestConfig(method: .post, path: "/api/my_entity"),
                identifiers: Array(try JSONEncoder().encode(local))))
        let reference = try #require(local.reference)
        try await queue.append(
            APIRequestConfig(
                method: .put, path: "/api/my_entity/\(reference)", query: ["of": .reference(reference)],
                body: .formURLEncoded(["id": .reference(reference)]), tag: "rename"))
        try await eventuallyAsync("both are sent") { backend.received.count == 2 }
        let last = try #require(backend.received.last)
        #expect(last.uri == "/api/v1/api/my_entity/42?of=42" && last.body == "id=42")
        try await eventuallyAsync("the local store has it") {
            await managers.myEntityManager.entities["42"]?.identifier.local == "L1"
        }
        #expect(await managers.myEntityManager.asked == ["42"])
        #expect(await queue.remoteIdentifier(of: reference) == "42")
        // A read at once, outside of the queue, by the name that the application knows.
        let response = try await queue.send(APIRequestConfig(path: "/api/my_entity/\(reference)"))
        #expect(response.status == 200 && backend.received.last?.uri == "/api/v1/api/my_entity/42")
        await queue.close()
        try await backend.stop()
    }

    // MARK: Each attribute has an effect

    private struct Done {
        var received: [ChatBackend.Received]
        var log: [String]
    }

    /// Sends requests through a queue to a server on loopback, and waits until all are done.
    private func send(_ configs: APIRequestConfig...) async throws -> Done {
        let silent = Mutex(1)
        let backend = try await ChatBackend(latency: 1) { received in
            let isFirst = silent.withLock { left in
                defer { left = 0 }
                return left == 1
            }
            return received.uri.contains("slow") && isFirst ? .silence : .status(200)
        }
        let log = Mutex<[String]>([])
        let queue = try queue(
            MyClient(host: backend.url + "/api") { entry in log.withLock { $0.append("\(entry)") } })
        for (index, config) in configs.enumerated() {
            var config = config
            if config.host == "other" { config.host = backend.url + "/other" }
            try await queue.append(NewRequest(config, lane: "\(index)"))
        }
        try await eventuallyAsync("all are done") { await queue.report().counts.done == configs.count }
        await queue.close()
        let received = backend.received
        try await backend.stop()
        return Done(received: received, log: log.withLock { $0 })
    }

    @Test func methodPathHostAndQuery() async throws {
        let plain = try await send(APIRequestConfig(path: "/a")).received
        #expect(plain.map(\.method) == ["GET"] && plain.map(\.uri) == ["/api/a"])
        let other = try await send(
            APIRequestConfig(
                method: .put, path: "/a", host: "other", query: ["k": "v", "l": .list([.text("1"), .text("2")])])
        ).received
        #expect(other.map(\.method) == ["PUT"] && other.map(\.uri) == ["/other/a?k=v&l%5B%5D=1&l%5B%5D=2"])
    }

    @Test func headersAndBody() async throws {
        let raw = try await send(
            APIRequestConfig(method: .post, path: "/a", headers: ["X-A": "b"], body: .rawData(Array("raw".utf8)))
        ).received
        #expect(raw.map(\.body) == ["raw"] && raw[0].header("X-A") == "b" && raw[0].header("X-Api-Key") == "k")
        let form = try await send(
            APIRequestConfig(method: .post, path: "/a", body: .formURLEncoded(["a b": "c&d"]))
        ).received
        #expect(form.map(\.body) == ["a%20b=c%26d"])
        #expect(form[0].header("Content-Type") == "application/x-www-form-urlencoded")
    }

    @Test(arguments: [true, false]) func includeSessionKey(_ includes: Bool) async throws {
        let done = try await send(APIRequestConfig(method: .post, path: "/a", includeSessionKey: includes))
        #expect(done.received.map { $0.header("Authorization") } == [includes ? "Bearer s" : nil])
    }

    /// The attempt is cancelled, and the request is sent again.
    @Test func timeoutInterval() async throws {
        let done = try await send(APIRequestConfig(method: .post, path: "/slow", timeoutInterval: 2000))
        // On a busy machine a later answer may be late as well, and the queue may cancel the attempt before the client
        // has seen that its time is over.
        #expect(done.received.count >= 2)
        let failed = "my_client: POST /slow: failed: "
        #expect(done.log.contains { [failed + "no answer came in time", failed + "it was cancelled"].contains($0) })
    }

    @Test func tagAndIdentifier() async throws {
        let done = try await send(APIRequestConfig(method: .post, path: "/a", tag: "rename"))
        #expect(done.log.last == "my_client: POST /a (rename): done")
    }

    /// Reads in the queue and one beside it, at the same time.
    @Test(arguments: [true, false]) func deduplicate(_ deduplicates: Bool) async throws {
        let isOpen = Mutex(false)
        let sent = Mutex(0)
        let network = InMemoryNetworkClient { (_) throws(NetworkFailure) in
            sent.withLock { $0 += 1 }
            while !isOpen.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(2)) }
            return NetworkResponse(status: 200)
        }
        let queue = try queue(MyClient(networkClient: network, host: "https://my_server.example"))
        let config = APIRequestConfig(path: "/me", deduplicate: deduplicates)
        for lane in ["a", "b", "c"] { try await queue.append(NewRequest(config, lane: lane)) }
        let direct = Task { try await queue.send(config).status }
        try await eventuallyAsync("they are under way") {
            await queue.report().inFlight == 3 && sent.withLock { $0 } >= (deduplicates ? 1 : 4)
        }
        isOpen.withLock { $0 = true }
        try await eventuallyAsync("all are done") { await queue.report().counts.done == 3 }
        #expect(try await direct.value == 200)
        // The direct one may have come after the others' answer; that is another call.
        #expect(deduplicates ? sent.withLock { $0 } <= 2 : sent.withLock { $0 } == 4)
        await queue.close()
    }

    /// Barriers go one after the other, concurrent requests together.
    @Test(arguments: [QueueingStrategy.Synchronization.barrier, .concurrent])
    func queueingStrategy(_ synchronization: QueueingStrategy.Synchronization) async throws {
        let isOpen = Mutex(false)
        let network = InMemoryNetworkClient { (_) throws(NetworkFailure) in
            while !isOpen.withLock({ $0 }) { try? await Task.sleep(for: .milliseconds(2)) }
            return NetworkResponse(status: 200)
        }
        let queue = try queue(MyClient(networkClient: network, host: "https://my_server.example"))
        for number in 0..<3 {
            try await queue.append(
                APIRequestConfig(
                    method: .post, path: "/\(number)",
                    queueingStrategy: .init(synchronization: synchronization, retryPolicy: [])))
        }
        let expected = synchronization == .barrier ? 1 : 3
        try await eventuallyAsync("they are under way") { await queue.report().inFlight == expected }
        isOpen.withLock { $0 = true }
        try await eventuallyAsync("all are done") { await queue.report().counts.done == 3 }
        await queue.close()
    }
}
