/// Round trips over the transports of apps, beside a socket without any of them.
struct TransportTable {
    let workbench: Workbench
    let rust: String?
    let isQuick: Bool

    func print() throws {
        let ways = TransportWay.allCases.filter { !$0.needsRust || self.rust != nil }
        for window in [1, 64] {
            var figures: [TransportWay: [[String: Double]]] = [:]
            for round in 1...(self.isQuick ? 1 : 5) {
                for way in ways {
                    progress("transports: \(way.rawValue), \(window) under way, round \(round)")
                    figures[way, default: []].append(try self.measure(way, window))
                }
            }
            self.print(window, ways, figures)
        }
    }

    private func print(_ window: Int, _ ways: [TransportWay], _ figures: [TransportWay: [[String: Double]]]) {
        func median(_ way: TransportWay, _ name: String) -> Double {
            (figures[way] ?? []).compactMap { $0[name] }.median
        }
        var table = MarkdownTable(
            "Transports: round trips of \(TransportLoad.size) bytes, \(window) under way",
            [
                "way", "per second", "median µs", "p99 µs", "CPU µs each", "growth, KB", "of the socket's rate",
                "of its median", "of Swift's rate", "of its median",
            ])
        for way in ways {
            let rate = median(way, "rate")
            table.add([
                way.title, rate.text(), median(way, "median").text(1), median(way, "tail").text(1),
                median(way, "cpu").text(1), median(way, "growth").text(), (rate / median(.raw, "rate")).text(2),
                (median(way, "median") / median(.raw, "median")).text(2), (rate / median(.unix, "rate")).text(2),
                (median(way, "median") / median(.unix, "median")).text(2),
            ])
        }
        table.note(
            "One connection; client and service are in one process, and the CPU time is that of both. A service that returns the "
                + "request. The aims: 0.7 of the socket's rate for the Unix transport, 0.8 of Swift's for Rust's. "
                + "Swift's is the Unix transport.")
        if self.rust == nil { table.note("Without the rows in Rust: there was no rustc.") }
        table.print()
    }

    private func measure(_ way: TransportWay, _ window: Int) throws -> [String: Double] {
        let child = try ChildProcess.again(
            [
                "transport-load", "--way", way.rawValue, "--window", "\(window)", "--seconds", self.isQuick ? "1" : "3",
                "--directory", self.workbench.directory,
            ] + (self.rust.map { ["--rust", $0] } ?? []), log: "\(self.workbench.directory)/transports.log")
        var figures: [String: Double] = [:]
        for line in try child.waitForEnd().split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 2, let number = Double(words[1]) else { throw Failure("it printed: \(line)") }
            figures[String(words[0])] = number
        }
        return figures
    }
}
