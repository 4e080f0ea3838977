import Foundation
import HTTPServer
import JSONGateway
import NIOCore
import NIOSupport
import Reports
import Synchronization
import TestKit
import TestThreads
import Testing

/// What never reaches the backend.
@Suite struct ProxyRefusalTests {
    /// A backend that keeps all that it gets.
    private final class Listener: Sendable {
        let received = Mutex<[String]>([])

        func server() throws -> RawServer {
            try RawServer { socket, _ in
                while let (head, body) = try? socket.message() {
                    self.received.withLock { $0.append(head + body) }
                    try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                }
            }
        }
    }

    @Test(arguments: [
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: x\r\n\r\n",
            400
        ),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\u{0B}chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c: d\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\rGET /evil HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: x\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        ("GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET /" + String(repeating: "a", count: 70_000), 414),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: " + String(repeating: "a", count: 70_000), 431),
        ("GET / HTTP/1.1\r\nHost: x\r\n" + String(repeating: "A: b\r\n", count: 200) + "\r\n", 431),
        ("GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417),
        ("\u{16}\u{03}\u{01}\u{02}\u{00}\u{01}\u{00}\n", 400),
    ]) func isAnsweredAndClosed(_ request: String, _ status: Int) async throws {
        let listener = Listener()
        let backend = try listener.server()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(request)
            let (head, body) = try client.message()
            #expect(head.hasPrefix("HTTP/1.1 \(status) "))
            #expect(head.contains("Connection: close\r\n"))
            #expect(head.contains("Content-Type: application/json\r\n"))
            #expect(body.hasPrefix(#"{"error":"PAWL_BAD_REQUEST","message":""#))
            #expect(client.isAtEnd())
        }
        #expect(listener.received.withLock { $0.isEmpty })
        await proxy.stop()
    }

    /// A request that is refused before it is read whole: a page that the mapping lists can read why.
    @Test(arguments: [
        "GET / HTTP/1.1\r\nOrigin: https://chat.example\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example\r\nA: b\nC: d\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example\r\n" + String(repeating: "A: b\r\n", count: 200)
            + "\r\n",
        "GET / HTTP/1.1\r\norigin:https://chat.example\r\nHost: x\r\nA: " + String(repeating: "a", count: 70_000),
        "POST / HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ]) func aListedPageCanReadTheRefusal(_ request: String) async throws {
        let backend = try Listener().server()
        let environment = try Proxy.environment(CrossOrigin(origins: .listed(["https://chat.example"])))
        let proxy = try await Proxy(to: backend.port) { $0.environment = environment }
        try await blocking {
            for isListed in [true, false] {
                let client = try proxy.client()
                try client.send(isListed ? request : request.replacing("chat.example", with: "evil.example"))
                let head = try client.message().head
                #expect(head.hasPrefix("HTTP/1.1 4") || head.hasPrefix("HTTP/1.1 501 "), "\(head)")
                #expect(head.contains("Access-Control-Allow-Origin: https://chat.example\r\n") == isListed, "\(head)")
                #expect(head.contains("Vary: Origin\r\n") && !head.contains("evil"))
            }
        }
        await proxy.stop()
    }

    @Test func aListedPageCanReadTheRefusalOverHTTP2() async throws {
        let backend = try Listener().server()
        let environment = try Proxy.environment(CrossOrigin(origins: .listed(["https://chat.example"])))
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { $0.environment = environment }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(proxy.port, trust)
            for (stream, page) in [(1, "https://chat.example"), (3, "https://evil.example")] {
                client.request(stream, FrameClient.head("GET", "/", [("origin", page), ("expect", "tea")]))
                let answer = try client.answer(stream)
                #expect(answer.status == "417")
                #expect(answer.first("access-control-allow-origin") == (stream == 1 ? page : nil))
            }
        }
        await proxy.stop()
    }

    @Test func aBrokenBodyReachesNobodyAsAWhole() async throws {
        let backend = try RawServer { socket, _ in
            // It may be refused before anything of it has gone out.
            #expect(!String(decoding: socket.rest(), as: UTF8.self).hasSuffix("0\r\n\r\n"))
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n")
            #expect(try client.message().head.hasPrefix("HTTP/1.1 400 "))
            #expect(client.isAtEnd())
        }
        await proxy.stop()
    }

    @Test func slowClientsAreNotWaitedForForEver() async throws {
        let backend = try RawServer { socket, _ in _ = socket.rest() }
        let proxy = try await Proxy(to: backend.port) { services in
            services.limits.headTime = .milliseconds(100)
            services.limits.stall = .milliseconds(100)
            services.limits.keepAlive = .milliseconds(100)
        }
        try await blocking {
            let silent = try proxy.client()
            #expect(silent.rest().isEmpty)
            // Who is held up before the first byte is closed like the silent one, and tries again.
            func answer(to text: String) throws -> (head: String, isOver: Bool) {
                for _ in 0..<100 {
                    let client = try proxy.client()
                    guard (try? client.send(text)) != nil, let (head, _) = try? client.message() else { continue }
                    return (head, client.isAtEnd())
                }
                throw RawError("never answered")
            }
            #expect(try answer(to: "GET / HT").head.hasPrefix("HTTP/1.1 408 "))
            let body = try answer(to: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc")
            #expect(body.head.hasPrefix("HTTP/1.1 408 ") && body.isOver)
        }
        await proxy.stop()
    }

    @Test func tooManyConnections() async throws {
        let listener = Listener()
        let backend = try listener.server()
        let page = "https://chat.example"
        let environment = try Proxy.environment(CrossOrigin(origins: .listed([page])))
        let proxy = try await Proxy(to: backend.port) { $0.environment = environment }
        try await blocking {
            let clients = try (0..<200).map { _ in try proxy.client() }
            try eventually("all are there") { proxy.server.connectionCount == 200 }
            // The refusal answers a request, so that a page that the mapping lists can read it.
            let refused = try proxy.client()
            try refused.send("POST / HTTP/1.1\r\nHost: x\r\nOrigin: \(page)\r\nContent-Length: 6\r\n\r\nabc")
            let (head, body) = try refused.message()
            #expect(head.hasPrefix("HTTP/1.1 503 ") && body.contains("The gateway is full."))
            #expect(head.contains("Retry-After: ") && head.contains("Connection: close\r\n"))
            #expect(head.contains("Access-Control-Allow-Origin: \(page)\r\n"))
            #expect(refused.isAtEnd())
            let asking = try proxy.client()
            try asking.send(
                "OPTIONS / HTTP/1.1\r\nHost: x\r\nOrigin: \(page)\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
            #expect(try asking.head().hasPrefix("HTTP/1.1 204 "))
            // Those that send nothing are not waited for if there are many.
            let silent = try (0..<HTTPServer.refusedLimit).map { _ in try proxy.client() }
            try eventually("they are refused") {
                environment.tally[.connectionsRefused] >= 2 + silent.count
            }
            let last = try proxy.client()
            #expect(try last.message().head.hasPrefix("HTTP/1.1 503 "))
            for client in silent { client.close() }
            clients[0].close()
            try eventually("one has gone") { proxy.server.connectionCount == 199 }
            let next = try proxy.client()
            try next.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try next.message().body == "ok")
        }
        #expect(environment.tally[.connectionsRefused] == 3 + HTTPServer.refusedLimit)
        #expect(listener.received.withLock { $0.count } == 1)
        await proxy.stop()
    }

    @Test func drainingEndsConnectionsWithTheirAnswers() async throws {
        let gate = Mutex(false)
        let backend = try RawServer { socket, _ in
            _ = try socket.message()
            try eventually("the gate opens") { gate.withLock { $0 } }
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let (idle, busy) = (try proxy.client(), try proxy.client())
            try busy.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            try eventually("the backend has it") { backend.connections == 1 && proxy.server.connectionCount == 2 }
            await proxy.server.drain()
            #expect(idle.isAtEnd())
            gate.withLock { $0 = true }
            let (head, body) = try busy.message()
            #expect(head.contains("Connection: close\r\n"))
            #expect(body == "ok")
            #expect(busy.isAtEnd())
            // Somebody else may get the port for a moment.
            try eventually("nobody listens") { (try? proxy.client()) == nil }
        }
        await proxy.stop()
    }

    /// Each connection has received the event by then, even if its event loop was busy.
    @Test func drainingReturnsWhenEveryConnectionKnows() async throws {
        let backend = try RawServer { socket, _ in _ = socket.rest() }
        let held = Mutex(0)
        let mayGoOn = Mutex(false)
        // Another event loop than the listener's, whose closing `drain` awaits anyway, is held as well.
        let proxy = try await Proxy(to: backend.port, threads: 2) { services in
            services.makeExchange = { _ in
                ScriptedExchange { _ in
                    held.withLock { $0 += 1 }
                    _ = try? eventually("the event loop may go on") { mayGoOn.withLock { $0 } }
                    return []
                }
            }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            try eventually("its event loop is held") { held.withLock { $0 } == 1 }
            let releaser = Thread {
                _ = try? eventually("nobody listens") { (try? proxy.client()) == nil }
                Thread.sleep(forTimeInterval: 0.2)
                mayGoOn.withLock { $0 = true }
            }
            releaser.start()
            await proxy.server.drain()
            #expect(mayGoOn.withLock { $0 })
        }
        await proxy.stop()
    }

    /// It is not counted among the connections either, whose number has a limit.
    @Test func aTLSListenerWithoutCertificateAcceptsNothing() async throws {
        let backend = try RawServer { socket, _ in _ = socket.rest() }
        let proxy = try await Proxy(to: backend.port) { services in
            let options = DownstreamOptions(
                listeners: [ListenerOptions(host: "127.0.0.1", port: 0, usesTLS: true)], connectionLimit: 200)
            services.downstream = { options }
        }
        try await blocking {
            let client = try proxy.client()
            #expect(client.isAtEnd())
            #expect(proxy.server.connectionCount == 0)
        }
        await proxy.stop()
    }
}
