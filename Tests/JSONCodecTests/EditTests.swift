import NIOCore
import Testing

@testable import JSONCodec

@Suite struct EditTests {
    /// Makes edits at the places that paths lead to.
    static func edit(_ text: String, _ change: (inout JSONEdits, (String) throws -> JSONPlace) throws -> Void) throws
        -> String
    {
        let document = try document(text)
        var edits = JSONEdits(document)
        try change(&edits) { path in
            let place = try document.place(try JSONPath(path))
            return try #require(place, "\(path)")
        }
        let output = try edits.apply()
        _ = try JSONDocument(output)
        return output.text
    }

    /// What edits have written is known by its place in the result.
    @Test func writtenRangesHoldTheNewValuesAndNothingElse() throws {
        let document = try document(#"{"a":"old","b":[1,2,3],"c":{"d":"stays"},"e":"old too"}"#)
        func place(_ path: String) throws -> JSONPlace { try #require(try document.place(try JSONPath(path))) }
        var edits = JSONEdits(document)
        #expect(try edits.changed().written == [])
        edits.replace(try place("e"), with: .string("NEW"))
        edits.replace(try place("a"), with: .string("LONG AND NEW"))
        edits.remove(try place("b[1]"))
        edits.insert("f", .string("MORE"), beside: try place("c.d"))
        let (bytes, written) = try edits.changed()
        #expect(bytes.text == #"{"a":"LONG AND NEW","b":[1,3],"c":{"d":"stays","f":"MORE"},"e":"NEW"}"#)
        let all = Array(bytes.text.utf8)
        let ranges = try #require(written)
        #expect(
            ranges.filter { !$0.isEmpty }.map { String(decoding: all[$0], as: UTF8.self) }
                == [#""LONG AND NEW""#, #","f":"MORE""#, #""NEW""#])
        #expect(try edits.apply() == bytes)
    }

    @Test func aTextBecomesAnEnvelopeWithItsFlagBesideIt() throws {
        let text =
            "{ \"type\" : \"m\\u002eroom\",\r\n\t\"content\":{\"body\" : \"hi \\ud83d\\ude00\" , \"n\":1.50e+1}, \"z\":[ ] }\n"
        let changed = try Self.edit(text) { edits, place in
            edits.replace(try place("content.body"), with: .base64("QUJD".utf8))
            edits.set("encrypted", to: .boolean(true), beside: try place("content.body"))
        }
        #expect(
            changed
                == "{ \"type\" : \"m\\u002eroom\",\r\n\t\"content\":{\"body\" : \"QUJD\",\"encrypted\":true , \"n\":1.50e+1}, \"z\":[ ] }\n"
        )
        // a client that claims the flag itself does not get two of them
        let claimed = try Self.edit(#"{"encrypted" : false, "body":"x"}"#) { edits, place in
            edits.replace(try place("body"), with: .base64("QUJD".utf8))
            edits.set("encrypted", to: .boolean(true), beside: try place("body"))
        }
        #expect(claimed == #"{"encrypted" : true, "body":"QUJD"}"#)
    }

    @Test func removalTakesOneCommaWithIt() throws {
        let text = #"{ "a" : 1 , "b" : 2 , "c" : 3 }"#
        let cases: [([String], String)] = [
            (["a"], #"{ "b" : 2 , "c" : 3 }"#), (["b"], #"{ "a" : 1 , "c" : 3 }"#), (["c"], #"{ "a" : 1 , "b" : 2 }"#),
            (["a", "b"], #"{ "c" : 3 }"#), (["c", "b"], #"{ "a" : 1 }"#), (["c", "a"], #"{ "b" : 2 }"#),
            (["b", "c", "a"], "{  }"),
        ]
        for (names, expected) in cases {
            let changed = try Self.edit(text) { edits, place in
                for name in names { edits.remove(try place(name)) }
            }
            #expect(changed == expected, "\(names)")
        }
        let list = try Self.edit("[1, [2,3] ,4]") { edits, place in
            edits.remove(try place("[0]"))
            edits.remove(try place("[1][1]"))
        }
        #expect(list == "[[2] ,4]")
        let emptied = try Self.edit("[ 1 ]") { edits, place in edits.remove(try place("[0]")) }
        #expect(emptied == "[  ]")
    }

    @Test func manyEditsAreOnePass() throws {
        let text = #"{"a":1,"b":{},"c":{"d":[1,2,3]},"e":"x"}"#
        let changed = try Self.edit(text) { edits, place in
            edits.insert("last", .null, into: try place("$"))
            edits.insert("n1", .integer(1), beside: try place("a"))
            edits.insert("n2", .integer(2), beside: try place("a"))
            edits.insert("in", .string("\n"), into: try place("b"))
            edits.replace(try place("c.d[1]"), with: .array([]))
            edits.remove(try place("c.d[2]"))
            edits.remove(try place("e"))
        }
        #expect(changed == #"{"a":1,"n1":1,"n2":2,"b":{"in":"\n"},"c":{"d":[1,[]]},"last":null}"#)
        let emptied = try Self.edit(#"{ "a":1, "b":2 }"#) { edits, place in
            edits.remove(try place("a"))
            edits.remove(try place("b"))
            edits.insert("a", .integer(3), into: try place("$"))
            edits.insert("c", .integer(4), into: try place("$"))
        }
        #expect(emptied == #"{ "a":3,"c":4 }"#)
        let end = try Self.edit(#"{"a":1}"#) { edits, place in
            edits.insert("c", .null, into: try place("$"))
            edits.insert("b", .null, beside: try place("a"))
        }
        #expect(end == #"{"a":1,"b":null,"c":null}"#)
        let whole = try Self.edit("[1]") { edits, place in edits.replace(try place("$"), with: .null) }
        #expect(whole == "null")
        let untouched = try Self.edit(" [1 ] ") { _, _ in }
        #expect(untouched == " [1 ] ")
    }

    @Test func whatCannotBeMadeIsRefused() throws {
        typealias Change = (inout JSONEdits, (String) throws -> JSONPlace) throws -> Void
        let text = #"{"a":{"x":1,"y":[1,2]},"b":2,"twice":{"t":1,"t":{"u":1}}}"#
        let cases: [(JSONEditError, Change)] = [
            (
                .overlap(at: 5),
                {
                    $0.replace(try $1("a"), with: .null); $0.replace(try $1("a"), with: .null)
                }
            ),
            (
                .overlap(at: 10),
                {
                    $0.replace(try $1("a.x"), with: .null); $0.replace(try $1("a"), with: .null)
                }
            ),
            (
                .overlap(at: 17),
                {
                    $0.remove(try $1("a")); $0.remove(try $1("a.y[0]"))
                }
            ),
            (
                .overlap(at: 5),
                {
                    $0.remove(try $1("a")); $0.replace(try $1("a"), with: .null)
                }
            ),
            (
                .overlap(at: 27),
                {
                    $0.remove(try $1("b")); $0.replace(try $1("b"), with: .null)
                }
            ),
            (
                .overlap(at: 5),
                {
                    $0.remove(try $1("a")); $0.remove(try $1("a"))
                }
            ),
            (
                .overlap(at: 5),
                {
                    $0.remove(try $1("a")); $0.insert("n", .null, beside: try $1("a"))
                }
            ),
            (
                .overlap(at: 21),
                {
                    $0.replace(try $1("a"), with: .null); $0.insert("n", .null, into: try $1("a"))
                }
            ),
            (
                .overlap(at: 11),
                {
                    $0.replace(try $1("a"), with: .null); $0.insert("n", .null, beside: try $1("a.x"))
                }
            ),
            (.nameExists("b"), { $0.insert("b", .null, beside: try $1("a")) }),
            (.nameExists("b"), { $0.insert("b", .null, into: try $1("$")) }),
            (
                .nameExists("n"),
                {
                    $0.insert("n", .null, beside: try $1("a")); $0.insert("n", .null, into: try $1("$"))
                }
            ),
            (.notAMember(at: 16), { $0.insert("n", .null, beside: try $1("a.y[0]")) }),
            (.notAMember(at: 0), { $0.insert("n", .null, beside: try $1("$")) }),
            (.notAMember(at: 0), { $0.set("n", to: .null, beside: try $1("$")) }),
            (.notAnObject(at: 16), { $0.insert("n", .null, into: try $1("a.y")) }),
            (.notAnObject(at: 27), { $0.insert("n", .null, into: try $1("b")) }),
            (.wholeDocument, { $0.remove(try $1("$")) }),
            (.duplicateNames(at: 37), { $0.insert("n", .null, into: try $1("twice")) }),
        ]
        for (number, (error, change)) in cases.enumerated() {
            let thrown = #expect(throws: JSONEditError.self, "case \(number)") { _ = try Self.edit(text, change) }
            #expect(thrown == error, "case \(number): \(String(describing: thrown))")
        }
        // reached by hand, past what a path would have refused
        let document = try document(text)
        let twice = try #require(document.member("twice", of: document.root))
        for place in document.children(twice) {
            var (replacing, removing, setting) = (JSONEdits(document), JSONEdits(document), JSONEdits(document))
            replacing.replace(place, with: .null)
            removing.remove(place)
            setting.set("t", to: .null, beside: place)
            for edits in [replacing, removing, setting] {
                #expect(throws: JSONEditError.duplicateNames(at: 37)) { try edits.apply() }
            }
        }
    }

    @Test func namesAreComparedWithoutTheirEscapes() throws {
        #expect(throws: JSONEditError.nameExists("flag")) {
            try Self.edit(#"{"a":1,"fl\u0061g":2}"#) { edits, place in
                edits.insert("flag", .null, beside: try place("a"))
            }
        }
        let set = try Self.edit(#"{"a":1,"fl\u0061g":2}"#) { edits, place in
            edits.set("flag", to: .null, beside: try place("a"))
        }
        #expect(set == #"{"a":1,"fl\u0061g":null}"#)
    }

    @Test func theDocumentMayLieAnywhereInItsBuffer() throws {
        let buffer = ByteBuffer(string: "garbage[1,2]more")
        let document = try JSONDocument(try #require(buffer.getSlice(at: 7, length: 5)))
        var edits = JSONEdits(document)
        edits.replace(try #require(try document.place(JSONPath("[1]"))), with: .string("é"))
        #expect(try edits.apply().text == "[1,\"é\"]")
    }
}
