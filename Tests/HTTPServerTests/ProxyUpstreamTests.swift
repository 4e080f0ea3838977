import HTTPServer
import JSONGateway
import NIOCore
import NIOSSL
import NIOSupport
import PeerKit
import Reports
import Synchronization
import TestKit
import TestThreads
import Testing

/// Backends that do not do what they should.
@Suite struct ProxyUpstreamTests {
    static let get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    static let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    @Test(arguments: [
        "", "HTTP/1.1 ", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
    ]) func diesOrBabblesBeforeItsAnswer(_ answer: String) async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(answer)
            socket.endOutput()
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<2 {
                try client.send(Self.get)
                let (head, body) = try client.message()
                #expect(head.hasPrefix("HTTP/1.1 502 "))
                #expect(body.contains("PAWL_BAD_GATEWAY"))
            }
        }
        #expect(proxy.environment.tally[.upstreamFailures] >= 2 || answer.hasPrefix("HTTP/1.1 101"))
        await proxy.stop()
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nx\r\n",
    ]) func diesInTheMiddleOfItsAnswer(_ answer: String) async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send(answer)
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            // Never a whole answer: neither five bytes nor a last chunk.
            let text = client.restText
            #expect(text.isEmpty || text.hasPrefix("HTTP/1.1 200 OK\r\n"))
            #expect(!text.contains("hello") && !text.hasSuffix("0\r\n\r\n"))
        }
        await proxy.stop()
    }

    @Test func nobodyListens() async throws {
        // Reserved, so that no other test listens there meanwhile.
        let nobody = try FreePort()
        defer { withExtendedLifetime(nobody) {} }
        let proxy = try await Proxy(to: Int(nobody.number))
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send(Self.get)
                #expect(try client.message().head.hasPrefix("HTTP/1.1 502 "))
                try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
                #expect(try client.message().head.hasPrefix("HTTP/1.1 502 "))
            }
        }
        #expect(proxy.environment.tally[.upstreamFailures] == 6)
        await proxy.stop()
    }

    @Test func answersThatComeTooLate() async throws {
        let backend = try RawServer { socket, number in
            _ = try socket.head()
            if number > 0 { try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") }
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port) { $0.limits.answer = .seconds(2) }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            let (head, body) = try client.message()
            #expect(head.hasPrefix("HTTP/1.1 504 "))
            #expect(body.contains("PAWL_GATEWAY_TIMEOUT"))
            // A backend that is held up for longer is too late once more.
            var text = ""
            for _ in 0..<30 where !text.hasSuffix("hel") {
                let next = try proxy.client()
                try next.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                text = next.restText
            }
            #expect(text.hasSuffix("hel"))
        }
        await proxy.stop()
    }

    /// The backend closes a kept connection at the moment when it is used again.
    private func staleBackend() throws -> RawServer {
        try RawServer { socket, number in
            _ = try socket.message()
            try socket.send(Self.ok)
            if number == 0 {
                _ = try socket.head()
                socket.reset()
            } else {
                while (try? socket.message()) != nil { try socket.send(Self.ok) }
            }
        }
    }

    @Test(arguments: ["GET", "PUT", "DELETE"]) func aStaleConnectionIsReplacedOnce(_ method: String) async throws {
        let backend = try staleBackend()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send("\(method) / HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.message().body == "ok")
            }
        }
        #expect(backend.connections == 2)
        await proxy.stop()
    }

    @Test(arguments: [
        "POST / HTTP/1.1\r\nHost: x\r\n\r\n", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab",
    ]) func whatMayHaveBeenDoneIsNotRepeated(_ request: String) async throws {
        let backend = try staleBackend()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            #expect(try client.message().body == "ok")
            try client.send(request)
            #expect(try client.message().head.hasPrefix("HTTP/1.1 502 "))
        }
        #expect(backend.connections == 1)
        await proxy.stop()
    }

    @Test func twiceStaleIsAFailure() async throws {
        let backend = try RawServer { socket, number in
            _ = try socket.message()
            if number == 0 {
                try socket.send(Self.ok)
                _ = try socket.head()
            }
            socket.reset()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            #expect(try client.message().body == "ok")
            try client.send(Self.get)
            #expect(try client.message().head.hasPrefix("HTTP/1.1 502 "))
        }
        #expect(backend.connections == 2)
        await proxy.stop()
    }

    @Test func connectionsThatSendTooMuchOrTooLittleAreClosed() async throws {
        let backend = try RawServer { socket, number in
            _ = try socket.message()
            switch number {
            case 0: try socket.send(Self.ok + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            case 1: try socket.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            case 2: try socket.send("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
            default: try socket.send(Self.ok)
            }
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<4 {
                try client.send(Self.get)
                #expect(try client.message().body == "ok")
            }
        }
        #expect(backend.connections == 4)
        await proxy.stop()
    }

    @Test func anEarlyAnswerEndsBothConnections() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc")
            let (head, body) = try client.message()
            #expect(head.hasPrefix("HTTP/1.1 413 "))
            #expect(body == "no")
            #expect(client.isAtEnd())
        }
        await proxy.stop()
    }

    /// What is left of an upload would be taken for the next person's request, or that one for the rest of the upload.
    @Test func aConnectionWithAHalfSentRequestIsNotUsedAgain() async throws {
        let sent = Mutex("")
        let backend = try RawServer { socket, number in
            _ = try socket.head()
            guard number == 0 else { return try socket.send(Self.ok) }
            // The answer is whole, and says nothing about the connection.
            try socket.send("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
            let rest = socket.restText
            sent.withLock { $0 = rest }
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let uploader = try proxy.client()
            try uploader.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
            #expect(try uploader.message().head.hasPrefix("HTTP/1.1 413 "))
            let other = try proxy.client()
            try other.send("GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try other.message().body == "ok")
            try eventually("the first connection has ended") { backend.connections == 2 }
        }
        await proxy.stop()
        #expect(!sent.withLock { $0.contains("/other") })
    }

    /// A backend that says something on a connection where nothing was asked loses it at once, and nobody gets what it said.
    @Test func bytesThatNobodyAskedForEndTheirConnection() async throws {
        let isRead = Mutex(false)
        let hasEnded = Mutex(false)
        let backend = try RawServer { socket, number in
            _ = try socket.head()
            try socket.send(Self.ok)
            guard number == 0 else {
                _ = socket.rest()
                return
            }
            try eventually("the answer is read") { isRead.withLock { $0 } }
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            _ = socket.rest()
            hasEnded.withLock { $0 = true }
        }
        let proxy = try await Proxy(to: backend.port) { $0.limits.idleUpstreamTime = .hours(10) }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            #expect(try client.message().body == "ok")
            isRead.withLock { $0 = true }
            try eventually("the connection has ended") { hasEnded.withLock { $0 } }
            try client.send(Self.get)
            #expect(try client.message().body == "ok")
        }
        #expect(backend.connections == 2)
        await proxy.stop()
    }

    @Test func aClientThatLeavesTakesItsRequestAlong() async throws {
        let hasEnded = Mutex(false)
        let backend = try RawServer { socket, _ in
            defer { hasEnded.withLock { $0 = true } }
            _ = try socket.head()
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            try eventually("the backend has it") { backend.connections == 1 }
            client.reset()
            try eventually("the backend sees it") { hasEnded.withLock { $0 } }
        }
        await proxy.stop()
    }

    @Test func connectionsAreBounded() async throws {
        let backend = try RawServer { socket, _ in
            while (try? socket.message()) != nil { try socket.send(Self.ok) }
        }
        let proxy = try await Proxy(to: backend.port) { $0.limits.upstreamConnections = 3 }
        try await blocking {
            let clients = try (0..<30).map { _ in try proxy.client() }
            for client in clients { try client.send(String(repeating: Self.get, count: 5)) }
            for client in clients {
                for _ in 0..<5 { #expect(try client.message().body == "ok") }
            }
        }
        #expect(backend.connections <= 3)
        await proxy.stop()
    }

    // MARK: TLS

    @Test func tlsOnBothSides() async throws {
        let rig = try TLSRig()
        let (listener, trust) = (rig.listener, try rig.trust())
        let strict = try NIOSSLContext(configuration: .makeClientConfiguration())

        let backend = try ProxyPassTests.mirror()
        let inner = try await Proxy(to: backend.port, listenerTLS: listener)
        let outer = try await Proxy(to: inner.port, upstreamTLS: trust)
        let distrustful = try await Proxy(to: inner.port, upstreamTLS: strict)
        try await blocking {
            let client = try outer.client()
            for _ in 0..<5 {
                try client.send(ProxyPassTests.request)
                let (_, body) = try client.message()
                #expect(body.contains("Forwarded: for=127.0.0.1;proto=https;host=chat\r\n"))
                #expect(body.hasSuffix("hello"))
            }
            let large = [UInt8](repeating: 0x61, count: 3_000_000)
            try client.send("POST / HTTP/1.1\r\nHost: chat\r\nContent-Length: \(large.count)\r\n\r\n")
            try client.send(large)
            #expect(try client.message().body.utf8.count > large.count)
            let refused = try distrustful.client()
            try refused.send(Self.get)
            #expect(try refused.message().head.hasPrefix("HTTP/1.1 502 "))
        }
        #expect(backend.connections == 1)
        for proxy in [outer, distrustful, inner] { await proxy.stop() }
    }

    @Test func aBackendThatNeverSpeaksTLS() async throws {
        let backend = try RawServer { socket, _ in _ = socket.rest() }
        let strict = try NIOSSLContext(configuration: .makeClientConfiguration())
        let proxy = try await Proxy(to: backend.port) { services in
            let options = UpstreamOptions(
                host: "127.0.0.1", port: backend.port, tls: strict, serverName: "localhost",
                connectTimeout: .milliseconds(150))
            services.upstream = { options }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.get)
            #expect(try client.message().head.hasPrefix("HTTP/1.1 504 "))
        }
        await proxy.stop()
    }
}
