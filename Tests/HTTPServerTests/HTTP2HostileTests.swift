import Foundation
import HTTPCodec
import HTTPServer
import NIOCore
import NIOSSL
import PeerKit
import Synchronization
import TestKit
import TestThreads
import Testing

/// Clients of HTTP/2 that do not keep to it.
@Suite struct HTTP2HostileTests {
    private typealias Client = FrameClient

    /// A gateway in front of a mirror.
    private func with(
        _ limits: (inout HTTPLimits) -> Void,
        _ body: @escaping @Sendable (Proxy, NIOSSLContext, RawServer) async throws -> Void
    ) async throws {
        let rig = try TLSRig()
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { limits(&$0.limits) }
        let trust = try rig.trust(["h2"])
        try await blocking { try await body(proxy, trust, backend) }
        await proxy.stop()
    }

    private static func serves(_ proxy: Proxy, _ trust: NIOSSLContext) async throws {
        let client = try await Client.connect(proxy.port, trust)
        client.get(1)
        #expect(try client.answer(1).status == "200")
    }

    static let malformed: [[(String, String)]] = [
        [(":method", "GET"), (":scheme", "https")],
        [(":method", "GET"), (":path", "/")],
        [(":scheme", "https"), (":path", "/")],
        FrameClient.head("GET", "/", [(":path", "/")]),
        [(":path", "/")] + FrameClient.head("GET", "/"),
        FrameClient.head("GET", "/", [("x", "1"), (":authority", "x")]),
        [("x", "1")] + FrameClient.head("GET", "/"),
        [(":status", "200")] + FrameClient.head("GET", "/"),
        [(":protocol", "websocket")] + FrameClient.head("CONNECT", "/"),
        [(":method", "CONNECT"), (":authority", "chat:443")],
        FrameClient.head("CONNECT", "/"),
        FrameClient.head("GET", ""),
        FrameClient.head("GET", "x"),
        FrameClient.head("GET", "*"),
        FrameClient.head("GET", "http://other/"),
        FrameClient.head("GET", "/ HTTP/1.1\r\nHost: x\r\n\r\n"),
        FrameClient.head("GET", "/a b"),
        FrameClient.head("GET", "/#x"),
        FrameClient.head("G T", "/"),
        FrameClient.head("", "/"),
        [(":method", "GET"), (":scheme", "ftp"), (":path", "/"), (":authority", "chat")],
        [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "")],
        FrameClient.head("GET", "/", [("host", "other")]),
        FrameClient.head("GET", "/", [("host", "chat"), ("host", "chat")]),
        FrameClient.head("GET", "/", [("connection", "close")]),
        FrameClient.head("GET", "/", [("keep-alive", "1")]),
        FrameClient.head("GET", "/", [("proxy-connection", "x")]),
        FrameClient.head("GET", "/", [("transfer-encoding", "chunked")]),
        FrameClient.head("GET", "/", [("upgrade", "websocket")]),
        FrameClient.head("GET", "/", [("te", "gzip")]),
        FrameClient.head("GET", "/", [("X-Upper", "1")]),
        FrameClient.head("GET", "/", [("x y", "1")]),
        FrameClient.head("GET", "/", [("x:y", "1")]),
        FrameClient.head("GET", "/", [("x\r\ny", "1")]),
        FrameClient.head("GET", "/", [("x", "1\r\ny: 2")]),
        FrameClient.head("GET", "/", [("x", "1\n")]),
        FrameClient.head("GET", "/", [("x", "\0")]),
        FrameClient.head("GET", "/", [("x", "\u{7F}")]),
        FrameClient.head("GET", "/", [("x", " 1")]),
        FrameClient.head("GET", "/", [("content-length", "1")]),
        FrameClient.head("GET", "/", [("content-length", "x")]),
        FrameClient.head("GET", "/", [("content-length", "-1")]),
        FrameClient.head("GET", "/", [("content-length", "0"), ("content-length", "0")]),
    ]

    @Test func malformedHeadsEndTheirStreamAndNoOther() async throws {
        try await with({ _ in }) { proxy, trust, backend in
            let client = try await Client.connect(proxy.port, trust)
            client.request(1, Client.head("POST", "/first"), isEnd: false)
            for (index, fields) in Self.malformed.enumerated() {
                client.request(index * 2 + 3, fields)
                #expect(try client.reset(index * 2 + 3) == 1, "\(fields)")
                #expect(client.seen[index * 2 + 3].heads.isEmpty)
            }
            client.data(1, "x")
            #expect(try client.answer(1).text.hasPrefix("POST /first "))
            #expect(client.seen.goAways.isEmpty)
            #expect(backend.connections == 1)
        }
    }

    @Test func whatHTTP1WouldRefuseIsAnsweredLikeThere() async throws {
        try await with({ _ in }) { proxy, trust, _ in
            let client = try await Client.connect(proxy.port, trust)
            let requests: [(String, [(String, String)])] = [
                ("400", [(":method", "GET"), (":scheme", "https"), (":path", "/")]),
                ("400", [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a@b")]),
                ("417", Client.head("GET", "/", [("expect", "more")])),
                ("414", Client.head("GET", "/" + String(repeating: "x", count: 17000))),
                ("431", Client.head("GET", "/", (0..<200).map { ("x-\($0)", "") })),
            ]
            // Until its settings are acknowledged, the gateway takes less than they say.
            _ = try client.wait("settings") { $0.settings > 0 ? true : nil }
            for (index, (status, fields)) in requests.enumerated() {
                client.request(index * 2 + 1, fields)
                #expect(try client.answer(index * 2 + 1).status == status)
            }
        }
    }

    @Test func trailersAboveTheLimitAreAnswered() async throws {
        try await with({ $0.head.fields = 20 }) { proxy, trust, _ in
            let client = try await Client.connect(proxy.port, trust)
            _ = try client.wait("settings") { $0.settings > 0 ? true : nil }
            client.request(1, Client.head("PUT", "/"), isEnd: false)
            client.data(1, "x", isEnd: false)
            client.request(1, (0..<21).map { ("x-\($0)", "1") })
            #expect(try client.answer(1).status == "431")
            client.get(3)
            #expect(try client.answer(3).status == "200")
        }
    }

    @Test func bodiesOfAnotherLengthThanAnnounced() async throws {
        try await with({ _ in }) { proxy, trust, backend in
            let client = try await Client.connect(proxy.port, trust)
            for (index, text) in ["toolong", "shrt"].enumerated() {
                let stream = index * 2 + 1
                client.request(stream, Client.head("PUT", "/", [("content-length", "5")]), isEnd: false)
                client.data(stream, text)
                #expect(try client.reset(stream) == 1)
            }
            client.request(5, Client.head("PUT", "/"), isEnd: false)
            client.data(5, "x", isEnd: false)
            client.request(5, [("x-t", "1\r\nx: y")])
            #expect(try client.reset(5) == 1)
            client.request(7, Client.head("PUT", "/"), isEnd: false)
            client.request(7, [(":path", "/")])
            #expect(try client.reset(7) == 1)
            client.get(9)
            #expect(try client.answer(9).status == "200")
        }
    }

    /// Each has to end the connection, with a word about it, and nobody else's.
    @Test(arguments: [
        "preface", "http1", "reset", "ping", "settings", "priority", "continuation", "endless", "empty", "window",
        "even",
        "back", "bomb", "list", "data", "nameless",
    ]) func floodsEndTheConnection(_ kind: String) async throws {
        try await with { limits in
            limits.streamResets = 50
            limits.controlFrames = 50
            limits.head.bytes = 16 << 10
        } _: { proxy, trust, backend in
            let client = try await Client.connect(proxy.port, trust, begins: !["preface", "http1"].contains(kind))
            let block = Client.block(Client.head("GET", "/"))
            // The connection is one that works.
            if !["preface", "http1"].contains(kind) {
                client.get(1)
                #expect(try client.answer(1).status == "200")
            }
            switch kind {
            case "preface": client.send([UInt8](repeating: 0x2A, count: 200))
            case "http1": client.send(Array("GET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
            case "reset":
                for number in 1...200 {
                    client.send(
                        Client.frame(.headers, 5, number * 2 + 1, block)
                            + Client.frame(.reset, 0, number * 2 + 1, Client.number(8)))
                }
            case "ping":
                for _ in 0..<200 { client.send(.ping, 0, 0, [UInt8](repeating: 1, count: 8)) }
            case "settings":
                for _ in 0..<200 { client.send(.settings) }
            case "priority":
                for _ in 0..<200 { client.send(.priority, 0, 1, [0, 0, 0, 0, 1]) }
            case "continuation":
                client.send(.headers, 1, 3, block)
                for _ in 0..<50 { client.send(.continuation, 0, 3, Client.block([("x", "")])) }
            case "endless":
                client.send(.headers, 1, 3, block)
                for _ in 0..<8 { client.send(.continuation, 0, 3, [UInt8](repeating: 0, count: 16000)) }
            case "empty":
                client.request(3, Client.head("POST", "/"), isEnd: false)
                for _ in 0..<50 { client.send(.data, 0, 3) }
            case "window": client.send(.windowUpdate, 0, 0, Client.number(1 << 31 - 1))
            case "even": client.get(2)
            case "back":
                client.get(5)
                client.get(3)
            case "bomb":
                // One long field in the table, and many mentions of it: RFC 7541 section 7.3.
                let field = [0x40] + Client.string([0x78]) + Client.string([UInt8](repeating: 0x61, count: 3000))
                client.send(.headers, 5, 3, block + field + [UInt8](repeating: 0xBE, count: 10000))
            case "list": client.request(3, Client.head("GET", "/", [("x", String(repeating: "y", count: 16300))]))
            case "data": client.send(.data, 1, 0, [1])
            case "nameless": client.request(3, Client.head("GET", "/", [("", "1")]))
            default: Issue.record("\(kind)")
            }
            let seen = try client.closed()
            let codes = seen.goAways.map(\.code)
            #expect(!codes.contains(0) && (!codes.isEmpty || kind == "http1"))
            // Nothing piles up before that.
            #expect(backend.connections < 150)
            try await Self.serves(proxy, trust)
        }
    }

    @Test func moreStreamsThanThereMayBe() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            _ = socket.rest()
        }
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { $0.limits.streams = 5 }
        let trust = try rig.trust(["h2"])
        try await blocking {
            // Settings bind a client when it has acknowledged them. This one does not, and is bound all the same.
            let client = try await Client.connect(proxy.port, trust, acknowledges: false)
            for number in 0..<8 { client.get(number * 2 + 1) }
            for number in 5..<8 { #expect(try client.reset(number * 2 + 1) == 7) }
            try eventually("the others are with the backend") { backend.connections == 5 }
            // There is place again behind one that ends.
            client.send(.reset, 0, 1, Client.number(8))
            client.get(17)
            try eventually("one more is") { backend.connections == 6 }
            #expect(client.seen[17].reset == nil)
            for number in 9..<15 { client.get(number * 2 + 1) }
            let seen = try client.closed()
            #expect(seen.goAways.last?.code == 11)
            // Who has acknowledged them and goes on is not heard out.
            let second = try await Client.connect(proxy.port, trust)
            _ = try second.wait("settings") { $0.settings > 0 ? true : nil }
            for number in 0..<6 { second.get(number * 2 + 1) }
            let end = try second.wait("an end") { $0.isClosed || $0[11].reset != nil ? $0 : nil }
            #expect(end.isClosed || end[11].reset == 7)
        }
        await proxy.stop()
    }

    // MARK: Ends

    @Test func silentConnections() async throws {
        try await with { limits in
            // Long enough for a handshake on a busy machine.
            limits.headTime = .seconds(10)
            limits.keepAlive = .milliseconds(200)
        } _: { proxy, trust, _ in
            // Not even TLS.
            let mute = try proxy.client()
            // TLS, and no preface.
            let idle = try await Client.connect(proxy.port, trust, begins: false)
            // A head that never ends.
            let slow = try await Client.connect(proxy.port, trust, acknowledges: false)
            slow.send(.headers, 1, 1, Client.block(Client.head("GET", "/")))
            #expect(mute.isAtEnd())
            #expect(try idle.closed().goAways.map(\.code) == [0])
            let end = try slow.closed()
            #expect(end.goAways.map(\.code) == [0], "\(end)")
            // A request, and then no other; pings do not count.
            let kept = try await Client.connect(proxy.port, trust)
            kept.get(1)
            #expect(try kept.answer(1).status == "200")
            try eventually("it ends all the same", every: .milliseconds(50)) {
                kept.send(.ping, 0, 0, [UInt8](repeating: 1, count: 8))
                return kept.seen.isClosed
            }
            #expect(kept.seen.goAways.map(\.last) == [1])
            try eventually("they are gone") { proxy.server.connectionCount == 0 }
        }
    }

    @Test func aBodyThatNeverComes() async throws {
        try await with {
            $0.stall = .milliseconds(200)
        } _: { proxy, trust, _ in
            let client = try await Client.connect(proxy.port, trust)
            client.request(1, Client.head("POST", "/", [("content-length", "5")]), isEnd: false)
            let answer = try client.wait("an answer") { $0[1].reset != nil ? $0[1] : nil }
            #expect(answer.status == "408" && answer.isEnded && answer.reset == 0)
            client.get(3)
            #expect(try client.answer(3).status == "200")
        }
    }

    @Test(arguments: ["drain", "stop"]) func whatIsUnderWayIsAnswered(_ how: String) async throws {
        let mayAnswer = Mutex(false)
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try eventually("it may") { mayAnswer.withLock { $0 } }
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        }
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) {
            $0.limits.stopTime = .seconds(30)
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let idle = try await Client.connect(proxy.port, trust)
            _ = try idle.wait("settings") { $0.settings > 0 ? true : nil }
            let busy = try await Client.connect(proxy.port, trust)
            busy.get(1)
            try eventually("the backend has it") { backend.connections == 1 }
            #expect(proxy.server.connectionCount == 2)
            async let ended: Void = how == "stop" ? proxy.server.stop() : proxy.server.drain()
            #expect(try idle.closed().goAways.map(\.code) == [0])
            let goAway = try busy.wait("word of it") { $0.goAways.first }
            #expect(goAway.code == 0 && goAway.last == 0x7FFF_FFFF)
            mayAnswer.withLock { $0 = true }
            let seen = try busy.closed()
            #expect(seen[1].text == "ok" && seen[1].isEnded && seen.goAways.last?.last == 1, "\(seen)")
            await ended
            try eventually("none is left") { proxy.server.connectionCount == 0 }
        }
        await proxy.stop()
    }

    @Test func stoppingDoesNotWaitForEver() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            _ = socket.rest()
        }
        let rig = try TLSRig()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) {
            $0.limits.stopTime = .milliseconds(200)
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await Client.connect(proxy.port, trust)
            client.get(1)
            try eventually("the backend has it") { backend.connections == 1 }
            await proxy.server.stop()
            #expect(try !client.closed()[1].isEnded)
        }
        await proxy.stop()
    }

    // MARK: Chance

    @Test(arguments: [1, 2, 3, 4] as [UInt64]) func damagedFrames(_ seed: UInt64) async throws {
        try await with({ _ in }) { proxy, trust, _ in
            var random = SeededGenerator(seed: seed)
            for round in 0..<60 {
                let client = try await Client.connect(proxy.port, trust)
                var bytes: [UInt8] = []
                if round % 3 == 0 {
                    let count = Int.random(in: 1...400, using: &random)
                    bytes = (0..<count).map { _ in .random(in: 0...255, using: &random) }
                } else {
                    for number in 0..<Int.random(in: 1...6, using: &random) {
                        let fields = Self.malformed.randomElement(using: &random) ?? []
                        let head = Client.block(Bool.random(using: &random) ? fields : Client.head("POST", "/"))
                        bytes += Client.frame(.headers, Bool.random(using: &random) ? 4 : 5, number * 2 + 1, head)
                        bytes += Client.frame(.data, Bool.random(using: &random) ? 0 : 1, number * 2 + 1, [1, 2, 3])
                        bytes += Client.frame(.windowUpdate, 0, number * 2 + 1, Client.number(1))
                        bytes += Client.frame(.ping, 0, 0, [UInt8](repeating: 0, count: 8))
                    }
                    for _ in 0..<Int.random(in: 1...5, using: &random) {
                        let place = Int.random(in: 0..<bytes.count, using: &random)
                        if Bool.random(using: &random) {
                            bytes[place] = .random(in: 0...255, using: &random)
                        } else {
                            bytes.remove(at: place)
                        }
                    }
                }
                client.send(bytes)
                if round % 5 == 0 { client.close() }
                // A frame that cannot be: it ends the connection, whatever came of the others.
                if round % 5 == 1 {
                    client.send([UInt8](repeating: 0xFF, count: 70000))
                    _ = try client.closed()
                }
            }
            try await Self.serves(proxy, trust)
        }
    }
}
