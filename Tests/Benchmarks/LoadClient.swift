import NIOCore
import NIOPosix
import NIOSSL

/// Many clients in one process, on one event loop.
struct LoadClient {
    /// Where the clients connect to, and how.
    struct Target {
        var port: Int
        var isTLS = false
    }

    /// What is said, and for how long it is measured.
    struct Plan {
        /// Messages in flight per pair.
        var window: Int
        /// Whether each arrival is answered by its receiver; otherwise one end of a pair says everything.
        var isDialogue = true
        var warmUp: TimeAmount
        var duration: TimeAmount
    }

    /// What was measured.
    struct Figures {
        var messagesPerSecond: Double
        var medianLatency: Double
        var tailLatency: Double
        var messages: Int
        /// What went wrong, in words; empty where nothing did.
        var complaint: String
    }

    /// Loopback addresses are taken one after another, each for this many connections: fewer than it has free ports.
    private static let connectionsPerAddress = 20_000
    /// Connections that are made at the same time: fewer than a listener's backlog.
    private static let connectionsAtOnce = 100
    /// How long one batch of connections may take to register, before the benchmark gives up.
    private static let registrationLimit = TimeAmount.seconds(60)
    /// How long a first text may take for every pair; sessions are set up meanwhile.
    static let firstTextLimit = TimeAmount.seconds(60)
    /// How long messages in flight are waited for at the end.
    static let drainLimit = TimeAmount.seconds(30)

    let loop: any EventLoop
    private let record: NIOLoopBound<LoadRecord>
    private let tls: NIOSSLContext?

    /// Connects and registers this many clients, whose nicks begin with `prefix`, and lets them join a room.
    init(
        group: MultiThreadedEventLoopGroup, target: Target, connections: Int, prefix: String, room: String? = nil
    ) throws {
        let loop = group.next()
        self.loop = loop
        self.record = try loop.submit { NIOLoopBound(LoadRecord(room: room), eventLoop: loop) }.wait()
        if target.isTLS {
            var configuration = TLSConfiguration.makeClientConfiguration()
            configuration.certificateVerification = .none
            self.tls = try NIOSSLContext(configuration: configuration)
        } else {
            self.tls = nil
        }
        do {
            for start in stride(from: 0, to: connections, by: Self.connectionsAtOnce) {
                let batch = start..<min(start + Self.connectionsAtOnce, connections)
                let registered = try batch.map { try self.connect(target.port, number: $0, prefix) }
                try EventLoopFuture.andAllSucceed(registered, on: loop).wait()
            }
        } catch {
            try self.close()
            throw error
        }
    }

    private func connect(_ port: Int, number: Int, _ prefix: String) throws -> EventLoopFuture<Void> {
        let registered = self.loop.makePromise(of: Void.self)
        let limit = self.loop.scheduleTask(in: Self.registrationLimit) {
            registered.fail(Failure("\(prefix)\(number) was not registered in time"))
        }
        registered.futureResult.whenComplete { _ in limit.cancel() }
        let source = try SocketAddress(ipAddress: "127.0.0.\(1 + number / Self.connectionsPerAddress)", port: 0)
        var bootstrap = ClientBootstrap(group: self.loop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { [record, tls] channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls {
                        let handler = try NIOSSLClientHandler(context: tls, serverHostname: nil)
                        try channel.pipeline.syncOperations.addHandler(handler)
                    }
                    let connection = LoadConnection(
                        nick: "\(prefix)\(number)", record: record.value, registered: registered)
                    try channel.pipeline.syncOperations.addHandler(connection)
                    record.value.opened(connection)
                }
            }
        if number >= Self.connectionsPerAddress {
            bootstrap = bootstrap.bind(to: source)
        }
        bootstrap.connect(host: "127.0.0.1", port: port).whenFailure { registered.fail($0) }
        return registered.futureResult
    }

    /// Lets pairs of clients talk; `interval` is called when the measured time begins and when it ends.
    func measure(_ plan: Plan, interval: () throws -> Void) throws -> Figures {
        try self.onLoop { record in
            let now = NIODeadline.now().uptimeNanoseconds
            for index in stride(from: 0, to: record.connections.count - 1, by: 2) {
                let (one, other) = (record.connections[index], record.connections[index + 1])
                one.talk(to: other, answers: plan.isDialogue)
                other.talk(to: one, answers: plan.isDialogue)
                for number in 0..<plan.window {
                    (plan.isDialogue && number % 2 == 1 ? other : one).sendMessage(now)
                }
            }
            record.flush()
        }
        pause(plan.warmUp)
        try self.wait(Self.firstTextLimit) { record in
            // Who was refused need not be waited for: the figures will tell.
            record.faults > 0
                || stride(from: 0, to: record.connections.count - 1, by: 2).allSatisfy {
                    record.connections[$0].arrived + record.connections[$0 + 1].arrived > 0
                }
        }
        try interval()
        let begin = NIODeadline.now()
        try self.onLoop { $0.beginMeasuring() }
        pause(plan.duration)
        let latencies = try self.onLoop { record in
            record.endMeasuring()
            return record.latencies
        }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        try interval()
        return Figures(
            messagesPerSecond: Double(latencies.count) / elapsed,
            medianLatency: latencies.microseconds(atShare: 0.5), tailLatency: latencies.microseconds(atShare: 0.99),
            messages: latencies.count, complaint: try self.drain())
    }

    /// Stops talking, waits for what is in flight and says what is missing.
    private func drain() throws -> String {
        try self.onLoop { $0.isStopping = true }
        try self.wait(Self.drainLimit) { Self.missing($0) == 0 }
        return try self.onLoop { record in
            var complaints: [String] = []
            let missing = Self.missing(record)
            if missing > 0 { complaints.append("\(missing) messages did not arrive") }
            if record.disordered > 0 { complaints.append("\(record.disordered) out of order") }
            if record.faults > 0 { complaints.append("\(record.faults) faults, the last: `\(record.lastFault)`") }
            return complaints.joined(separator: "; ")
        }
    }

    private static func missing(_ record: LoadRecord) -> Int {
        record.connections.reduce(0) { $0 + Int($1.sent) - Int($1.arrived) }
    }

    /// Closes all connections and waits until they are gone.
    func close() throws {
        try self.onLoop { record in
            record.isStopping = true
            record.connections.forEach { $0.quit() }
            record.flush()
        }
        pause(.milliseconds(300))
        try self.onLoop { $0.connections.forEach { $0.close() } }
        pause(.milliseconds(200))
    }

    func onLoop<Value: Sendable>(_ body: @escaping @Sendable (LoadRecord) -> Value) throws -> Value {
        try self.loop.submit { [record] in body(record.value) }.wait()
    }

    func wait(_ limit: TimeAmount, until isDone: @escaping @Sendable (LoadRecord) -> Bool) throws {
        let deadline = NIODeadline.now() + limit
        while try !self.onLoop(isDone), NIODeadline.now() < deadline {
            pause(.milliseconds(20))
        }
    }
}
