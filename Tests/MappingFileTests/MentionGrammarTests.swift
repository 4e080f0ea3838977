import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Testing

@testable import MappingFile

/// Where messages list whom they mention, and what stands beside the fallback.
@Suite struct MentionGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content:
          text: text
          also: [html]
          flag: encrypted
          envelope: sealed
          fallback: {text: "*", html: Words for people.}
          mentions:
            object: about.people
            accounts: ids
            begin: "@"
            everyone: {all: "@everyone"}
            also_in: [html]
            unless: edit[?kind == "again"]
        messages: {written: {}, bare: {fallback: Other words.}}
        routes:
          POST /c/{conversation}: content written
          PUT /c/{conversation}: content bare
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        let shape = try #require(mapping.routes[0].request)
        #expect(shape.fallback == "*")
        #expect(shape.fallbackParts == [FallbackPart(path: try JSONPath("html"), text: "Words for people.")])
        #expect(
            shape.mentions
                == MentionFields(
                    object: try JSONPath("about.people"), accounts: "ids", beginning: "@",
                    everyone: .init(member: "all", word: "@everyone"), others: [try JSONPath("html")],
                    exception: try JSONPath("edit[?kind == \"again\"]")))
        let bare = try #require(mapping.routes[1].request)
        #expect(bare.fallback == "Other words." && bare.fallbackParts.isEmpty && bare.mentions == shape.mentions)
    }

    @Test(arguments: [
        ("html: Words", "title: Words", "has a `fallback` at title, which is not sealed"),
        ("{text: \"*\", ", "{", "has no `fallback`"), ("object: about.people", "object: html", "which would be sealed"),
        ("object: about.people", "object: text.people", "which would be sealed"),
        ("also: [html]", "keep: [id]", "which would be sealed"), ("            begin: \"@\"\n", "", "has no `begin`"),
        ("begin: \"@\"", "begin: \"#\"", "is one member with one word that begins with #"),
        ("object: about.people", "object: people[*]", "expected names with dots only"),
        ("accounts: ids", "accounts: a b", "expected the name of a list"),
        ("everyone:", "everybody:", "unknown key `everybody` of `content.mentions`"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        // The text is indented less than it is written here.
        let (old, new) = (old.replacing("            begin", with: "    begin"), new)
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    private static func written(_ body: String) throws -> String {
        let (head, bytes) = try HTTPSample.request(Array("POST /c/c1\n\n\(body)".utf8))
        let trial = MappingTrial.request(try mapping(whole), head, bytes)
        return try #require(trial.outcomes[3].body, "\(trial.faults)")
    }

    @Test func mentionsAreShownInATrial() throws {
        #expect(
            try Self.written(#"{"text":"hi @bob, and @everyone."}"#).contains(
                #""about":{"people":{"ids":["@bob","@everyone"],"all":true}}"#))
        let sealed = try Self.written(#"{"text":"hi","html":"<b>hi</b>"}"#)
        #expect(sealed.contains(#""html":"Words for people.""#) && sealed.contains(#""people":{}"#))
    }

    /// An edit does not notify again, and lists that a client has written stay.
    @Test(arguments: [
        (#"{"text":"@bob","edit":{"kind":"again"}}"#, #""people":{}"#),
        (#"{"text":"@bob","edit":{"kind":"new"}}"#, #""people":{"ids":["@bob"]}"#),
        (#"{"text":"@bob","about":{"people":{}}}"#, #""people":{}"#),
        (#"{"text":"@bob","about":{"people":null}}"#, #""people":null"#),
        (#"{"text":"@bob","about":{}}"#, #""about":{"people":{"ids":["@bob"]}}"#),
    ]) func listsOfTheClientStay(_ body: String, _ part: String) throws {
        #expect(try Self.written(body).contains(part))
    }

    @Test func aMatrixMessageWithoutMentionsGetsThem() throws {
        let mapping = try shipped("matrix")
        let target = "/_matrix/client/v3/rooms/%21r%3Aa/send/m.room.message/t1"
        func sealed(_ body: String) throws -> String {
            let (head, bytes) = try HTTPSample.request(Array("PUT \(target)\n\n\(body)".utf8))
            return try #require(MappingTrial.request(mapping, head, bytes).outcomes[3].body)
        }
        #expect(try sealed(#"{"msgtype":"m.text","body":"hi"}"#).contains(#""m.mentions":{}"#))
        #expect(
            try sealed(#"{"body":"@a:b.c: see","formatted_body":"<a href=\"https://matrix.to/#/%40d%3Ae\">d</a>"}"#)
                .contains(#""m.mentions":{"user_ids":["@a:b.c","@d:e"]}"#))
        let edit = #"{"body":"* @a:b","m.relates_to":{"rel_type":"m.replace","event_id":"$1"}}"#
        #expect(try sealed(edit).contains(#""m.mentions":{}"#))
    }
}
