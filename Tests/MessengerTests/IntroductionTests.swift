import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import Testing
import Vault

/// Keys in band: two messengers on a carrier with introductions, and what a server can do to them.
@Suite struct IntroductionTests {
    /// Two people; all calls of one are delivered to the other by hand.
    struct Pair {
        let alice: World.Device
        let bob: World.Device

        init() throws {
            let start = Timestamp(monotonic: 0, wall: 1_700_000_000_000)
            (alice, bob) = (
                try World.Device("alice", seed: 11, now: start, carrier: .irc),
                try World.Device("bob", seed: 12, now: start, carrier: .irc)
            )
            for device in [alice, bob] {
                device.run([.sendsSeveral(true)])
                device.perform { .found(ticket: $0) }
            }
        }

        /// Delivers all calls; returns the envelopes, in their order.
        @discardableResult
        func deliver() -> [[UInt8]] {
            var envelopes: [[UInt8]] = []
            while true {
                let (sender, reader) = alice.attempts.isEmpty ? (bob, alice) : (alice, bob)
                guard let attempt = sender.nextCall() else { return envelopes }
                switch attempt.call {
                case .send(let bytes, let user, _, _):
                    guard user == reader.user else {
                        sender.end(attempt)
                        continue
                    }
                    envelopes.append(bytes)
                    reader.receive(bytes, from: sender.user, hasKeys: true)
                    sender.end(attempt)
                case .sendSeveral(let bytes, let users, _):
                    #expect(users.allSatisfy { $0.user == reader.user })
                    envelopes.append(bytes)
                    reader.receive(bytes, from: sender.user, hasKeys: true)
                    sender.end(attempt)
                case .plaintext(let text, _, _):
                    reader.perform { .receivePlaintext(ticket: $0, text, from: sender.user) }
                    sender.end(attempt)
                case .receipt, .register: sender.end(attempt, .unsupported)
                case .publish: sender.end(attempt)
                }
            }
        }

        func introduction(of device: World.Device) throws -> [UInt8] {
            guard case .introduction(let bytes)? = device.perform({ .introduce(ticket: $0) }) else {
                throw EnvelopeError.malformed
            }
            return bytes
        }

        /// Alice's keys go to Bob, who begins.
        func meet() throws {
            bob.receive(try introduction(of: alice), from: "alice", hasKeys: true)
            deliver()
        }
    }

    private static func isTaken(_ reply: MessengerReply?) -> Bool {
        if case .received(.taken)? = reply { true } else { false }
    }

    private static func dropped(_ reply: MessengerReply?) -> OpenFailure? {
        if case .received(.dropped(let reason))? = reply { reason } else { nil }
    }

    @Test func anIntroductionMakesASessionInBothDirections() throws {
        let pair = try Pair()
        pair.alice.send("in the clear", to: "bob", .plaintext)
        pair.deliver()
        #expect(pair.bob.history(with: "alice").map(\.protection) == [.plaintext])
        try pair.meet()
        #expect(pair.alice.peerEvents == [.keysExchanged(.services("bob"))])
        #expect(pair.bob.peerEvents == [.keysExchanged(.services("alice"))])
        pair.alice.send("one", to: "bob", .plaintext)
        pair.bob.send("two", to: "alice", .plaintext)
        let envelopes = pair.deliver()
        #expect(pair.bob.texts(with: "alice").sorted() == ["in the clear", "one", "two"])
        #expect(pair.alice.history(with: "bob").map(\.protection) == [.plaintext, .device, .device])
        // A text of usual length fits one line, once both have answered.
        #expect(envelopes.contains { Armour.lines(for: $0.count, capacity: 330) == 1 })
        // Nobody at the server can write in the chat from now on.
        pair.bob.perform { .receivePlaintext(ticket: $0, "forged", from: "alice") }
        #expect(!pair.bob.texts(with: "alice").contains("forged"))
        let (one, other) = (pair.alice.machine.own, pair.bob.machine.own)
        let lists = (one.peer(.services("bob"))?.deviceList, other.peer(.services("alice"))?.deviceList)
        #expect(lists.0 == other.deviceList && lists.1 == one.deviceList)
    }

    @Test func copiesAndAlterationsOfAnIntroductionChangeNothing() throws {
        let pair = try Pair()
        let bytes = try pair.introduction(of: pair.alice)
        // The id of the message, which names nothing here, is not signed.
        for place in stride(from: 0, to: bytes.count, by: 7) where !(9..<17).contains(place) {
            var altered = bytes
            altered[place] ^= 1
            #expect(!Self.isTaken(pair.bob.receive(altered, from: "alice", hasKeys: true)))
        }
        for length in [0, 1, 16, 17, 18, 100, bytes.count - 1] {
            let part = Array(bytes.prefix(length))
            #expect(Self.dropped(pair.bob.receive(part, from: "alice", hasKeys: true)) != nil)
        }
        let long = bytes + [UInt8](repeating: 0, count: Carrier.irc.maximumLength)
        #expect(Self.dropped(pair.bob.receive(long, from: "alice", hasKeys: true)) == .malformed)
        #expect(pair.bob.machine.own.peer(.services("alice")) == nil)
        // Under the reader's own name it is nobody's.
        #expect(Self.dropped(pair.bob.receive(bytes, from: "bob", hasKeys: true)) == .wrongSource)
        #expect(Self.isTaken(pair.bob.receive(bytes, from: "alice", hasKeys: true)))
        guard case .received(.copy)? = pair.bob.receive(bytes, from: "alice", hasKeys: true) else {
            return fail("a copy is taken again")
        }
        // The same keys under another name belong to nobody else.
        #expect(Self.dropped(pair.bob.receive(bytes, from: "mallory", hasKeys: true)) == .wrongSource)
    }

    // MARK: Introductions that come again

    /// The id of a device's session with another one.
    private static func session(of device: World.Device, with other: World.Device) throws -> [UInt8] {
        try #require(try device.machine.own.sessions(with: other.id, in: device.machine.vault)).sessions.id
    }

    /// The server forges messages, so that Alice's keys are sent again and again, while a message of hers is under way.
    @Test func repeatedIntroductionsDoNotEndASession() throws {
        let pair = try Pair()
        try pair.meet()
        pair.bob.send("one", to: "alice")
        pair.alice.send("two", to: "bob")
        pair.deliver()
        pair.alice.send("delayed", to: "bob")
        let attempt = try #require(pair.alice.nextCall())
        guard case .send(let delayed, _, _, _) = attempt.call else { return fail("it is no message") }
        pair.alice.end(attempt)
        for _ in 0..<5 {
            pair.bob.receive(try pair.introduction(of: pair.alice), from: "alice", hasKeys: true)
            pair.deliver()
            pair.bob.now.monotonic += 10_000_000_000
        }
        pair.bob.receive(delayed, from: "alice", hasKeys: true)
        #expect(pair.bob.texts(with: "alice").contains("delayed"))
        pair.bob.send("three", to: "alice")
        pair.deliver()
        #expect(pair.alice.texts(with: "bob").contains("three"))
    }

    @Test func thePauseBetweenTwoNewSessionsGrows() throws {
        let pair = try Pair()
        try pair.meet()
        var last = try Self.session(of: pair.bob, with: pair.alice)
        for (seconds, isNew) in [(0, true), (59, false), (2, true), (238, false), (3, true), (900, false)] {
            pair.bob.now.monotonic += Int64(seconds) * 1_000_000_000
            pair.bob.receive(try pair.introduction(of: pair.alice), from: "alice", hasKeys: true)
            pair.deliver()
            let session = try Self.session(of: pair.bob, with: pair.alice)
            #expect((session != last) == isNew, "after \(seconds) seconds")
            last = session
        }
        // After a day it begins anew.
        pair.bob.now.monotonic += 86_400_000_000_000
        pair.bob.receive(try pair.introduction(of: pair.alice), from: "alice", hasKeys: true)
        pair.deliver()
        #expect(try Self.session(of: pair.bob, with: pair.alice) != last)
    }

    /// The beginning of a session was lost: the same one is sent again.
    @Test func anUnansweredBeginningIsSentAgain() throws {
        let pair = try Pair()
        pair.bob.receive(try pair.introduction(of: pair.alice), from: "alice", hasKeys: true)
        let session = try Self.session(of: pair.bob, with: pair.alice)
        for attempt in pair.bob.attempts { pair.bob.end(attempt) }
        pair.bob.attempts = []
        try pair.meet()
        #expect(try Self.session(of: pair.bob, with: pair.alice) == session)
        #expect(try Self.session(of: pair.alice, with: pair.bob) == session)
    }

    @Test func otherKeysUnderAKnownNameWaitForThePerson() throws {
        let pair = try Pair()
        try pair.meet()
        pair.bob.send("for alice", to: "alice")
        pair.deliver()
        let start = Timestamp(monotonic: 0, wall: 1_700_000_000_000)
        let mallory = try World.Device("alice", seed: 99, now: start, carrier: .irc)
        guard case .introduction(let bytes)? = mallory.perform({ .introduce(ticket: $0) }) else {
            return fail("there is no introduction")
        }
        pair.bob.receive(bytes, from: "alice", hasKeys: true)
        #expect(pair.bob.peerEvents.last == .changed(.services("alice")))
        #expect(pair.bob.send("secret", to: "alice", .plaintext)?.state == .waiting)
        #expect(pair.bob.attempts.isEmpty)
    }

    @Test func bothBeginAtTheSameTime() throws {
        let pair = try Pair()
        let (one, other) = (try pair.introduction(of: pair.alice), try pair.introduction(of: pair.bob))
        pair.bob.receive(one, from: "alice", hasKeys: true)
        pair.alice.receive(other, from: "bob", hasKeys: true)
        pair.alice.send("from alice", to: "bob")
        pair.bob.send("from bob", to: "alice")
        pair.deliver()
        for (device, peer) in [(pair.alice, "bob"), (pair.bob, "alice")] {
            #expect(device.texts(with: peer).sorted() == ["from alice", "from bob"])
        }
        pair.alice.send("again", to: "bob")
        pair.bob.send("and again", to: "alice")
        pair.deliver()
        for (device, peer) in [(pair.alice, "bob"), (pair.bob, "alice")] {
            #expect(device.texts(with: peer).count == 4)
        }
    }

    /// A text that was queued before the keys came is sealed when they are there.
    @Test func aQueuedTextIsNotSentInClearOnceThereAreKeys() throws {
        let pair = try Pair()
        pair.deliver()
        pair.alice.send("one", to: "bob", .plaintext)
        let attempt = try #require(pair.alice.nextCall())
        pair.alice.run([.attempted(attempt.id, lease: attempt.lease, .failed, random: .max)])
        try pair.meet()
        pair.alice.run([.tick])
        #expect(pair.alice.keysWanted.contains("bob"))
        pair.alice.now.monotonic += 10_000_000_000
        pair.alice.run([.tick])
        // There are no published keys to read.
        pair.alice.perform { .keys(ticket: $0, nil, of: "bob") }
        pair.deliver()
        #expect(pair.bob.history(with: "alice").map(\.text) == ["one"])
        #expect(pair.bob.history(with: "alice").map(\.protection) == [.device])
    }

    /// What clients behind a sidecar send: bytes that are no text, actions, tags without a text.
    @Test func whatIsNotTextIsTakenToo() throws {
        #expect(try ChatContent(Body(text: Array("hello".utf8)), now: 5).text == "hello")
        let pair = try Pair()
        try pair.meet()
        #expect(pair.alice.send(String(repeating: "x", count: 1501), to: "bob") == nil)
        #expect(pair.alice.send(String(repeating: "x", count: 1500), to: "bob") != nil)
        pair.deliver()
        #expect(pair.bob.texts(with: "alice").map(\.utf8.count) == [1500])
    }

    @Test func aDeviceIsAdoptedAndRevoked() throws {
        let pair = try Pair()
        try pair.meet()
        // Both are one person's now.
        pair.bob.perform { .decide(ticket: $0, "alice", .join) }
        pair.alice.perform { .decide(ticket: $0, "bob", .adopt) }
        pair.deliver()
        #expect(pair.bob.machine.own.deviceList == pair.alice.machine.own.deviceList)
        #expect(pair.alice.machine.own.deviceList.current.count == 2)
        guard case .refused(.notMaster)? = pair.bob.perform({ .revoke(ticket: $0, pair.alice.id) }) else {
            return fail("only the master device removes devices")
        }
        pair.alice.perform { .revoke(ticket: $0, pair.bob.id) }
        #expect(pair.alice.machine.own.deviceList.current.map(\.id) == [pair.alice.id])
    }

    /// Where keys are published, devices are added through the server.
    @Test func elsewhereIntroductionsAreRefused() throws {
        let world = World()
        let alice = try world.person("alice")
        _ = try world.person("bob")
        alice.send("hello", to: "bob")
        world.deliver()
        guard case .refused(.notAllowed)? = alice.perform({ .introduce(ticket: $0) }),
            case .refused(.notAllowed)? = alice.perform({ .decide(ticket: $0, "bob", .adopt) })
        else { return fail("it is not refused") }
        let bytes = try Pair().introduction(of: Pair().alice)
        #expect(Self.dropped(alice.receive(bytes, from: "carol", hasKeys: true)) != nil)
    }
}
