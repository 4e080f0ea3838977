import CommitLoop
import Devices
import Envelope
import Protection
import StorePort
import TestKit
import Testing

@testable import Messenger

/// The history of an account for a device that was added to it.
@Suite struct HistoryTests {
    private let world = World(seed: 70)

    /// A second device of bob, which was added and has what the master device has handed over.
    private func addDevice(to bob: World.Device) throws -> World.Device {
        let tablet = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        world.deliver()
        return tablet
    }

    /// What an app shows of a message, and what the messages of two devices of a person have in common.
    private func forms(_ messages: [ChatMessage]) -> [[String]] {
        messages.map { message in
            [
                message.reference.text, message.text, "\(message.isOwn)", "\(message.writtenAt)",
                "\(message.isEdited) \(message.isDeleted) \(message.isFile)", "\(message.state)",
                "\(message.protection)", message.author?.name ?? "",
                message.reactions.map { "\($0.isOwn) \($0.characters) \($0.author?.name ?? "")" }.joined(),
            ]
        }
    }

    @Test func anAddedDeviceGetsAllChatsInTheirOrder() throws {
        let (alice, bob, carol) = (try world.person("alice"), try world.person("bob"), try world.person("carol"))
        let change = GroupChange.create(name: "team", metadata: [1], members: ["bob", "carol"])
        let group = try #require(world.change(change, by: alice)).id
        world.deliver()
        for number in 0..<120 {
            alice.send("to bob \(number)", to: "bob")
            if number.isMultiple(of: 3) { bob.send("from bob \(number)", to: "alice") }
            if number.isMultiple(of: 10) { carol.send("to all \(number)", in: group) }
            world.deliver()
        }
        // Long texts take more than one part.
        for length in [2, 29_990, 59_000] { alice.send(String(repeating: "é", count: length / 2), to: "bob") }
        world.deliver()
        let messages = bob.history(with: "alice")
        let (edited, own) = (try #require(messages.last), try #require(messages.first { $0.isOwn }))
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .edit(edited.reference), text: "changed")) }
        bob.perform { .send(ticket: $0, SendJob(to: "alice", .delete(own.reference))) }
        alice.perform { .send(ticket: $0, SendJob(to: "bob", .react(messages[0].reference, with: "!"))) }
        world.deliver()
        bob.perform { .setTimer(ticket: $0, "alice", 5000) }
        let tablet = try addDevice(to: bob)
        #expect(!tablet.machine.awaitsHistory)
        #expect(tablet.history(with: "alice").count == 163)
        #expect(forms(tablet.history(with: "alice")) == forms(bob.history(with: "alice")))
        #expect(forms(tablet.history(in: group)) == forms(bob.history(in: group)))
        #expect(tablet.members(of: group) == ["alice", "bob", "carol"])
        // Nothing of it is new, and nothing was sent about it.
        let isShown = tablet.events.contains { if case .message = $0 { true } else { false } }
        #expect(!isShown && tablet.attempts.isEmpty)
        guard case .chats(let chats)? = tablet.perform({ .chats(ticket: $0) }) else { return fail("no chats") }
        #expect(chats.map(\.unread) == [0, 0] && Set(chats.map(\.timer)) == [nil, 5000])
        // What comes later follows.
        alice.send("later", to: "bob")
        world.deliver()
        #expect(tablet.texts(with: "alice").last == "later" && tablet.texts(with: "alice").count == 164)
        #expect(bob.texts(with: "alice").count == 164)
        // It is the same after a restart, and the new device can edit what its person has written before.
        try tablet.restart()
        #expect(tablet.texts(with: "alice").count == 164)
        let mine = try #require(tablet.history(with: "alice").last { $0.isOwn })
        tablet.perform { .send(ticket: $0, SendJob(to: "alice", .edit(mine.reference), text: "by the tablet")) }
        world.deliver()
        #expect(bob.texts(with: "alice").contains("by the tablet"))
    }

    /// All parts come again and again, and processes end between them.
    @Test(arguments: [UInt64(1), 2, 3]) func partsAreTakenOnceAcrossRestarts(_ seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let text = String(repeating: "x", count: 3000)
        for number in 0..<60 {
            alice.send("\(number) \(text)", to: "bob")
            world.deliver()
        }
        let tablet = try world.device(of: "bob")
        let request = try #require(world.requests["bob"])
        bob.perform { .adopt(ticket: $0, request) }
        var (steps, rounds) = (0, 0)
        while tablet.machine.awaitsHistory || !tablet.machine.isAdopted, rounds < 3000 {
            rounds += 1
            if world.step() { steps += 1 }
            switch Int.random(in: 0..<12, using: &random) {
            case 0: try tablet.restart()
            case 1: try bob.restart()
            case 2:
                // The question is asked again although the answer is on its way.
                tablet.now.monotonic += 90_000_000_000
                tablet.run([.tick])
            case 3: tablet.perform { .keys(ticket: $0, world.configs["bob"], of: "bob") }
            default: break
            }
        }
        world.deliver()
        #expect(!tablet.machine.awaitsHistory)
        #expect(forms(tablet.history(with: "alice")) == forms(bob.history(with: "alice")))
        #expect(tablet.history(with: "alice").count == 60)
        // A last question may still be under way. It brings nothing new, and none follows it.
        for _ in 0..<2 {
            tablet.now.monotonic += 1_000_000_000_000_000
            tablet.run([.tick])
            world.deliver()
        }
        #expect(tablet.attempts.isEmpty && tablet.machine.nextHistoryWake == nil)
        #expect(tablet.history(with: "alice").count == 60)
    }

    /// A part that the server has lost is asked for again, later each time.
    /// An edit and a receipt of a message come before the part that has it. The master device has no receipt yet.
    @Test func aReceiptThatComesBeforeItsMessageIsKept() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("hello", to: "bob")
        let message = try #require(bob.send("one", to: "alice"))
        world.deliver()
        let tablet = try world.device(of: "bob")
        let request = try #require(world.requests["bob"])
        bob.perform { .adopt(ticket: $0, request) }
        var asked: [Attempt] = []
        repeat {
            asked += tablet.attempts
            tablet.attempts = []
        } while world.step()
        #expect(tablet.machine.awaitsHistory)
        bob.perform { .send(ticket: $0, SendJob(to: "alice", .edit(message.reference), text: "1")) }
        world.deliver()
        tablet.perform { .receipt(ticket: $0, message.reference.message, from: "alice", isRead: true) }
        let isShown = tablet.events.contains { if case .changed = $0 { true } else { false } }
        #expect(!isShown, "a message that has not come was reported")
        tablet.attempts = asked
        world.deliver()
        let history = tablet.history(with: "alice").filter(\.isOwn)
        #expect(history.map(\.text) == ["1"] && history.map(\.state) == [.read])
    }

    /// Alice reacts to a text of a device that was removed. The reaction comes before the part that has the text, which
    /// zoe has not confirmed.
    @Test func aReactionThatComesBeforeItsTextConfirmsNothing() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let change = GroupChange.create(name: "", metadata: [], members: ["bob", "zoe"])
        let group = try #require(world.change(change, by: alice)).id
        world.deliver()
        let phone = try addDevice(to: bob)
        let text = try #require(phone.send("from the phone", in: group))
        world.deliver()
        bob.perform { .revoke(ticket: $0, phone.id) }
        world.deliver()
        #expect(bob.history(in: group).map(\.state) == [.sent])
        let tablet = try world.device(of: "bob")
        let request = try #require(world.requests["bob"])
        bob.perform { .adopt(ticket: $0, request) }
        var asked: [Attempt] = []
        repeat {
            asked += tablet.attempts
            tablet.attempts = []
        } while world.step()
        // Alice learns of the tablet.
        bob.send("hello", to: "alice")
        world.deliver()
        alice.perform { .send(ticket: $0, SendJob(in: .group(group), .react(text.reference, with: "!"))) }
        world.deliver()
        #expect(tablet.machine.awaitsHistory && tablet.members(of: group) == ["alice", "bob", "zoe"])
        tablet.attempts = asked
        world.deliver()
        let history = tablet.history(in: group)
        #expect(history.map(\.text) == ["from the phone"] && history.map(\.state) == [.sent])
        #expect(history.first?.isOwn == true && history.first?.reactions.map(\.characters) == ["!"])
    }

    @Test func aLostPartIsAskedForAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let tablet = try world.device(of: "bob")
        let request = try #require(world.requests["bob"])
        bob.perform { .adopt(ticket: $0, request) }
        // All that goes to the tablet is lost from the time when it knows that it was added.
        while !tablet.machine.isAdopted { _ = world.step() }
        while tablet.nextCall() != nil {}
        #expect(tablet.texts(with: "alice").isEmpty && tablet.machine.awaitsHistory)
        for pause in [60, 120, 240] as [Int64] {
            let at = try #require(tablet.machine.nextHistoryWake)
            #expect(at - tablet.now.monotonic / 1_000_000 > (pause - 30) * 1000)
            tablet.now.monotonic += pause * 1_000_000_000
            tablet.run([.tick])
            if pause < 240 { while let attempt = tablet.nextCall() { tablet.end(attempt, .refused("lost")) } }
        }
        world.deliver()
        #expect(tablet.texts(with: "alice") == ["one"] && !tablet.machine.awaitsHistory)
    }

    /// Texts whose time has come on the way stay deleted, and the others disappear at the same time as elsewhere.
    @Test func disappearingMessagesAreNotResurrected() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.perform { .setTimer(ticket: $0, "bob", 10) }
        alice.send("gone by then", to: "bob")
        world.deliver()
        for device in [alice, bob] {
            device.now.wall += 5000
            device.now.monotonic += 5_000_000_000
        }
        alice.send("still there", to: "bob")
        world.deliver()
        let tablet = try world.device(of: "bob")
        // Bob's device has not deleted it yet, and the tablet's clock tells that it is time.
        bob.now.wall += 1000
        tablet.now.wall = bob.now.wall + 4500
        try world.adopt("bob", by: bob)
        world.deliver()
        #expect(bob.texts(with: "alice") == ["gone by then", "still there"])
        #expect(tablet.texts(with: "alice") == ["still there"])
        tablet.now.wall += 9000
        tablet.run([.tick])
        #expect(tablet.texts(with: "alice") == [""])
        #expect(tablet.history(with: "alice").map(\.isDeleted) == [true])
    }

    /// A device that is no master device hands nothing over, and nothing of it is taken.
    @Test func onlyTheMasterDeviceHandsOver() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let tablet = try addDevice(to: bob)
        #expect(tablet.texts(with: "alice") == ["one"])
        let revoked = tablet.id
        bob.perform { .revoke(ticket: $0, revoked) }
        world.deliver()
        let phone = try addDevice(to: bob)
        #expect(phone.texts(with: "alice") == ["one"])
        // A question of a device that was removed, and one to a device that is not the master device.
        for (device, sender) in [(bob, revoked), (bob, alice.id), (phone, bob.id)] {
            var unit = MessengerParticipants.Unit(in: .shard(.only))
            try device.machine.receiveHistory(.wanted(HistoryCursor()), of: sender, device.now, &unit)
            #expect(unit.requests.isEmpty && unit.changes.isEmpty)
        }
        // Parts that were not asked for, or of another device.
        try phone.machine.withHistory { machine, unit in
            for (sender, asked) in [(alice.id, HistoryCursor()), (bob.id, Self.part.next ?? HistoryCursor())] {
                var part = HistoryPart(asked: asked)
                part.items = [HistoryItem(.chat, [UInt8](repeating: 0, count: 8) + Array("carol".utf8))]
                try machine.receiveHistory(.part(part), of: sender, phone.now, &unit)
                #expect(unit.changes.isEmpty)
            }
        }
    }

    // MARK: Forms

    private static var part: HistoryPart {
        var cursor = HistoryCursor()
        (cursor.stage, cursor.name, cursor.before) = (.messages, "alice", 77)
        (cursor.offset, cursor.mark, cursor.count) = (5, 1 << 50, 3)
        var part = HistoryPart(asked: HistoryCursor(), next: cursor)
        part.items = [
            HistoryItem(.chat, [UInt8](repeating: 0, count: 8) + Array("alice".utf8)),
            HistoryItem(.message, sequence: 9, [1, 2, 3]), HistoryItem(.group, []),
        ]
        part.items[1].offset = 1
        part.items[1].bytes = [2]
        return part
    }

    private static let messages: [HistoryMessage] = [
        .wanted(HistoryCursor()), .wanted(part.next ?? HistoryCursor()), .part(part),
        .part(HistoryPart(asked: HistoryCursor())),
    ]

    @Test func messagesAreReadAsTheyWereWrittenAndNoCutOneIs() throws {
        for message in Self.messages {
            #expect(try HistoryMessage(message.text) == message)
            let bytes = try #require(Base64.decode(message.text.utf8))
            // A part may end after any of its items.
            var whole: Set<Int> = [bytes.count]
            if case .part(var part) = message {
                while part.items.popLast() != nil {
                    whole.insert(try #require(Base64.decode(HistoryMessage.part(part).text.utf8)).count)
                }
            }
            for count in 0..<bytes.count where !whole.contains(count) {
                #expect(throws: EnvelopeError.self) { try HistoryMessage(Base64.text(Array(bytes.prefix(count)))) }
            }
            #expect(throws: EnvelopeError.self) { try HistoryMessage(Base64.text(bytes + [0])) }
        }
        for text in ["", "!", "AQ", String(repeating: "A", count: 60_001)] {
            #expect(throws: EnvelopeError.self) { try HistoryMessage(text) }
        }
    }

    @Test func rowsAreReadAsTheyWereWritten() throws {
        var state = HistoryState()
        #expect(try HistoryState(state.bytes) == state)
        state.cursor = Self.part.next ?? HistoryCursor()
        state.piece = HistoryState.Piece(kind: .group, sequence: 4, bytes: [1, 2])
        #expect(try HistoryState(state.bytes) == state)
        #expect(throws: EnvelopeError.self) { try HistoryState([]) }
        #expect(throws: EnvelopeError.self) { try HistoryState([2] + state.bytes.dropFirst()) }
    }

    /// Altered and random bytes: an error or a message, and never the end of the process.
    @Test func randomBytesNeverEndTheProcess() throws {
        var random = SeededGenerator(seed: 5)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let tablet = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        world.deliver()
        for _ in 0..<3000 {
            var bytes = Base64.decode(Self.messages.randomElement(using: &random)?.text.utf8 ?? "".utf8) ?? []
            for _ in 0..<Int.random(in: 0...3, using: &random) where !bytes.isEmpty {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            if Bool.random(using: &random) { bytes += (0..<9).map { _ in UInt8.random(in: 0...255, using: &random) } }
            guard let message = try? HistoryMessage(Base64.text(bytes)) else { continue }
            #expect(try HistoryMessage(message.text) == message)
            // Whatever the place is, the master device makes a part of it.
            guard case .wanted = message, Int.random(in: 0..<20, using: &random) == 0 else { continue }
            var unit = MessengerParticipants.Unit(in: .shard(.only))
            try bob.machine.receiveHistory(message, of: tablet.id, bob.now, &unit)
            #expect(unit.requests.count == 1)
        }
    }
}

extension MessengerParticipants {
    /// Runs a body in a copy that waits for the beginning of the history.
    func withHistory(_ body: (inout Self, inout Unit) throws -> Void) rethrows {
        var (copy, unit) = (self, Unit(in: .shard(.only)))
        copy.memory.history = HistoryState()
        try body(&copy, &unit)
    }
}
