import Foundation
import NIOCore
import NIOPosix
import PawlMessenger
import PawlPeerToPeerTCP
import PeerConnection
import Synchronization
import TestKit
import Testing

/// Answers of a gateway, or of another server in its place, to a device that asks for a relay.
@Suite struct RelayAnswerTests {
    /// A server that answers the first bytes of each connection.
    private final class Server: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let state = Mutex((requests: [String](), closed: 0))
        private let pieces: [[UInt8]]
        private let closes: Bool

        var requests: [String] { state.withLock { $0.requests } }
        var closed: Int { state.withLock { $0.closed } }

        init(_ pieces: [[UInt8]], closes: Bool) { (self.pieces, self.closes) = (pieces, closes) }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let text = String(buffer: unwrapInboundIn(data))
            guard text.hasPrefix("GET ") else { return }
            state.withLock { $0.requests.append(text) }
            for piece in pieces { context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: piece)), promise: nil) }
            if closes { context.close(promise: nil) }
        }

        func channelInactive(context: ChannelHandlerContext) { state.withLock { $0.closed += 1 } }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: pawl-relay\r\n\r\n"

    private func handle(
        _ send: @escaping @Sendable (String, P2PMetadata) async throws -> Void = { _, _ in }
    ) throws -> P2PTransportFactoryHandle {
        P2PTransportFactoryHandle(
            state: P2PFrameworkState(
                username: "bob.o", deviceId: try #require(DeviceId("00000000000000ff")),
                transportLayerIdentifier: "_pawl-relay"),
            send: send)
    }

    /// Asks a server that answers so.
    @discardableResult
    private func ask<Result>(
        _ pieces: [[UInt8]], closes: Bool = false, logins: [String] = ["Bearer t"],
        _ body: (Server, GatewayRelayP2PTransportClientFactory) async throws -> Result
    ) async throws -> Result {
        let server = Server(pieces, closes: closes)
        let socket = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { $0.pipeline.addHandler(server) }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(socket.localAddress?.port)
        let url = try #require(URL(string: "http://127.0.0.1:\(port)/chat/"))
        let rest = Mutex(logins)
        let factory = GatewayRelayP2PTransportClientFactory(url: url) { isRefused in
            .init(header: "X-Login", value: rest.withLock { isRefused ? $0.removeLast() : $0[0] })
        }
        #expect(!factory.disclosesAddress)
        let result = try await body(server, factory)
        try await socket.close()
        return result
    }

    private func packet(_ bytes: [UInt8]) -> [UInt8] { PacketReader.head(of: bytes) + bytes }

    @Test(arguments: [false, true]) func aRelayBeginsAfterTheAnswer(_ isByteByByte: Bool) async throws {
        let bytes = Array(switching.utf8) + packet([1, 2, 3]) + packet([4])
        try await ask(isByteByByte ? bytes.map { [$0] } : [bytes]) { server, factory in
            let sent = Mutex<[(String, P2PMetadata)]>([])
            let made = try await factory.createConnection(
                handle: handle { text, metadata in sent.withLock { $0.append((text, metadata)) } })
            let client = try #require(made)
            #expect(client.connected == .connected)
            let recorder = Recorder()
            client.delegate = recorder
            try await eventuallyAsync("both packets have come") { recorder.events.packets == [[1, 2, 3], [4]] }
            // The packet has a session and nothing else.
            let packets = sent.withLock { $0 }
            #expect(packets.map(\.0) == [""])
            struct Packet: Codable { var version: Int, session: String }
            let session = try #require(packets.first).1.decode(Packet.self).session
            #expect(
                try #require(packets.first).1.decode([String: AnyKey].self).keys.sorted() == ["session", "version"])
            #expect(session.count == 64)
            let request = try #require(server.requests.first)
            #expect(request.hasPrefix("GET /chat/_pawl/v1/relays/\(session)?account=bob%2Eo&device=00000000000000ff "))
            #expect(request.contains("X-Login: Bearer t\r\n") && request.contains("Upgrade: pawl-relay\r\n"))
            try await client.disconnect()
        }
    }

    /// Any value.
    private struct AnyKey: Decodable { init(from decoder: any Decoder) throws {} }

    @Test func otherAnswersAreRefused() async throws {
        for answer in [
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            switching.replacing("pawl-relay", with: "websocket"), switching.replacing("101", with: "100"),
            switching.replacing("HTTP/1.1", with: "HTTP/2"), "\r\n\r\n", "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 101 " + String(repeating: "a", count: 1 << 20),
        ] {
            try await ask([Array(answer.utf8)]) { server, factory in
                await #expect(throws: P2PError.self, "\(answer.prefix(40))") {
                    _ = try await factory.receiveMessage(
                        "", metadata: P2PMetadata(["version": AnyValue.number(1), "session": .text(hex)]),
                        handle: handle())
                }
                try await eventuallyAsync("it is closed") { server.closed > 0 }
            }
        }
    }

    private let hex = String(repeating: "0a", count: 32)

    private enum AnyValue: Encodable {
        case number(Int), text(String)

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            switch self {
            case .number(let number): try container.encode(number)
            case .text(let text): try container.encode(text)
            }
        }
    }

    @Test func aCutAnswerIsRefused() async throws {
        for length in stride(from: 0, to: switching.utf8.count, by: 7) {
            try await ask([Array(switching.utf8.prefix(length))], closes: true) { _, factory in
                await #expect(throws: P2PError.self, "\(length)") {
                    _ = try await factory.createConnection(handle: handle())
                }
            }
        }
    }

    @Test func packetsOfOtherFormsAreRefused() async throws {
        try await ask([]) { server, factory in
            for metadata in [
                P2PMetadata(), try P2PMetadata(["version": AnyValue.number(2), "session": .text(hex)]),
                try P2PMetadata(["version": AnyValue.number(1), "session": .text("0a")]),
                try P2PMetadata(["version": AnyValue.number(1), "session": .text(hex.replacing("0a", with: "0g"))]),
                try P2PMetadata(["version": AnyValue.number(1), "session": .text(hex + "0a")]),
            ] {
                await #expect(throws: (any Error).self) {
                    _ = try await factory.receiveMessage("", metadata: metadata, handle: handle())
                }
            }
            #expect(server.requests.isEmpty)
        }
    }

    /// A login that was refused is renewed once, and the packet is sent once.
    @Test func aRefusedLoginIsRenewed() async throws {
        try await ask([Array("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".utf8)], logins: ["old", "new"]) {
            server, factory in
            let sent = Mutex(0)
            await #expect(throws: P2PError.transport("The gateway does not accept the login.")) {
                _ = try await factory.createConnection(handle: handle { _, _ in sent.withLock { $0 += 1 } })
            }
            #expect(server.requests.map { $0.contains("X-Login: old\r\n") } == [true, false])
            #expect(server.requests.last?.contains("X-Login: new\r\n") == true && sent.withLock { $0 } == 1)
        }
    }

    @Test func aLoginIsOneLine() async throws {
        for login in ["a\r\nHost: x", "a\u{0}"] {
            try await ask([], logins: [login]) { server, factory in
                await #expect(throws: P2PError.self) { _ = try await factory.createConnection(handle: handle()) }
                #expect(server.requests.isEmpty)
            }
        }
    }

    /// The end of an attempt closes the connection to a gateway that does not answer.
    @Test func aCancelledAttemptEnds() async throws {
        try await ask([]) { server, factory in
            let attempt = Task { try await factory.createConnection(handle: handle()) }
            try await eventuallyAsync("it was asked") { server.requests.count == 1 }
            attempt.cancel()
            await #expect(throws: P2PError.self) { _ = try await attempt.value }
            try await eventuallyAsync("it is closed") { server.closed == 1 }
        }
    }

    @Test func withoutAGatewayThereIsNoRelay() async throws {
        for text in ["ftp://127.0.0.1", "http:", "/relative", "http://127.0.0.1:1/?a=b", "http://127.0.0.1:1"] {
            let url = try #require(URL(string: text))
            let factory = GatewayRelayP2PTransportClientFactory(url: url) { _ in .bearer("t") }
            await #expect(throws: P2PError.self, "\(text)") {
                _ = try await factory.createConnection(
                    handle: handle { _, _ in Issue.record("a packet was sent without a gateway") })
            }
        }
    }
}
