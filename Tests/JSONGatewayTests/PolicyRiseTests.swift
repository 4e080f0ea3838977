import Envelope
import Foundation
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Testing
import Vault

/// What has begun when the policy rises, or before somebody else's conversation was protected.
@Suite struct PolicyRiseTests {
    private static let secret = "the canary sings"
    private static let upgrade = [
        ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ]

    private struct Unexpected: Error { let what: String }

    @Test func aBodyThatComesAfterTheRiseIsNotPassed() throws {
        let world = try JSONWorld(.opportunistic)
        var steps = ExchangeSteps(world)
        guard case .collectRequest = steps.begin("POST", "/c/all").last else {
            throw Unexpected(what: "no body is asked for")
        }
        world.environment.policies.update { $0.everyone = .hosted }
        var actions = steps.take(.requestBody(ByteBuffer(string: "no JSON: \(Self.secret)")))
        guard case .look(let lookup) = actions.last else { throw Unexpected(what: "nobody asks for members") }
        actions = steps.take(.notFound(lookup.id))
        guard case .respond(let head, _) = actions.last else { throw Unexpected(what: "\(actions)") }
        #expect(head.status == 400)
    }

    /// Under `observe` the body is not looked at, so it is not there when it has to be sealed all of a sudden.
    @Test func aQuestionForMembersThatIsAnsweredAfterTheRiseLeadsToASeal() throws {
        let world = try JSONWorld(.observe)
        var steps = ExchangeSteps(world)
        guard case .look(let lookup) = steps.begin("POST", "/c/all").last else { throw Unexpected(what: "nobody asks") }
        world.environment.policies.update { $0.everyone = .hosted }
        let (head, body) = try #require(world.backend.answer(lookup.head, ByteBuffer()))
        guard case .collectRequest = steps.take(.found(lookup.id, head, body)).last else {
            throw Unexpected(what: "no body is asked for")
        }
        let text = ByteBuffer(string: #"{"text":"\#(Self.secret)"}"#)
        guard case .enqueue(let write) = steps.take(.requestBody(text)).first, write.text != nil else {
            throw Unexpected(what: "nothing is sealed")
        }
    }

    @Test(arguments: ["/me", "/nowhere"]) func nobodyLooksIntoAWebSocketOnlyWhereNothingIsProtected(path: String) throws
    {
        let world = try JSONWorld(.observe)
        func session(_ token: String?) -> String {
            var steps = ExchangeSteps(world)
            var headers = HeaderFields(Self.upgrade.map { HeaderFields.Field($0.0, $0.1) })
            if let token { headers.add("Authorization", token) }
            var actions = steps.take(.request(RequestHead("GET", path, headers: headers)))
            if case .look(let lookup) = actions.first,
                let (head, body) = world.backend.answer(lookup.head, ByteBuffer())
            {
                actions = steps.take(.found(lookup.id, head, body))
            }
            switch actions.last {
            case .respond(let head, _): return "\(head.status)"
            case .passRequest:
                guard case .upgrade(_, let session) = steps.take(.response(ResponseHead(101))).last else { return "?" }
                return session == nil ? "raw" : "framed"
            default: return "?"
            }
        }
        #expect(session(nil) == "raw")
        #expect(session("Bearer t-alice") == "raw")
        world.environment.policies.update { $0.everyone = .opportunistic }
        #expect(session(nil) == "raw")
        #expect(session("Bearer t-alice") == "framed")
        world.environment.latches.raise(ConversationID(.room("all"), .room("all")), to: .gateway)
        #expect(session(nil) == "401")
        #expect(session("Bearer t-alice") == "framed")
        world.environment.policies.update { $0.everyone = .off }
        #expect(session(nil) == "401")
        #expect(session("Bearer t-alice") == "framed")
        world.environment.policies.update { $0.everyone = .hosted }
        #expect(session(nil) == (path == "/me" ? "401" : "403"))
        #expect(session("Bearer t-alice") == (path == "/me" ? "framed" : "403"))
    }

    // MARK: Somebody else's protection

    private static let unreadable = ["the canary sings", #"{"file":"the canary sings"}"#, #"{"text":7}"#]

    @Test(arguments: unreadable) func whatNobodyCanReadGoesWhereNothingIsProtected(_ body: String) throws {
        let world = try JSONWorld(.off)
        world.environment.policies.update { $0.accounts[.room("all")] = .hosted }
        #expect(world.send("POST", "/c/pair", as: "t-alice", body)?.status == 201)
        #expect(world.backend.messages["pair"]?.first?.body == body)
        #expect(world.send("POST", "/c/all", as: "t-alice", body)?.status == 400)
        world.environment.latches.raise(ConversationID(.room("pair"), .room("pair")), to: .gateway)
        #expect(world.send("POST", "/c/pair", as: "t-alice", body)?.status == 403, "bob has never been here")
        #expect(world.backend.messages["all"] == nil && world.backend.messages["pair"]?.count == 1)
    }

    /// With a body that says itself where it belongs, and one that is too long to be looked at.
    @Test(arguments: [Policy.observe, .opportunistic]) func whatIsTooLongIsPassedWhereNothingIsProtected(
        _ policy: Policy
    ) throws {
        let world = try JSONWorld(policy, mapping: Self.inTheBody)
        let long = #"{"room":"all","text":"\#(String(repeating: "x", count: HTTPExchange.requestLimit))"}"#
        #expect(world.send("POST", "/c/all", as: "t-alice", long)?.status == 201)
        #expect(world.backend.messages["all"]?.first?.body == long)
        world.environment.policies.update { $0.accounts[.services("bob")] = .hosted }
        #expect(world.send("POST", "/c/all", as: "t-alice", long)?.status == 413)
        // Her own policy counts between two people, not in a room.
        let hosted = try JSONWorld(policy, accounts: ["alice": .hosted])
        hosted.send("GET", "/me", as: "t-bob")
        #expect(hosted.send("POST", "/c/pair", as: "t-alice", long)?.status == 413)
        #expect(hosted.send("POST", "/c/all", as: "t-alice", long)?.status == 201)
        #expect(hosted.send("POST", "/c/all", as: "t-bob", long)?.status == 201)
    }

    /// A mapping whose messages say themselves what conversation they belong to.
    private static let inTheBody: Mapping = {
        var mapping = Mapping.lab
        mapping.routes = mapping.routes.map { route in
            guard let request = route.request, let room = try? path("room") else { return route }
            return Mapping.Route(
                methods: route.methods, path: route.path, label: .content,
                request: MessageShape(
                    containers: request.containers, messages: request.messages, conversation: .message(room),
                    text: request.text, also: request.also, flag: request.flag, localID: request.localID),
                remoteID: route.remoteID)
        }
        return mapping
    }()
}
