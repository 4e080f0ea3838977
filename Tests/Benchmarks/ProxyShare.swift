import NIOCore

extension ProxyTable {
    /// How long one person's messages take, beside another person who writes as fast as there are answers.
    func printShares() throws {
        let fronts: [Front] = [.direct, .nginx, .observe, .hosted].filter { $0 != .nginx || self.nginx != nil }
        let flood = 64
        let plan = WebLoad.Plan(
            kind: .post, window: 1, warmUp: .seconds(self.isQuick ? 2 : 3), duration: .seconds(self.isQuick ? 3 : 6))
        var alone: [Front: [Measurement]] = [:]
        var beside: [Front: [Measurement]] = [:]
        var others: [Front: [Double]] = [:]
        for round in 0..<(self.isQuick ? 1 : 5) {
            for front in fronts {
                progress("proxy: shares, \(front.rawValue), round \(round + 1)")
                alone[front, default: []].append(try self.measure(front, plan, beside: 0).own)
                let (own, flood) = try self.measure(front, plan, beside: flood)
                beside[front, default: []].append(own)
                others[front, default: []].append(flood)
            }
        }
        var table = MarkdownTable(
            "One person's messages by POST beside another's flood",
            [
                "way", "median µs alone", "p99 µs alone", "median µs beside", "p99 µs beside", "p99, times",
                "the flood's per second",
            ])
        for front in fronts {
            let own = Measurement(medianOf: alone[front] ?? [])
            let crowded = Measurement(medianOf: beside[front] ?? [])
            table.add([
                front.rawValue, own.medianLatency.text(), own.tailLatency.text(), crowded.medianLatency.text(),
                crowded.tailLatency.text(), (crowded.tailLatency / own.tailLatency).text(1),
                (others[front] ?? []).median.text(),
            ])
            if !crowded.complaint.isEmpty { table.note("\(front.rawValue): \(crowded.complaint)") }
        }
        table.note(
            "One message of \(WebLoad.textSize) bytes, its answer, ten milliseconds of nothing; the other person has \(flood) "
                + "connections, each with one message under way in a conversation of its own. Load and backend are on the same two cores, so "
                + "that the first two rows are what the machine does by itself.")
        table.print()
    }

    private func measure(
        _ front: Front, _ plan: WebLoad.Plan, beside flood: Int
    ) throws -> (own: Measurement, flood: Double) {
        let (port, proxy, backend, _) = try self.start(front)
        defer {
            proxy?.stop()
            backend.stop()
        }
        return try WebLoad(group: self.group).measure(port, plan, beside: flood)
    }
}
