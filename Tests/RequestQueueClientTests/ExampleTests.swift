import AsyncHTTPClient
import Foundation
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import RequestQueueURLSession
import SQLiteQueue
import TestKit
import Testing

/// The example of `Sources/RequestQueue/QUEUE.md`, as it stands there.
@Suite struct ExampleTests {
    struct Chat: APIClient {
        let networkClient: any NetworkClient
        let identifier = "chat"
        let host: String
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

        /// The backend answers a new message with `{"id": …}`.
        func identifiers(
            in response: APIClientResponse<Data>, for request: APIClientQueueRequest
        ) -> [EntityIdentifier] {
            struct Created: Decodable { var id: String }
            guard let draft = request.creates.first,
                let created = try? response.jsonCoderConfig.decoder.decode(Created.self, from: response.data)
            else { return [] }
            return [.both(type: draft.type, local: draft.local, remote: created.id)]
        }
    }

    @Test func inTheDocument() async throws {
        let backend = try await ChatBackend { received in
            received.method == "POST" ? .status(201, body: #"{"id":"42"}"#) : .status(204)
        }
        let folder = FileManager.default.temporaryDirectory.appending(path: "queue-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let file = folder.appending(path: "queue.sqlite").path
        let listener = Listener()

        let queue = try APIClientQueue(
            client: Chat(networkClient: URLSessionNetworkClient(), host: backend.url),
            store: SQLiteQueueStore(path: file), handlers: [listener])
        queue.setSession(SessionKey(bearer: "what the login gave"))

        // Stored when this returns, sent when it can be.
        let draft = EntityReference(type: "message", local: UUID().uuidString)
        try await queue.append(
            NewRequest(
                APIRequestConfig(method: .post, path: "/messages", body: .json(["text": "Helo"])),
                lane: "room-7", creates: [draft]))

        // An edit of a message that may not be sent yet: it waits for the backend's name and goes out with it.
        struct Edit: Encodable {
            var of: EntityReference
            var text: String
        }
        try await queue.append(
            NewRequest(
                APIRequestConfig(
                    method: .put, path: "/messages/\(draft)", body: try .json(encoding: Edit(of: draft, text: "Hello"))),
                lane: "room-7"))

        try await eventuallyAsync("both outcomes") { listener.all.count == 2 }
        #expect(backend.received.map(\.uri) == ["/messages", "/messages/42"])
        #expect(backend.received.last?.body == #"{"of":"42","text":"Hello"}"#)
        await queue.close()
        try await backend.stop()
    }

    /// A second one, for whoever waits for one answer.
    @Test func oneAnswerInTheDocument() async throws {
        let backend = try await ChatBackend { _ in .status(201, body: "done") }
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        let (bytes, key) = (Array("x".utf8), "1")

        var settings = QueueMachine.Settings()
        settings.keepsOutcomes = true
        // ...
        let queue = try APIClientQueue(
            client: Chat(networkClient: HTTPNetworkClient(http), host: backend.url), store: InMemoryQueueStore(),
            settings: settings)
        queue.setSession(SessionKey(bearer: "what the login gave"))
        let token = try await queue.append(
            NewRequest(
                APIRequestConfig(method: .post, path: .raw("/rooms/7/send?via=%2Fx"), body: .rawData(bytes)),
                lane: "room-7", idempotencyKey: key))
        let outcome = try await queue.outcome(of: token)  // Also of a token that an earlier process was given.

        #expect(outcome.body == Array("done".utf8))
        #expect(backend.received.map(\.uri) == ["/rooms/7/send?via=%2Fx"])
        await queue.close()
        try await http.shutdown()
        try await backend.stop()
    }

    /// Every line of the document's blocks stands here, in its order.
    @Test func theDocumentMatchesTheCode() throws {
        let here = URL(fileURLWithPath: #filePath)
        let root = here.deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        let document = try String(contentsOf: root.appending(path: "Sources/RequestQueue/QUEUE.md"), encoding: .utf8)
        let code = try String(contentsOf: here, encoding: .utf8).split(separator: "\n")
            .map { $0.trimmingCharacters(in: .whitespaces) }
        var rest = code[...]
        var count = 0
        for block in document.components(separatedBy: "```swift\n").dropFirst() {
            for line in (block.components(separatedBy: "```").first ?? "").split(separator: "\n") {
                let text = line.trimmingCharacters(in: .whitespaces)
                let place = try #require(rest.firstIndex(of: text), "not in the test: \(text)")
                rest = rest[(place + 1)...]
                count += 1
            }
        }
        #expect(count > 15)
    }
}
