import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Edits that name a conversation and an earlier message. The backend goes by the message alone, so both must agree.
@Suite struct EditedPlaceTests {
    /// A world with `POST /edits`, in which Alice has written `m1` into the room `all`.
    private static func world(_ policy: Policy = .hosted) throws -> JSONWorld {
        var mapping = Mapping.lab
        var edit = try #require(mapping.routes[0].request)
        (edit.conversation, edit.edited) = (.message(try path("room")), try path("message"))
        edit.localID = nil
        mapping.routes.append(
            Mapping.Route(methods: ["POST"], path: try PathPattern("/edits"), label: .content, request: edit))
        let world = try JSONWorld(policy, mapping: mapping)
        world.backend.rooms["side"] = ["alice", "bob", "carol"]
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"first"}"#)?.status == 201)
        return world
    }

    private static func edit(
        _ world: JSONWorld, _ message: String, in room: String, _ text: String = "the canary sings"
    ) -> JSONWorld.Answer? {
        let body = #"{"room":"\#(room)","message":"\#(message)","text":"\#(text)"}"#
        return world.send("POST", "/edits", as: "t-alice", body)
    }

    private static func isRefused(_ answer: JSONWorld.Answer?, _ words: String) -> Bool {
        answer?.status == 400 && answer?.text.contains(words) == true
    }

    private static func asked(_ world: JSONWorld) -> Bool { world.backend.hasReceived("GET /m/") }

    @Test func theGatewayKnowsWhatTheAccountHasMet() throws {
        let world = try Self.world()
        #expect(Self.isRefused(Self.edit(world, "m1", in: "side"), "another conversation"))
        #expect(!world.backend.hasReceived("/edits"))
        #expect(Self.edit(world, "m1", in: "all")?.status == 200)
        #expect(!world.backend.hasReceived("canary") && !Self.asked(world))
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "the canary sings")
    }

    /// The room in the request may have plaintext, and that of the message may not.
    @Test func theNamedConversationDoesNotLetPlaintextIntoAnother() throws {
        let world = try Self.world()
        world.environment.policies.update { $0.everyone = .opportunistic }
        for forgets in [false, true] {
            if forgets { world.environment.messages.forgetAll() }
            #expect(Self.isRefused(Self.edit(world, "m1", in: "side"), "another conversation"))
            #expect(!world.backend.hasReceived("canary"))
        }
        world.backend.messages["side"] = [.init(id: "m9", sender: "alice", body: #"{"text":"plain"}"#)]
        #expect(Self.edit(world, "m9", in: "side", "open")?.status == 200)
        #expect(world.backend.hasReceived("open"))
    }

    @Test func theBackendIsAskedForOthers() throws {
        let world = try Self.world()
        world.environment.messages.forgetAll()
        world.backend.place = "side"
        #expect(Self.isRefused(Self.edit(world, "m1", in: "all"), "another conversation"))
        world.backend.place = ""
        #expect(Self.isRefused(Self.edit(world, "m1", in: "all"), "is not known"))
        world.backend.place = nil
        #expect(Self.isRefused(Self.edit(world, "m77", in: "all"), "is not known"))
        #expect(!world.backend.hasReceived("/edits"))
        #expect(Self.edit(world, "m1", in: "all")?.status == 200)
        #expect(Self.asked(world) && !world.backend.hasReceived("canary"))
    }

    @Test(arguments: [
        #"{"room":"all","text":"the canary sings"}"#, #"{"room":"all","message":null,"text":"the canary sings"}"#,
        #"{"room":"all","message":["m1"],"text":"the canary sings"}"#,
        #"{"room":"all","message":"m1","Message":"m2","text":"the canary sings"}"#,
    ]) func anEditNamesOneMessage(_ body: String) throws {
        let world = try Self.world()
        #expect(world.send("POST", "/edits", as: "t-alice", body)?.status == 400)
        #expect(!world.backend.hasReceived("/edits"))
    }

    /// Until the backend has a message, it is where it was written.
    @Test func aWaitingMessageIsWhereItWasWritten() throws {
        let world = try Self.world()
        world.queueIsOpen = false
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"id":"5","text":"second"}"#) == nil)
        #expect(Self.edit(world, "5", in: "all") == nil)
        #expect(world.waiting.count == 2 && !Self.asked(world))
        #expect(Self.isRefused(Self.edit(world, "5", in: "side"), "is not known"))
        #expect(world.waiting.count == 2)
    }

    @Test func whereNothingIsProtectedNobodyIsAsked() throws {
        let world = try Self.world(.opportunistic)
        #expect(Self.edit(world, "m1", in: "side", "open")?.status == 200)
        #expect(world.backend.hasReceived("open") && !Self.asked(world))
    }
}
