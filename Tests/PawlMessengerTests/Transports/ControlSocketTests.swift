import Foundation
import HTTPCodec
import NIOCore
import PawlMessenger
import PeerKit
import RequestQueue
import RequestQueueClient
import TestKit
import Testing
import TransportsClient

/// Sends HTTP requests over a transport, as WIRE.md describes it.
private struct TransportNetworkClient: NetworkClient {
    let connection: any TransportsClient.Connection

    init(_ path: String) { connection = UnixTransport(path: path).connect(proto: "pawl.control/1") }

    func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
        guard let url = URLComponents(string: request.url) else { throw .networkConnectionLost }
        let target = url.percentEncodedPath + (url.percentEncodedQuery.map { "?" + $0 } ?? "")
        var fields = request.headers.map { "\($0.name): \($0.value)\r\n" }.joined()
        if !request.body.isEmpty { fields += "Content-Length: \(request.body.count)\r\n" }
        let head = "\(request.method.name) \(target) HTTP/1.1\r\nHost: gateway\r\n\(fields)\r\n"
        return try await exchange(Array(head.utf8) + request.body)
    }

    /// Sends these bytes as a request.
    func exchange(_ bytes: [UInt8]) async throws(NetworkFailure) -> NetworkResponse {
        guard case .success(let reply) = await connection.exchange(request: Data(bytes)) else {
            throw .networkConnectionLost
        }
        var buffer = ByteBuffer(bytes: reply)
        var reader = HeadReader()
        guard let response = try? reader.response(&buffer, isToHead: false) else { throw .networkConnectionLost }
        return NetworkResponse(status: response.head.status, body: Array(buffer.readableBytesView))
    }

    func status(_ text: String) async throws -> Int { try await exchange(Array(text.utf8)).status }
}

/// The control plane of a real gateway over a Unix socket.
@Suite(.serialized) struct ControlSocketTests {
    private static let key = "PAWL_CONTROL_PLANE_SOCKET"

    @Test func messengersTalkOverIt() async throws {
        let scratch = try ScratchDirectory()
        defer { withExtendedLifetime(scratch) {} }
        let path = scratch.file("control.sock")
        let lab = try await GatewayLab.start(settings: [Self.key: path])
        defer { lab.stop() }
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
        #expect(mode == 0o660)
        let network = TransportNetworkClient(path)

        let url = try #require(URL(string: "http://gateway"))
        var apps: [App] = []
        for name: Username in ["alice", "bob"] {
            let (login, handler) = (try await lab.login(name), RecordingHandler())
            let database = MessengerDatabase.inMemory()
            let messenger = try await CypherMessenger.registerMessenger(
                username: name, authenticationMethod: .identity, appPassword: "open sesame",
                usingTransport: { GatewayTransportClient(url: url, for: $0, network: network) { _ in login } },
                database: database, eventHandler: handler)
            apps.append(App(messenger: messenger, handler: handler, database: database))
        }
        // Bob waits for messages with a call that the gateway answers when one comes.
        try await apps[0].chat("bob").sendText("over the socket")
        try await eventuallyAsync("bob has it") { try await apps[1].texts(with: "alice") == ["over the socket"] }
        try await apps[1].chat("alice").sendText("and back")
        try await eventuallyAsync("alice has it") {
            try await apps[0].texts(with: "bob") == ["over the socket", "and back"]
        }
        for app in apps { app.close() }

        // The socket is no login, and nothing but calls is served.
        let host = "HTTP/1.1\r\nHost: gateway\r\n"
        #expect(try await network.status("GET /_pawl/v1/me \(host)\r\n") == 401)
        #expect(try await network.status("GET /_pawl/v1/me \(host)Authorization: Bearer x\r\n\r\n") == 401)
        let login = try await lab.login("alice")
        let credential = "\(login.header): \(login.value)\r\n"
        #expect(try await network.status("GET /_pawl/v1/me \(host)\(credential)\r\n") == 200)
        #expect(try await network.status("GET /_pawl/v1/no \(host)\(credential)\r\n") == 404)
        for target in ["/", "/api/v1/channels", "/_pawl/../api/v1/channels", "*"] {
            let answer = try await network.exchange(Array("GET \(target) \(host)\(credential)\r\n".utf8))
            #expect([400, 404].contains(answer.status), "\(target)")
        }
        let chat = try await network.exchange(Array("GET /api/v1/channels \(host)\(credential)\r\n".utf8))
        #expect(chat.status == 404 && String(decoding: chat.body, as: UTF8.self).contains("PAWL_NO_CALL"))
        // A WebSocket is for HTTP, and a body has the length that its head states.
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        #expect(try await network.status("GET /_pawl/v1/socket \(host)\(upgrade)\(credential)\r\n") != 101)
        for wrong in [
            "", "GET", "GET /_pawl/v1/me \(host)", "GET /_pawl/v1/me \(host)\r\nrest",
            "PUT /_pawl/v1/keys \(host)Content-Length: 3\r\n\r\n{}",
            "PUT /_pawl/v1/keys \(host)Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            #expect(try await network.status(wrong) == 400, "\(wrong)")
        }
        let long = String(repeating: "x", count: 600 << 10)
        let keys = "PUT /_pawl/v1/keys \(host)\(credential)Content-Length: \(long.utf8.count)\r\n\r\n\(long)"
        #expect(try await network.status(keys) == 413)
        // Another protocol is not there.
        let other = UnixTransport(path: path).connect(proto: "pawl.admin/1")
        guard case .failure = await other.exchange(request: Data()) else {
            Issue.record("the socket has served another protocol")
            return
        }
    }

    /// Under `off` the gateway takes no part: over HTTP the calls would reach the backend.
    @Test func underOffNothingIsServed() async throws {
        let scratch = try ScratchDirectory()
        defer { withExtendedLifetime(scratch) {} }
        let path = scratch.file("control.sock")
        let lab = try await GatewayLab.start(policy: "off", settings: [Self.key: path])
        defer { lab.stop() }
        let answer = try await TransportNetworkClient(path).exchange(
            Array("GET /_pawl/v1/me HTTP/1.1\r\nHost: gateway\r\n\r\n".utf8))
        #expect(answer.status == 404 && String(decoding: answer.body, as: UTF8.self).contains("PAWL_NO_CALL"))
    }
}
