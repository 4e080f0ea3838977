import Foundation
import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import Synchronization
import TestKit
import TestThreads
import Testing

/// Requests over HTTP/2 whose client or backend is slow, or leaves in the middle.
@Suite struct HTTP2FlowTests {
    private static let size = 50 << 20

    private final class Count: Sendable {
        let value = Mutex(0)
    }

    /// Sends 50 MB to whom does not ask for `/ok`, and counts what it got rid of.
    private func endless() throws -> (RawServer, Count) {
        let sent = Count()
        let backend = try RawServer { socket, _ in
            let head = try socket.head()
            if head.hasPrefix("GET /ok") { return try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") }
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(Self.size)\r\n\r\n")
            for _ in 0..<(Self.size >> 16) {
                try socket.send([UInt8](repeating: 0x61, count: 1 << 16))
                sent.value.withLock { $0 += 1 << 16 }
            }
        }
        return (backend, sent)
    }

    @Test func aClientThatDoesNotRead() async throws {
        let (backend, sent) = try endless()
        try await FrameClient.with(backend, credits: false) { client in
            client.get(1)
            let held = ProxyStreamTests.settled(sent.value)
            #expect(held < ProxyStreamTests.held)
            client.credit(1, 1 << 20)
            let answer = try client.answer(1)
            #expect(answer.body.count == Self.size && answer.isEnded && answer.reset == nil)
        }
    }

    @Test func aBackendThatDoesNotRead() async throws {
        let sent = Mutex(0)
        let mayRead = Mutex(false)
        let size = 30 << 20
        let backend = try RawServer { socket, _ in
            let head = try socket.head()
            if head.hasPrefix("GET /ok") { return try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") }
            try eventually("reading begins") { mayRead.withLock { $0 } }
            _ = try socket.read(size)
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")
        }
        try await FrameClient.with(backend) { client in
            client.request(1, FrameClient.head("POST", "/", [("content-length", "\(size)")]), isEnd: false)
            let sender = Thread {
                for _ in 0..<(size >> 16) {
                    guard (try? client.body(1, [UInt8](repeating: 0x61, count: 1 << 16))) != nil else { return }
                    sent.withLock { $0 += 1 << 16 }
                }
                client.data(1, "")
            }
            sender.start()
            try eventually("it begins") { sent.withLock { $0 } > 0 }
            #expect(ProxyStreamTests.settled(sent) < 24 << 20)
            // Other streams of the same connection go on.
            client.get(3, "/ok")
            #expect(try client.answer(3).text == "ok")
            mayRead.withLock { $0 = true }
            #expect(try client.answer(1).text == "true")
        }
    }

    /// Padding counts in the windows (RFC 9113 section 6.9.1), and is no part of a body that somebody could read.
    @Test func paddingDoesNotUseUpTheWindows() async throws {
        let backend = try RawServer { socket, _ in
            while let (_, body) = try? socket.message() {
                try socket.send(
                    "HTTP/1.1 200 OK\r\nContent-Length: \("\(body.utf8.count)".utf8.count)\r\n\r\n\(body.utf8.count)")
            }
        }
        try await FrameClient.with(backend) { client in
            // More than both windows together.
            let frames = 8000
            client.request(1, FrameClient.head("POST", "/", [("content-length", "\(frames)")]), isEnd: false)
            for _ in 0..<frames { try client.padded(1, [0x61], padding: 255) }
            client.data(1, "")
            #expect(try client.answer(1).text == "\(frames)")
        }
    }

    /// RFC 9113 section 8.1: the end of an answer that is not whole must not look like one.
    @Test(arguments: [(10_000_000, UInt32(2)), (100_000, 8)])
    func aClientThatNeverReadsIsLeft(_ size: Int, _ code: UInt32) async throws {
        let ended = Mutex(0)
        let backend = try RawServer { socket, _ in
            defer { ended.withLock { $0 += 1 } }
            _ = try socket.head()
            try socket.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: \(size)\r\n\r\n")
            try? socket.send([UInt8](repeating: 0x61, count: size))
        }
        try await FrameClient.with(backend, credits: false) {
            $0.stall = .milliseconds(300)
            // The backend is not the one that keeps the other waiting.
            $0.answer = .hours(1)
        } _: { client in
            client.get(1)
            #expect(try client.reset(1) == code)
            #expect(!client.seen[1].isEnded)
            try eventually("the backend is left as well") { ended.withLock { $0 } == 1 }
        }
    }

    /// Each piece that the client reads is progress, also after the exchange has ended.
    @Test func aClientThatReadsALargeAnswerSlowlyGetsAllOfIt() async throws {
        let backend = try RawServer { _, _ in }
        let rig = try TLSRig()
        let (size, steps) = (4 << 20, 64)
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { services in
            services.limits.stall = .seconds(3)
            services.makeExchange = { _ in
                ScriptedExchange { _ in [.respond(ResponseHead(200), ByteBuffer(repeating: 0x61, count: size))] }
            }
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(proxy.port, trust, credits: false)
            client.get(1)
            for _ in 0..<steps {
                ProxyStreamTests.pause()
                for stream in [0, 1] { client.send(.windowUpdate, 0, stream, FrameClient.number(UInt32(size / steps))) }
            }
            let answer = try client.answer(1)
            #expect(answer.body.count == size && answer.isEnded && answer.reset == nil)
        }
        await proxy.stop()
    }

    /// The windows are wide open, and the socket is not read.
    @Test func aClientThatLeavesEverythingInItsSocket() async throws {
        let (backend, sent) = try endless()
        try await FrameClient.with(backend) { client in
            client.get(1)
            _ = try client.wait("a beginning") { $0[1].body.isEmpty ? nil : true }
            try await client.reads(false)
            client.credit(1, 1 << 30)
            let held = ProxyStreamTests.settled(sent.value)
            #expect(held < ProxyStreamTests.held)
            client.get(3, "/ok")
            try await client.reads(true)
            let (large, small) = (try client.answer(1), try client.answer(3))
            #expect(large.body.count == Self.size && large.isEnded && small.text == "ok")
        }
    }

    /// Who asks for answers to frames about the connection, and takes none of them.
    @Test func aClientThatOnlyAsks() async throws {
        let (backend, sent) = try endless()
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) {
            $0.limits.pendingControlFrames = 50
            $0.limits.controlFrames = 1_000_000
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(proxy.port, trust)
            client.get(1)
            _ = try client.wait("a beginning") { $0[1].body.isEmpty ? nil : true }
            try await client.reads(false)
            client.credit(1, 1 << 30)
            #expect(ProxyStreamTests.settled(sent.value) < ProxyStreamTests.held)
            // Behind an answer that fills the socket: fifty may wait.
            for _ in 0..<50 { client.send(.ping, 0, 0, [UInt8](repeating: 1, count: 8)) }
            #expect(proxy.server.connectionCount == 1)
            try eventually("it is left") {
                client.send(.ping, 0, 0, [UInt8](repeating: 1, count: 8))
                return proxy.server.connectionCount == 0
            }
        }
        await proxy.stop()
    }

    @Test func aClientThatTakesItsRequestBack() async throws {
        let ended = Mutex(0)
        let backend = try RawServer { socket, _ in
            defer { ended.withLock { $0 += 1 } }
            let head = try socket.head()
            if head.hasPrefix("GET /ok") {
                return try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            }
            if head.hasPrefix("GET /body") { try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") }
            _ = socket.rest()
        }
        try await FrameClient.with(backend) { client in
            client.get(1)
            client.get(3, "/body")
            client.request(5, FrameClient.head("POST", "/"), isEnd: false)
            try eventually("the backend has them") { backend.connections == 3 }
            _ = try client.wait("a beginning") { $0[3].text == "hel" ? true : nil }
            for stream in [1, 3, 5] { client.send(.reset, 0, stream, FrameClient.number(8)) }
            try eventually("the backend sees it") { ended.withLock { $0 } == 3 }
            client.get(7, "/ok")
            #expect(try client.answer(7).text == "ok")
        }
    }

    /// The windows are open, so that the answers fill the socket. NIOHTTP2 holds the resets back then, and reports no
    /// end of a stream. A client that reads on receives the resets, or the end of the connection.
    @Test(arguments: [false, true]) func aClientThatStopsReadingItsSocketIsLeft(readsOn: Bool) async throws {
        let streams = 20
        let size = 2 << 20
        let ended = Mutex(0)
        let backend = try RawServer { socket, _ in
            defer { ended.withLock { $0 += 1 } }
            _ = try socket.head()
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            // The gateway leaves before the end.
            try? socket.send([UInt8](repeating: 0x61, count: size / 2))
            _ = socket.rest()
        }
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) {
            $0.limits.stall = .milliseconds(300)
            $0.limits.answer = .milliseconds(300)
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(proxy.port, trust)
            client.get(1)
            _ = try client.wait("a beginning") { $0[1].body.isEmpty ? nil : true }
            try await client.reads(false)
            client.credit(1, 1 << 30)
            for number in 1..<streams {
                client.get(2 * number + 1)
                client.send(.windowUpdate, 0, 2 * number + 1, FrameClient.number(1 << 30))
            }
            try eventually("the backend is left") {
                backend.connections > 0 && ended.withLock { $0 } == backend.connections
            }
            if readsOn {
                try await client.reads(true)
                _ = try client.wait("an end of each stream") { seen in
                    seen.isClosed || (0..<streams).allSatisfy { seen[2 * $0 + 1].reset != nil } ? true : nil
                }
                client.close()
            }
            try eventually("the client is left") { proxy.server.connectionCount == 0 }
        }
        await proxy.stop()
    }
}
