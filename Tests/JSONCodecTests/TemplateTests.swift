import NIOCore
import TestKit
import Testing

@testable import JSONCodec

/// Documents that are recognised without being read.
@Suite struct TemplateTests {
    private static func matches(_ template: JSONTemplate, _ text: String) -> Bool {
        Array(text.utf8).withUnsafeBytes { template.matches($0) }
    }

    private static func template(
        _ text: String, fixed: [String] = ["type"], ids: [String] = ["id"]
    ) throws -> JSONTemplate? {
        JSONTemplate(
            try JSONDocument(ByteBuffer(string: text)), fixed: Set(fixed.map { Array($0.utf8) }),
            ids: Set(ids.map { Array($0.utf8) }))
    }

    private static let sent = #"{"type":"send","id":"c1","at":17,"text":"good morning","list":[1,"x"],"on":true}"#

    @Test(arguments: [
        (sent, true), (sent.replacing("morning", with: "evening, all of you; it is late: é 😀"), true),
        (sent.replacing("good morning", with: ""), true), (sent.replacing("c1", with: "an-id/of.another:length"), true),
        (sent.replacing("17", with: "0"), true), (sent.replacing("17", with: "123456789012345678"), true),
        // What decides, or is no scalar of its kind.
        (sent.replacing("send", with: "sent"), false), (sent.replacing("text", with: "next"), false),
        (sent.replacing("[1", with: "[2"), false), (sent.replacing("true", with: "false"), false),
        (sent.replacing("c1", with: ""), false), (sent.replacing("c1", with: "c 1"), false),
        (sent.replacing("c1", with: "é"), false),
        (sent.replacing("c1", with: String(repeating: "c", count: 256)), false),
        (sent.replacing("17", with: "017"), false), (sent.replacing("17", with: "-17"), false),
        (sent.replacing("17", with: "1.7"), false), (sent.replacing("17", with: ""), false),
        (sent.replacing("17", with: #""17""#), false), (sent.replacing("17", with: "1234567890123456789"), false),
        (sent.replacing("good", with: #"\u0067ood"#), false), (sent.replacing("good", with: "g\u{1}od"), false),
        (sent.replacing(#""good morning""#, with: "null"), false), (sent + " ", false),
        (String(sent.dropLast()), false),
        (sent.replacing("good", with: #"","type":"edit","text":""#), false), ("", false),
        (sent.replacing("good", with: String(repeating: "o", count: JSONTemplate.sizeLimit)), false),
    ]) func whatDiffersInOpenValuesAlone(_ text: String, _ isSame: Bool) throws {
        let template = try #require(try Self.template(Self.sent))
        #expect(Self.matches(template, text) == isSame)
    }

    @Test func bytesThatAreNoText() throws {
        let template = try #require(try Self.template(Self.sent))
        var bytes = Array(Self.sent.replacing("good morning", with: "good morning ab").utf8)
        let place = try #require(bytes.firstIndex(of: UInt8(ascii: "g")))
        for wrong in [[0xC3, 0x28], [0xFF, 0x61], [0xE2, 0x82], [0xED, 0xA0]] as [[UInt8]] {
            bytes.replaceSubrange(place..<(place + 2), with: wrong)
            #expect(!bytes.withUnsafeBytes { template.matches($0) })
        }
    }

    @Test func whatHasNoTemplate() throws {
        let long = String(repeating: "x", count: JSONTemplate.fixedLimit)
        #expect(try Self.template(#"{"type":"\#(long)"}"#) == nil)
        #expect(try Self.template(#"{"text":"\#(long)"}"#) != nil)
        #expect(try Self.template(#"{"text":"\#(long)\#(long)"}"#) == nil)
        let many = (0...JSONTemplate.openLimit).map { #""m\#($0)":1"# }.joined(separator: ",")
        #expect(try Self.template("{\(many)}") == nil)
        // Of escapes in names and values nothing is open.
        let escaped = try #require(try Self.template(#"{"\u0074ype":"send","text":"a\n","more":"b"}"#))
        #expect(Self.matches(escaped, #"{"\u0074ype":"send","text":"a\n","more":"c"}"#))
        #expect(!Self.matches(escaped, #"{"\u0074ype":"sent","text":"a\n","more":"b"}"#))
        #expect(!Self.matches(escaped, #"{"\u0074ype":"send","text":"b\n","more":"b"}"#))
    }

    /// Whatever matches is a document with the same index, and with the same fixed values.
    @Test(arguments: 0..<40 as Range<UInt64>) func whatMatchesIsReadAlike(_ seed: UInt64) throws {
        var random = RandomDocument(chance: SeededGenerator(seed: seed), isOdd: seed % 2 == 0)
        var chance = SeededGenerator(seed: seed + 1000)
        var count = 0
        for _ in 0..<60 {
            let text = random.text()
            let first = try JSONDocument(ByteBuffer(string: text))
            guard let template = try Self.template(text, fixed: ["m0", "m3"], ids: ["m1"]) else { continue }
            #expect(Self.matches(template, text))
            for _ in 0..<40 {
                var bytes = Array(text.utf8)
                let place = Int.random(in: 0..<bytes.count, using: &chance)
                let pieces = ["", "a", "7", "0", " ", "\"", "\\", "é", "\u{7F}", ",", "}", "\u{0}", "{\"m0\":1}"]
                bytes.replaceSubrange(
                    place..<min(place + Int.random(in: 0...2, using: &chance), bytes.count),
                    with: Array((pieces.randomElement(using: &chance) ?? "").utf8))
                guard bytes.withUnsafeBytes({ template.matches($0) }) else { continue }
                count += 1
                let other = try JSONDocument(ByteBuffer(bytes: bytes))
                #expect(other.entries.map(\.kind) == first.entries.map(\.kind))
                #expect(other.entries.map(\.count) == first.entries.map(\.count))
                for (index, entry) in first.entries.enumerated() where entry.kind == .name {
                    let same = other.entries[index]
                    #expect(entry.next == same.next)
                    let name = Array(text.utf8)[(entry.range.lowerBound + 1)..<(entry.range.upperBound - 1)]
                    guard name.elementsEqual("m0".utf8) || name.elementsEqual("m3".utf8) else { continue }
                    let (left, right) = (first.entries[index + 1].range, other.entries[index + 1].range)
                    let isScalar = ![.object, .array].contains(first.entries[index + 1].kind)
                    #expect(!isScalar || Array(text.utf8)[left].elementsEqual(bytes[right]))
                }
            }
        }
        #expect(count > 0)
    }

    @Test(arguments: [
        ("content.body", false, ["content", "body"]), ("content.body", true, ["content"]), ("$", false, []),
        (#"$[?type == "send" && a.b]"#, false, ["type", "a", "b"]), ("list[*].x[0]", true, ["list", "x"]),
    ]) func namesThatDecide(_ path: String, _ isLastOpen: Bool, _ names: [String]) throws {
        #expect(try JSONPath(path).decidingNames(isLastOpen: isLastOpen) == Set(names.map { Array($0.utf8) }))
        #expect(try JSONPath("rooms.*.text").decidingNames(isLastOpen: true) == nil)
    }
}
