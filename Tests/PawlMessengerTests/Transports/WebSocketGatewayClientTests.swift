import Foundation
import HTTPCodec
import NIOCore
import NIOPosix
import PawlMessenger
import PawlMessengerWebSocket
import Synchronization
import TestKit
import Testing

/// WebSockets of the client, with a server that may answer anything.
@Suite struct WebSocketGatewayClientTests {
    /// A server that answers the request for a WebSocket, and keeps the frames that follow.
    private final class Server: ChannelInboundHandler, @unchecked Sendable {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let state = Mutex((request: "", frames: [WebSocketMessage](), isClosed: false))
        private var reader = FrameReader(isMasked: true, limit: 1 << 20)
        private var buffer = ByteBuffer()
        /// Makes the pieces of the answer to a key.
        private let answer: @Sendable (String) -> [[UInt8]]

        init(_ answer: @escaping @Sendable (String) -> [[UInt8]]) { self.answer = answer }

        var request: String { state.withLock { $0.request } }
        var frames: [WebSocketMessage] { state.withLock { $0.frames } }
        var isClosed: Bool { state.withLock { $0.isClosed } }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            buffer.writeImmutableBuffer(unwrapInboundIn(data))
            if request.isEmpty {
                let text = String(buffer: buffer)
                guard text.hasSuffix("\r\n\r\n") else { return }
                buffer.clear()
                state.withLock { $0.request = text }
                let key =
                    text.split(separator: "\r\n").first { $0.hasPrefix("Sec-WebSocket-Key: ") }?.dropFirst(19) ?? ""
                for piece in answer(String(key)) {
                    context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: piece)), promise: nil)
                }
                return
            }
            while let frame = try? reader.next(&buffer) { state.withLock { $0.frames.append(frame) } }
        }

        func channelInactive(context: ChannelHandlerContext) { state.withLock { $0.isClosed = true } }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private static func switching(_ key: String) -> String {
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            + "Sec-WebSocket-Accept: \(WebSocketKey.accept(key))\r\n\r\n"
    }

    private static func frame(_ message: WebSocketMessage) -> [UInt8] {
        var bytes = ByteBuffer()
        bytes.write(message, mask: nil)
        return Array(buffer: bytes)
    }

    private static func text(_ text: String) -> [UInt8] { frame(.data(ByteBuffer(string: text), isText: true)) }

    /// Opens a WebSocket to a server.
    private func open(
        _ answer: @escaping @Sendable (String) -> [[UInt8]], credential: GatewayCredential = .bearer("t"),
        silence: Duration = .seconds(600), _ body: (any GatewaySocket, Server) async throws -> Void = { _, _ in }
    ) async throws -> Server {
        let server = Server(answer)
        let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { $0.pipeline.addHandler(server) }
            .bind(host: "127.0.0.1", port: 0).get()
        defer { listener.close(promise: nil) }
        let port = try #require(listener.localAddress?.port)
        let socket = try await WebSocketGatewayClient().open(
            GatewaySocketRequest(
                url: try #require(URL(string: "http://127.0.0.1:\(port)/chat/_pawl/v1/socket")),
                credential: credential, messageLimit: 1000, waitingLimit: 2, silence: silence))
        try await body(socket, server)
        socket.close()
        return server
    }

    @Test(arguments: [false, true]) func textsAreReceivedAndSent(_ isByteByByte: Bool) async throws {
        _ = try await open { key in
            let bytes =
                Array(Self.switching(key).utf8) + Self.text("one") + Self.frame(.ping(ByteBuffer(string: "p")))
                + Self.text("two")
            return isByteByByte ? bytes.map { [$0] } : [bytes]
        } _: { socket, server in
            #expect(await socket.receive() == Array("one".utf8))
            #expect(await socket.receive() == Array("two".utf8))
            try await socket.send(Array("three".utf8))
            try await eventuallyAsync("both have come") { server.frames.count == 2 }
            #expect(
                server.frames == [.pong(ByteBuffer(string: "p")), .data(ByteBuffer(string: "three"), isText: true)])
            #expect(server.request.hasPrefix("GET /chat/_pawl/v1/socket HTTP/1.1\r\n"))
            #expect(server.request.contains("Authorization: Bearer t\r\n"))
            socket.close()
            #expect(await socket.receive() == nil)
            await #expect(throws: (any Error).self) { try await socket.send([1]) }
            try await eventuallyAsync("it is closed") { server.isClosed }
            #expect(server.frames.last == .close(ByteBuffer(integer: UInt16(1000))))
        }
    }

    @Test func otherAnswersAreRefused() async throws {
        let answers: [@Sendable (String) -> String] = [
            { _ in "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n" },
            { _ in "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" }, { _ in Self.switching("another") },
            { Self.switching($0).replacing("websocket", with: "pawl-relay") },
            { Self.switching($0).replacing("\r\n\r\n", with: "\r\nSec-WebSocket-Protocol: x\r\n\r\n") },
            { _ in "SSH-2.0-x\r\n\r\n" }, { _ in "HTTP/1.1 101 " + String(repeating: "a", count: 1 << 20) },
        ]
        for (number, answer) in answers.enumerated() {
            await #expect(throws: (any Error).self, "\(number)") {
                _ = try await open { [Array(answer($0).utf8)] }
            }
        }
        await #expect(throws: (any Error).self) {
            _ = try await open({ [Array(Self.switching($0).utf8)] }, credential: .init(value: "a\r\nHost: x"))
        }
    }

    /// A server that does not keep to the rules is left: nothing is received after it.
    @Test(
        arguments: [
            [text("a"), text("b"), text("c"), text("d")].flatMap(\.self), text(String(repeating: "a", count: 1001)),
            frame(.data(ByteBuffer(string: "binary"), isText: false)), [0xC1, 0],
            frame(.close(ByteBuffer(integer: UInt16(1001)))),
        ] as [[UInt8]]) func otherFramesEndIt(_ bytes: [UInt8]) async throws
    {
        _ = try await open {
            [Array(Self.switching($0).utf8), bytes]
        } _: { socket, server in
            try await eventuallyAsync("it is closed") { server.isClosed }
            for _ in 0..<2 { _ = await socket.receive() }
            #expect(await socket.receive() == nil)
        }
    }

    @Test func aSilentOneEnds() async throws {
        _ = try await open({ [Array(Self.switching($0).utf8)] }, silence: .milliseconds(100)) { socket, server in
            #expect(await socket.receive() == nil)
            try await eventuallyAsync("it is closed") { server.isClosed }
        }
    }

    @Test func aCancelledAttemptEnds() async throws {
        let server = Server { _ in [] }
        let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { $0.pipeline.addHandler(server) }
            .bind(host: "127.0.0.1", port: 0).get()
        let url = try #require(URL(string: "http://127.0.0.1:\(listener.localAddress?.port ?? 0)"))
        let attempt = Task {
            try await WebSocketGatewayClient().open(
                GatewaySocketRequest(
                    url: url, credential: .bearer("t"), messageLimit: 9, waitingLimit: 9, silence: .seconds(600)))
        }
        try await eventuallyAsync("it was asked") { !server.request.isEmpty }
        attempt.cancel()
        await #expect(throws: CancellationError.self) { _ = try await attempt.value }
        try await eventuallyAsync("it is closed") { server.isClosed }
        try await listener.close()
    }
}
