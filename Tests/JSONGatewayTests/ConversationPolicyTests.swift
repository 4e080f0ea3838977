import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing
import Vault

/// Which policy counts in a conversation of a JSON backend.
@Suite struct ConversationPolicyTests {
    private static let mark = "[not encrypted]"
    private static let alice = AccountID.services("alice")

    private struct Unexpected: Error { let what: String }

    /// What comes as history may be older than the protection.
    @Test(arguments: ["room", "everyone", "below everyone"])
    func plaintextInAProtectedConversationIsMarkedOrWithheld(_ scope: String) throws {
        let world = try JSONWorld(.observe)
        world.environment.policies.update { policies in
            if scope == "room" { policies.accounts[.room("all")] = .hosted } else { policies.everyone = .hosted }
            if scope == "below everyone" { policies.accounts[.services("bob")] = .observe }
        }
        func text(_ number: Int, since: String = "?since=1") -> String? {
            world.send("GET", "/c/all\(since)", as: "t-bob")?["messages[\(number)].data.text"]
        }
        _ = world.direct("POST", "/c/all", as: "t-eve", #"{"text":"before"}"#)
        #expect(text(0) == "\(Self.mark) before")
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"sealed"}"#)
        world.environment.policies.update { policies in
            policies.everyone = .observe
            policies.accounts = [:]
        }
        _ = world.direct("POST", "/c/all", as: "t-eve", #"{"text":"taken back"}"#)
        #expect(text(1) == "sealed")
        #expect(text(2)?.contains("was withheld") == true)
        #expect(text(2, since: "") == "\(Self.mark) taken back")
    }

    /// All protection is lowered again, and the vault has the keys of what was sealed before.
    @Test(arguments: [false, true]) func whatWasSealedBeforeIsStillOpened(_ restarts: Bool) throws {
        let (store, backend) = (InMemoryStore(), JSONBackend())
        var world = try JSONWorld(.hosted, backend: backend, store: store)
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"the canary sings"}"#)
        #expect(!backend.hasReceived("canary"))
        try world.lowerProtection()
        if restarts { world = try JSONWorld(.observe, backend: backend, store: store) }
        #expect(world.environment.latches.isEmpty)
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"2","text":"in the clear"}"#)
        #expect(backend.hasReceived("in the clear"))
        for target in ["/c/all", "/c/all?since=1"] {
            let list = try #require(world.send("GET", target, as: "t-bob"))
            #expect(list["messages[0].data.text"] == "the canary sings" && list["messages[0].data.encrypted"] == nil)
            #expect(list["messages[1].data.text"] == "in the clear")
        }
    }

    /// A conversation of two is private, one of more is a room.
    @Test func anAccountsPolicyCountsInConversationsOfTwo() throws {
        let world = try JSONWorld(.observe, accounts: ["alice": .hosted])
        for name in ["alice", "bob", "carol"] { world.send("GET", "/me", as: "t-\(name)") }
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"to all"}"#)
        #expect(world.backend.hasReceived("to all") && world.environment.latches.isEmpty)
        // She sees of her own message that the server can read it.
        #expect(world.send("GET", "/c/all", as: "t-alice")?["messages[0].data.text"] == "\(Self.mark) to all")
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "to all")
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"the canary sings"}"#)
        world.send("POST", "/c/pair", as: "t-bob", #"{"id":"3","text":"the canary answers"}"#)
        #expect(world.send("GET", "/c/pair", as: "t-bob")?["messages[0].data.text"] == "the canary sings")
        #expect(!world.backend.hasReceived("canary"))
        world.environment.policies.update { $0.set(.hosted, for: Self.alice, withRooms: true) }
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"4","text":"the canary sings to all"}"#)
        #expect(!world.backend.hasReceived("canary"))
        #expect(world.environment.latches.latch(of: .ofRoom("all")) == .gateway)
    }

    /// Somebody from outside makes the gateway ask for the members of a conversation, and the backend names none.
    @Test func whatAnOutsiderIsToldDecidesAboutNobodyElse() throws {
        let world = try JSONWorld(.observe, accounts: ["bob": .hosted])
        world.backend.hidesMembers = true
        for name in ["alice", "bob", "eve"] { world.send("GET", "/me", as: "t-\(name)") }
        func asked() -> Int { world.backend.received.count { $0.hasPrefix("GET /c/pair/members") } }
        for number in 1...3 {
            world.send("POST", "/c/pair", as: "t-eve", #"{"id":"\#(number)","text":"open"}"#)
            #expect(asked() == 1, "the answer is kept for her")
        }
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"the canary sings"}"#)
        #expect(asked() == 2 && !world.backend.hasReceived("canary"))
        // What a member is told counts for all.
        world.environment.conversations.forget("pair")
        world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"the canary sings"}"#)
        world.send("POST", "/c/pair", as: "t-bob", #"{"id":"3","text":"the canary answers"}"#)
        #expect(asked() == 3 && !world.backend.hasReceived("canary"))
    }

    /// Polls, stickers and files in a room that is protected, by people whose own policy demands nothing.
    @Test(arguments: ["room", "latch"])
    func whatCannotBeSealedIsRefusedInAProtectedConversation(_ scope: String) throws {
        var mapping = Mapping.lab
        for (path, label) in [("polls", Mapping.Label.refused), ("stickers", .media), ("upload", .upload)] {
            mapping.routes.append(
                Mapping.Route(
                    methods: ["POST"], path: try PathPattern("/c/{conversation}/\(path)"), label: label,
                    conversation: .capture("conversation")))
        }
        let world = try JSONWorld(.observe, mapping: mapping)
        for room in ["all", "pair"] {
            for path in ["polls", "stickers", "upload"] {
                _ = world.send("POST", "/c/\(room)/\(path)", as: "t-alice", #"{"text":"open"}"#)
                #expect(world.backend.hasReceived("/c/\(room)/\(path) {"))
            }
        }
        world.environment.policies.update { $0.accounts[.room("all")] = .hosted }
        if scope == "latch" {
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"sealed"}"#)
            world.environment.policies.update { $0.accounts = [:] }
        }
        for path in ["polls", "stickers"] {
            let answer = world.send("POST", "/c/all/\(path)", as: "t-alice", #"{"text":"the canary sings"}"#)
            #expect(answer?.status == 403)
        }
        world.send(
            "POST", "/c/all/upload", as: "t-alice", "the canary sings",
            fields: [("Content-Type", "text/plain"), ("Content-Length", "16")])
        #expect(!world.backend.hasReceived("canary") && !world.sealed.isEmpty)
        world.send("POST", "/c/pair/polls", as: "t-alice", #"{"text":"elsewhere"}"#)
        #expect(world.backend.hasReceived("elsewhere"))
    }

    /// If the backend does not answer, a text must neither go out nor protect a room of many.
    @Test func withoutAnAnswerAboutMembersNothingIsSentOrProtected() throws {
        let world = try JSONWorld(.observe, accounts: ["alice": .hosted])
        var steps = ExchangeSteps(world)
        guard case .collectRequest = steps.begin("POST", "/c/pair").last,
            case .look(let lookup) = steps.take(.requestBody(ByteBuffer(string: #"{"text":"secret"}"#))).last
        else { throw Unexpected(what: "no question for members") }
        guard case .respond(let head, let body) = steps.take(.notFound(lookup.id)).last else {
            throw Unexpected(what: "no refusal")
        }
        #expect(head.status == 403 && String(buffer: body).contains("pawl_members"))
        #expect(world.environment.tally[.refusedMembers] == 1 && world.environment.latches.isEmpty)
    }

    /// A mapping that cannot ask for members: every conversation may be one of two.
    @Test func whereNobodyCanAskForMembersAnAccountsPolicyCountsEverywhere() throws {
        var mapping = Mapping.lab
        mapping.members = nil
        let world = try JSONWorld(.observe, mapping: mapping, accounts: ["alice": .hosted])
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"the canary sings"}"#)
        #expect(!world.backend.hasReceived("canary") && world.backend.messages["all"]?.count == 1)
    }

    /// A message that the backend refuses protects nothing; one that it has taken does, whatever is refused later.
    @Test func aRefusedFirstMessageRaisesNoLatch() throws {
        let world = try JSONWorld(.hosted)
        func post(_ id: String) -> Int? {
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"\#(id)","text":"the canary sings"}"#)?.status
        }
        func isLatched() throws -> Bool {
            let stored = try world.store.conversations(limit: 9).map(\.id) == [.ofRoom("all")]
            #expect(stored == (world.environment.latches.latch(of: .ofRoom("all")) == .gateway))
            return stored
        }
        world.backend.closed = ["all"]
        #expect(post("1") == 404)
        #expect(try !isLatched())
        world.backend.closed = []
        #expect(post("2") == 201)
        #expect(try isLatched())
        world.backend.closed = ["all"]
        #expect(post("3") == 404)
        #expect(try isLatched())
        #expect(!world.backend.hasReceived("canary"))
    }

    /// Of two that wait, the first is refused: the other one keeps the conversation protected.
    @Test func aRefusedFirstMessageLeavesTheLatchToASecondOne() throws {
        let world = try JSONWorld(.hosted)
        let room = ConversationID.ofRoom("all")
        func write(_ ticket: UInt64) throws -> MessageID {
            let job = SealMessageJob(
                connection: ConnectionID(1), ticket: ticket, sender: Self.alice, conversation: room.first,
                plaintext: [1, 2, 3])
            guard case .sealed(_, let written)? = world.perform(.seal(job)).first else {
                throw Unexpected(what: "not sealed")
            }
            return written.message
        }
        let first = try write(1)
        _ = try write(2)
        _ = world.perform(.refused(room, first))
        #expect(world.environment.latches.latch(of: room) == .gateway)
        #expect(try world.store.conversations(limit: 9).count == 1)
    }

    // MARK: Names

    /// An account whose name looks like that of an IRC connection keeps its device, and with it what it has written, over a restart.
    @Test func anAccountWithATildeKeepsItsHistory() throws {
        let store = InMemoryStore()
        let backend = JSONBackend()
        backend.people.insert("~zed")
        backend.rooms["pair"] = ["alice", "~zed"]
        let world = try JSONWorld(.hosted, backend: backend, store: store)
        for name in ["alice", "~zed"] { world.send("GET", "/me", as: "t-\(name)") }
        #expect(world.send("POST", "/c/pair", as: "t-~zed", #"{"id":"1","text":"from zed"}"#)?.status == 201)
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"from alice"}"#)?.status == 201)
        #expect(!backend.hasReceived("from zed") && !backend.hasReceived("from alice"))
        let again = try JSONWorld(.hosted, backend: backend, store: store)
        for name in ["alice", "~zed"] {
            let list = try #require(again.send("GET", "/c/pair", as: "t-\(name)"))
            #expect(list["messages[0].data.text"] == "from zed")
            #expect(list["messages[1].data.text"] == "from alice")
        }
        #expect(again.environment.accounts.contains(.services("~zed")), "it is behind the gateway as before")
        #expect(again.send("POST", "/c/pair", as: "t-alice", #"{"id":"3","text":"once more"}"#)?.status == 201)
        #expect(!backend.hasReceived("once more"))
        // What a client proves its device for is the name that the backend knows.
        let answer = again.call("POST", "challenge", as: "t-~zed")
        #expect(answer["account"] == "~zed")
        _ = again.device("~zed", id: 9)
    }
}
