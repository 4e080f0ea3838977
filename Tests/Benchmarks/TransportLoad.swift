import ArgumentParser
import Foundation
import NIOCore
import Synchronization
import TransportsClient
import TransportsCore
import TransportsService

/// The ways that a request may take to a service in the same process, and back.
enum TransportWay: String, CaseIterable, ExpressibleByArgument {
    /// A Unix socket between two threads that read and write blockingly: what the kernel costs.
    case raw
    /// Transports in Swift.
    case memory, unix, webSocket
    /// The Unix transport in Rust, on both sides and on one.
    case rust, rustClient, rustService

    var title: String {
        switch self {
        case .raw: "a Unix socket, two threads"
        case .memory: "in memory"
        case .unix: "Unix transport, Swift"
        case .webSocket: "WebSocket transport, Swift"
        case .rust: "Unix transport, Rust"
        case .rustClient: "Unix transport, Rust to Swift"
        case .rustService: "Unix transport, Swift to Rust"
        }
    }

    var needsRust: Bool { [.rust, .rustClient, .rustService].contains(self) }
}

/// Round trips over one transport in a process of its own.
struct TransportLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "transport-load",
        abstract: "Prints round trips a second, median and 99th percentile in µs, CPU µs each, and growth in KB.")

    /// Bytes of a request and of its reply.
    static let size = 512

    @Option(help: "The way of the requests.") var way: TransportWay
    @Option(help: "Requests under way.") var window = 1
    @Option(help: "How long to go on.") var seconds = 3
    @Option(help: "An empty directory for the socket.") var directory: String
    @Option(help: "The Rust library.") var rust: String?

    /// What one run has found.
    private struct Figures: Sendable {
        var histogram = Histogram()
        var nanoseconds: UInt64 = 1
    }

    /// The durations of all tasks.
    private final class Recorder: Sendable {
        private let durations = Mutex(Histogram())

        var histogram: Histogram { self.durations.withLock { $0 } }

        func record(_ time: TimeAmount) {
            self.durations.withLock { $0.record(nanoseconds: UInt64(time.nanoseconds)) }
        }
    }

    func run() throws {
        // A second of warm-up, which also brings the memory to its size.
        _ = try self.measure(.seconds(1))
        let (cpu, memory) = (Self.cpu(), Self.residentKilobytes())
        let figures = try self.measure(.seconds(Int64(self.seconds)))
        let count = Double(figures.histogram.count)
        Swift.print(
            "rate \(count / Double(figures.nanoseconds) * 1e9)\nmedian \(figures.histogram.microseconds(atShare: 0.5))\n"
                + "tail \(figures.histogram.microseconds(atShare: 0.99))\ncpu \((Self.cpu() - cpu) / count)\n"
                + "growth \(Self.residentKilobytes() - memory)")
    }

    /// Processor time of this process in µs.
    private static func cpu() -> Double {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
            + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
    }

    private static func residentKilobytes() -> Double {
        let words = ((try? readText("/proc/self/statm")) ?? "").split(separator: " ")
        return words.count > 1 ? (Double(words[1]) ?? 0) * 4 : 0
    }

    private func measure(_ time: TimeAmount) throws -> Figures {
        guard self.way != .raw else { return try self.measureRaw(time) }
        return try waiting { try await self.measureTransport(time) }
    }

    private func measureTransport(_ time: TimeAmount) async throws -> Figures {
        let processor = TransportProcessor { .success($0) }
        let (client, bound) = try await self.start(processor)
        let connection = client.connect(proto: "bench/1")
        let request = Data(repeating: 7, count: Self.size)
        guard case .success(request) = await connection.exchange(request: request) else {
            throw Failure("the service does not answer")
        }
        let (begin, end) = (NIODeadline.now(), NIODeadline.now() + time)
        let recorder = Recorder()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<self.window {
                group.addTask {
                    var last = NIODeadline.now()
                    while last < end {
                        guard try await connection.exchange(request: request).get().count == Self.size else {
                            throw Failure("a reply has another size")
                        }
                        let now = NIODeadline.now()
                        recorder.record(now - last)
                        last = now
                    }
                }
            }
            try await group.waitForAll()
        }
        let nanoseconds = UInt64((NIODeadline.now() - begin).nanoseconds)
        await bound.close()
        return Figures(histogram: recorder.histogram, nanoseconds: nanoseconds)
    }

    private func start(
        _ processor: TransportProcessor
    ) async throws -> (any TransportsClient.Transport, any BoundTransport) {
        let path = "\(self.directory)/transport.sock"
        func loaded() throws -> TransportLibrary {
            guard let rust = self.rust else { throw Failure("the Rust library is not built") }
            return try TransportLibrary(path: rust, digests: [TransportLibrary.digest(path: rust)])
        }
        func bind(_ transport: any TransportsService.Transport) async throws -> any BoundTransport {
            let bound = transport.bind(processor: processor)
            try await bound.ready().get()
            return bound
        }
        switch self.way {
        case .raw: throw Failure("no transport")
        case .memory:
            let link = MemoryLink()
            return (TransportsClient.MemoryTransport(link), try await bind(TransportsService.MemoryTransport(link)))
        case .webSocket:
            let bound = try await bind(
                try TransportsService.WebSocketTransport(host: "127.0.0.1", port: 0, tls: nil))
            let port = await TransportsService.WebSocketTransport.port(of: bound) ?? 0
            return (try TransportsClient.WebSocketTransport(host: "127.0.0.1", port: port, tls: nil), bound)
        case .unix, .rust, .rustClient, .rustService:
            let configuration = Data(path.utf8)
            let service: any TransportsService.Transport =
                self.way == .unix || self.way == .rustClient
                ? TransportsService.UnixTransport(path: path)
                : try TransportsService.LoadedTransport(library: loaded(), configuration: configuration)
            let client: any TransportsClient.Transport =
                self.way == .unix || self.way == .rustService
                ? TransportsClient.UnixTransport(path: path)
                : try TransportsClient.LoadedTransport(library: loaded(), configuration: configuration)
            return (client, try await bind(service))
        }
    }

    /// The peer copies what it reads. Replies come in order, so each is timed from the write that began it.
    private func measureRaw(_ time: TimeAmount) throws -> Figures {
        var pair: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0 else { throw Failure(lastError()) }
        let (own, other) = (pair[0], pair[1])
        let peer = Thread {
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(other, &buffer, buffer.count)
                // The other side may be closed before the last reply.
                guard count > 0, send(other, buffer, count, Int32(MSG_NOSIGNAL)) == count else { break }
            }
            close(other)
        }
        peer.start()
        defer { close(own) }
        var figures = Figures()
        var buffer = [UInt8](repeating: 7, count: 65_536)
        var begun = [UInt64](repeating: 0, count: self.window)
        let begin = NIODeadline.now().uptimeNanoseconds
        let end = begin + UInt64(time.nanoseconds)
        for index in begun.indices {
            begun[index] = NIODeadline.now().uptimeNanoseconds
            guard write(own, buffer, Self.size) == Self.size else { throw Failure(lastError()) }
        }
        var (oldest, received) = (0, 0)
        var now = begin
        while now < end {
            let count = read(own, &buffer, buffer.count)
            guard count > 0 else { throw Failure(lastError()) }
            received += count
            now = NIODeadline.now().uptimeNanoseconds
            while received >= Self.size {
                received -= Self.size
                figures.histogram.record(nanoseconds: now - begun[oldest])
                begun[oldest] = now
                oldest = (oldest + 1) % self.window
                guard write(own, buffer, Self.size) == Self.size else { throw Failure(lastError()) }
            }
        }
        figures.nanoseconds = now - begin
        return figures
    }
}
