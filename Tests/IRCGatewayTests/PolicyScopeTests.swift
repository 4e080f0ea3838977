import Envelope
import IRCGateway
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
        #expect(alice.read.count { $0.contains(Notices.roomNotProtected("#room")) } == 1)
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
