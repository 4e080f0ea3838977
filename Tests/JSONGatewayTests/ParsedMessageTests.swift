import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// Messages in strings, and values of the wrong kind: nothing of them is shown unmarked, and the rest is delivered.
@Suite struct ParsedMessageTests {
    /// ``Mapping/lab`` with a message in the string `doc`, written and read.
    private static let mapping: Mapping = {
        var mapping = Mapping.lab
        mapping.routes = mapping.routes.map { route in
            var request = route.request
            var response = route.response
            request = request.map { inside($0, "doc") }
            response = response.map { inside($0, "messages[*].data.doc") }
            return Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label, request: request,
                response: response, remoteID: route.remoteID, conversation: route.conversation,
                references: route.references)
        }
        return mapping
    }()

    private static func inside(_ shape: MessageShape, _ string: String) -> MessageShape {
        func path(_ text: String) -> JSONPath {
            guard let path = try? JSONPath(text) else { preconditionFailure("\(text) is no path") }
            return path
        }
        var shape = shape
        (shape.text, shape.flag) = (path("doc.text"), path("doc.encrypted"))
        shape.also = [path("doc.html")]
        shape.parsed = [path(string)]
        return shape
    }

    private static func world(_ odd: String..., policy: Policy = .hosted) throws -> JSONWorld {
        let world = try JSONWorld(policy, mapping: mapping)
        for (number, odd) in odd.enumerated() {
            world.backend.messages["all", default: []].append(.init(id: "odd\(number)", sender: "eve", body: odd))
        }
        return world
    }

    @Test func aMessageInAStringIsSealedAndOpened() throws {
        let world = try Self.world()
        let sent = #"{"id":"1","doc":"{\"id\": 7,\"text\":\"the canary \\\"sings\\\"\",\"html\":\"<b>canary</b>\"}"}"#
        #expect(world.send("POST", "/c/all", as: "t-alice", sent)?.status == 201)
        #expect(!world.backend.hasReceived("canary"))
        let stored = try #require(world.backend.messages["all"]?.first?.body)
        let inner = try #require(JSONWorld.Answer(status: 0, text: stored)["doc"])
        #expect(inner.hasPrefix(#"{"id": 7,"text":""#) && inner.hasSuffix(#"","encrypted":true}"#))
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        let opened = try #require(read["messages[0].data.doc"])
        #expect(opened == #"{"id": 7,"text":"the canary \"sings\"","html":"<b>canary</b>"}"#)
    }

    @Test func plainTextInAStringIsMarkedAndWithheld() throws {
        let doc = #"{"id":"2","doc":"{\"text\":\"the canary sings\",\"kept\":1}"}"#
        let history = try #require(try Self.world(doc).send("GET", "/c/all", as: "t-bob"))
        #expect(history["messages[0].data.doc"] == #"{"text":"[not encrypted] the canary sings","kept":1}"#)
        let world = try Self.world(doc)
        #expect(
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","doc":"{\"text\":\"x\"}"}"#)?.status == 201)
        let live = try #require(world.send("GET", "/c/all?since=1", as: "t-bob"))
        #expect(!live.text.contains("canary"))
        #expect(live["messages[1].data.doc"] == #"{"text":"x"}"#)
    }

    /// Strings that hold no document, and documents that cannot be read.
    private static let hostile = [
        #""the canary sings""#, #""{\"text\":\"the canary sings\"""#, #""[\"the canary sings\"]""#,
        #""\"the canary sings\"""#, #""{\"text\":\"x\",\"text\":\"the canary sings\"}""#,
        #""{\"text\":[\"the canary sings\"]}""#, #""\ud800 the canary sings""#,
        #""{\"text\":\"\\ud800 the canary sings\"}""#, #"["{\"text\":\"the canary sings\"}"]"#,
        "\"" + String(repeating: "[", count: 127) + #"\"the canary sings\""# + String(repeating: "]", count: 127)
            + "\"",
    ]

    @Test(arguments: hostile, ["/c/all", "/c/all?since=1"])
    func whatCannotBeReadIsNotShown(_ doc: String, _ target: String) throws {
        let world = try Self.world(#"{"doc":\#(doc)}"#)
        #expect(
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","doc":"{\"text\":\"good\"}"}"#)?.status == 201)
        let read = try #require(world.send("GET", target, as: "t-bob"))
        #expect(!read.text.contains("canary"))
        #expect(read["messages[1].data.doc"] == #"{"text":"good"}"#)
        let plain = try Self.world(#"{"doc":\#(doc)}"#, policy: .observe)
        #expect(plain.send("GET", target, as: "t-bob")?.text == plain.direct("GET", target, as: "t-bob").text)
    }

    @Test(arguments: hostile) func whatCannotBeReadIsNotSent(_ doc: String) throws {
        let world = try Self.world()
        let answer = world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","doc":\#(doc)}"#)
        #expect(answer?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test(arguments: ["null", #""""#, #"" ""#, "7", "false", "{}", "[]", #""{}""#, #""null""#])
    func whatHoldsNoTextStays(_ doc: String) throws {
        let world = try Self.world(#"{"doc":\#(doc),"other":1}"#)
        let direct = world.direct("GET", "/c/all", as: "t-bob").text
        #expect(world.send("GET", "/c/all", as: "t-bob")?.text == direct)
    }

    /// Two shapes in one inner document are one edit of its string.
    @Test func severalMessagesInAStringAreEditedTogether() throws {
        let source = try document(#"{"doc":"{\"a\":[{\"body\":\"one\"}],\"b\":{\"body\":\"two\"},\"c\":3}"}"#)
        var shapes = [try shape("doc.a[*]"), try shape("doc.b")]
        for index in shapes.indices { shapes[index].parsed = [try path("doc")] }
        let whole = try source.parsing(for: shapes)
        let reading = MessageReading(whole, shapes, target: TargetValues(captures: ["c": "r"]), isRequest: false)
        #expect(reading.messages.count == 2 && reading.faults.isEmpty)
        var edits = MessageEdits(whole)
        for message in reading.messages { try edits.mark(message, with: "! ") }
        #expect(
            String(buffer: try edits.apply())
                == #"{"doc":"{\"a\":[{\"body\":\"! one\"}],\"b\":{\"body\":\"! two\"},\"c\":3}"}"#)
    }

    // MARK: Kinds

    @Test(arguments: [
        (#"{"list":["the canary sings"]}"#, "list[*]", nil),
        (#"{"list":"the canary sings"}"#, "list[*]", nil),
        (#"{"list":{"a":{"body":"the canary sings"}}}"#, "list[*]", nil),
        (#"{"list":[{"body":"the canary sings"}]}"#, "list", nil),
        (#"{"list":[{"body":"the canary sings"}]}"#, "list.*", nil),
        (#"{"list":["the canary sings"]}"#, #"list[?type == "text"]"#, nil),
        (#"{"list":[["the canary sings"]]}"#, "list[*].inner", nil),
        (#"{"list":[{"data":"the canary sings"}]}"#, "list[*]", "data"),
        (#"{"list":[{"data":["the canary sings"]}]}"#, "list[*]", "data"),
        (#"{"list":[{"data":"the canary sings"}]}"#, "list[*]", "data.inner"),
    ]) func aValueOfTheWrongKindIsAFault(_ text: String, _ messages: String, _ content: String?) throws {
        let source = try document(text)
        let found = try shape(messages, content: content)
        let reading = MessageReading(source, [found], target: TargetValues(captures: ["c": "r"]), isRequest: false)
        #expect(reading.messages.isEmpty && reading.unread.count == 1)
        var edits = MessageEdits(source)
        for unread in reading.unread { try edits.blank(unread, with: "?") }
        #expect(!String(buffer: try edits.apply()).contains("canary"))
    }

    @Test(arguments: ["null", #""""#, "[]", "{}", "1", "true"])
    func aValueWithoutTextIsNoMessage(_ value: String) throws {
        let source = try document(#"{"list":\#(value),"other":[{"data":\#(value)}]}"#)
        let shapes = [try shape("list[*]"), try shape("list.*"), try shape("other[*]", content: "data")]
        let reading = MessageReading(source, shapes, target: TargetValues(captures: ["c": "r"]), isRequest: false)
        #expect(reading.messages.isEmpty && reading.faults.isEmpty)
    }

    /// Shapes for the forms that a value may have.
    @Test func whatAnotherShapeReadsIsNoFault() throws {
        let shapes = [try shape("list[*]"), try shape("list.*"), try shape("list[*]", content: "data")]
        for text in [
            #"{"list":[{"body":"1"},{"body":"2"}]}"#, #"{"list":{"a":{"body":"1"}}}"#,
            #"{"list":[{"data":{"body":"1"}}]}"#,
        ] {
            let reading = MessageReading(
                try document(text), shapes, target: TargetValues(captures: ["c": "r"]), isRequest: false)
            #expect(!reading.messages.isEmpty && reading.faults.isEmpty, "\(reading.faults)")
        }
    }

    @Test func aTextBelowAnotherTextIsAFault() throws {
        var found = try shape("list[*]")
        found.text = try path("body.text")
        let source = try document(
            #"{"list":[{"id":"1","body":"the canary sings"},{"body":{"text":"x"}},{"body":null}]}"#)
        let reading = MessageReading(source, [found], target: TargetValues(captures: ["c": "r"]), isRequest: false)
        #expect(reading.messages.count == 1 && reading.unread.count == 1)
        var edits = MessageEdits(source)
        try edits.blank(reading.unread[0], with: "?")
        #expect(
            String(buffer: try edits.apply())
                == #"{"list":[{"id":"1","body":{"text":"?"}},{"body":{"text":"x"}},{"body":null}]}"#)
    }
}
