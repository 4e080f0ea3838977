import NIOCore

extension ProxyTable {
    /// Connections, streams at a time in each, and seconds before the clock runs.
    private static let (connections, streams, warmUp) = (16, 8, 1)

    /// Requests over HTTP/2 and TLS, said by h2load, beside nginx.
    func printHTTP2() throws {
        guard let h2load = self.h2load, self.nginx != nil else { return }
        var table = MarkdownTable(
            "HTTP/2 requests without text",
            [
                "way", "requests per second", "median µs", "p99 µs", "proxy's CPU µs each", "of nginx's rate",
                "of its p99",
            ])
        let fronts: [Front] = [.nginx, .off, .observe]
        var rounds: [Front: [Measurement]] = [:]
        for round in 0..<(self.isQuick ? 1 : 5) {
            for front in fronts {
                progress("proxy: HTTP/2, \(front.rawValue), round \(round + 1)")
                rounds[front, default: []].append(Measurement.attempt { try self.measureHTTP2(front, h2load) })
            }
        }
        let peer = rounds[.nginx].map(Measurement.init(medianOf:))
        for front in fronts {
            let median = Measurement(medianOf: rounds[front] ?? [])
            table.add([
                front.rawValue, median.messagesPerSecond.text(), median.medianLatency.text(), median.tailLatency.text(),
                median.processorTime.text(1),
                (median.messagesPerSecond / (peer?.messagesPerSecond ?? .nan)).text(2),
                (median.tailLatency / (peer?.tailLatency ?? .nan)).text(2),
            ])
            if !median.complaint.isEmpty { table.note("\(front.rawValue): \(median.complaint)") }
        }
        table.note(
            "h2load with \(Self.connections) connections over TLS, \(Self.streams) streams under way in each, one thread; to "
                + "the backend both speak HTTP/1.1.")
        table.print()
    }

    private func measureHTTP2(_ front: Front, _ h2load: String) throws -> Measurement {
        let (port, proxy, backend, directory) = try self.start(front, isTLS: true)
        defer {
            proxy?.stop()
            backend.stop()
        }
        let seconds = self.isQuick ? 2 : 6
        let log = "\(directory)/requests.tsv"
        let before = try proxy?.familyTime() ?? .nan
        let load = try ChildProcess(
            h2load,
            [
                "-c", "\(Self.connections)", "-m", "\(Self.streams)", "-t", "1", "-D", "\(seconds)", "--warm-up-time",
                "\(Self.warmUp)", "--log-file", log, "-H", "Authorization: Bearer a0",
                "https://127.0.0.1:\(port)/users/a0",
            ], log: "\(directory)/h2load.log")
        _ = try load.waitForEnd()
        let time = try proxy?.familyTime() ?? .nan
        // Each line: when it began, in µs; its status; how long it took, in µs.
        let lines = try readText(log).split(separator: "\n").map { $0.split(separator: "\t").compactMap { Int($0) } }
        guard lines.allSatisfy({ $0.count == 3 && $0[1] == 200 }), lines.count > 100 else {
            throw Failure(
                "h2load: \(lines.count) answers, and not all of them 200: \(try readText("\(directory)/h2load.log"))")
        }
        let times = lines.map { Double($0[2]) }.sorted()
        var measurement = Measurement()
        measurement.messagesPerSecond = Double(lines.count) / Double(seconds)
        measurement.medianLatency = times[times.count / 2]
        measurement.tailLatency = times[times.count * 99 / 100]
        // The load of the time before is not in the log, and is in the processor's time.
        measurement.processorTime =
            (time - before) / (Double(lines.count) * Double(seconds + Self.warmUp) / Double(seconds))
        return measurement
    }
}
