import Envelope
import GatewayCore
import Testing

/// Which policy counts in a conversation: that of its members, of the room, of everyone, and the latch.
@Suite struct PolicyScopeTests {
    private static let mark = "[not encrypted]"

    // MARK: Plaintext from the backend

    /// Members under `observe` see the mark as well: in a room under `hosted`, and after the policy was taken back.
    @Test(arguments: ["room", "everyone"]) func plaintextInAProtectedRoomIsMarkedForEveryMember(_ scope: String) throws {
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
}
