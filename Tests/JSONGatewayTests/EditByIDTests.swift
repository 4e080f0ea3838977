import Foundation
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// Edits that name a message only: their conversation is that in which the account has met it.
@Suite struct EditByIDTests {
    private static let edit = #"{"text":"the canary sings"}"#

    /// A world in which Alice has written `m1` into the room `all`.
    private static func world(_ policy: Policy = .hosted) throws -> JSONWorld {
        let world = try JSONWorld(policy)
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"first"}"#)?.status == 201)
        return world
    }

    private static func asked(_ world: JSONWorld) -> Bool { world.backend.hasReceived("GET /m/") }

    @Test func theWriterKnowsTheConversation() throws {
        let world = try Self.world()
        #expect(world.send("PATCH", "/m/m1", as: "t-alice", Self.edit)?.status == 200)
        #expect(!world.backend.hasReceived("canary") && !Self.asked(world))
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[0].data.text"] == "the canary sings")
    }

    @Test func theReaderKnowsTheConversation() throws {
        let world = try Self.world()
        world.backend.messages["pair"] = [.init(id: "m9", sender: "bob", body: #"{"text":"plain"}"#)]
        _ = world.send("GET", "/c/pair", as: "t-bob")
        #expect(world.send("PATCH", "/m/m9", as: "t-bob", Self.edit)?.status == 200)
        #expect(!world.backend.hasReceived("canary") && !Self.asked(world))
        #expect(world.send("GET", "/c/pair", as: "t-alice")?["messages[0].data.text"] == "the canary sings")
    }

    @Test func theBackendIsAskedForOthers() throws {
        let world = try Self.world()
        // Bob has not met it: Alice's knowledge is hers.
        #expect(world.environment.messages.find("m1", for: .services("bob")) == .unknown)
        #expect(world.send("PATCH", "/m/m1", as: "t-bob", Self.edit)?.status == 200)
        #expect(Self.asked(world) && !world.backend.hasReceived("canary"))
        #expect(world.send("GET", "/c/all", as: "t-alice")?["messages[0].data.text"]?.contains("canary") == false)
        _ = world.send("PATCH", "/m/m1", as: "t-alice", Self.edit)
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "the canary sings")
    }

    @Test func anUnknownMessageIsRefused() throws {
        let world = try Self.world()
        for id in ["m77", "m%201", String(repeating: "m", count: 600)] {
            let answer = try #require(world.send("PATCH", "/m/\(id)", as: "t-alice", Self.edit))
            #expect(answer.status == 400 && answer.text.contains("is not known"))
        }
        #expect(!world.backend.hasReceived("canary"))
        world.backend.place = ""
        world.environment.messages.forgetAll()
        #expect(world.send("PATCH", "/m/m1", as: "t-alice", Self.edit)?.status == 400)
    }

    /// The backend names a conversation without protection, in order to read an edit of a protected one.
    @Test func aConversationThatOnlyTheBackendNamesIsNoReasonToSendPlaintext() throws {
        let world = try Self.world()
        world.environment.policies.update { $0.everyone = .opportunistic }
        world.environment.messages.forgetAll()
        world.backend.place = "pair"
        let answer = try #require(world.send("PATCH", "/m/m1", as: "t-alice", Self.edit))
        #expect(answer.status == 400 && !world.backend.hasReceived("canary"))
        // One that the account has met may be plaintext.
        world.backend.place = nil
        world.backend.messages["pair"] = [.init(id: "m9", sender: "bob", body: #"{"text":"plain"}"#)]
        _ = world.send("GET", "/c/pair", as: "t-alice")
        #expect(world.send("PATCH", "/m/m9", as: "t-alice", #"{"text":"open"}"#)?.status == 200)
        #expect(world.backend.hasReceived("open"))
    }

    @Test func whereNothingIsProtectedTheBackendIsBelieved() throws {
        let world = try JSONWorld(.opportunistic)
        world.backend.messages["pair"] = [.init(id: "m9", sender: "bob", body: #"{"text":"plain"}"#)]
        #expect(world.send("PATCH", "/m/m9", as: "t-alice", Self.edit)?.status == 200)
        #expect(world.send("PATCH", "/m/m77", as: "t-alice", Self.edit)?.status == 404)
    }

    @Test func anIDOfTwoConversationsIsNone() {
        let messages = MessageConversations()
        let (alice, bob) = (AccountID.services("alice"), AccountID.services("bob"))
        messages.remember("a", of: "1", for: alice)
        messages.remember("a", of: "1", for: alice)
        #expect(messages.find("1", for: alice) == .conversation("a"))
        #expect(messages.find("1", for: bob) == .unknown)
        messages.remember("b", of: "1", for: alice)
        messages.remember("a", of: "1", for: alice)
        #expect(messages.find("1", for: alice) == .ambiguous)
    }

    @Test func memoryIsBounded() {
        let messages = MessageConversations()
        let alice = AccountID.services("alice")
        for number in 0...MessageConversations.limit { messages.remember("a", of: "\(number)", for: alice) }
        #expect(messages.find("0", for: alice) == .unknown)
        #expect(messages.find("\(MessageConversations.limit)", for: alice) == .conversation("a"))
    }
}
