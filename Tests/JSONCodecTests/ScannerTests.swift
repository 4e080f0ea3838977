import NIOCore
import Testing

@testable import JSONCodec

@Suite struct ScannerTests {
    /// RFC 8259 section 13, and what a chat says.
    static let examples = [
        """
        {
          "Image": {
              "Width":  800,
              "Height": 600,
              "Title":  "View from 15th Floor",
              "Thumbnail": {
                  "Url":    "http://www.example.com/image/481989943",
                  "Height": 125,
                  "Width":  100
              },
              "Animated" : false,
              "IDs": [116, 943, 234, 38793]
            }
        }
        """,
        """
        [
          {"precision": "zip", "Latitude": 37.7668, "Longitude": -122.3959, "Address": "", "State": "CA"},
          {"precision": "zip", "Latitude": 37.371991, "Longitude": -122.026020, "Address": ""}
        ]
        """,
        #"{"type":"m.room.message","content":{"msgtype":"m.text","body":"na\u00efve \ud83d\ude00 \"q\" \/ ünï 😀"}}"#,
        #" [ [ ] , { } , "" , 0 , -0 , 1e5 , -1.5E-10 , 0.0e+0 , true , false , null ] "#,
        #""Hello world!""#, "42", "true", "null", "-0.5", "\t\r\n 1 \t\r\n", #""\u0000""#, #""\b\f\n\r\t\"\\\/""#,
    ]

    @Test(arguments: examples) func validDocumentsAreTaken(_ text: String) throws {
        let document = try document(text)
        #expect(document.bytes.text == text)
    }

    @Test func theIndexNamesEveryValueInItsPlace() throws {
        let document = try document(#" {"a" : [1, {"b":null}], "c":"x\n"} "#)
        let root = document.root
        #expect(document.range(root) == 1..<35)
        #expect(document.count(root) == 2 && document.valueCount == 6)
        let children = Array(document.children(root))
        #expect(children.map(document.written) == [#"[1, {"b":null}]"#, #""x\n""#])
        #expect(Array(document.children(children[0])).map(document.written) == ["1", #"{"b":null}"#])
        #expect(document.kind(children[0]) == .array && document.kind(children[1]) == .string)
        #expect(Array(document.children(children[1])).isEmpty)
    }

    typealias Refusal = (text: String, code: JSONError.Code, offset: Int)

    static let refusals: [Refusal] = [
        ("", .empty, 0), ("  \n", .empty, 3), ("{", .endsEarly, 1), ("[1,", .endsEarly, 3), ("[1", .endsEarly, 2),
        (#"{"a""#, .endsEarly, 4), (#"{"a":"#, .endsEarly, 5), (#"{"a":1,"#, .endsEarly, 7), ("\"abc", .endsEarly, 4),
        ("tru", .endsEarly, 3), ("-", .endsEarly, 1), ("1.", .endsEarly, 2), ("1e", .endsEarly, 2),
        ("1e+", .endsEarly, 3), (#""\"#, .endsEarly, 2), (#""\u12"#, .endsEarly, 5),
        ("[1,]", .unexpectedByte, 3), ("[,1]", .unexpectedByte, 1), (#"{"a":1,}"#, .unexpectedByte, 7),
        (#"{"a" 1}"#, .unexpectedByte, 5), (#"{"a",1}"#, .unexpectedByte, 4), ("{1:2}", .unexpectedByte, 1),
        ("{a:1}", .unexpectedByte, 1), ("['a']", .unexpectedByte, 1), ("[1 2]", .unexpectedByte, 3),
        ("[1}", .unexpectedByte, 2), (#"{"a":1]"#, .unexpectedByte, 6), ("]", .unexpectedByte, 0),
        ("}", .unexpectedByte, 0), ("[-]", .unexpectedByte, 2), ("[+1]", .unexpectedByte, 1),
        ("[.5]", .unexpectedByte, 1), ("[1.]", .unexpectedByte, 3), ("[1.e5]", .unexpectedByte, 3),
        ("[1e]", .unexpectedByte, 3), ("[1e+]", .unexpectedByte, 4), ("[01]", .unexpectedByte, 2),
        ("[-01]", .unexpectedByte, 3), ("[00]", .unexpectedByte, 2), ("[0x1]", .unexpectedByte, 2),
        ("[NaN]", .unexpectedByte, 1), ("[Infinity]", .unexpectedByte, 1), ("[-Infinity]", .unexpectedByte, 2),
        ("[nul]", .unexpectedByte, 4), ("[True]", .unexpectedByte, 1), ("[truee]", .unexpectedByte, 5),
        ("[1]//", .trailingBytes, 3), ("/**/[1]", .unexpectedByte, 0), ("\u{FEFF}[1]", .unexpectedByte, 0),
        ("[1]\u{FEFF}", .trailingBytes, 3), ("1 2", .trailingBytes, 2), ("{}{}", .trailingBytes, 2),
        ("[1]\0", .trailingBytes, 3), ("\u{A0}1", .unexpectedByte, 0), ("[1\u{0C}]", .unexpectedByte, 2),
        ("\"a\nb\"", .controlCharacter, 2), ("\"a\u{1F}b\"", .controlCharacter, 2), ("\"\0\"", .controlCharacter, 1),
        (#""\x41""#, .invalidEscape, 1), (#""\U0041""#, .invalidEscape, 1), (#""\u00g0""#, .invalidEscape, 1),
        (#""\u+123""#, .invalidEscape, 1), (#""\'""#, .invalidEscape, 1), (#""\u12""#, .invalidEscape, 1),
        (#""\ud83d\u12""#, .invalidEscape, 7),
    ]

    @Test func whatIsWrongIsNamedWithItsPlace() {
        for (text, code, offset) in Self.refusals {
            #expect(refusal(text) == JSONError(code, at: offset), "\(text)")
        }
    }

    @Test func errorsSpeakInWordsWithoutTheDocument() {
        for code in JSONError.Code.allCases {
            #expect(JSONError(code, at: 7).description.hasSuffix("(byte 7)"))
        }
    }

    /// A document that is cut is never taken for a whole one, and nothing else is said of it.
    @Test(arguments: examples) func cutAtEveryByte(_ text: String) throws {
        let bytes = Array("[\(text)]".utf8)
        for count in 1..<bytes.count {
            #expect(refusal(Array(bytes[..<count])) == JSONError(.endsEarly, at: count))
        }
    }

    /// What stands in front of and behind a document in the same buffer is none of its business.
    @Test(arguments: examples) func betweenGarbage(_ text: String) throws {
        var buffer = ByteBuffer(string: "]]\"{")
        buffer.writeString(text)
        buffer.writeString("\"}}]")
        let slice = try #require(buffer.getSlice(at: 4, length: text.utf8.count))
        let between = try JSONDocument(slice)
        #expect(between.dump == (try document(text)).dump)
    }

    // MARK: UTF-8

    /// RFC 3629 section 4: every class of bytes that is not UTF-8, as text and as a name.
    static let notUTF8: [[UInt8]] = [
        [0x80], [0xBF], [0xC0, 0x80], [0xC1, 0xBF], [0xC2, 0x20], [0xC2, 0xC2], [0xE0, 0x80, 0x80], [0xE0, 0x9F, 0xBF],
        [0xE1, 0x80, 0x20], [0xE1, 0x20, 0x80], [0xED, 0xA0, 0x80], [0xED, 0xBF, 0xBF], [0xEF, 0xBF, 0x7F],
        [0xF0, 0x80, 0x80, 0x80], [0xF0, 0x8F, 0xBF, 0xBF], [0xF1, 0x80, 0x80, 0x20], [0xF1, 0x80, 0x20, 0x80],
        [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80], [0xF8, 0x88, 0x80, 0x80, 0x80], [0xFE], [0xFF],
    ]

    @Test(arguments: notUTF8) func bytesThatAreNotUTF8AreRefused(_ sequence: [UInt8]) {
        for pad in 0..<9 {
            let before = Array(String(repeating: "x", count: pad).utf8)
            let text = Array("[\"".utf8) + before + sequence + Array("\"]".utf8)
            #expect(refusal(text) == JSONError(.invalidUTF8, at: 2 + pad))
            let name = Array("{\"".utf8) + before + sequence + Array("\":1}".utf8)
            #expect(refusal(name) == JSONError(.invalidUTF8, at: 2 + pad))
        }
    }

    /// Each first and second byte, and all else, as Swift's own decoder judges it.
    @Test func allPairsAndEdgesOfUTF8() {
        var sequences: [[UInt8]] = []
        for first in UInt8(0x80)...0xFF {
            for second in UInt8(0x20)...0xFF where second != 0x22 && second != 0x5C {
                sequences += [[first, second], [first, second, 0x80], [first, second, 0xBF, 0xBF]]
            }
        }
        var taken = 0
        for sequence in sequences {
            let isText = String(validating: sequence, as: UTF8.self) != nil
            let refused = refusal([0x22] + sequence + [0x22])
            if isText { taken += 1 }
            #expect(isText == (refused == nil) && (isText || refused?.code == .invalidUTF8), "\(sequence)")
        }
        #expect(taken > 1000)
    }

    /// Eight bytes are looked at together: each byte is seen at each place among them, and beside what is special itself.
    @Test func everyByteAtEveryPlaceOfAString() {
        for neighbour in [UInt8(ascii: "a"), 0x7F, 0x21, 0x23, 0x5B, 0x5D] {
            for place in 0..<17 {
                for byte in UInt8(0)...0x7F where byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\") {
                    var text = [UInt8](repeating: neighbour, count: 17)
                    text[place] = byte
                    let expected = byte < 0x20 ? JSONError(.controlCharacter, at: 1 + place) : nil
                    #expect(refusal([0x22] + text + [0x22]) == expected)
                }
                var text = [UInt8](repeating: neighbour, count: 17)
                text[place] = UInt8(ascii: "\"")
                let end: JSONError? = place == 16 ? nil : JSONError(.trailingBytes, at: place + 2)
                #expect(refusal([0x22] + text + (place == 16 ? [] : [0x22])) == end)
            }
        }
    }

    // MARK: Surrogates

    @Test(arguments: [
        #""\ud800""#, #""\udc00""#, #""\udbffx""#, #""\ud83d\ud83d""#, #""\ude00\ud83d""#, #""a\ud83d\n""#,
        #""\ud83d\u0041""#, #""\uD83D😀""#,
    ]) func halfASurrogatePairPassesAndIsNoText(_ text: String) throws {
        let document = try document("[\(text),\"fine\"]")
        let children = Array(document.children(document.root))
        #expect(document.written(children[0]) == text)
        #expect(throws: JSONReadError.loneSurrogate) { try document.text(children[0]) }
        #expect(try document.text(children[1]) == "fine")
        // as a name as well: it is found by no text
        let object = try JSONCodecTests.document("{\(text):1}")
        let value = try #require(Array(object.children(object.root)).first)
        #expect(throws: JSONReadError.loneSurrogate) { try object.name(value) }
    }

    @Test func twoHalvesAreOne() throws {
        let document = try document(#"["\ud83d\ude00","\uD834\uDD1E","\ud800\udc00","\udbff\udfff"]"#)
        let texts = try document.children(document.root).map { try document.text($0) }
        #expect(texts == ["😀", "𝄞", "\u{10000}", "\u{10FFFF}"])
    }

    // MARK: Names that stand twice

    @Test func duplicateNamesAreSeenThroughEscapes() throws {
        for text in [
            #"{"a":1,"a":2}"#, #"{"a":1,"\u0061":2}"#, #"{"é":1,"\u00e9":2}"#, #"{"😀":1,"\ud83d\ude00":2}"#,
            #"{"":1,"x":2,"":3}"#, #"{"\/":1,"/":2}"#, #"{"\ud800":1,"\uD800":2}"#,
        ] {
            let document = try document(text)
            #expect(document.hasDuplicateNames(document.root) && document.hasDuplicateNames, "\(text)")
        }
        let decomposed = "{\"\u{E9}\":1,\"e\u{301}\":2}"
        for text in [
            #"{"a":1,"A":2}"#, #"{"a":{"a":1},"b":{"a":1}}"#, decomposed, #"{"a":1,"a\u0000":2}"#, "{}",
        ] {
            #expect(!(try document(text).hasDuplicateNames), "\(text)")
        }
    }

    @Test(arguments: [2, 16, 17, 18, 300]) func duplicateNamesAreSeenInObjectsOfAnySize(_ count: Int) throws {
        let members = (0..<count).map { #""name\#($0)":\#($0)"# }
        #expect(!(try document("{" + members.joined(separator: ",") + "}").hasDuplicateNames))
        for twice in [0, count / 2, count - 1] {
            let text = "{" + (members + [#""n\u0061me\#(twice)":0"#]).joined(separator: ",") + "}"
            #expect(try document(text).hasDuplicateNames)
        }
    }

    @Test func onlyTheObjectItselfIsMarked() throws {
        let document = try document(#"{"a":{"x":1,"x":2},"b":{}}"#)
        let children = Array(document.children(document.root))
        #expect(!document.hasDuplicateNames(document.root))
        #expect(children.map(document.hasDuplicateNames) == [true, false])
    }

    // MARK: Bounds

    /// A million brackets: refused at the limit, and with the limit raised taken, without a stack to overflow.
    @Test func deepDocuments() throws {
        let count = 1_000_000
        let open = [UInt8](repeating: UInt8(ascii: "["), count: count)
        let whole = open + [UInt8](repeating: UInt8(ascii: "]"), count: count)
        #expect(refusal(open) == JSONError(.tooDeep, at: 128))
        #expect(refusal(whole) == JSONError(.tooDeep, at: 128))
        var limits = JSONLimits.standard
        limits.depth = count
        #expect(refusal(open, limits: limits) == JSONError(.endsEarly, at: count))
        let deep = try document(whole, limits: limits)
        #expect(deep.range(deep.root) == 0..<(2 * count) && deep.valueCount == count)
        let path = try JSONPath("[0][0][*][?a == 1]")
        #expect(try deep.places(path).isEmpty)
    }

    @Test func everyBoundIsExact() {
        func limits(_ change: (inout JSONLimits) -> Void) -> JSONLimits {
            var limits = JSONLimits.standard
            change(&limits)
            return limits
        }
        let cases: [(JSONLimits, fits: String, not: String, JSONError)] = [
            (limits { $0.size = 5 }, "[1,2]", "[1,23]", JSONError(.tooLarge, at: 5)),
            (limits { $0.depth = 2 }, "[{},[]]", "[[1,[]]]", JSONError(.tooDeep, at: 4)),
            (limits { $0.depth = 0 }, "1", "[]", JSONError(.tooDeep, at: 0)),
            (limits { $0.members = 2 }, "[1,2]", "[1,2,3]", JSONError(.tooManyMembers, at: 5)),
            (
                limits { $0.members = 1 }, #"{"a":{"a":1}}"#, #"{"a":1,"b":2}"#, JSONError(.tooManyMembers, at: 11)
            ),
            (limits { $0.values = 3 }, "[1,2]", "[1,[2]]", JSONError(.tooManyValues, at: 4)),
            (limits { $0.stringLength = 3 }, #"["abc"]"#, #"["a\n\n"]"#, JSONError(.stringTooLong, at: 1)),
            (limits { $0.stringLength = 1 }, #"{"a":1}"#, #"{"ab":1}"#, JSONError(.stringTooLong, at: 1)),
            (limits { $0.numberLength = 3 }, "[1e5]", "[-1e5]", JSONError(.numberTooLong, at: 1)),
        ]
        for (limits, fits, not, error) in cases {
            #expect(refusal(fits, limits: limits) == nil, "\(fits)")
            #expect(refusal(not, limits: limits) == error, "\(not)")
        }
    }

    @Test func hugeDocuments() throws {
        let text = String(repeating: "a", count: JSONLimits.standard.stringLength)
        #expect(try document("[\"\(text)\"]").valueCount == 2)
        #expect(refusal("[\"a\(text)\"]")?.code == .stringTooLong)
        let elements = String(repeating: "0,", count: JSONLimits.standard.members - 1)
        let document = try document("[\(elements)0]")
        #expect(document.count(document.root) == JSONLimits.standard.members)
        #expect(refusal("[\(elements)0,0]")?.code == .tooManyMembers)
    }
}
