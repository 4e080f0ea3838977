import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import StorePort
import Testing

/// Content beside messages, each kind with a treatment of its own where protection is demanded.
@Suite struct KindTests {
    /// With its kinds, as it is read from a file.
    private static func mapping() throws -> Mapping {
        var mapping = Mapping.lab
        func route(
            _ method: String, _ path: String, _ label: Mapping.Label, _ kinds: ContentKind...,
            parts: [Mapping.Route.Part] = []
        ) throws -> Mapping.Route {
            Mapping.Route(
                methods: [method], path: try PathPattern(path), label: label,
                request: label == .content ? mapping.routes[0].request : nil,
                conversation: path.contains("{conversation}") ? .capture("conversation") : nil, kinds: kinds,
                parts: parts
            )
        }
        mapping.routes =
            [
                try route("PUT", "/c/{conversation}/like", .control, .reactions),
                try route("POST", "/c/{conversation}/poll", .content, .polls),
                try route("PUT", "/words/{word}", .passthrough, .keywords),
                try route("POST", "/settings", .passthrough, .names, .topics),
                try route(
                    "POST", "/rooms", .passthrough,
                    parts: [
                        .init(path: try JSONPath("name"), kind: .names),
                        .init(path: try JSONPath("topic"), kind: .topics),
                        .init(path: try JSONPath("state[?type == \"topic\"]"), kind: .topics),
                    ]),
            ] + mapping.routes
        return mapping
    }

    private static func mapping(_ treatments: [ContentKind: KindTreatment]) throws -> Mapping {
        try mapping().applying(Self.treatments(treatments))
    }

    private static func treatments(_ changes: [ContentKind: KindTreatment]) -> KindTreatments {
        var treatments = KindTreatments.standard
        for (kind, treatment) in changes { treatments[kind] = treatment }
        return treatments
    }

    private static func world(
        _ changes: [ContentKind: KindTreatment] = [:], _ policy: Policy = .hosted
    ) throws -> JSONWorld {
        try JSONWorld(policy, mapping: mapping(changes))
    }

    private static let code = "pawl_kind"

    @Test func theDefaultsPassWhatBackendsNeed() throws {
        #expect(
            ContentKind.allCases.map { KindTreatments.standard[$0] } == [.pass, .pass, .pass, .refuse, .refuse, .pass])
        let world = try Self.world()
        #expect(world.send("PUT", "/c/all/like", as: "t-alice", "{}")?["error"] != Self.code)
        #expect(world.send("POST", "/rooms", as: "t-alice", #"{"topic":"canary"}"#)?["error"] != Self.code)
        let poll = try #require(world.send("POST", "/c/all/poll", as: "t-alice", #"{"text":"canarypoll"}"#))
        #expect(poll.status == 403 && poll["error"] == Self.code)
        #expect(poll["message"]?.contains(ContentKind.polls.words) == true)
        #expect(!world.backend.hasReceived("canarypoll"))
    }

    @Test func whatIsRefusedIsRefusedWhereProtectionIsDemanded() throws {
        let refusing: [ContentKind: KindTreatment] = [.reactions: .refuse, .names: .refuse, .topics: .refuse]
        let world = try Self.world(refusing)
        #expect(world.send("PUT", "/c/all/like", as: "t-alice", "{}")?["error"] == Self.code)
        for body in [
            #"{"name":"canary"}"#, #"{"topic":"canary"}"#, #"{"state":[{"type":"topic","x":"canary"}]}"#,
            #"{"name":"a","name":"canary"}"#, #"{"topic":["canary"]}"#,
        ] {
            #expect(world.send("POST", "/rooms", as: "t-alice", body)?["error"] == Self.code, "\(body)")
        }
        #expect(world.send("POST", "/rooms", as: "t-alice", "canary")?.status == 400)
        // Some programs ignore the case of names, or read JSON as a form.
        #expect(world.send("POST", "/rooms", as: "t-alice", #"{"Topic":"canary"}"#)?.status == 400)
        let form = world.send(
            "POST", "/rooms", as: "t-alice", #"{"x":"&topic=canary&"}"#,
            fields: [("Content-Type", "application/x-www-form-urlencoded")])
        #expect(form?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
        for body in ["", "{}", #"{"name":null,"state":[{"type":"other"}]}"#] {
            #expect(world.send("POST", "/rooms", as: "t-alice", body)?["error"] != Self.code, "\(body)")
        }
        let observing = try Self.world(refusing, .observe)
        #expect(observing.send("PUT", "/c/all/like", as: "t-alice", "{}")?["error"] != Self.code)
        #expect(observing.send("POST", "/rooms", as: "t-alice", #"{"name":"a"}"#)?["error"] != Self.code)
    }

    @Test func contentOfAKindIsSealedOrPassesAsItIs() throws {
        let sealing = try Self.world([.polls: .seal])
        #expect(sealing.send("POST", "/c/all/poll", as: "t-alice", #"{"text":"canary"}"#)?["error"] != Self.code)
        #expect(!sealing.backend.hasReceived("canary"))
        let passing = try Self.world([.polls: .pass])
        #expect(passing.send("POST", "/c/all/poll", as: "t-alice", #"{"text":"canary"}"#)?["error"] != Self.code)
        #expect(passing.backend.hasReceived("canary"))
    }

    /// Messages of a kind are looked for if they are sealed. If not, they pass unmarked, and nothing else is read for them.
    @Test func messagesOfAKindAreReadIfItIsSealed() throws {
        var mapping = Mapping.lab
        let history = try #require(mapping.routes.first { $0.label == .history })
        let topics = history.response.map { shape in
            var shape = shape
            shape.kind = .topics
            return shape
        }
        for (path, shapes) in [("/topics/{conversation}", topics), ("/all/{conversation}", topics + history.response)] {
            mapping.routes.insert(
                Mapping.Route(
                    methods: ["GET"], path: try PathPattern(path), label: .history, response: shapes,
                    conversation: .capture("conversation")), at: 0)
        }
        #expect(mapping.applying(.standard).routes[0].response == history.response)
        #expect(mapping.applying(.standard).routes[1].label == .passthrough)
        let sealing = mapping.applying(Self.treatments([.topics: .seal]))
        #expect(sealing.routes[0].response.count == 2 * history.response.count && sealing.routes[1].label == .history)
    }

    /// The content of a request names its kind if answers are read by it.
    @Test func aRequestIsOfTheKindThatAnswersAreReadBy() throws {
        var mapping = try Self.mapping()
        #expect(mapping.applying(Self.treatments([.polls: .seal])).routes[1].request?.kind == nil)
        var shape = try #require(mapping.routes.first { $0.label == .history }?.response.first)
        shape.kind = .polls
        mapping.routes.append(
            Mapping.Route(methods: ["GET"], path: try PathPattern("/polls"), label: .history, response: [shape]))
        #expect(mapping.applying(Self.treatments([.polls: .seal])).routes[1].request?.kind == .polls)
    }

    /// Messages for which a condition holds are none of a shape.
    @Test func exceptionsAreNoMessages() throws {
        var shape = Mapping.lab.routes.first { $0.label == .history }?.response.first ?? Mapping.lab.frames[0].shapes[0]
        (shape.containers, shape.messages) = (try JSONPath("$"), try JSONPath("[*]"))
        (shape.content, shape.sender) = (nil, nil)
        (shape.text, shape.conversation) = (try JSONPath("text"), .message(try JSONPath("room")))
        shape.exceptions = [try JSONPath("[?state]"), try JSONPath("[?type == \"a\"]")]
        let members = [#""x":1"#, #""type":"a""#, #""state":"""#, #""type":"b""#, #""type":"a","type":"b""#]
        let texts = members.enumerated().map { #"{"text":"\#($0 + 1)","room":"r",\#($1)}"# }
        let document = try JSONDocument(ByteBuffer(string: "[" + texts.joined(separator: ",") + "]"))
        let reading = MessageReading(document, [shape], isRequest: false)
        #expect(try reading.messages.map { try document.text(try #require($0.text)) } == ["1", "4"])
        // Which of two members counts is unknown, so the message is not read.
        #expect(reading.unread.count == 1)
    }

    /// The strictest treatment counts, and a refusal names the kind that has it.
    @Test func ofSeveralKindsTheStrictestCounts() throws {
        let both = try Self.world([.topics: .refuse])
        let refused = try #require(both.send("POST", "/settings", as: "t-alice", #"{"name":"canary"}"#))
        #expect(refused.status == 403 && refused["error"] == Self.code)
        #expect(refused["message"]?.contains(ContentKind.topics.words) == true)
        #expect(!both.backend.hasReceived("canary"))
        let passing = try Self.world()
        #expect(passing.send("POST", "/settings", as: "t-alice", #"{"name":"canary"}"#)?["error"] != Self.code)
        #expect(passing.backend.hasReceived("canary"))
        let mapping = try Self.mapping()
        #expect(mapping.faults(of: Self.treatments([.names: .seal])) == [.unsealable(.names)])
        // What only a part of another request holds cannot be sealed there.
        var part = mapping
        part.routes.removeAll { $0.kinds.contains(.names) }
        #expect(part.faults(of: Self.treatments([.names: .seal])) == [.unsealable(.names)])
        #expect(mapping.faults(of: Self.treatments([.names: .refuse, .topics: .refuse])).isEmpty)
    }

    /// A refused kind is refused where protection is demanded. Elsewhere its answer is read as before.
    @Test func theAnswerToARefusedKindIsRead() throws {
        var mapping = Mapping.lab
        let history = try #require(mapping.routes.first { $0.label == .history })
        mapping.routes.insert(
            Mapping.Route(
                methods: ["GET"], path: try PathPattern("/c/{conversation}"),
                query: [QueryCondition("name", .present)], label: .history, response: history.response,
                kinds: [.names]), at: 0)
        let world = try JSONWorld(.hosted, mapping: mapping.applying(Self.treatments([.names: .refuse])))
        for name in ["alice", "bob"] { world.send("GET", "/me", as: "t-\(name)") }
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"text":"canary"}"#)?.status == 201)
        #expect(!world.backend.hasReceived("canary"))
        #expect(world.send("GET", "/c/pair?name=x", as: "t-bob")?["error"] == Self.code)
        world.environment.policies.update { $0.everyone = .opportunistic }
        let named = try #require(world.send("GET", "/c/pair?name=x", as: "t-bob"))
        #expect(named["messages[0].data.text"] == "canary", "\(named.text)")
    }

    /// A route without content to seal is refused, and reported before it comes to that.
    @Test func whatCannotTakeEffectIsReported() throws {
        let mapping = try Self.mapping()
        #expect(mapping.faults(of: Self.treatments([.polls: .seal])).isEmpty)
        #expect(mapping.faults(of: Self.treatments([.reactions: .seal])) == [.unsealable(.reactions)])
        #expect(mapping.faults(of: Self.treatments([.topics: .seal])) == [.unsealable(.topics)])
        #expect(mapping.faults(of: Self.treatments([.custom: .pass])) == [.unmarked(.custom)])
        #expect(mapping.faults(of: Self.treatments([.names: .refuse, .keywords: .refuse])).isEmpty)
        let world = try Self.world([.reactions: .seal])
        #expect(world.send("PUT", "/c/all/like", as: "t-alice", "{}")?["error"] == Self.code)
    }

    @Test func keywordsAreCountedByPerson() throws {
        let world = try Self.world()
        for word in ["pizza", "tea"] { world.send("PUT", "/words/\(word)", as: "t-alice", "{}") }
        world.send("GET", "/words/pizza", as: "t-bob")
        let rows = world.environment.observations.take(wall: 1).compactMap { change -> ObservationRow? in
            if case .rare(.addObservation(let row)) = change { row } else { nil }
        }.filter { $0.recipient == ObservedRecipient.keywords.rawValue }
        #expect(rows.map(\.sender) == ["alice"] && rows.map(\.messages) == [2])
        #expect(rows.map(\.target) == ["PUT /words/{word}"])
        let refusing = try Self.world([.keywords: .refuse])
        #expect(refusing.send("PUT", "/words/pizza", as: "t-alice", "{}")?["error"] == Self.code)
    }
}
