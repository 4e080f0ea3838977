import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Testing

/// Messages are found where the mapping says, and what cannot be read is a fault and never left out in silence.
@Suite struct MessageReadingTests {
    private static let captures: Captures = ["c": "room1"]

    private static func reading(
        _ text: String, _ shapes: MessageShape..., isRequest: Bool = false, captures: Captures = captures,
        query: String? = nil
    ) throws -> MessageReading {
        MessageReading(
            try document(text), shapes,
            target: TargetValues(captures: captures, query: RequestQuery(query.map { Substring($0) })),
            isRequest: isRequest)
    }

    @Test func aRequestIsOneMessage() throws {
        let text = #"{"txn":7,"body":"hi","html":"<b>hi</b>","m.new":{"body":"hi"},"encrypted":false}"#
        let source = try document(text)
        let reading = try Self.reading(text, try shape(), isRequest: true)
        #expect(reading.faults.isEmpty)
        let message = try #require(reading.messages.first)
        #expect(reading.messages.count == 1)
        #expect(message.conversation == "room1")
        #expect(message.localID == "7")
        #expect(message.remoteID == nil && message.sender == nil && message.recipients == nil)
        #expect(message.flag != nil && !message.isFlagged)
        #expect(message.also.map(\.path) == ["html", "\"m.new\""])
        let content = try SealedContent(source, message)
        #expect(
            String(decoding: content.bytes, as: UTF8.self)
                == #"{"body":"hi","html":"<b>hi</b>","\"m.new\"":{"body":"hi"}}"#)
        #expect(try SealedContent(content.bytes) == content)
    }

    @Test func messagesOfAnAnswerStandInContainers() throws {
        let text = """
            {"rooms":{"join":{"!a":{"timeline":{"events":[
              {"type":"m.message","id":"$1","by":"@bob","to":["@al",3],"content":{"body":"d29yZA","encrypted":true}},
              {"type":"m.name","content":{"body":"no message"}},
              {"type":"m.message","content":{}},
              {"type":"m.message","content":{"body":null}},
              {"type":"m.message","content":""},
              {"type":"m.message","id":"$2","by":"@al","to":null,"content":{"body":"hello"}}]}},
            "!b":{"timeline":{"events":[{"type":"m.message","id":"$3","by":"@al","content":{"body":"yes"}}]}}}}}
            """
        let events = try shape(
            "timeline.events[?type == \"m.message\"]", containers: "rooms.join.*", conversation: .containerName,
            content: "content", sender: "by", recipients: "to[*]")
        let reading = try Self.reading(text, events)
        #expect(reading.faults.isEmpty)
        #expect(reading.messages.map(\.conversation) == ["!a", "!a", "!b"])
        #expect(reading.messages.map(\.sender) == ["@bob", "@al", "@al"])
        #expect(reading.messages.map(\.remoteID) == ["$1", "$2", "$3"])
        #expect(reading.messages.map(\.recipients) == [["@al", "3"], [], []])
        #expect(reading.messages.map(\.isFlagged) == [true, false, false])
        #expect(reading.messages[0].envelope == Array("word".utf8))
        #expect(reading.messages[1].envelope == nil)
    }

    @Test func conversationsComeFromManyPlaces() throws {
        let inMessage = try shape(conversation: .message(try path("in.id")))
        #expect(try Self.reading(#"{"body":"x","in":{"id":"r"}}"#, inMessage).messages[0].conversation == "r")
        #expect(try Self.reading(#"{"body":"x","in":{"id":12.0}}"#, inMessage).messages[0].conversation == "12")
        let around = try shape("list[*]", containers: "[*]", conversation: .container(try path("id")))
        let reading = try Self.reading(#"[{"id":"a","list":[{"body":"1"}]},{"id":"b","list":[{"body":"2"}]}]"#, around)
        #expect(reading.messages.map(\.conversation) == ["a", "b"])
        let asked = try shape(conversation: .query("room"))
        #expect(try Self.reading(#"{"body":"x"}"#, asked, query: "room=%21r").messages[0].conversation == "!r")
        #expect(try Self.reading(#"{"body":"x"}"#, asked, query: "room=1&room=2").faults == [.noConversation(at: 0)])
        #expect(try Self.reading(#"{"body":"x"}"#, try shape(), captures: [:]).faults == [.noConversation(at: 0)])
        #expect(try Self.reading(#"{"body":"x"}"#, inMessage).faults == [.noConversation(at: 0)])
    }

    @Test func whatTwoShapesFindIsOneMessage() throws {
        let reading = try Self.reading(
            #"{"a":[{"body":"1"},{"body":"2"}]}"#, try shape("a[0]"), try shape("a[*]"))
        #expect(reading.messages.count == 2)
    }

    @Test func anEnvelopeMayHaveAFieldOfItsOwn() throws {
        let own = try shape(envelope: "pawl.envelope")
        let message = try Self.reading(#"{"body":"Encrypted.","pawl":{"envelope":"AQID"}}"#, own).messages[0]
        #expect(message.envelope == [1, 2, 3])
        #expect(try Self.reading(#"{"body":"AQID"}"#, own).messages[0].envelope == nil)
        // what the backend has left of it
        #expect(try Self.reading(#"{"pawl":{"envelope":"AQID"}}"#, own).messages[0].text == nil)
    }

    @Test(arguments: [
        (#"{}"#, MessageFault.noText(at: 0)),
        (#"{"html":"<b>x</b>"}"#, .noText(at: 0)),
        (#"{"body":null}"#, .noText(at: 0)),
        ("[]", .noText(at: 0)),
        (#""x""#, .noText(at: 0)),
        (#"{"body":1}"#, .wrongKind(path: "body", found: .number, at: 8)),
        (#"{"body":["x"]}"#, .wrongKind(path: "body", found: .array, at: 8)),
        (#"{"body":"\ud800"}"#, .loneSurrogate(at: 8)),
        (#"{"body":"a","body":"b"}"#, .duplicateNames(at: 0)),
        (#"{"bo\u0064y":"a","body":"b"}"#, .duplicateNames(at: 0)),
        (#"{"body":"a","Body":"b"}"#, .similarNames(at: 0)), (#"{"BODY":"b"}"#, .similarNames(at: 0)),
        (#"{"body":"a","Html":"b"}"#, .similarNames(at: 0)), (#"{"Encrypted":true,"body":"a"}"#, .similarNames(at: 0)),
        (#"{"body":"a","\u0054xn":"1"}"#, .similarNames(at: 0)),
        (#"{"body":"a","txn":1.5}"#, .wrongKind(path: "txn", found: .number, at: 18)),
        (#"{"body":"a","txn":true}"#, .wrongKind(path: "txn", found: .boolean, at: 18)),
        (#"{"body":"a","txn":""}"#, .unusableName(path: "txn", at: 18)),
        (#"{"body":"a","txn":"a b"}"#, .unusableName(path: "txn", at: 18)),
        (#"{"body":"a","txn":"a\u0000"}"#, .unusableName(path: "txn", at: 18)),
        (#"{"body":"a","txn":"\ud800"}"#, .loneSurrogate(at: 18)),
    ]) func requestsHaveFaults(_ text: String, _ fault: MessageFault) throws {
        let reading = try Self.reading(text, try shape(), isRequest: true)
        #expect(reading.faults == [fault])
        #expect(reading.messages.isEmpty)
        #expect(!fault.description.isEmpty)
    }

    /// With `keep` a name in another case is sealed as any other. In answers it is a member that nobody reads.
    @Test func namesInAnotherCaseAreSealedOrIgnored() throws {
        let text = #"{"body":"a","Body":"b","in":{"id":"r"}}"#
        let kept = try Self.reading(text, try shape(also: [], kept: ["in"]), isRequest: true)
        #expect(kept.faults.isEmpty && kept.messages[0].also.map(\.path) == ["Body"])
        #expect(try Self.reading(text, try shape()).faults.isEmpty)
        let named = try shape("list[*]", conversation: .message(try path("in.id")))
        for message in [
            #"{"body":"a","in":{"id":"r"},"In":{"id":"other"}}"#, #"{"body":"a","in":{"id":"r","ID":"other"}}"#,
        ] {
            let faults = try Self.reading(#"{"list":[\#(message)]}"#, named, isRequest: true).faults
            #expect(faults == [.similarNames(at: 9)])
        }
        let twice = #"{"list":[{"body":"a","in":{"id":"r"}}],"List":[]}"#
        #expect(try Self.reading(twice, named, isRequest: true).faults == [.similarNames(at: 9)])
    }

    @Test func aRequestHasAMessage() throws {
        #expect(try Self.reading(#"{"list":[]}"#, try shape("list[*]"), isRequest: true).faults == [.noMessage])
        #expect(try Self.reading(#"{"list":[]}"#, try shape("list[*]")).faults == [])
        // one of two shapes is not enough
        let two = try Self.reading(#"{"a":{"body":"x"}}"#, try shape("a"), try shape("b"), isRequest: true)
        #expect(two.messages.count == 1 && two.faults == [.noMessage])
    }

    @Test func oneBadMessageIsOneFault() throws {
        let text = #"[{"body":"1"},{"body":2},{"body":"3","body":"3"},{"body":"4"}]"#
        let reading = try Self.reading(text, try shape("[*]"))
        #expect(reading.messages.count == 2)
        #expect(reading.faults == [.wrongKind(path: "body", found: .number, at: 22), .duplicateNames(at: 25)])
    }

    @Test func severalValuesAreNone() throws {
        var plural = try shape()
        plural.sender = try path("by[*]")
        #expect(try Self.reading(#"{"body":"x","by":["a","b"]}"#, plural).faults == [.severalValues(path: "by[*]")])
        #expect(try Self.reading(#"{"body":"x","by":["a"]}"#, plural).messages[0].sender == "a")
    }

    @Test func messagesAreCounted() throws {
        let many =
            "[" + Array(repeating: #"{"body":"x"}"#, count: MessageReading.messageLimit + 1).joined(separator: ",")
            + "]"
        let reading = try Self.reading(many, try shape("[*]"))
        #expect(reading.messages.count == MessageReading.messageLimit)
        #expect(reading.faults == [.tooManyMessages])
        let bad =
            "[" + Array(repeating: #"{"body":1}"#, count: MessageReading.messageLimit + 1).joined(separator: ",") + "]"
        #expect(try Self.reading(bad, try shape("[*]")).faults.last == .tooManyMessages)
    }

    @Test func sealedContentIsOurs() throws {
        let refused = ["", "[]", "{}", #"{"body":1}"#, #"{"body":"\ud800"}"#, #"{"a":"x","a":"y"}"#, #"{"body":"x""#]
        for text in refused {
            #expect(throws: MessageFault.malformedContent) { try SealedContent(Array(text.utf8)) }
        }
        let content = try SealedContent(Array(#"{"body":"x","n":[1, 2]}"#.utf8))
        #expect(content.values.map(\.path) == ["body", "n"])
        #expect(content.values[1].value.bytes == Array("[1, 2]".utf8))
    }
}
