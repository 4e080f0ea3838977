import NIOCore
import NIOPosix
import PawlMessenger
import PawlPeerToPeerTCP
import PeerConnection
import Synchronization
import TestKit
import Testing

/// Sockets of strangers, and streams that are no packets.
@Suite struct HostileTCPTests {
    /// What the factory offers, as the other side reads it.
    private struct Offer: Codable {
        struct Place: Codable {
            var host: String
            var port: Int
        }
        var token: String
        var places: [Place]
    }

    /// A socket that sends bytes and remembers what it receives.
    private final class RawSocket: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        private let state = Mutex((bytes: [UInt8](), isClosed: false))

        var bytes: [UInt8] { state.withLock { $0.bytes } }
        var isClosed: Bool { state.withLock { $0.isClosed } }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let read = Array(unwrapInboundIn(data).readableBytesView)
            state.withLock { $0.bytes += read }
        }
        func channelInactive(context: ChannelHandlerContext) { state.withLock { $0.isClosed = true } }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

        static func connect(_ port: Int) async throws -> (any Channel, RawSocket) {
            let socket = RawSocket()
            let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .channelInitializer { $0.pipeline.addHandler(socket) }
                .connect(host: "127.0.0.1", port: port).get()
            return (channel, socket)
        }
    }

    private let factory: IPv6TCPP2PTransportClientFactory = {
        var factory = IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]))
        factory.tokenTime = .hours(1)
        return factory
    }()

    private func handle(
        _ send: @escaping @Sendable (String, P2PMetadata) async throws -> Void = { _, _ in }
    ) throws -> P2PTransportFactoryHandle {
        P2PTransportFactoryHandle(
            state: P2PFrameworkState(
                username: "bob", deviceId: try #require(DeviceId("00000000000000ff")),
                transportLayerIdentifier: "_ipv6-tcp"),
            send: send)
    }

    /// A client that listens, with what it offers.
    private func listen(
        _ factory: IPv6TCPP2PTransportClientFactory? = nil
    ) async throws -> (client: any P2PTransportClient, port: Int, token: [UInt8]) {
        let offers = Mutex<[P2PMetadata]>([])
        let made = try await (factory ?? self.factory).createConnection(
            handle: handle { _, metadata in offers.withLock { $0.append(metadata) } })
        let client = try #require(made)
        let offer = try #require(offers.withLock { $0.first }).decode(Offer.self)
        let token = stride(from: 0, to: 64, by: 2).map { place in
            UInt8(offer.token.dropFirst(place).prefix(2), radix: 16) ?? 0
        }
        return (client, try #require(offer.places.first).port, token)
    }

    private func packet(_ bytes: [UInt8]) -> ByteBuffer { ByteBuffer(bytes: PacketReader.head(of: bytes) + bytes) }

    private func isRefused(_ port: Int) async -> Bool {
        guard let (channel, _) = try? await RawSocket.connect(port) else { return true }
        try? await channel.close()
        return false
    }

    @Test func aStrangerWithoutTheTokenIsClosed() async throws {
        let (client, port, token) = try await listen()
        var generator = SeededGenerator(seed: 155)
        var strangers: [[UInt8]] = [[0, 0, 0, 0], [0, 0, 0, 33], [255, 255, 255, 255]]
        var wrong = token
        wrong[31] ^= 1
        strangers += [PacketReader.head(of: wrong) + wrong, PacketReader.head(of: [1]) + [1]]
        for _ in 0..<10 { strangers.append([0, 0, 0, 32] + generator.bytes(32)) }
        for bytes in strangers {
            let (channel, socket) = try await RawSocket.connect(port)
            channel.writeAndFlush(ByteBuffer(bytes: bytes), promise: nil)
            try await eventuallyAsync("it is closed") { socket.isClosed }
            #expect(socket.bytes.isEmpty)
        }
        #expect(client.connected == .connecting)
        // The other side still gets in, byte by byte.
        let (channel, _) = try await RawSocket.connect(port)
        for byte in PacketReader.head(of: token) + token {
            try await channel.writeAndFlush(ByteBuffer(bytes: [byte]))
        }
        try await eventuallyAsync("it is connected") { client.connected == .connected }
        try await eventuallyAsync("nobody listens") { await isRefused(port) }
        try await channel.close()
        try await client.disconnect()
    }

    @Test func tooManySocketsAreClosedAtOnce() async throws {
        let (client, port, token) = try await listen()
        var sockets: [(any Channel, RawSocket)] = []
        for _ in 0..<30 { sockets.append(try await RawSocket.connect(port)) }
        try await eventuallyAsync("22 are closed") { sockets.filter { $0.1.isClosed }.count >= 22 }
        // One of the others is the right one.
        let last = try #require(sockets.first { !$0.1.isClosed })
        last.0.writeAndFlush(packet(token), promise: nil)
        try await eventuallyAsync("the rest is closed") { sockets.filter { !$0.1.isClosed }.count == 1 }
        #expect(client.connected == .connected)
        try await client.disconnect()
        try await eventuallyAsync("the last is closed") { sockets.allSatisfy { $0.1.isClosed } }
    }

    @Test func aSocketWithoutATokenIsClosedInTime() async throws {
        var hasty = factory
        hasty.tokenTime = .milliseconds(20)
        let (client, port, _) = try await listen(hasty)
        let (channel, socket) = try await RawSocket.connect(port)
        channel.writeAndFlush(ByteBuffer(bytes: [0, 0]), promise: nil)
        try await eventuallyAsync("it is closed") { socket.isClosed }
        #expect(client.connected == .connecting)
        try await client.disconnect()
    }

    /// Connected sockets that send no packets: too long, empty, or cut.
    @Test func aStreamThatIsNoPacketsEndsTheConnection() async throws {
        let cases: [[UInt8]] = [
            [0, 0, 0, 0], [255, 255, 255, 255], PacketReader.head(of: [UInt8](repeating: 0, count: 100_065)),
            [0, 0, 0, 9, 1, 2, 3],
        ]
        for bytes in cases {
            let (client, port, token) = try await listen()
            let recorder = Recorder()
            client.delegate = recorder
            let (channel, _) = try await RawSocket.connect(port)
            try await channel.writeAndFlush(packet(token))
            try await channel.writeAndFlush(packet([7]))
            try await channel.writeAndFlush(ByteBuffer(bytes: bytes))
            if bytes.count == 7 { try await channel.close() }
            try await eventuallyAsync("the client is closed") { recorder.events.closed == 1 }
            #expect(recorder.events.packets == [[7]])
            #expect(client.connected == .disconnected)
        }
    }

    @Test func anAbandonedAttemptListensNoLonger() async throws {
        let (client, port, _) = try await listen()
        try await client.disconnect()
        try await eventuallyAsync("the port is closed") { await isRefused(port) }
        var released: (any P2PTransportClient)?
        let other: Int
        (released, other, _) = try await listen()
        #expect(released != nil)
        released = nil
        try await eventuallyAsync("the port is closed") { await isRefused(other) }
    }

    /// A socket of the other side that does not read is closed after a few seconds.
    @Test func aPeerThatDoesNotReadHoldsNoSocket() async throws {
        let (client, port, token) = try await listen()
        let recorder = Recorder()
        client.delegate = recorder
        let (channel, _) = try await RawSocket.connect(port)
        try await channel.writeAndFlush(packet(token))
        try await eventuallyAsync("it is connected") { client.connected == .connected }
        try await channel.setOption(.autoRead, value: false).get()
        let sending = Task {
            while true { try await client.sendMessage([UInt8](repeating: 1, count: 100_000)) }
        }
        // The sender waits at some point; the end of the connection ends the wait.
        try await client.disconnect()
        try await eventuallyAsync("it has ended") { recorder.events.closed == 1 }
        await #expect(throws: (any Error).self) { try await sending.value }
        // The other side may have closed it.
        try? await channel.close()
    }

    // MARK: Offers

    /// A peer's offer must not lead to services of this device or its network's special addresses.
    @Test func addressesThatAreNotForOthersAreNotTried() async throws {
        let (client, port, _) = try await listen()
        let token = String(repeating: "00", count: 32)
        let usual = IPv6TCPP2PTransportClientFactory()
        for host in [
            "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.169.254", "fe80::1",
            "224.0.0.1", "255.255.255.255", "ff02::1", "64:ff9b::1", "localhost", "", "1.2.3", "::1%lo",
        ] {
            let offer = Offer(token: token, places: [.init(host: host, port: port)])
            await #expect(throws: P2PError.transport("None of 0 addresses can be reached."), "\(host)") {
                _ = try await usual.receiveMessage("", metadata: P2PMetadata(offer), handle: handle())
            }
        }
        for port in [-1, 0, 22, 1023, 65_536] {
            let offer = Offer(token: token, places: [.init(host: "127.0.0.1", port: port)])
            await #expect(throws: P2PError.transport("None of 0 addresses can be reached."), "\(port)") {
                _ = try await factory.receiveMessage("", metadata: P2PMetadata(offer), handle: handle())
            }
        }
        #expect(client.connected == .connecting)
        try await client.disconnect()
    }

    @Test func offersOfOtherFormsAreRefused() async throws {
        for token in ["", "00", String(repeating: "0", count: 63), String(repeating: "zz", count: 32)] {
            await #expect(throws: P2PError.self) {
                let offer = Offer(token: token, places: [])
                _ = try await factory.receiveMessage("", metadata: P2PMetadata(offer), handle: handle())
            }
        }
        await #expect(throws: (any Error).self) {
            _ = try await factory.receiveMessage("", metadata: P2PMetadata(), handle: handle())
        }
    }

    /// Of several addresses one is enough, and a port without a listener is no obstacle.
    @Test func oneReachableAddressIsEnough() async throws {
        let (client, port, token) = try await listen()
        let (closed, closedPort, _) = try await listen()
        try await closed.disconnect()
        try await eventuallyAsync("the port is closed") { await isRefused(closedPort) }
        let digits = token.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let places = [closedPort, port].map { Offer.Place(host: "127.0.0.1", port: $0) }
        let made = try await factory.receiveMessage(
            "", metadata: P2PMetadata(Offer(token: digits, places: places)), handle: handle())
        let other = try #require(made)
        try await eventuallyAsync("both are connected") { client.connected == .connected }
        try await other.disconnect()
        try await client.disconnect()
    }

    @Test func withoutAnAddressThereIsNoConnection() async throws {
        let nowhere = IPv6TCPP2PTransportClientFactory(addresses: .listed(["192.0.2.1"]))
        await #expect(throws: P2PError.transport("This device has no address to listen on.")) {
            _ = try await nowhere.createConnection(handle: handle())
        }
        let onlyIPv6 = IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]), allowsIPv4: false)
        await #expect(throws: P2PError.transport("This device has no address to listen on.")) {
            _ = try await onlyIPv6.createConnection(handle: handle())
        }
    }
}
