import NIOCore
import NIOPosix

/// One variant under one load, measured once.
struct Measurement {
    var messagesPerSecond = Double.nan
    /// Microseconds of processor time of the proxy per message.
    var processorTime = Double.nan
    var medianLatency = Double.nan
    var tailLatency = Double.nan
    /// Bytes that the proxy wrote to storage per message.
    var bytesWritten = Double.nan
    /// What went wrong, in words; empty where nothing did.
    var complaint = ""

    init() {}

    /// Connects the clients, lets them talk and closes them.
    init(
        _ stack: Stack, connections: Int, plan: LoadClient.Plan, group: MultiThreadedEventLoopGroup
    ) throws {
        let client = try LoadClient(
            group: group, target: stack.target, connections: connections, prefix: Nicks.nextPrefix())
        var times: [Double] = []
        var bytes: [Double] = []
        let figures = try client.measure(plan) {
            times.append(try stack.proxy?.processorTime() ?? .nan)
            bytes.append(try stack.proxy?.bytesWritten() ?? .nan)
        }
        try client.close()
        self.messagesPerSecond = figures.messagesPerSecond
        self.processorTime = (times[1] - times[0]) / Double(figures.messages)
        self.bytesWritten = (bytes[1] - bytes[0]) / Double(figures.messages)
        self.medianLatency = figures.medianLatency
        self.tailLatency = figures.tailLatency
        self.complaint = figures.complaint
    }

    /// The median of each figure.
    init(medianOf rounds: [Measurement]) {
        self.messagesPerSecond = rounds.map(\.messagesPerSecond).median
        self.processorTime = rounds.map(\.processorTime).median
        self.medianLatency = rounds.map(\.medianLatency).median
        self.tailLatency = rounds.map(\.tailLatency).median
        self.bytesWritten = rounds.map(\.bytesWritten).median
        var complaints: [String] = []
        for complaint in rounds.map(\.complaint) where !complaint.isEmpty && !complaints.contains(complaint) {
            complaints.append(complaint)
        }
        self.complaint = complaints.joined(separator: "; ")
    }

    /// Measures, or says why it could not be measured.
    static func attempt(_ body: () throws -> Measurement) -> Measurement {
        do {
            return try body()
        } catch {
            var failed = Measurement()
            failed.complaint = "\(error)"
            return failed
        }
    }
}

/// Nicks are never used twice in a run: a nick that comes back may be taken for the account that had it.
enum Nicks {
    nonisolated(unsafe) private static var runs = 0

    /// A prefix that no earlier client had. Called from the main thread alone.
    static func nextPrefix() -> String {
        self.runs += 1
        return "r\(self.runs)n"
    }
}
