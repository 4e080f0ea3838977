import JSONCodec
import JSONGateway
import Testing

@testable import MappingFile

/// Messages with files: links, members that the backend makes, texts beside a file, and conditions of which one holds.
@Suite struct FileMessageGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content:
          text: text
          also: [attachments]
          flag: encrypted
          envelope: pawl
          fallback: words
          or_armour: html
          links: {begin: /files/, written: "[file]({link})"}
          stays: {attachments: [id, url]}
        messages:
          sent: {joined: [caption], text_optional: true}
          page: {messages: "list[*]", when: [type == "a", type == "b"]}
          topic: {like: page, kind: topics, text: topic}
          topic_sent: {text: topic}
        routes:
          POST /c/{conversation}: content sent
          PUT /c/{conversation}/topic: {label: content topic_sent, kind: topics}
          GET /c/{conversation}: history -> page, topic
        refusal:
          status: 200
          body: '{"status":{status},"why":"{reason}"}'
          frame: '{"status":{status},"why":"{reason}","seq":0}'
          reply_to: {seq: seq}
          codes: {pawl_no_route: {status: 404}}
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        let sent = try #require(mapping.routes[0].request)
        #expect(sent.alternative == .html && sent.armour == nil)
        #expect(sent.links == LinkForm(beginning: "/files/", written: "[file]({link})"))
        #expect(sent.made == ["attachments": ["id", "url"]])
        #expect(sent.joined.map(\.text) == ["caption"] && sent.textIsOptional && sent.kind == nil)
        // Topics pass, so they are not looked for.
        let shapes = mapping.routes[2].response
        #expect(shapes.map(\.messages.text) == [#"list[*][?type == "a"]"#, #"list[*][?type == "b"]"#])
        #expect(shapes.allSatisfy { !$0.textIsOptional && $0.kind == nil })
        #expect(mapping.routes[1].label == .control)
        #expect(mapping.refusal.status == 200 && mapping.refusal.codes["pawl_no_route"]?.status == 404)
        #expect(mapping.refusal.frame(.noRoute, words: "no", localID: nil) == #"{"status":404,"why":"no","seq":0}"#)
    }

    @Test(arguments: [
        ("or_armour: html", "or_armour: xml", "is `xml`; expected `text`, `html` or `detect`"),
        ("  envelope: pawl\n  fallback: words\n", "", "say where that is with `envelope:`"),
        ("begin: /files/", "begin: files", "needs a beginning between two slashes"),
        ("begin: /files/", "begin: /", "needs a beginning between two slashes"),
        ("[file]({link})", "[file]", "and {link} once"), (", written: \"[file]({link})\"", "", "has no `written`"),
        ("stays: {attachments", "stays: {other", "expected a value of `also`"), ("[id, url]", "[]", "names of members"),
        ("joined: [caption]", "joined: [text]", "lead into one another"),
        ("joined: [caption]", "joined: ['a[0]']", "expected names with dots only"),
        ("text_optional: true", "text_optional: maybe", "expected true or false"),
        ("kind: topics, text", "kind: topic, text", "has the kind `topic`"),
        ("type == \"b\"]", "type ==]", "messages.page.when"),
        ("status: 200", "status: 204", "expected 200, or a number from 400 to 599"),
        ("{status: 404}", "{status: 302}", "expected 200, or a number from 400 to 599"),
        ("\"status\":{status},\"why\":\"{reason}\"}'", "\"status\":{state},\"why\":\"{reason}\"}'", "which is no JSON"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old), "\(old)")
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    /// Messages with armour of their own have no envelope in the field of the others.
    @Test func armourIsInTheText() throws {
        let mapping = try mapping(Self.whole.replacing("sent: {joined", with: "sent: {armour: text, joined"))
        let sent = try #require(mapping.routes[0].request)
        #expect(sent.armour == .text && sent.envelope == nil && sent.flag == nil && sent.alternative == nil)
    }

    /// Links need a place beside the envelope.
    @Test func linksNeedAPlace() {
        let found = problems(
            Self.whole.replacing("  envelope: pawl\n  fallback: words\n  or_armour: html\n", with: ""))
        #expect(found.contains { $0.contains("has no place for links beside it") }, "\(found)")
    }
}
