import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Testing

@testable import MappingFile

/// JSON in strings, forms, armour, limits, and messages that are named by their id.
@Suite struct BodyGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        messages_by_id:
          ask: GET /messages/{message_id}
          conversation: message.room
        conversations_by_id: {ask: "GET /c/{conversation}/info", id: room.id}
        content: {text: text, armour: text, limit: {characters: 2000}}
        messages:
          form: {body: [form, json], confirm: true, parse: [data, data.post], conversation: to}
          edit: {body: form, conversation: of message_id}
          page: {messages: "list[*]", armour: html, limit: {bytes: 3000}}
          plain: {messages: "list[*]", flag: encrypted}
        routes:
          POST /send: {label: content form, remote_id: data.id}
          PATCH /messages/{message_id}: content edit
          GET /c/{conversation}?html: history -> page
          GET /c/{conversation}:
            label: history -> plain
            chosen_members: {query: filter, list: fields, add: [text, encrypted]}
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        #expect(
            mapping.messagesByID
                == MessageSource(target: "/messages/{message_id}", conversation: try JSONPath("message.room")))
        let form = try #require(mapping.routes[0].request)
        #expect(form.bodies == [.form, .json] && form.parsed.map(\.text) == ["data", "data.post"])
        #expect(form.flag == nil && form.armour == .text && form.limit == .characters(2000))
        let stored = try #require(mapping.routes[0].remoteIDSource?.stored)
        #expect(RemoteIDSource(stored) == mapping.routes[0].remoteIDSource)
        #expect(String(decoding: stored, as: UTF8.self) == "data.id\ndata\ndata.post")
        #expect(form.isConfirmed && mapping.routes[1].request?.isConfirmed == false)
        #expect(
            mapping.conversationsByID
                == ConversationSource(target: "/c/{conversation}/info", id: try JSONPath("room.id")))
        #expect(mapping.routes[1].request?.conversation == .ofMessage("message_id"))
        #expect(mapping.routes[1].request?.bodies == [.form])
        #expect(
            mapping.routes[2].response.map(\.armour) == [.html] && mapping.routes[2].response[0].limit == .bytes(3000))
        #expect(mapping.routes[3].response.map(\.armour) == [nil])
        #expect(
            mapping.routes[3].chosenMembers
                == ChosenMembers(query: "filter", list: try JSONPath("fields"), needed: ["text", "encrypted"]))
        #expect(mapping.summary.contains(" bytes fit into your backend."))
    }

    @Test func messagesWithoutASenderAreReported() throws {
        let warning = "Messages without `sender`: in the answers of 2 routes, in 0 kinds of frames."
        #expect(try mapping(Self.whole).summary.contains(warning))
        let named = Self.whole.replacing(#"messages: "list[*]","#, with: #"messages: "list[*]", sender: author,"#)
        #expect(try !mapping(named).summary.contains("sender"))
    }

    @Test(arguments: [
        ("armour: text,", "armour: txt,", "is `txt`; expected `text`, `html` or `detect`"),
        ("armour: text,", "", "has no `flag`; write `flag:`, or `armour: text`"),
        ("armour: text,", "armour: text, flag: f,", "has `armour`, which stands in the text, and a place for flag"),
        ("armour: text,", "armour: text, envelope: e, fallback: f,", "and a place for flag or envelope"),
        ("{characters: 2000}", "{characters: 2000, bytes: 2000}", "needs one of `characters:` and `bytes:`"),
        ("{characters: 2000}", "{}", "needs one of"), ("{characters: 2000}", "{characters: 0}", "from 1 to"),
        ("{characters: 2000}", "{characters: 300}", "a sealed text is longer in any case"),
        ("[form, json]", "[forms]", "is `forms`; expected one or several of json, form"),
        ("[data, data.post]", "[a, b, c, d, e]", "has more than 4 paths"),
        ("[data, data.post]", "$", "is the whole document"),
        ("[data, data.post]", "[data..x]", "is no path"),
        ("conversation: of message_id", "conversation: of post", "has no {post}, where the post is looked for"),
        ("/messages/{message_id}\n  conv", "/messages\n  conv", "must name the message once, as {message_id}"),
        ("conversation: message.room", "conversation: rooms[*]", "can lead to several values"),
        ("/c/{conversation}/info", "/info", "must name the conversation once, as {conversation}"),
        ("confirm: true", "confirm: perhaps", "expected true or false"),
        ("remote_id: data.id}", "references: [reply_to]}", "the queue exchanges ids in plain JSON only"),
        ("list: fields, ", "", "has no `list`"),
        ("query: filter, ", "", "or in the body of a `passthrough`"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    private static func request(_ text: String) throws -> MappingTrial {
        let (head, body) = try HTTPSample.request(Array(text.utf8))
        return .request(try mapping(whole), head, body)
    }

    private static let form = "POST /send\nContent-Type: application/x-www-form-urlencoded\n\n"

    @Test func aFormIsExplained() throws {
        let trial = try Self.request(Self.form + "to=c1&text=h%C3%A9&x=1")
        #expect(trial.isGood && trial.conversation == "c1" && trial.messages[0].text == "hé")
        #expect(trial.outcomes[3].body?.hasPrefix("to=c1&text=%3FPAWL%3A") == true)
        #expect(trial.outcomes[3].body?.hasSuffix(".&x=1") == true)
        #expect(try !Self.request(Self.form + "to=c1&text=a;x=1").isGood)
        #expect(try Self.request("POST /send\n\n" + #"{"to":"c1","text":"x"}"#).isGood)
        let longest = try #require(trial.messages[0].longestText)
        let long = "to=c1&text=" + String(repeating: "x", count: longest)
        #expect(try Self.request(Self.form + long).isGood)
        #expect(try !Self.request(Self.form + long + "x").isGood)
        let edit = try Self.request("PATCH /messages/m1\n\n" + #"{"text":"x"}"#)
        #expect(edit.faults == ["its body is not of a form that the mapping allows"])
    }

    @Test(arguments: [
        (#"{"list":[{"text":"x"}]}"#, true), (#"{"list":[]}"#, true), (#"{"list":null}"#, true), ("{}", true),
        (#"{"list":["x"]}"#, false), (#"{"list":"x"}"#, false), (#"{"list":{"a":{"text":"x"}}}"#, false),
    ]) func aValueOfTheWrongKindIsReported(_ text: String, _ isGood: Bool) throws {
        let trial = MappingTrial.response(
            try mapping(Self.whole), RequestHead("GET", "/c/c1"), ResponseHead(200), ByteBuffer(string: text))
        #expect(trial.isGood == isGood, "\(trial.faults)")
    }

    /// A name of members that a client chooses.
    @Test(
        arguments: [
            ("/c/c1?filter=%7B%22fields%22%3A%5B%22id%22%5D%7D&a=b", #"{"fields":["id","text","encrypted"]}"#),
            ("/c/c1?a=b&filter={%22fields%22:[%22text%22]}", #"{"fields":["text","encrypted"]}"#),
            ("/c/c1?filter=12", nil), ("/c/c1?filter={%22x%22:1}", nil), ("/c/c1", nil),
            ("/c/c1?filter={%22fields%22:[%22text%22,%22encrypted%22]}", nil),
            ("/c/c1?filter={%22fields%22:[]}&filter=1", nil),
        ] as [(String, String?)]) func neededMembersAreAdded(_ target: String, _ filter: String?) throws
    {
        let chosen = try #require(try mapping(Self.whole).routes[3].chosenMembers)
        let added = chosen.added(to: RequestHead("GET", target))
        #expect((added != nil) == (filter != nil))
        guard let added, let filter else { return }
        let query = RequestQuery(RequestHead("GET", added).query)
        #expect(query["filter"] == .single(filter))
        #expect(query["a"] == .single("b"))
    }
}

/// Uploads by forms, and downloads.
@Suite struct FileGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content: {text: text, flag: encrypted}
        messages:
          written: {body: [multipart, json], conversation: to}
          shown: {armour: text, joined: [caption], text_optional: true}
        routes:
          POST /send: content written
          POST /files: {label: upload, file_name: query name, multipart: {files: file, room: pass}}
          POST /any:
            label: upload
            multipart: {"*": file}
          POST /c/{conversation}/files: {label: upload shown -> shown, multipart: {file: file, text: text, caption: text}}
          GET /files/{file}: {label: download, without_login: true}
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        #expect(mapping.routes[0].request?.bodies == [.multipart, .json])
        #expect(mapping.routes[1].file == FilePlaces(name: "name", parts: ["files": .file, "room": .pass]))
        #expect(mapping.routes[2].file.parts == [FilePlaces.anyPart: .file])
        #expect(mapping.routes[4].file.needsNoLogin && !mapping.routes[2].file.needsNoLogin)
        let shown = mapping.routes[3]
        #expect(shown.file.parts == ["file": .file, "text": .text, "caption": .text])
        #expect(try shown.request?.joined == [JSONPath("caption")] && shown.response.count == 1)
        #expect(shown.conversation == .capture("conversation"))
    }

    @Test(arguments: [
        ("room: pass", "room: words", "has `words`; expected file or text or pass"),
        ("room: pass", "room: text", "needs both: a message"),
        ("text: text, caption: text", "text: pass", "needs both: a message"),
        ("upload shown -> shown", "upload -> shown", "names no messages"),
        ("upload shown -> shown", "upload written -> shown", "must be in the path or the query"),
        ("{armour: text, joined", "{edits: id, armour: text, joined", "has files and `edits`"),
        ("label: upload shown -> shown", "label: upload shown -> shown, conversation: text", "must be in the path"),
        ("files: file, ", "", "names no part that is a `file`"),
        (#"{"*": file}"#, "yes", "expected lines below it"),
        ("label: upload, file_name: query name", "label: media", "has a meaning in an `upload` only"),
        ("label: download, ", "label: passthrough, ", "has a meaning in a `download` only"),
        ("without_login: true", "without_login: maybe", "expected true or false"),
        ("[multipart, json]", "[parts]", "expected one or several of json, form, multipart"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func aTrialReadsAForm() throws {
        let mapping = try mapping(Self.whole)
        let head = RequestHead("POST", "/send", headers: ["Content-Type": "multipart/form-data; boundary=12345678"])
        func trial(_ name: String) -> MappingTrial {
            let part = "--12345678\r\nContent-Disposition: form-data; name="
            let body = "\(part)to\r\n\r\nc1\r\n\(part)\(name)\r\n\r\nhello\r\n--12345678--"
            return MappingTrial.request(mapping, head, ByteBuffer(string: body))
        }
        #expect(trial("text").isGood && trial("text").messages.map(\.text) == ["hello"])
        #expect(!trial("text; filename=a").isGood)
    }
}
