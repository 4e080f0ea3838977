import AsyncHTTPClient
import Foundation
import Glibc
import PeerKit
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import SQLiteQueue
import TestKit
import TestThreads
import Testing

/// The whole queue is killed again and again while it appends and sends, over a network, from a store on disk.
@Suite(.blocking, .serialized) struct QueueKillTests {
    private static let rounds = ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 15 : 300

    @Test(arguments: [1, 30] as [Int64])
    func whatWasAcknowledgedIsSentInOrder(_ latency: Int64) async throws {
        let backend = try await ChatBackend(latency: latency) { _ in .status(200) }
        let folder = FileManager.default.temporaryDirectory.appending(path: "queue-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let path = folder.appending(path: "queue.sqlite").path
        let program = try PawlProcess.builtProgram("QueueVictim")
        var acknowledged: [Int] = []
        for round in 0..<Self.rounds {
            let victim = try ChildProcess(program, [path, backend.url])
            try await eventuallyAsync("an acknowledged request in round \(round)") {
                victim.stdout.contains("\n") || !victim.isRunning
            }
            try await Task.sleep(for: .milliseconds(Int.random(in: 0...60)))
            #expect(victim.kill(SIGKILL), "it ended by itself: \(victim.stderr)")
            try victim.waitForExit()
            acknowledged += victim.stdout.split(separator: "\n").compactMap { Int($0) }
        }
        let done = try await drain(path, backend)
        let received = backend.received
        try await backend.stop()

        print(
            "\(Self.rounds) kills at \(latency) ms: \(acknowledged.count) acknowledged, \(done.count) done,",
            "\(received.count - done.count) came again")
        let numbers = received.compactMap { Int($0.body) }
        #expect(numbers.count == received.count)
        #expect(acknowledged.count >= Self.rounds)
        #expect(Set(acknowledged).subtracting(numbers).isEmpty, "acknowledged and never sent")
        // In the order of each lane, where the first sight counts.
        for lane in 0..<3 {
            var seen: Set<Int> = []
            let first = numbers.filter { $0 % 3 == lane && seen.insert($0).inserted }
            #expect(first == first.sorted(), "lane \(lane)")
        }
        // What came twice came under one key, and the queue says that it may have.
        for (number, copies) in Dictionary(grouping: received, by: { Int($0.body) ?? 0 }) {
            #expect(Set(copies.map { $0.header("Idempotency-Key") }).count == 1)
            let doubts = try #require(done[number], "request \(number) is not done")
            #expect(copies.count - 1 <= doubts, "request \(number) came \(copies.count) times, \(doubts) doubts")
        }
    }

    /// One more process sends what is left.
    ///
    /// - Returns: the doubts about each request, all of which are done.
    private func drain(_ path: String, _ backend: ChatBackend) async throws -> [Int: Int] {
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        let queue = try APIClientQueue(
            client: ChatClient(networkClient: HTTPNetworkClient(http), host: backend.url),
            store: try SQLiteQueueStore(path: path))
        // Thousands may be left, 30 ms each, three at a time. Processes that live for some milliseconds can end three times in a
        // row while one request is alone in flight: it is held, and somebody has to release it.
        for _ in 0..<20 {
            for request in try queue.requests(states: [.pending], limit: 1000) where request.isHeld {
                try await queue.hold(request.token, false)
            }
            if await queue.report().depth == 0 { break }
            try? await eventuallyAsync("nothing is left") {
                let report = await queue.report()
                return report.depth == 0 || report.census.held > 0
            }
        }
        #expect(await queue.report().depth == 0)
        let done = try queue.requests(states: [.done], limit: 1_000_000)
        let others: [RequestState] = [.dead, .cancelled, .pending, .inFlight]
        #expect(try queue.requests(states: others, limit: 10).isEmpty)
        await queue.close()
        try await http.shutdown()
        let pairs = done.compactMap { request -> (Int, Int)? in
            guard case .rawData(let body) = request.config.body else { return nil }
            return Int(String(decoding: body, as: UTF8.self)).map { ($0, request.doubts) }
        }
        return Dictionary(pairs) { first, _ in first }
    }
}
