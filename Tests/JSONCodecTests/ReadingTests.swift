import Testing

@testable import JSONCodec

@Suite struct ReadingTests {
    @Test func textsComeWithoutTheirEscapes() throws {
        let document = try document(#"["","plain","\"\\\/\b\f\n\r\t","\u0041\u00e9\u20AC\uffff\u0000","é😀"]"#)
        let texts = try document.children(document.root).map { try document.text($0) }
        #expect(texts == ["", "plain", "\"\\/\u{8}\u{C}\n\r\t", "Aé€\u{FFFF}\0", "é😀"])
        for (place, text) in zip(document.children(document.root), texts) {
            #expect(
                document.hasText(text, place) && !document.hasText(text + "x", place) && !document.hasText("?", place))
        }
    }

    @Test func escapesAtTheEdgesOfUTF8() throws {
        let edges: [UInt32] = [0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF]
        for value in edges {
            let digits = String(value, radix: 16)
            let document = try document("\"\\u" + String(repeating: "0", count: 4 - digits.count) + digits + "\"")
            let scalar = try #require(Unicode.Scalar(value))
            #expect(try document.utf8(document.root) == Array(String(scalar).utf8))
        }
    }

    @Test func membersBesidesNamedOnes() throws {
        let document = try document(#"{"a":{"liquid":1,"b":2,"costarring":3},"é":4,"c":[5],"d":{"\u0062":6}}"#)
        func rest(_ path: String, _ names: [String]) throws -> [String?]? {
            let object = try #require(try document.place(JSONPath(path)))
            return try document.members(of: object, besides: JSONNames(names))?.map { try document.name($0) }
        }
        #expect(try rest("a", ["costarring", "x"]) == ["liquid", "b"])
        #expect(try rest("a", []) == ["liquid", "b", "costarring"])
        #expect(try rest("a", ["b", "liquid", "costarring"]) == [])
        #expect(try rest("$", []) == nil && rest("c", []) == nil && rest("d", []) == nil)
    }

    /// Names with the same hash are not the same name.
    @Test func hashesAreNotNames() throws {
        let pairs = [("costarring", "liquid"), ("declinate", "macallums"), ("altarage", "zinke")]
        for (left, right) in pairs {
            #expect(JSONName(Array(left.utf8)).hash == JSONName(Array(right.utf8)).hash)
            let document = try document(#"{"\#(left)":1,"\#(right)":2}"#)
            #expect(!document.hasDuplicateNames)
            #expect(document.member(right, of: document.root).map(document.written) == "2")
        }
        let names = pairs.flatMap { [$0, $1] } + (0..<20).map { "n\($0)" }
        for twice in [nil] + pairs.flatMap({ [$0, $1] }) {
            let members = (names + (twice.map { [$0] } ?? [])).map { "\"\($0)\":0" }.joined(separator: ",")
            #expect(try document("{\(members)}").hasDuplicateNames == (twice != nil))
        }
    }

    @Test func scalarsAreReadAsWhatTheyAreAndAsNothingElse() throws {
        let document = try document(#"["1",1.50e2,true,false,null,[],{}]"#)
        let places = Array(document.children(document.root))
        #expect(places.map(document.kind) == [.string, .number, .boolean, .boolean, .null, .array, .object])
        #expect(places.map(document.numberText) == [nil, "1.50e2", nil, nil, nil, nil, nil])
        #expect(places.map(document.integer) == [nil, 150, nil, nil, nil, nil, nil])
        #expect(places.map(document.boolean) == [nil, nil, true, false, nil, nil, nil])
        #expect(places.map(document.isNull) == [false, false, false, false, true, false, false])
        for place in places.dropFirst() {
            #expect(throws: JSONReadError.notAString) { try document.text(place) }
            #expect(!document.hasText("1", place))
        }
    }

    @Test func wholeNumbersAreExact() throws {
        let cases: [(String, Int?)] = [
            ("0", 0), ("-0", 0), ("-0.0e9", 0), ("12", 12), ("12.0", 12), ("1.2e1", 12), ("120e-1", 12),
            ("1e18", 1_000_000_000_000_000_000),
            ("9223372036854775807", .max), ("-9223372036854775808", .min), ("9223372036854775808", nil),
            ("-9223372036854775809", nil), ("1e19", nil), ("0.5", nil), ("1e-1", nil), ("1e99999999999999999999", nil),
            ("0e99999999999999999999", 0), ("1e-99999999999999999999", nil),
            ("9007199254740993", 9_007_199_254_740_993),
        ]
        for (text, value) in cases {
            let document = try document(text)
            #expect(document.integer(document.root) == value, "\(text)")
        }
    }

    @Test func membersAreFoundByName() throws {
        let document = try document(#"{"a":1,"na\u00efve":2,"a.b":{"c":[3]},"":4}"#)
        let root = document.root
        #expect(document.member("a", of: root).map(document.written) == "1")
        #expect(document.member("naïve", of: root).map(document.written) == "2")
        #expect(document.member("", of: root).map(document.written) == "4")
        #expect(document.member("b", of: root) == nil && document.member("c", of: root) == nil)
        let inner = try #require(document.member("a.b", of: root))
        #expect(document.member("c", of: inner).map(document.written) == "[3]")
        #expect(try document.name(inner) == "a.b" && document.name(root) == nil)
        #expect(try document.children(root).map { try document.name($0) } == ["a", "naïve", "a.b", ""])
        #expect(document.member("a", of: try #require(document.member("a", of: root))) == nil)
    }
}

@Suite struct WritingTests {
    @Test func stringsAreWrittenInTheShortestForm() throws {
        #expect(JSONFragment.string("a/é😀\u{7F}\u{2028}").bytes == Array("\"a/é😀\u{7F}\u{2028}\"".utf8))
        let escaped = #""\"\\\b\f\n\r\t\u0000\u001f\u000b""#
        #expect(JSONFragment.string("\"\\\u{8}\u{C}\n\r\t\0\u{1F}\u{B}").bytes == Array(escaped.utf8))
    }

    /// Every code point, in blocks, comes back as what it was.
    @Test func everyCodePointComesBack() throws {
        let scalars = (UInt32(0)...0x10FFFF).lazy.compactMap(Unicode.Scalar.init)
        var block = String.UnicodeScalarView()
        for scalar in scalars where scalar.value < 0x3000 || scalar.value % 61 == 0 { block.append(scalar) }
        let text = String(block)
        let document = try document(JSONFragment.string(text).bytes)
        #expect(try document.text(document.root) == text)
    }

    @Test func valuesAreValidByConstruction() throws {
        let value = JSONFragment.object([
            ("a\"", .array([.null, .boolean(true), .integer(-5), .base64("QUJD+/=-_".utf8)])), ("b", .array([])),
            ("c", .object([])),
        ])
        #expect(
            String(decoding: value.bytes, as: UTF8.self)
                == #"{"a\"":[null,true,-5,"QUJD+/=-_"],"b":[],"c":{}}"#)
        #expect(try document(value.bytes).valueCount == 8)
        let source = try document(#"{"a": [1, 2.0 ]}"#)
        let place = try #require(source.member("a", of: source.root))
        #expect(JSONFragment(source, place).bytes == Array("[1, 2.0 ]".utf8))
    }

    @Test func numbersAreNumbers() {
        for text in ["0", "-1", "1.50", "1e5"] { #expect(JSONFragment(number: text)?.bytes == Array(text.utf8)) }
        for text in ["", " 1", "1 ", "01", "+1", "1.", "true", "[]", "\"1\"", "NaN", "1,2"] {
            #expect(JSONFragment(number: text) == nil)
        }
    }
}
