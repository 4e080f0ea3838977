import HTTPCodec
import JSONCodec
import JSONGateway
import Testing

@testable import MappingFile

/// What a route says about a body that repeats its path.
@Suite struct RepeatedSegmentGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content: {text: text, flag: encrypted}
        messages: {written: {conversation: to}}
        routes:
          POST /c: content written
          POST /call/{name}: {label: passthrough, also_in_body: {parse: message, path: message.method}}
          POST /do/(a|b): {label: passthrough, also_in_body: {path: method}}
        """

    @Test func theKeysAreRead() throws {
        let repeated = try mapping(Self.whole).routes.map(\.repeated)
        #expect(repeated.map { $0?.path.text } == [nil, "message.method", "method", "method"])
        #expect(repeated.map { $0?.parsed.map(\.text) } == [nil, ["message"], [], []])
    }

    @Test(arguments: [
        ("{parse: message, path: message.method}", "{parse: message}", "`also_in_body`"),
        ("{parse: message, path: message.method}", "message.method", "`also_in_body`"),
        ("path: message.method", "path: 'calls[*].method'", "also_in_body.path"),
        ("label: passthrough, also_in_body: {parse", "label: control, also_in_body: {parse", "has a meaning in a"),
        ("{label: passthrough, also", "{label: passthrough, kinds: {a: names}, also", "has a meaning in a"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    /// The server calls the method in the body.
    @Test func methodsOfRocketChatAreThoseOfTheirPaths() throws {
        let calls = try shipped("rocketchat").routes.filter { $0.path.text.hasPrefix("/api/v1/method.call/") }
        #expect(calls.count > 100)
        for call in calls where call.label != .content {
            #expect(call.repeated?.path.text == "message.method", "\(call.path.text)")
            #expect(call.repeated?.parsed.map(\.text) == ["message"])
        }
    }
}
