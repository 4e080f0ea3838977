import AsyncHTTPClient
import Foundation
import NIOCore
import NIOPosix
import PeerKit
import RequestQueue
import RequestQueueAsyncHTTP
import RequestQueueClient
import TestKit
import Testing

@testable import RequestQueueURLSession

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// The real network, on loopback: what each of its failures is called, and what goes over the wire.
@Suite struct NetworkTests {
    /// The library below the queue.
    enum Library: CaseIterable {
        case asyncHTTP
        case urlSession
    }

    private func with(
        _ library: Library, certificate: Certificate? = nil,
        _ answer: @escaping @Sendable (ChatBackend.Received) -> ChatBackend.Answer,
        _ body: (ChatBackend, any NetworkClient) async throws -> Void
    ) async throws {
        let backend = try await ChatBackend(certificate: certificate, answer)
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        do {
            switch library {
            case .asyncHTTP: try await body(backend, HTTPNetworkClient(http, largestResponse: 1000))
            case .urlSession: try await body(backend, URLSessionNetworkClient(largestResponse: 1000))
            }
        } catch {
            try await http.shutdown()
            try await backend.stop()
            throw error
        }
        try await http.shutdown()
        try await backend.stop()
    }

    private func request(_ url: String, _ method: RequestQueue.HTTPMethod = .get, timeout: Int64 = 600_000)
        -> NetworkRequest
    {
        NetworkRequest(method: method, url: url, timeoutInterval: timeout)
    }

    @Test(arguments: Library.allCases) func whatGoesOutAndWhatComesBack(_ library: Library) async throws {
        try await with(library) { _ in
            .status(307, headers: ["Location": "/other", "X-A": "b"], body: "hello")
        } _: { backend, client in
            for method in RequestQueue.HTTPMethod.allCases {
                var outgoing = request(backend.url + "/a%20b?c=d", method)
                outgoing.headers = [.init("X-Sent", "1")]
                if !method.isSafe { outgoing.body = Array("body".utf8) }
                let response = try await client.send(outgoing)
                #expect(response.status == 307 && response.header("x-a") == "b")
                let received = try #require(backend.received.last)
                #expect(received.method == method.name && received.uri == "/a%20b?c=d")
                #expect(received.header("X-Sent") == "1" && received.body == (method.isSafe ? "" : "body"))
            }
            #expect(backend.received.count == RequestQueue.HTTPMethod.allCases.count)
        }
    }

    @Test(
        arguments: [
            ("/hangup", NetworkFailure.networkConnectionLost), ("/silence", .timedOut),
            ("/nonsense", .badServerResponse), ("/stall", .timedOut), ("/drip", .timedOut),
        ], Library.allCases)
    func failures(_ failure: (path: String, meaning: NetworkFailure), _ library: Library) async throws {
        let (path, expected) = failure
        try await with(library) { received in
            switch received.uri {
            case "/hangup": .hangUp
            case "/silence": .silence
            case "/stall": .stall
            case "/drip": .drip
            default: .nonsense
            }
        } _: { backend, client in
            let timeout: Int64 = ["/silence", "/stall", "/drip"].contains(path) ? 300 : 600_000
            await #expect(throws: expected) {
                try await client.send(request(backend.url + path, .post, timeout: timeout))
            }
        }
    }

    /// Its head says that it was done.
    @Test(arguments: [999, 1000, 1001, 100_000], Library.allCases)
    func answersThatAreTooLarge(_ size: Int, _ library: Library) async throws {
        try await with(library) { _ in
            .status(201, body: String(repeating: "x", count: size))
        } _: { backend, client in
            let response = try await client.send(request(backend.url + "/", .post))
            #expect(response.status == 201 && response.body.count == min(size, 1000))
            #expect(response.isCut == (size > 1000))
        }
    }

    @Test(arguments: Library.allCases) func whereNobodyIs(_ library: Library) async throws {
        try await with(library) { _ in
            .status(200)
        } _: { backend, client in
            // Reserved, so that no other test listens there meanwhile.
            let nobody = try FreePort()
            defer { withExtendedLifetime(nobody) {} }
            let port = nobody.number
            await #expect(throws: NetworkFailure.cannotConnectToHost) {
                try await client.send(request("http://127.0.0.1:\(port)/"))
            }
            // A label of 64 bytes is no name: nobody is asked for it.
            await #expect(throws: NetworkFailure.cannotFindHost) {
                try await client.send(request("http://\(String(repeating: "a", count: 64)).invalid/"))
            }
            let secure = backend.url.replacing("http:", with: "https:")
            await #expect(throws: NetworkFailure.secureConnectionFailed) { try await client.send(request(secure)) }
            for url in ["", "no url", "http://", "ftp://127.0.0.1/"] {
                await #expect(throws: NetworkFailure.badURL, "\(url)") { try await client.send(request(url)) }
            }
        }
    }

    /// More than the pool of the library below opens by itself.
    @Test(arguments: Library.allCases)
    func requestsThatHangKeepNoConnectionFromOthers(_ library: Library) async throws {
        try await with(library) { received in
            received.uri == "/hang" ? .silence : .status(200)
        } _: { backend, client in
            let hanging = request(backend.url + "/hang", .post)
            let tasks = (0..<100).map { _ in Task { try await client.send(hanging) } }
            try await eventuallyAsync("they hang") { backend.received.count == 100 }
            #expect(try await client.send(request(backend.url + "/other")).status == 200)
            for task in tasks { task.cancel() }
            for task in tasks { _ = await task.result }
        }
    }

    /// Beside a client of the application's own, whose pool is small.
    @Test func waitingForAConnectionIsCalledSo() async throws {
        let backend = try await ChatBackend { _ in .silence }
        var configuration = HTTPNetworkClient.configuration
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = 1
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
        let client = HTTPNetworkClient(http)
        let outgoing = request(backend.url + "/", .post)
        let task = Task { try await client.send(outgoing) }
        try await eventuallyAsync("one is there") { backend.received.count == 1 }
        await #expect(throws: NetworkFailure.noFreeConnection) { try await client.send(outgoing) }
        task.cancel()
        _ = await task.result
        try await http.shutdown()
        try await backend.stop()
    }

    @Test(arguments: [Int64.max, .min, 0], Library.allCases)
    func anyTimeout(_ timeout: Int64, _ library: Library) async throws {
        try await with(library) { _ in
            .silence
        } _: { backend, client in
            let outgoing = request(backend.url + "/", timeout: timeout)
            let task = Task { try await client.send(outgoing) }
            if timeout > 0 {
                try await eventuallyAsync("the request is there") { !backend.received.isEmpty }
                task.cancel()
            }
            await #expect(throws: timeout > 0 ? NetworkFailure.cancelled : .timedOut) { try await task.value }
        }
    }

    @Test(arguments: Library.allCases) func cancelling(_ library: Library) async throws {
        try await with(library) { _ in
            .silence
        } _: { backend, client in
            let outgoing = request(backend.url + "/")
            let task = Task { try await client.send(outgoing) }
            try await eventuallyAsync("the request is there") { !backend.received.isEmpty }
            task.cancel()
            await #expect(throws: NetworkFailure.cancelled) { try await task.value }
        }
    }

    /// An application may shut its HTTP client down before it closes the queue: that is no verdict on a request.
    @Test func aClientThatIsShutDownHasCancelledNothing() async throws {
        let backend = try await ChatBackend { _ in .silence }
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        let outgoing = request(backend.url + "/", .post)
        let task = Task { try await HTTPNetworkClient(http).send(outgoing) }
        try await eventuallyAsync("the request is there") { !backend.received.isEmpty }
        try await http.shutdown()
        await #expect(throws: NetworkFailure.networkConnectionLost) { try await task.value }
        try await backend.stop()
    }

    /// A session key that is refused is an answer like others, also with a challenge (RFC 9110 section 11.6.1).
    @Test(arguments: ["Basic realm=\"chat\"", "Digest realm=\"chat\", nonce=\"1\"", "Bearer", ""], Library.allCases)
    func aChallengeIsAnAnswer(_ challenge: String, _ library: Library) async throws {
        try await with(library) { _ in
            .status(401, headers: challenge.isEmpty ? [:] : ["WWW-Authenticate": challenge], body: "no")
        } _: { backend, client in
            let response = try await client.send(request(backend.url + "/", .post))
            #expect(response.status == 401 && response.body == Array("no".utf8))
            #expect(backend.received.count == 1)
        }
    }

    /// Neither a cookie nor an answer is kept for the next request.
    @Test(arguments: Library.allCases) func nothingIsRemembered(_ library: Library) async throws {
        try await with(library) { _ in
            .status(200, headers: ["Set-Cookie": "a=b; Path=/", "Cache-Control": "max-age=600"], body: "x")
        } _: { backend, client in
            for _ in 0..<2 { _ = try await client.send(request(backend.url + "/")) }
            #expect(backend.received.count == 2)
            #expect(backend.received.allSatisfy { $0.header("Cookie") == nil })
        }
    }

    @Test(arguments: Library.allCases) func aCertificateThatIsNotAccepted(_ library: Library) async throws {
        let scratch = try ScratchDirectory()
        try await with(library, certificate: Certificate(in: scratch)) { _ in
            .status(200)
        } _: { backend, client in
            await #expect(throws: NetworkFailure.certificateRefused) { try await client.send(request(backend.url)) }
            #expect(backend.received.isEmpty)
        }
    }

    /// None of the session's failures is a verdict on the request, apart from an address that is none.
    @Test func theSessionsCodes() {
        func failure(_ code: URLError.Code, _ text: String? = nil) -> NetworkFailure {
            URLSessionNetworkClient.failure(
                NSError(
                    domain: NSURLErrorDomain, code: code.rawValue,
                    userInfo: text.map { [NSLocalizedDescriptionKey: $0] } ?? [:]))
        }
        let kinds: [(URLError.Code, FailureKind)] = [
            (.notConnectedToInternet, .unreachable), (.dataNotAllowed, .unreachable),
            (.internationalRoamingOff, .unreachable), (.cannotFindHost, .unreachable), (.dnsLookupFailed, .unreachable),
            (.cannotConnectToHost, .unreachable), (.secureConnectionFailed, .unreachable),
            (.serverCertificateHasBadDate, .unreachable), (.serverCertificateUntrusted, .unreachable),
            (.timedOut, .timedOut), (.networkConnectionLost, .interrupted), (.cannotParseResponse, .interrupted),
            (.badServerResponse, .interrupted), (.cancelled, .interrupted), (.unknown, .interrupted),
            (.badURL, .permanent),
        ]
        for (code, kind) in kinds { #expect(failure(code).kind == kind, "\(code)") }
        #expect(URLSessionNetworkClient.failure(NSError(domain: "other", code: 1)) == .networkConnectionLost)
        for (text, meaning) in [
            ("SSL certificate problem: certificate has expired", NetworkFailure.certificateRefused),
            ("SSL: no alternative certificate subject name matches target host name", .certificateRefused),
            ("OpenSSL/3: error:0A00010B:SSL routines::wrong version number", .secureConnectionFailed),
            ("TLS connect error", .secureConnectionFailed), ("transfer closed", nil),
        ] { #expect(URLSessionNetworkClient.secureFailure(text) == meaning, "\(text)") }
    }
}
