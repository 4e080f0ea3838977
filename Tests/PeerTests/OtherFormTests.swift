import Foundation
import PeerKit
import TestThreads
import Testing

/// The generic chat in the forms of other APIs, behind the gateway: JSON in strings, forms, HTML, messages that are named
/// by their id alone, and a limit of length.
@Suite(.blocking, .serialized) struct OtherFormTests {
    private enum Word {
        static let called = "Wiesenknopfauge"
        static let sent = "Kornblumenrand"
        static let edited = "Ackerrittersporn"
        static let outside = "Frauenspiegelchen"
    }

    private static let c = GenericLab.conversation
    private static let limit = 2000

    private static let mapping = """
        name: other
        account: {credential: header Authorization, ask: GET /me, name: id}
        members: {ask: "GET /conversations/{conversation}", accounts: "members[*]"}
        messages_by_id: {ask: "GET /messages/{message_id}", conversation: message.conversation}
        content: {text: text, flag: encrypted, limit: {characters: \(limit)}}
        messages:
          called: {parse: message, messages: message, conversation: conversation, local_id: id}
          posted: {parse: data.post, messages: data.post, conversation: conversation, sender: sender, remote_id: message_id}
          page: {messages: "messages[*]", sender: sender, remote_id: message_id}
          form: {body: form, text: content, armour: text, conversation: to, local_id: local_id}
          edit: {like: form, conversation: of message_id}
          rendered: {messages: "messages[*]", sender: sender, remote_id: message_id, armour: html}
        routes:
          POST /call: {label: content called, remote_id: message.message_id}
          POST /send: {label: content form, remote_id: id}
          PATCH /messages/{message_id}: content edit
          GET /rendered/{conversation}: history -> rendered
          GET /conversations/{conversation}/messages: history -> page
          GET /(me|socket): passthrough
          GET /conversations/{conversation}: passthrough
          POST /(accounts|login|conversations): passthrough
        frames:
          from backend:
            event == "posted": sync posted
            any other: passthrough
        """

    private static func lab(_ options: ChatBackendProcess.Options = .init()) throws -> (GenericLab, ScratchDirectory) {
        let scratch = try ScratchDirectory()
        let file = try scratch.write("mapping.yaml", mapping)
        return (try GenericLab(policy: "hosted", options, mapping: file), scratch)
    }

    private static func inString(_ json: JSONValue) -> JSONValue {
        .string(String(decoding: json.bytes, as: UTF8.self))
    }

    private func call(_ person: ChatPerson, _ text: String, id: String) throws -> WebAnswer {
        let inner: JSONValue = ["conversation": .string(Self.c), "id": .string(id), "text": .string(text)]
        return try person.client.request("POST", "/call", ["message": Self.inString(inner)])
    }

    private func form(_ person: ChatPerson, _ method: String, _ target: String, _ body: String) throws -> WebAnswer {
        try person.client.request(
            method, target, headers: [("Content-Type", "application/x-www-form-urlencoded")], body: Array(body.utf8))
    }

    private func posted(_ person: ChatPerson) throws -> JSONValue {
        let frame = try person.socket().expect("a posted message") { $0["event"].string == "posted" }
        return try JSONValue(Array((frame["data"]["post"].string ?? "").utf8))
    }

    @Test func messagesInStrings() throws {
        var options = ChatBackendProcess.Options()
        options.wrapsFrames = true
        let (lab, _) = try Self.lab(options)
        _ = try lab.bob.socket()
        let answer = try call(lab.alice, Word.called, id: "n1")
        #expect(answer.status == 200 && answer.json["message"].string?.contains("message_id") == true)
        let post = try posted(lab.bob)
        #expect(post["text"] == .string(Word.called) && post["encrypted"] == .null && post["sender"] == "alice")
        #expect(try lab.bob.texts(Self.c) == [Word.called])
        #expect(try call(lab.alice, Word.called, id: "n1").json == answer.json)
        #expect(try !lab.backend.knows(Word.called))
        #expect(JSONLab.isBase64(try lab.backend.messages()[0]["text"]))

        // Somebody writes past the gateway.
        let past = try ChatPerson("alice", port: lab.backend.port)
        try past.post(Word.outside, in: Self.c)
        let marked = try posted(lab.bob)["text"].string ?? ""
        #expect(!marked.contains(Word.outside) && !marked.isEmpty)
        #expect(try lab.bob.texts(Self.c)[1].hasPrefix("[not encrypted]"))
        #expect(try lab.alice.client.request("POST", "/call", ["message": .string("{")]).status == 400)
        lab.stop()
        #expect(JSONLab.shows(lab.gateway, Word.called).isEmpty)
    }

    @Test func formsAndEditsByID() throws {
        let (lab, _) = try Self.lab()
        let body = "to=\(Self.c)&topic=a%20b&content=\(Word.sent)+%3Cb%3E%26%0Ax&local_id=7.1"
        let answer = try form(lab.alice, "POST", "/send", body)
        let id = try #require(answer.json["id"].string)
        let received = try lab.backend.received().last { $0["target"] == "/send" }?["body"].string ?? ""
        #expect(
            received.hasPrefix("to=\(Self.c)&topic=a%20b&content=%3FPAWL%3A") && received.hasSuffix("&local_id=7.1"))
        func shown(_ person: ChatPerson) throws -> [String?] {
            try person.ask("GET", "/rendered/\(Self.c)")["messages"].array.map { $0["text"].string }
        }
        #expect(try shown(lab.bob) == ["<p>\(Word.sent) &lt;b&gt;&amp;<br>\nx</p>"])
        #expect(try form(lab.alice, "PATCH", "/messages/\(id)", "content=\(Word.edited)").status == 200)
        #expect(try shown(lab.bob) == ["<p>\(Word.edited)</p>"])

        // A message that only the backend knows.
        let past = try ChatPerson("alice", port: lab.backend.port)
        let other = try past.post(Word.outside, in: Self.c)
        #expect(try form(lab.alice, "PATCH", "/messages/\(other)", "content=\(Word.edited)").status == 200)
        #expect(
            try lab.backend.received().contains {
                $0["target"] == .string("/messages/\(other)") && $0["method"] == "GET"
            })
        #expect(try shown(lab.bob) == ["<p>\(Word.edited)</p>", "<p>\(Word.edited)</p>"])
        let unknown = try form(lab.alice, "PATCH", "/messages/m999", "content=\(Word.edited)")
        #expect(unknown.status == 400 && unknown.text.contains("not known"))
        for odd in ["content=\(Word.edited);x", "content=\(Word.edited)&content=x", "content=\(Word.edited)%"] {
            #expect(try form(lab.alice, "PATCH", "/messages/\(id)", odd).status == 400)
        }
        for word in [Word.sent, Word.edited] { #expect(try !lab.backend.knows(word)) }
    }

    @Test func theLongestTextIsWhatTheRefusalNames() throws {
        var options = ChatBackendProcess.Options()
        options.textLimit = Self.limit
        let (lab, scratch) = try Self.lab(options)
        let refused = try call(lab.alice, String(repeating: "x", count: Self.limit), id: "n0")
        let number = refused.text.split(whereSeparator: { !$0.isNumber }).compactMap { Int($0) }.first
        let longest = try #require(number)
        #expect(refused.status == 413 && longest < Self.limit)
        #expect(try call(lab.alice, String(repeating: "x", count: longest), id: "n1").status == 200)
        #expect(try call(lab.alice, String(repeating: "y", count: longest + 1), id: "n2").status == 413)
        #expect(try lab.bob.texts(Self.c) == [String(repeating: "x", count: longest)])
        let checked = try PawlProcess.run(["config", "check", "--mapping", scratch.file("mapping.yaml")])
        #expect(checked.succeeded && checked.stdout.contains(" bytes fit into your backend"))
    }

    @Test func checkFailsForValuesOfTheWrongKind() throws {
        let scratch = try ScratchDirectory()
        let file = try scratch.write("mapping.yaml", Self.mapping.replacing("parse: data.post, ", with: ""))
        let frame: JSONValue = ["event": "posted", "data": ["post": Self.inString(["text": "hello"])]]
        let sample = try scratch.write("frame.json", frame.description)
        let run = try PawlProcess.run(
            ["config", "check", "--mapping", file, "--frame", sample, "--from", "backend"])
        #expect(run.status == .exited(1) && run.stdout.contains("a string"))
    }
}
