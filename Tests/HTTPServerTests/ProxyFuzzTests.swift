import HTTPServer
import NIOCore
import TestKit
import TestThreads
import Testing

/// Requests that were damaged at random, under a printed seed: the gateway answers or closes, and serves the next client.
@Suite struct ProxyFuzzTests {
    private static let requests = [
        ProxyPassTests.request, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ProxyWebSocketTests.request,
    ]
    private static let pieces = [
        "\r\n", "\n", "\r", ":", " ", "\t", "0", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
        "Host: y\r\n",
        "HTTP/1.1", "\0", "\u{7F}", "ffffffffffffffff\r\n", "Connection: Upgrade\r\n", "Upgrade: websocket\r\n",
        "\r\n\r\n",
    ]

    private static func damaged(_ random: inout SeededGenerator) -> [UInt8] {
        var bytes: [UInt8] = []
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            bytes += Array((requests.randomElement(using: &random) ?? "").utf8)
        }
        for _ in 0..<Int.random(in: 0...4, using: &random) {
            let place = Int.random(in: 0..<max(bytes.count, 1), using: &random)
            switch Int.random(in: 0..<5, using: &random) {
            case 0 where !bytes.isEmpty: bytes[place] = UInt8.random(in: 0...255, using: &random)
            case 1 where !bytes.isEmpty: bytes.remove(at: place)
            case 2:
                bytes.insert(
                    contentsOf: Array((pieces.randomElement(using: &random) ?? "").utf8), at: min(place, bytes.count))
            case 3: bytes = Array(bytes.prefix(place))
            default:
                let end = min(bytes.count, place + Int.random(in: 0...40, using: &random))
                if place < end { bytes.insert(contentsOf: bytes[place..<end], at: place) }
            }
        }
        return bytes
    }

    @Test(arguments: [1, 2, 3, 4] as [UInt64]) func damagedRequests(_ seed: UInt64) async throws {
        // The backend is as careless: it answers whatever comes, sometimes with rubbish, and sometimes it leaves.
        let backend = try RawServer { socket, number in
            var random = SeededGenerator(seed: seed << 32 | UInt64(number))
            while (try? socket.message()) != nil {
                switch Int.random(in: 0..<12, using: &random) {
                case 0: return
                case 1: try socket.send(Self.damaged(&random))
                case 2: try socket.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
                case 3: try socket.send("HTTP/1.1 200 OK\r\n\r\nok"); return
                case 4: try socket.send(ProxyWebSocketTests.answer)
                default: try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                }
            }
        }
        let proxy = try await Proxy(to: backend.port) { services in
            services.limits.headTime = .seconds(1)
            services.limits.stall = .seconds(1)
            services.limits.answer = .seconds(1)
            services.limits.linger = .seconds(1)
        }
        try await blocking {
            var random = SeededGenerator(seed: seed)
            for _ in 0..<150 {
                let bytes = Self.damaged(&random)
                let client = try proxy.client()
                let cut = Int.random(in: 0...bytes.count, using: &random)
                try? client.send(Array(bytes[..<cut]))
                try? client.send(Array(bytes[cut...]))
                if Bool.random(using: &random) {
                    client.endOutput()
                    _ = client.rest()
                } else {
                    Bool.random(using: &random) ? client.reset() : client.close()
                }
            }
        }
        // It serves on, and holds nothing of what was.
        let sound = try await blocking {
            try eventually("all have gone") { proxy.server.connectionCount == 0 }
            var answered = 0
            for _ in 0..<40 {
                let client = try proxy.client()
                guard (try? client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) != nil else {
                    continue
                }
                if client.restText.hasPrefix("HTTP/1.1 ") { answered += 1 }
            }
            return answered
        }
        #expect(sound > 20)
        await proxy.stop()
    }
}
