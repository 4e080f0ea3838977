import Foundation
import RequestQueue

/// The request queue beside SQLite alone doing the same row changes, and beside queues that others keep in SQLite.
struct QueueTable {
    let workbench: Workbench
    let isQuick: Bool

    private struct Runner {
        var name: String
        /// Arguments of this executable, or of the peers' one.
        var arguments: (QueueWork, Int) -> [String]
        var isPeer = false
        var producers = [1, 16, 256]
    }

    private var seconds: Int { self.isQuick ? 2 : 5 }

    func print() throws {
        var runners = [
            Runner(
                name: "pawl", arguments: { ["queue-load", "--work", $0.rawValue, "--producers", "\($1)"] }),
            Runner(
                name: "raw SQLite, a transaction for each batch of so many",
                arguments: { ["raw-queue", "--work", $0.rawValue, "--batch", "\($1)"] }),
        ]
        if self.workbench.queuePeers != nil {
            // Their threads take turns; more than sixteen change nothing but the wait for the interpreter.
            runners += ["litequeue", "persist-queue"].map { name in
                Runner(
                    name: "\(name) (Python)", arguments: { [name, $0.rawValue, "\($1)"] }, isPeer: true,
                    producers: [1, 16])
            }
        }
        let rounds = self.isQuick ? 1 : 3
        var table = MarkdownTable(
            "The request queue, requests/s",
            ["queue", "producers", "appended", "of raw", "cycles", "of raw", "CPU µs/cycle"])
        var figures: [String: [QueueWork: [Double]]] = [:]
        var processor: [String: [Double]] = [:]
        for round in 1...rounds {
            progress("queue: round \(round) of \(rounds)")
            for runner in runners {
                for producers in runner.producers {
                    for work in QueueWork.allCases {
                        let key = "\(runner.name) \(producers)"
                        let words = try self.run(runner, work, producers)
                        figures[key, default: [:]][work, default: []].append(words[0])
                        if work == .cycle, words.count > 1 { processor[key, default: []].append(words[1]) }
                    }
                }
            }
        }
        for runner in runners {
            for producers in runner.producers {
                let key = "\(runner.name) \(producers)"
                let raw = figures["\(runners[1].name) \(producers)"] ?? [:]
                var cells = [runner.name, "\(producers)"]
                for work in QueueWork.allCases {
                    let own = (figures[key]?[work] ?? []).median
                    cells += [own.text(), (own / (raw[work] ?? []).median).text(2)]
                }
                table.add(cells + [(processor[key] ?? [.nan]).median.text(1)])
            }
        }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) interleaved rounds") of \(self.seconds) s; WAL, "
                + "`synchronous=FULL`, one file system; bodies of 200 bytes.")
        table.note(
            "A producer of pawl's waits until its request is accepted, and so do those of the others. A cycle is accepted, under way, done: "
                + "three changes, each committed before it counts. Where it can begin at once, pawl's is accepted as one that is under way, "
                + "in one commit; the others always take three. The answer comes from memory, not from a network."
        )
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
                    try self.run(isPeer: false, ["queue-sockets", "--backend", backend.rawValue], "sockets")[0])
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
                        isPeer: false,
                        ["queue-share", "--company", company.rawValue], "shares"))
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

    private func run(_ runner: Runner, _ work: QueueWork, _ producers: Int) throws -> [Double] {
        try self.run(isPeer: runner.isPeer, runner.arguments(work, producers), runner.name)
    }

    private func run(isPeer: Bool, _ arguments: [String], _ name: String) throws -> [Double] {
        let base = "\(self.workbench.directory)/queue"
        let path = "\(base).sqlite"
        // One of the peers makes a folder of it.
        defer {
            ["", "-wal", "-shm", ".lock", "-lock"].forEach { try? FileManager.default.removeItem(atPath: path + $0) }
        }
        let child: ChildProcess
        if isPeer, let peers = self.workbench.queuePeers {
            child = try ChildProcess(
                "\(peers)/queues", arguments + ["\(self.seconds)", path], log: "\(base).log")
        } else {
            child = try ChildProcess.again(
                arguments + ["--seconds", "\(self.seconds)", "--path", path], log: "\(base).log")
        }
        let words = try child.waitForEnd().split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard !words.isEmpty else { throw Failure("\(name) printed no number") }
        return words
    }
}
