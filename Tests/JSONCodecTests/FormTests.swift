import NIOCore
import TestKit
import Testing

@testable import JSONCodec

/// Forms are read as documents, and written again as forms.
@Suite struct FormTests {
    private static func form(_ text: String) throws(FormError) -> JSONDocument {
        try JSONDocument(form: ByteBuffer(string: text))
    }

    @Test func aFieldIsReplacedAndTheOthersKeepTheirBytes() throws {
        let text = "type=stream&to=%5B1%5d&content=h%C3%A9llo+w%2Brld%0A&local%5Fid=7.1&empty=&a=~!*'()"
        let source = try Self.form(text)
        let content = try #require(try source.place(JSONPath("content")))
        #expect(try source.text(content) == "héllo w+rld\n")
        #expect(source.received.text == text)
        var edits = JSONEdits(source)
        #expect(try edits.apply().text == text)
        edits.replace(content, with: .string("?P:+/= é."))
        edits.insert("flag", .boolean(true), beside: content)
        let expected = text.replacing(
            "content=h%C3%A9llo+w%2Brld%0A", with: "content=%3FP%3A%2B%2F%3D+%C3%A9.&flag=true")
        #expect(try edits.apply().text == expected)
        edits = JSONEdits(source)
        edits.remove(content)
        #expect(try edits.apply().text == text.replacing("&content=h%C3%A9llo+w%2Brld%0A", with: ""))
    }

    @Test func aValueMayBeADocument() throws {
        let source = try Self.form("drafts=%5B%7B%22content%22%3A%22a%22%7D%5D&n=1").parsing([JSONPath("drafts")])
        let content = try #require(try source.place(JSONPath("drafts[0].content")))
        var edits = JSONEdits(source)
        edits.replace(content, with: .string("b&c"))
        #expect(try edits.apply().text == "drafts=%5B%7B%22content%22%3A%22b%26c%22%7D%5D&n=1")
        edits = JSONEdits(source)
        edits.replace(try #require(try source.place(JSONPath("n"))), with: .string("2"))
        #expect(try edits.apply().text == "drafts=%5B%7B%22content%22%3A%22a%22%7D%5D&n=2")
    }

    @Test(arguments: [
        ("a", 0), ("a=1&b", 4), ("a=1&&b=2", 4), ("a=1&", 4), ("&a=1", 0), ("a=%", 0), ("a=%2", 0), ("a=%2g", 0),
        ("a=1&b=%ff", 4), ("a=%c3", 0), ("%ff=1", 0), ("a=1;b=2", 0), ("a= 1", 0), ("a=1\r\n", 0), ("a=\u{7f}", 0),
        (#"{"content":"x"}"#, 0),
    ]) func anAmbiguousFormIsRefused(_ text: String, _ offset: Int) {
        #expect(throws: FormError(offset: offset)) { try Self.form(text) }
    }

    @Test func bytesThatAreNoTextAreRefused() {
        #expect(throws: FormError(offset: 0)) { try JSONDocument(form: ByteBuffer(bytes: [0x61, 0x3D, 0xFF])) }
    }

    @Test func twoFieldsOfOneNameAreNotTouched() throws {
        for text in ["content=a&content=b", "content=a&c%6Fntent=b", "x=1&x=2&content=a"] {
            let source = try Self.form(text)
            #expect(throws: JSONMatchError.self) { try source.place(JSONPath("content")) }
        }
    }

    @Test func limitsHold() throws {
        let many = Array(repeating: "a=1", count: FormFields.limit + 1)
        #expect(throws: FormError.self) { try Self.form(many.joined(separator: "&")) }
        var limits = JSONLimits()
        limits.stringLength = 10
        #expect(throws: FormError.self) { try JSONDocument(form: ByteBuffer(string: "a=12345678901"), limits: limits) }
        limits.size = 5
        #expect(throws: FormError(offset: 5)) { try JSONDocument(form: ByteBuffer(string: "a=1234"), limits: limits) }
        #expect(try Self.form("").bytes.text == "{}")
    }

    /// What is read of any bytes is written as it was, and is the same when it is read again.
    @Test(arguments: 1...20 as ClosedRange<UInt64>) func whatIsReadIsWritten(_ seed: UInt64) throws {
        var chance = SeededGenerator(seed: seed)
        let pieces = [
            "a", "b", "=", "=", "=", "=", "&", "%", "%2", "%41", "%C3%A9", "é", "+", "%2B", "%00", ";", " ",
            "%F0%9F%98%80", "%22",
            "\"", "\\",
        ]
        var count = 0
        for _ in 0..<2000 {
            let text = (0..<Int.random(in: 0..<9, using: &chance)).map { _ in
                pieces.randomElement(using: &chance) ?? ""
            }.joined()
            guard let source = try? Self.form(text) else { continue }
            guard !source.hasDuplicateNames, let first = source.children(source.root).first(where: { _ in true }) else {
                continue
            }
            count += 1
            var edits = JSONEdits(source)
            edits.replace(first, with: .string("new & %"))
            let edited = try JSONDocument(form: try edits.apply())
            edits = JSONEdits(edited)
            let place = try #require(edited.children(edited.root).first { _ in true })
            edits.replace(place, with: JSONFragment(source, first))
            let again = try JSONDocument(form: try edits.apply())
            #expect(again.dump == source.dump, "\(text)")
        }
        #expect(count > 100)
    }
}
