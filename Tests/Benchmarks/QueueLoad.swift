import ArgumentParser
import Dispatch
import Foundation
import NIOCore
import RequestQueue
import RequestQueueClient
import SQLiteQueue
import Synchronization

/// What is done to a queue for a while.
enum QueueWork: String, CaseIterable, ExpressibleByArgument {
    /// Requests are accepted and not sent.
    case append
    /// Each is accepted, sent, answered at once, and done.
    case cycle
}

/// The request queue as an application uses it, without a network: as many producers as wanted, each of which waits until its
/// request is accepted.
struct QueueLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue-load", abstract: "Prints requests a second and CPU µs a request of the request queue.")

    @Option(help: "The database file; it must not exist.") var path: String
    @Option(help: "append or cycle.") var work: QueueWork
    @Option(help: "Who appends at the same time.") var producers = 1
    @Option(help: "How long to go on.") var seconds = 3

    private struct Client: APIClient {
        let networkClient: any NetworkClient = InMemoryNetworkClient { (_) throws(NetworkFailure) in
            NetworkResponse(status: 200)
        }
        let identifier = "benchmark"
        let host = "http://127.0.0.1"
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
    }

    func run() throws {
        var settings = QueueMachine.Settings()
        settings.limits.requests = 10_000_000
        settings.limits.requestsPerTenant = 10_000_000
        settings.limits.bytes = 8 << 30
        settings.limits.bytesPerTenant = 8 << 30
        // Beside it stands a cycle of three changes; to forget what was done long ago would be a fourth.
        settings.limits.finished = 10_000_000
        settings.limits.inFlightPerTenant = 256
        settings.limits.inFlightPerHost = 256
        let queue = try APIClientQueue(
            client: Client(), store: try SQLiteQueueStore(path: self.path), settings: settings,
            sessions: self.work == .cycle ? ["": SessionKey(bearer: "key")] : [:])
        let (producers, seconds, work) = (self.producers, self.seconds, self.work)
        let output = Mutex<Result<String, any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        Task {
            do {
                let text = try await Self.measure(queue, producers, seconds, work)
                output.withLock { $0 = .success(text) }
            } catch {
                output.withLock { $0 = .failure(error) }
            }
            done.signal()
        }
        done.wait()
        Swift.print(try output.withLock { $0 }?.get() ?? "")
    }

    private static func measure(
        _ queue: APIClientQueue, _ producers: Int, _ seconds: Int, _ work: QueueWork
    ) async throws -> String {
        let body = [UInt8](repeating: 0x78, count: 200)
        let begin = NIODeadline.now()
        let cpu = clock()
        let end = begin + .seconds(Int64(seconds))
        let accepted = try await withThrowingTaskGroup(of: Int.self) { group in
            for producer in 0..<producers {
                group.addTask {
                    var count = 0
                    while NIODeadline.now() < end {
                        let config = APIRequestConfig(method: .post, path: "/rooms/1/send", body: .rawData(body))
                        // A lane for each, as each writes into a room of its own.
                        try await queue.append(NewRequest(config, lane: "\(producer)"))
                        count += 1
                    }
                    return count
                }
            }
            return try await group.reduce(0, +)
        }
        while work == .cycle, await queue.report().depth > 0 { try await Task.sleep(for: .milliseconds(1)) }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        let processor = Double(clock() - cpu) * 1e6 / Double(CLOCKS_PER_SEC)
        return "\(Double(accepted) / elapsed) \(processor / Double(accepted))"
    }
}
