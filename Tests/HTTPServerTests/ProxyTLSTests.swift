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

/// Who is spoken to, and how the backend is reached from now on.
@Suite struct ProxyTLSTests {
    /// Nothing is the backend's address.
    @Test(
        arguments: [
            ("DNS:localhost", "localhost", true), ("DNS:localhost", "chat.example", false),
            ("DNS:localhost", nil, false),
            ("IP:127.0.0.1", nil, true), ("IP:127.0.0.2", nil, false), ("DNS:*.example", "chat.example", true),
            ("DNS:*.example", "example", false),
        ] as [(String, String?, Bool)])
    func aBackendWithACertificateForAnotherName(_ names: String, _ name: String?, _ isRight: Bool) async throws {
        let rig = try TLSRig(names: names)
        let backend = try ProxyPassTests.mirror()
        let inner = try await Proxy(to: backend.port, listenerTLS: rig.listener)
        let outer = try await Proxy(to: inner.port, upstreamTLS: rig.trust(), serverName: name)
        try await blocking {
            let client = try outer.client()
            for _ in 0..<2 {
                try client.send(ProxyPassTests.request)
                #expect(try client.message().head.hasPrefix(isRight ? "HTTP/1.1 200 " : "HTTP/1.1 502 "))
            }
        }
        // Not a byte of the request has left.
        #expect(backend.connections == (isRight ? 1 : 0))
        #expect(outer.environment.tally[.upstreamFailures] == (isRight ? 0 : 2))
        await outer.stop()
        await inner.stop()
    }

    @Test func aListenerWithACertificateForAnotherName() async throws {
        let rig = try TLSRig()
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener)
        try await blocking {
            for (host, status) in [("localhost", Int32(0)), ("chat.example", 60)] {
                let output = try ChildProcess.run(
                    "curl",
                    [
                        "-sS", "--noproxy", "*", "--cacert", rig.certificate.certificatePath, "--max-time", "50",
                        "--resolve", "\(host):\(proxy.port):127.0.0.1", "https://\(host):\(proxy.port)/",
                    ])
                #expect(output.status == .exited(status))
            }
        }
        #expect(backend.connections == 1)
        await proxy.stop()
    }

    @Test func theBackendIsReachedAnotherWay() async throws {
        let closed = Mutex(0)
        let mayAnswer = Mutex(false)
        @Sendable func answering(_ name: String) throws -> RawServer {
            try RawServer { socket, _ in
                defer { closed.withLock { $0 += 1 } }
                while let (head, _) = try? socket.message() {
                    if head.hasPrefix("GET /slow") { try eventually("it may") { mayAnswer.withLock { $0 } } }
                    try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\(name)")
                }
            }
        }
        let (old, new) = (try answering("old"), try answering("new"))
        let port = Mutex(old.port)
        let proxy = try await Proxy(to: old.port) { services in
            services.upstream = {
                UpstreamOptions(host: "127.0.0.1", port: port.withLock { $0 }, connectTimeout: .seconds(10))
            }
        }
        try await blocking {
            let (client, slow) = (try proxy.client(), try proxy.client())
            try slow.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
            try eventually("it is with the old one") { old.connections == 1 }
            try client.send(ProxyUpstreamTests.get)
            #expect(try client.message().body == "old")
            port.withLock { $0 = new.port }
            // A connection that waits would be used again.
            try client.send(ProxyUpstreamTests.get)
            #expect(try client.message().body == "old")
            proxy.server.renewUpstream()
            // Sooner than a backend loses its patience and closes by itself.
            try eventually("it is closed", timeout: .seconds(RawSocket.patience / 2)) { closed.withLock { $0 } == 1 }
            try client.send(ProxyUpstreamTests.get)
            #expect(try client.message().body == "new")
            // What is under way is answered where it was asked, and that connection is not kept either.
            mayAnswer.withLock { $0 = true }
            #expect(try slow.message().body == "old")
            try eventually("and that one", timeout: .seconds(RawSocket.patience / 2)) { closed.withLock { $0 } == 2 }
            try slow.send(ProxyUpstreamTests.get)
            #expect(try slow.message().body == "new")
        }
        #expect(old.connections == 2)
        await proxy.stop()
    }

    @Test func aFullGatewayAnswersInTheProtocolOfTheClient() async throws {
        let rig = try TLSRig()
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { services in
            var options = services.downstream()
            options.connectionLimit = 1
            let changed = options
            services.downstream = { changed }
            services.limits.headTime = .seconds(10)
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let first = try await FrameClient.connect(proxy.port, trust)
            first.get(1)
            #expect(try first.answer(1).status == "200")
            let second = try await FrameClient.connect(proxy.port, trust)
            second.get(1)
            #expect(try second.answer(1).status == "503")
            let seen = try second.closed()
            #expect(seen.settings == 1 && !seen.goAways.isEmpty)
            let output = try ChildProcess.run(
                "curl",
                [
                    "-sS", "-i", "--http1.1", "--noproxy", "*", "--cacert", rig.certificate.certificatePath,
                    "https://localhost:\(proxy.port)/",
                ])
            #expect(output.stdout.hasPrefix("HTTP/1.1 503 ") && output.stdout.contains("The gateway is full."))
            // Who does not even begin TLS is not waited for.
            #expect(try proxy.client().isAtEnd())
        }
        #expect(proxy.environment.tally[.connectionsRefused] == 3)
        await proxy.stop()
    }

    /// Clients that begin no TLS: those over the limit are bounded, too.
    @Test func connectionsThatAreRefusedAreBounded() async throws {
        let rig = try TLSRig()
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { services in
            var options = services.downstream()
            options.connectionLimit = 0
            let changed = options
            services.downstream = { changed }
            services.limits.headTime = .hours(1)
        }
        try await blocking {
            let limit = HTTPServer.refusedLimit + HTTPServer.refusedAtOnceLimit
            let silent = try (0..<limit).map { _ in try proxy.client() }
            try eventually("they are refused") { proxy.environment.tally[.connectionsRefused] == limit }
            #expect(try proxy.client().isAtEnd())
            withExtendedLifetime(silent) {}
        }
        await proxy.stop()
    }
}
