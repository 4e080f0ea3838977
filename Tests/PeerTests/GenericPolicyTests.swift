import Foundation
import PeerKit
import TestThreads
import Testing

/// The generic chat behind the gateway under each policy, over REST and over WebSockets.
@Suite(.blocking, .serialized) struct GenericPolicyTests {
    private enum Word {
        static let first = "Wiesenknopfauge"
        static let markup = "Kornblumenrand"
        static let edited = "Ackerrittersporn"
        static let framed = "Frauenspiegelchen"
        static let all = [first, markup, edited, framed]
    }

    private static let c = GenericLab.conversation

    private func converse(_ lab: GenericLab) throws {
        let (alice, bob) = (lab.alice, lab.bob)
        for person in [alice, bob] { _ = try person.socket() }
        let since = try bob.updates(since: nil)["next"].integer
        let first = try alice.post(Word.first, in: Self.c, id: "own-1", html: "<b>\(Word.markup)</b>")
        for person in [alice, bob] {
            let received = try person.expect("message", Word.first)
            #expect(
                received["message_id"] == .string(first) && received["id"] == "own-1" && received["sender"] == "alice")
            #expect(received["html"] == .string("<b>\(Word.markup)</b>") && received["encrypted"] == .null)
        }
        let framed = try bob.postOverSocket(Word.framed, in: Self.c, id: "own-2")
        #expect(try alice.expect("message", Word.framed)["message_id"] == .string(framed))
        try alice.edit(first, Word.edited, in: Self.c)
        #expect(try bob.expect("edited", Word.edited)["html"] == .null)
        let socket = try bob.socket()
        let edit: JSONValue = [
            "type": "edit", "conversation": .string(Self.c), "message_id": .string(framed),
            "text": .string(Word.framed + "!"), "html": .string(Word.markup),
        ]
        try socket.sendInPieces(edit, of: 11)
        try alice.expect("edited", Word.framed + "!")

        for _ in 0..<3 { #expect(try bob.texts(Self.c) == [Word.edited, Word.framed + "!"]) }
        #expect(try alice.history(Self.c, before: framed).map { $0["text"] } == [.string(Word.edited)])
        let news = try bob.updates(since: since)["conversations"][Self.c]["messages"].array
        #expect(news.map { $0["text"] } == [.string(Word.edited), .string(Word.framed + "!")])
        #expect(try bob.ask("GET", "/conversations")["conversations"][0]["last"]["html"] == .string(Word.markup))
        let single = try bob.ask("GET", "/conversations/\(Self.c)/messages/\(framed)")
        #expect(single["text"] == .string(Word.framed + "!") && single["html"] == .string(Word.markup))
        let again = try ChatPerson("bob", port: lab.gateway.port)
        #expect(try again.texts(Self.c) == [Word.edited, Word.framed + "!"])

        try socket.send(["type": "typing", "conversation": .string(Self.c)])
        try alice.socket().expect("typing")
        try socket.send(["type": "delete", "conversation": .string(Self.c), "message_id": .string(framed)])
        #expect(try alice.socket().expect("deleted")["message_id"] == .string(framed))
        try alice.delete(first, in: Self.c)
        #expect(try bob.texts(Self.c) == [])
        #expect(try lab.backend.messages().isEmpty)
    }

    @Test(arguments: LegacyOutcome.plain) func plainPolicies(_ outcome: LegacyOutcome) throws {
        let lab = try GenericLab(policy: outcome.policy)
        try converse(lab)
        for word in Word.all {
            #expect(try lab.backend.knows(word), "\(word)")
            #expect(JSONLab.shows(lab.gateway, word).isEmpty, "\(word)")
        }
    }

    @Test func hosted() throws {
        let lab = try GenericLab(policy: "hosted")
        try converse(lab)
        for word in Word.all {
            #expect(try !lab.backend.knows(word), "\(word)")
            #expect(JSONLab.shows(lab.gateway, word).isEmpty, "\(word)")
        }
        for token in [lab.alice.token, lab.bob.token] { #expect(JSONLab.shows(lab.gateway, token).isEmpty) }
    }

    /// What the mapping says nothing of passes under `observe`, is refused under `hosted`, and is listed for who writes the mapping.
    @Test(arguments: ["observe", "hosted"]) func whatFitsNoRouteIsListed(_ policy: String) throws {
        let lab = try GenericLab(policy: policy)
        for number in 1...3 {
            #expect(throws: (any Error).self) {
                try lab.alice.ask("PUT", "/conversations/\(number)/wallpaper?private=yes")
            }
        }
        let run = try lab.gateway.admin(["unmatched", "--json"])
        let rows = try JSONValue(Array(run.stdout.utf8))
        #expect(rows.array.map { $0["path"] } == ["/conversations/*/wallpaper"])
        #expect(rows[0]["method"] == "PUT" && rows[0]["requests"].integer == 3)
        #expect(!run.stdout.contains("private"))
        #expect(try lab.gateway.admin(["unmatched"]).stdout.contains("/conversations/*/wallpaper"))
    }

    /// A browser cannot give a header to a WebSocket, so it shows its token in the target.
    @Test(arguments: ["observe", "hosted"]) func tokenInTheTarget(_ policy: String) throws {
        let lab = try GenericLab(policy: policy)
        let socket = try WebClient(port: lab.gateway.port).webSocket("/socket?token=\(lab.bob.token)")
        try lab.alice.post(Word.first, in: Self.c)
        #expect(try socket.expect("message")["text"] == .string(Word.first))
        try socket.send(["type": "send", "conversation": .string(Self.c), "id": "b1", "text": .string(Word.framed)])
        try socket.expect("ack")
        #expect(try lab.alice.texts(Self.c) == [Word.first, Word.framed])
        #expect(try lab.backend.knows(Word.framed) == (policy == "observe"))
    }

    @Test func required() throws {
        let lab = try GenericLab(policy: "required")
        let refused = try lab.alice.tryPosting(Word.first, in: Self.c)
        let words = refused.json["message"].string ?? ""
        #expect(refused.status == 403 && words.contains("bob") && words.contains("app"), "\(refused.text)")
        #expect(!words.contains("sidecar"), "there is none for HTTP")
        // Over a socket as well its sender is told, in a frame that the client understands.
        #expect { try lab.alice.postOverSocket(Word.framed, in: Self.c) } throws: { "\($0)".contains("cannot say") }
        // A frame without a route names its request too, as the backend's own errors do.
        for id in ["f1", 17] as [JSONValue] {
            try lab.alice.socket().send(["type": "shout", "id": id, "text": .string(Word.framed)])
            let refused = try lab.alice.socket().expect("error") { $0["type"] == "error" && $0["id"] == id }
            #expect(refused["error"].string?.hasPrefix("pawl_") == true, "\(refused)")
        }
        // The connection goes on.
        try lab.alice.socket().send(["type": "ping"])
        try lab.alice.socket().expect("pong")
        #expect(try lab.backend.messages().isEmpty)
        for word in Word.all { #expect(try !lab.backend.knows(word)) }
    }

    /// Who reads past the gateway gets Base64 and the mark.
    @Test func pastTheGateway() throws {
        let lab = try GenericLab(policy: "hosted")
        let direct = ChatPerson(lab.bob, port: lab.backend.port)
        try lab.alice.post(Word.first, in: Self.c, html: Word.markup)
        try lab.alice.postOverSocket(Word.framed, in: Self.c)
        let seen = try direct.history(Self.c)
        #expect(seen.count == 2)
        for message in seen {
            #expect(message["encrypted"] == true && message["html"] == .null)
            #expect(JSONLab.isBase64(message["text"]), "\(message)")
        }
        // The same message said in plain words past the gateway is no protected one behind it.
        try direct.post("from outside", in: Self.c)
        #expect(try lab.alice.texts(Self.c).last != "from outside")
    }

    /// The latch counts for readers under `observe` too, after the policy was taken back.
    @Test func plaintextInALatchedConversationIsMarkedOrWithheld() throws {
        let lab = try GenericLab(policy: "hosted")
        let direct = ChatPerson(lab.bob, port: lab.backend.port)
        try lab.alice.post(Word.first, in: Self.c)
        #expect(try lab.gateway.admin(["policy", "set", "observe"]).succeeded)
        _ = try lab.alice.socket()
        try direct.post(Word.edited, in: Self.c)
        let live = try lab.alice.socket().expect("message") { $0["type"].string == "message" }
        #expect(live["text"].string?.contains("was withheld") == true, "\(live)")
        #expect(try lab.alice.texts(Self.c) == [Word.first, "[not encrypted] \(Word.edited)"])
    }

    @Test(arguments: ["observe", "hosted"]) func media(_ policy: String) throws {
        let lab = try GenericLab(policy: policy)
        let body = Array(Word.first.utf8)
        let answer = try lab.alice.client.request(
            "POST", "/files", headers: [("Content-Type", "image/png")], body: body)
        #expect(answer.status == 201, "\(answer.text)")
        #expect(try lab.backend.knows(Word.first) == (policy == "observe"))
        let file = try #require(answer.json["file_id"].string)
        #expect(try lab.bob.client.request("GET", "/files/\(file)").text == Word.first)
    }

    /// Requests that nobody has labelled, and disguises of those that somebody has.
    @Test(arguments: [
        "/unknown", "/conversations/c1/messages/", "//conversations/c1/messages", "/conversations/c1/x/../messages",
        "/conversations/c1/%2e%2e/c1/messages", "/conversations%2Fc1%2Fmessages", "/conversations/c1/messages;x=1",
        "/CONVERSATIONS/c1/messages",
    ]) func nothingSlipsPast(_ target: String) throws {
        let lab = try GenericLab(policy: "hosted")
        let answer = try lab.alice.client.request("POST", target, ["id": "x", "text": .string(Word.first)])
        #expect((400..<500).contains(answer.status), "\(answer.text)")
        #expect(try !lab.backend.knows(Word.first))
    }

    /// Under `off` and `observe` the backend and the client see the bytes that the other one said.
    @Test(arguments: ["off", "observe"]) func bytesAreFaithful(_ policy: String) throws {
        let lab = try GenericLab(policy: policy)
        let body = #"{ "text" : "h\u00e9llo\/ \ud83d\ude00",  "id":"raw-1" , "n": 1.50e+2, "n2":0.10 }"#
        let answer = try lab.alice.client.request(
            "POST", "/conversations/c1/messages?x=%41&y=+",
            headers: [("X-odd-CASE", "a  b"), ("Content-Type", "application/json")],
            body: Array(body.utf8))
        #expect(answer.status == 201)
        let received = try #require(lab.backend.received().last { $0["method"] == "POST" })
        #expect(received["body"] == .string(body) && received["target"] == "/conversations/c1/messages?x=%41&y=+")
        #expect(received["headers"].array.contains(["X-odd-CASE", "a  b"]), "\(received)")
        let direct = ChatPerson(lab.alice, port: lab.backend.port)
        let target = "/conversations/c1/messages"
        #expect(try lab.alice.client.request("GET", target).body == direct.client.request("GET", target).body)
    }
}
