import Foundation
import RequestQueue
import RequestQueueClient
import Synchronization
import TestKit
import Testing

/// The examples of the document that users of such a queue write against, with these substitutions:
///
/// - completions and publishers are `async`: `prepareRequest(_:)` returns, handlers are `async`, `merge(with:)` is `try await`;
/// - `CoreManagerContainerClientQueueResponseHandler` is ``APIClientQueueResponseHandler``, because the stores of an application are
///   its own; it is given to the queue by `init(handlers:)` or `register(_:)` in place of a function named in a YAML file;
/// - `case .error` is `case .failure`, beside `case .aborted`;
/// - `clientQueue: APIClientQueuing` is `any APIClientQueuing`.
@Suite struct DocumentTests {
    struct MyEntityIdentifier: Codable, Sendable {
        var local: String
    }

    struct MyEntityPayload: Decodable {
        var id: String
    }

    /// Stands for a store of the application.
    final class MyEntities: Sendable {
        private let names = Mutex<[String: String]>([:])
        func setAndUpdateIdentifierInLocalStores(_ identifier: EntityIdentifier, originTimestamp: Int64) async {
            guard let local = identifier.local, let remote = identifier.remote, originTimestamp > 0 else { return }
            names.withLock { $0[local] = remote }
        }
        subscript(local: String) -> String? { names.withLock { $0[local] } }
    }

    final class MyResponseClientQueueHandler: APIClientQueueResponseHandler {
        let entities = MyEntities()

        func clientQueue(
            _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
            for request: APIClientQueueRequest
        ) async {
            guard request.wrapped.config.path == "/api/my_entity", request.wrapped.config.method == .post else {
                return
            }
            guard let localIDsData = request.identifiers else { return }
            switch result {
            case .success(let response):
                let decoder = response.jsonCoderConfig.decoder
                do {
                    // Decode local identifier used to save locally before sending the request.
                    let local = try decoder.decode(MyEntityIdentifier.self, from: localIDsData)
                    // Decode result from server.
                    let payload = try decoder.decode(MyEntityPayload.self, from: response.data)
                    let identifier = try EntityIdentifier.remote(type: "my_entity", payload.id)
                        .merged(with: .local(type: "my_entity", local.local))
                    // Other requests in the queue that depend on this identifier get their remote counterpart.
                    try await clientQueue.merge(with: identifier)
                    await entities.setAndUpdateIdentifierInLocalStores(identifier, originTimestamp: request.timestamp)
                } catch {
                    Issue.record("\(error)")
                }
            case .aborted, .failure: Issue.record("\(result)")
            }
        }
    }

    struct MyClient: APIClient {
        let networkClient: any NetworkClient
        let identifier = "my_client"
        let host = "https://my_server.example/api/v1"
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

        func prepareRequest(_ requestConfig: APIRequestConfig) async -> APIRequestConfig {
            var config = requestConfig
            config.headers.items.append(.init(name: "X-Api-Key", value: "k"))
            return config
        }

        func errorPayload(from body: Data) -> APIErrorPayload? { nil }
    }

    /// The handler learns the identifier after the response, and the requests that wait for it go out with it.
    @Test func aHandlerMergesWhatTheServerCallsIt() async throws {
        let sent = Mutex<[NetworkRequest]>([])
        let network = InMemoryNetworkClient { (request) throws(NetworkFailure) in
            sent.withLock { $0.append(request) }
            return NetworkResponse(status: 200, body: Array(#"{"id":"42"}"#.utf8))
        }
        let handler = MyResponseClientQueueHandler()
        let queue = try APIClientQueue(
            client: MyClient(networkClient: network), store: InMemoryQueueStore(),
            sessions: ["": SessionKey(bearer: "s")], handlers: [handler])
        let local = try JSONEncoder().encode(MyEntityIdentifier(local: "L1"))
        try await queue.append(
            NewRequest(APIRequestConfig(method: .post, path: "/api/my_entity"), identifiers: Array(local)))
        let reference = EntityReference(type: "my_entity", local: "L1")
        try await queue.append(
            APIRequestConfig(
                method: .put, path: "/api/my_entity/\(reference)", query: ["of": .reference(reference)],
                body: .formURLEncoded(["id": .reference(reference)]), timeoutInterval: 40_000, tag: "rename"))
        try await eventuallyAsync("both are sent") { sent.withLock { $0.count } == 2 }
        let last = try #require(sent.withLock { $0.last })
        #expect(last.url == "https://my_server.example/api/v1/api/my_entity/42?of=42")
        #expect(last.body == Array("id=42".utf8))
        // Less what the preparation has taken; the client's own is longer.
        #expect((1...40_000).contains(last.timeoutInterval))
        #expect(last.header("x-api-key") == "k" && last.header("authorization") == "Bearer s")
        try await eventuallyAsync("the local store has it") { handler.entities["L1"] == "42" }
        await queue.close()
    }
}
