import Envelope
import HTTPCodec
import JSONCodec
import NIOCore
import TestKit
import Testing

@testable import JSONGateway

/// Messages with files: links that a backend has to see, members that it makes itself, and texts beside a file.
@Suite struct FileMessageTests {
    private static let envelope: [UInt8] = [1, 2, 3, 250]
    private static let armoured = "?PAWL:AQID+g."
    private static let links = LinkForm(beginning: "/files/", written: "[file]({link})")

    private static func message(
        _ text: String, _ shape: MessageShape, isRequest: Bool
    ) throws -> (JSONDocument, FoundMessage) {
        let source = try document(text)
        let reading = MessageReading(
            source, [shape], target: TargetValues(captures: ["c": "room"]), isRequest: isRequest)
        #expect(reading.faults.isEmpty, "\(reading.faults)")
        return (source, try #require(reading.messages.first))
    }

    private static func sealed(_ text: String, _ shape: MessageShape) throws -> (text: String, content: String) {
        let (source, message) = try message(text, shape, isRequest: true)
        var edits = MessageEdits(source)
        try edits.seal(message, envelope: envelope)
        let content = try SealedContent(source, message)
        return (String(buffer: try edits.apply()), String(decoding: content.bytes, as: UTF8.self))
    }

    private static func opened(_ text: String, _ shape: MessageShape, _ content: String) throws -> String {
        let (source, message) = try message(text, shape, isRequest: false)
        #expect(message.isFlagged && message.envelope == envelope)
        var edits = MessageEdits(source)
        try edits.open(message, try SealedContent(Array(content.utf8)))
        return String(buffer: try edits.apply())
    }

    private static func linking(_ armour: EnvelopeArmour = .text) throws -> MessageShape {
        var shape = try shape(also: [])
        (shape.flag, shape.armour, shape.links) = (nil, armour, links)
        return shape
    }

    // MARK: Links

    @Test func linksToFilesStayBesideTheEnvelope() throws {
        let shape = try Self.linking()
        let text = "see [a.png](/files/1/a.bin), /files/2/b.bin. and (/files/1/a.bin) /files/ /filesx"
        let (output, content) = try Self.sealed(#"{"body":"\#(text)"}"#, shape)
        let lines = #"\n[file](/files/1/a.bin)\n[file](/files/2/b.bin)"#
        #expect(output == #"{"body":"\#(Self.armoured)\#(lines)"}"#)
        #expect(content == #"{"body":"\#(text)"}"#)
        #expect(try Self.opened(output, shape, content) == #"{"body":"\#(text)"}"#)
        #expect(try Self.sealed(#"{"body":"no link"}"#, shape).text == #"{"body":"\#(Self.armoured)"}"#)
        // Beside an envelope in its own field the links stand with the fallback.
        var field = try MessageShape.withEnvelope()
        field.links = Self.links
        let beside = try Self.sealed(#"{"body":"/files/1"}"#, field).text
        #expect(beside.contains(#""body":"Encrypted message.\n[file](/files/1)""#), "\(beside)")
        #expect(beside.contains(#""envelope":"AQID+g""#))
    }

    /// The backend shows the links, and the client gets those of the text alone.
    @Test func aTextInHTMLHasItsLinks() throws {
        let shape = try Self.linking(.detect)
        let shown = #"<p>\#(Self.armoured)<br>\n<a href=\"/files/1/a.bin\">file</a></p><div><img src=\"x\"></div>"#
        let text = "<b> [a<c](/files/1/a.bin) [x](/files/2 b) [y](/other) [z](/files/3\\\") end"
        let opened = try Self.opened(#"{"body":"\#(shown)"}"#, shape, #"{"body":"\#(text)"}"#)
        let html =
            "<p>&lt;b&gt; <a href=\\\"/files/1/a.bin\\\">a&lt;c</a> [x](/files/2 b) [y](/other) "
            + "[z](/files/3&quot;) end</p>"
        #expect(opened == #"{"body":"\#(html)"}"#)
    }

    @Test func whatFollowsAnArmourOtherwiseDamagesIt() throws {
        var shape = try Self.linking()
        let text = #"{"body":"\#(Self.armoured)\n[file](/files/1)"}"#
        #expect(try Self.message(text, shape, isRequest: false).1.envelope == Self.envelope)
        shape.links = nil
        #expect(try Self.message(text, shape, isRequest: false).1.envelope == nil)
    }

    @Test func linksCountAndAreBounded() throws {
        var shape = try Self.linking()
        let many = (0...64).map { "/files/\($0)" }.joined(separator: " ")
        #expect(throws: MessageFault.tooManyLinks) { try Self.sealed(#"{"body":"\#(many)"}"#, shape) }
        shape.limit = .characters(2000)
        func longest(_ text: String) throws -> Int? {
            try OutgoingMessage.only(document(#"{"body":"\#(text)"}"#), shape).longestEnvelope
        }
        let (without, with) = (try longest("x"), try longest("/files/12"))
        let space = 2000 - Armour.wholeOverhead
        #expect(without == Base64.decodedCapacity(space))
        #expect(with == Base64.decodedCapacity(space - "\n[file](/files/12)".utf8.count))
    }

    // MARK: Messages that the backend makes

    private static func answer() throws -> MessageShape {
        var shape = try MessageShape.withEnvelope(also: ["attachments", "other"])
        shape.alternative = .text
        shape.made = ["attachments": ["id", "url", "size", "title"]]
        return shape
    }

    @Test func anEnvelopeMayStandInTheTextInstead() throws {
        let shape = try Self.answer()
        let armoured = #"{"body":"\#(Self.armoured)"}"#
        #expect(try Self.opened(armoured, shape, #"{"body":"hi"}"#) == #"{"body":"hi"}"#)
        let field = #"{"body":"Encrypted message.","encrypted":true,"envelope":"AQID+g"}"#
        #expect(try Self.opened(field, shape, #"{"body":"hi"}"#) == #"{"body":"hi"}"#)
        // A message with both has the envelope of the field.
        let both = #"{"body":"\#(Self.armoured)","encrypted":true,"envelope":"AQID+g"}"#
        #expect(try Self.opened(both, shape, #"{"body":"hi"}"#) == #"{"body":"hi"}"#)
        let plain = try Self.message(#"{"body":"plain"}"#, shape, isRequest: false).1
        #expect(!plain.isFlagged && plain.envelope == nil)
    }

    /// What the backend makes itself stays, without what could be words.
    @Test func whatTheBackendMakesStays() throws {
        let shape = try Self.answer()
        let attachments =
            #"[{"id":1,"url":"/files/1","title":"pay me","text":"evil"},{"text":"evil"},"evil",{"title":"encrypted.bin","x":{}}]"#
        let text = #"{"body":"\#(Self.armoured)","attachments":\#(attachments),"other":[{"id":1}]}"#
        #expect(
            try Self.opened(text, shape, #"{"body":"hi"}"#)
                == #"{"body":"hi","attachments":[{"id":1,"url":"/files/1"},{"title":"encrypted.bin"}]}"#)
        // What was sealed takes its place, and nothing stays of what has nothing of the kind.
        #expect(
            try Self.opened(text, shape, #"{"body":"hi","attachments":[{"text":"mine"}]}"#)
                == #"{"body":"hi","attachments":[{"text":"mine"}]}"#)
        for others in [#"[{"text":"evil"}]"#, "[]", #""evil""#, #"{"a":1}"#, #"{"id":"e vil"}"#] {
            let text = #"{"body":"\#(Self.armoured)","attachments":\#(others)}"#
            #expect(try Self.opened(text, shape, #"{"body":"hi"}"#) == #"{"body":"hi"}"#, "\(others)")
        }
    }

    // MARK: Requests

    @Test func furtherTextsAreLinesOfTheText() throws {
        var shape = try Self.linking()
        shape.joined = [try path("caption")]
        for (text, content) in [
            (#"{"body":"a","caption":"b"}"#, #"{"body":"a\nb"}"#), (#"{"caption":"b"}"#, #"{"body":"b"}"#),
            (#"{"body":"","caption":"b"}"#, #"{"body":"b"}"#), (#"{"body":"a"}"#, #"{"body":"a"}"#),
            (#"{"body":"a","caption":""}"#, #"{"body":"a"}"#),
        ] {
            let sealed = try Self.sealed(text, shape)
            #expect(sealed.text == #"{"body":"\#(Self.armoured)"}"# && sealed.content == content, "\(sealed)")
        }
        let wrong = MessageReading(
            try document(#"{"body":"a","caption":["b"]}"#), [shape], target: TargetValues(captures: ["c": "room"]),
            isRequest: true)
        #expect(!wrong.faults.isEmpty)
    }

    @Test func aRequestMayHaveNoText() throws {
        var shape = try MessageShape.withEnvelope(also: ["poll"])
        #expect(throws: (any Error).self) { try OutgoingMessage.only(document(#"{"poll":{"a":1}}"#), shape) }
        shape.textIsOptional = true
        let (output, content) = try Self.sealed(#"{"poll":{"a":1},"id":"7"}"#, shape)
        #expect(content == #"{"body":null,"poll":{"a":1}}"#)
        #expect(output.contains(#""envelope":"AQID+g""#) && !output.contains("poll") && !output.contains("body"))
        #expect(try Self.opened(output, shape, content) == #"{"id":"7","poll":{"a":1}}"#)
        // A text that the backend puts there is none.
        let filled = #"{"id":"7","encrypted":true,"envelope":"AQID+g","body":"evil"}"#
        #expect(try Self.opened(filled, shape, content) == #"{"id":"7","poll":{"a":1}}"#)
        #expect(try Self.sealed("{}", shape).content == #"{"body":null}"#)
        // Where the envelope is the text, there is a text.
        var armoured = try Self.linking()
        armoured.textIsOptional = true
        let sealed = try Self.sealed(#"{"id":"7"}"#, armoured)
        #expect(sealed.text.contains(#""body":"\#(Self.armoured)""#) && sealed.content == #"{"body":null}"#)
        #expect(try Self.opened(#"{"body":"\#(Self.armoured)"}"#, armoured, sealed.content) == #"{"body":""}"#)
    }
}

extension MessageShape {
    /// A shape whose envelope has a field.
    fileprivate static func withEnvelope(also: [String] = []) throws -> MessageShape {
        try shape(envelope: "envelope", also: also)
    }
}

extension OutgoingMessage {
    /// The only message of a request.
    fileprivate static func only(_ document: JSONDocument, _ shape: MessageShape) throws -> OutgoingMessage {
        try OutgoingMessage(document, [shape], target: TargetValues(captures: ["c": "room"]))
    }
}
