import ArgumentParser
import Dispatch
import Foundation
import NIOCore
import NIOPosix
import PawlMessenger
import PawlPeerToPeerTCP
import Synchronization
import TransportsCore

/// What one run of the messenger's load sends, and over what.
enum MessengerWay: String, CaseIterable, ExpressibleByArgument {
    /// Texts of the app by `RESTChat`, as before the upgrade, and by the messenger.
    case plain, messenger
    /// A socket between two threads, one between a task and an event loop, and a direct connection of two messengers.
    case rawTCP, loopTCP, peerToPeer

    var title: String {
        switch self {
        case .plain: "plain texts"
        case .messenger: "messenger"
        case .rawTCP: "TCP, two threads"
        case .loopTCP: "TCP, a task and event loops"
        case .peerToPeer: "PawlPeerToPeerTCP"
        }
    }
}

/// Processor time and memory of this process.
private enum Usage {
    /// Processor time in µs.
    static func cpu() -> Double {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
            + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
    }

    static func residentKilobytes() -> Double {
        let words = ((try? readText("/proc/self/statm")) ?? "").split(separator: " ")
        return words.count > 1 ? (Double(words[1]) ?? 0) * 4 : 0
    }
}

/// Runs asynchronous work on the main thread of a command.
func waiting<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) throws -> Value {
    let done = DispatchSemaphore(value: 0)
    let result = Once<Result<Value, any Error>>()
    Task {
        do {
            let value = try await body()
            result.fulfil(.success(value))
        } catch {
            result.fulfil(.failure(error))
        }
        done.signal()
    }
    done.wait()
    guard let result = result.current else { throw Failure("no result") }
    return try result.get()
}

/// Waits until a condition is true.
private func until(_ what: String, _ condition: () async throws -> Bool) async throws {
    for _ in 0..<6000 {
        if try await condition() { return }
        try await Task.sleep(for: .milliseconds(10))
    }
    throw Failure("not within a minute: \(what)")
}

/// The durations of all tasks.
private final class Durations: Sendable {
    private let state = Mutex((histogram: Histogram(), cpu: Double?.none))

    var histogram: Histogram { self.state.withLock { $0.histogram } }

    /// The processor time when the first duration was recorded.
    var cpu: Double { self.state.withLock { $0.cpu } ?? 0 }

    func record(_ time: TimeAmount) {
        self.state.withLock { state in
            if state.cpu == nil { state.cpu = Usage.cpu() }
            state.histogram.record(nanoseconds: UInt64(time.nanoseconds))
        }
    }

    /// The figures of a run, in milliseconds.
    func figures(_ begin: NIODeadline, _ cpu: Double) -> String {
        let histogram = self.histogram
        let count = Double(max(histogram.count, 1))
        let seconds = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        return "rate \(count / seconds)\nmedian \(histogram.microseconds(atShare: 0.5) / 1000)\n"
            + "tail \(histogram.microseconds(atShare: 0.99) / 1000)\ncpu \((Usage.cpu() - cpu) / count)"
    }
}

/// An app that waits until its messages are sent.
private final class SendingHandler: CypherMessengerEventHandler {
    private struct State {
        var ended: Set<String> = []
        var waiters: [String: CheckedContinuation<Void, Never>] = [:]
        var exchanged: Set<Username> = []
    }

    private let state = Mutex(State())

    var exchanged: Set<Username> { self.state.withLock { $0.exchanged } }

    func onMessageChange(_ message: AnyChatMessage) async {
        switch message.state {
        case .waiting, .undelivered: return
        case .sent, .received, .read, .failed: self.end(message)
        }
    }

    func onKeysExchanged(with username: Username) async { self.state.withLock { _ = $0.exchanged.insert(username) } }

    private func end(_ message: AnyChatMessage) {
        let waiter = self.state.withLock { state in
            guard let waiter = state.waiters.removeValue(forKey: message.id) else {
                state.ended.insert(message.id)
                return nil as CheckedContinuation<Void, Never>?
            }
            return waiter
        }
        waiter?.resume()
    }

    /// Returns when the server has the message, or has refused it.
    func waitUntilSent(_ message: AnyChatMessage) async {
        await withCheckedContinuation { continuation in
            let isEnded = self.state.withLock { state in
                guard state.ended.remove(message.id) == nil else { return true }
                state.waiters[message.id] = continuation
                return false
            }
            if isEnded { continuation.resume() }
        }
    }
}

/// One way in a process of its own.
struct MessengerLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "messenger-load",
        abstract: "Prints messages a second, median and 99th percentile in ms, and CPU µs each.")

    /// Bytes of a text.
    static let size = 200
    /// Texts in flight.
    static let window = 64
    /// People who receive them.
    static let recipients = 8

    @Option(help: "The way of the messages.") var way: MessengerWay
    @Option(help: "How long to go on.") var seconds = 4
    @Option(help: "An empty directory for the store.") var directory: String

    func run() throws {
        switch self.way {
        case .rawTCP: Swift.print(try self.measureRaw())
        case .plain, .messenger:
            let (backend, port) = try self.startBackend()
            defer { backend.stop() }
            let (way, directory, time) = (self.way, self.directory, TimeAmount.seconds(Int64(self.seconds)))
            let figures: String = try waiting {
                way == .plain
                    ? try await Self.measurePlain(port, time)
                    : try await Self.measureMessenger(port, time, directory)
            }
            Swift.print(figures)
        case .loopTCP, .peerToPeer:
            let (way, time) = (self.way, TimeAmount.seconds(Int64(self.seconds)))
            let figures: String = try waiting {
                way == .loopTCP ? try await Self.measureLoops(time) : try await Self.measureDirect(time)
            }
            Swift.print(figures)
        }
    }

    private func startBackend() throws -> (ChildProcess, Int) {
        let folder = try ChildProcess.ownPath().split(separator: "/").dropLast().joined(separator: "/")
        let port = try Ports.free()
        let backend = try ChildProcess(
            "/\(folder)/ChatBackend", ["--port", "\(port)"], log: "\(self.directory)/backend.log")
        try backend.wait(forPort: port)
        return (backend, port)
    }

    private static func chat(_ name: Username, _ port: Int) async throws -> RESTChat {
        guard let url = URL(string: "http://127.0.0.1:\(port)/") else { throw Failure("no URL") }
        let chat = RESTChat(url: url, username: name, password: "secret")
        try await chat.register()
        return chat
    }

    private static let names = (0..<recipients).map { Username("recipient\($0)") }
    private static let text = String(repeating: "x", count: size)

    /// Sends texts for some time, as many in flight as the window has.
    private static func load(
        _ time: TimeAmount, _ send: @escaping @Sendable (Username) async throws -> Void
    ) async throws -> String {
        // A second of warm-up.
        let begin = NIODeadline.now() + .seconds(1)
        let (durations, names) = (Durations(), self.names)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<self.window {
                group.addTask {
                    let name = names[number % names.count]
                    var last = NIODeadline.now()
                    while last < begin + time {
                        try await send(name)
                        let now = NIODeadline.now()
                        if last >= begin { durations.record(now - last) }
                        last = now
                    }
                }
            }
            try await group.waitForAll()
        }
        return durations.figures(begin, durations.cpu)
    }

    private static func measurePlain(_ port: Int, _ time: TimeAmount) async throws -> String {
        let alice = try await self.chat("alice", port)
        var readers: [Task<Void, Never>] = []
        for name in self.names {
            let chat = try await self.chat(name, port)
            try await alice.send("hello", encrypted: nil, to: name)
            // As often as the messenger's transport asks.
            readers.append(
                Task {
                    var position = 0
                    while !Task.isCancelled {
                        position = (try? await chat.updates(since: position).next) ?? position
                        try? await Task.sleep(for: .milliseconds(200))
                    }
                })
        }
        defer { for reader in readers { reader.cancel() } }
        return try await self.load(time) { name in
            try await alice.send(self.text, encrypted: nil, to: name, id: UUID().uuidString)
        }
    }

    private static func register(
        _ name: Username, _ port: Int, _ database: MessengerDatabase, _ directory: String, _ handler: SendingHandler
    ) async throws -> CypherMessenger {
        let chat = try await self.chat(name, port)
        let position = URL(filePath: "\(directory)/\(name)-\(UUID().uuidString)")
        return try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .password("secret"), appPassword: "secret",
            usingTransport: { chat.transport(for: $0, positionFile: position) }, database: database,
            eventHandler: handler)
    }

    private static func measureMessenger(_ port: Int, _ time: TimeAmount, _ directory: String) async throws -> String {
        let handler = SendingHandler()
        let store = MessengerDatabase.directory("\(directory)/alice-\(UUID().uuidString)").with(.least)
        let alice = try await self.register("alice", port, store, directory, handler)
        var others: [CypherMessenger] = []
        for name in self.names {
            let other = try await self.register(name, port, .inMemory(), directory, SendingHandler())
            others.append(other)
            _ = try await other.createPrivateChat(with: "alice").sendText("hello")
            _ = try await alice.createPrivateChat(with: name).sendText("hello")
        }
        guard let channel = alice.transport as? PlaintextChannel else { throw Failure("another transport") }
        for name in self.names {
            try await until("\(name) has keys") { channel.support(of: name) == .capable }
            let chat = alice.createPrivateChat(with: name)
            guard try await chat.sendText("first").isEncrypted else { throw Failure("\(name): not encrypted") }
        }
        let figures = try await self.load(time) { name in
            let message = try await alice.createPrivateChat(with: name).sendText(self.text)
            guard message.isEncrypted else { throw Failure("a text was not encrypted") }
            await handler.waitUntilSent(message)
        }
        for messenger in others + [alice] { messenger.close() }
        return figures
    }

    // MARK: Direct connections

    private static func measureDirect(_ time: TimeAmount) async throws -> String {
        let server = SpoofServer()
        @Sendable func register(_ name: Username) async throws -> CypherMessenger {
            try await CypherMessenger.registerMessenger(
                username: name, authenticationMethod: .password("secret"), appPassword: "secret",
                usingTransport: { server.client(for: $0) },
                p2pFactories: [IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]))],
                database: .inMemory(), eventHandler: SendingHandler())
        }
        let (alice, bob) = (try await register("alice"), try await register("bob"))
        let chat = alice.createPrivateChat(with: "bob")
        try await chat.sendText("hello")
        try await bob.createPrivateChat(with: "alice").sendText("hello")
        try await until("both have a text") {
            let one = try await chat.messages().count
            let two = try await bob.createPrivateChat(with: "alice").messages().count
            return one == 2 && two == 2
        }
        guard let client = try await chat.buildP2PConnections().clients.first else { throw Failure("no connection") }
        try await until("it is connected") { client.isConnected }
        let packet = [UInt8](repeating: 7, count: self.size)
        let figures = try await self.roundTrips(time) { try await client.sendMessage(packet) }
        for messenger in [alice, bob] { messenger.close() }
        return figures
    }

    /// One after the other, after a warm-up.
    private static func roundTrips(_ time: TimeAmount, _ body: () async throws -> Void) async throws -> String {
        for _ in 0..<200 { try await body() }
        let (begin, cpu, durations) = (NIODeadline.now(), Usage.cpu(), Durations())
        var last = begin
        while last < begin + time {
            try await body()
            let now = NIODeadline.now()
            durations.record(now - last)
            last = now
        }
        return durations.figures(begin, cpu)
    }

    /// The peer writes back what it reads.
    private final class Echo: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        func channelRead(context: ChannelHandlerContext, data: NIOAny) { context.writeAndFlush(data, promise: nil) }
    }

    /// Resumes the task that waits for as many bytes as a message has.
    private final class Answer: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        private let state = Mutex((received: 0, waiter: CheckedContinuation<Void, Never>?.none))

        func wait(_ continuation: CheckedContinuation<Void, Never>) {
            self.state.withLock { $0 = (0, continuation) }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let count = self.unwrapInboundIn(data).readableBytes
            let waiter = self.state.withLock { state in
                state.received += count
                guard state.received >= MessengerLoad.size else { return nil as CheckedContinuation<Void, Never>? }
                defer { state.waiter = nil }
                return state.waiter
            }
            waiter?.resume()
        }
    }

    /// What a task and SwiftNIO cost without anything else.
    private static func measureLoops(_ time: TimeAmount) async throws -> String {
        let (group, answer) = (MultiThreadedEventLoopGroup.singleton, Answer())
        let server = try await ServerBootstrap(group: group)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { $0.pipeline.addHandler(Echo()) }
            .bind(host: "127.0.0.1", port: 0).get()
        guard let address = server.localAddress else { throw Failure("no port") }
        let channel = try await ClientBootstrap(group: group)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { $0.pipeline.addHandler(answer) }
            .connect(to: address).get()
        let packet = ByteBuffer(repeating: 7, count: self.size)
        let figures = try await self.roundTrips(time) {
            await withCheckedContinuation { continuation in
                answer.wait(continuation)
                channel.writeAndFlush(packet, promise: nil)
            }
        }
        try await channel.close()
        try await server.close()
        return figures
    }

    /// The peer writes back what it reads.
    private func measureRaw() throws -> String {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        let address = try SocketAddress(ipAddress: "127.0.0.1", port: try Ports.free())
        guard listener >= 0, address.withSockAddr({ bind(listener, $0, socklen_t($1)) }) == 0, listen(listener, 1) == 0
        else { throw Failure(lastError()) }
        let peer = Thread {
            let other = accept(listener, nil, nil)
            Self.setNoDelay(other)
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(other, &buffer, buffer.count)
                guard count > 0, send(other, buffer, count, Int32(MSG_NOSIGNAL)) == count else { break }
            }
            close(other)
        }
        peer.start()
        let own = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard own >= 0, address.withSockAddr({ connect(own, $0, socklen_t($1)) }) == 0 else {
            throw Failure(lastError())
        }
        Self.setNoDelay(own)
        defer {
            close(own)
            close(listener)
        }
        var buffer = [UInt8](repeating: 7, count: 65_536)
        let durations = Durations()
        let (begin, cpu) = (NIODeadline.now(), Usage.cpu())
        var last = begin
        while last < begin + .seconds(Int64(self.seconds)) {
            guard write(own, buffer, Self.size) == Self.size else { throw Failure(lastError()) }
            var received = 0
            while received < Self.size {
                let count = read(own, &buffer, buffer.count)
                guard count > 0 else { throw Failure(lastError()) }
                received += count
            }
            let now = NIODeadline.now()
            durations.record(now - last)
            last = now
        }
        return durations.figures(begin, cpu)
    }

    private static func setNoDelay(_ socket: Int32) {
        var value: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &value, socklen_t(MemoryLayout<Int32>.size))
    }
}

/// Makes a history of many chats, each with a session and two messages.
struct MessengerFill: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "messenger-fill", abstract: "Makes the history of a messenger with many chats.")

    @Option(help: "How many chats.") var chats: Int
    @Option(help: "The directory of the history.") var directory: String

    func run() throws {
        let (chats, directory) = (self.chats, self.directory)
        try waiting {
            let server = SpoofServer()
            @Sendable func register(_ name: Username, _ database: MessengerDatabase) async throws -> CypherMessenger {
                try await CypherMessenger.registerMessenger(
                    username: name, authenticationMethod: .password("secret"), appPassword: "secret",
                    usingTransport: { server.client(for: $0) }, database: database, eventHandler: SendingHandler())
            }
            let alice = try await register("alice", .directory(directory).with(.least))
            for number in 0..<chats {
                let name = Username("person\(number)")
                let other = try await register(name, .inMemory())
                try await alice.createPrivateChat(with: name).sendText("hello")
                try await until("the text comes") {
                    try await !other.createPrivateChat(with: "alice").messages().isEmpty
                }
                try await other.createPrivateChat(with: "alice").sendText("hello")
                try await until("the answer comes") {
                    try await alice.createPrivateChat(with: name).messages().count == 2
                }
                other.close()
            }
            alice.close()
        }
    }
}

/// Opens a history, and looks at the memory that it takes.
struct MessengerOpen: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "messenger-open", abstract: "Prints the resident KB of a messenger with open chats.")

    @Option(help: "How many chats.") var chats: Int
    @Option(help: "The directory of the history.") var directory: String

    /// A server that takes everything and keeps nothing.
    private final class NoServer: CypherServerTransportClient {
        private let state = Mutex<(any CypherTransportClientDelegate)?>(nil)

        var delegate: (any CypherTransportClientDelegate)? {
            get { self.state.withLock { $0 } }
            set { self.state.withLock { $0 = newValue } }
        }
        var authenticated: AuthenticationState { .authenticated }
        var supportsMultiRecipientMessages: Bool { false }
        func sendMessage(
            _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
        ) async throws {}
        func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
            throw CypherTransportError.unsupported("readKeyBundle")
        }
        func publishKeyBundle(_ data: UserConfig) async throws {}
    }

    func run() throws {
        let (chats, directory) = (self.chats, self.directory)
        let figures: String = try waiting {
            let handler = SendingHandler()
            let alice = try await CypherMessenger.registerMessenger(
                username: "alice", authenticationMethod: .password("secret"), appPassword: "secret",
                usingTransport: { _ in NoServer() },
                database: .directory(directory).with(.least), eventHandler: handler)
            guard try await alice.listPrivateChats().count == chats else { throw Failure("chats are missing") }
            let listed = Usage.residentKilobytes()
            let open = (0..<chats).map { alice.createPrivateChat(with: Username("person\($0)")) }
            for chat in open {
                guard try await chat.messages(limit: 20).count == 2 else { throw Failure("messages are missing") }
                await handler.waitUntilSent(try await chat.sendText("again"))
            }
            let used = Usage.residentKilobytes()
            alice.close()
            return "listed \(listed)\nopen \(used)"
        }
        Swift.print(figures)
    }
}
