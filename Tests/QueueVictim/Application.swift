import AsyncHTTPClient
import RequestQueue
import RequestQueueClient
import SQLiteQueue

/// An application of the queue.
struct Application: APIClient {
    let networkClient: any NetworkClient
    let host: String
    let identifier = "victim"
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
}

/// Appends numbered requests in three lanes until the process ends, and says which are accepted. The numbers go on where those
/// of the process before ended.
func appendForEver(to url: String, path: String, _ say: (UInt64) -> Void) async throws {
    let store = try SQLiteQueueStore(path: path)
    var number = try store.load().highest
    let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
    var settings = QueueMachine.Settings()
    settings.limits.crashes = 1_000
    settings.backoff = Backoff(base: 1, cap: 5)
    let queue = try APIClientQueue(
        client: Application(networkClient: HTTPNetworkClient(http), host: url), store: store, settings: settings)
    while true {
        number += 1
        let lane = "\(number % 3)"
        try await queue.append(
            NewRequest(
                APIRequestConfig(
                    method: .post, path: "/\(lane)", body: .rawData(Array("\(number)".utf8)), includeSessionKey: false),
                lane: lane))
        say(number)
    }
}
