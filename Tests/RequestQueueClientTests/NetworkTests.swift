import AsyncHTTPClient
import Foundation
import NIOCore
import NIOPosix
import PeerKit
import RequestQueue
import RequestQueueClient
import TestKit
import Testing

/// The real network, on loopback: what each of its failures is called, and what goes over the wire.
@Suite struct NetworkTests {
    private func with(
        _ answer: @escaping @Sendable (ChatBackend.Received) -> ChatBackend.Answer,
        _ body: (ChatBackend, HTTPNetworkClient) async throws -> Void
    ) async throws {
        let backend = try await ChatBackend(answer)
        let http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: HTTPNetworkClient.configuration)
        do {
            try await body(backend, HTTPNetworkClient(http, largestResponse: 1000))
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

    @Test func whatGoesOutAndWhatComesBack() async throws {
        try await with { _ in
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

    @Test(arguments: [
        ("/hangup", NetworkFailure.networkConnectionLost), ("/silence", .timedOut), ("/nonsense", .badServerResponse),
        ("/stall", .timedOut), ("/drip", .timedOut),
    ])
    func failures(_ path: String, _ expected: NetworkFailure) async throws {
        try await with { received in
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
    @Test(arguments: [999, 1000, 1001, 100_000]) func answersThatAreTooLarge(_ size: Int) async throws {
        try await with { _ in
            .status(201, body: String(repeating: "x", count: size))
        } _: { backend, client in
            let response = try await client.send(request(backend.url + "/", .post))
            #expect(response.status == 201 && response.body.count == min(size, 1000))
            #expect(response.isCut == (size > 1000))
        }
    }

    @Test func whereNobodyIs() async throws {
        try await with { _ in
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
    @Test func requestsThatHangKeepNoConnectionFromOthers() async throws {
        try await with { received in
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

    @Test(arguments: [Int64.max, .min, 0]) func anyTimeout(_ timeout: Int64) async throws {
        try await with { _ in
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

    @Test func cancelling() async throws {
        try await with { _ in
            .silence
        } _: { backend, client in
            let outgoing = request(backend.url + "/")
            let task = Task { try await client.send(outgoing) }
            try await eventuallyAsync("the request is there") { !backend.received.isEmpty }
            task.cancel()
            await #expect(throws: NetworkFailure.cancelled) { try await task.value }
        }
    }
}
