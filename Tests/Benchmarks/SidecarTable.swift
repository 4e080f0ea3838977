import Glibc
import NIOCore

/// What a message costs that goes through two sidecars, beside one that goes straight to the server.
struct SidecarTable {
    let workbench: Workbench
    let isQuick: Bool

    func print() throws {
        guard let pawl = self.workbench.pawl else { return }
        var table = MarkdownTable(
            "A message and its answer between two people",
            ["way", "median µs, there and back", "p99 µs", "added by two sidecars to one message, median µs"])
        let count = self.isQuick ? 1000 : 10_000
        let sink = try Place(self.workbench.directory, name: "sidecar-sink")
        let server = try ChildProcess.again(["relay-sink", "--port", "\(sink.port)"], log: sink.log)
        defer { server.stop() }
        try server.wait(forWord: "ready")
        progress("sidecars: \(count) messages straight")
        let straight = try Self.roundTrips(sink.port, sink.port, "s", exchangesKeys: false, count: count)
        table.add(["straight to the server", Self.at(0.5, straight), Self.at(0.99, straight), ""])

        let places = try ["one", "two"].map { try Place(self.workbench.directory, name: "sidecar-\($0)") }
        let sidecars = try places.map { place in
            try ChildProcess(
                pawl,
                [
                    "sidecar", "--listen", "irc://127.0.0.1:\(place.port)", "--upstream",
                    "irc://127.0.0.1:\(sink.port)", "--data", "\(place.directory)/data",
                ], environment: ["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "0"], log: place.log)
        }
        defer { sidecars.forEach { $0.stop() } }
        for sidecar in sidecars { try sidecar.wait(forWord: "ready") }
        progress("sidecars: \(count) messages end to end")
        let sealed = try Self.roundTrips(places[0].port, places[1].port, "e", exchangesKeys: true, count: count)
        let added = (sealed[sealed.count / 2] - straight[straight.count / 2]) / 2000
        table.add(["end to end, through two sidecars", Self.at(0.5, sealed), Self.at(0.99, sealed), "\(added)"])
        table.note(
            "\(count) texts of 100 bytes, one after another, each answered; client, server and sidecars on one machine. Each "
                + "message is sealed, committed with a sync, relayed, opened and committed again.")
        table.print()
    }

    private static func at(_ share: Double, _ sorted: [Int64]) -> String {
        "\(sorted[min(Int(Double(sorted.count) * share), sorted.count - 1)] / 1000)"
    }

    /// How long each message and its answer took, sorted, in nanoseconds.
    private static func roundTrips(
        _ first: Int, _ second: Int, _ prefix: String, exchangesKeys: Bool, count: Int
    ) throws -> [Int64] {
        let (alice, bob) = (try Person(first, prefix + "alice"), try Person(second, prefix + "bob"))
        if exchangesKeys {
            alice.sendMessage("hello", to: bob.nick)
            try bob.expect("hello")
            try alice.expect("Keys were exchanged")
            try bob.expect("Keys were exchanged")
        }
        let text = String(repeating: "x", count: 95)
        var times: [Int64] = []
        times.reserveCapacity(count)
        for number in 0..<(count + 100) {
            let begun = now()
            alice.sendMessage("\(number) \(text)", to: bob.nick)
            try bob.expect("\(exchangesKeys ? "[e2e] " : "")\(number) ")
            bob.sendMessage("\(number) \(text)", to: alice.nick)
            try alice.expect("\(number) ")
            // The first ones find everything cold.
            if number >= 100 { times.append(now() - begun) }
        }
        return times.sorted()
    }

    private static func now() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// Where a process of its own listens and writes.
    private struct Place {
        let port: Int
        let directory: String
        var log: String { "\(self.directory)/log" }

        init(_ parent: String, name: String) throws {
            self.port = try Ports.free()
            self.directory = "\(parent)/\(name)-\(self.port)"
            guard mkdir(self.directory, 0o700) == 0 else { throw Failure("\(self.directory): \(lastError())") }
        }
    }
}

/// A client that says one thing at a time.
private final class Person {
    let nick: String
    private let descriptor: Int32
    private var unread: [UInt8] = []

    init(_ port: Int, _ nick: String) throws {
        self.nick = nick
        self.descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        let address = try SocketAddress(ipAddress: "127.0.0.1", port: port)
        let descriptor = self.descriptor
        guard address.withSockAddr({ connect(descriptor, $0, socklen_t($1)) }) == 0 else {
            throw Failure("port \(port): \(lastError())")
        }
        var on: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
        var patience = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        self.write("NICK \(nick)\r\nUSER \(nick) 0 * :\(nick)\r\n")
        try self.expect(" 001 ")
    }

    deinit { close(self.descriptor) }

    func sendMessage(_ text: String, to nick: String) { self.write("PRIVMSG \(nick) :\(text)\r\n") }

    /// Reads until a line has this in it.
    func expect(_ text: String) throws {
        let wanted = Array(text.utf8)
        while true {
            while let end = self.unread.firstIndex(of: 0x0A) {
                let line = self.unread[..<end]
                let isIt = line.indices.contains { line[$0...].starts(with: wanted) }
                let isPing = line.starts(with: Array("PING".utf8))
                self.unread.removeSubrange(...end)
                if isPing { self.write("PONG\r\n") }
                if isIt { return }
            }
            var chunk = [UInt8](repeating: 0, count: 8192)
            let count = read(self.descriptor, &chunk, chunk.count)
            guard count > 0 else { throw Failure("\(self.nick): no \(text): \(lastError())") }
            self.unread += chunk[..<count]
        }
    }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = Glibc.write(self.descriptor, bytes, bytes.count)
    }
}
