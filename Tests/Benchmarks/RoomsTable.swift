import NIOCore
import NIOPosix

/// A room of legacy members: messages a second, and how many of them reach how many members.
struct RoomsTable {
    private static let members = 500
    /// How many members speak, and how many messages each has in flight.
    private static let loads = [(speakers: 1, window: 1), (speakers: 16, window: 1), (speakers: 16, window: 8)]

    /// What stands in front of the sink, and whether the sink logs everybody in.
    private struct Row {
        var variant: Variant
        var logsIn = false

        var name: String { self.variant.name + (self.logsIn ? ", logged in" : "") }
    }

    let workbench: Workbench
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let rounds = self.isQuick ? 1 : 5
        let seconds: Int64 = self.isQuick ? 2 : 3
        var table = MarkdownTable(
            "A room of \(Self.members) legacy members",
            [
                "speakers, in flight each", "variant", "messages/s", "deliveries/s", "of `observe`'s",
                "CPU µs/delivery", "median µs to the last member", "p99 µs",
            ])
        let rows =
            self.workbench.variants.map { Row(variant: $0) }
            + (self.workbench.pawl == nil ? [] : [Row(variant: .hosted, logsIn: true)])
        var running: [(row: Row, stack: Stack)] = []
        defer { running.forEach { $0.stack.stop() } }
        for row in rows {
            do {
                running.append((row, try Stack(row.variant, logsIn: row.logsIn, on: self.workbench)))
            } catch {
                table.note("\(row.name): \(error)")
            }
        }
        for load in Self.loads {
            let plan = LoadClient.RoomPlan(
                speakers: load.speakers, window: load.window, warmUp: .milliseconds(self.isQuick ? 500 : 1000),
                duration: .seconds(seconds))
            var measured = [[RoomMeasurement]](repeating: [], count: running.count)
            for round in 1...rounds {
                for (index, (row, stack)) in running.enumerated() {
                    progress(
                        "rooms: \(load.speakers) speakers, \(load.window) in flight, round \(round) of \(rounds), \(row.name)"
                    )
                    measured[index].append(self.measure(stack, plan))
                }
            }
            let medians = measured.map { RoomMeasurement(medianOf: $0) }
            let peer = running.firstIndex { $0.row.variant == .observe }.map { medians[$0] } ?? RoomMeasurement()
            let name = "\(load.speakers), \(load.window)"
            for ((row, _), median) in zip(running, medians) {
                table.add([
                    name, row.name, median.messagesPerSecond.text(), median.deliveriesPerSecond.text(),
                    (median.deliveriesPerSecond / peer.deliveriesPerSecond).text(2), median.processorTime.text(1),
                    median.medianLatency.text(), median.tailLatency.text(),
                ])
                if !median.complaint.isEmpty { table.note("\(name), \(row.name): \(median.complaint)") }
            }
        }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) interleaved rounds") of \(seconds) s. One message is one delivery to each of the "
                + "\(Self.members - 1) other members; who speaks says the next when the last of them has it.")
        table.note(
            "Texts are 100 bytes. Client and sink have one thread each, on the same machine as the proxy; CPU is the proxy's "
                + "alone. Logged in: every member has an account that outlives the connection, so that each delivery is "
                + "remembered until it is written.")
        table.print()
    }

    private func measure(_ stack: Stack, _ plan: LoadClient.RoomPlan) -> RoomMeasurement {
        do {
            return try RoomMeasurement(stack, members: Self.members, plan: plan, group: self.group)
        } catch {
            var failed = RoomMeasurement()
            failed.complaint = "\(error)"
            return failed
        }
    }
}

/// One variant in front of one room, measured once.
private struct RoomMeasurement {
    var messagesPerSecond = Double.nan
    var deliveriesPerSecond = Double.nan
    /// Microseconds of processor time of the proxy per delivery.
    var processorTime = Double.nan
    var medianLatency = Double.nan
    var tailLatency = Double.nan
    /// What went wrong, in words; empty where nothing did.
    var complaint = ""

    init() {}

    /// Connects the members, lets them talk and closes them.
    init(
        _ stack: Stack, members: Int, plan: LoadClient.RoomPlan, group: MultiThreadedEventLoopGroup
    ) throws {
        let prefix = Nicks.nextPrefix()
        let client = try LoadClient(
            group: group, target: stack.target, connections: members, prefix: prefix, room: "#\(prefix)")
        var times: [Double] = []
        let figures = try client.measure(plan) {
            times.append(try stack.proxy?.processorTime() ?? .nan)
        }
        try client.close()
        self.messagesPerSecond = figures.messagesPerSecond
        self.deliveriesPerSecond = figures.deliveriesPerSecond
        self.processorTime = (times[1] - times[0]) / Double(figures.deliveries)
        self.medianLatency = figures.medianLatency
        self.tailLatency = figures.tailLatency
        self.complaint = figures.complaint
    }

    /// The median of each figure.
    init(medianOf rounds: [RoomMeasurement]) {
        self.messagesPerSecond = rounds.map(\.messagesPerSecond).median
        self.deliveriesPerSecond = rounds.map(\.deliveriesPerSecond).median
        self.processorTime = rounds.map(\.processorTime).median
        self.medianLatency = rounds.map(\.medianLatency).median
        self.tailLatency = rounds.map(\.tailLatency).median
        var complaints: [String] = []
        for complaint in rounds.map(\.complaint) where !complaint.isEmpty && !complaints.contains(complaint) {
            complaints.append(complaint)
        }
        self.complaint = complaints.joined(separator: "; ")
    }
}
