import JSONCodec
import JSONGateway
import NIOCore
import Protection
import TestKit
import Testing

/// What is sealed goes out of a document and comes back into it, and the bytes around it stay.
@Suite struct MessageEditsTests {
    private static let envelope: [UInt8] = [1, 2, 3, 250]

    /// Changes to the only message of a document.
    private static func edited(
        _ text: String, _ shape: MessageShape, isRequest: Bool = false,
        _ body: (inout MessageEdits, FoundMessage, JSONDocument) throws -> Void
    ) throws -> String {
        let source = try document(text)
        let reading = MessageReading(
            source, [shape], target: TargetValues(captures: ["c": "room"]), isRequest: isRequest)
        #expect(reading.faults.isEmpty)
        let message = try #require(reading.messages.first)
        var edits = MessageEdits(source)
        try body(&edits, message, source)
        return String(buffer: try edits.apply())
    }

    private static func sealed(_ text: String, _ shape: MessageShape) throws -> (text: String, content: SealedContent) {
        var content: SealedContent?
        let output = try edited(text, shape, isRequest: true) { edits, message, source in
            content = try SealedContent(source, message)
            try edits.seal(message, envelope: envelope)
        }
        return (output, try #require(content))
    }

    private static func opened(_ text: String, _ shape: MessageShape, _ content: String) throws -> String {
        try edited(text, shape) { edits, message, _ in
            try edits.open(message, try SealedContent(Array(content.utf8)))
        }
    }

    @Test func theEnvelopeStandsInThePlaceOfTheText() throws {
        let (output, content) = try Self.sealed(
            #"{ "kind" : "t", "body":"h\u00e4", "html":"<b>hä</b>", "m.new":{"body":"x"}, "to":[1,2] }"#, try shape())
        #expect(output == #"{ "kind" : "t", "body":"AQID+g","encrypted":true, "to":[1,2] }"#)
        #expect(content.values.map(\.path) == ["body", "html", "\"m.new\""])
        #expect(content.values[0].value.bytes == Array(#""h\u00e4""#.utf8))
    }

    @Test func theEnvelopeStandsBesideAFallback() throws {
        let (output, _) = try Self.sealed(
            #"{"body":"hi","html":"<b>hi</b>"}"#, try shape(envelope: "pawl.envelope", flag: "pawl.encrypted"))
        #expect(output == #"{"body":"Encrypted message.","pawl":{"encrypted":true,"envelope":"AQID+g"}}"#)
    }

    /// What was sealed as one kind is shown as no other. Earlier versions have not named the kind.
    @Test func contentOfAKindIsShownAsThatKindOnly() throws {
        let plain = try shape()
        func named(_ kind: ContentKind?) -> MessageShape {
            var shape = plain
            shape.kind = kind
            return shape
        }
        let (_, content) = try Self.sealed(#"{"body":"hi","html":"x"}"#, named(.topics))
        let bytes = String(decoding: content.bytes, as: UTF8.self)
        #expect(bytes == #"{"body":"hi","html":"x","?kind":"topics"}"#)
        #expect(try SealedContent(content.bytes) == content)
        let stored = #"{"body":"AQID+g","encrypted":true}"#
        #expect(try Self.opened(stored, named(.topics), bytes) == #"{"body":"hi","html":"x"}"#)
        for other in [nil, ContentKind.names, .polls, .custom] {
            #expect(throws: MessageFault.malformedContent) { try Self.opened(stored, named(other), bytes) }
        }
        // A message, or content of an earlier version.
        let unnamed = #"{"body":"hi"}"#
        for kind in [nil, ContentKind.topics, .reactions, .polls] {
            #expect(try Self.opened(stored, named(kind), unnamed) == unnamed)
        }
        #expect(throws: MessageFault.malformedContent) { try Self.opened(stored, named(.custom), unnamed) }
        #expect(throws: MessageFault.malformedContent) {
            try Self.opened(stored, named(.topics), #"{"text":"hi"}"#)
        }
        for odd in [#"{"?kind":"topics"}"#, #"{"body":"x","?kind":"other"}"#, #"{"body":"x","?kind":1}"#] {
            #expect(throws: MessageFault.malformedContent) { try SealedContent(Array(odd.utf8)) }
        }
    }

    /// Where nothing can be marked, strings that an app reads are no better than objects.
    @Test func contentOfAKindThatHasNoPlaceForAMarkIsNotMarked() throws {
        var strict = try shape(envelope: "pawl", kept: [])
        strict.shown = ["html"]
        func mark(_ text: String) throws -> String {
            try Self.edited(text, strict) { edits, message, _ in try edits.mark(message, with: "[!] ") }
        }
        #expect(try mark(#"{"url":"x","n":1}"#) == #"{"url":"x","n":1}"#)
        strict.kind = .custom
        #expect(throws: MessageFault.noText(at: 7)) { try mark(#"{"url":"x","n":1}"#) }
        #expect(try mark(#"{"url":" ","n":1}"#) == #"{"url":" ","n":1}"#)
        #expect(try mark(#"{"body":"b","url":"x"}"#) == #"{"body":"[!] b","url":"x"}"#)
    }

    @Test func aFlagThatIsThereIsSet() throws {
        #expect(
            try Self.sealed(#"{"encrypted":"no","body":"hi"}"#, try shape()).text
                == #"{"encrypted":true,"body":"AQID+g"}"#)
        #expect(
            try Self.sealed(#"{"pawl":{"a":1},"body":"hi"}"#, try shape(flag: "pawl.encrypted")).text
                == #"{"pawl":{"a":1,"encrypted":true},"body":"AQID+g"}"#)
    }

    @Test func nothingIsPutIntoWhatIsNoObject() throws {
        #expect(throws: MessageFault.blocked(path: "pawl.encrypted")) {
            try Self.sealed(#"{"pawl":1,"body":"hi"}"#, try shape(flag: "pawl.encrypted"))
        }
    }

    @Test func pathsIntoOneAnotherAreAFault() throws {
        #expect(throws: MessageFault.conflict) {
            try Self.sealed(#"{"body":"hi","new":{"html":"x"}}"#, try shape(also: ["new", "new.html"]))
        }
    }

    @Test func whatWasSealedComesBack() throws {
        let events = try shape("[*]", content: "content")
        let output = try Self.opened(
            #"[{"content":{"kind":"t","body":"AQID+g","encrypted":true},"id":"$1"}]"#, events,
            #"{"body":"h\u00e4","html":"<b>","\"m.new\"":{"body":"x"},"sender":"mallory"}"#)
        #expect(
            output == #"[{"content":{"kind":"t","body":"h\u00e4","html":"<b>","m.new":{"body":"x"}},"id":"$1"}]"#)
    }

    /// What a backend puts beside a sealed text is not shown as if it had been sealed with it.
    @Test func whatNobodyVouchesForGoes() throws {
        #expect(
            try Self.opened(
                #"{"body":"AQID+g","html":"<b>evil</b>","m.new":{"body":"evil"},"encrypted":true}"#, try shape(),
                #"{"body":"good"}"#) == #"{"body":"good"}"#)
        #expect(
            try Self.opened(
                #"{"body":"AQID+g","html":"<b>evil</b>"}"#, try shape(), #"{"body":"good","html":"g"}"#)
                == #"{"body":"good","html":"g"}"#)
        #expect(
            try Self.opened(
                #"{"body":"Encrypted message.","pawl":{"envelope":"AQID+g","x":1},"encrypted":true}"#,
                try shape(envelope: "pawl.envelope"), #"{"body":"good"}"#)
                == #"{"body":"good","pawl":{"x":1}}"#)
    }

    @Test func objectsOnTheWayComeBack() throws {
        let deep = try shape(also: ["new.html", "new.rich.form"])
        let (output, content) = try Self.sealed(
            #"{"body":"hi","new":{"html":"x","rich":{"form":1}}}"#, deep)
        #expect(output == #"{"body":"AQID+g","encrypted":true,"new":{"rich":{}}}"#)
        // the backend has dropped what was empty
        let bytes = String(decoding: content.bytes, as: UTF8.self)
        #expect(
            try Self.opened(#"{"body":"AQID+g","encrypted":true}"#, deep, bytes)
                == #"{"body":"hi","new":{"html":"x","rich":{"form":1}}}"#)
        #expect(try Self.opened(output, deep, bytes) == #"{"body":"hi","new":{"rich":{"form":1},"html":"x"}}"#)
        #expect(throws: MessageFault.blocked(path: "new.html")) {
            try Self.opened(#"{"body":"AQID+g","new":1}"#, deep, bytes)
        }
        #expect(throws: MessageFault.conflict) {
            try Self.opened(
                #"{"body":"AQID+g"}"#, try shape(also: ["new", "new.html"]), #"{"body":"x","new":{},"new.html":"y"}"#)
        }
    }

    /// Where the mapping says what stays instead of what goes, nothing that it does not know reaches the backend, and
    /// nothing that the backend puts there reaches the reader.
    @Test func everythingButWhatIsKeptIsSealed() throws {
        let strict = try shape(envelope: "p.envelope", flag: "p.flag", also: ["deep.html"], kept: ["kind", "a.b"])
        let (output, content) = try Self.sealed(
            #"{"kind":"t","body":"hi","new":{"x":1},"a.b":1,"we.ird \"":2,"deep":{"html":"h","k":1},"p":{"o":1}}"#,
            strict)
        #expect(
            output == #"{"kind":"t","body":"Encrypted message.","a.b":1,"deep":{"k":1},"#
                + #""p":{"o":1,"flag":true,"envelope":"AQID+g"}}"#)
        #expect(content.values.map(\.path) == ["body", "deep.html", "new", #""we.ird \"""#])
        let bytes = String(decoding: content.bytes, as: UTF8.self)
        #expect(
            try Self.opened(
                #"{"kind":"t","body":"","evil":"x","new":2,"p":{"envelope":"AQID+g"}}"#, strict, bytes)
                == #"{"kind":"t","body":"hi","we.ird \"":2,"new":{"x":1},"p":{},"deep":{"html":"h"}}"#)
        // a name that the mapping keeps, or that leads elsewhere, comes from no client's text
        #expect(
            try Self.opened(
                #"{"kind":"t","body":"AQ","p":{"envelope":"AQID"}}"#, strict,
                #"{"body":"x","kind":"evil","p":1,"deep":1,"new.x":1,"$":1}"#)
                == #"{"kind":"t","body":"x","p":{}}"#)
        #expect(throws: MessageFault.loneSurrogate(at: 0)) {
            let source = try document(#"{"body":"x","\ud800":1}"#)
            let reading = MessageReading(source, [strict], target: TargetValues(captures: ["c": "r"]), isRequest: true)
            if let fault = reading.faults.first { throw fault }
        }
        #expect(
            try Self.edited(#"{"kind":"t","body":"* x","new":{"body":"x","z":"y","kind":"u"},"z":1}"#, strict) {
                try $0.replace($1, with: "words")
                _ = $2
            } == #"{"kind":"t","body":"words","new":{"body":"words","kind":"u"}}"#)
    }

    /// A sender chooses the names of what is sealed: none of them may be too much for the gateway.
    @Test func namesOfStrangersAreBounded() throws {
        let strict = try shape(kept: [])
        func fault(_ text: String) throws -> MessageFault? {
            MessageReading(try document(text), [strict], target: TargetValues(captures: ["c": "r"]), isRequest: true)
                .faults.first
        }
        #expect(try fault("{\"body\":\"x\",\"\u{E9}\":1,\"e\u{301}\":2}") == .duplicateNames(at: 0))
        let long = String(repeating: "n", count: FoundMessage.nameLimit)
        #expect(try fault(#"{"body":"x","\#(long)":1}"#) == nil)
        #expect(
            try fault(#"{"body":"x","\#(long)n":1}"#)
                == .unusableName(path: "a member's name", at: long.utf8.count + 16))
        let many = (0..<SealedContent.partLimit).map { #","n\#($0)":1"# }.joined()
        #expect(try fault(#"{"body":"x"\#(many)}"#) == nil)
        #expect(try fault(#"{"body":"x"\#(many),"z":1}"#) == .tooManyParts(at: 0))
        #expect(throws: MessageFault.malformedContent) { try SealedContent(Array(#"{"body":"x"\#(many),"z":1}"#.utf8)) }
        for name in [long, "", "a b", "*", "$", "a.b", #"\""#, "[0]", "é"] {
            let (sealed, content) = try Self.sealed(#"{"body":"x","\#(name)":[1]}"#, strict)
            #expect(sealed == #"{"body":"AQID+g","encrypted":true}"#)
            let bytes = String(decoding: content.bytes, as: UTF8.self)
            #expect(try Self.opened(sealed, strict, bytes) == #"{"body":"x","\#(name)":[1]}"#)
        }
    }

    @Test func aTextThatTheBackendDroppedComesBack() throws {
        let own = try shape(envelope: "envelope")
        #expect(
            try Self.opened(#"{"envelope":"AQID+g","encrypted":true}"#, own, #"{"body":"hi"}"#) == #"{"body":"hi"}"#)
        #expect(
            try Self.opened(#"{"body":null,"envelope":"AQID+g"}"#, own, #"{"body":"hi"}"#) == #"{"body":"hi"}"#)
    }

    @Test func wordsOfTheGatewayStandInThePlaceOfAMessage() throws {
        let words = "[cannot be read]"
        #expect(
            try Self.edited(#"{"body":"AQID+g","html":"<b>x</b>","encrypted":true,"k":1}"#, try shape()) {
                try $0.replace($1, with: words)
                _ = $2
            } == #"{"body":"[cannot be read]","k":1}"#)
        // a client that shows the inner text of an edit shows the same words
        #expect(
            try Self.edited(#"{"body":"* x","m.new":{"body":"x","html":"x","k":1}}"#, try shape()) {
                try $0.replace($1, with: words)
                _ = $2
            } == #"{"body":"[cannot be read]","m.new":{"body":"[cannot be read]","k":1}}"#)
    }

    @Test func everyFormOfATextIsMarked() throws {
        #expect(
            try Self.edited(
                #"{"body":"a\"","html":"<i>a</i>","m.new":{"body":"b","html":"c","n":1}}"#, try shape()
            ) {
                try $0.mark($1, with: "[not encrypted] ")
                _ = $2
            } == #"{"body":"[not encrypted] a\"","html":"[not encrypted] <i>a</i>","#
                + #""m.new":{"body":"[not encrypted] b","html":"[not encrypted] c","n":1}}"#)
        #expect(throws: MessageFault.noText(at: 8)) {
            try Self.edited(#"{"html":["a"]}"#, try shape()) {
                try $0.mark($1, with: "x")
                _ = $2
            }
        }
        #expect(throws: MessageFault.loneSurrogate(at: 19)) {
            try Self.edited(#"{"body":"a","html":"\ud800"}"#, try shape()) {
                try $0.mark($1, with: "x")
                _ = $2
            }
        }
    }

    /// Addresses of files and the like stay whole, and what looks like an envelope is removed.
    @Test func onlyWhatIsShownIsMarked() throws {
        var shape = try shape(kept: ["k"])
        shape.shown = ["html"]
        #expect(
            try Self.edited(
                #"{"body":"a","url":"u","encrypted":true,"html":"h","m.new":{"body":"b","url":"v","html":"c"}}"#, shape
            ) {
                try $0.mark($1, with: "> ")
                _ = $2
            } == #"{"body":"> a","url":"u","html":"> h","m.new":{"body":"> b","url":"v","html":"> c"}}"#)
    }

    @Test func anUnreadableMessageRevealsNothing() throws {
        func blanked(_ text: String, _ shape: MessageShape) throws -> String {
            let source = try document(text)
            let reading = MessageReading(
                source, [shape, shape], target: TargetValues(captures: ["c": "room"]), isRequest: false)
            #expect(reading.unread.count == 2 && reading.obstacles.isEmpty)
            var edits = MessageEdits(source)
            for message in reading.unread { try edits.blank(message, with: "words") }
            return String(buffer: try edits.apply())
        }
        #expect(
            try blanked(#"{"k":1,"body":5,"html":"x","encrypted":true,"m.new":{"body":"x"}}"#, try shape())
                == #"{"k":1,"body":"words"}"#)
        #expect(try blanked(#"{"k":1,"body":"x","id":""}"#, try shape()) == #"{"k":1,"body":"words","id":""}"#)
        #expect(try blanked(#"{"html":"\ud800","id":[]}"#, try shape()) == #"{"id":[],"body":"words"}"#)
        #expect(
            try blanked(
                #"{"kind":"t","\ud800":1,"body":"x","new":1,"p":{"o":1}}"#, try shape(flag: "p.f", kept: ["kind"]))
                == #"{"kind":"t","body":"words"}"#)
        // Nobody knows which of two is meant.
        #expect(
            try blanked(#"{"a":[{"body":"x"}, {"body":1,"body":2}]}"#, try shape("a[*]")) == #"{"a":[{"body":"x"}]}"#)
        #expect(try blanked(#"{"a":{"body":1,"body":2},"b":1}"#, try shape("a")) == #"{"b":1}"#)
        #expect(throws: MessageFault.duplicateNames(at: 0)) { try blanked(#"{"body":1,"body":2}"#, try shape()) }
    }

    /// What throws leaves what was there before it.
    @Test func aChangeThatCannotBeMadeWhollyIsNotMadeAtAll() throws {
        let source = try document(#"[{"body":"a","html":"\ud800"},{"body":"b"}]"#)
        let reading = MessageReading(
            source, [try shape("[*]")], target: TargetValues(captures: ["c": "room"]), isRequest: false)
        var edits = MessageEdits(source)
        try edits.mark(reading.messages[1], with: "> ")
        #expect(throws: MessageFault.self) { try edits.mark(reading.messages[0], with: "> ") }
        #expect(String(buffer: try edits.apply()) == #"[{"body":"a","html":"\ud800"},{"body":"> b"}]"#)
    }

    @Test func whatGoesTakesWithItWhatStandsInIt() throws {
        let source = try document(#"[{"body":"a","last":{"body":"b"}},{"body":"c","last":{"body":"d"}}]"#)
        let reading = MessageReading(
            source, [try shape("[*]"), try shape("[*].last")], target: TargetValues(captures: ["c": "room"]),
            isRequest: false)
        var edits = MessageEdits(source)
        for message in reading.messages { try edits.mark(message, with: "> ") }
        #expect(edits.drop(reading.messages[0]) && edits.drop(reading.messages[0]))
        #expect(String(buffer: try edits.apply()) == #"[{"body":"> c","last":{"body":"> d"}}]"#)
    }

    /// Sealed and opened again a document says what it said, whatever it was, and all bytes outside of the messages are
    /// those that came.
    @Test(arguments: 1...20 as ClosedRange<UInt64>) func sealedAndOpenedIsWhatItWas(_ seed: UInt64) throws {
        var chance = SeededGenerator(seed: seed)
        for _ in 0..<50 {
            let own = Bool.random(using: &chance)
            let form = try shape("list[*]", envelope: own ? "p.envelope" : nil, flag: own ? "p.flag" : "encrypted")
            let count = Int.random(in: 1...4, using: &chance)
            let items = (0..<count).map { number in Self.message(number, &chance) }
            let text = "{ \"list\": [" + items.joined(separator: " , ") + "], \"rest\":1.0e0 }"
            let source = try document(text)
            let reading = MessageReading(source, [form], target: TargetValues(captures: ["c": "r"]), isRequest: true)
            #expect(reading.faults.isEmpty && reading.messages.count == count)
            let contents = try reading.messages.map { try SealedContent(source, $0) }
            var edits = MessageEdits(source)
            for message in reading.messages { try edits.seal(message, envelope: Self.envelope) }
            let sealed = try edits.apply()
            #expect(!String(buffer: sealed).contains("secret"))
            let second = try JSONDocument(sealed)
            let again = MessageReading(second, [form], target: TargetValues(captures: ["c": "r"]), isRequest: false)
            #expect(again.messages.allSatisfy { $0.isFlagged && $0.envelope == Self.envelope })
            var back = MessageEdits(second)
            for (message, content) in zip(again.messages, contents) {
                try back.open(message, try SealedContent(content.bytes))
            }
            let opened = try JSONDocument(try back.apply())
            let last = MessageReading(opened, [form], target: TargetValues(captures: ["c": "r"]), isRequest: true)
            #expect(try last.messages.map { try SealedContent(opened, $0) } == contents)
            #expect(String(buffer: opened.bytes).hasPrefix("{ \"list\": ["))
            #expect(String(buffer: opened.bytes).hasSuffix("], \"rest\":1.0e0 }"))
        }
    }

    private static func message(_ number: Int, _ chance: inout SeededGenerator) -> String {
        var members = [#""body" : "secret \n\u00e9 \#(number)""#, #""k":[1,{"body":"no"}]"#]
        if Bool.random(using: &chance) { members.append(#""html":"<b>secret</b>""#) }
        if Bool.random(using: &chance) { members.append(#""m.new":{ "body":"secret","z":null }"#) }
        if Bool.random(using: &chance) { members.append(#""txn" : "t\#(number)""#) }
        return "{" + members.shuffled(using: &chance).joined(separator: ", ") + "}"
    }

    /// No document of strangers makes reading or editing fail otherwise than by a fault.
    @Test(arguments: 1...10 as ClosedRange<UInt64>) func anyDocumentIsReadOrRefused(_ seed: UInt64) throws {
        var chance = SeededGenerator(seed: seed)
        let names = ["body", "body", "html", "m.new", "encrypted", "txn", "x", "bo\\u0064y"]
        let values = [
            "null", "1", "true", "\"x\"", "\"AQID\"", "\"\\ud800\"", "{}", "[]", #"{"body":"x"}"#, #"{"html":"x"}"#,
            #"{"body":"x","body":"y"}"#, "\u{0}", "\"",
        ]
        var read = 0
        for _ in 0..<500 {
            let items = (0..<Int.random(in: 1...4, using: &chance)).map { _ in
                let members = (0..<Int.random(in: 0...4, using: &chance)).map { _ in
                    "\"\(names.randomElement(using: &chance) ?? "")\":\(values.randomElement(using: &chance) ?? "")"
                }
                return "{" + members.joined(separator: ",") + "}"
            }
            let text = #"{"list":["# + items.joined(separator: ",") + "]}"
            guard let source = try? document(text) else { continue }
            let reading = MessageReading(
                source, [try shape("list[*]"), try shape()], target: TargetValues(captures: ["c": "r"]),
                isRequest: Bool.random(using: &chance))
            var edits = MessageEdits(source)
            for message in reading.messages {
                do throws(MessageFault) {
                    switch Int.random(in: 0..<4, using: &chance) {
                    case 0: try edits.seal(message, envelope: Self.envelope)
                    case 1: try edits.replace(message, with: "words")
                    case 2: try edits.mark(message, with: "words")
                    default: try edits.open(message, try SealedContent(Array(#"{"body":"x","html":1}"#.utf8)))
                    }
                } catch { continue }
            }
            if let output = try? edits.apply() {
                #expect(throws: Never.self) { try JSONDocument(output) }
                read += reading.messages.count
            }
        }
        #expect(read > 20)
    }
}
