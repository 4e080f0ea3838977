import Foundation
import HTTPCodec
import HTTPServer
import JSONGateway
import NIOCore
import NIOSupport
import PeerKit
import Protection
import RequestQueue
import Synchronization
import TestThreads
import Testing
import Vault

/// What a machine may want.
@Suite struct ProxyActionTests {
    /// Keeps what its requests were, and answers them in turn.
    private final class Backend: Sendable {
        let received = Mutex<[String]>([])
        let answers: [String]

        init(_ answers: String...) { self.answers = answers }

        func server() throws -> RawServer {
            try RawServer { socket, _ in
                while let (head, body) = try? socket.message() {
                    let number = self.received.withLock { received in
                        received.append(head + body)
                        return received.count - 1
                    }
                    try socket.send(self.answers[min(number, self.answers.count - 1)])
                }
            }
        }

        subscript(number: Int) -> String { received.withLock { $0.indices.contains(number) ? $0[number] : "" } }
        var count: Int { received.withLock { $0.count } }
    }

    static let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    static let post = "POST /send HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"

    @Test func aRequestIsCollectedAndAnotherSent() async throws {
        let backend = Backend("HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        let server = try backend.server()
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request: return [.collectRequest(limit: 100)]
            case .requestBody(let body):
                let head = RequestHead("PUT", "/other", headers: ["Host": "x", "Expect": "100-continue", "A": "b"])
                return [.send(head, ByteBuffer(string: String(buffer: body).uppercased() + "!"))]
            case .response: return [.collectResponse(limit: 100)]
            case .responseBody(let body):
                return [
                    .respond(
                        ResponseHead(202, reason: "Changed", headers: ["X": "y"]),
                        ByteBuffer(string: "<\(String(buffer: body))>"))
                ]
            default: return []
            }
        }
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send(Self.post)
                let (head, body) = try client.message()
                #expect(head == "HTTP/1.1 202 Changed\r\nX: y\r\nContent-Length: 7\r\n\r\n")
                #expect(body == "<abcde>")
            }
            // A client that waits is told to go on, by the gateway itself.
            try client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            #expect(try client.head() == "HTTP/1.1 100 Continue\r\n\r\n")
            try client.send("2\r\nab\r\n0\r\n\r\n")
            #expect(try client.message().body == "<abcde>")
            try client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.head() == "HTTP/1.1 202 Changed\r\nX: y\r\nContent-Length: 7\r\n\r\n")
            try client.send(Self.post)
            #expect(try client.message().body == "<abcde>")
        }
        #expect(backend[0].hasPrefix("PUT /other HTTP/1.1\r\nHost: x\r\nA: b\r\nContent-Length: 6\r\nForwarded: "))
        #expect(backend[0].hasSuffix("\r\n\r\nHELLO!"))
        #expect(backend[3].hasSuffix("\r\n\r\nAB!"))
        #expect(server.connections == 1)
        await proxy.stop()
    }

    @Test func aBodyThatIsThereAlreadyIsCollectedAfterALookup() async throws {
        let backend = Backend(Self.ok)
        let server = try backend.server()
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request: return [.look(Lookup(.account, RequestHead("GET", "/me")))]
            case .found: return [.collectRequest(limit: 100)]
            case .requestBody(let body): return [.respond(ResponseHead(200), body)]
            default: return []
            }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.post)
            #expect(try client.message().body == "hello")
        }
        await proxy.stop()
    }

    @Test func whatIsTooLongToCollectCanStillPass() async throws {
        let backend = Backend("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
        let server = try backend.server()
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request(let head): return head.method == "POST" ? [.collectRequest(limit: 4)] : [.passRequest(head)]
            case .requestTooLong:
                return [
                    .passRequest(RequestHead("POST", "/late", headers: ["Host": "x", "Transfer-Encoding": "chunked"]))
                ]
            case .response: return [.collectResponse(limit: 4)]
            case .responseTooLong:
                return [.passResponse(ResponseHead(200, reason: "Late", headers: ["Content-Length": "9"]))]
            default: return []
            }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n")
            try client.send("1\r\ng\r\n0\r\n\r\n")
            #expect(try client.message().body == "abcdefg")
            try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.message().body == "abcdefg")
        }
        #expect(backend[0].hasPrefix("POST /late "))
        #expect(backend[0].hasSuffix("abcdefg"))
        await proxy.stop()
    }

    @Test func aRefusalReadsNoMoreThanItMust() async throws {
        let backend = Backend(Self.ok)
        let server = try backend.server()
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request: [.collectRequest(limit: 10)]
            case .requestBody: [.respond(ResponseHead(403, reason: "No"), ByteBuffer(string: "no"))]
            case .requestTooLong: [.respond(ResponseHead(413, reason: "Long"), ByteBuffer(string: "long"))]
            default: []
            }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.post)
            #expect(try client.message().body == "no")
            // What is left of this one is little, so the connection stays.
            try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n0123456789")
            #expect(try client.message().body == "long")
            try client.send("0123456789" + Self.post)
            #expect(try client.message().body == "no")
            try client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n0123456789")
            let (head, body) = try client.message()
            #expect(head.contains("Connection: close\r\n"))
            #expect(body == "long")
            #expect(client.isAtEnd())
        }
        #expect(server.connections == 0)
        await proxy.stop()
    }

    @Test func looks() async throws {
        let backend = Backend(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalice", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
            Self.ok,
            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + String(repeating: "x", count: 500))
        let server = try backend.server()
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request(let head):
                if head.target == "/long" { return [.look(Lookup(.members, RequestHead("GET", "/many"), limit: 400))] }
                return [.look(Lookup(.account, RequestHead("GET", "/whoami", headers: ["Authorization": "me"])))]
            case .found(.account, let head, let body):
                #expect(head.status == 200 && String(buffer: body) == "alice")
                return [.look(Lookup(.members, RequestHead("GET", "/members", headers: ["Host": "own"])))]
            case .found(.members, let head, _):
                #expect(head.status == 404)
                return [.pass(RequestHead("POST", "/send", headers: ["Host": "x", "Content-Length": "5"]))]
            case .notFound(.members): return [.respond(ResponseHead(500), ByteBuffer(string: "none"))]
            default: return []
            }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.post)
            #expect(try client.message().body == "ok")
            try client.send("GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
            #expect(try client.message().body == "none")
        }
        // The client's Host is no part of a question: it could be another tenant's.
        #expect(
            backend[0].hasPrefix(
                "GET /whoami HTTP/1.1\r\nHost: localhost:\(server.port)\r\nAuthorization: me\r\nForwarded: "))
        #expect(!backend[0].contains("host=x") && !backend[0].contains("Host: x"))
        #expect(backend[1].hasPrefix("GET /members HTTP/1.1\r\nHost: own\r\n"))
        #expect(backend[2].hasSuffix("hello"))
        #expect(server.connections == 1)
        await proxy.stop()
    }

    @Test(arguments: [
        ("127.0.0.1", 80, nil, nil, "127.0.0.1"), ("127.0.0.1", 8008, nil, nil, "127.0.0.1:8008"),
        ("::1", 8008, nil, nil, "[::1]:8008"), ("10.0.0.7", 8008, "chat.example", nil, "chat.example:8008"),
        ("10.0.0.7", 8008, "chat.example", "public.example", "public.example"),
    ]) func theHostOfQuestions(_ host: String, _ port: Int, _ serverName: String?, _ field: String?, _ asked: String) {
        var options = UpstreamOptions(
            host: host, port: port, serverName: serverName, connectTimeout: .seconds(10))
        options.hostField = field
        #expect(options.authority == asked)
    }

    @Test func aLookThatFindsNobody() async throws {
        let server = try RawServer { socket, _ in _ = try socket.head() }
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request: [.look(Lookup(.account, RequestHead("GET", "/whoami")))]
            case .notFound(.account): [.respond(ResponseHead(401), ByteBuffer(string: "who?"))]
            default: []
            }
        }
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.post)
            #expect(try client.message().body == "who?")
        }
        await proxy.stop()
    }

    @Test func theQueueAnswersFromAnotherThread() async throws {
        let clients = Mutex<[ConnectionID: any CommitClient<JSONReply>]>([:])
        let written = Mutex<[QueuedWrite]>([])
        let token = RequestToken(high: 1, low: 2)
        let proxy = try await Proxy(
            to: 1,
            script: { event in
                switch event {
                case .request(let head):
                    return [
                        .enqueue(
                            QueuedWrite(
                                account: .services("alice"), credential: Credential(), lane: "room",
                                key: nil,
                                head: head,
                                body: ByteBuffer()))
                    ]
                case .vault(.queued(_, .success(let write))): return [.await(write.token)]
                case .vault(.queued(_, .failure)): return [.respond(ResponseHead(507), ByteBuffer(string: "full"))]
                case .written(.answered(let head, let body, _)): return [.respond(head, body)]
                case .written: return [.respond(ResponseHead(500), ByteBuffer())]
                default: return []
                }
            },
            { services in
                services.register = { client, id in clients.withLock { $0[id] = client } }
                services.enqueue = { connection, write, _ in
                    let isFull = written.withLock { written in
                        written.append(write)
                        return written.count > 1
                    }
                    let first = KnownWrite(token: token, localID: nil, isLost: false)
                    let reply = JSONReply.queued(token, isFull ? .failure(.notQueued(.full)) : .success(first))
                    let client = clients.withLock { $0[connection] }
                    Thread.detachNewThread { client?.eventLoop.execute { client?.answered([reply]) } }
                }
                services.await = { asked, waiter in
                    #expect(asked == token)
                    Thread.detachNewThread {
                        waiter.end(.answered(ResponseHead(200, reason: "Done"), ByteBuffer(string: "id 7")))
                    }
                }
            })
        try await blocking {
            let client = try proxy.client()
            try client.send(Self.post)
            #expect(try client.message().body == "id 7")
            try client.send(Self.post)
            #expect(try client.message().body == "full")
        }
        #expect(written.withLock { $0.map(\.head.target) } == ["/send", "/send"])
        await proxy.stop()
    }

    @Test func wakesAndTheVault() async throws {
        let clients = Mutex<[ConnectionID: any CommitClient<JSONReply>]>([:])
        let gone = Mutex<[ConnectionID]>([])
        let proxy = try await Proxy(
            to: 1,
            script: { event in
                switch event {
                case .request: return [.wake(at: Int64(NIODeadline.now().uptimeNanoseconds) + 20_000_000)]
                case .woken: return [.submit(.challenge(ConnectionID(0)))]
                case .vault: return [.respond(ResponseHead(200), ByteBuffer(string: "opened"))]
                default: return []
                }
            },
            { services in
                services.register = { client, id in clients.withLock { $0[id] = client } }
                services.unregister = { id in
                    gone.withLock { $0.append(id) }
                    clients.withLock { $0[id] = nil }
                }
                services.submit = { jobs in
                    #expect(jobs.count == 1)
                    for client in clients.withLock({ Array($0.values) }) {
                        client.eventLoop.execute { client.answered([.opened(ticket: 0, [])]) }
                    }
                }
            })
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send(Self.post)
                #expect(try client.message().body == "opened")
            }
        }
        // Each exchange has an address of its own, so that no late answer reaches the next one.
        #expect(Set(gone.withLock { $0 }).count == 3)
        #expect(clients.withLock { $0.isEmpty })
        await proxy.stop()
    }

    @Test func aFailureThatTheMachineHandles() async throws {
        let proxy = try await Proxy(to: 1) { event in
            switch event {
            case .request(let head): [.pass(head)]
            case .upstreamFailed: [.respond(ResponseHead(299), ByteBuffer(string: "later"))]
            default: []
            }
        }
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<2 {
                try client.send(Self.post)
                #expect(try client.message().body == "later")
            }
        }
        await proxy.stop()
    }

    @Test func anAnswerWhileTheBackendIsStillAsked() async throws {
        let server = try RawServer { socket, _ in
            _ = try socket.head()
            _ = socket.rest()
        }
        let proxy = try await Proxy(to: server.port) { event in
            switch event {
            case .request(let head):
                [.passRequest(head), .wake(at: Int64(NIODeadline.now().uptimeNanoseconds) + 20_000_000)]
            case .woken: [.respond(ResponseHead(200), ByteBuffer(string: "enough"))]
            default: []
            }
        }
        try await blocking {
            let client = try proxy.client()
            for _ in 0..<3 {
                try client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                #expect(try client.message().body == "enough")
            }
        }
        await proxy.stop()
    }
}
