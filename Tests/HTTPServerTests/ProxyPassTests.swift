import HTTPServer
import JSONGateway
import NIOCore
import NIOSupport
import Reports
import Synchronization
import TestThreads
import Testing

/// Requests and answers that the gateway leaves alone.
@Suite struct ProxyPassTests {
    static let forwarded = """
        Forwarded: for=127.0.0.1;proto=http;host=chat\r
        X-Forwarded-For: 127.0.0.1\r
        X-Forwarded-Proto: http\r
        X-Forwarded-Host: chat\r\n
        """

    /// Answers every request with its own bytes.
    static func mirror() throws -> RawServer {
        try RawServer { socket, _ in
            while true {
                guard let (head, body) = try? socket.message() else { return }
                let answer = head + body
                try socket.send(
                    "HTTP/1.1 200 As you say\r\nX-b: 1\r\nx-A:  2\r\nContent-Length: \(answer.utf8.count)\r\n\r\n\(answer)"
                )
            }
        }
    }

    static let request = "POST /a%2Fb?c HTTP/1.1\r\nhost: chat\r\nX-Z: 1\r\nx-a: 2\r\nContent-Length: 5\r\n\r\nhello"
    static var seen: String {
        "POST /a%2Fb?c HTTP/1.1\r\nhost: chat\r\nX-Z: 1\r\nx-a: 2\r\nContent-Length: 5\r\n\(forwarded)\r\nhello"
    }
    static var answer: String {
        "HTTP/1.1 200 As you say\r\nX-b: 1\r\nx-A: 2\r\nContent-Length: \(seen.utf8.count)\r\n\r\n\(seen)"
    }

    @Test func bytesAreFaithfulAndConnectionsAreKept() async throws {
        let backend = try Self.mirror()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<20 {
                try client.send(Self.request)
                let answer = try client.read(Self.answer.utf8.count)
                #expect(String(decoding: answer, as: UTF8.self) == Self.answer)
            }
        }
        #expect(backend.connections == 1)
        #expect(proxy.environment.tally[.connectionsAccepted] == 1)
        await proxy.stop()
    }

    @Test func splitAtEveryByte() async throws {
        let backend = try Self.mirror()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let bytes = Array(Self.request.utf8)
            let client = try proxy.client()
            for cut in 1..<bytes.count {
                try client.send(Array(bytes[..<cut]))
                try client.send(Array(bytes[cut...]))
                #expect(String(decoding: try client.read(Self.answer.utf8.count), as: UTF8.self) == Self.answer)
            }
            for byte in bytes { try client.send([byte]) }
            #expect(String(decoding: try client.read(Self.answer.utf8.count), as: UTF8.self) == Self.answer)
        }
        await proxy.stop()
    }

    @Test func pipelinedRequestsAreAnsweredInOrder() async throws {
        let backend = try RawServer { socket, _ in
            while let (head, _) = try? socket.message() {
                let number = head.split(separator: " ")[1]
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: \(number.utf8.count)\r\n\r\n\(number)")
            }
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send((0..<200).map { "GET /\($0) HTTP/1.1\r\nHost: chat\r\n\r\n" }.joined())
            for number in 0..<200 { #expect(try client.message().body == "/\(number)") }
            try client.send("GET /last HTTP/1.1\r\nHost: chat\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\n")
            let (head, body) = try client.message()
            #expect(body == "/last")
            #expect(head.contains("Connection: close\r\n"))
            #expect(client.isAtEnd())
        }
        await proxy.stop()
    }

    @Test func answersWithoutBodies() async throws {
        let backend = try RawServer { socket, _ in
            while let (head, _) = try? socket.message() {
                switch head.split(separator: " ")[1] {
                case "/head": try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
                case "/204": try socket.send("HTTP/1.1 204 No Content\r\n\r\n")
                case "/304": try socket.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: x\r\n\r\n")
                default: try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                }
            }
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send("HEAD /head HTTP/1.1\r\nHost: chat\r\n\r\n")
                #expect(try client.head() == "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
                try client.send("GET /204 HTTP/1.1\r\nHost: chat\r\n\r\n")
                #expect(try client.head() == "HTTP/1.1 204 No Content\r\n\r\n")
                try client.send("GET /304 HTTP/1.1\r\nHost: chat\r\n\r\n")
                #expect(try client.head() == "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: x\r\n\r\n")
                try client.send("GET /empty HTTP/1.1\r\nHost: chat\r\n\r\n")
                #expect(try client.head() == "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            }
        }
        #expect(backend.connections == 1)
        await proxy.stop()
    }

    @Test func chunkedBothWaysWithTrailers() async throws {
        let backend = try RawServer { socket, _ in
            while let (head, body) = try? socket.message() {
                #expect(head.contains("Transfer-Encoding: chunked\r\n"))
                #expect(!head.contains("Content-Length"))
                try socket.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
                for character in body.utf8 { try socket.send("1;x=y\r\n\(Character(Unicode.Scalar(character)))\r\n") }
                try socket.send("0\r\nX-Sum: 9\r\nContent-Length: 4\r\n\r\n")
            }
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send("PUT /x HTTP/1.1\r\nHost: chat\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
                try client.send("2\r\nde\r\n0\r\nX-Own: 7\r\n\r\n")
                let (_, body) = try client.message()
                #expect(body == "abcde|X-Own: 7\r\n\r\n|X-Sum: 9\r\n\r\n")
            }
        }
        await proxy.stop()
    }

    @Test func anAnswerThatEndsWithItsConnection() async throws {
        let backend = try RawServer { socket, _ in
            _ = try socket.message()
            try socket.send("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it")
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<2 {
                try client.send("GET / HTTP/1.1\r\nHost: chat\r\n\r\n")
                let (head, body) = try client.message()
                #expect(head.contains("Transfer-Encoding: chunked"))
                #expect(body == "all of it")
            }
            // For an older client the end of the connection is the end of the answer.
            let old = try proxy.client()
            try old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            let text = old.restText
            #expect(text == "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nall of it")
        }
        await proxy.stop()
    }

    @Test func olderClients() async throws {
        let backend = try RawServer { socket, _ in
            while let (first, _) = try? socket.message() {
                // The version in between has to have a host.
                #expect(first.hasPrefix("GET / HTTP/1.1\r\nHost: localhost:"))
                try socket.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
                guard let (head, _) = try? socket.message() else { return }
                #expect(head.hasPrefix("GET /kept HTTP/1.1\r\n"))
                try socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            }
        }
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let first = try proxy.client()
            try first.send("GET / HTTP/1.0\r\n\r\n")
            #expect(first.restText == "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
            let second = try proxy.client()
            try second.send("GET /kept HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
            #expect(try second.message().head.contains("Connection: keep-alive\r\n"))
        }
        await proxy.stop()
    }

    @Test func aClientThatWaitsForContinue() async throws {
        let backend = try RawServer { socket, _ in
            let head = try socket.head()
            #expect(head.contains("Expect: 100-continue"))
            if head.hasPrefix("POST /yes ") {
                try socket.send("HTTP/1.1 100 Continue\r\n\r\n")
                #expect(try socket.read(5) == Array("hello".utf8))
                try socket.send(
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
                )
            } else {
                try socket.send("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
                _ = socket.rest()
            }
        }
        let proxy = try await Proxy(to: backend.port)
        let head = " HTTP/1.1\r\nHost: chat\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        try await blocking {
            let client = try proxy.client()
            try client.send("POST /yes" + head)
            #expect(try client.head() == "HTTP/1.1 100 Continue\r\n\r\n")
            try client.send("hello")
            #expect(try client.head() == "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            #expect(try client.message().body == "ok")
            // A body that is not wanted need not come; the connection ends, because it might.
            let refused = try proxy.client()
            try refused.send("POST /no" + head)
            #expect(try refused.message().body == "no")
            #expect(refused.isAtEnd())
        }
        await proxy.stop()
    }

    @Test func aProxyProtocolHeaderIdentifiesTheClient() async throws {
        let backend = try Self.mirror()
        let proxy = try await Proxy(to: backend.port) { services in
            var options = DownstreamOptions(
                listeners: [ListenerOptions(host: "127.0.0.1", port: 0)], connectionLimit: 200)
            options.acceptsProxyProtocol = true
            options.trusts = { $0.ipAddress == "127.0.0.1" }
            let downstream = options
            services.downstream = { downstream }
        }
        try await blocking {
            let client = try proxy.client()
            for byte in "PROXY TCP4 192.0.2.9 198.51.100.1 4000 443\r\n".utf8 { try client.send([byte]) }
            try client.send("GET / HTTP/1.1\r\nHost: chat\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n")
            let body = try client.message().body
            #expect(body.contains("X-Forwarded-For: 192.0.2.9\r\n"))
            #expect(!body.contains("10.0.0.1"))
            let other = try proxy.client()
            try other.send("GET / HTTP/1.1\r\nHost: chat\r\n\r\n")
            #expect(try other.message().head.hasPrefix("HTTP/1.1 400 "))
        }
        await proxy.stop()
    }

    @Test func aClientThatEndsItsSideIsAnswered() async throws {
        let backend = try Self.mirror()
        let proxy = try await Proxy(to: backend.port)
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.request)
            client.endOutput()
            #expect(client.restText.hasSuffix(Self.seen))
            // Half a request is nobody's.
            let half = try proxy.client()
            try half.send(String(Self.request.dropLast(2)))
            half.endOutput()
            #expect(half.rest().isEmpty)
        }
        await proxy.stop()
    }
}
