import ArgumentParser
import AsyncHTTPClient
import Dispatch
import Foundation
import NIOCore
import NIOPosix
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import SQLiteQueue
import Synchronization

/// What a backend does to a queue that speaks to it over sockets.
enum QueueBackend: String, CaseIterable, ExpressibleByArgument {
    /// It does not answer in twelve conversations of one person; ten others write ten messages each.
    case hanging
    /// It takes 300 milliseconds for each answer; twenty people write in thirty conversations each.
    case slow
}

/// The request queue with the limits that it has by default, and a server on loopback.
struct QueueSockets: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue-sockets",
        abstract: "Prints milliseconds until all messages of others have arrived (hanging), or writes a second (slow).")

    @Option(help: "The database file; it must not exist.") var path: String
    @Option(help: "hanging or slow.") var backend: QueueBackend
    @Option(help: "How long to go on, where the backend is slow.") var seconds = 3

    /// Milliseconds that a slow backend takes.
    static let latency: Int64 = 300

    private struct Client: APIClient {
        let networkClient: any NetworkClient
        let identifier = "benchmark"
        let host: String
        let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
    }

    func run() throws {
        let arrived = Arrivals()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(SlowConnection(arrived))
                }
            }
            .bind(host: "127.0.0.1", port: 0).wait()
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        let tenants = ["hung"] + (0..<20).map { "p\($0)" }
        let queue = try APIClientQueue(
            client: Client(
                networkClient: HTTPNetworkClient(http), host: "http://127.0.0.1:\(server.localAddress?.port ?? 0)"),
            store: try SQLiteQueueStore(path: self.path),
            sessions: Dictionary(uniqueKeysWithValues: tenants.map { (ExactText($0), SessionKey(bearer: $0)) }))
        let (backend, seconds) = (self.backend, self.seconds)
        let output = Mutex<Result<String, any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        Task {
            do {
                let text =
                    switch backend {
                    case .hanging: try await Self.hanging(queue, arrived)
                    case .slow: try await Self.slow(queue, arrived, seconds)
                    }
                output.withLock { $0 = .success(text) }
            } catch {
                output.withLock { $0 = .failure(error) }
            }
            done.signal()
        }
        done.wait()
        Swift.print(try output.withLock { $0 }?.get() ?? "")
    }

    private static func append(_ queue: APIClientQueue, _ kind: String, _ tenant: String, _ lane: String) async throws {
        let config = APIRequestConfig(
            method: .post, path: .raw("/\(kind)/\(lane)"), body: .rawData([UInt8](repeating: 0x78, count: 200)))
        try await queue.append(NewRequest(config, tenant: tenant, lane: lane))
    }

    private static func hanging(_ queue: APIClientQueue, _ arrived: Arrivals) async throws -> String {
        for number in 0..<12 { try await Self.append(queue, "hang", "hung", "h\(number)") }
        while arrived.hung < 12 { try await Task.sleep(for: .milliseconds(1)) }
        let begin = NIODeadline.now()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for person in 0..<10 {
                group.addTask {
                    for _ in 0..<10 { try await Self.append(queue, "now", "p\(person)", "c\(person)") }
                }
            }
            try await group.waitForAll()
        }
        while arrived.count < 100 { try await Task.sleep(for: .milliseconds(1)) }
        return "\(Double((NIODeadline.now() - begin).nanoseconds) / 1e6)"
    }

    private static func slow(_ queue: APIClientQueue, _ arrived: Arrivals, _ seconds: Int) async throws -> String {
        let begin = NIODeadline.now()
        let end = begin + .seconds(Int64(seconds))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for person in 0..<20 {
                group.addTask {
                    var next = 0
                    while NIODeadline.now() < end {
                        // Enough wait at any time for as many as the limits allow.
                        if await queue.report().depth > 2_000 {
                            try await Task.sleep(for: .milliseconds(20))
                        } else {
                            try await Self.append(queue, "slow", "p\(person)", "c\(person)-\(next % 30)")
                            next += 1
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        return "\(Double(arrived.count) / elapsed)"
    }
}

/// How many requests the server has taken.
private final class Arrivals: Sendable {
    private let counts = Mutex((hung: 0, others: 0))

    var hung: Int { self.counts.withLock { $0.hung } }
    var count: Int { self.counts.withLock { $0.others } }

    func add(isHung: Bool) {
        self.counts.withLock { counts in
            if isHung { counts.hung += 1 } else { counts.others += 1 }
        }
    }
}

/// Answers `/now`, answers `/slow` after a while, and does not answer `/hang`.
private final class SlowConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let answer = ByteBuffer(string: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    private let arrivals: Arrivals
    private var unread = ByteBuffer()

    init(_ arrivals: Arrivals) { self.arrivals = arrivals }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        self.unread.writeBuffer(&bytes)
        while let request = WebMessage(&self.unread) {
            let target = request.words.count > 1 ? request.words[1] : ""
            self.arrivals.add(isHung: target.hasPrefix("/hang/"))
            if target.hasPrefix("/hang/") { continue }
            guard target.hasPrefix("/slow/") else {
                context.writeAndFlush(Self.wrapOutboundOut(Self.answer), promise: nil)
                continue
            }
            let (channel, answer) = (context.channel, Self.answer)
            context.eventLoop.scheduleTask(in: .milliseconds(QueueSockets.latency)) {
                channel.writeAndFlush(answer, promise: nil)
            }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
