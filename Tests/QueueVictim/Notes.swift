// The application of the tutorial in `RequestQueueClient.docc/GettingStarted.md`, whose code stands here.

import Foundation
import RequestQueue
import RequestQueueClient
import RequestQueueURLSession
import SQLiteQueue

/// A note, as the server's API has it.
struct Note: Codable, Sendable {
    var text: String
}

/// The server.
struct NotesClient: APIClient {
    let host: String
    let identifier = "notes"
    let networkClient: any NetworkClient = URLSessionNetworkClient()
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
    let logHandler: (@Sendable (APIClientLogEntry) -> Void)? = { entry in print(entry) }
}

/// Receives the outcomes of all requests, also of those that an earlier process appended.
final class NoteOutcomes: APIClientQueueResponseHandler {
    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        switch result {
        case .success(let response): print("saved:", (try? response.decoded(as: Note.self).text) ?? "")
        case .aborted: print("cancelled")
        case .failure(let error): print("not saved:", error)
        }
    }
}

/// Opens the queue in a file. Reading the file can take a while, so it is not done on the main actor.
@concurrent func openQueue(file: String, host: String) async throws -> APIClientQueue {
    let store = try SQLiteQueueStore(path: file)
    return try APIClientQueue(client: NotesClient(host: host), store: store, handlers: [NoteOutcomes()])
}

/// Saves a note. When this returns the note is on the disk, and will be sent.
func save(_ note: Note, in queue: APIClientQueue) async throws -> RequestToken {
    let request = APIRequestConfig(
        method: .post, path: "/notes", body: try .json(encoding: note), tag: "new note")
    return try await queue.append(NewRequest(request, lane: "notes"))
}

/// Reads a note at once, outside of the queue.
func note(_ id: String, in queue: APIClientQueue) async throws -> Note {
    try await queue.send(APIRequestConfig(path: "/notes/\(id)")).decoded()
}

/// Runs the application: saves a note if there is one, and sends what the last process has left.
func runNotes(file: String, host: String, text: String) async throws {
    let queue = try await openQueue(file: file, host: host)
    queue.setSession(SessionKey(bearer: "what the login gave"))
    if !text.isEmpty { _ = try await save(Note(text: text), in: queue) }
    // Lines to a pipe are buffered otherwise.
    while true {
        fflush(nil)
        try await Task.sleep(for: .milliseconds(5))
    }
}
