import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Clients that connect to a gateway in front of ngIRCd by WebSocket.
@Suite(.blocking) struct IRCWebSocketTests {
    private static let origin = "https://chat.example.org"

    private static func start(policy: String, arguments: [String] = []) throws -> (FreePort, Lab) {
        let web = try FreePort()
        let lab = try Lab(
            NgIRCd(), policy: policy, environment: ["PAWL_WEBSOCKET_ORIGINS": origin],
            arguments: ["--listen", "ws://127.0.0.1:\(web.number)"] + arguments)
        return (web, lab)
    }

    private func socket(
        _ port: FreePort, _ subprotocol: String? = "text.ircv3.net", headers: [(String, String)] = []
    ) throws -> WebSocketClient {
        let offered = subprotocol.map { [("Sec-WebSocket-Protocol", $0)] } ?? []
        let socket = try WebClient(port: port.number).webSocket("/", headers: offered + headers)
        socket.carriesLines = true
        return socket
    }

    private func register(_ socket: WebSocketClient, _ nick: String, _ opcode: WebSocketClient.Opcode = .text) throws {
        try socket.say("NICK \(nick)", opcode)
        try socket.say("USER \(nick) 0 * :\(nick)", opcode)
        try socket.expectLine(" 001 \(nick) ".utf8)
    }

    /// A page and an old client talk: for the server their words are sealed, and both read them.
    @Test func aPageTalksToAnOldClient() throws {
        let (web, lab) = try Self.start(policy: "hosted")
        defer { lab.stop() }
        let alice = try socket(web, headers: [("Origin", Self.origin)])
        try register(alice, "alice")
        let bob = try lab.person("bob")
        try alice.say("PRIVMSG bob :canary from the page")
        try bob.expectMessage("canary from the page")
        bob.send("PRIVMSG alice :canary from afar, \u{1F44B}")
        let line = try alice.expectLine("canary from afar, \u{1F44B}".utf8)
        #expect(line.isText && line.bytes.last != 0x0A)
        #expect(!lab.tap.shows("canary"))
        // What is said in pieces, and pings in between.
        try alice.send(.text, Array("PRIVMSG bob :canary ".utf8), isFinal: false)
        try alice.send(.ping, Array("beat".utf8))
        try alice.send(.continuation, Array("in pieces".utf8))
        try bob.expectMessage("canary in pieces")
        #expect(try alice.expectPong() == Array("beat".utf8))
        // The end of the page is the end of the client.
        let carol = try lab.outsider("carol")
        carol.send("WHOIS alice")
        try carol.expect("the page is there", where: { $0.command == "311" })
        try alice.close()
        #expect(try alice.expectEnd() == 1000)
        try eventually("the page is gone") {
            carol.send("WHOIS alice")
            return try carol.expect("an answer", where: { ["311", "401"].contains($0.command) }).command == "401"
        }
    }

    /// Bytes that are no text, and lines of the largest size, pass as they do without a WebSocket.
    @Test func everyByteAndEveryLengthPass() throws {
        let (web, lab) = try Self.start(policy: "observe")
        defer { lab.stop() }
        let binary = try socket(web, "binary.ircv3.net")
        try register(binary, "alice", .binary)
        let text = try socket(web, nil)
        try register(text, "bob")
        let odd = Array("PRIVMSG bob :caf".utf8) + [0xE9]
        try binary.send(.binary, odd)
        #expect(try text.expectLine("caf\u{FFFD}".utf8).isText)
        try text.say("PRIVMSG alice :back")
        #expect(try !binary.expectLine(":back".utf8).isText)
        try binary.send(.binary, Array("PRIVMSG alice :caf".utf8) + [0xE9])
        try binary.expectLine(Array("caf".utf8) + [0xE9])
        let longest = "PRIVMSG bob :" + String(repeating: "a", count: 400) + "end"
        try binary.say(longest, .binary)
        try text.expectLine("aend".utf8)
    }

    @Test func onlyListedPagesConnect() throws {
        let (web, lab) = try Self.start(policy: "hosted")
        defer { lab.stop() }
        for origin in ["https://evil.example", "null", "\(Self.origin).evil.example", "http://chat.example.org"] {
            let client = WebClient(port: web.number)
            let answer = try client.request("GET", "/", headers: WebSocketClient.handshake + [("Origin", origin)])
            #expect(answer.status == 403 && answer.text.contains("websocket.origins"), "\(origin)")
        }
        try register(try socket(web, headers: [("Origin", Self.origin.uppercased())]), "page")
        // A program that is no browser names no origin.
        try register(try socket(web), "program")
    }

    @Test func whatIsNoHandshakeIsRefusedInWords() throws {
        let (web, lab) = try Self.start(policy: "hosted")
        defer { lab.stop() }
        let plain = try WebClient(port: web.number).request("GET", "/")
        #expect(plain.status == 426 && plain.text.contains("WebSocket"))
        #expect(plain.header("upgrade") == "websocket")
        let posted = try WebClient(port: web.number).request("POST", "/", headers: [("Content-Length", "0")])
        #expect(posted.status == 426)
        let old = WebSocketClient.handshake.map { $0.0 == "Sec-WebSocket-Version" ? ($0.0, "8") : $0 }
        #expect(try WebClient(port: web.number).request("GET", "/", headers: old).status != 101)
        // A client of IRC at the wrong port hears something, or the end.
        let lost = try ByteStream(port: web.number)
        try lost.send("NICK lost\r\nUSER lost 0 * :lost\r\n\r\n".utf8)
        _ = try lost.takeAll()
        #expect(lost.hasEnded)
        try register(try socket(web), "alive")
    }

    /// One message is one line, and a long one ends the connection. The others notice nothing.
    @Test func messagesThatAreNoLinesEndTheConnection() throws {
        let (web, lab) = try Self.start(policy: "hosted")
        defer { lab.stop() }
        let bystander = try socket(web)
        try register(bystander, "bystander")
        func end(_ opcode: WebSocketClient.Opcode, _ payload: [UInt8], masked: Bool = true) throws -> Int {
            let socket = try socket(web)
            try register(socket, "mallory\(Int.random(in: 0..<10_000))")
            try socket.send(opcode, payload, masked: masked)
            return try socket.expectEnd()
        }
        #expect(try end(.text, Array("PRIVMSG bystander :one\r\nQUIT :two".utf8)) == 1007)
        #expect(try end(.text, Array("PRIVMSG bystander :".utf8) + [0xFF]) == 1007)
        #expect([1009, 1002].contains(try end(.text, [UInt8](repeating: 0x61, count: 20_000))))
        #expect([1002, 1006].contains(try end(.continuation, Array("x".utf8))))
        try bystander.say("PRIVMSG bystander :still here")
        try bystander.expectLine("still here".utf8)
    }

    /// The handshake may come byte by byte, and behind the header of a proxy.
    @Test func theHandshakeComesAsItComes() throws {
        let (web, lab) = try Self.start(policy: "observe")
        defer { lab.stop() }
        let fields = WebSocketClient.handshake.map { "\($0.0): \($0.1)\r\n" }.joined()
        let stream = try ByteStream(port: web.number)
        for byte in Array("GET / HTTP/1.1\r\nHost: x\r\n\(fields)\r\n".utf8) { try stream.send([byte]) }
        try stream.read("101") { String(decoding: $0, as: UTF8.self).contains("\r\n\r\n") }
        #expect(String(decoding: stream.take(12), as: UTF8.self) == "HTTP/1.1 101")
    }

    @Test func aProxyNamesTheClient() throws {
        let (web, lab) = try Self.start(policy: "observe")
        defer { lab.stop() }
        lab.gateway.stop()
        let proxied = try PawlProcess(
            upstream: lab.tap.port,
            Lab.options(
                "observe", environment: ["PAWL_ACCEPT_PROXY_PROTOCOL": "true"],
                arguments: ["--listen", "ws://127.0.0.1:\(web.number)"]))
        defer { proxied.stop() }
        let stream = try ByteStream(port: web.number)
        let fields = WebSocketClient.handshake.map { "\($0.0): \($0.1)\r\n" }.joined()
        try stream.send("PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\r\nGET / HTTP/1.1\r\nHost: x\r\n\(fields)\r\n".utf8)
        try stream.read("101") { String(decoding: $0, as: UTF8.self).contains("\r\n\r\n") }
        #expect(String(decoding: stream.take(12), as: UTF8.self) == "HTTP/1.1 101")
    }
}
