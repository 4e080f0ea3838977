import ArgumentParser
import Dispatch
import Foundation
import NIOCore
import RequestQueue
import RequestQueueClient
import SQLiteQueue
import Synchronization

/// What else there is in the queue of somebody who writes now and then.
enum QueueCompany: String, CaseIterable, ExpressibleByArgument {
    /// Nothing.
    case nobody
    /// Another tenant who always has some thousand requests in it.
    case flood
    /// The same, under the name of the one who writes now and then: what a queue would do that knows lanes only.
    case sameTenant
}

/// How long the requests of one tenant take to reach the backend, from the call that appends them, beside what others do. The
/// backend takes ten milliseconds for each.
struct QueueShare: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue-share", abstract: "Prints the median and the 99th percentile of one tenant's waits, in µs.")

    @Option(help: "The database file; it must not exist.") var path: String
    @Option(help: "nobody, flood or sameTenant.") var company: QueueCompany
    @Option(help: "How long to go on.") var seconds = 3

    /// Ours: one request in so many milliseconds.
    private static let period = 10

    /// Notes when the requests arrive, which carry the time of their beginning.
    private struct Client: APIClient {
        let networkClient: any NetworkClient
        let identifier = "benchmark"
        let host = "http://127.0.0.1"
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()

        init(_ waits: Waits) {
            self.networkClient = InMemoryNetworkClient { (request) throws(NetworkFailure) in
                waits.arrived(request)
                try? await Task.sleep(for: .milliseconds(10))
                return NetworkResponse(status: 200)
            }
        }
    }

    private final class Waits: Sendable {
        /// How many requests the flood keeps in the queue.
        private static let high = 5000

        private let histogram = Mutex(Histogram())
        private let flood = Mutex((waiting: 0, arrived: 0))

        func arrived(_ request: NetworkRequest) {
            guard let begun = UInt64(String(decoding: request.body, as: UTF8.self)) else {
                return self.flood.withLock { ($0.waiting, $0.arrived) = ($0.waiting - 1, $0.arrived + 1) }
            }
            let wait = NIODeadline.now().uptimeNanoseconds - begun
            self.histogram.withLock { $0.record(nanoseconds: wait) }
        }

        /// Whether the flood may have one more; then it is counted.
        func rises() -> Bool {
            self.flood.withLock { flood in
                guard flood.waiting < Self.high else { return false }
                flood.waiting += 1
                return true
            }
        }

        /// Median and 99th percentile in µs, and how many arrived: of the one who writes now and then, and of the flood.
        var text: String {
            let arrived = self.flood.withLock { $0.arrived }
            return self.histogram.withLock {
                "\($0.microseconds(atShare: 0.5)) \($0.microseconds(atShare: 0.99)) \($0.count) \(arrived)"
            }
        }
    }

    func run() throws {
        let waits = Waits()
        let queue = try APIClientQueue(
            client: Client(waits), store: try SQLiteQueueStore(path: self.path),
            sessions: ["quiet": SessionKey(bearer: "key"), "flood": SessionKey(bearer: "other")])
        let (company, seconds) = (self.company, self.seconds)
        let done = DispatchSemaphore(value: 0)
        Task {
            await Self.load(queue, waits, company, seconds)
            done.signal()
        }
        done.wait()
        Swift.print(waits.text)
    }

    private static func load(_ queue: APIClientQueue, _ waits: Waits, _ company: QueueCompany, _ seconds: Int) async {
        let end = NIODeadline.now() + .seconds(Int64(seconds))
        await withTaskGroup(of: Void.self) { group in
            for producer in 0..<(company == .nobody ? 0 : 64) {
                group.addTask {
                    let tenant = company == .flood ? "flood" : "quiet"
                    let config = APIRequestConfig(method: .post, path: "/rooms/1/send", body: .rawData([0x78]))
                    while NIODeadline.now() < end {
                        if waits.rises() {
                            _ = try? await queue.append(NewRequest(config, tenant: tenant, lane: "\(producer)"))
                        } else {
                            try? await Task.sleep(for: .milliseconds(1))
                        }
                    }
                }
            }
            group.addTask {
                // The flood is there first.
                try? await Task.sleep(for: .milliseconds(500))
                while NIODeadline.now() < end {
                    let begun = "\(NIODeadline.now().uptimeNanoseconds)"
                    let config = APIRequestConfig(
                        method: .post, path: "/rooms/2/send", body: .rawData(Array(begun.utf8)))
                    _ = try? await queue.append(NewRequest(config, tenant: "quiet", lane: "own"))
                    try? await Task.sleep(for: .milliseconds(Self.period))
                }
            }
            await group.waitForAll()
        }
    }
}
