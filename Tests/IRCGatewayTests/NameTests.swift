import DoubleRatchet
import Envelope
import IRCGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing
import Vault

/// One writes an accent into its letter, the other behind it. To a `String` they are equal; to a chat server they are two people, and
/// two rooms.
@Suite struct NameTests {
    private let one = "zo\u{EB}"
    private let other = "zoe\u{308}"
    private let now: Int64 = 5_000_000_000

    /// The order of the two does not matter, also if Unicode has none, or another one than their bytes.
    @Test func aConversationHasOneID() {
        let names = [one, other, "zoez", "zo\u{E0}", "", "~1"].map { AccountID(text: $0) }
        var ids: Set<ConversationID> = []
        for first in names {
            for second in names {
                let id = ConversationID(first, second)
                #expect(id == ConversationID(second, first))
                #expect(Set([id.first, id.second]) == Set([first, second]))
                #expect(!id.second.text.utf8.lexicographicallyPrecedes(id.first.text.utf8))
                ids.insert(id)
            }
        }
        #expect(ids.count == names.count * (names.count + 1) / 2)
    }

    /// RFC 1459 takes these nicks for one, the server does not, and announces that after 001 only.
    @Test func nicksAreNotFoldedTogetherBefore005() throws {
        let world = try World(.hosted)
        let bob = world.connect("bob|away")
        let other = world.connect("bob\\away")
        let alice = world.connect("alice")
        world.send(alice, "PRIVMSG bob|away :for the first")
        world.send(alice, "PRIVMSG bob\\away :for the second")
        #expect(bob.texts == ["for the first"] && other.texts == ["for the second"])
        #expect(world.environment.roster.count == 3)
    }

    @Test func twoRoomsHaveTheirOwnMembers() {
        #expect(one == other)
        let rooms = RoomTable()
        let (alice, mallory) = (ConnectionID(1), ConnectionID(2))
        rooms.put(alice, of: .services("alice"), as: "alice", into: "#" + one)
        rooms.put(mallory, of: .services("mallory"), as: "mallory", into: "#" + other)
        // What is said in the one is kept for nobody in the other.
        #expect(rooms.verifiedAccounts(in: "#" + one) == [.services("alice")])
        #expect(rooms.verifiedAccounts(in: "#" + other) == [.services("mallory")])
        #expect(rooms.presence(of: mallory, in: "#" + one) == nil)
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

    /// A name that begins with `~` is an account's where the backend vouches for it, and never a connection's.
    @Test func aTildeIsNoSignOfAConnection() {
        let connection = AccountID.connection(0x1F)
        #expect(!connection.isVerified && connection.text == "~1f")
        #expect(AccountID.connection(0x1F, logouts: 2).text == "~1f.2")
        for name in ["~1f", "~~1f", "~", "zed", "~z d"] {
            let account = AccountID.services(name)
            #expect(account.isVerified && account != connection && account.roomName == nil)
            #expect(account.name == name.replacing(" ", with: "_"))
            #expect(AccountID(text: account.text) == account, "what a row holds comes back")
        }
        #expect(AccountID(text: connection.text) == connection && connection.name == "~1f")
        #expect(AccountID.services("zed").text == "zed", "rows of before keep their form")
        #expect(Set(["~1f", "~~1f", "~~~1f", "1f"].map { AccountID.services($0).text }).count == 4)
        #expect(AccountID(text: AccountID.room("#den", status: "@").text).isPartOfRoom)
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

/// Names that are no UTF-8: to a `String` all such bytes are one character, and so two rooms would be one.
@Suite struct ForeignNameTests {
    private let notUTF8 = Notices.refusal(.name, target: "", texts: NoticeTexts())
    private static let room: [UInt8] = Array("#caf".utf8) + [0xE9]

    @Test func nothingIsSealedForThem() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let (alice, mallory) = (world.connect("alice"), world.connect("mallory"))
        world.send(alice, bytes: Array("JOIN ".utf8) + Self.room + [13, 10])
        world.send(mallory, "JOIN #caf\u{FFFD}")
        let seen = world.backend.seen.count
        world.send(alice, bytes: Array("PRIVMSG ".utf8) + Self.room + Array(" :secret\r\n".utf8))
        #expect(alice.read.last?.contains(" 531 alice #caf") == true)
        #expect(alice.read.last?.hasSuffix(notUTF8) == true)
        #expect(mallory.texts.isEmpty)
        #expect(world.backend.seen.dropFirst(seen).allSatisfy { !$0.contains("PRIVMSG") })
        #expect(world.environment.tally.all.contains { $0.kind == .refusedName && $0.count == 1 })
        // Nor for one who has the very character in the name.
        world.send(mallory, "PRIVMSG #caf\u{FFFD} :secret")
        #expect(mallory.read.last?.hasSuffix(notUTF8) == true)
    }

    /// Below every protection the line passes as it came.
    @Test func underObserveTheyPass() throws {
        let world = try World(.observe)
        let alice = world.connect("alice")
        var sent: [[UInt8]] = []
        world.run(alice) { out in
            alice.machine.fromDownstream(
                .init(bytes: Array("PRIVMSG ".utf8) + Self.room + Array(" :text\r\n".utf8)), at: world.now, out)
            sent.append(Array(out.upstream.readableBytesView))
        }
        #expect(sent == [Array("PRIVMSG ".utf8) + Self.room + Array(" :text\r\n".utf8)])
    }

    /// What is said again after an outage must not be another name.
    @Test func noOtherRoomIsJoinedAfterAnOutage() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        world.send(alice, bytes: Array("JOIN ".utf8) + Self.room + [13, 10])
        world.backendDies()
        let seen = world.backend.seen.count
        world.backendReturns()
        world.advance(seconds: 1)
        #expect(world.backend.seen.dropFirst(seen).filter { $0.hasPrefix("JOIN") } == ["JOIN #room"])
        #expect(alice.wasNotified(Notices.foreignRoom("#caf\u{FFFD}")))
    }
}
