import Glibc
import NIOCore
import NIOPosix

/// Hosted messages with all their rows committed, beside SQLite alone doing the same changes.
struct PersistenceTable {
    private static let connections = 100
    private static let window = 64

    let workbench: Workbench
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let rounds = self.isQuick ? 1 : 5
        let seconds = self.isQuick ? 2 : 5
        var complaints: [String] = []
        func start(isBare: Bool) -> Stack? {
            guard self.workbench.pawl != nil else { return nil }
            do {
                return try Stack(.hosted, isBare: isBare, on: self.workbench)
            } catch {
                complaints.append("\(Variant.hosted.name): \(error)")
                return nil
            }
        }
        let hosted = start(isBare: false)
        defer { hosted?.stop() }
        let bare = start(isBare: true)
        defer { bare?.stop() }

        var raw: [Measurement] = []
        var measured: [[Measurement]] = [[], [], []]
        for round in 1...rounds {
            progress("persistence: round \(round) of \(rounds)")
            raw.append(Measurement.attempt { try self.measureRaw(seconds: seconds, round: round) })
            if let hosted {
                measured[0].append(self.measure(hosted, isDialogue: true, seconds: seconds))
                measured[1].append(self.measure(hosted, isDialogue: false, seconds: seconds))
            }
            if let bare {
                measured[2].append(self.measure(bare, isDialogue: true, seconds: seconds))
            }
        }

        var table = MarkdownTable(
            "Hosted messages, persisted",
            ["variant", "messages/s", "of raw SQLite's", "CPU µs/message", "KB written/message", "median µs", "p99 µs"])
        complaints.forEach { table.note($0) }
        let peer = Measurement(medianOf: raw)
        self.add("raw SQLite, 256 messages a transaction", peer, peer, to: &table)
        let names = [
            "pawl, `hosted`, each arrival answered", "pawl, `hosted`, one way",
            "pawl, `hosted`, each answered, backend without capabilities",
        ]
        for (name, rounds) in zip(names, measured) where !rounds.isEmpty {
            self.add(name, Measurement(medianOf: rounds), peer, to: &table)
        }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) interleaved rounds") of \(seconds) s; \(Self.connections) connections in pairs, "
                + "\(Self.window) in flight per pair; WAL, `synchronous=FULL`, one file system.")
        table.note(
            "Raw SQLite does per message: two session rows of 700 bytes upserted, a request row of 420 bytes inserted and "
                + "set to done, a delivery row of 200 bytes inserted and deleted.")
        table.note(
            "One `fdatasync` after 4 KB takes \(try self.syncMicroseconds().text()) µs here (median): where it takes long, "
                + "group commit decides; where it does not, processor time does.")
        table.print()
    }

    /// What a commit waits for at least, on the file system that is measured.
    private func syncMicroseconds() throws -> Double {
        let path = "\(self.workbench.directory)/sync"
        let descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0o600)
        guard descriptor >= 0 else { throw Failure("\(path): \(lastError())") }
        defer { Glibc.close(descriptor) }
        let block = [UInt8](repeating: 0xA5, count: 4096)
        var times: [Double] = []
        for _ in 0..<100 {
            let begin = NIODeadline.now()
            guard write(descriptor, block, block.count) == block.count, fdatasync(descriptor) == 0 else {
                throw Failure("\(path): \(lastError())")
            }
            times.append(Double((NIODeadline.now() - begin).nanoseconds) / 1000)
        }
        return times.median
    }

    private func measure(_ stack: Stack, isDialogue: Bool, seconds: Int) -> Measurement {
        let plan = LoadClient.Plan(
            window: Self.window, isDialogue: isDialogue, warmUp: .seconds(1), duration: .seconds(Int64(seconds)))
        return Measurement.attempt {
            try Measurement(stack, connections: Self.connections, plan: plan, group: self.group)
        }
    }

    private func measureRaw(seconds: Int, round: Int) throws -> Measurement {
        let base = "\(self.workbench.directory)/raw-\(round)"
        let child = try ChildProcess.again(
            ["raw-sqlite", "--path", "\(base).db", "--seconds", "\(seconds)", "--sessions", "\(Self.connections)"],
            log: "\(base).log")
        defer { ["db", "db-wal", "db-shm"].forEach { _ = unlink("\(base).\($0)") } }
        let words = try child.waitForEnd().split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard words.count == 3 else { throw Failure("raw-sqlite printed something else than three numbers") }
        var measurement = Measurement()
        measurement.messagesPerSecond = words[0]
        measurement.processorTime = words[1]
        measurement.bytesWritten = words[2]
        return measurement
    }

    private func add(_ name: String, _ figures: Measurement, _ peer: Measurement, to table: inout MarkdownTable) {
        table.add([
            name, figures.messagesPerSecond.text(), (figures.messagesPerSecond / peer.messagesPerSecond).text(2),
            figures.processorTime.text(1), (figures.bytesWritten / 1000).text(1), figures.medianLatency.text(),
            figures.tailLatency.text(),
        ])
        if !figures.complaint.isEmpty {
            table.note("\(name): \(figures.complaint)")
        }
    }
}
