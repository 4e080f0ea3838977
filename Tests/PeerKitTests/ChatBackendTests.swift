import PeerKit
import TestKit
import TestThreads
import Testing

/// The chat that stands in for other people's backends: its API, and the faults that tests ask it for.
@Suite(.blocking) struct ChatBackendTests {
    /// A chat with alice and bob in the conversation `c`.
    private struct Lab {
        let backend: ChatBackendProcess
        let alice: ChatPerson
        let bob: ChatPerson

        init(_ options: ChatBackendProcess.Options = .init()) throws {
            backend = try ChatBackendProcess(options)
            alice = try ChatPerson("alice", port: backend.port)
            bob = try ChatPerson("bob", port: backend.port)
            try alice.open("c", with: ["bob"])
        }
    }

    @Test func conversationOverREST() throws {
        let lab = try Lab()
        let (alice, bob) = (lab.alice, lab.bob)
        #expect(try alice.ask("GET", "/me") == ["id": "alice", "name": "Alice"])
        #expect(
            try bob.ask("GET", "/conversations/c") == ["id": "c", "title": "", "members": ["alice", "bob"]])
        let first = try alice.post("hello", in: "c", id: "x1", html: "<b>hello</b>")
        let second = try bob.post("hello, alice", in: "c")
        #expect(try alice.texts("c") == ["hello", "hello, alice"])
        let message = try bob.ask("GET", "/conversations/c/messages/\(first)")
        #expect(message["id"] == "x1" && message["html"] == "<b>hello</b>" && message["sender"] == "alice")
        #expect(message["edited"] == false && message["conversation"] == "c" && message["time"].integer != nil)

        try alice.edit(first, "hallo", in: "c")
        let edited = try bob.ask("GET", "/conversations/c/messages/\(first)")
        #expect(
            edited["text"] == "hallo" && edited["html"] == .null && edited["id"] == "x1" && edited["edited"] == true)
        #expect(try bob.ask("GET", "/conversations")["conversations"][0]["last"]["message_id"] == .string(second))
        #expect(try bob.history("c", before: second).map { $0["message_id"] } == [.string(first)])
        #expect(try bob.history("c", limit: 1).map { $0["message_id"] } == [.string(second)])
        #expect(try bob.ask("GET", "/search?text=hal+lo%20")["messages"] == [])
        #expect(try bob.ask("GET", "/search?text=hallo")["messages"].array.count == 1)

        try bob.delete(second, in: "c")
        #expect(try alice.texts("c") == ["hallo"])
        #expect(try lab.backend.messages().map { $0["text"] } == ["hallo"])
        try bob.ask("DELETE", "/conversations/c/members/bob")
        #expect(try bob.client.request("GET", "/conversations/c").status == 403)
    }

    @Test func refusals() throws {
        let lab = try Lab()
        let stranger = WebClient(port: lab.backend.port)
        #expect(try stranger.request("GET", "/health").json == ["ok": true])
        #expect(try stranger.request("GET", "/me").status == 401)
        #expect(try stranger.request("POST", "/login", ["user": "alice", "password": "no"]).status == 401)
        #expect(try stranger.request("POST", "/accounts", ["user": "alice", "password": "x"]).status == 409)
        let carol = try ChatPerson("carol", port: lab.backend.port)
        #expect(try carol.tryPosting("hi", in: "c").status == 403)
        let message = try lab.alice.post("mine", in: "c")
        #expect(try lab.bob.client.request("DELETE", "/conversations/c/messages/\(message)").status == 403)
        let (alice, path) = (lab.alice.client, "/conversations/c/messages")
        for body in [#"{"text":1}"#, "[]", "{", #"{"id":"sp ace","text":"x"}"#] {
            let answer = try alice.request("POST", path, body: Array(body.utf8))
            #expect(answer.status == 400 && answer.json["error"] == "invalid", "\(body)")
        }
        #expect(try alice.request("GET", "/nothing").status == 404)
        try lab.alice.ask("POST", "/logout")
        #expect(try alice.request("GET", "/me").json["error"] == "unauthorized")
    }

    @Test func conversationOverWebSocket() throws {
        let lab = try Lab()
        let (alice, bob) = (lab.alice, lab.bob)
        let unknown = WebClient(port: lab.backend.port)
        #expect(throws: PeerError.self) { try unknown.webSocket("/socket?token=no") }
        #expect(throws: PeerError.self) { try unknown.webSocket("/health?token=\(alice.token)") }
        // On a connection that was used before.
        #expect(try unknown.request("GET", "/health").status == 200)
        let other = try unknown.webSocket("/socket?token=\(alice.token)")
        try other.send(["type": "ping"])
        try other.expect("pong")
        _ = try bob.socket()
        let message = try alice.postOverSocket("hello", in: "c", id: "x1")
        let received = try bob.expect("message", "hello")
        #expect(received["message_id"] == .string(message) && received["id"] == "x1" && received["sender"] == "alice")
        #expect(try alice.expect("message", "hello") == received)
        // REST is heard on sockets as well.
        try bob.post("hello, alice", in: "c")
        try alice.expect("message", "hello, alice")

        let socket = try alice.socket()
        try socket.sendInPieces(
            ["type": "edit", "conversation": "c", "message_id": .string(message), "text": "hallo"], of: 7)
        #expect(try bob.expect("edited", "hallo")["edited"] == true)
        try socket.send(["type": "delete", "conversation": "c", "message_id": .string(message)])
        #expect(try bob.socket().expect("deleted")["message_id"] == .string(message))
        try socket.send(["type": "typing", "conversation": "c"])
        #expect(try bob.socket().expect("typing")["sender"] == "alice")
        try alice.ask("PUT", "/conversations/c/title", ["title": "a title"])
        #expect(try bob.socket().expect("title")["title"] == "a title")
        try socket.send(["type": "ping"])
        try socket.expect("pong")
        try socket.send(["type": "send", "conversation": "nowhere", "id": "x9", "text": "x"])
        #expect(
            try socket.expect("error") == [
                "type": "error", "id": "x9", "error": "not_found", "message": "there is no conversation nowhere",
            ])
        try socket.send(.ping, [1, 2, 3])
        try socket.send(["type": "ping"])
        try socket.expect("pong")
        #expect(socket.pongs == [[1, 2, 3]])
        try socket.close(code: 1001)
        #expect(try socket.expectEnd() == 1001)
    }

    @Test func longPoll() throws {
        let lab = try Lab()
        let start = try lab.bob.updates(since: nil)
        #expect(start["conversations"] == [:])
        let since = try #require(start["next"].integer)
        #expect(try lab.bob.updates(since: since, timeout: 1) == ["next": .integer(since), "conversations": [:]])
        // Asked before there is anything to tell.
        let waiting = WebClient(port: lab.backend.port)
        try waiting.send(
            "GET /updates?since=\(since)&timeout=60000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \(lab.bob.token)\r\n\r\n"
        )
        try eventually("the poll has come") {
            try lab.backend.received().contains { $0["target"].string?.hasSuffix("timeout=60000") == true }
        }
        try lab.alice.post("news", in: "c")
        let news = try waiting.answer().json
        #expect(news["conversations"]["c"]["messages"][0]["text"] == "news")
        #expect(try lab.bob.updates(since: news["next"].integer)["conversations"] == [:])
    }

    /// The members that it does not know are kept with a message and replaced by an edit.
    @Test(arguments: [true, false]) func unknownMembers(_ areKept: Bool) throws {
        var options = ChatBackendProcess.Options()
        options.keepsUnknown = areKept
        let lab = try Lab(options)
        _ = try lab.bob.socket()
        let path = "/conversations/c/messages"
        let answer = try lab.alice.ask(
            "POST", path, ["text": "AAAA", "encrypted": true, "x": ["y": [1, .double(2.5)]], "sender": "mallory"])
        let message = try #require(answer["message_id"].string)
        let received = try lab.bob.expect("message", "AAAA")
        #expect(received["encrypted"] == (areKept ? true : .null) && received["sender"] == "alice")
        #expect(received["x"] == (areKept ? ["y": [1, .double(2.5)]] : .null))
        #expect(try lab.bob.history("c")[0]["encrypted"] == (areKept ? true : .null))
        try lab.alice.ask("PATCH", path + "/" + message, ["text": "BBBB", "z": 1])
        let edited = try lab.bob.history("c")[0]
        #expect(edited["encrypted"] == .null && edited["z"] == (areKept ? 1 : .null) && edited["text"] == "BBBB")
    }

    @Test(arguments: [true, false]) func deduplication(_ deduplicates: Bool) throws {
        var options = ChatBackendProcess.Options()
        options.deduplicates = deduplicates
        let lab = try Lab(options)
        let first = try lab.alice.post("once", in: "c", id: "same")
        let again = try lab.alice.tryPosting("once", in: "c", id: "same")
        #expect(again.status == (deduplicates ? 200 : 201))
        #expect((again.json["message_id"].string == first) == deduplicates)
        #expect(try lab.alice.postOverSocket("once", in: "c", id: "same") == first || !deduplicates)
        #expect(try lab.backend.messages().count == (deduplicates ? 1 : 3))
        // Another sender's id is another message.
        try lab.bob.post("once", in: "c", id: "same")
        #expect(try lab.backend.messages().count == (deduplicates ? 2 : 4))
    }

    @Test func answersAreLostAfterTheEffect() throws {
        let lab = try Lab()
        try lab.backend.set(.loses(2))
        #expect(throws: PeerError.self) { try lab.alice.post("one", in: "c", id: "1") }
        // Reads and other writes have their answer.
        #expect(try lab.alice.texts("c") == ["one"])
        try lab.alice.ask("POST", "/conversations/c/typing")
        _ = try lab.bob.socket()
        #expect(throws: PeerError.self) { try lab.alice.postOverSocket("two", in: "c", id: "2") }
        try lab.bob.expect("message", "two")
        #expect(try lab.backend.faultsToCome().loses == 0)
        #expect(try lab.alice.tryPosting("one", in: "c", id: "1").status == 200)
        #expect(try lab.backend.messages().map { $0["text"] } == ["one", "two"])
    }

    @Test func requestsAreRefusedWithoutEffect() throws {
        let lab = try Lab()
        try lab.backend.set(.refuses(2, status: 429, retryAfter: 7))
        let refused = try lab.alice.tryPosting("one", in: "c")
        #expect(refused.status == 429 && refused.header("Retry-After") == "7")
        #expect(refused.json["error"] == "rate_limited")
        #expect(try lab.alice.ask("GET", "/me")["id"] == "alice")
        #expect(throws: PeerError.self) { try lab.alice.postOverSocket("one", in: "c") }
        #expect(try lab.backend.messages().isEmpty)
        try lab.alice.post("one", in: "c")
        try lab.backend.set(.refuses(1, status: 503, all: true))
        #expect(try lab.alice.client.request("GET", "/me").json["error"] == "unavailable")
        #expect(try lab.alice.client.request("GET", "/me").status == 200)
    }

    @Test func awayAndBack() throws {
        let lab = try Lab()
        let socket = try lab.bob.socket()
        try lab.backend.set(.away)
        #expect(!SocketTable.isListening(lab.backend.port))
        #expect(try socket.expectEnd() == 1006)
        #expect(throws: PeerError.self) { try lab.alice.post("one", in: "c") }
        try lab.backend.behave()
        #expect(SocketTable.isListening(lab.backend.port))
        try lab.alice.post("two", in: "c")
        lab.bob.dropSocket()
        _ = try lab.bob.socket()
        try lab.backend.tear()
        try lab.alice.post("three", in: "c")
        #expect(try lab.alice.texts("c") == ["two", "three"])
    }

    @Test func whatItKnowsIsFound() throws {
        let lab = try Lab()
        try lab.backend.set(.delay(milliseconds: 20))
        try lab.alice.post("a plain secret", in: "c")
        try lab.alice.postOverSocket("another one by frame", in: "c")
        try lab.alice.post("dGhlIHRoaXJkIHNlY3JldA==", in: "c")
        for text in ["a plain secret", "another one by frame", "the third secret"] {
            #expect(try lab.backend.knows(text), "\(text)")
        }
        #expect(try !lab.backend.knows("the fourth secret"))
    }

    @Test func filesOfAnyBytes() throws {
        let lab = try Lab()
        let bytes = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let made = try lab.alice.client.request(
            "POST", "/files", headers: [("Content-Type", "image/png"), ("Expect", "100-continue")], body: bytes)
        #expect(made.status == 100)
        let file = try #require(try lab.alice.client.answer().json["file_id"].string)
        #expect(try lab.bob.client.request("GET", "/files/\(file)").body == bytes)
    }
}
