import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Requests whose backend takes names of conversations where their ids stand: policies and latches are those of ids.
@Suite struct ConfirmedConversationTests {
    /// A world with `POST /posts`, whose backend knows the room `all` as `everybody` too.
    private static func world() throws -> JSONWorld {
        var mapping = Mapping.lab
        var post = try #require(mapping.routes[0].request)
        (post.conversation, post.isConfirmed, post.localID) = (.message(try path("room")), true, nil)
        mapping.routes.append(
            Mapping.Route(methods: ["POST"], path: try PathPattern("/posts"), label: .content, request: post))
        mapping.conversationsByID = ConversationSource(target: "/rooms/{conversation}", id: try path("room.id"))
        let world = try JSONWorld(.observe, mapping: mapping)
        world.backend.rooms["side"] = ["alice", "bob", "carol"]
        world.backend.names = ["everybody": "all"]
        return world
    }

    private static func post(_ world: JSONWorld, in room: String, _ text: String) -> JSONWorld.Answer? {
        world.send("POST", "/posts", as: "t-alice", #"{"room":"\#(room)","text":"\#(text)"}"#)
    }

    private static func asked(_ world: JSONWorld, _ room: String) -> Int {
        world.backend.received.count { $0.hasPrefix("GET /rooms/\(room) ") }
    }

    @Test func anotherNameDoesNotLetPlaintextIntoAConversation() throws {
        let world = try Self.world()
        world.environment.policies.update { $0.accounts[.room("all")] = .hosted }
        for name in ["everybody", "nowhere"] {
            let answer = try #require(Self.post(world, in: name, "the canary sings"))
            #expect(answer.status == 400 && answer.text.contains("name it by its id"))
        }
        #expect(!world.backend.hasReceived("/posts"))
        for _ in 0..<2 { #expect(Self.post(world, in: "all", "the canary sings")?.status == 200) }
        #expect(!world.backend.hasReceived("canary") && Self.asked(world, "all") == 1)
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "the canary sings")
        #expect(Self.post(world, in: "side", "open")?.status == 200)
        #expect(world.backend.hasReceived("open"))
    }

    @Test func withoutALookupSuchRequestsAreRefused() throws {
        let world = try Self.world()
        var mapping = world.environment.mapping
        mapping.conversationsByID = nil
        world.environment.replace(mapping, texts: world.environment.texts, answerLimit: 1 << 20)
        #expect(Self.post(world, in: "everybody", "open")?.status == 200)
        world.environment.policies.update { $0.accounts[.room("all")] = .hosted }
        #expect(Self.post(world, in: "side", "the canary sings")?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func whereNothingIsProtectedNobodyIsAsked() throws {
        let world = try Self.world()
        #expect(Self.post(world, in: "everybody", "open")?.status == 200)
        #expect(world.backend.messages["all"]?.count == 1 && Self.asked(world, "everybody") == 0)
    }

    @Test func memoryIsBounded() {
        let confirmed = ConfirmedConversations()
        for number in 0...ConfirmedConversations.limit { confirmed.add("\(number)") }
        #expect(!confirmed.contains("0") && confirmed.contains("\(ConfirmedConversations.limit)"))
    }
}
