import Foundation
import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import Synchronization
import TestKit
import TestThreads
import Testing

/// Bodies that are longer than anybody should hold.
@Suite(.serialized) struct ProxyStreamTests {
    private static let size = 50 << 20
    /// What sockets of the kernel may hold on both sides of the gateway, and the gateway's own windows, with room.
    static let held = 24 << 20

    /// Numbered blocks of a kilobyte.
    private static func block(_ number: Int) -> [UInt8] {
        let name = Array("\(number) ".utf8)
        return name + [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 1024 - name.count)
    }

    private static func send(to socket: RawSocket, counting sent: borrowing Mutex<Int>) throws {
        for start in stride(from: 0, to: size / 1024, by: 64) {
            try socket.send((start..<(start + 64)).flatMap(block))
            sent.withLock { $0 += 65536 }
        }
    }

    private static func receive(from socket: RawSocket) throws -> Bool {
        for number in 0..<(size / 1024) where try socket.read(1024) != block(number) { return false }
        return true
    }

    /// Between two pieces that a slow client reads.
    static func pause() { Thread.sleep(forTimeInterval: 0.1) }

    /// Waits until nothing moves any more.
    static func settled(_ sent: borrowing Mutex<Int>) -> Int {
        var last = -1
        while true {
            let now = sent.withLock { $0 }
            if now == last { return now }
            last = now
            Thread.sleep(forTimeInterval: 0.6)
        }
    }

    @Test func aClientThatDoesNotRead() async throws {
        let sent = Mutex(0)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(Self.size)\r\n\r\n")
            try Self.send(to: socket, counting: sent)
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            _ = try client.head()
            let held = Self.settled(sent)
            #expect(held < Self.held)
            // Others are served meanwhile.
            #expect(try Self.receive(from: client))
        }
        #expect(backend.complaints.isEmpty)
        await proxy.stop()
    }

    /// The gateway has written its answer, and the kernel accepts it as the client reads it.
    @Test(arguments: [false, true])
    func aClientThatReadsALargeAnswerSlowlyGetsAllOfIt(isLast: Bool) async throws {
        let backend = try RawServer { _, _ in }
        let (size, steps) = (32 << 20, 64)
        let proxy = try await Proxy(to: backend.port) { _ in
            [.respond(ResponseHead(200), ByteBuffer(repeating: 0x61, count: size))]
        } _: {
            $0.limits.stall = .seconds(2)
            $0.limits.keepAlive = .seconds(2)
        }
        try await blocking {
            let client = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n" + (isLast ? "Connection: close\r\n\r\n" : "\r\n"))
            _ = try client.head()
            for _ in 0..<steps {
                Self.pause()
                _ = try client.read(size / steps)
            }
            #expect(client.isAtEnd())
        }
        await proxy.stop()
    }

    /// The gateway answers requests itself, so no backend slows the client down that sends one after the other.
    @Test func aClientThatDoesNotReadTheGatewaysAnswersIsNotReadFor() async throws {
        let (size, requests) = (64 << 10, 1000)
        let answers = Mutex(0)
        let backend = try RawServer { _, _ in }
        let proxy = try await Proxy(to: backend.port) { _ in
            answers.withLock { $0 += 1 }
            return [.respond(ResponseHead(200), ByteBuffer(repeating: 0x61, count: size))]
        }
        try await blocking {
            let client = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            try client.send(String(repeating: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", count: requests))
            #expect(try client.message().body.utf8.count == size)
            #expect(Self.settled(answers) * size < Self.held)
            // It gets all of them when it reads.
            for _ in 1..<requests { #expect(try client.message().body.utf8.count == size) }
            client.endOutput()
            #expect(client.isAtEnd())
        }
        #expect(answers.withLock { $0 } == requests)
        await proxy.stop()
    }

    @Test func aBackendThatDoesNotRead() async throws {
        let sent = Mutex(0)
        let mayRead = Mutex(false)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try eventually("reading begins") { mayRead.withLock { $0 } }
            let isWhole = try Self.receive(from: socket)
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\(isWhole)")
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            let sender = Thread {
                try? client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \(Self.size)\r\n\r\n")
                try? Self.send(to: client, counting: sent)
            }
            sender.start()
            try eventually("it begins") { sent.withLock { $0 } > 0 }
            #expect(Self.settled(sent) < Self.held)
            mayRead.withLock { $0 = true }
            try eventually("all is sent", timeout: .seconds(600)) { sent.withLock { $0 } == Self.size }
            #expect(try client.message().body == "true")
        }
        await proxy.stop()
    }

    @Test func chunkedThereAndBackAtTheSameTime() async throws {
        let backend = try RawServer { socket, _ in
            let (_, body) = try socket.message()
            try socket.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for start in stride(from: 0, to: body.utf8.count, by: 50_000) {
                let part = body.utf8.dropFirst(start).prefix(50_000)
                try socket.send(Array("\(String(part.count, radix: 16))\r\n".utf8) + Array(part) + [13, 10])
            }
            try socket.send("0\r\n\r\n")
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let text = String(repeating: "0123456789", count: 200_000)
            let client = try proxy.client()
            try client.send(
                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1e8480\r\n\(text)\r\n0\r\n\r\n")
            #expect(try client.message().body == text)
        }
        await proxy.stop()
    }

    @Test func aClientThatNeverReadsIsLeft() async throws {
        let hasEnded = Mutex(false)
        let backend = try RawServer { socket, _ in
            defer { hasEnded.withLock { $0 = true } }
            _ = try socket.head()
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(Self.size)\r\n\r\n")
            try Self.send(to: socket, counting: Mutex(0))
        }
        let proxy = try await Proxy(to: backend.port) { $0.limits.stall = .milliseconds(300) }
        try await blocking {
            let client = try RawSocket(port: proxy.port, receiveBuffer: 65536)
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            try eventually("the backend is left as well") { hasEnded.withLock { $0 } }
            #expect(client.rest().count < Self.size)
        }
        await proxy.stop()
    }
}
