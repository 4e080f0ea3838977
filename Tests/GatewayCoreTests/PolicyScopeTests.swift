import Envelope
import HTTPCodec
import IRCGateway
import JSONGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing
import Vault

/// Which policy counts in a conversation: that of its members, of the room, of everyone, and the latch.
@Suite struct PolicyScopeTests {
    private static let mark = "[not encrypted]"

    // MARK: Plaintext from the backend

    /// Members under `observe` see the mark as well: in a room under `hosted`, and after the policy was taken back.
    @Test(arguments: ["room", "everyone"]) func plaintextInAProtectedRoomIsMarkedForEveryMember(_ scope: String) throws
    {
        let world = try World(.observe)
        world.environment.policies.update { policies in
            if scope == "room" { policies.accounts[.room("#room")] = .hosted } else { policies.everyone = .hosted }
        }
        let members = world.people(2)
        let carol = world.connect("carol", direct: true)
        world.send(carol, "JOIN #room")
        world.send(carol, "PRIVMSG #room :before")
        world.send(members[0], "PRIVMSG #room :sealed")
        world.send(carol, "PRIVMSG #ROOM :after")
        world.environment.policies.update { policies in
            policies.everyone = .observe
            policies.accounts = [:]
        }
        world.send(carol, "PRIVMSG #room :taken back")
        let expected = ["before", "after", "taken back"].map { "\(Self.mark) \($0)" }
        #expect(members[0].texts == expected)
        #expect(members[1].texts == [expected[0], "sealed"] + expected.dropFirst())
        // A line under the reader's own name is no exception, nor is one for members with a status.
        world.forge(members[1], [":p1!p1@host.test PRIVMSG #room :forged", ":carol!c@host.test PRIVMSG @#room :ops"])
        #expect(members[1].texts.suffix(2) == ["\(Self.mark) forged", "\(Self.mark) ops"])
        // Another room has neither policy nor latch.
        for person in members + [carol] { world.send(person, "JOIN #open") }
        world.send(carol, "PRIVMSG #open :plain")
        #expect(members[0].texts.last == "plain")
    }

    /// The gateway would have sealed it, so it does not come from the sender.
    @Test func plaintextUnderAHostedNameIsMarkedForAReaderUnderObserve() throws {
        let world = try World(.observe)
        world.environment.policies.update { $0.accounts[.services("alice")] = .hosted }
        world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.forge(bob, [":alice!alice@host.test PRIVMSG bob :forged"])
        #expect(bob.texts == ["\(Self.mark) forged"])
    }

    /// The same for backends that speak JSON. What comes as history may be older than the protection.
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

    // MARK: Whose policy counts

    private static let alice = AccountID.services("alice")

    /// One protected person among others used to protect every room for good.
    @Test func anAccountsPolicyCountsBetweenTwoPeopleAndNotInRooms() throws {
        let world = try World(.observe)
        world.environment.policies.update { $0.set(.hosted, for: Self.alice) }
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        let carol = world.connect("carol", direct: true)
        for person in [alice, bob, carol] { world.send(person, "JOIN #room") }
        world.send(alice, "PRIVMSG #room :one")
        world.send(alice, "PRIVMSG #Room :two")
        world.send(bob, "PRIVMSG #room :three")
        #expect(bob.texts == ["one", "two"])
        #expect(carol.texts == ["one", "two", "three"])
        #expect(world.environment.latches.isEmpty)
        // She learns it once, and sees of each line of others that the server can read it.
        #expect(alice.read.count { $0.contains("#room is not: the server can read") } == 1)
        #expect(bob.read.allSatisfy { !$0.contains("the server can read") })
        #expect(alice.texts == ["[not encrypted] three"])
        world.send(alice, "PRIVMSG bob :between us")
        world.send(bob, "PRIVMSG alice :and back")
        #expect(bob.texts.last == "between us" && alice.texts.last == "and back")
        #expect(!world.canary.contains("between us") && !world.canary.contains("and back"))
        #expect(world.environment.latches.count == 1)
    }

    @Test func withRoomsAnAccountsPolicySealsRoomsToo() throws {
        let world = try World(.observe)
        world.environment.policies.update { $0.set(.hosted, for: Self.alice, withRooms: true) }
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        for person in [alice, bob] { world.send(person, "JOIN #room") }
        world.send(bob, "PRIVMSG #room :in the open")
        world.send(alice, "PRIVMSG #room :sealed")
        world.send(bob, "PRIVMSG #room :sealed too")
        #expect(bob.texts == ["sealed"] && alice.texts == ["[not encrypted] in the open", "sealed too"])
        #expect(!world.canary.contains("sealed"))
        #expect(alice.read.allSatisfy { !$0.contains("the server can read") })
    }

    @Test(arguments: Policy.allCases, Policy.allCases) func aRoomHasTheStricterOfItsOwnPolicyAndEveryones(
        _ everyone: Policy, _ own: Policy
    ) {
        let room = AccountID.room("#room")
        var policies = PolicySnapshot(everyone: everyone, accounts: [room: own])
        #expect(policies.policy(inRoom: room, by: nil) == max(everyone, own))
        for entry in Policy.allCases {
            policies.set(entry, for: Self.alice)
            let expected: Policy =
                switch entry {
                case .off: own
                case .observe, .opportunistic, .hosted: max(everyone, own)
                case .required: .required
                }
            #expect(policies.policy(inRoom: room, by: Self.alice) == expected)
            policies.set(entry, for: Self.alice, withRooms: true)
            #expect(policies.policy(inRoom: room, by: Self.alice) == (entry == .off ? own : max(everyone, own, entry)))
        }
        policies.set(nil, for: Self.alice)
        #expect(policies.policy(inRoom: room, by: Self.alice) == max(everyone, own) && policies.withRooms.isEmpty)
    }

    /// A conversation of two is private, one of more is a room, for backends that speak JSON.
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

    private struct Unexpected: Error { let what: String }

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

    // MARK: What a change protects for good

    @Test func aForecastNamesWhatBecomesProtectedForGood() {
        let (bob, carol) = (AccountID.services("bob"), AccountID.services("carol"))
        let (open, latched) = (ConversationID.ofRoom("#open"), ConversationID.ofRoom("#latched"))
        let conversations = [
            KnownConversation(
                id: open, name: "#open", isPrivate: false, people: [Self.alice, bob], outsiders: ["dave", "carla"]),
            KnownConversation(id: latched, name: "#latched", isPrivate: false, people: [Self.alice]),
            KnownConversation(
                id: ConversationID(Self.alice, bob), name: "alice and bob", isPrivate: true, people: [Self.alice, bob]),
            KnownConversation(
                id: ConversationID(bob, carol), name: "bob and carol", isPrivate: true, people: [bob, carol]),
        ]
        let latches = LatchTable()
        latches.raise(latched, to: .gateway)
        func rises(_ change: (inout PolicySnapshot) -> Void) -> [String] {
            let old = PolicySnapshot(everyone: .observe)
            var new = old
            change(&new)
            return LatchForecast(conversations, from: old, to: new, latches).rises.map {
                ([$0.conversation] + $0.outsiders).joined(separator: " ")
            }
        }
        #expect(rises { $0.everyone = .hosted } == ["#open carla dave", "alice and bob", "bob and carol"])
        #expect(rises { $0.everyone = .opportunistic } == [])
        #expect(rises { $0.everyone = .required } == [])
        #expect(rises { $0.set(.hosted, for: Self.alice) } == ["alice and bob"])
        #expect(rises { $0.set(.hosted, for: Self.alice, withRooms: true) } == ["#open carla dave", "alice and bob"])
        #expect(rises { $0.set(.hosted, for: .room("#open")) } == ["#open carla dave"])
        #expect(rises { $0.set(.hosted, for: .room("#latched")) } == [])
    }
}
