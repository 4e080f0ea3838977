import NIOCore
import TestKit
import Testing

@testable import JSONCodec

/// Documents inside strings are read and edited as if they were not in strings.
@Suite struct ParsingTests {
    private static let posted =
        #"{"event":"posted","data":{"name":"Ann","post": "{\"id\":\"p1\", \"message\":\"h\\u00e9 \\\"x\\\"\"}"},"n":1}"#

    private static func parsed(_ text: String, _ paths: String...) throws -> JSONDocument {
        try document(text).parsing(paths.map { try JSONPath($0) })
    }

    @Test func pathsAndEditsGoThroughTheString() throws {
        let source = try Self.parsed(Self.posted, "data.post")
        let message = try #require(try source.place(JSONPath("data.post.message")))
        #expect(try source.text(message) == "hé \"x\"")
        #expect(source.received.text == Self.posted)
        var edits = JSONEdits(source)
        #expect(try edits.apply().text == Self.posted)
        edits.replace(message, with: .string("\"\n"))
        edits.insert("flag", .boolean(true), beside: message)
        let expected = Self.posted.replacing(
            #"{\"id\":\"p1\", \"message\":\"h\\u00e9 \\\"x\\\"\"}"#,
            with: #"{\"id\":\"p1\", \"message\":\"\\\"\\n\",\"flag\":true}"#)
        #expect(try edits.apply().text == expected)
    }

    @Test func aStringWithoutAnEditKeepsItsBytes() throws {
        let source = try Self.parsed(Self.posted, "data.post")
        var edits = JSONEdits(source)
        edits.replace(try #require(try source.place(JSONPath("n"))), with: .integer(2))
        edits.remove(try #require(try source.place(JSONPath("data.name"))))
        let expected = Self.posted.replacing(#""n":1"#, with: #""n":2"#).replacing(#""name":"Ann","#, with: "")
        #expect(try edits.apply().text == expected)
    }

    @Test func aStringIsRemovedWithWhatHoldsIt() throws {
        let source = try Self.parsed(Self.posted, "data.post")
        var edits = JSONEdits(source)
        edits.remove(try #require(try source.place(JSONPath("data.post"))))
        #expect(try edits.apply().text == #"{"event":"posted","data":{"name":"Ann"},"n":1}"#)
        let list = try Self.parsed(#"{"list":["[1, 2]"]}"#, "list[*]")
        edits = JSONEdits(list)
        edits.remove(try #require(try list.place(JSONPath("list[0]"))))
        #expect(try edits.apply().text == #"{"list":[]}"#)
        edits = JSONEdits(list)
        edits.remove(try #require(try list.place(JSONPath("list[0][0]"))))
        #expect(try edits.apply().text == #"{"list":["[2]"]}"#)
        edits = JSONEdits(list)
        edits.replace(try #require(try list.place(JSONPath("list[0]"))), with: .string("x"))
        #expect(try edits.apply().text == #"{"list":["\"x\""]}"#)
    }

    @Test func stringsMayBeInsideStrings() throws {
        let text = #"{"a":"{\"b\":\"{\\\"c\\\":1}\",\"d\":\"{}\"}","e":"[3]"}"#
        let source = try Self.parsed(text, "a", "e", "a.b")
        #expect(try source.place(JSONPath("a.b.c")).flatMap(source.integer) == 1)
        #expect(try source.place(JSONPath("e[0]")).flatMap(source.integer) == 3)
        var edits = JSONEdits(source)
        edits.replace(try #require(try source.place(JSONPath("a.b.c"))), with: .integer(22))
        edits.replace(try #require(try source.place(JSONPath("e[0]"))), with: .integer(4))
        let expected = #"{"a":"{\"b\":\"{\\\"c\\\":22}\",\"d\":\"{}\"}","e":"[4]"}"#
        #expect(try edits.apply().text == expected)
        let whole = try #require(try source.place(JSONPath("a")))
        let inner = #"{"b":"{\"c\":1}","d":"{}"}"#
        #expect(String(decoding: JSONFragment(source, whole).bytes, as: UTF8.self) == inner)
    }

    /// The longest string first, then each that is cut off.
    @Test func aStringWithoutADocumentStaysAString() throws {
        let inner = #"{"a":[1,{"b":"x"}]}"#
        let path = try JSONPath("s")
        for length in 0..<inner.utf8.count {
            let fragment = JSONFragment.object([("s", .string(String(inner.prefix(length))))])
            let text = String(decoding: fragment.bytes, as: UTF8.self)
            let source = try Self.parsed(text, "s")
            #expect(source.bytes.text == text)
            #expect(try source.unparsed(path).count == (length == 0 ? 0 : 1))
        }
        for odd in [#"{"s":"{} {}"}"#, #"{"s":"\ud800"}"#, #"{"s":"nul"}"#, #"{"s":"{\"a\":\"\u0001\"}"}"#] {
            #expect(try Self.parsed(odd, "s").unparsed(path).count == 1)
        }
        for absent in [#"{"s":" \n"}"#, #"{"s":null}"#, #"{"s":{"a":1}}"#, #"{}"#, #"{"s":"\"x\""}"#] {
            #expect(try Self.parsed(absent, "s").unparsed(path).isEmpty)
        }
        #expect(throws: JSONMatchError.duplicateNames(at: 0)) {
            try Self.parsed(#"{"s":"{}","s":"{}"}"#, "s").unparsed(path)
        }
    }

    @Test func limitsHoldForTheWhole() throws {
        let deep = String(repeating: "[", count: 100) + String(repeating: "]", count: 100)
        func nested(_ outside: Int) -> String {
            String(repeating: "[", count: outside) + "\"" + deep + "\"" + String(repeating: "]", count: outside)
        }
        let path = String(repeating: "[0]", count: 20)
        let fits = try document(nested(20)).parsing([JSONPath("$" + path)])
        #expect(try fits.place(JSONPath("$" + path + "[0]")) != nil)
        let inner = try JSONPath("$" + String(repeating: "[0]", count: 30))
        #expect(try document(nested(30)).parsing([inner]).unparsed(inner).count == 1)
        var limits = JSONLimits()
        limits.values = 100
        let many = #"{"s":"[\#(Array(repeating: "1", count: 100).joined(separator: ","))]"}"#
        let bomb = try document(many, limits: limits).parsing([JSONPath("s")], limits: limits)
        #expect(try bomb.unparsed(JSONPath("s")).count == 1)
    }

    /// The same edits of a document and of one in a string come to the same.
    @Test(arguments: 1...20 as ClosedRange<UInt64>) func editsInAStringAreEdits(_ seed: UInt64) throws {
        var random = RandomDocument(chance: SeededGenerator(seed: seed))
        var compared = 0
        for _ in 0..<100 {
            let inner = try document(random.text())
            let value = inner.written(inner.root)
            let holder = JSONFragment.object([("a", .null), ("s", .string(" " + value + "\n")), ("z", .array([.null]))])
            let source = try JSONDocument(ByteBuffer(bytes: holder.bytes)).parsing([JSONPath("s")])
            let root = try #require(try source.place(JSONPath("s")))
            let plain = try document(value)
            let (left, right) = (Self.all(plain, plain.root), Self.all(source, root))
            #expect(left.count == right.count)
            var (first, second) = (JSONEdits(plain), JSONEdits(source))
            for number in 0..<3 {
                guard let index = left.indices.randomElement(using: &random.chance) else { continue }
                switch Int.random(in: 0..<4, using: &random.chance) {
                case 0:
                    first.replace(left[index], with: .string("é\"\(number)"))
                    second.replace(right[index], with: .string("é\"\(number)"))
                case 1:
                    first.remove(left[index])
                    second.remove(right[index])
                case 2:
                    first.insert("n\(number)", .null, beside: left[index])
                    second.insert("n\(number)", .null, beside: right[index])
                default:
                    first.insert("n\(number)", .null, into: left[index])
                    second.insert("n\(number)", .null, into: right[index])
                }
            }
            guard let expected = try? first.apply().text else {
                #expect(throws: JSONEditError.self) { try second.apply() }
                continue
            }
            let edited = try JSONDocument(second.apply())
            let text = try edited.text(try #require(try edited.place(JSONPath("s"))))
            // A string without an edit keeps the white space around its document.
            #expect(text == (first.isEmpty ? " " + value + "\n" : expected))
            #expect(try edited.place(JSONPath("a")) != nil && edited.place(JSONPath("z[0]")) != nil)
            compared += 1
        }
        #expect(compared > 20)
    }

    /// All values below one, without it.
    private static func all(_ document: JSONDocument, _ place: JSONPlace) -> [JSONPlace] {
        document.children(place).flatMap { [$0] + all(document, $0) }
    }
}
