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
        messages: {written: {conversation: to}, shown: {conversation: to, sender: from, remote_id: id}}
        routes:
          PUT /c/{conversation}/like: {label: control, kind: reactions}
          POST /polls: {label: content written, kind: polls}
          POST /rooms: {label: passthrough, kinds: {name: names, "state[*].note": custom}}
          POST /settings: {label: passthrough, kind: [names, topics]}
          POST /names: {label: history -> shown, kind: names}
        frames:
          from client:
            type == "like": {label: passthrough, kind: reactions}
            type == "log in": {login: {header A: "{token}"}}
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        #expect(mapping.routes.map(\.kinds) == [[.reactions], [.polls], [], [.names, .topics], [.names]])
        #expect(mapping.routes.map(\.label) == [.control, .refused, .passthrough, .passthrough, .history])
        #expect(mapping.routes[2].parts == [.init(path: try JSONPath("state[*].note"), kind: .custom)])
        #expect(mapping.frames.map(\.kinds) == [[.reactions], []] && mapping.frames[1].login != nil)
    }

    @Test(arguments: [
        ("kind: reactions", "kind: reaction", "has the kind `reaction`; expected one of reactions, topics"),
        ("label: control, kind", "label: refused, kind", "has a `kind` and is `refused`"),
        ("label: passthrough, kinds", "label: control, kinds", "has `kinds` and is `control`"),
        ("{name: names,", "{\"name[\": names,", "is no path"), ("name: names", "name: titles", "has the kind `titles`"),
        ("kind: [names, topics]", "kind: []", "has an empty list of kinds"),
        ("kind: [names, topics]", "kind: [names, topic]", "has the kind `topic`"),
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
        (.custom, "/rooms/%21a/state/org.note/x", .control),
        (.topics, "/rooms/%21a/state/m.room.topic", .control),
        (.topics, "/rooms/%21a/state/m.room.topic/", .control),
        (.names, "/rooms/%21a/state/m.room.name", .control),
        (.names, "/rooms/%21a/state/m.room.name/", .control),
        (.keywords, "/pushrules/global/content/pizza", .passthrough),
    ]) func everyKindOfMatrixPassesOrIsRefused(_ kind: ContentKind, _ path: String, _ label: Mapping.Label) throws {
        #expect(try Self.label(Self.read("matrix", kind, .pass), "PUT", path) == label)
        #expect(try Self.label(Self.read("matrix", kind, .refuse), "PUT", path) == .refused)
        switch kind {
        case .reactions, .topics, .names, .polls, .custom:
            let sealing = try Self.read("matrix", kind, .seal)
            #expect(Self.label(sealing, "PUT", path) == .content)
            // They are looked for in what people read, and only then.
            let passing = try Self.read("matrix", kind, .pass)
            let counts = [sealing, passing].map { mapping in
                let route = mapping.route(for: RequestHead("GET", "/_matrix/client/v3/sync?since=1"))?.route
                return route?.response.count { $0.kind == kind } ?? 0
            }
            #expect(counts[0] > 0 && counts[1] == 0)
        case .keywords: #expect(throws: ConfigurationError.self) { try Self.read("matrix", kind, .seal) }
        }
        // Nothing passes with one kind that is content of another, or a message.
        let other = try Self.read("matrix", kind, .pass)
        #expect(Self.label(other, "PUT", "/rooms/%21a/send/m.room.message/1") == .content)
        #expect(Self.label(other, "POST", "/rooms/%21a/send/m.room.message") == .refused)
    }

    /// Methods and requests of Rocket.Chat that carry several kinds are refused if one of them is.
    @Test(arguments: [
        (ContentKind.reactions, ["/api/v1/chat.react", "/api/v1/method.call/setReaction"], ["setReaction"]),
        (
            .topics,
            [
                "/api/v1/channels.setTopic", "/api/v1/groups.setAnnouncement", "/api/v1/dm.setTopic",
                "/api/v1/method.call/saveRoomSettings",
            ], ["saveRoomSettings", "createChannel"]
        ),
        (
            .names,
            ["/api/v1/channels.rename", "/api/v1/groups.rename", "/api/v1/method.call/saveRoomSettings"],
            ["saveRoomSettings", "createPrivateGroup"]
        ),
    ]) func kindsOfRocketChatPassOrAreRefused(_ kind: ContentKind, _ paths: [String], _ methods: [String]) throws {
        let passing = try shipped("rocketchat")
        let refusing = try Self.read("rocketchat", kind, .refuse)
        for path in paths {
            let head = RequestHead("POST", path)
            #expect(passing.route(for: head)?.route.label != .refused, "\(path)")
            let route = try #require(refusing.route(for: head)?.route)
            #expect(route.label == .refused && route.kinds.first == kind, "\(path)")
        }
        for method in methods {
            let frame = try JSONDocument(ByteBuffer(string: #"{"msg":"method","method":"\#(method)","id":"1"}"#))
            #expect(passing.frame(for: frame, .fromClient)?.label == .passthrough)
            let refused = try #require(refusing.frame(for: frame, .fromClient))
            #expect(refused.label == .refused && refused.kinds.first == kind, "\(method)")
        }
        #expect(throws: ConfigurationError.self) { try Self.read("rocketchat", kind, .seal) }
    }

    @Test func titlesOfTheGenericChatAreNames() throws {
        let mapping = try Self.read("generic", .names, .refuse)
        #expect(mapping.route(for: RequestHead("PUT", "/conversations/c/title"))?.route.label == .refused)
        let made = mapping.route(for: RequestHead("POST", "/conversations"))?.route
        #expect(made?.label == .passthrough && made?.parts.map(\.kind) == [.names])
    }

    @Test func roomsOfRocketChatHaveKindsInThem() throws {
        func parts(_ path: String, _ kind: ContentKind) throws -> Set<String> {
            let mapping = try Self.read("rocketchat", kind, .refuse)
            let route = try #require(mapping.route(for: RequestHead("POST", path))?.route)
            #expect(route.label == .passthrough)
            return Set(route.parts.map(\.path.text))
        }
        let topics = Set(["topic", "announcement", "description"].map { "extraData." + $0 })
        #expect(try parts("/api/v1/channels.create", .topics) == topics)
        #expect(try parts("/api/v1/groups.create", .names) == ["name"])
        #expect(
            try parts("/api/v1/rooms.saveRoomSettings", .topics)
                == ["roomTopic", "roomAnnouncement", "roomDescription"])
        #expect(try parts("/api/v1/rooms.saveRoomSettings", .names) == ["roomName"])
        #expect(try parts("/api/v1/teams.create", .names) == ["name"])
        #expect(try parts("/api/v1/teams.update", .names) == ["data.name"])
    }

    @Test func theCreationOfARoomHasKindsInIt() throws {
        let head = RequestHead("POST", "/_matrix/client/v3/createRoom")
        let refusing = try Self.read("matrix", .topics, .refuse).route(for: head)?.route
        #expect(refusing?.parts.map(\.kind) == [.topics, .topics])
        #expect(try shipped("matrix").route(for: head)?.route.parts == [])
    }

    /// A treatment that a mapping cannot follow is refused, not ignored.
    @Test(arguments: [("zulip", ContentKind.topics), ("rocketchat", .keywords), ("generic", .keywords)])
    func aKindWithoutARequestIsReported(_ name: String, _ kind: ContentKind) {
        #expect(throws: ConfigurationError.self) { try Self.read(name, kind, .refuse) }
    }
}
