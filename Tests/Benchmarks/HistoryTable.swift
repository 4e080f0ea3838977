import Foundation

/// What is kept of what was said, beside SQLite alone writing and reading the same rows.
struct HistoryTable {
    let workbench: Workbench
    let isQuick: Bool

    private static let batches = [1, 16, 256, 2048]
    private var seconds: Int { self.isQuick ? 2 : 5 }

    func print() throws {
        let rounds = self.isQuick ? 1 : 3
        var figures: [String: [[Double]]] = [:]
        for round in 1...rounds {
            progress("history: round \(round) of \(rounds)")
            for batch in Self.batches {
                let own = try self.run("history-load", .write, ["--batch", "\(batch)"])
                figures["own \(batch)", default: []].append(own)
                let state = own.count > 2 ? Int(own[2]) : 1000
                figures["raw \(batch)", default: []].append(
                    try self.run("raw-history", .write, ["--batch", "\(batch)", "--state", "\(state)"]))
            }
            figures["own read", default: []].append(try self.run("history-load", .read, []))
            figures["raw read", default: []].append(try self.run("raw-history", .read, []))
        }
        func median(_ key: String, _ word: Int) -> Double {
            (figures[key] ?? []).compactMap { word < $0.count ? $0[word] : nil }.median
        }
        var table = MarkdownTable(
            "History: messages written/s, pages of 100 read/s",
            ["work", "pawl", "raw SQLite, equal rows", "of raw", "CPU µs each", "of raw SQLite"])
        for batch in Self.batches {
            let (own, raw) = ("own \(batch)", "raw \(batch)")
            table.add([
                "write, \(batch) in a transaction", median(own, 0).text(), median(raw, 0).text(),
                (median(own, 0) / median(raw, 0)).text(2), median(own, 1).text(1), median(raw, 1).text(1),
            ])
        }
        for (name, word) in [("read, keys from the store", 0), ("read, keys from memory", 2)] {
            table.add([
                name, median("own read", word).text(), median("raw read", 0).text(),
                (median("own read", word) / median("raw read", 0)).text(2), median("own read", word + 1).text(1),
                median("raw read", 1).text(1),
            ])
        }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) rounds"), WAL, `synchronous=FULL`, one file system; texts of 200 "
                + "bytes in \(HistoryLoad.conversations) conversations. Raw writes the same rows: a key for each message, both "
                + "ends of each session that has gone on. Raw reads the rows of a page and opens nothing.")
        table.print()
    }

    private func run(_ command: String, _ work: HistoryWork, _ arguments: [String]) throws -> [Double] {
        let base = "\(self.workbench.directory)/history"
        // A data directory, or a database and the files beside it.
        defer { ["", "-wal", "-shm"].forEach { try? FileManager.default.removeItem(atPath: "\(base).data\($0)") } }
        var words = [command, "--work", work.rawValue, "--path", "\(base).data"] + arguments
        if work == .write || command == "raw-history" { words += ["--seconds", "\(self.seconds)"] }
        let child = try ChildProcess.again(words, log: "\(base).log")
        let numbers = try child.waitForEnd().split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard !numbers.isEmpty else { throw Failure("\(command) printed no number") }
        return numbers
    }
}
