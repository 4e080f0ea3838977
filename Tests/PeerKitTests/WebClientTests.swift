import Glibc
import PeerKit
import TestThreads
import Testing

/// The clients and the proxy that stand on either side of an HTTP gateway.
@Suite(.blocking) struct WebClientTests {
    private static func nginx() throws -> (ChatBackendProcess, Nginx) {
        let backend = try ChatBackendProcess()
        return (backend, try Nginx(backend: backend.port))
    }

    @Test func answersAreExact() throws {
        let backend = try ChatBackendProcess()
        let client = WebClient(port: backend.port)
        try client.send(
            "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        let first = try client.answer()
        #expect(
            first.raw.starts(with: Array("HTTP/1.1 200 OK\r\n".utf8))
                && first.raw.suffix(11) == Array(#"{"ok":true}"#.utf8))
        #expect(try client.answer().status == 401)
        // A head that is cut off, and none at all.
        try client.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        #expect(try client.rest().suffix(11) == Array(#"{"ok":true}"#.utf8))
        #expect(throws: PeerError.self) { try client.answer() }
        let nobody = try FreePort()
        #expect(throws: PeerError.self) { _ = try WebClient(port: nobody.number).request("GET", "/") }
        withExtendedLifetime(nobody) {}
    }

    /// A real proxy between a client and the backend, with a connection that becomes a WebSocket.
    @Test func throughNginx() throws {
        let (backend, nginx) = try Self.nginx()
        let alice = try ChatPerson("alice", port: nginx.port)
        let bob = try ChatPerson("bob", port: nginx.port)
        try alice.open("c", with: ["bob"])
        _ = try bob.socket()
        try alice.post("over REST", in: "c")
        try bob.expect("message", "over REST")
        try alice.postOverSocket("over a socket", in: "c")
        try bob.expect("message", "over a socket")
        #expect(try alice.texts("c") == ["over REST", "over a socket"])
        try backend.set(.away)
        #expect(try alice.client.request("GET", "/me").status == 502)
    }

    /// Answers are lost where a test says so, and nowhere else.
    @Test func lostAnswers() throws {
        let backend = try ChatBackendProcess()
        let tap = try WireTap(backend: backend.port)
        defer { tap.stop() }
        let alice = try ChatPerson("alice", port: tap.port)
        try alice.open("c", with: [])
        tap.loseAnswers(2, to: "POST /conversations/c/messages")
        for id in ["1", "2"] {
            #expect(throws: PeerError.self) { try alice.post("lost \(id)", in: "c", id: id) }
            #expect(try alice.ask("GET", "/me")["id"] == "alice")
        }
        #expect(tap.answersToLose == 0)
        try alice.post("kept", in: "c")
        #expect(try backend.messages().map { $0["text"] } == ["lost 1", "lost 2", "kept"])
    }
}
