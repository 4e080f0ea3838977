import DeviceDirectory
import Devices
import IRCGateway
import NIOCore
import NIOPosix
import PeerKit
import Protection
import Synchronization
import TestKit
import TestThreads
import Testing

@testable import IRCServer
@testable import NIOSupport

/// A connection between a client and a backend that are nothing but sockets.
@Suite(.blocking) struct IRCConnectionTests {
    private static let line = ByteBuffer(string: "PING :" + String(repeating: "x", count: 480) + "\r\n")

    private static func services(
        backend: Int, _ policy: Policy = .observe, heldLines: Int = 512, exemptions: [Exemption] = []
    ) -> ConnectionServices {
        var settings = IRCSettings(
            network: "lab", heldLines: heldLines, pendingRequests: 256, outagePatience: 900_000, asksForVersion: false,
            marks: .text)
        settings.exemptions = exemptions
        let environment = IRCEnvironment(
            settings: settings, policies: PolicyTable(PolicySnapshot(everyone: policy)), role: .front(DirectoryCache()))
        return ConnectionServices(
            environment: environment, submit: { _ in }, register: { _, _ in }, unregister: { _ in },
            markDelivered: { _ in }, clock: { Timestamp(monotonic: 1, wall: 1) },
            downstream: {
                DownstreamOptions(listeners: [ListenerOptions(host: "127.0.0.1", port: 0)], connectionLimit: 100)
            }, upstream: { UpstreamOptions(host: "127.0.0.1", port: backend, connectTimeout: .seconds(10)) })
    }

    /// Writes lines without end, each when the one before has gone to the socket.
    private final class Flood: ChannelInboundHandler, @unchecked Sendable {
        typealias InboundIn = ByteBuffer
        /// Enough that no buffers of the system hold it.
        static let limit = 200 << 20
        let sent = Atomic<Int>(0)
        private let chunk: ByteBuffer

        init() {
            var chunk = ByteBuffer()
            for _ in 0..<128 { chunk.writeImmutableBuffer(IRCConnectionTests.line) }
            self.chunk = chunk
        }

        func channelActive(context: ChannelHandlerContext) { write(context.channel) }

        private func write(_ channel: any Channel) {
            guard sent.load(ordering: .relaxed) < Self.limit else { return }
            channel.writeAndFlush(chunk).whenSuccess { [self] in
                sent.add(chunk.readableBytes, ordering: .relaxed)
                write(channel)
            }
        }
    }

    /// A side that never reads gets no more than the buffers of the sockets hold: the gateway stops reading the other one.
    @Test(arguments: [true, false]) func whatIsNotTakenIsNotRead(_ isBackendFlooding: Bool) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
        let flood = Flood()
        let backend = try await ServerBootstrap(group: group)
            .childChannelOption(.autoRead, value: isBackendFlooding)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if isBackendFlooding { try channel.pipeline.syncOperations.addHandler(flood) }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let server = IRCServer(
            services: Self.services(backend: backend.localAddress?.port ?? 0), group: group, connectionIDs: { 1 })
        let address = try await server.start()[0]
        let client = try await ClientBootstrap(group: group)
            .channelOption(.autoRead, value: !isBackendFlooding)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if !isBackendFlooding { try channel.pipeline.syncOperations.addHandler(flood) }
                }
            }
            .connect(to: address).get()
        // Until nothing has moved for two seconds.
        var last = -1
        repeat {
            last = flood.sent.load(ordering: .relaxed)
            try await Task.sleep(for: .seconds(2))
        } while flood.sent.load(ordering: .relaxed) > max(last, 0) || flood.sent.load(ordering: .relaxed) == 0
        #expect(flood.sent.load(ordering: .relaxed) < Flood.limit / 2)
        try? await client.close()
        try? await backend.close()
        try await group.shutdownGracefully()
    }

    /// Holds back what is written until it is told to let it go, or to fail.
    private final class Withholding: ChannelOutboundHandler, @unchecked Sendable {
        typealias OutboundIn = ByteBuffer
        private var waiting: [EventLoopPromise<Void>?] = []

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            waiting.append(promise)
        }

        func end(_ error: (any Error)? = nil) {
            for promise in waiting {
                if let error { promise?.fail(error) } else { promise?.succeed(()) }
            }
            waiting = []
        }
    }

    /// A line counts as delivered once the socket has it, and not when it is handed over.
    @Test func aLineIsDeliveredWhenItIsWritten() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let holding = Withholding()
        let (channels, continuation) = AsyncStream.makeStream(of: (any Channel).self)
        let listener = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(holding)
                    continuation.yield(channel)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let client = try await ClientBootstrap(group: group).connect(to: try #require(listener.localAddress)).get()
        var accepted = channels.makeAsyncIterator()
        let next = await accepted.next()
        let channel = try #require(next)
        let delivered = Delivered()
        var services = Self.services(backend: 1)
        services.markDelivered = { number in delivered.numbers.withLock { $0.append(number) } }
        let made = services
        let connection = try await channel.eventLoop.submit {
            let connection = IRCConnection(
                id: ConnectionID(1), downstream: channel, output: MachineOutput(),
                listener: ListenerOptions(host: "127.0.0.1", port: 0), services: made)
            for number: UInt64 in [7, 8] {
                connection.output.downstream.writeString(":a!a@b PRIVMSG c :\(number)\r\n")
                connection.output.delivered = [number]
                connection.run()
                connection.flush()
                if number == 7 {
                    #expect(delivered.numbers.withLock { $0 } == [])
                    holding.end()
                    #expect(delivered.numbers.withLock { $0 } == [7])
                }
            }
            holding.end(ChannelError.ioOnClosedChannel)
            return connection
        }.get()
        #expect(delivered.numbers.withLock { $0 } == [7])
        _ = connection
        try? await client.close()
        try? await listener.close()
        try await group.shutdownGracefully()
    }

    private final class Delivered: Sendable { let numbers = Mutex<[UInt64]>([]) }

    /// A proxy, or somebody in its place, that never names its client holds a connection for a while only.
    @Test(arguments: ["", "PROXY TCP4 192.0.2.7 127.0", "\r\n\r\n\0\r\nQUIT\n\u{21}"], [true, false])
    func aSilentProxyIsNotWaitedFor(_ bytes: String, _ isWebSocket: Bool) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let connected = Delivered()
        var services = Self.services(backend: 1)
        services.patience = .milliseconds(50)
        services.upstreamFailed = { _ in connected.numbers.withLock { $0.append(1) } }
        services.downstream = {
            var options = DownstreamOptions(
                listeners: [ListenerOptions(host: "127.0.0.1", port: 0, usesWebSocket: isWebSocket)],
                connectionLimit: 100)
            (options.acceptsProxyProtocol, options.trusts) = (true, { _ in true })
            return options
        }
        let server = IRCServer(services: services, group: group, connectionIDs: { 1 })
        let address = try await server.start()[0]
        let client = try await ClientBootstrap(group: group).connect(to: address).get()
        // It may have been closed by now.
        try? await client.writeAndFlush(ByteBuffer(string: bytes)).get()
        try await client.closeFuture.get()
        #expect(connected.numbers.withLock { $0.isEmpty })
        try await group.shutdownGracefully()
    }

    private final class Reader: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        let received = Mutex("")

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            received.withLock { $0 += String(buffer: unwrapInboundIn(data)) }
        }
    }

    /// A side that answers what it reads.
    private final class Script: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        private let answer: @Sendable (String) -> String

        init(_ answer: @escaping @Sendable (String) -> String) { self.answer = answer }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let text = answer(String(buffer: unwrapInboundIn(data)))
            if !text.isEmpty { context.channel.writeAndFlush(ByteBuffer(string: text), promise: nil) }
        }
    }

    private final class Accepted: Sendable { let channels = Mutex<[any Channel]>([]) }

    /// After an outage a backend, or a balancer in front of it, accepts connections and sends nothing.
    @Test func aBackendThatIsSilentAfterAnOutageIsTriedAgain() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let accepted = Accepted()
        let backend = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let number = accepted.channels.withLock { channels in
                        channels.append(channel)
                        return channels.count
                    }
                    let script = Script { number == 1 && $0.hasPrefix("CAP LS") ? ":srv 001 alice :Welcome\r\n" : "" }
                    try channel.pipeline.syncOperations.addHandler(script)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        var services = Self.services(backend: backend.localAddress?.port ?? 0, .hosted)
        services.registrationPatience = .milliseconds(50)
        let server = IRCServer(services: services, group: group, connectionIDs: { 1 })
        let address = try await server.start()[0]
        let reader = Reader()
        let client = try await ClientBootstrap(group: group)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(reader) }
            }
            .connect(to: address).get()
        try await eventuallyAsync("the client is registered") { reader.received.withLock { $0.contains(" 001 ") } }
        try await accepted.channels.withLock { $0[0] }.close().get()
        // The second one is silent.
        try await eventuallyAsync("the backend is tried again") { accepted.channels.withLock { $0.count > 2 } }
        #expect(client.isActive)
        try? await client.close()
        try? await backend.close()
        try await group.shutdownGracefully()
    }

    /// So many lines wait for WHOIS that the backend is not read, and it does not answer WHOIS.
    @Test func aBackendIsReadAgainWhenTheWaitForWHOISEnds() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let backend = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let script = Script { text in
                        if text.contains("WHOIS") { return ":srv 372 alice :later\r\n" }
                        guard text.hasPrefix("CAP LS") else { return "" }
                        let notices = (0..<8).map { ":NickServ!s@services.test NOTICE alice :\($0)\r\n" }
                        return ":srv 001 alice :Welcome\r\n" + notices.joined()
                    }
                    try channel.pipeline.syncOperations.addHandler(script)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        var services = Self.services(
            backend: backend.localAddress?.port ?? 0, .hosted, heldLines: 4,
            exemptions: [Exemption(nick: "*Serv", proof: .server("services.*"))])
        // Each look at the clock is later than the answer to WHOIS may be.
        let looks = Delivered()
        services.clock = {
            let count = looks.numbers.withLock { numbers in
                numbers.append(0)
                return Int64(numbers.count)
            }
            return Timestamp(monotonic: count * 11_000_000_000, wall: count * 11_000)
        }
        let server = IRCServer(services: services, group: group, connectionIDs: { 1 })
        let address = try await server.start()[0]
        let reader = Reader()
        let client = try await ClientBootstrap(group: group)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(reader) }
            }
            .connect(to: address).get()
        try await eventuallyAsync("the backend is read again") { reader.received.withLock { $0.contains("later") } }
        try? await client.close()
        try? await backend.close()
        try await group.shutdownGracefully()
    }

    /// A gateway that may not act is stopped all the same; its clients get nothing more.
    @Test(arguments: [true, false]) func aClosedGateDoesNotKeepAServerFromStopping(_ clientEnds: Bool) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let backend = try await ServerBootstrap(group: group).bind(host: "127.0.0.1", port: 0).get()
        let gate = ActGate { false }
        var services = Self.services(backend: backend.localAddress?.port ?? 0)
        services.downstream = {
            var options = DownstreamOptions(
                listeners: [ListenerOptions(host: "127.0.0.1", port: 0)], connectionLimit: 100)
            options.gate = gate
            return options
        }
        let server = IRCServer(services: services, group: group, connectionIDs: { 1 })
        let address = try await server.start()[0]
        let reader = Reader()
        let client = try await ClientBootstrap(group: group)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(reader) }
            }
            .connect(to: address).get()
        if clientEnds {
            try await client.writeAndFlush(ByteBuffer(string: "NICK alice\r\n")).get()
            try await client.close(mode: .output).get()
        }
        // It wants to read.
        try await eventuallyAsync("the connection is accepted") { gate.waitingCount == 1 }
        let stops = Delivered()
        Task {
            await server.stop()
            stops.numbers.withLock { $0.append(1) }
        }
        try await eventuallyAsync("the server stops") { stops.numbers.withLock { !$0.isEmpty } }
        #expect(server.connectionCount == 0)
        #expect(reader.received.withLock { $0.isEmpty })
        try? await client.close()
        try await backend.close()
        try await group.shutdownGracefully()
    }

    /// A trusted peer without the password says nothing of its client.
    @Test(arguments: ["sesame", "Sesame", "sesam", "sesame1", ""]) func thePasswordOfWEBIRCIsCompared(
        _ password: String
    ) throws {
        var options = DownstreamOptions(listeners: [], connectionLimit: 1)
        options.webIRCPassword = "sesame"
        options.trusts = { _ in true }
        let peer = try SocketAddress(ipAddress: "127.0.0.1", port: 40_000)
        var addressReader = ProxiedAddressReader(options: options, peer: peer, usesTLS: false)
        var bytes = ByteBuffer(string: "WEBIRC \(password) web host.example 192.0.2.7\r\nNICK x\r\n")
        switch addressReader.take(&bytes) {
        case .done(let addresses):
            #expect(password == "sesame" && addresses?.source.ipAddress == "192.0.2.7")
            #expect(String(buffer: bytes) == "NICK x\r\n")
        case .refused(let reason): #expect(password != "sesame" && reason.contains("password is wrong"))
        case .waiting, .secured: Issue.record("the line is whole")
        }
    }
}
