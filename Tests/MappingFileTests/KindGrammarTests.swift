import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import PawlConfiguration
import Protection
import Testing

@testable import MappingFile

/// Requests that carry something besides messages, and what becomes of it.
@Suite struct KindGrammarTests {
    private static let whole = """
        name: other
        account: {credential: header A, ask: GET /me, name: id}
        content: {text: text, flag: encrypted}
        messages: {written: {conversation: to}}
        routes:
          PUT /c/{conversation}/like: {label: control, kind: reactions}
          POST /polls: {label: content written, kind: polls}
          POST /rooms: {label: passthrough, kinds: {name: names, "state[*].note": custom}}
        frames:
          from client:
            type == "like": {label: passthrough, kind: reactions}
            type == "log in": {login: {header A: "{token}"}}
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        #expect(mapping.routes.map(\.kind) == [.reactions, .polls, nil])
        #expect(mapping.routes.map(\.label) == [.control, .refused, .passthrough])
        #expect(mapping.routes[2].parts == [.init(path: try JSONPath("state[*].note"), kind: .custom)])
        #expect(mapping.frames.map(\.kind) == [.reactions, nil] && mapping.frames[1].login != nil)
    }

    @Test(arguments: [
        ("kind: reactions", "kind: reaction", "has the kind `reaction`; expected one of reactions, topics"),
        ("label: control, kind", "label: refused, kind", "has a `kind` and is `refused`"),
        ("label: passthrough, kinds", "label: control, kinds", "has `kinds` and is `control`"),
        ("{name: names,", "{\"name[\": names,", "is no path"), ("name: names", "name: titles", "has the kind `titles`"),
        ("{label: passthrough, kind: reactions}", "{label: passthrough}", "has no `kind`"),
        ("{label: passthrough, kind: reactions}", "{label: media, kind: reactions}", "has a `kind`; expected it in"),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let found = problems(Self.whole.replacing(old, with: new, maxReplacements: 1))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func aRequestOfAKindIsExplained() throws {
        let (head, body) = try HTTPSample.request(Array("POST /polls\n\n{\"text\":\"hi\",\"to\":\"c\"}".utf8))
        let trial = MappingTrial.request(try mapping(Self.whole), head, body)
        #expect(trial.label == "refused" && trial.reasons.contains { $0.contains("kinds.polls") })
    }

    private static func read(_ name: String, _ kind: ContentKind, _ treatment: KindTreatment) throws -> Mapping {
        var kinds = KindTreatments.standard
        kinds[kind] = treatment
        return try MappingFile.read(path: root.appending(path: "config/mappings/\(name).yaml").path, kinds: kinds)
    }

    private static func label(
        _ mapping: Mapping, _ method: String, _ path: String
    ) -> Mapping.Label? { mapping.route(for: RequestHead(method, "/_matrix/client/v3\(path)"))?.route.label }

    @Test(arguments: [
        (ContentKind.reactions, "/rooms/%21a/send/m.reaction/1", Mapping.Label.control),
        (.polls, "/rooms/%21a/send/org.matrix.msc3381.poll.start/1", .control),
        (.polls, "/rooms/%21a/send/m.poll.response/1", .control), (.custom, "/rooms/%21a/send/org.note/1", .control),
        (.custom, "/rooms/%21a/state/org.note/x", .passthrough),
        (.topics, "/rooms/%21a/state/m.room.topic", .passthrough),
        (.topics, "/rooms/%21a/state/m.room.topic/", .passthrough),
        (.names, "/rooms/%21a/state/m.room.name", .passthrough),
        (.names, "/rooms/%21a/state/m.room.name/", .passthrough),
        (.keywords, "/pushrules/global/content/pizza", .passthrough),
    ]) func everyKindOfMatrixPassesOrIsRefused(_ kind: ContentKind, _ path: String, _ label: Mapping.Label) throws {
        #expect(try Self.label(Self.read("matrix", kind, .pass), "PUT", path) == label)
        #expect(try Self.label(Self.read("matrix", kind, .refuse), "PUT", path) == .refused)
        #expect(throws: ConfigurationError.self) { try Self.read("matrix", kind, .seal) }
        // Nothing passes with one kind that is content of another, or a message.
        let other = try Self.read("matrix", kind, .pass)
        #expect(Self.label(other, "PUT", "/rooms/%21a/send/m.room.message/1") == .content)
        #expect(Self.label(other, "POST", "/rooms/%21a/send/m.room.message") == .refused)
    }

    @Test func theCreationOfARoomHasKindsInIt() throws {
        let head = RequestHead("POST", "/_matrix/client/v3/createRoom")
        let refusing = try Self.read("matrix", .topics, .refuse).route(for: head)?.route
        #expect(refusing?.parts.map(\.kind) == [.topics, .topics])
        #expect(try shipped("matrix").route(for: head)?.route.parts == [])
    }

    /// A treatment that a mapping cannot follow is refused, not ignored.
    @Test(arguments: [("zulip", ContentKind.topics), ("rocketchat", .reactions), ("generic", .keywords)])
    func aKindWithoutARequestIsReported(_ name: String, _ kind: ContentKind) {
        #expect(throws: ConfigurationError.self) { try Self.read(name, kind, .refuse) }
    }
}
