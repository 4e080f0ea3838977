import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// What pages in browsers do, with the header fields that browsers send, over sockets to the gateway and the generic chat.
///
/// `Tests/WebChat` is such a page; `BrowserTests` plays it in a browser.
@Suite(.blocking, .serialized) struct WebPageTests {
    private static let page = "https://app.example.org"
    private static let evil = "https://evil.example"
    private static let room = "/conversations/\(GenericLab.conversation)/messages"

    /// A gateway whose mapping, and a chat that, allow one page; logins are tokens or cookies.
    private func lab(_ policy: String = "hosted") throws -> GenericLab {
        let directory = try ScratchDirectory()
        let text = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
            .replacing(
                "[header Authorization, query token]", with: "[header Authorization, query token, cookie session]")
        let mapping = try directory.write(
            "pages.yaml", text + "\ncors:\n  origins: [\"\(Self.page)\"]\n  credentials: true\n")
        var options = ChatBackendProcess.Options()
        options.pages = Self.page
        return try GenericLab(policy: policy, options, mapping: mapping)
    }

    /// A page's request as a browser sends it, behind its preflight if it needs one.
    private struct Fetch {
        let port: UInt16
        var origin = WebPageTests.page
        var token: String?
        var cookie: String?

        /// - Returns: The answer, or nil where the browser hides it from the page (WHATWG Fetch, sections 4.9 and 4.10).
        func callAsFunction(_ method: String, _ target: String, _ body: JSONValue? = nil) throws -> WebAnswer? {
            let client = WebClient(port: port)
            var names = token == nil ? [] : ["authorization"]
            if body != nil { names.append("content-type") }
            if !names.isEmpty || !["GET", "POST"].contains(method) {
                let answer = try client.request(
                    "OPTIONS", target,
                    headers: [
                        ("Origin", origin), ("Access-Control-Request-Method", method),
                        ("Access-Control-Request-Headers", names.joined(separator: ",")),
                        ("Sec-Fetch-Mode", "cors"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Dest", "empty"),
                    ])
                guard (200..<300).contains(answer.status), isShown(answer), allows(answer, method, names) else {
                    return nil
                }
            }
            let answer = try send(method, target, body, on: client)
            return isShown(answer) ? answer : nil
        }

        /// The request without a preflight, and the answer whether the page may read it or not.
        func send(
            _ method: String, _ target: String, _ body: JSONValue? = nil, on client: WebClient? = nil
        ) throws -> WebAnswer {
            let type = body.map { _ in ("Content-Type", "application/json") }
            return try (client ?? WebClient(port: port)).request(
                method, target, headers: fields + [type].compactMap(\.self), body: body?.bytes)
        }

        var fields: [(String, String)] {
            [("Origin", origin), ("Sec-Fetch-Mode", "cors"), ("Sec-Fetch-Site", "cross-site")]
                + [token.map { ("Authorization", "Bearer \($0)") }, cookie.map { ("Cookie", "session=\($0)") }]
                .compactMap(\.self)
        }

        private func isShown(_ answer: WebAnswer) -> Bool {
            let allowed = answer.headers.filter { $0.name.lowercased() == "access-control-allow-origin" }
            return allowed.map(\.value) == [origin] && answer.header("access-control-allow-credentials") == "true"
        }

        private func allows(_ answer: WebAnswer, _ method: String, _ names: [String]) -> Bool {
            func list(_ name: String) -> [String] {
                (answer.header(name) ?? "").lowercased().split(separator: ",")
                    .map { $0.trimmingCharacters(in: .whitespaces) }
            }
            return
                (["GET", "POST"].contains(method) || list("access-control-allow-methods").contains(method.lowercased()))
                && names.allSatisfy(list("access-control-allow-headers").contains)
        }
    }

    @Test func aPageDoesWhatAPersonDoes() throws {
        let lab = try lab()
        defer { lab.stop() }
        var fetch = Fetch(port: lab.gateway.port)
        let login = try #require(try fetch("POST", "/login", ["user": "alice", "password": "correct-horse"]))
        fetch.token = login.json["token"].string
        #expect(fetch.token != nil)
        let sent = try #require(try fetch("POST", Self.room, ["id": "w-1", "text": "Sauerampfer"]))
        let id = try #require(sent.json["message_id"].string)
        // The stored answer to a repetition can be read too.
        #expect(try fetch("POST", Self.room, ["id": "w-1", "text": "Sauerampfer"])?.json["message_id"].string == id)
        #expect(try fetch("PATCH", "\(Self.room)/\(id)", ["text": "Wiesenkerbel"])?.status == 200)
        let history = try #require(try fetch("GET", Self.room))
        #expect(history.json["messages"].array.map { $0["text"] } == ["Wiesenkerbel"])
        #expect(try lab.bob.texts(GenericLab.conversation) == ["Wiesenkerbel"])
        #expect(try !lab.backend.knows("Wiesenkerbel") && !lab.backend.knows("Sauerampfer"))

        let file = try #require(try fetch("POST", "/files", ["x": "y"]))
        let name = try #require(file.json["file_id"].string, "\(file.status) \(file.text)")
        #expect(try fetch("GET", "/files/\(name)")?.json["x"] == "y")
        var long: JSONValue = ["id": "w-2"]
        long["text"] = .string(String(repeating: "x", count: 300_000))
        #expect(try fetch("POST", Self.room, long)?.status == 413)
        #expect(try fetch("POST", "/_pawl/v1/challenge")?.status == 200)
        let device = try #require(try fetch("PUT", "/_pawl/v1/device", ["message": "AAAA"]))
        #expect((400..<500).contains(device.status))
        fetch.token = "wrong"
        #expect(try fetch("POST", Self.room, ["id": "w-3", "text": "x"])?.status == 401)
        #expect(try fetch("GET", "/_pawl/v1/me")?.status == 401)

        // Another page reads nothing of it.
        var other = Fetch(port: lab.gateway.port, origin: Self.evil)
        for token in [lab.alice.token, nil] {
            other.token = token
            for target in [Self.room, "/files", "/_pawl/v1/challenge"] {
                #expect(try other("POST", target, ["id": "w-4", "text": "x"]) == nil, "\(target)")
            }
        }
    }

    /// A browser hides the answer to a request whose preflight failed.
    @Test func aPageReadsThatTheServerIsAway() throws {
        let lab = try lab()
        defer { lab.stop() }
        let fetch = Fetch(port: lab.gateway.port, token: lab.alice.token)
        #expect(try fetch("GET", Self.room)?.status == 200)
        try lab.backend.set(.away)
        let gone = try #require(try fetch("GET", Self.room))
        #expect(gone.status == 502 && gone.json["message"].string?.isEmpty == false)
        #expect(try fetch("DELETE", "/conversations/c2/messages/1") != nil)
        var other = fetch
        other.origin = Self.evil
        #expect(try other("GET", Self.room) == nil)
        try lab.backend.behave()
        try eventually("the chat is back") { try fetch("GET", Self.room)?.status == 200 }
    }

    /// Browsers add cookies to the requests of every page, those without a preflight among them.
    @Test func aForeignPageCannotUseAPersonsCookie() throws {
        let lab = try lab()
        defer { lab.stop() }
        let evil = Fetch(port: lab.gateway.port, origin: Self.evil, cookie: lab.alice.token)
        let own = Fetch(port: lab.gateway.port, cookie: lab.alice.token)
        for (method, call) in [("POST", "challenge"), ("GET", "me"), ("POST", "registrations"), ("PUT", "device")] {
            let refused = try evil.send(method, "/_pawl/v1/\(call)")
            #expect(refused.status == 403 && refused.json["error"] == "pawl_foreign_page", "\(call) \(refused.text)")
            #expect(refused.header("access-control-allow-origin") == nil)
        }
        #expect(try own("GET", "/_pawl/v1/me")?.json["account"] == "alice")

        // The backend decides whose pages may open a socket; this one takes all.
        func status(_ headers: [(String, String)]) throws -> Int? {
            let socket = try WebClient(port: lab.gateway.port).webSocket("/socket", headers: headers)
            try socket.send(["pawl": ["id": 7, "method": "POST", "path": "/_pawl/v1/challenge"]])
            return try socket.expect("answer to a call") { $0["pawl"]["id"] == 7 }["pawl"]["status"].integer
        }
        #expect(try status(evil.fields) == 403)
        #expect(try status(own.fields) == 200)
        #expect(try status([("Cookie", "session=\(lab.alice.token)")]) == 200, "a client that is no browser")
        #expect(try status([("Origin", Self.evil), ("Authorization", "Bearer \(lab.alice.token)")]) == 200)
    }
}
