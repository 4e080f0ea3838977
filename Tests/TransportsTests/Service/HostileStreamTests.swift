import Foundation
import Glibc
import NIOCore
import NIOPosix
import PeerKit
import TestKit
import TestNetwork
import Testing
import TransportCodec
import TransportsClient
import TransportsCore
import TransportsService

/// Peers that do not follow the protocol, on a Unix socket.
@Suite struct HostileStreamTests {
    /// A client that writes any bytes.
    private final class RawClient {
        private let descriptor: Int32
        private var reader = FrameReader(limit: 1 << 20)

        init(_ path: String) throws {
            descriptor = try connected(path)
        }

        deinit { close(descriptor) }

        func write(_ frames: Frame...) {
            var buffer = ByteBuffer()
            for frame in frames { frame.write(to: &buffer) }
            write(Array(buffer.readableBytesView))
        }

        func write(_ bytes: [UInt8]) { _ = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }

        /// The next frame, or nil at the end of the connection.
        func next() async throws -> Frame? {
            while true {
                if let frame = try reader.next() { return frame }
                var bytes = [UInt8](repeating: 0, count: 4096)
                let count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
                if count == 0 { return nil }
                if count > 0 {
                    reader.append(ByteBuffer(bytes: bytes.prefix(count)))
                } else if errno == EAGAIN {
                    try await Task.sleep(for: .milliseconds(1))
                } else {
                    return nil
                }
            }
        }
    }

    private static func connected(_ path: String) throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        let address = try SocketAddress(unixDomainSocketPath: path)
        try #require(address.withSockAddr { connect(descriptor, $0, socklen_t($1)) } == 0)
        return descriptor
    }

    private static func hello(_ proto: String = "test/1", version: UInt8 = Frame.version) -> Frame {
        .hello(version: version, proto: ByteBuffer(string: proto))
    }

    private let scratch: ScratchDirectory
    private var path: String { scratch.file("s") }

    init() throws { scratch = try ScratchDirectory() }

    private func serve(
        _ limits: TransportLimits = TransportLimits(), _ workshop: Workshop = Workshop()
    ) async throws -> any BoundTransport {
        let bound = TransportsService.UnixTransport(path: path, limits: limits).bind(processor: workshop.processor)
        try await bound.ready().get()
        return bound
    }

    /// Whether the service still answers; a busy machine may take longer than one status may.
    private func isAlive() async -> Bool {
        for _ in 0..<30 where await TransportsClient.UnixTransport(path: path).status(proto: Workshop.proto) == .ready {
            return true
        }
        return false
    }

    @Test func whatIsNoGreetingEndsTheConnection() async throws {
        let bound = try await serve()
        let text = ByteBuffer(string: "x")
        for frames: [Frame] in [
            [.request(id: 1, text)], [.cancel(id: 1)], [.welcome(version: 1)], [.drain], [.reply(id: 1, text)],
            [Self.hello("")], [Self.hello(String(repeating: "x", count: 129))],
        ] {
            let client = try RawClient(path)
            for frame in frames { client.write(frame) }
            #expect(try await client.next() == nil, "\(frames)")
        }
        for bytes: [UInt8] in [
            Array("GET / HTTP/1.1\r\n\r\n".utf8), [0, 0, 0, 0], [0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 1, 0],
        ] {
            let client = try RawClient(path)
            client.write(bytes)
            #expect(try await client.next() == nil, "\(bytes)")
        }
        #expect(await isAlive())
        await bound.close()
    }

    @Test func anotherVersionIsToldOurs() async throws {
        let bound = try await serve()
        let client = try RawClient(path)
        client.write(Self.hello(version: 2))
        guard case .unavailable(let reason)? = try await client.next() else {
            Issue.record("version 2 is welcome")
            return
        }
        #expect(String(buffer: reason) == "the service speaks version 1 and not 2")
        #expect(try await client.next() == nil)
        await bound.close()
    }

    /// A client that does not wait for the answer to its greeting: what it asks for is not done.
    @Test(arguments: [
        Frame.hello(version: 2, proto: ByteBuffer(string: "test/1")),
        .hello(version: Frame.version, proto: ByteBuffer(string: "other/1")),
    ])
    func requestsBehindARefusedGreetingAreNotProcessed(_ greeting: Frame) async throws {
        let workshop = Workshop()
        let bound = try await serve(TransportLimits(), workshop)
        let client = try RawClient(path)
        client.write(greeting, .request(id: 1, ByteBuffer(string: "echo")), .cancel(id: 1), Self.hello())
        guard case .unavailable? = try await client.next() else {
            Issue.record("the greeting is accepted")
            return
        }
        #expect(try await client.next() == nil)
        await bound.close()
        #expect(workshop.count == 0)
    }

    @Test func whatAClientMayNotSendAfterItsGreetingEndsTheConnection() async throws {
        let bound = try await serve()
        let text = ByteBuffer(string: "hold x")
        for frames: [Frame] in [
            [Self.hello()], [.request(id: 1, text), .request(id: 1, text)], [.reply(id: 1, text)], [.drain],
            [.failure(id: 1, code: 1, reason: text)], [.unavailable(reason: text)],
        ] {
            let client = try RawClient(path)
            client.write(Self.hello())
            #expect(try await client.next() == .welcome(version: Frame.version))
            for frame in frames { client.write(frame) }
            #expect(try await client.next() == nil, "\(frames)")
        }
        #expect(await isAlive())
        await bound.close()
    }

    @Test func aClientThatSaysNothingIsNotWaitedFor() async throws {
        var limits = TransportLimits()
        limits.handshake = .milliseconds(50)
        let bound = try await serve(limits)
        let (silent, slow) = (try RawClient(path), try RawClient(path))
        slow.write([0, 0, 0, 16, 1])
        #expect(try await silent.next() == nil)
        #expect(try await slow.next() == nil)
        await bound.close()
    }

    @Test func connectionsAndRequestsAreBounded() async throws {
        var limits = TransportLimits()
        (limits.connections, limits.inFlight) = (2, 2)
        let bound = try await serve(limits)
        let (first, second) = (try RawClient(path), try RawClient(path))
        for client in [first, second] {
            client.write(Self.hello())
            #expect(try await client.next() == .welcome(version: Frame.version))
        }
        let third = try RawClient(path)
        third.write(Self.hello())
        #expect(try await third.next() == nil)
        for id: UInt64 in 1...3 { first.write(.request(id: id, ByteBuffer(string: "hold \(id)"))) }
        #expect(try await first.next() == .failure(id: 3, code: TesseractError.busy.code, reason: ByteBuffer()))
        // A cancelled request makes room.
        first.write(.cancel(id: 1), .request(id: 4, ByteBuffer(string: "echo")))
        #expect(try await first.next() == .reply(id: 4, ByteBuffer(string: "echo")))
        await bound.close()
    }

    @Test func anEndInsideARequestEndsNothingElse() async throws {
        let bound = try await serve()
        var buffer = ByteBuffer()
        Self.hello().write(to: &buffer)
        Frame.request(id: 1, ByteBuffer(string: "echo")).write(to: &buffer)
        let bytes = Array(buffer.readableBytesView)
        for count in 0..<bytes.count {
            let client = try RawClient(path)
            client.write(Array(bytes.prefix(count)))
        }
        #expect(await isAlive())
        await bound.close()
    }

    /// A service that sends what it may not send: the request fails, and nothing else happens.
    @Test(arguments: [
        [Frame.welcome(version: 2)], [.drain, .hello(version: 1, proto: ByteBuffer())], [.reply(id: 1, ByteBuffer())],
        [.welcome(version: 1), .reply(id: 99, ByteBuffer())], [.welcome(version: 1), .welcome(version: 1)],
        [.welcome(version: 1), .request(id: 1, ByteBuffer())], [.welcome(version: 1), .cancel(id: 1)],
        [.welcome(version: 1), .unavailable(reason: ByteBuffer())],
    ])
    func aServiceThatDoesNotFollowTheProtocolIsLeft(_ frames: [Frame]) async throws {
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(listener) }
        let address = try SocketAddress(unixDomainSocketPath: path)
        try #require(address.withSockAddr { systemBind(listener, $0, socklen_t($1)) } == 0 && listen(listener, 1) == 0)
        // On a busy machine this test's own thread may be late.
        let connection = TransportsClient.UnixTransport(path: path, limits: .patient).connect(proto: "p")
        let reply = Task { await connection.exchange(request: Data("x".utf8)) }
        let accepted = await withCheckedContinuation { continuation in
            Thread.detachNewThread { continuation.resume(returning: accept(listener, nil, nil)) }
        }
        defer { close(accepted) }
        var buffer = ByteBuffer()
        for frame in frames { frame.write(to: &buffer) }
        let bytes = Array(buffer.readableBytesView)
        _ = send(accepted, bytes, bytes.count, Int32(MSG_NOSIGNAL))
        let result = await reply.value
        guard case .failure(.weird) = result else {
            Issue.record("\(result)")
            return
        }
        #expect((try? await connection.exchange(request: Data()).get()) == nil)
    }

    /// The socket is its owner's, is there once, and is removed at the end.
    @Test func theSocketFileIsItsOwners() async throws {
        let bound = try await serve()
        var information = stat()
        #expect(lstat(path, &information) == 0 && information.st_mode & 0o777 == 0o600)
        let second = TransportsService.UnixTransport(path: path).bind(processor: Workshop().processor)
        #expect(await second.ready().failure == .unavailable(reason: "another process listens on \(path)"))
        #expect(await isAlive())
        await bound.close()
        #expect(lstat(path, &information) != 0)
        // What a dead process left is replaced; other files are not.
        let dead = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        let address = try SocketAddress(unixDomainSocketPath: path)
        #expect(address.withSockAddr { systemBind(dead, $0, socklen_t($1)) } == 0)
        close(dead)
        await (try await serve()).close()
        try scratch.write("s", "a file")
        let third = TransportsService.UnixTransport(path: path).bind(processor: Workshop().processor)
        #expect(await third.ready().failure != nil)
        #expect(scratch.read("s") == "a file")
    }

    /// After the end of the bound transport no descriptor has the socket any more.
    @Test func theEndClosesEverySocket() async throws {
        var bound: (any BoundTransport)? = try await serve()
        // Greeted at once: a client that says nothing for a while is closed.
        let clients = try (0..<5).map { _ in
            let client = try RawClient(path)
            client.write(Self.hello())
            return client
        }
        for client in clients { #expect(try await client.next() == .welcome(version: Frame.version)) }
        #expect(bound != nil)
        bound = nil
        for client in clients { #expect(try await client.next() == nil) }
        try await eventuallyAsync("no socket is left") {
            try !String(contentsOfFile: "/proc/net/unix", encoding: .utf8).contains(path)
        }
    }

    /// The first address of a host refuses connections, the second is the service's.
    @Test func aHostWhoseFirstAddressIsDeadIsReached() async throws {
        let service = try TransportsService.WebSocketTransport(host: "127.0.0.1", port: 0, path: "/t", tls: nil)
        let bound = service.bind(processor: Workshop().processor)
        let port = try #require(await TransportsService.WebSocketTransport.port(of: bound))
        let dead = try FreePort()
        let addresses = try [Int(dead.number), port].map { try SocketAddress(ipAddress: "127.0.0.1", port: $0) }
        let group = MultiThreadedEventLoopGroup.singleton
        let client = try TransportsClient.WebSocketTransport(
            host: "two.example", port: port, path: "/t", tls: nil, id: "websocket", limits: TransportLimits(),
            group: group, resolver: FixedResolver(addresses, on: group.next()))
        let reply = await client.connect(proto: Workshop.proto).exchange(request: Data("echo".utf8))
        #expect(reply == .success(Data("echo".utf8)))
        withExtendedLifetime(dead) {}
        await bound.close()
    }

    /// A server that accepts the connection and never answers the request for a WebSocket.
    @Test func aServerThatNeverUpgradesIsLeft() async throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(listener) }
        let any = try SocketAddress(ipAddress: "127.0.0.1", port: 0)
        try #require(any.withSockAddr { systemBind(listener, $0, socklen_t($1)) } == 0 && listen(listener, 1) == 0)
        var name = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &name) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(listener, $0, &size) }
        }
        try #require(status == 0)
        var limits = TransportLimits()
        limits.handshake = .milliseconds(50)
        let client = try TransportsClient.WebSocketTransport(
            host: "127.0.0.1", port: Int(UInt16(bigEndian: name.sin_port)), tls: nil, limits: limits)
        let result = await client.connect(proto: Workshop.proto).exchange(request: Data("echo".utf8))
        #expect((try? result.get()) == nil)
        let accepted = accept(listener, nil, nil)
        defer { close(accepted) }
        // The request, and then the end: the client has closed its socket.
        try await eventuallyAsync("the client has left") {
            var bytes = [UInt8](repeating: 0, count: 4096)
            return recv(accepted, &bytes, bytes.count, Int32(MSG_DONTWAIT)) == 0
        }
    }

    @Test func aWebPageMayNotConnectUnlessItIsListed() async throws {
        let service = try TransportsService.WebSocketTransport(
            host: "127.0.0.1", port: 0, path: "/t", origins: ["https://good.example"], tls: nil)
        let bound = service.bind(processor: Workshop().processor)
        let port = try #require(await TransportsService.WebSocketTransport.port(of: bound))
        func status(_ path: String, _ origin: String?) async throws -> String {
            let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(descriptor) }
            let address = try SocketAddress(ipAddress: "127.0.0.1", port: port)
            try #require(address.withSockAddr { connect(descriptor, $0, socklen_t($1)) } == 0)
            let text =
                "GET \(path) HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                + (origin.map { "Origin: \($0)\r\n" } ?? "") + "\r\n"
            _ = send(descriptor, text, text.utf8.count, Int32(MSG_NOSIGNAL))
            var bytes = [UInt8](repeating: 0, count: 12)
            while true {
                let count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
                if count >= 0 { return String(decoding: bytes.prefix(count), as: UTF8.self) }
                if errno != EAGAIN { return "" }
                try await Task.sleep(for: .milliseconds(1))
            }
        }
        #expect(try await status("/t", nil) == "HTTP/1.1 101")
        #expect(try await status("/t", "https://good.example") == "HTTP/1.1 101")
        #expect(try await status("/t", "https://bad.example") == "")
        #expect(try await status("/other", nil) == "")
        await bound.close()
    }
}

/// `bind` of the C library, which the suite's own names hide.
private func systemBind(_ handle: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Int32 {
    bind(handle, address, size)
}
