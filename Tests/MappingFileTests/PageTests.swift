import Foundation
import HTTPCodec
import JSONGateway
import NIOCore
import Testing

@testable import MappingFile

/// The mappings on the page that says how to write one.
@Suite struct PageTests {
    /// The whole mappings on the page, by the names of their files.
    private static func examples() throws -> [String: String] {
        let page = try String(contentsOf: root.appending(path: "config/mappings/README.md"), encoding: .utf8)
        var examples: [String: String] = [:]
        for block in page.components(separatedBy: "\n```yaml ").dropFirst() {
            let lines = block.split(separator: "\n", omittingEmptySubsequences: false)
            examples[String(lines[0])] = lines.dropFirst().prefix { $0 != "```" }.joined(separator: "\n") + "\n"
        }
        return examples
    }

    @Test func everyExampleIsAccepted() throws {
        let examples = try Self.examples()
        #expect(Set(examples.keys) == ["mine.yaml", "frames.yaml", "guild.yaml"])
        for (name, text) in examples { #expect(problems(text).isEmpty, "\(name)") }
    }

    /// The mapping for an API with op codes, numbered events and pages by id.
    @Test func theAPIWithOpCodesIsReadWhole() throws {
        let mapping = try mapping(try #require(try Self.examples()["guild.yaml"]))
        let body = ByteBuffer(string: #"{"content":"hello","nonce":"n1","embeds":[{"title":"hello"}]}"#)
        for (method, end) in [("POST", ""), ("PATCH", "/9")] {
            let sent = MappingTrial.request(mapping, RequestHead(method, "/api/channels/c1/messages" + end), body)
            #expect(sent.isGood && sent.conversation == "c1" && sent.localID == "n1", "\(sent)")
            #expect(sent.messages.map(\.sealed) == [#"{"content":"hello","embeds":[{"title":"hello"}]}"#])
            #expect(sent.outcomes.contains { $0.body?.contains("?PAWL:") == true }, "\(sent)")
        }
        let message = #"{"id":"9","channel_id":"c1","author":{"id":"u1"},"content":"hello"}"#
        let reply = message.dropLast() + #","referenced_message":\#(message)}"#
        let page = MappingTrial.response(
            mapping, RequestHead("GET", "/api/channels/c1/messages?before=10&limit=2"), ResponseHead(200),
            ByteBuffer(string: "[\(message),\(reply)]"))
        #expect(page.messages.count == 3 && page.isGood)
        #expect(page.messages.allSatisfy { $0.conversation == "c1" && $0.sender == "u1" }, "\(page)")
        for kind in ["MESSAGE_CREATE", "MESSAGE_UPDATE"] {
            let event = #"{"op":0,"t":"\#(kind)","s":7,"d":\#(message)}"#
            let read = MappingTrial.frame(mapping, .fromBackend, ByteBuffer(string: event))
            #expect(read.isGood && read.messages.map(\.remoteID) == ["9"] && read.label == "sync", "\(read)")
        }
        for (frame, label) in [(#"{"op":1,"d":7}"#, "passthrough"), (#"{"op":2,"d":{"token":"t"}}"#, "login")] {
            #expect(MappingTrial.frame(mapping, .fromClient, ByteBuffer(string: frame)).label == label)
        }
        #expect(mapping.route(for: RequestHead("GET", "/socket?compress=zlib-stream"))?.route.label == .refused)
        #expect(mapping.withheld != nil && mapping.members?.paging?.order == .last(nil))
    }
}
