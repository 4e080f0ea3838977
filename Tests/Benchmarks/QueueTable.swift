import Foundation
import RequestQueue

/// The request queue beside SQLite alone doing the same row changes, and beside queues that others keep in SQLite.
struct QueueTable {
    let workbench: Workbench
    let isQuick: Bool

    private struct Runner {
        var name: String
        /// Arguments of this executable, or of the peers' one, for a work, producers and a batch.
        var arguments: (QueueWork, Int, Int) -> [String]
        /// The peers' program, where it is not this executable.
        var peer: String?
        var producers = [1, 16, 256]
        /// Requests that a producer hands over and waits for at once; nil for one whose batches are its own affair.
        var batches: [Int?] = [nil]
        /// Commits of a cycle.
        var commits = 3
    }

    /// One line of the table.
    private struct Row: Hashable {
        var name: String
        var producers: Int
        var batch: Int?
    }

    private var seconds: Int { self.isQuick ? 2 : 5 }

    private static let raw = [2: "raw SQLite, two commits a cycle", 3: "raw SQLite, three commits a cycle"]

    private var runners: [Runner] {
        // Where a request can begin at once it is accepted as one that is under way, in one commit.
        var runners = [
            Runner(
                name: "pawl",
                arguments: { work, producers, _ in
                    ["queue-load", "--work", work.rawValue, "--producers", "\(producers)"]
                }, commits: 2)
        ]
        runners += Self.raw.sorted { $0.key < $1.key }.map { commits, name in
            Runner(
                name: name,
                arguments: { work, producers, _ in
                    ["raw-queue", "--work", work.rawValue, "--batch", "\(producers)", "--commits", "\(commits)"]
                }, commits: commits)
        }
        guard self.workbench.queuePeers != nil else { return runners }
        // Servers that group the commits of their clients, or take many requests in one transaction.
        runners += [("postgresql", "PostgreSQL, SKIP LOCKED"), ("redis", "Redis Streams, appendfsync always")].map {
            program, name in
            Runner(
                name: name, arguments: { [program, $0.rawValue, "\($1)", "\($2)"] }, peer: "servers",
                batches: [1, 16, 256])
        }
        runners.append(
            Runner(
                name: "beanstalkd -f 0", arguments: { ["beanstalkd", $0.rawValue, "\($1)", "\($2)"] }, peer: "servers",
                batches: [1, 16]))
        // Their threads take turns; more than sixteen change nothing but the wait for the interpreter.
        runners += ["litequeue", "persist-queue"].map { name in
            Runner(
                name: "\(name) (Python)", arguments: { work, producers, _ in [name, work.rawValue, "\(producers)"] },
                peer: "queues", producers: [1, 16])
        }
        return runners
    }

    func print() throws {
        let rounds = self.isQuick ? 1 : 3
        var table = MarkdownTable(
            "The request queue, requests/s",
            ["queue", "producers", "batch", "appended", "of raw", "cycles", "of raw", "CPU µs/cycle"])
        let runners = self.runners
        var figures: [Row: [QueueWork: [Double]]] = [:]
        var processor: [Row: [Double]] = [:]
        for round in 1...rounds {
            progress("queue: round \(round) of \(rounds)")
            for runner in runners {
                for row in Self.rows(runner) {
                    for work in QueueWork.allCases {
                        let words = try self.run(runner, work, row)
                        figures[row, default: [:]][work, default: []].append(words[0])
                        if work == .cycle, words.count > 1 { processor[row, default: []].append(words[1]) }
                    }
                }
            }
        }
        for runner in runners {
            for row in Self.rows(runner) {
                let raw = figures[Row(name: Self.raw[runner.commits] ?? "", producers: row.producers)] ?? [:]
                var cells = [runner.name, "\(row.producers)", row.batch.map { "\($0)" } ?? "–"]
                for work in QueueWork.allCases {
                    let own = (figures[row]?[work] ?? []).median
                    cells += [own.text(), (own / (raw[work] ?? []).median).text(2)]
                }
                table.add(cells + [(processor[row] ?? [.nan]).median.text(1)])
            }
        }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) interleaved rounds") of \(self.seconds) s; every acknowledged "
                + "change is synced (WAL with `synchronous=FULL`; PostgreSQL's defaults; `appendfsync always`; `-f 0`), one file "
                + "system; bodies of 200 bytes.")
        table.note(
            "Raw SQLite commits so many requests at once as there are producers, with pawl's page cache and checkpoints. \"Of raw\" is "
                + "at the same number of commits a cycle: two for pawl, which accepts a request that can begin at once as one that is "
                + "under way, three for the others. beanstalkd does not write down a delivery.")
        table.note(
            "A producer waits until all that it has handed over is accepted: one request of pawl's, a batch of the others'. pawl runs "
                + "in the process of its producers, the servers over loopback. A cycle is accepted, under way, done; the answer comes "
                + "from memory, not from a network.")
        table.print()
        try self.printShares(rounds)
        try self.printSockets(rounds)
    }

    /// A backend that hangs in some conversations, and one that is slow, over sockets.
    private func printSockets(_ rounds: Int) throws {
        var figures: [QueueBackend: [Double]] = [:]
        for round in 1...rounds {
            progress("queue: sockets, round \(round) of \(rounds)")
            for backend in QueueBackend.allCases {
                figures[backend, default: []].append(
                    try self.run(peer: nil, ["queue-sockets", "--backend", backend.rawValue], "sockets")[0])
            }
        }
        let limits = QueueLimits()
        let bound = Double(limits.inFlightPerHost) * 1000 / Double(QueueSockets.latency)
        var table = MarkdownTable("The queue and a backend over sockets", ["backend", "figure", "aim"])
        table.add([
            "no answer in 12 conversations of one person: ms until 100 messages of ten others have arrived",
            (figures[.hanging] ?? []).median.text(), "2,000",
        ])
        table.add([
            "\(QueueSockets.latency) ms for each answer: writes/s of 20 people in 30 conversations each",
            (figures[.slow] ?? []).median.text(), bound.text(),
        ])
        table.note(
            "The limits are the defaults: \(limits.inFlightPerHost) requests under way to a host, \(limits.inFlightPerTenant) of one "
                + "person; the aim of the second row is the first of these divided by the time of an answer.")
        table.print()
    }

    private static func rows(_ runner: Runner) -> [Row] {
        runner.producers.flatMap { producers in
            runner.batches.map { Row(name: runner.name, producers: producers, batch: $0) }
        }
    }

    /// One tenant's waits beside another one's flood.
    private func printShares(_ rounds: Int) throws {
        let companies: [(QueueCompany, String)] = [
            (.nobody, "nobody"), (.flood, "a flood of another tenant"), (.sameTenant, "a flood of its own"),
        ]
        var figures: [QueueCompany: [[Double]]] = [:]
        for round in 1...rounds {
            progress("queue: shares, round \(round) of \(rounds)")
            for (company, _) in companies {
                figures[company, default: []].append(
                    try self.run(
                        peer: nil, ["queue-share", "--company", company.rawValue], "shares"))
            }
        }
        var table = MarkdownTable(
            "One tenant's way to the backend, µs", ["beside", "median", "p99", "its requests", "the flood's"])
        for (company, name) in companies {
            table.add(
                [name] + (0..<4).map { column in (figures[company] ?? []).map { $0[column] }.median.text() })
        }
        table.note(
            "From the call that appends a request, one in ten milliseconds, until the backend has it, which takes ten milliseconds for "
                + "each. The flood always has 5,000 requests in the queue, in 64 lanes; limits are the defaults.")
        table.print()
    }

    private func run(_ runner: Runner, _ work: QueueWork, _ row: Row) throws -> [Double] {
        let arguments = runner.arguments(work, row.producers, row.batch ?? 1)
        return try self.run(peer: runner.peer, arguments, runner.name)
    }

    private func run(peer: String?, _ arguments: [String], _ name: String) throws -> [Double] {
        let base = "\(self.workbench.directory)/queue"
        let path = "\(base).sqlite"
        // One of the peers makes a folder of it.
        defer {
            ["", "-wal", "-shm", ".lock", "-lock"].forEach { try? FileManager.default.removeItem(atPath: path + $0) }
        }
        let child: ChildProcess
        if let peer, let peers = self.workbench.queuePeers {
            child = try ChildProcess(
                "\(peers)/\(peer)", arguments + ["\(self.seconds)", path], log: "\(base).log")
        } else {
            child = try ChildProcess.again(
                arguments + ["--seconds", "\(self.seconds)", "--path", path], log: "\(base).log")
        }
        let words = try child.waitForEnd().split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard !words.isEmpty else { throw Failure("\(name) printed no number") }
        return words
    }
}
