import DoubleRatchet
import Envelope
import GatewayCore
import Testing

/// One writes an accent into its letter, the other behind it. To a `String` they are equal; to a chat server they are two people, and
/// two rooms.
@Suite struct NameTests {
    private let one = "zo\u{EB}"
    private let other = "zoe\u{308}"
    private let now: Int64 = 5_000_000_000

    @Test func twoRoomsHaveTheirOwnMembers() {
        #expect(one == other)
        let rooms = RoomTable()
        let (alice, mallory) = (ConnectionID(1), ConnectionID(2))
        rooms.put(alice, of: .services("alice"), as: "alice", into: "#" + one)
        rooms.put(mallory, of: .services("mallory"), as: "mallory", into: "#" + other)
        // What is said in the one is kept for nobody in the other.
        #expect(rooms.verifiedAccounts(in: "#" + one) == [.services("alice")])
        #expect(rooms.verifiedAccounts(in: "#" + other) == [.services("mallory")])
        #expect(rooms.standing(of: mallory, in: "#" + one) == nil)
        #expect(!rooms.hasOthers(than: alice, in: "#" + one))
        rooms.suspend(mallory, in: "#" + other)
        #expect(!rooms.isAwaiting("#" + one))
        rooms.remove(mallory, as: "mallory", from: "#" + one)
        #expect(rooms.isAwaiting("#" + other))
        rooms.saw([one, other], in: "#" + one)
        #expect(rooms.outsiders { $0 == "alice" }.count == 2)
        #expect(rooms.sizes.count == 2)
    }

    @Test func twoPeopleHaveTheirOwnNicks() {
        let roster = Roster()
        func entry(_ connection: UInt64, _ account: String, _ nick: String) -> RosterEntry {
            RosterEntry(
                connection: ConnectionID(connection), account: .services(account), nick: nick, isPresent: true,
                participates: true, askedForCapability: false)
        }
        roster.put(entry(1, "alice", one), foldedNick: one, now: now)
        roster.put(entry(2, "mallory", other), foldedNick: other, now: now)
        #expect(roster.owner(ofFoldedNick: one)?.account == .services("alice"))
        #expect(roster.possibleOwners(ofFoldedNick: other, now: now) == [.services("mallory")])
        roster.remove(ConnectionID(2), now: now)
        #expect(roster.possibleOwners(ofFoldedNick: one, now: now) == [.services("alice")])
        #expect(roster.count == 1)
    }

    @Test func twoConversationsHaveTheirOwnLatches() {
        let latches = LatchTable()
        let (alice, bob) = (AccountID.services("alice"), AccountID.services("bob"))
        latches.raise(ConversationID(alice, bob), to: .gateway)
        latches.remember(name: one, of: bob, for: alice)
        #expect(latches.isProtectedName(one, for: alice))
        #expect(!latches.isProtectedName(other, for: alice))
    }
}
