import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Short hostile runs over HTTP and WebSockets against the program with its shipped defaults, over real sockets.
@Suite(.blocking, .serialized) struct HostileHTTPTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
    private static let canary = "Kanarienvogel"
    private static let path = "/conversations/\(GenericLab.conversation)/messages"

    // MARK: Requests

    /// One request of a hostile client, as bytes.
    struct Hostile {
        let name: String
        let bytes: [UInt8]
    }

    private static let body = #"{"id":"h1","text":"Kanarienvogel"}"#

    /// A request whose head has these lines besides those that a write needs.
    private static func write(
        _ name: String, _ lines: String, _ body: String = body, token: String, line: String = "POST \(path) HTTP/1.1"
    ) -> Hostile {
        let head =
            "\(line)\r\nHost: chat\r\nAuthorization: Bearer \(token)\r\nContent-Type: application/json\r\n\(lines)\r\n"
        return Hostile(name: name, bytes: Array((head + body).utf8))
    }

    /// What frames a body in two ways, or in none.
    private static func framings(_ token: String) -> [Hostile] {
        let count = body.utf8.count
        let smuggled = "POST /smuggled HTTP/1.1\r\nHost: chat\r\nContent-Length: 0\r\n\r\n"
        let chunks = "\(String(count, radix: 16))\r\n\(body)\r\n0\r\n\r\n"
        let lengths = [
            "\(count)\r\nContent-Length: \(count + 1)", "\(count)\r\nContent-Length: \(count)", "\(count), \(count)",
            "\(count), 0", "+\(count)", "-\(count)", "0x\(String(count, radix: 16))", "\(count) \(count)", "\(count);",
            "\(count).0", "", "99999999999999999999", "9223372036854775808", "18446744073709551615", "a",
            "\(count)\u{0B}",
            "\"\(count)\"", "\(count)\r\n 0", "1e2", "\u{0661}",
        ]
        let codings = [
            "chunked\r\nContent-Length: \(count)", "chunked\r\nContent-Length: 0", "chunked, identity",
            "identity, chunked",
            "identity", "gzip, chunked", "xchunked", "chunkedx", "chunked\u{0B}", "\u{0B}chunked", "chunked, chunked",
            "chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: identity", ",chunked,",
            "chunked;q=1",
            "\"chunked\"", "chunked\r\n identity", "", "CHUNKED\r\nContent-Length: 1", "deflate",
        ]
        let sizes = [
            "0x22", "-1", "+22", "ffffffffffffffff", "7fffffffffffffff0", " 22", "22 ;", "g", "", "22\n", "\u{0662}",
            "1_0",
            "22;a=\"\r\n\"", "22\u{0}",
        ]
        var all = lengths.map {
            write("Content-Length: \($0)", "Content-Length: \($0)\r\n", body + smuggled, token: token)
        }
        all += codings.map {
            write("Transfer-Encoding: \($0)", "Transfer-Encoding: \($0)\r\n", chunks + smuggled, token: token)
        }
        all += sizes.map {
            let text = "\($0)\r\n\(body)\r\n0\r\n\r\n" + smuggled
            return write("chunk size \($0)", "Transfer-Encoding: chunked\r\n", text, token: token)
        }
        let others: [(name: String, lines: String, body: String)] = [
            ("name and colon", "Transfer-Encoding : chunked\r\n", chunks),
            ("vertical tab in the name", "Transfer-Encoding\u{0B}: chunked\r\n", chunks),
            ("folded", "Transfer-Encoding:\r\n chunked\r\n", chunks),
            ("chunk without its end", "Transfer-Encoding: chunked\r\n", "22\r\n\(body)0\r\n\r\n"),
            ("chunk with line feeds", "Transfer-Encoding: chunked\r\n", "22\n\(body)\n0\n\n"),
            ("bytes behind the length", "Content-Length: 2\r\n", "{}" + smuggled),
            ("cut off", "Content-Length: 1000\r\n", body),
            ("half a chunk", "Transfer-Encoding: chunked\r\n", "22\r\n{"),
            (
                "trailers that frame", "Transfer-Encoding: chunked\r\n",
                "0\r\nContent-Length: 5\r\nHost: evil\r\n\r\n" + smuggled
            ),
        ]
        return all + others.map { write($0.name, $0.lines, $0.body, token: token) }
    }

    /// Heads that are none, or that several servers would read in several ways.
    private static func heads(_ token: String) -> [Hostile] {
        let count = body.utf8.count
        let length = "Content-Length: \(count)\r\n"
        let lines = [
            "POST \(path) HTTP/1.2", "POST \(path) HTTP/2.0", "POST \(path) HTTP/0.9", "POST \(path) http/1.1",
            "POST \(path) HTTP/1.1 ", "POST \(path)", "POST  \(path) HTTP/1.1", "POST\t\(path)\tHTTP/1.1",
            " POST \(path) HTTP/1.1", "P\u{0}ST \(path) HTTP/1.1", "POST \(path)\u{0} HTTP/1.1",
            "POST \(path)\u{7F} HTTP/1.1",
            "POST \(path)é HTTP/1.1", "POST \(path)#a HTTP/1.1", "POST http://evil\(path) HTTP/1.1",
            "POST //evil\(path) HTTP/1.1", "POST chat:80 HTTP/1.1", "POST * HTTP/1.1", "CONNECT chat:443 HTTP/1.1",
            "POST \(path)?\(String(repeating: "a", count: 20_000)) HTTP/1.1", "PRI * HTTP/2.0", "{} \(path) HTTP/1.1",
            "POST \(path) HTTP/1.1\r", "post \(path) HTTP/1.1", "TRACE \(path) HTTP/1.1",
        ]
        let fields = [
            "Host: evil\r\n", "Host: chat\r\n", "A b: c\r\n", ": c\r\n", "no colon\r\n", "A\u{0}: b\r\n",
            "A: b\u{0}c\r\n",
            "A: b\rc\r\n", "A: b\nContent-Length: 0\r\n", " A: b\r\n", "Ä: b\r\n", "A: b\u{1}\r\n",
            "Expect: 200-maybe\r\n", "A: \(String(repeating: "b", count: 70_000))\r\n",
            String(repeating: "A: b\r\n", count: 140), "Content-Encoding: gzip\r\n",
            "X-HTTP-Method-Override: DELETE\r\n", "X_HTTP_Method_Override: GET\r\n", "X-Original-URL: /smuggled\r\n",
            "X-Rewrite-URL: /smuggled\r\n",
        ]
        let all = lines.map { write(String($0.prefix(60)), length, token: token, line: $0) }
        return all + fields.map { write("field " + $0.prefix(60), $0 + length, token: token) }
    }

    /// Paths that are written otherwise, and bodies that are no message.
    private static func odd(_ token: String) -> [Hostile] {
        let paths = [
            "//conversations/c1/messages", "/./conversations/c1/messages", "/x/../conversations/c1/messages",
            "/conversations%2Fc1/messages", "/conversations/c1/messages/", "/conversations/c1/messages;a=b",
            "/conversations/c1\\messages", "/conversations/c1/messages%00", "/conversations/c1/%256Dessages",
            "/CONVERSATIONS/c1/messages", "/conversations/%2e%2e/conversations/c1/messages",
            "/conversations/c1/messages.json",
            "/conversations/c1/messages%ff", "/conversations/c1/messages%", "/_pawl/../conversations/c1/messages",
        ]
        let bodies = [
            "text=\(canary)", "{\"text\":\"a\",\"text\":\"\(canary)\"}",
            "{\"text\":\"a\",\"t\\u0065xt\":\"\(canary)\"}",
            "\u{FEFF}\(body)", "[\(body)]", "{\"text\":[\"\(canary)\"]}", "{\"text\":NaN,\"html\":\"\(canary)\"}",
            "/* */\(body)", body + body, "{\"text\":\"\\ud800 \(canary)\"}", "{\"text\":1e400,\"html\":\"\(canary)\"}",
            "{\"html\":\"\(canary)\"}", "{\"text\":\"\(canary)", "\u{0}\(body)", "{\"text\":\"\(canary)\u{1}\"}",
            String(repeating: "[", count: 3000) + "\"\(canary)\"" + String(repeating: "]", count: 3000),
            "{\"text\":\"\(canary)\(String(repeating: "x", count: 300_000))\"}", "", "null", "\"\(canary)\"",
        ]
        func length(_ text: String) -> String { "Content-Length: \(text.utf8.count)\r\n" }
        var all = paths.map { write("path \($0)", length(body), token: token, line: "POST \($0) HTTP/1.1") }
        all += bodies.map { write("body " + $0.prefix(40), length($0), $0, token: token) }
        return all + [
            Hostile(name: "no Host", bytes: Array("GET /me HTTP/1.1\r\n\r\n".utf8)),
            Hostile(name: "a handshake of TLS", bytes: [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3]),
            Hostile(name: "the preface of HTTP/2", bytes: Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)),
            Hostile(name: "a PROXY header", bytes: Array("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n".utf8)),
            Hostile(name: "zero bytes", bytes: [UInt8](repeating: 0, count: 5000)),
            Hostile(name: "text without an end", bytes: [UInt8](repeating: 0x41, count: 100_000)),
            write("two logins", length(body) + "Authorization: Bearer other\r\n", token: token),
            write(
                "UTF-16", "Content-Length: \(body.utf16.count * 2)\r\n", body.map { "\($0)\u{0}" }.joined(),
                token: token),
        ]
    }

    /// These are odd and can be read in one way only: they are sealed like others.
    private static let legal = [
        "chunk size 22 ;", "POST \(path) HTTP/1.2", "field Content-Encoding: gzip\r\n",
    ]

    /// Each of them is refused or breaks its own connection, and nothing of it reaches the backend.
    @Test func hostileRequests() throws {
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        let pid = try #require(lab.gateway.pid)
        let all = Self.framings(lab.alice.token) + Self.heads(lab.alice.token) + Self.odd(lab.alice.token)
        #expect(all.count >= 100)
        for hostile in all {
            let stream = try ByteStream(port: lab.gateway.port)
            try stream.send(hostile.bytes)
            stream.endSending()
            let answer = String(decoding: try stream.takeAll(), as: UTF8.self)
            // What is left open by a cut request is closed without a word.
            guard !answer.isEmpty else { continue }
            let status = answer.dropFirst("HTTP/1.1 ".count).prefix(3)
            let isRefused =
                ["4", "5"].contains(status.prefix(1)) || Self.legal.contains(hostile.name) && status == "201"
            #expect(answer.hasPrefix("HTTP/1.1 ") && isRefused, "\(hostile.name): \(answer.prefix(200))")
            #expect(lab.gateway.pid == pid && lab.gateway.isRunning, "\(hostile.name)")
        }
        #expect(try !lab.backend.knows(Self.canary))
        #expect(try !lab.backend.received().contains { $0["target"].string?.contains("smuggled") == true })
        try lab.alice.post("after the hostile requests", in: GenericLab.conversation)
        #expect(try lab.bob.texts(GenericLab.conversation).last == "after the hostile requests")
    }

    // MARK: WebSockets

    /// Broken frames, fragments and close codes; afterwards the same process serves a protected message.
    @Test func brokenFrames() throws {
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the broken frames: \(generator.seed)")
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        let pid = try #require(lab.gateway.pid)
        let handshake =
            "GET /socket HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer \(lab.alice.token)\r\nConnection: Upgrade\r\n"
            + "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        for number in 0..<(Self.isLong ? 20_000 : 120) {
            let stream = try ByteStream(port: lab.gateway.port)
            try stream.send(Array(handshake.utf8))
            // Some do not wait for the answer to their handshake.
            if number % 5 != 0 {
                try stream.read("the handshake") { $0.firstRange(of: Array("\r\n\r\n".utf8)) != nil }
                #expect(String(decoding: stream.pending.prefix(12), as: UTF8.self) == "HTTP/1.1 101")
            }
            for _ in 0..<Int.random(in: 1...8, using: &generator) where !stream.hasEnded {
                try stream.send(Self.frame(&generator))
            }
            guard number % 10 == 0 else { continue }
            stream.endSending()
            _ = try stream.takeAll()
        }
        #expect(lab.gateway.pid == pid && lab.gateway.isRunning)
        #expect(try !lab.backend.knows(Self.canary))
        for person in [lab.alice, lab.bob] { _ = try person.socket() }
        try lab.alice.postOverSocket("after the broken frames", in: GenericLab.conversation, id: "last")
        #expect(try lab.bob.expect("message", "after the broken frames")["sender"] == "alice")
    }

    private static let payloads = [
        #"{"type":"send","conversation":"c1","id":"1","text":"Kanarienvogel","text":"Kanarienvogel"}"#,
        #"{"type":"send","conversation":"c1","id":"1","text":["Kanarienvogel"]}"#,
        #"{"type":"send","text":"Kanarienvogel"}"#,
        #"{"type":"Kanarienvogel"}"#, "[]", "", "Kanarienvogel",
        #"{"type":"edit","message_id":1e400,"text":"Kanarienvogel"}"#,
        #"{"pawl":"me","id":"#, #"{"type":"ping"}"#, "\u{0}\u{1}", "\u{3}\u{E8}bye", "\u{3}\u{ED}", "\u{0}",
    ]

    /// A frame whose header is right, or wrong in some way; its payload is none that the backend may get.
    private static func frame(_ generator: inout SeededGenerator) -> [UInt8] {
        var payload = Array((payloads.randomElement(using: &generator) ?? "").utf8)
        if Int.random(in: 0..<8, using: &generator) == 0 {
            payload = (0..<Int.random(in: 0...200, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
        }
        let opcodes: [UInt8] = [0, 1, 1, 1, 2, 3, 7, 8, 8, 9, 10, 11, 15]
        var first = opcodes.randomElement(using: &generator) ?? 1
        if Int.random(in: 0..<4, using: &generator) != 0 { first |= 0x80 }
        if Int.random(in: 0..<10, using: &generator) == 0 {
            first |= 0x10 << UInt8.random(in: 0...2, using: &generator)
        }
        let isMasked = Int.random(in: 0..<8, using: &generator) != 0
        let bit: UInt8 = isMasked ? 0x80 : 0
        var frame = [first]
        let claimed: UInt64 =
            switch Int.random(in: 0..<14, using: &generator) {
            case 0: UInt64.random(in: 0...UInt64.max, using: &generator)
            case 1: 1 << 63
            case 2: UInt64(payload.count) + 1
            case 3: 17 << 20
            default: UInt64(payload.count)
            }
        // A length need not be written in its shortest form to be understood, but has to be.
        switch Int.random(in: 0..<6, using: &generator) {
        case 0: frame += [bit | 127] + (0..<8).map { UInt8(truncatingIfNeeded: claimed >> (56 - 8 * UInt64($0))) }
        case 1: frame += [bit | 126, UInt8(truncatingIfNeeded: claimed >> 8), UInt8(truncatingIfNeeded: claimed)]
        default: frame.append(bit | UInt8(truncatingIfNeeded: min(claimed, 125)))
        }
        if isMasked {
            let mask = (0..<4).map { _ in UInt8.random(in: 0...255, using: &generator) }
            frame += mask + payload.enumerated().map { $1 ^ mask[$0 & 3] }
        } else {
            frame += payload
        }
        if Int.random(in: 0..<10, using: &generator) == 0 {
            frame.removeLast(Int.random(in: 0...frame.count, using: &generator))
        }
        return frame
    }
}
