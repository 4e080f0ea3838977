import CommitLoop
import DeviceSessions
import Devices
import Envelope
import Protection
import StorePort
import Testing

@testable import Messenger

/// Devices with which new sessions are to be begun.
@Suite struct LostSessionTests {
    private let world = World(seed: 90)

    /// Forged messages name devices that do not exist.
    @Test func unknownDevicesMakeRoomForLaterOnes() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let limit = MessengerParticipants.unknownDeviceLimit
        for number in 1...UInt64(limit) + 1 {
            let forged = Envelope(
                kind: .direct, sender: DeviceID(number), messageID: MessageID(number),
                ratchetMessage: [0x20] + [UInt8](repeating: 1, count: 200))
            bob.receive(forged.bytes, from: "alice", hasKeys: true)
        }
        #expect(bob.machine.memory.lost.count == limit)
        #expect(bob.machine.memory.lost.contains(DeviceID(UInt64(limit) + 1)))
    }

    @Test func theEarliestPauseCounts() throws {
        let (alice, bob, carol) = (try world.person("alice"), try world.person("bob"), try world.person("carol"))
        for device in [alice, carol] { device.send("one", to: "bob") }
        world.deliver()
        var (machine, now) = (bob.machine, bob.now)
        var unit = MessengerParticipants.Unit(in: .shard(.only))
        func uptime() -> Int64 { now.monotonic / 1_000_000 }
        machine.noteLost(alice.id, after: 300_000, now, &unit)
        #expect(machine.nextLostWake == uptime() + 300_000)
        machine.noteLost(carol.id, after: 60_000, now, &unit)
        #expect(machine.nextLostWake == uptime() + 60_000)
        // Each time that they are asked for, the pause gets longer.
        for pause in [120_000, 240_000] as [Int64] {
            now.monotonic += pause / 2 * 1_000_000
            machine.askForLost(now, &unit)
            #expect(machine.nextLostWake == uptime() + pause)
        }
        for device in [alice, carol] { machine.noteRenewed(device.id, &unit) }
        #expect(machine.nextLostWake == nil)
        // A later one does not take over the longer pause, and none is asked for all the time.
        machine.noteLost(alice.id, after: 0, now, &unit)
        #expect(machine.nextLostWake == uptime())
        machine.askForLost(now, &unit)
        #expect(machine.nextLostWake == uptime() + 60_000)
    }

    // MARK: Texts that are sealed again

    private func group(_ owner: World.Device, _ others: String...) throws -> GroupID {
        let create = GroupChange.create(name: "team", metadata: [], members: others)
        let group = try #require(world.change(create, by: owner)).id
        world.deliver()
        return group
    }

    /// Takes what is sent to a device, and loses it.
    private func lose(by sender: World.Device, to device: World.Device) {
        func isForDevice(_ attempt: Attempt) -> Bool {
            if case .send(_, _, device.id, _) = attempt.call { true } else { false }
        }
        while let index = sender.attempts.firstIndex(where: isForDevice) {
            sender.end(sender.attempts.remove(at: index))
        }
    }

    /// Delivers all, and counts the envelopes with which a device sends a message to another one.
    private func deliver(_ message: ChatMessage?, by sender: World.Device, to device: World.Device) -> Int {
        var found: Set<UInt64> = []
        repeat {
            for attempt in sender.attempts {
                switch attempt.call {
                case .send(_, _, device.id, message?.reference.message): found.insert(attempt.id)
                default: break
                }
            }
        } while world.step()
        return found.count
    }

    /// A member goes on from an earlier copy. What was written in the sessions that it has lost comes again, once and in
    /// its order, and what its only device had confirmed does not.
    @Test(arguments: [false, true]) func textsOfAGroupComeAgain(severalAtOnce: Bool) throws {
        let (alice, bob, carol) = (try world.person("alice"), try world.person("bob"), try world.person("carol"))
        alice.run([.sendsSeveral(severalAtOnce)])
        let group = try group(alice, "bob", "carol")
        alice.send("one", in: group)
        world.deliver()
        let copy = carol.store.copy()
        alice.send("two", in: group)
        world.deliver()
        try carol.restore(from: copy.copy())
        for text in ["three", "four"] { alice.send(text, in: group) }
        alice.send("five", to: "carol")
        world.deliver()
        alice.send("six", in: group)
        world.deliver()
        #expect(carol.texts(in: group) == ["one", "three", "four", "six"])
        #expect(carol.texts(with: "alice") == ["five"])
        #expect(bob.texts(in: group) == ["one", "two", "three", "four", "six"])
        #expect(alice.history(in: group).allSatisfy { $0.state == .received })
    }

    /// A member's other device cannot be told apart by receipts, so it gets all that it may lack.
    @Test func aTextThatOnlyTheOtherDeviceHasConfirmedComesAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        let group = try group(alice, "bob")
        let copy = bob.store.copy()
        alice.send("one", in: group)
        world.deliver()
        try bob.restore(from: copy.copy())
        world.deliver()
        #expect(bob.texts(in: group) == ["one"] && phone.texts(in: group) == ["one"])
    }

    /// A person's other device gets again what was written in all chats.
    @Test func copiesForOwnDevicesComeAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let group = try group(alice, "bob")
        phone.send("zero", to: "bob")
        world.deliver()
        let copy = alice.store.copy()
        for text in ["one", "two"] {
            phone.send(text, to: "bob")
            phone.send(text, in: group)
        }
        world.deliver()
        try alice.restore(from: copy.copy())
        phone.send("three", in: group)
        world.deliver()
        #expect(alice.texts(with: "bob") == ["zero", "one", "two"])
        #expect(alice.texts(in: group) == ["one", "two", "three"])
        #expect(alice.history(with: "bob").allSatisfy { $0.isOwn })
        #expect(bob.texts(with: "alice") == ["zero", "one", "two"] && bob.texts(in: group) == ["one", "two", "three"])
    }

    /// Nothing comes again that was not for the member: neither what is older than its membership nor, when it was removed,
    /// anything at all.
    @Test func onlyMembersOfThatTimeGetATextAgain() throws {
        let (alice, bob, carol) = (try world.person("alice"), try world.person("bob"), try world.person("carol"))
        let group = try group(alice, "bob")
        let old = alice.send("old", in: group)
        world.deliver()
        #expect(world.change(.add(["carol"]), of: group, by: alice) != nil)
        world.deliver()
        let copy = carol.store.copy()
        let new = alice.send("new", in: group)
        lose(by: alice, to: carol)
        world.deliver()
        try carol.restore(from: copy.copy())
        #expect(deliver(old, by: alice, to: carol) == 0)
        #expect(carol.texts(in: group) == ["new"] && bob.texts(in: group) == ["old", "new"])
        #expect(world.change(.remove(["carol"]), of: group, by: alice) != nil)
        alice.now.monotonic += MessengerParticipants.renewalPause
        try carol.restore(from: copy.copy())
        #expect(deliver(new, by: alice, to: carol) == 0)
        #expect(carol.texts(in: group).isEmpty)
    }

    /// A device that was added later gets the history from its master device, and nothing older from others.
    @Test func aDeviceThatWasAddedLaterGetsNothingOlder() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let group = try group(alice, "bob")
        let texts = [alice.send("old", in: group), alice.send("old", to: "bob")]
        world.deliver()
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        let copy = phone.store.copy()
        let new = alice.send("new", in: group)
        world.deliver()
        for text in texts {
            alice.now.monotonic += MessengerParticipants.renewalPause
            try phone.restore(from: copy.copy())
            #expect(deliver(text, by: alice, to: phone) == 0)
        }
        alice.now.monotonic += MessengerParticipants.renewalPause
        try phone.restore(from: copy.copy())
        #expect(deliver(new, by: alice, to: phone) == 1)
        #expect(phone.texts(in: group).sorted() == ["new", "old"])
    }

    /// The server shows earlier keys, with a device that was removed meanwhile.
    @Test func aRemovedDeviceGetsNothingAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        alice.send("one", to: "bob")
        world.deliver()
        let earlier = world.configs["bob"]
        let forged = Envelope(
            kind: .direct, sender: phone.id, messageID: MessageID(1),
            ratchetMessage: [0x20] + [UInt8](repeating: 1, count: 200))
        alice.receive(forged.bytes, from: "bob", hasKeys: true)
        alice.events = []
        bob.perform { .revoke(ticket: $0, phone.id) }
        world.deliver()
        alice.send("secret", to: "bob")
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "secret"])
        alice.perform { .keys(ticket: $0, earlier, of: "bob", NewSessions(renewing: phone.id)) }
        let calls = alice.attempts.filter { if case .send(_, _, phone.id, _) = $0.call { true } else { false } }
        #expect(calls.isEmpty)
    }

    /// A device that asks all the time is not sent the same texts all the time.
    @Test func aDeviceGetsTextsAgainThreeTimes() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        let group = try group(alice, "bob")
        let copy = bob.store.copy()
        let text = alice.send("one", in: group)
        world.deliver()
        var count = 0
        for _ in 0..<6 {
            try bob.restore(from: copy.copy())
            count += deliver(text, by: alice, to: bob)
        }
        #expect(count == 3 && phone.texts(in: group) == ["one"] && bob.texts(in: group).isEmpty)
        // It is not forgotten.
        alice.now.monotonic += 2 * MessengerParticipants.renewalPause
        alice.run([.tick])
        world.deliver()
        #expect(bob.texts(in: group) == ["one"])
    }

    /// A device cannot make another one send receipts without end.
    @Test func copiesAreConfirmedUpToALimit() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let message = try #require(alice.send("one", to: "bob"))
        world.deliver()
        var receipts = 0
        func copy() throws {
            bob.receive(
                try alice.seal(message.content.body, message.reference.message.value, for: bob), from: "alice")
            while let attempt = bob.nextCall() {
                if case .receipt = attempt.call { receipts += 1 }
                bob.end(attempt)
            }
        }
        for _ in 0...MessengerParticipants.copyLimit { try copy() }
        #expect(receipts == MessengerParticipants.copyLimit)
        bob.now.monotonic += MessengerParticipants.renewalPause
        try copy()
        #expect(receipts == MessengerParticipants.copyLimit + 1)
    }

    // MARK: Changes that are sealed again

    private func change(_ act: ChatContent.Act, _ text: String = "", in chat: ChatName, by device: World.Device) {
        let reply = device.perform { .send(ticket: $0, SendJob(in: chat, act, text: text)) }
        guard case .accepted? = reply else { return fail("\(act): \(String(describing: reply))") }
    }

    private func reactions(_ message: ChatMessage) -> [String] { message.reactions.map(\.characters) }

    /// Edits, deletions and reactions that were lost come again with the session, also those of messages that were confirmed.
    @Test(arguments: [false, true]) func lostChangesComeAgain(isGroup: Bool) throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let group = try group(alice, "bob")
        let there: ChatName = isGroup ? .group(group) : .person("bob")
        let back: ChatName = isGroup ? .group(group) : .person("alice")
        func send(_ text: String, by device: World.Device) throws -> MessageReference {
            let message =
                isGroup ? device.send(text, in: group) : device.send(text, to: device === alice ? "bob" : "alice")
            world.deliver()
            return try #require(message).reference
        }
        func history(_ device: World.Device) -> [ChatMessage] {
            isGroup ? device.history(in: group) : device.history(with: device === alice ? "bob" : "alice")
        }
        let texts = try ["edited", "deleted", "plain"].map { try send($0, by: alice) }
        let answer = try send("answer", by: bob)
        change(.react(answer, with: "first"), in: there, by: alice)
        world.deliver()
        change(.edit(texts[0]), "v1", in: there, by: alice)
        change(.edit(texts[0]), "v2", in: there, by: alice)
        change(.delete(texts[1]), in: there, by: alice)
        change(.react(texts[2], with: "+"), in: there, by: alice)
        change(.react(answer, with: nil), in: there, by: alice)
        lose(by: alice, to: bob)
        #expect(history(bob).map(\.text) == ["edited", "deleted", "plain", "answer"])
        bob.perform { .lost(ticket: $0, alice.id, of: "alice", count: 5) }
        world.deliver()
        #expect(history(bob).map(\.text) == ["v2", "", "plain", "answer"])
        #expect(history(bob).map(\.isEdited) == [true, false, false, false])
        #expect(history(bob).map(\.isDeleted) == [false, true, false, false])
        #expect(history(bob).map(reactions) == [[], [], ["+"], []])
        // They change nothing where they have come before, and are reported once.
        bob.events = []
        bob.now.monotonic += MessengerParticipants.renewalPause
        change(.react(texts[2], with: "-"), in: back, by: bob)
        bob.perform { .lost(ticket: $0, alice.id, of: "alice", count: 1) }
        world.deliver()
        #expect(history(bob).map(\.text) == ["v2", "", "plain", "answer"])
        let changed = bob.events.count { if case .changed(let message) = $0 { !message.isOwn } else { false } }
        #expect(changed == 1)
    }

    /// A device that was set back seals an earlier edit and reaction again, which count nothing beside later ones.
    @Test func earlierChangesOfADeviceAreNotTakenAfterLaterOnes() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let text = try #require(alice.send("text", to: "bob")).reference
        world.deliver()
        let answer = try #require(bob.send("answer", to: "alice")).reference
        world.deliver()
        change(.edit(text), "v1", in: .person("bob"), by: alice)
        change(.react(answer, with: "1"), in: .person("bob"), by: alice)
        world.deliver()
        let copy = alice.store.copy()
        change(.edit(text), "v2", in: .person("bob"), by: alice)
        change(.react(answer, with: "2"), in: .person("bob"), by: alice)
        world.deliver()
        try alice.restore(from: copy)
        world.deliver()
        #expect(alice.texts(with: "bob") == ["v1", "answer"])
        #expect(bob.texts(with: "alice") == ["v2", "answer"])
        #expect(bob.history(with: "alice").map(reactions) == [[], ["2"]])
    }

    /// A person's other device gets again what was changed in all chats.
    @Test func changesOfOwnDevicesComeAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let group = try group(alice, "bob")
        let text = try #require(phone.send("text", to: "bob")).reference
        let other = try #require(bob.send("other", in: group)).reference
        world.deliver()
        change(.edit(text), "edited", in: .person("bob"), by: phone)
        change(.react(other, with: "+"), in: .group(group), by: phone)
        lose(by: phone, to: alice)
        world.deliver()
        #expect(alice.texts(with: "bob") == ["text"])
        alice.perform { .lost(ticket: $0, phone.id, of: "alice", count: 2) }
        world.deliver()
        #expect(alice.texts(with: "bob") == ["edited"] && alice.texts(in: group) == ["other"])
        #expect(alice.history(in: group).map(reactions) == [["+"]] && bob.history(in: group).map(reactions) == [["+"]])
    }

    /// A member gets no change that it was not sealed for, and no text whose edit it was not sealed for.
    @Test func onlyMembersOfThatTimeGetAChangeAgain() throws {
        let (alice, bob, carol) = (try world.person("alice"), try world.person("bob"), try world.person("carol"))
        let group = try group(alice, "bob", "carol")
        let text = try #require(alice.send("text", in: group))
        lose(by: alice, to: carol)
        world.deliver()
        let answer = try #require(bob.send("answer", in: group)).reference
        world.deliver()
        #expect(world.change(.remove(["carol"]), of: group, by: alice) != nil)
        world.deliver()
        change(.edit(text.reference), "secret", in: .group(group), by: alice)
        change(.react(answer, with: "secret"), in: .group(group), by: alice)
        world.deliver()
        #expect(world.change(.add(["carol"]), of: group, by: alice) != nil)
        world.deliver()
        carol.perform { .lost(ticket: $0, alice.id, of: "alice", count: 2) }
        #expect(deliver(text, by: alice, to: carol) == 0)
        #expect(bob.texts(in: group) == ["secret", "answer"])
        #expect(carol.history(in: group).allSatisfy { $0.text != "secret" && $0.reactions.isEmpty })
    }

    /// A device that was set back to before it has written a text drops the reactions to it.
    @Test func aReactionToATextThatItsDeviceHasLostIsNoFailure() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let copy = bob.store.copy()
        let lost = try #require(bob.send("two", to: "alice")).reference
        world.deliver()
        change(.react(lost, with: "+"), in: .person("bob"), by: alice)
        world.deliver()
        try bob.restore(from: copy)
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one"])
        let unreadable = bob.events.count { if case .unreadable(_, .notAuthentic) = $0 { true } else { false } }
        #expect(unreadable == 0)
    }

    // MARK: Messages that the server has dropped

    /// The server reports that it has dropped messages: the device begins a new session, and they come again.
    @Test func whatTheServerHasDroppedComesAgain() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        for text in ["two", "three"] { alice.send(text, to: "bob") }
        while let attempt = alice.nextCall() { alice.end(attempt) }
        bob.perform { .lost(ticket: $0, alice.id, of: "alice", count: 2) }
        let gaps = bob.events.compactMap { event in if case .gap("alice", let count) = event { count } else { nil } }
        #expect(gaps == [2])
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two", "three"])
        // It proves nothing: a server that says so all the time brings one new session in a while.
        for _ in 0..<20 { bob.perform { .lost(ticket: $0, alice.id, of: "alice", count: 2) } }
        let asked = bob.events.count { if case .sessionLost = $0 { true } else { false } }
        #expect(asked == 0)
    }
}
