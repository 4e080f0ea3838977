import ArgumentParser
import NIOCore
import NIOPosix

/// The load alone, against whatever listens.
struct Load: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "load", abstract: "Lets pairs of clients talk to each other through one port.")

    @Option(help: "The port on 127.0.0.1.") var port: Int
    @Option(help: "How many connections, in pairs.") var connections = 2
    @Option(help: "Messages in flight per pair.") var window = 1
    @Option(help: "How long it is measured.") var seconds = 3
    @Flag(help: "One end of each pair says everything.") var oneWay = false
    @Flag(help: "Speak TLS and believe any certificate.") var tls = false

    func validate() throws {
        guard self.connections >= 2, self.connections.isMultiple(of: 2) else {
            throw ValidationError("Connections come in pairs.")
        }
        guard (1...512).contains(self.window) else { throw ValidationError("From 1 to 512 messages are in flight.") }
    }

    func run() throws {
        try DescriptorLimit.raise()
        let client = try LoadClient(
            group: MultiThreadedEventLoopGroup(numberOfThreads: 1), target: .init(port: self.port, isTLS: self.tls),
            connections: self.connections, prefix: Nicks.nextPrefix())
        let plan = LoadClient.Plan(
            window: self.window, isDialogue: !self.oneWay, warmUp: .seconds(1), duration: .seconds(Int64(self.seconds)))
        let figures = try client.measure(plan) {}
        try client.close()
        print(
            "\(figures.messagesPerSecond.text()) messages/s, median \(figures.medianLatency.text()) µs, "
                + "p99 \(figures.tailLatency.text()) µs\(figures.complaint.isEmpty ? "" : "; " + figures.complaint)")
    }
}

/// The load of one room alone, against whatever listens.
struct RoomLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "room-load", abstract: "Lets members of one room talk through one port.")

    @Option(help: "The port on 127.0.0.1.") var port: Int
    @Option(help: "How many members.") var members = 500
    @Option(help: "How many of them speak.") var speakers = 16
    @Option(help: "Messages in flight per speaker.") var window = 8
    @Option(help: "How long it is measured.") var seconds = 3

    func validate() throws {
        guard self.members >= 2, (1...self.members).contains(self.speakers), (1...256).contains(self.window) else {
            throw ValidationError("At least two are members, one speaks, and up to 256 messages are in flight.")
        }
    }

    func run() throws {
        try DescriptorLimit.raise()
        let client = try LoadClient(
            group: MultiThreadedEventLoopGroup(numberOfThreads: 1), target: .init(port: self.port),
            connections: self.members, prefix: Nicks.nextPrefix(), room: "#room")
        let plan = LoadClient.RoomPlan(
            speakers: self.speakers, window: self.window, warmUp: .seconds(1), duration: .seconds(Int64(self.seconds)))
        let figures = try client.measure(plan) {}
        try client.close()
        print(
            "\(figures.messagesPerSecond.text()) messages/s, \(figures.deliveriesPerSecond.text()) deliveries/s, median "
                + "\(figures.medianLatency.text()) µs, p99 \(figures.tailLatency.text()) µs"
                + (figures.complaint.isEmpty ? "" : "; " + figures.complaint))
    }
}

/// Silent clients alone, against whatever listens.
struct Idle: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "idle", abstract: "Registers clients that say nothing.")

    @Option(help: "The port on 127.0.0.1.") var port: Int
    @Option(help: "How many connections.") var connections = 1000
    @Option(help: "How long they stay.") var seconds = 10
    @Flag(help: "Speak TLS and believe any certificate.") var tls = false

    func run() throws {
        try DescriptorLimit.raise()
        let client = try LoadClient(
            group: MultiThreadedEventLoopGroup(numberOfThreads: 1), target: .init(port: self.port, isTLS: self.tls),
            connections: self.connections, prefix: Nicks.nextPrefix())
        print("\(self.connections) connections")
        flushOutput()
        pause(.seconds(Int64(self.seconds)))
        try client.close()
    }
}
