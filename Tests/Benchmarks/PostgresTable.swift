import Foundation
import Glibc
import NIOCore
import NIOPosix

/// The store in a database beside the one in a file: commits alone, and hosted messages of a whole gateway.
struct PostgresTable {
    private static let connections = 100
    private static let window = 64

    let workbench: Workbench
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let server: PostgresServer
        do { server = try PostgresServer(in: self.workbench.directory) } catch {
            Swift.print("\n### Store in PostgreSQL\n\n- not measured: \(error)")
            return
        }
        defer { server.stop() }
        try self.printCommits(server)
        try self.printMessages(server)
    }

    // MARK: Commits

    private func printCommits(_ server: PostgresServer) throws {
        let rounds = self.isQuick ? 1 : 5
        var table = MarkdownTable(
            "Commits of steps, in a file and in PostgreSQL",
            [
                "steps in a commit", "store", "steps/s", "of the file's", "CPU µs/step here", "of the file's",
                "median ms", "p90 ms",
            ])
        for batch in [1, 16, 256] {
            var measured: [[[Double]]] = [[], []]
            for round in 1...rounds {
                progress("postgres: commits of \(batch), round \(round) of \(rounds)")
                measured[0].append(try self.load(batch, nil))
                measured[1].append(try self.load(batch, try server.makeDatabase()))
            }
            func median(_ store: Int, _ word: Int) -> Double { measured[store].map { $0[word] }.median }
            for (store, name) in ["SQLite, WAL, FULL", "PostgreSQL"].enumerated() {
                table.add([
                    "\(batch)", name, median(store, 0).text(), (median(store, 0) / median(0, 0)).text(2),
                    median(store, 1).text(1), (median(store, 1) / median(0, 1)).text(2), median(store, 2).text(2),
                    median(store, 3).text(2),
                ])
            }
        }
        table.note(
            "A step is a session row of 700 bytes and a request of 420 bytes, through the gateway's stores, encoding included; "
                + "20,000 sessions. The goals at 256: at least 0.8 of the file's steps, at most 0.2 of its CPU. The CPU of the "
                + "server is not in it. Both on one file system, PostgreSQL over loopback TCP without TLS.")
        table.print()
    }

    private func load(_ batch: Int, _ url: String?) throws -> [Double] {
        let base = "\(self.workbench.directory)/store-load"
        defer { try? FileManager.default.removeItem(atPath: "\(base).data") }
        let words = [
            "store-load", "--path", "\(base).data", "--batch", "\(batch)", "--seconds", self.isQuick ? "1" : "3",
        ]
        let child = try ChildProcess.again(words + (url.map { ["--url", $0] } ?? []), log: "\(base).log")
        let numbers = try child.waitForEnd().split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard numbers.count == 4 else { throw Failure("store-load printed something else than four numbers") }
        return numbers
    }

    // MARK: Messages

    private func printMessages(_ server: PostgresServer) throws {
        let rounds = self.isQuick ? 1 : 5
        let seconds = self.isQuick ? 2 : 5
        guard self.workbench.pawl != nil else { return }
        let file = try Stack(.hosted, on: self.workbench)
        defer { file.stop() }
        // The gateway reads its store's address from the environment.
        setenv("PAWL_STORE_URL", try server.makeDatabase(), 1)
        let started = Result { try Stack(.hosted, on: self.workbench) }
        unsetenv("PAWL_STORE_URL")
        let database = try started.get()
        defer { database.stop() }
        var measured: [[Measurement]] = [[], []]
        for round in 1...rounds {
            progress("postgres: messages, round \(round) of \(rounds)")
            for (index, stack) in [file, database].enumerated() {
                let plan = LoadClient.Plan(
                    window: Self.window, isDialogue: true, warmUp: .seconds(1), duration: .seconds(Int64(seconds)))
                measured[index].append(
                    Measurement.attempt {
                        try Measurement(stack, connections: Self.connections, plan: plan, group: self.group)
                    })
            }
        }
        var table = MarkdownTable(
            "Hosted messages of one gateway, in a file and in PostgreSQL",
            ["store", "messages/s", "of the file's", "CPU µs/message of the gateway", "median µs", "p99 µs"])
        let figures = measured.map { Measurement(medianOf: $0) }
        for (name, own) in zip(["SQLite, WAL, FULL", "PostgreSQL"], figures) {
            table.add([
                name, own.messagesPerSecond.text(), (own.messagesPerSecond / figures[0].messagesPerSecond).text(2),
                own.processorTime.text(1), own.medianLatency.text(), own.tailLatency.text(),
            ])
            if !own.complaint.isEmpty { table.note("\(name): \(own.complaint)") }
        }
        table.note(
            "\(Self.connections) connections in pairs, \(Self.window) in flight per pair. The goal: at least 0.7.")
        table.print()
    }
}

/// PostgreSQL as Debian builds it, in a directory of its own, on loopback.
final class PostgresServer {
    private let port: Int
    private let programs: String
    private let directory: String
    private let process: ChildProcess
    private var databases = 0

    /// - Parameter directory: on the file system to be measured. Others may enter it: PostgreSQL does not run as root.
    init(in directory: String) throws {
        let root = "/usr/lib/postgresql"
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        guard let version = versions.max(by: { $0.compare($1, options: .numeric) == .orderedAscending }) else {
            throw Failure("PostgreSQL is not installed")
        }
        self.programs = "\(root)/\(version)/bin"
        self.directory = directory + "/postgres"
        self.port = try Ports.free()
        try FileManager.default.createDirectory(atPath: self.directory, withIntermediateDirectories: true)
        chmod(directory, 0o711)
        chmod(self.directory, 0o700)
        if geteuid() == 0, let user = getpwnam("nobody") {
            chown(self.directory, user.pointee.pw_uid, user.pointee.pw_gid)
        }
        let made = try Self.start(
            "\(self.programs)/initdb",
            ["-D", "\(self.directory)/data", "-U", "pawl", "-A", "trust", "-E", "UTF8", "--no-locale"],
            log: directory + "/initdb.log")
        _ = try made.waitForEnd()
        let settings = [
            "port=\(self.port)", "listen_addresses=127.0.0.1", "unix_socket_directories=\(self.directory)",
        ]
        self.process = try Self.start(
            "\(self.programs)/postgres", ["-D", "\(self.directory)/data"] + settings.flatMap { ["-c", $0] },
            log: directory + "/postgres.log")
        try self.process.wait(forPort: self.port)
        try self.process.wait(forWord: "ready to accept connections")
    }

    func stop() { self.process.stop() }

    /// Makes an empty database.
    func makeDatabase() throws -> String {
        self.databases += 1
        let name = "bench\(self.databases)"
        let made = try ChildProcess(
            "\(self.programs)/createdb", ["-h", "127.0.0.1", "-p", "\(self.port)", "-U", "pawl", name],
            log: "\(self.directory).createdb.log")
        _ = try made.waitForEnd()
        return "postgresql://pawl@127.0.0.1:\(self.port)/\(name)"
    }

    private static func start(_ program: String, _ arguments: [String], log: String) throws -> ChildProcess {
        guard geteuid() == 0 else { return try ChildProcess(program, arguments, log: log) }
        let user = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        return try ChildProcess("/usr/bin/setpriv", user + [program] + arguments, log: log)
    }
}
