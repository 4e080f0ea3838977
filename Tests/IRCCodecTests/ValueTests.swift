import IRCCodec
import NIOCore
import Testing

@Suite struct ValueTests {
    @Test func tagValuesRoundTrip() throws {
        for value in ["", "a b", "semi;colon", "back\\slash", "cr\rlf\n", "ünï"] {
            #expect(TagValue.unescape(Substring(TagValue.escape(value))) == value)
        }
        #expect(TagValue.unescape("a\\") == "a")
        #expect(TagValue.unescape("\\b") == "b")
        #expect(TagValue.escape("a\u{0}b") == "ab")
        let keys = ["+a", "+draft/reply", "+vendor.example/x-1", "+", "a", "+a b", "+a\r", "+a_", "+:b", "+ä"]
        #expect(keys.map { IRCTag(key: $0, value: "").isValidClientOnly } == keys.indices.map { $0 < 3 })
    }

    @Test func aTextIsOneLine() {
        #expect(ByteBuffer(line: "a\r\nb\u{0}c") == ByteBuffer(string: "a  b c\r\n"))
    }

    @Test func longTextsAreBroken() {
        let lengths = { (text: [UInt8], room: Int, reserve: Int) in
            LineBreaker.pieces(text, room: room, reserve: reserve).map(\.count)
        }
        // Bytes that continue no character cost no more lines than others.
        #expect(lengths([UInt8](repeating: 0x80, count: 497), 100, 0) == [100, 100, 100, 100, 97])
        #expect(lengths([UInt8](repeating: 0x78, count: 250), 100, 10) == [100, 90, 60])
        #expect(lengths(Array(String(repeating: "\u{1F600}", count: 20).utf8), 31, 0) == [28, 28, 24])
        let broken = LineBreaker.pieces(Array("abcdef \u{1}\u{1}DCC".utf8), room: 8)
        #expect(broken == ["abcdef", "DCC"].map { Array($0.utf8) })
        let action = LineBreaker.pieces(Array("\u{1}ACTION abc def\u{1}".utf8), room: 14)
        #expect(action == ["\u{1}ACTION abc\u{1}", "\u{1}ACTION def\u{1}"].map { Array($0.utf8) })
    }

    @Test func tagsOfALine() throws {
        let line = try IRCLine(ByteBuffer(string: "@a;b=;c=x\\sy;+d=1;a=2 PING"))
        #expect(line.tagList.map(\.key) == ["a", "b", "c", "+d", "a"])
        #expect(line.tag("a") == "2")
        #expect(line.tag("c") == "x y")
        #expect(line.tag("z") == nil)
        #expect(line.tagList[3].isClientOnly)
    }

    @Test func caseMappings() {
        #expect(CaseMapping.ascii.fold("AB[]") == "ab[]")
        #expect(CaseMapping.rfc1459.fold("AB[]\\^") == "ab{}|~")
        #expect(CaseMapping.strictRFC1459.fold("[]\\^") == "{}|^")
        #expect(CaseMapping(announced: "RFC1459") == .rfc1459 && CaseMapping(announced: "rfc7613") == nil)
        for name in ["rfc1459-strict", "Strict-RFC1459"] { #expect(CaseMapping(announced: name) == .strictRFC1459) }
        let names = ["Alice-1_`", "a[", "a]", "a\\", "a^", "a{", "a}", "a|", "a~", "\u{E9}"]
        #expect(names.map { CaseMapping.areAgreed(about: $0) } == [true] + Array(repeating: false, count: 9))
    }

    /// Under a mapping that nobody knows, as few names as possible are one.
    @Test func unknownCaseMapping() throws {
        var support = ServerSupport()
        func announce(_ value: String) throws {
            support.absorb(try IRCLine(ByteBuffer(string: ":s 005 me CASEMAPPING=\(value) :are supported")))
        }
        try announce("rfc1459")
        try announce("rfc7613")
        #expect(support.caseMapping == .ascii && !support.namesCaseMapping && support.hasUnknownCaseMapping)
        try announce("strict-rfc1459")
        #expect(support.caseMapping == .strictRFC1459 && support.namesCaseMapping && !support.hasUnknownCaseMapping)
    }

    @Test func masks() {
        #expect(Mask.matches("*Serv", "NickServ"))
        #expect(Mask.matches("services.*", "Services.example.org"))
        #expect(!Mask.matches("services.*", "evil.services.example.org"))
        #expect(Mask.matches("a?c*", "abcdef"))
        #expect(!Mask.matches("", "a"))
        #expect(Mask.matches("*", ""))
        #expect(!Mask.matches(String(repeating: "*a", count: 40), String(repeating: "b", count: 400)))
    }

    @Test func serverSupport() throws {
        var support = ServerSupport()
        #expect(support.caseMapping == .rfc1459)
        support.absorb(
            try IRCLine(
                ByteBuffer(
                    string: ":s 005 me CASEMAPPING=ascii CHANTYPES=# STATUSMSG=@+ NICKLEN=31 NETWORK=Lab :are supported"
                )))
        #expect(support.caseMapping == .ascii)
        #expect(support.nickLength == 31)
        #expect(support.network == "Lab")
        #expect(support.isRoom(UInt8(ascii: "#"), then: nil))
        #expect(support.isRoom(UInt8(ascii: "@"), then: UInt8(ascii: "#")))
        #expect(!support.isRoom(UInt8(ascii: "@"), then: UInt8(ascii: "a")))
        #expect(!support.isRoom(UInt8(ascii: "b"), then: nil))
        support.absorb(try IRCLine(ByteBuffer(string: ":s 005 me NICKLEN=99999999999999999999 :are supported")))
        #expect(support.nickLength == 31)
    }

    @Test func ctcp() {
        #expect(CTCP(Array("\u{1}ACTION waves\u{1}".utf8)) == .action)
        #expect(CTCP(Array("\u{1}dcc SEND x\u{1}".utf8)) == .dcc)
        #expect(CTCP(Array("\u{1}VERSION\u{1}".utf8)) == .other("VERSION"))
        #expect(CTCP(Array("hello".utf8)) == nil)
        #expect(CTCP(Array("\u{1}".utf8)) == .other(""))
    }
}
