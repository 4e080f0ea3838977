import JSONCodec
import JSONGateway
import NIOCore
import TestKit
import Testing

@testable import MappingFile

/// Messages of a client that pass unread, because an earlier one had their form: each is what the earlier one was.
@Suite struct TemplateTests {
    /// What decides about a message while nothing is protected.
    private struct Decision: Equatable {
        var frame: FrameRoute?
        var conversation: String?
        var recipients: [String]?
        var isFlagged: Bool?
        var fault: MessageFault?

        init(_ mapping: Mapping, _ document: JSONDocument) {
            frame = mapping.frame(for: document, .fromClient)
            guard let frame, frame.label == .content else { return }
            do throws(MessageFault) {
                let message = try OutgoingMessage(document, frame.shapes)
                (conversation, recipients) = (message.conversation, message.recipients)
                isFlagged = message.found.isFlagged
            } catch {
                fault = error
            }
        }
    }

    private static let frames = [
        "generic": [
            #"{"type":"send","conversation":"c1","id":"7","text":"hello","html":"<b>hello</b>","reply_to":"m1"}"#,
            #"{"id":7,"text":"hello","conversation":"c1","encrypted":false,"type":"send","time":1,"more":{"text":"x"}}"#,
            #"{"type":"edit","conversation":"c1","message_id":"m1","id":"x","text":"hello"}"#,
            #"{"type":"typing","conversation":"c1"}"#, #"{"type":"ping","id":5}"#,
        ],
        "rocketchat": [
            #"{"msg":"method","method":"sendMessage","id":"42","params":[{"_id":"m1","rid":"r1","msg":"hello"}]}"#,
            """
            {"msg":"method","method":"updateMessage","id":"42","params":[{"_id":"m1","rid":"r1","msg":"hello",
            "customFields":{"encrypted":false,"pawl":"x"},"ts":{"$date":1480377601},"tmid":"m0"}]}
            """,
            #"{"msg":"method","method":"loadHistory","id":"3","params":["r1",null,50,{"$date":1480377601}]}"#,
            #"{"msg":"sub","id":"s1","name":"stream-room-messages","params":["r1",false]}"#, #"{"msg":"ping"}"#,
        ],
    ]

    private static let values = [
        "\"\"", #""a""#, #""c1""#, #""c2""#, #""two words""#, #""ä""#, #""a\nb""#, #""\u0061""#, #""send""#,
        #""edit""#,
        #""typing""#, #""sendMessage""#, #""method""#, #""login""#, "0", "7", "-1", "1.5", "1e3", "00", "true", "false",
        "null", "{}", "[]", "123456789012345678901234567890", #"{"text":"x"}"#, #"["a"]"#, #"{"_id":"m2","rid":"r2"}"#,
        "\"\(String(repeating: "b", count: 300))\"", "\"\(String(repeating: "c", count: 600))\"",
    ]

    /// The ranges of strings, names among them, and of numbers.
    private static func tokens(_ bytes: [UInt8]) -> [Range<Int>] {
        var (tokens, index): ([Range<Int>], Int) = ([], 0)
        while index < bytes.count {
            let first = index
            if bytes[index] == UInt8(ascii: "\"") {
                index += 1
                while index < bytes.count, bytes[index] != UInt8(ascii: "\"") { index += 1 }
                index = min(index + 1, bytes.count)
            } else {
                while index < bytes.count, UInt8(ascii: "0")...UInt8(ascii: "9") ~= bytes[index] { index += 1 }
                guard index == first else {
                    tokens.append(first..<index)
                    continue
                }
                index += 1
                continue
            }
            tokens.append(first..<index)
        }
        return tokens
    }

    private static func mutate(_ bytes: inout [UInt8], _ chance: inout SeededGenerator) {
        let token = tokens(bytes).randomElement(using: &chance) ?? 0..<0
        switch Int.random(in: 0..<10, using: &chance) {
        case 0..<5: bytes.replaceSubrange(token, with: Array((values.randomElement(using: &chance) ?? "").utf8))
        case 5:
            // Another one's value, or its name.
            let other = tokens(bytes).randomElement(using: &chance) ?? 0..<0
            bytes.replaceSubrange(token, with: Array(bytes[other]))
        case 6, 7:
            // A longer or shorter one.
            let inside = min(token.lowerBound + 1, bytes.count)
            if Bool.random(using: &chance) {
                bytes.insert(contentsOf: Array("x 1".utf8), at: inside)
            } else if inside < token.upperBound - 1 {
                bytes.remove(at: inside)
            }
        default:
            guard let index = bytes.indices.randomElement(using: &chance) else { return }
            bytes[index] = Array(#"{}[]:,"\ 019eE.-tfn"#.utf8).randomElement(using: &chance) ?? 0xFF
        }
    }

    @Test(arguments: ["generic", "rocketchat"]) func whatMatchesIsDecidedAsTheFirst(_ name: String) throws {
        let mapping = try shipped(name)
        var chance = SeededGenerator(seed: 1)
        var (templates, matches) = (0, 0)
        for text in Self.frames[name] ?? [] {
            for _ in 0..<100 {
                // The first one is mutated too, so that there are templates of odd messages.
                var first = Array(text.utf8)
                for _ in 0..<Int.random(in: 0..<4, using: &chance) { Self.mutate(&first, &chance) }
                guard let document = try? JSONDocument(ByteBuffer(bytes: first)) else { continue }
                let decision = Decision(mapping, document)
                guard let frame = decision.frame, decision.fault == nil else { continue }
                let found = frame.label == .content ? try OutgoingMessage(document, frame.shapes).found : nil
                guard let template = mapping.template(of: document, frame, found) else { continue }
                templates += 1
                #expect(first.withUnsafeBytes { template.matches($0) })
                for _ in 0..<100 {
                    var other = first
                    for _ in 0..<Int.random(in: 1..<3, using: &chance) { Self.mutate(&other, &chance) }
                    guard other != first, other.withUnsafeBytes({ template.matches($0) }) else { continue }
                    matches += 1
                    let second = try? JSONDocument(ByteBuffer(bytes: other))
                    #expect(
                        second.map { Decision(mapping, $0) } == decision,
                        "\(String(decoding: first, as: UTF8.self)), \(String(decoding: other, as: UTF8.self))")
                }
            }
        }
        #expect(templates > 50 && matches > 100)
    }
}
