import NIOCore
import NIOPosix

/// Messages a second, processor time and latency, beside HAProxy.
struct ThroughputTable {
    private static let connections = [1, 100, 1000]
    private static let windows = [1, 64]

    let workbench: Workbench
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let rounds = self.isQuick ? 1 : 5
        let seconds: Int64 = self.isQuick ? 1 : 3
        var table = MarkdownTable(
            "Messages through a proxy",
            [
                "in flight, connections", "variant", "messages/s", "of HAProxy's", "CPU µs/message", "of HAProxy's",
                "median µs", "p99 µs", "of HAProxy's",
            ])
        var stacks: [Stack] = []
        defer { stacks.forEach { $0.stop() } }
        for variant in self.workbench.variants {
            do {
                stacks.append(try Stack(variant, on: self.workbench))
            } catch {
                table.note("\(variant.name): \(error)")
            }
        }
        for window in Self.windows {
            for connections in Self.connections {
                let plan = LoadClient.Plan(
                    window: window, warmUp: .milliseconds(self.isQuick ? 300 : 1000), duration: .seconds(seconds))
                var measured = [[Measurement]](repeating: [], count: stacks.count)
                for round in 1...rounds {
                    progress("throughput: \(window) in flight, \(connections) connections, round \(round) of \(rounds)")
                    for (index, stack) in stacks.enumerated() {
                        measured[index].append(
                            Measurement.attempt {
                                try Measurement(
                                    stack, connections: max(2, connections), plan: plan, group: self.group)
                            })
                    }
                }
                let medians = measured.map { Measurement(medianOf: $0) }
                self.add(medians, stacks, "\(window), \(connections)", to: &table)
            }
        }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) interleaved rounds") of \(seconds) s. Connections talk in pairs, each arrival is answered; "
                + "in flight counts per pair. One connection is one pair.")
        table.note(
            "Texts are 100 bytes. Client and sink have one thread each, on the same machine as the proxy; CPU is the proxy's "
                + "alone.")
        table.print()
    }

    private func add(_ medians: [Measurement], _ stacks: [Stack], _ load: String, to table: inout MarkdownTable) {
        let peer = stacks.firstIndex { $0.variant == .haproxy }.map { medians[$0] } ?? Measurement()
        for (stack, median) in zip(stacks, medians) {
            table.add([
                load, stack.variant.name, median.messagesPerSecond.text(),
                (median.messagesPerSecond / peer.messagesPerSecond).text(2), median.processorTime.text(1),
                (median.processorTime / peer.processorTime).text(2), median.medianLatency.text(),
                median.tailLatency.text(), (median.tailLatency / peer.tailLatency).text(2),
            ])
            if !median.complaint.isEmpty {
                table.note("\(load), \(stack.variant.name): \(median.complaint)")
            }
        }
    }
}
