import HTTPCodec
import JSONGateway
import NIOCore
import Testing

@testable import MappingFile

/// What an operator is told about a sample.
@Suite struct TrialTests {
    private static func request(_ text: String, _ name: String = "generic") throws -> MappingTrial {
        let (head, body) = try HTTPSample.request(Array(text.utf8))
        return .request(try shipped(name), head, body)
    }

    private static func frame(_ text: String, _ direction: FrameRoute.Direction) throws -> MappingTrial {
        .frame(try shipped("generic"), direction, ByteBuffer(string: text))
    }

    private static let message = #"{"id":"n1","text":"hello","html":"<b>hello</b>","reply_to":"m0"}"#

    @Test(arguments: ["\n", "\r\n"]) func aMessageIsExplained(_ end: String) throws {
        let lines = ["POST /conversations/c1/messages HTTP/1.1", "Host: a", "", Self.message, ""]
        let trial = try Self.request(lines.joined(separator: end))
        #expect(trial.isGood)
        #expect(trial.route == "POST /conversations/{conversation}/messages" && trial.label == "content")
        #expect(trial.captures == ["conversation": "c1"] && trial.conversation == "c1")
        #expect(trial.localID == "n1" && trial.references == ["m0"])
        #expect(trial.messages.map(\.sealed) == [#"{"text":"hello","html":"<b>hello</b>"}"#])
        #expect(trial.outcomes.map(\.policy) == ["off", "observe", "opportunistic", "hosted", "required"])
        let body = try #require(trial.outcomes[3].body)
        #expect(body.hasPrefix(#"{"id":"n1","text":""#) && body.hasSuffix(#"","encrypted":true,"reply_to":"m0"}"#))
        #expect(!body.contains("hello") && trial.outcomes.filter { $0.body != nil }.count == 1)
        #expect(trial.description.contains("is sealed     {\"text\":\"hello\""))
        #expect(trial.paths == ["text: text finds a string at byte 18", "local id: id finds a string at byte 6"])
    }

    @Test func whatIsWrongIsExplained() throws {
        let trial = try Self.request("POST /conversations/c1/messages\n\n" + #"{"id":"n1","txt":"hello"}"#)
        #expect(!trial.isGood && trial.faults == ["the message at byte 0 has no text"])
        #expect(trial.paths.contains { $0.contains("text (character 1) is not there") })
        #expect(trial.outcomes[3].words == "refused, because it cannot be read" && trial.outcomes[3].body == nil)
        #expect(trial.description.contains("WRONG"))
        let broken = try Self.request("POST /conversations/c1/messages\n\n{")
        #expect(broken.faults == ["its body is not accepted as JSON: the document ends in the middle (byte 1)"])
    }

    @Test(arguments: [
        ("PUT /conversations/c1/messages", "the route takes POST, and this is PUT"),
        ("GET /conversations/c1/mesages", "up to /conversations/c1 it fits"),
        ("GET /nowhere", "no route begins as its path does"),
        ("GET /updates?since=1&since=2", "fits, but not its query: the route asks for ?since"),
        ("GET /conversations/%2e%2e/messages", "can be read in more than one way"),
        ("POST /login HTTP/1.1\nX-HTTP-Method-Override: DELETE", "a header field asks the backend"),
    ]) func whyNothingFitsIsExplained(_ text: String, _ words: String) throws {
        let trial = try Self.request(text)
        #expect(!trial.isGood && trial.route == nil)
        #expect(trial.reasons.contains { $0.contains(words) }, "\(trial.reasons)")
        #expect(trial.outcomes[3].words == "has no label: refused" && trial.outcomes[2].words.contains("passes"))
    }

    @Test func answersAreExplained() throws {
        let mapping = try shipped("generic")
        let write = RequestHead("POST", "/conversations/c1/messages")
        let (head, body) = try HTTPSample.response(Array(#"{"message_id":"m1"}"#.utf8))
        #expect(MappingTrial.response(mapping, write, head, body).remoteID == "m1")
        let (other, wrong) = try HTTPSample.response(Array("HTTP/1.1 201 Created\n\n{}".utf8))
        #expect(other.status == 201)
        #expect(!MappingTrial.response(mapping, write, other, wrong).isGood)
        let page = RequestHead("GET", "/conversations/c1/messages")
        let text =
            #"{"messages":[{"message_id":"m1","conversation":"c1","sender":"al","text":"AQID","encrypted":true}]}"#
        let read = MappingTrial.response(mapping, page, head, ByteBuffer(string: text))
        #expect(read.isGood && read.messages[0].sender == "al" && read.messages[0].isFlagged)
        #expect(read.description.contains("says that it is encrypted"))
        #expect(read.paths.contains("messages: messages[*] finds an object at byte 13"))
        let login = MappingTrial.response(mapping, RequestHead("POST", "/login"), head, ByteBuffer(string: "x"))
        #expect(login.reasons.contains("answers to such requests pass as they are"))
    }

    @Test func framesAreExplained() throws {
        let sent = try Self.frame(#"{"type":"send","conversation":"c1","text":"hello"}"#, .fromClient)
        #expect(sent.isGood && sent.label == "content" && sent.outcomes[3].body?.contains("encrypted") == true)
        let unknown = try Self.frame(#"{"type":"shout","text":"hello"}"#, .fromClient)
        #expect(unknown.reasons == ["no condition of `from client` is true of it"] && unknown.paths.count == 6)
        let twice = try Self.frame(#"{"type":"send","type":"typing"}"#, .fromClient)
        #expect(twice.reasons[0].contains("two members of the same name"))
        #expect(try Self.frame(#"{"type":"pong"}"#, .fromBackend).route == "any other")
        #expect(!(try Self.frame("x", .fromBackend)).isGood)
    }

    @Test func theMatrixSampleIsExplained() throws {
        let trial = try Self.request(
            "PUT /_matrix/client/v3/rooms/%21r%3Aa/send/m.room.message/t1\n\n" + #"{"msgtype":"m.text","body":"hi"}"#,
            "matrix")
        #expect(trial.isGood && trial.localID == "t1" && trial.conversation == "!r:a")
        #expect(trial.outcomes[3].body?.contains("pawl.envelope") == true)
    }

    @Test(arguments: [
        ("", "it is empty"), ("\n", "it is empty"), ("POST", "is no request line"),
        ("POST / FTP/1", "is no request line"), ("curl https://a/b", "is no request line"),
        ("HTTP/1.1 200 OK", "this is an answer"), ("HTTP/1.1 x", "is no status line"),
        ("GET / HTTP/1.1\nHost", "is no header field"), ("GET / HTTP/1.1\n: x", "is no header field"),
        ("GET / HTTP/1.1\nA: " + String(repeating: "x", count: 1 << 17) + "\nB: c", "longer than 64 KiB"),
    ]) func samplesThatAreNone(_ text: String, _ words: String) {
        do {
            _ = try HTTPSample.request(Array(text.utf8))
            Issue.record("it was taken")
        } catch {
            #expect(error.words.contains(words))
        }
    }

    /// What is shown of messages that the backend sends is not what the gateway seals.
    @Test func aReceivedMessageIsNotSealedHere() throws {
        let page = MappingTrial.response(
            try shipped("generic"), RequestHead("GET", "/conversations/c1/messages"), ResponseHead(200),
            ByteBuffer(
                string:
                    #"{"messages":[{"message_id":"m1","conversation":"c1","sender":"al","text":"hello","role":"x"}]}"#))
        #expect(page.isGood && page.isReceived && page.messages.first?.longestText == nil)
        #expect(page.description.contains(#"can be sealed {"text":"hello","role":"x"}"#), "\(page)")
    }

    /// The request for members may name the conversation in its query.
    @Test func membersAreFoundByAQuery() throws {
        let text = """
            name: other
            account: {credential: header A, ask: GET /me, name: id}
            members: {ask: "GET /members?room={conversation}&limit=2", accounts: "members[*]"}
            content: {text: text, flag: encrypted}
            messages: {written: {conversation: to}}
            routes:
              POST /send: content written
            """
        func trial(_ target: String) throws -> MappingTrial {
            MappingTrial.response(
                try mapping(text), RequestHead("GET", target), ResponseHead(200),
                ByteBuffer(string: #"{"members":["u1","u2"]}"#))
        }
        let found = try trial("/members?limit=2&room=c%201")
        #expect(found.isGood && found.members == ["u1", "u2"] && found.conversation == "c 1", "\(found)")
        for other in ["/members?limit=2", "/members?room=", "/other?room=c1", "/members"] {
            #expect(try trial(other).members == nil, "\(other)")
        }
    }

    private static let forms = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content: {text: note, armour: text}
        messages: {written: {body: [json, multipart]}, plain: {}, read: {messages: "list[*]"}}
        routes:
          POST /c/{conversation}/messages: content written
          PUT /c/{conversation}/topic: content plain
          POST /c/{conversation}/files: {label: upload written, multipart: {file: file, note: text, kind: pass}}
          POST /files: upload
          GET /c/{conversation}: history -> read
        """

    /// A form with LF as an editor leaves it. A part whose name begins with `file` is a file.
    private static func form(_ line: String, _ names: [String]) throws -> MappingTrial {
        var text = "\(line) HTTP/1.1\nContent-Type: multipart/form-data; boundary=12345678\n\n"
        for name in names {
            let file = name.hasPrefix("file") ? "; filename=\"a.png\"" : ""
            text += "--12345678\nContent-Disposition: form-data; name=\"\(name)\"\(file)\n\nhello\n"
        }
        let (head, body) = try HTTPSample.request(Array((text + "--12345678--\n").utf8))
        return .request(try mapping(Self.forms), head, body)
    }

    /// Each part of the form of an upload is named with what becomes of it, and so is the text beside the file.
    @Test func aFormWithAFileIsExplained() throws {
        let trial = try Self.form("POST /c/c1/files", ["note", "kind", "file"])
        #expect(trial.isGood, "\(trial)")
        #expect(trial.paths.contains("part file: a file, which is sealed with its name and type"))
        #expect(trial.paths.contains("part note: a text, which is sealed"))
        #expect(trial.paths.contains("part kind: passes, and the backend reads it"))
        #expect(trial.messages.map(\.sealed) == [#"{"note":"hello"}"#])
        #expect(trial.outcomes[3].words.hasPrefix("sealed") && trial.outcomes[4].words.hasPrefix("refused"))
    }

    @Test(arguments: [
        ("POST /c/c1/files", ["note", "other", "file"], "has the part `other`, which `multipart` does not name"),
        ("POST /c/c1/files", ["note", "kind"], ""), ("POST /files", ["file"], "write `multipart:` with the parts"),
        ("POST /c/c1/messages", ["note", "file"], "a form with files belongs to an `upload` route"),
        ("PUT /c/c1/topic", ["note"], "write `body: [json, multipart]` for them"),
    ]) func formsThatAreRefused(_ line: String, _ names: [String], _ words: String) throws {
        let trial = try Self.form(line, names)
        // A form without a file is one all the same.
        guard !words.isEmpty else { return #expect(trial.isGood, "\(trial)") }
        #expect(trial.faults.contains { $0.contains(words) }, "\(trial)")
        #expect(trial.outcomes[3].words == "refused, because it cannot be read")
    }

    @Test func aBodyThatIsNoFormIsNotSealedAsAFormWithAText() throws {
        let (head, body) = try HTTPSample.request(Array("POST /c/c1/files\n\n{\"note\":\"hello\"}".utf8))
        let trial = MappingTrial.request(try mapping(Self.forms), head, body)
        #expect(trial.faults == ["its body is no form, and this route expects one with a text"])
    }

    /// Without a path of the sender, a message opens under any name that the backend shows.
    @Test func aSenderThatIsNotNamedIsReported() throws {
        let page = MappingTrial.response(
            try mapping(Self.forms), RequestHead("GET", "/c/c1"), ResponseHead(200),
            ByteBuffer(string: #"{"list":[{"note":"hello"}]}"#))
        #expect(page.isGood && page.description.contains("nobody checks who has written it"), "\(page)")
    }

    @Test(arguments: [
        ("GET https://chat.example.org/a?b=c HTTP/2", "/a?b=c"), ("GET http://a HTTP/1.1", "/"),
        ("GET HTTPS://a?b", "/?b"), ("GET /a://b", "/a://b"),
    ]) func targetsAsBrowsersShowThem(_ line: String, _ target: String) throws {
        #expect(try HTTPSample.request(Array(line.utf8)).0.target == target)
    }

    /// A sample that is cut off anywhere is read or refused.
    @Test func anyPrefixIsReadOrRefused() throws {
        let mapping = try shipped("generic")
        let bytes = Array(("POST /conversations/c1/messages HTTP/1.1\r\nHost: a\r\n\r\n" + Self.message).utf8)
        var good = 0
        for end in 0...bytes.count {
            guard let (head, body) = try? HTTPSample.request(Array(bytes[..<end])) else { continue }
            let trial = MappingTrial.request(mapping, head, body)
            good += trial.isGood ? 1 : 0
            #expect(!trial.description.isEmpty)
        }
        // the whole, and `POST /conversations`, which makes a conversation
        #expect(good == 2)
    }
}
