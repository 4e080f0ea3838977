import Devices
import Envelope
import IRCGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Testing
import Vault

/// Members get copies of what the vault has opened for one of them, without the vault.
@Suite struct CopyTests {
    @Test(arguments: RoomTests.backends) func theVaultOpensOnce(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers)
        let members = world.people(20, accounts: true)
        let before = world.opens
        for number in 1...5 { world.send(members[0], "PRIVMSG #room :number \(number)") }
        #expect(world.opens == before + 5)
        for member in members.dropFirst() { #expect(member.texts == (1...5).map { "number \($0)" }) }
        // Each member's delivery has been written, so that none is left to be shown again.
        #expect(try world.store.deliveries(of: .room("#room")).isEmpty)
        #expect(world.journal.count == 5 * 19)
    }

    /// The backend alters a message: all members are notified, and the vault tries once.
    @Test func whatCannotBeOpenedIsTriedOnce() throws {
        let world = try World(.hosted)
        let members = world.people(20, accounts: true)
        world.send(members[0], "PRIVMSG #room :one")
        let before = world.opens
        world.backend.relay = { line in
            let text = Array(String(line.split(separator: " :").last ?? "").utf8)
            guard case .whole(var bytes)? = Armour.parse(text[...]) else { return [line] }
            bytes[bytes.count - 1] ^= 1
            let body = Armour.split(bytes, id: 1, capacity: 400)?.first ?? []
            return [String(line.dropLast(text.count)) + String(decoding: body, as: UTF8.self)]
        }
        world.send(members[0], "PRIVMSG #room :two")
        #expect(world.opens == before + 1)
        world.backend.relay = { [$0] }
        world.send(members[0], "PRIVMSG #room :three")
        for member in members.dropFirst() {
            #expect(member.texts == ["one", "three"])
            #expect(member.wasNotified(Notices.failure(.notAuthentic, from: "p0")))
        }
    }

    /// The vault numbers what it opens, and after a crash shows it in that order: so nobody asks it for a message while
    /// somebody else's question for an earlier one may still be on its way to it.
    @Test(arguments: [1, 300]) func nothingIsOpenedBeforeWhatCameBefore(_ length: Int) throws {
        let world = try World(.hosted)
        let members = world.people(3, accounts: true)
        for member in members.dropFirst() { world.backend.delayed[member.id] = [] }
        let sent = (1...4).map { String(repeating: "\($0)", count: $0 == 2 ? length : 1) }
        for text in sent { world.send(members[0], "PRIVMSG #room :\(text)") }
        let lines = members.dropFirst().map { member in
            world.backend.delayed.removeValue(forKey: member.id)?.filter { $0.contains("?PAWL:") } ?? []
        }
        #expect(lines.allSatisfy { $0.count >= 4 })
        world.isStoreSlow = true
        let asked = { world.pendingJobs.count { if case .open = $0 { true } else { false } } }
        world.backend.people[members[1].id]?.inbox += lines[0].prefix(1)
        world.settle()
        #expect(asked() == 1)
        world.backend.people[members[2].id]?.inbox += lines[1]
        world.settle()
        #expect(asked() == 1)
        world.isStoreSlow = false
        world.settle()
        #expect(members[2].texts == sent)
        world.backend.people[members[1].id]?.inbox += lines[0].dropFirst()
        world.settle()
        #expect(members[1].texts == sent)
        #expect(try world.store.deliveries(of: .room("#room")).isEmpty)
    }

    @Test func aTextWithTagsIsShownToEachClientInItsOwnWay() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect("alice", lines: ["CAP LS 302", "CAP REQ :message-tags", "CAP END"])
        let bob = world.connect("bob", lines: ["CAP LS 302", "CAP REQ :message-tags", "CAP END"])
        let carol = world.connect("carol")
        let dave = world.connect("dave")
        for client in [alice, bob, carol, dave] { world.send(client, "JOIN #room") }
        world.send(alice, "@+x=1 PRIVMSG #room :tagged")
        #expect(bob.messages.last?.contains("+x=1") == true)
        for client in [carol, dave] {
            #expect(client.messages.last?.hasPrefix(":alice!") == true && client.texts.last == "tagged")
        }
    }

    /// Whether it comes as it was, under another verb, or late: a connection is shown a message once.
    @Test(arguments: ["PRIVMSG", "NOTICE"], [false, true]) func aReplayIsDropped(_ verb: String, _ isLate: Bool) throws
    {
        let world = try World(.hosted)
        let members = world.people(4)
        var envelope = ""
        world.backend.relay = { line in
            if line.contains("?PAWL:") { envelope = line }
            return [line]
        }
        world.send(members[0], "PRIVMSG #room :once")
        if isLate { world.advance(seconds: 20) }
        for member in members.dropFirst() {
            world.backend.send(member.id, envelope.replacing(" PRIVMSG ", with: " \(verb) "))
        }
        world.settle()
        for member in members.dropFirst() { #expect(member.texts == ["once"]) }
    }

    @Test func whoJoinsLaterAndIsSentTheSameBytesIsStillAMember() throws {
        let world = try World(.hosted)
        let members = world.people(3)
        var envelope = ""
        world.backend.relay = { line in
            if line.contains("?PAWL:") { envelope = line }
            return [line]
        }
        world.send(members[0], "PRIVMSG #room :for those here")
        let outsider = world.connect("eve")
        world.backend.send(outsider.id, envelope)
        world.settle()
        #expect(!outsider.texts.contains("for those here"))
        // Altered by one character, it is nobody's copy.
        let altered = envelope.dropLast(2) + (envelope.hasSuffix("A.") ? "B." : "A.")
        world.send(outsider, "JOIN #room")
        world.backend.send(outsider.id, String(altered))
        world.settle()
        #expect(!outsider.texts.contains("for those here"))
    }

    private func notices(_ client: World.Client, _ words: String) -> Int {
        client.messages.count { $0.hasPrefix(":srv NOTICE") && $0.contains(words) }
    }

    /// The rule on history holds without the vault too, and nobody's refusal takes the copy from others.
    @Test func aMemberWhoJoinsLaterGetsNoCopy() throws {
        let world = try World(.hosted)
        let members = world.people(3, accounts: true)
        var envelope = ""
        world.backend.relay = { line in
            if line.contains("?PAWL:") { envelope = line }
            return [line]
        }
        world.send(members[0], "PRIVMSG #room :for those here")
        let late = world.connect("late", account: "late")
        let guest = world.connect("guest")
        let second = world.connect("p1b", account: "p1")
        for client in [late, guest, second] { world.send(client, "JOIN #room") }
        for client in [late, guest] {
            world.backend.send(client.id, envelope)
            world.backend.send(client.id, envelope)
            world.settle()
            #expect(client.texts.isEmpty && notices(client, "before you came") == 1)
        }
        #expect(world.environment.tally[.openNotRecipient] == 4)
        let before = world.opens
        world.backend.send(second.id, envelope)
        world.settle()
        #expect(second.texts == ["for those here"] && world.opens == before)
        world.backend.send(second.id, envelope)
        world.settle()
        #expect(second.texts == ["for those here"] && world.opens == before + 1)
    }

    /// Who comes while it is being opened waits for the answer, and then is not given it.
    @Test func whoCameWhileItWasOpenedTakesNoCopy() throws {
        let world = try World(.hosted)
        let members = world.people(3, accounts: true)
        let (late, guest) = (world.connect("late", account: "late"), world.connect("guest"))
        var envelope = ""
        world.backend.relay = { line in
            guard line.contains("?PAWL:") else { return [line] }
            envelope = line
            return []
        }
        world.send(members[0], "PRIVMSG #room :for those here")
        world.isStoreSlow = true
        world.backend.send(members[1].id, envelope)
        world.settle()
        for client in [late, guest] { world.send(client, "JOIN #room") }
        for client in [late, guest, members[2]] { world.backend.send(client.id, envelope) }
        world.settle()
        // Out of the room again: what counts is where it stood when the line came.
        world.send(members[2], "PART #room")
        world.isStoreSlow = false
        world.settle()
        for client in members.dropFirst() { #expect(client.texts == ["for those here"]) }
        for client in [late, guest] { #expect(client.texts.isEmpty && notices(client, "before you came") == 1) }
        // One for the message, and one for each who is told why not.
        #expect(world.opens == 3)
    }

    /// What the backend calls a replay is the vault's to judge.
    @Test func aReplayGoesToTheVault() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let members = world.people(3, accounts: true)
        var envelope = ""
        world.backend.relay = { line in
            if line.contains("?PAWL:") { envelope = line }
            return [line]
        }
        world.send(members[0], "PRIVMSG #room :kept")
        let second = world.connect("p1b", account: "p1")
        world.send(second, "JOIN #room")
        let before = world.opens
        for line in [":srv BATCH +h chathistory #room", "@batch=h \(envelope)", ":srv BATCH -h"] {
            world.backend.send(second.id, line)
        }
        world.settle()
        #expect(second.texts == ["kept"] && world.opens == before + 1)
        world.backend.send(second.id, envelope)
        world.settle()
        #expect(second.texts == ["kept"])
    }

    @Test func whereTheStoreRefusesTheOthersAskThemselves() throws {
        let world = try World(.hosted)
        let members = world.people(5, accounts: true)
        world.send(members[0], "PRIVMSG #room :warm")
        let before = world.opens
        world.failsNextOpen = true
        world.send(members[0], "PRIVMSG #room :refused once")
        #expect(world.opens == before + 4)
        #expect(members.dropFirst(2).allSatisfy { $0.texts == ["warm", "refused once"] })
        // The one that has asked the vault tries again, and what comes meanwhile waits behind it.
        #expect(members[1].texts == ["warm"])
        world.send(members[0], "PRIVMSG #room :after")
        world.advance(seconds: 1)
        for member in members.dropFirst() { #expect(member.texts == ["warm", "refused once", "after"]) }
    }

    /// The table alone: what is asked for twice waits, and anything that differs is something else.
    @Test func aLineIsKnownByAllOfItsBytesAndItsRoom() {
        let table = OpenedMessages()
        let room = AccountID.room("#room")
        let line = Array(":p0!p0@host PRIVMSG #room :?PAWL:\(String(repeating: "abcdef", count: 20)).".utf8)
        func ask(_ bytes: [UInt8], _ room: AccountID, _ now: Int64) -> String {
            let answer = bytes.withUnsafeBytes { table.ask($0, to: room, by: ConnectionID(7), now: now) { 42 } }
            return switch answer {
            case .opened: "opened"
            case .waits(let ticket): "waits \(ticket)"
            case .unknown: "unknown"
            }
        }
        #expect(ask(line, room, 0) == "unknown")
        #expect(line.withUnsafeBytes { table.begin($0, to: room, now: 0) } != nil)
        #expect(line.withUnsafeBytes { table.begin($0, to: room, now: 0) } == nil)
        #expect(ask(line, room, 1) == "waits 42")
        #expect(ask(line, .room("#other"), 1) == "unknown")
        for index in line.indices {
            var altered = line
            altered[index] ^= 1
            #expect(ask(altered, room, 1) == "unknown")
        }
        #expect(ask(line, room, OpenedMessages.lifetime) == "unknown")
    }
}
