import AsyncHTTPClient
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import SQLiteQueue

/// An application of the queue.
struct Application: APIClient {
    let networkClient: any NetworkClient
    let host: String
    let identifier = "victim"
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
}

/// How many a process appends at most: who is to kill it may be late, and all that is accepted has to be sent in the end.
private let most = 100

/// Appends numbered requests in three lanes, says which are accepted, and goes on sending until the process ends. The numbers go on
/// where those of the process before ended.
func appendForEver(to url: String, path: String, _ report: (UInt64) -> Void) async throws {
    let store = try SQLiteQueueStore(path: path)
    var number = try store.load().highest
    let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
    var settings = QueueMachine.Settings()
    settings.backoff = Backoff(base: 1, cap: 5)
    let queue = try APIClientQueue(
        client: Application(networkClient: HTTPNetworkClient(http), host: url), store: store, settings: settings)
    for _ in 0..<most {
        number += 1
        let lane = "\(number % 3)"
        try await queue.append(
            NewRequest(
                APIRequestConfig(
                    method: .post, path: "/\(lane)", body: .rawData(Array("\(number)".utf8)), includeSessionKey: false),
                lane: lane))
        report(number)
    }
    while true { try await Task.sleep(for: .seconds(60)) }
}
