import Foundation
import HTTPServer
import JSONGateway
import NIOCore
import NIOSupport
import PeerKit
import Reports
import Synchronization
import TestThreads
import Testing

/// Requests over HTTP/2, from a client of that protocol's own and from one that says each frame.
@Suite struct HTTP2PassTests {
    /// - Returns: what it has said.
    private func curl(_ rig: TLSRig, _ arguments: [String]) throws -> String {
        let output = try ChildProcess.run(
            "curl",
            [
                "-sS", "--noproxy", "*", "--http2", "--cacert", rig.certificate.certificatePath, "--max-time", "600",
            ] + arguments, timeout: .seconds(610))
        guard output.succeeded else { throw RawError("curl: \(output.status) \(output.stderr)") }
        return output.stdout
    }

    @Test func curlSpeaksItAndOneConnectionCountsOnce() async throws {
        let rig = try TLSRig()
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener)
        let url = "https://localhost:\(proxy.port)/a%2Fb?c"
        try await blocking {
            let text = try curl(rig, ["-d", "hello", "-w", "|%{http_version} %{http_code}", "-i", url])
            #expect(text.hasPrefix("HTTP/2 200 \r\nx-b: 1\r\nx-a: 2\r\ncontent-length: "))
            #expect(text.contains("POST /a%2Fb?c HTTP/1.1\r\nhost: localhost:\(proxy.port)\r\n"))
            #expect(
                text.contains(
                    "Forwarded: for=127.0.0.1;proto=https;host=\"localhost:\(proxy.port)\"\r\n"
                        + "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: https\r\n"))
            #expect(text.hasSuffix("hello|2 200"))
            #expect(try curl(rig, ["-I", url]).hasPrefix("HTTP/2 200 \r\n"))
            // Who does not speak it goes on as before.
            #expect(try curl(rig, ["--http1.1", "-i", url]).hasPrefix("HTTP/1.1 200 As you say\r\n"))
        }
        #expect(proxy.environment.tally[.connectionsAccepted] == 3)
        await proxy.stop()
    }

    @Test func manyAtOnceOverOneConnection() async throws {
        let rig = try TLSRig()
        let backend = try RawServer { socket, _ in
            while let (head, _) = try? socket.message() {
                let number = head.split(separator: " ")[1]
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(number.utf8.count)\r\n\r\n\(number)")
            }
        }
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { $0.limits.headTime = .minutes(10) }
        try await blocking {
            let text = try curl(
                rig,
                [
                    "--parallel", "--parallel-max", "90", "--parallel-immediate",
                    "https://localhost:\(proxy.port)/[1-400]", "-w", "|%{http_version}:%{http_code}|",
                ])
            for number in 1...400 { #expect(text.contains("/\(number)|") || text.contains("/\(number)/")) }
            #expect(text.components(separatedBy: "|2:200|").count == 401)
            let client = try await FrameClient.connect(proxy.port, rig.trust(["h2"]))
            for number in 0..<100 { client.get(number * 2 + 1, "/\(number)") }
            for number in 0..<100 { #expect(try client.answer(number * 2 + 1).text == "/\(number)") }
            #expect(proxy.server.connectionCount == 1)
        }
        await proxy.stop()
    }

    @Test func fiftyMegabytesUpAndDown() async throws {
        let rig = try TLSRig()
        let scratch = try ScratchDirectory()
        let file = scratch.file("up")
        let bytes = (0..<(50 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 31 ^ $0 >> 13) }
        try Data(bytes).write(to: URL(filePath: file))
        let isSame = Mutex(false)
        let backend = try RawServer { socket, _ in
            let head = try socket.head()
            if head.hasPrefix("POST") {
                let isEqual = try socket.read(bytes.count) == bytes
                isSame.withLock { $0 = isEqual }
                return try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            }
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(bytes.count)\r\n\r\n")
            try socket.send(bytes)
        }
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener)
        try await blocking {
            let url = "https://localhost:\(proxy.port)/"
            #expect(try curl(rig, ["--data-binary", "@\(file)", "-H", "Expect:", url]) == "ok")
            #expect(isSame.withLock { $0 })
            _ = try curl(rig, ["-o", scratch.file("down"), url])
            #expect(try Data(contentsOf: URL(filePath: scratch.file("down"))) == Data(bytes))
        }
        await proxy.stop()
    }

    // MARK: Frame by frame

    /// Answers with something for each path, and with the request behind it.
    private func backend(_ answers: [String: String]) throws -> RawServer {
        try RawServer { socket, _ in
            while let (head, body) = try? socket.message() {
                let path = String(head.split(separator: " ")[1])
                let seen = head + body
                try socket.send(
                    answers[path] ?? "HTTP/1.1 200 OK\r\nContent-Length: \(seen.utf8.count)\r\n\r\n\(seen)")
            }
        }
    }

    @Test func whatTheBackendSees() async throws {
        try await FrameClient.with(try backend([:])) { client in
            client.request(
                1,
                FrameClient.head(
                    "GET", "/x",
                    [
                        ("cookie", "a=b"), ("x-a", "1"), ("cookie", "c=d"), ("te", "trailers"), ("host", "CHAT"),
                        ("cookie", "e=f"), ("x-u", "caf\u{E9} \u{F780}"), ("forwarded", "for=1.2.3.4"),
                    ]))
            let answer = try client.answer(1)
            #expect(
                answer.text == """
                    GET /x HTTP/1.1\r
                    host: chat\r
                    cookie: a=b; c=d; e=f\r
                    x-a: 1\r
                    x-u: caf\u{E9} \u{F780}\r
                    Forwarded: for=127.0.0.1;proto=https;host=chat\r
                    X-Forwarded-For: 127.0.0.1\r
                    X-Forwarded-Proto: https\r
                    X-Forwarded-Host: chat\r\n\r\n
                    """)
            // A body that nobody has counted, in pieces, with an empty one in the middle and padding; and trailers.
            client.request(3, FrameClient.head("PUT", "/y"), isEnd: false)
            client.data(3, "hel", isEnd: false)
            client.data(3, "", isEnd: false)
            client.send(.data, 8, 3, [3] + Array("lo".utf8) + [0, 0, 0])
            client.request(3, [("x-t", "1"), ("content-length", "7")])
            #expect(try client.answer(3).text.hasSuffix("\r\n\r\nhello|x-t: 1\r\n\r\n"))
            // A counted one, and one that ends in an empty frame.
            client.request(5, FrameClient.head("PUT", "/y", [("content-length", "5")]), isEnd: false)
            client.data(5, "hello", isEnd: false)
            client.data(5, "")
            let counted = try client.answer(5).text
            #expect(counted.contains("\r\ncontent-length: 5\r\n") && counted.hasSuffix("\r\n\r\nhello"))
            client.request(7, FrameClient.head("PUT", "/y", [("content-length", "0")]))
            #expect(try client.answer(7).text.contains("\r\ncontent-length: 0\r\n"))
            client.request(9, FrameClient.head("OPTIONS", "*"))
            #expect(try client.answer(9).text.hasPrefix("OPTIONS * HTTP/1.1\r\n"))
            // Trailers behind a counted body have no place in HTTP/1.1.
            client.request(11, FrameClient.head("PUT", "/y", [("content-length", "2")]), isEnd: false)
            client.data(11, "ok", isEnd: false)
            client.request(11, [("x-t", "1")])
            #expect(try client.answer(11).text.hasSuffix("\r\n\r\nok"))
        }
    }

    @Test func whatTheClientSees() async throws {
        let answers = [
            "/fields":
                "HTTP/1.1 200 Fine\r\nX-Up: Value\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"
                + "Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok",
            "/head": "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
            "/204": "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "/304": "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: x\r\n\r\n",
            "/empty": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "/103": "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "/chunks":
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n"
                + "X-T: 1\r\n\r\n",
        ]
        try await FrameClient.with(try backend(answers)) { client in
            client.get(1, "/fields")
            let fields = try client.answer(1)
            #expect(
                fields.heads.first?.map { "\($0.name)=\($0.value)" } == [
                    ":status=200", "x-up=Value", "set-cookie=a", "set-cookie=b", "content-length=2",
                ])
            #expect(fields.text == "ok" && fields.reset == nil)
            client.request(3, FrameClient.head("HEAD", "/head"))
            let head = try client.answer(3)
            #expect(head.first("content-length") == "500" && head.isEnded && head.body.isEmpty)
            for (stream, path) in [(5, "/204"), (7, "/304"), (9, "/empty")] {
                client.get(stream, path)
                let answer = try client.answer(stream)
                #expect(answer.isEnded && answer.reset == nil && answer.body.isEmpty)
                #expect((answer.first("content-length") == nil) == (path == "/204"))
            }
            client.get(11, "/103")
            let hints = try client.answer(11)
            #expect(hints.heads.map { $0.first?.value } == ["103", "200"])
            #expect(hints.first("link") == "x" && hints.text == "ok")
            client.get(13, "/chunks")
            let chunks = try client.answer(13)
            #expect(chunks.text == "hello")
            #expect(chunks.heads.last?.map { "\($0.name)=\($0.value)" } == ["x-t=1"])
            #expect(chunks.heads.first?.contains { $0.name == "transfer-encoding" } == false)
        }
    }

    @Test func bytesThatAreNoUTF8() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            let head = Array("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: caf".utf8)
            try socket.send(head + [0xE9, 13, 10, 13, 10, 111, 107])
            _ = socket.rest()
        }
        try await FrameClient.with(backend) { client in
            client.get(1)
            let answer = try client.answer(1)
            #expect(answer.first("x") == "caf\u{E9}")
            // The library hands them over as something else, so they go no further.
            let name = FrameClient.block(FrameClient.head("GET", "/")) + [0] + FrameClient.string([0x78])
            client.send(.headers, 5, 3, name + FrameClient.string([0x63, 0xE9]))
            #expect(try client.reset(3) == 1)
        }
    }

    @Test func theClientWaitsForA100() async throws {
        let backend = try RawServer { socket, _ in
            let head = try socket.head()
            try socket.send("HTTP/1.1 100 Continue\r\n\r\n")
            let body = String(decoding: try socket.read(5), as: UTF8.self)
            try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\(body)")
            if !head.lowercased().contains("expect: 100-continue") { throw RawError(head) }
            _ = socket.rest()
        }
        try await FrameClient.with(backend) { client in
            client.request(
                1, FrameClient.head("POST", "/", [("expect", "100-continue"), ("content-length", "5")]), isEnd: false)
            _ = try client.wait("100") { $0[1].heads.first?.first?.value == "100" ? true : nil }
            client.data(1, "hello")
            #expect(try client.answer(1).text == "hello")
        }
    }

    @Test func anEarlyAnswerIsWholeAndThenTheClientIsAskedToStop() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.head()
            try socket.send("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
            _ = socket.rest()
        }
        try await FrameClient.with(backend) { client in
            client.request(1, FrameClient.head("POST", "/", [("content-length", "1000000")]), isEnd: false)
            client.data(1, "abc", isEnd: false)
            let code = try client.reset(1)
            let answer = client.seen[1]
            #expect(code == 0 && answer.isEnded && answer.status == "413" && answer.text == "no")
        }
    }

    @Test func aBrokenAnswerLooksLikeOne() async throws {
        let backend = try RawServer { socket, number in
            let head = try socket.head()
            guard !head.hasPrefix("GET /ok") else {
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                return
            }
            let isCounted = head.hasPrefix("GET /counted")
            let framing = isCounted ? "Content-Length: 5" : "Transfer-Encoding: chunked"
            try socket.send("HTTP/1.1 200 OK\r\n\(framing)\r\n\r\n")
            try socket.send(isCounted ? "hel" : "3\r\nhel\r\n")
        }
        try await FrameClient.with(backend) { client in
            for (stream, path) in [(1, "/counted"), (3, "/chunked")] {
                client.get(stream, path)
                let code = try client.reset(stream)
                #expect(code == 2 && !client.seen[stream].isEnded)
            }
            // Its neighbours live.
            client.get(5, "/ok")
            #expect(try client.answer(5).text == "ok")
        }
    }

    @Test func aProxyHeaderBeforeTLS() async throws {
        let rig = try TLSRig()
        let backend = try ProxyPassTests.mirror()
        let proxy = try await Proxy(to: backend.port, listenerTLS: rig.listener) { services in
            var options = services.downstream()
            options.acceptsProxyProtocol = true
            options.trusts = { $0.ipAddress == "127.0.0.1" }
            let changed = options
            services.downstream = { changed }
        }
        let trust = try rig.trust(["h2"])
        try await blocking {
            let client = try await FrameClient.connect(
                proxy.port, trust, before: "PROXY TCP4 192.0.2.7 192.0.2.1 5000 443\r\n")
            client.get(1)
            #expect(try client.answer(1).text.contains("\r\nX-Forwarded-For: 192.0.2.7\r\n"))
        }
        await proxy.stop()
    }
}
