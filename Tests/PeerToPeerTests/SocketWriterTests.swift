import Dispatch
import NIOCore
import NIOPosix
import PawlMessenger
import PeerConnection
import Synchronization
import TestKit
import Testing

@testable import PawlPeerToPeerTCP

/// Packets that the socket takes from the thread that sends them, and those that it does not take.
@Suite struct SocketWriterTests {
    /// The other side of the socket.
    private final class Reader: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        private let state = Mutex((bytes: [UInt8](), channel: (any Channel)?.none, isClosed: false))

        var bytes: [UInt8] { state.withLock { $0.bytes } }
        var channel: (any Channel)? { state.withLock { $0.channel } }
        var isClosed: Bool { state.withLock { $0.isClosed } }

        func channelActive(context: ChannelHandlerContext) { state.withLock { $0.channel = context.channel } }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let read = Array(unwrapInboundIn(data).readableBytesView)
            state.withLock { $0.bytes += read }
        }
        func channelInactive(context: ChannelHandlerContext) { state.withLock { $0.isClosed = true } }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    /// The side that connects.
    private struct Pair {
        let reader = Reader()
        let client: IPv6TCPP2PTransportClient
        let loop: any EventLoop
        let token = [UInt8](repeating: 1, count: TCPLimits.tokenSize)
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

        init() async throws {
            loop = group.next()
            client = IPv6TCPP2PTransportClient(
                state: P2PFrameworkState(
                    username: "bob", deviceId: try #require(DeviceId("00000000000000ff")),
                    transportLayerIdentifier: "_ipv6-tcp"), on: loop)
            let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .childChannelInitializer { [reader] in $0.pipeline.addHandler(reader) }
                .bind(host: "127.0.0.1", port: 0).get()
            let socket = try await ClientBootstrap(group: loop).connect(to: try #require(server.localAddress)).get()
            let factory = IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]))
            let isUsed = try await loop.submit { [client, token] in
                try factory.use(socket, by: client, token)
            }.get()
            #expect(isUsed)
            try await eventuallyAsync("the token has come") { reader.bytes.count == 4 + TCPLimits.tokenSize }
            try await server.close()
        }

        /// Closes the connection and ends the thread.
        func end() async throws {
            try await client.disconnect()
            try await eventuallyAsync("the other side sees the end") { reader.isClosed }
            try await eventuallyAsync("it has ended") { client.connected == .disconnected }
            try await group.shutdownGracefully()
        }
    }

    private func framed(_ packets: [[UInt8]]) -> [UInt8] { packets.flatMap { PacketReader.head(of: $0) + $0 } }

    /// The socket's thread is stopped meanwhile.
    @Test func aPacketNeedsNoOtherThread() async throws {
        let pair = try await Pair()
        let (isStopped, goesOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        pair.loop.execute {
            isStopped.signal()
            goesOn.wait()
        }
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                isStopped.wait()
                continuation.resume()
            }
        }
        let packets: [[UInt8]] = [[7], [8, 9]]
        for packet in packets { #expect(pair.client.sendAtOnce(packet)) }
        defer { goesOn.signal() }
        try await eventuallyAsync("both have come") { pair.reader.bytes == framed([pair.token] + packets) }
        goesOn.signal()
        try await pair.end()
    }

    /// A packet that the socket takes in part is finished by its thread, before all that come later.
    @Test func whatTheSocketDoesNotTakeFollowsInOrder() async throws {
        let pair = try await Pair()
        let channel = try #require(pair.reader.channel)
        try await channel.setOption(.autoRead, value: false).get()
        var packets: [[UInt8]] = []
        var number: UInt8 = 0
        func packet() -> [UInt8] {
            number &+= 1
            return [UInt8](repeating: number, count: 99_999)
        }
        // More than the buffers of both sockets, and all that may wait for the thread.
        while true {
            let next = packet()
            guard pair.client.sendAtOnce(next) else { break }
            packets.append(next)
        }
        let last = packet()
        async let sending: Void = pair.client.sendMessage(last)
        try await channel.setOption(.autoRead, value: true).get()
        try await sending
        packets.append(last)
        for _ in 0..<3 {
            let next: [UInt8] = [number]
            try await pair.client.sendMessage(next)
            packets.append(next)
        }
        let expected = framed([pair.token] + packets)
        try await eventuallyAsync("all have come") { pair.reader.bytes.count >= expected.count }
        #expect(pair.reader.bytes == expected)
        try await pair.end()
    }

    /// A message over TCP changes no thread between its socket and the app.
    @Test func theAppIsCalledOnTheLoopOfTheSocket() async throws {
        let couple = try await Couple(.tcpIPv4)
        let (alice, bob) = try await couple.connect()
        for _ in 0..<3 {
            try await alice.sendMessage([1])
            try await bob.sendMessage([2])
        }
        for person in [couple.alice, couple.bob] { #expect(person.handler.events.onLoops == [true, true, true]) }
        couple.close()
    }
}
