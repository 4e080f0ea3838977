import Envelope
import IRCGateway
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// Rooms whose backend plays back, on joining, what was said before.
@Suite struct HistoryTests {
    /// How a backend marks what it plays back.
    enum Marking: CaseIterable, Sendable { case batch, time, none }

    /// A backend that keeps the lines of a room.
    final class Archive {
        var lines: [String] = []
        private var joins = 0

        init(_ world: World, _ marking: Marking) {
            // The clock of the server: one second a line.
            world.backend.joinTags = marking == .time ? "@time=2030-01-01T00:00:00.000Z " : ""
            world.backend.relay = { [unowned self] line in
                lines.append(line)
                return [line]
            }
            world.backend.linesOnJoin = { [unowned self] _, room in play(room, marking) }
        }

        private func play(_ room: String, _ marking: Marking) -> [String] {
            joins += 1
            switch marking {
            case .batch:
                let inside = lines.map { "@batch=h\(joins);time=2020-01-01T00:00:00.000Z \($0)" }
                return [":srv BATCH +h\(joins) chathistory \(room)"] + inside + [":srv BATCH -h\(joins)"]
            case .time: return lines.map { "@time=2020-01-01T00:00:00.000Z \($0)" }
            case .none: return lines
            }
        }
    }

    private func texts(_ client: World.Client) -> [String] {
        client.messages.filter { !$0.hasPrefix(":srv ") && !$0.contains(" NOTICE ") }.map {
            String($0.split(separator: " :", maxSplits: $0.hasPrefix("@") ? 2 : 1).last ?? "")
        }
    }

    private func notices(_ client: World.Client, _ words: String) -> Int {
        client.messages.count { $0.hasPrefix(":srv NOTICE") && $0.contains(words) }
    }

    private func enter(_ world: World, _ nick: String, account: String? = nil) -> World.Client {
        let client = world.connect(nick, account: account)
        world.send(client, "JOIN #room")
        return client
    }

    @Test(arguments: Marking.allCases, [true, false])
    func forThoseWhoWereThere(_ marking: Marking, _ modern: Bool) throws {
        let world = try World(.hosted, offers: modern ? SimulatedBackend.modern : nil)
        let archive = Archive(world, marking)
        defer { withExtendedLifetime(archive) {} }
        let alice = enter(world, "alice", account: "alice")
        var bob = enter(world, "bob", account: "bob")
        for number in 1...3 { world.send(alice, "PRIVMSG #room :secret \(number)") }
        world.send(bob, "PRIVMSG #room :secret 4")
        let all = (1...4).map { "secret \($0)" }
        // The same connection has read it all.
        world.send(bob, "PART #room")
        world.send(bob, "JOIN #room")
        #expect(texts(bob) == Array(all.prefix(3)))
        // Another connection of the same account has not.
        world.close(bob)
        bob = enter(world, "bob", account: "bob")
        #expect(texts(bob) == (modern && marking == .none ? Array(all.prefix(3)) : all))
        world.send(bob, "PART #room")
        world.send(bob, "JOIN #room")
        #expect(texts(bob).count { $0 == "secret 1" } == 1)
        // Who comes later reads nothing of it, however often, under whatever nick, and is told once.
        let carol = enter(world, "carol", account: "carol")
        let dave = enter(world, "dave")
        for late in [carol, dave] {
            world.send(late, "PART #room")
            world.send(late, "JOIN #room")
            #expect(texts(late).isEmpty)
            #expect(notices(late, "before you came") == 1)
            #expect(late.read.allSatisfy { !$0.contains("?PAWL:") })
        }
        #expect(world.environment.tally[.openNotRecipient] >= 8)
        // From now on they read.
        world.send(alice, "PRIVMSG #room :secret 5")
        for reader in [bob, carol, dave] { #expect(texts(reader).last == "secret 5") }
        world.close(carol)
        #expect(texts(enter(world, "carol2", account: "carol")) == ["secret 5"])
        #expect(!world.canary.contains("secret"))
    }

    @Test(arguments: Marking.allCases) func unreadMessagesAreNotForNewcomers(_ marking: Marking) throws {
        let world = try World(.hosted)
        let archive = Archive(world, marking)
        defer { withExtendedLifetime(archive) {} }
        let alice = enter(world, "alice", account: "alice")
        world.send(alice, "PRIVMSG #room :to myself")
        let bob = enter(world, "bob")
        #expect(texts(bob).isEmpty && notices(bob, "before you came") == 1)
        world.send(alice, "PRIVMSG #room :to bob")
        #expect(texts(bob) == ["to bob"])
        #expect(notices(bob, "lost") == 0)
    }

    /// The speaker has gone, and somebody else has the nick.
    @Test func theSpeakerMayHaveGone() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let archive = Archive(world, .batch)
        defer { withExtendedLifetime(archive) {} }
        let bob = enter(world, "bob", account: "bob")
        let alice = enter(world, "alice")
        world.send(alice, "PRIVMSG #room :said and gone")
        world.close(alice)
        world.close(bob)
        let other = world.connect("alice")
        let again = enter(world, "bob", account: "bob")
        #expect(texts(again) == ["said and gone"])
        world.send(other, "JOIN #room")
        #expect(texts(other).isEmpty && notices(other, "before you came") == 1)
        #expect(notices(again, "sealed it") == 0 && notices(again, "no device") == 0)
    }

    @Test func afterARestartNothingIsKept() throws {
        let store = InMemoryStore()
        var world = try World(.hosted, offers: SimulatedBackend.modern, store: store, seed: 1)
        let archive = Archive(world, .batch)
        var people = ["alice", "bob"].map { enter(world, $0, account: $0) }
        for number in 1...3 { world.send(people[0], "PRIVMSG #room :secret \(number)") }
        world = try World(.hosted, offers: SimulatedBackend.modern, store: store, seed: 2, journal: world.journal)
        let kept = Archive(world, .batch)
        kept.lines = archive.lines
        people = ["alice", "bob"].map { enter(world, $0, account: $0) }
        #expect(texts(people[1]).isEmpty && notices(people[1], "does not have their keys") == 1)
        world.send(people[0], "PRIVMSG #room :after")
        #expect(texts(people[1]) == ["after"])
        #expect(people.allSatisfy { notices($0, "could not be opened") == 0 })
    }

    @Test(arguments: [Marking.batch, .time]) func whatIsCutIsCalledTruncated(_ marking: Marking) throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let archive = Archive(world, marking)
        defer { withExtendedLifetime(archive) {} }
        let alice = enter(world, "alice", account: "alice")
        var bob = enter(world, "bob", account: "bob")
        let long = String(repeating: "long-", count: 85)
        for _ in 0..<2 { world.send(alice, "PRIVMSG #room :\(long)") }
        let pieces = archive.lines.count { $0.contains("?PAWL:") }
        #expect(pieces >= 4)
        archive.lines.removeFirst(archive.lines.firstIndex { $0.contains("?PAWL:") }.map { $0 + 1 } ?? 0)
        world.close(bob)
        bob = enter(world, "bob", account: "bob")
        world.advance(seconds: 5)
        #expect(texts(bob).joined() == long)
        #expect(notices(bob, "An earlier message from alice cannot be opened") == 1)
        #expect(notices(bob, "did not arrive") == 0)
    }

    /// A status is known to the backend only: nobody else gets such a line later.
    @Test func whatIsForAStatusIsNotKeptForOthers() throws {
        let world = try World(.hosted)
        let people = ["p0", "p1"].map { enter(world, $0, account: $0) }
        world.send(people[0], "PRIVMSG #room :for all")
        // The backend relays it to the operators of the room, of whom p1 is none.
        let operators = enter(world, "p2", account: "p2")
        world.backend.relay = { line in
            guard line.contains("@#room") else { return [line] }
            world.backend.send(operators.id, line)
            return []
        }
        world.send(people[0], "PRIVMSG @#room :for operators")
        #expect(texts(operators) == ["for operators"])
        world.close(people[1])
        let again = enter(world, "p1", account: "p1")
        #expect(texts(again).isEmpty)
    }

    /// A member whose own line of joining comes after others have seen it reads what was said in between.
    @Test func aSlowMemberIsNoNewcomer() throws {
        let world = try World(.hosted)
        let alice = enter(world, "alice")
        let bob = enter(world, "bob")
        for round in 0..<3 {
            world.backend.delayed[bob.id] = []
            world.backend.part(bob.id, "#room")
            world.backend.join(bob.id, "#room")
            world.settle()
            world.send(alice, "PRIVMSG #room :said \(round)")
            world.advance(seconds: 1)
            world.backend.release(bob.id)
            world.settle()
            #expect(texts(bob).last == "said \(round)")
        }
        #expect(notices(bob, "before you came") == 0)
    }

    /// Who has read a line and leaves before it is opened has read it.
    @Test func leavingWhileItIsOpened() throws {
        let world = try World(.hosted)
        let alice = enter(world, "alice")
        let people = ["bob", "cora"].map { enter(world, $0) }
        world.send(alice, "PRIVMSG #room :one")
        world.backend.relay = { line in
            world.isStoreSlow = true
            return [line]
        }
        world.send(alice, "PRIVMSG #room :two")
        for client in people { world.send(client, "PART #room") }
        world.isStoreSlow = false
        world.settle()
        for client in people { #expect(texts(client) == ["one", "two"]) }
    }
}
