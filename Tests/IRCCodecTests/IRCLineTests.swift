import IRCCodec
import NIOCore
import TestKit
import Testing

/// A line between garbage margins, so that reading over its end shows.
private func line(_ text: String) throws -> IRCLine {
    var buffer = ByteBuffer(string: "hello" + text + "hallo")
    buffer.moveReaderIndex(forwardBy: 5)
    return try IRCLine(buffer.readSlice(length: text.utf8.count) ?? ByteBuffer())
}

@Suite struct IRCLineTests {
    struct Case: Sendable {
        var text: String
        var tags: String
        var source: String
        var verb: String
        var parameters: [String]
    }

    static let cases: [Case] = [
        Case(text: "PING", tags: "", source: "", verb: "PING", parameters: []),
        Case(text: "ping :a b", tags: "", source: "", verb: "ping", parameters: ["a b"]),
        Case(
            text: "PRIVMSG bob :hello there", tags: "", source: "", verb: "PRIVMSG", parameters: ["bob", "hello there"]),
        Case(text: "PRIVMSG bob hello", tags: "", source: "", verb: "PRIVMSG", parameters: ["bob", "hello"]),
        Case(text: "PRIVMSG bob ::)", tags: "", source: "", verb: "PRIVMSG", parameters: ["bob", ":)"]),
        Case(text: "PRIVMSG bob :", tags: "", source: "", verb: "PRIVMSG", parameters: ["bob", ""]),
        Case(
            text: "@a=1;+b :n!u@h  NOTICE   #c  :x", tags: "a=1;+b", source: "n!u@h", verb: "NOTICE",
            parameters: ["#c", "x"]),
        Case(text: ":srv 001 me :Welcome", tags: "", source: "srv", verb: "001", parameters: ["me", "Welcome"]),
        Case(text: "MODE #c +o a ", tags: "", source: "", verb: "MODE", parameters: ["#c", "+o", "a"]),
        Case(
            text: "X 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", tags: "", source: "", verb: "X",
            parameters: (1...14).map(String.init) + ["15 16"]),
    ]

    @Test(arguments: cases) func parts(_ expected: Case) throws {
        let parsed = try line(expected.text)
        #expect(parsed.string(parsed.tags) == expected.tags)
        #expect(parsed.string(parsed.source) == expected.source)
        #expect(parsed.string(parsed.verbSpan) == expected.verb)
        #expect(parsed.parameters.map(parsed.string) == expected.parameters)
        for (index, text) in expected.parameters.enumerated() { #expect(parsed.text(index) == text) }
        #expect(parsed.parameter(expected.parameters.count) == nil)
    }

    static let refused: [(String, IRCParseError)] = [
        ("", .empty), ("   ", .empty), ("@a=1", .missingVerb), ("@a=1   ", .missingVerb), (":src", .missingVerb),
        (":src ", .missingVerb), ("12", .malformedVerb), ("1234 x", .malformedVerb), ("PRIV-MSG x", .malformedVerb),
        ("ABCDEFGHIJKLMNOPQ x", .malformedVerb), ("@" + String(repeating: "a", count: 8190) + " PING", .tooLong),
        (String(repeating: "A ", count: 4400), .tooLong),
    ]

    @Test(arguments: refused) func refusals(_ text: String, _ error: IRCParseError) {
        #expect(throws: error) { try line(text) }
    }

    @Test func everyTruncationIsParsedOrRefused() throws {
        let whole = "@time=2;+x=\\:y :nick!user@host.example PRIVMSG #room,bob :some text"
        for length in 0..<whole.utf8.count {
            let cut = String(decoding: whole.utf8.prefix(length), as: UTF8.self)
            if let parsed = try? line(cut) {
                // Whatever is read stands in the line.
                for span in parsed.parameters { #expect(cut.contains(parsed.string(span))) }
                #expect(parsed.withoutTags.readableBytes <= cut.utf8.count)
            }
        }
    }

    @Test func randomBytesNeverTrap() {
        var generator = SeededGenerator(seed: 7)
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0...80, using: &generator)).map { _ in
                [0x20, 0x3A, 0x40, 0x21, 0x3B, 0x00, 0x41, 0xFF, 0x3D][Int.random(in: 0..<9, using: &generator)]
                    as UInt8
            }
            guard let parsed = try? IRCLine(ByteBuffer(bytes: bytes)) else { continue }
            _ = parsed.parameters.map(parsed.string)
            _ = parsed.tagList
            _ = (parsed.sourceNick, parsed.sourceHost, parsed.withoutTags, parsed.containsNULOrCR)
        }
    }

    @Test func sources() throws {
        let person = try line(":alice!~a@host.example PRIVMSG b :x")
        #expect(person.string(person.sourceNick) == "alice")
        #expect(person.string(person.sourceHost) == "host.example")
        #expect(person.sourceIsPerson)
        let server = try line(":irc.example.org NOTICE b :x")
        #expect(server.string(server.sourceNick) == "irc.example.org")
        #expect(!server.sourceIsPerson)
    }

    @Test func invalidUTF8AndNULSurvive() throws {
        let parsed = try IRCLine(ByteBuffer(bytes: Array("PRIVMSG b :".utf8) + [0xFF, 0xFE, 0x00, 0x41]))
        let span = try #require(parsed.parameter(1))
        #expect(Array(parsed.slice(span).readableBytesView) == [0xFF, 0xFE, 0x00, 0x41])
        #expect(parsed.containsNULOrCR)
    }

    @Test func nulAndCRAreFoundAnywhere() throws {
        let text = Array("PRIVMSG b :\u{1}ACTION \u{3}04,\u{B}ünï \u{2}\t\u{C}\u{E}\u{1F}\u{FF}x\u{1}".utf8)
        #expect(try !IRCLine(ByteBuffer(bytes: text)).containsNULOrCR)
        for byte in [0, 0x0D] as [UInt8] {
            for place in 11...text.count {
                var altered = text
                altered.insert(byte, at: place)
                #expect(try IRCLine(ByteBuffer(bytes: altered)).containsNULOrCR, "\(byte) at \(place)")
            }
        }
    }

    @Test func verbKeys() throws {
        #expect(try line("PrivMsg b :x").key == VerbKey("PRIVMSG"))
        #expect(try line("AUTHENTICATE +").key == VerbKey("AUTHENTICATE"))
        #expect(try line("433 * x :in use").key.numeric == 433)
        #expect(VerbKey("PRIVMSG").numeric == nil)
        #expect(VerbKey("CHATHISTORY") != VerbKey("CHATHIST"))
    }
}
