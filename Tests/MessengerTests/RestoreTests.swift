import DeviceSessions
import Devices
import Envelope
import Messenger
import Protection
import StorePort
import Testing

/// Devices that go on from an earlier copy of their store.
@Suite struct RestoreTests {
    @Test(arguments: 1...6) func bothSidesGoOnInANewSession(_ seed: UInt64) throws {
        let world = World(seed: seed * 100)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        bob.send("two", to: "alice")
        world.deliver()
        let copy = bob.store.copy()
        for (device, text, other) in [(bob, "three", "alice"), (alice, "four", "bob"), (bob, "five", "alice")] {
            device.send(text, to: other)
            world.deliver()
        }
        try bob.restore(from: copy)
        // It comes in the session that bob does not have any more.
        alice.send("six", to: "bob")
        world.deliver()
        bob.send("seven", to: "alice")
        world.deliver()
        alice.send("eight", to: "bob")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["one", "two", "three", "four", "five", "six", "seven", "eight"])
        // What was confirmed since the copy was made does not come again.
        #expect(bob.texts(with: "alice") == ["one", "two", "six", "seven", "eight"])
        #expect(alice.history(with: "bob").map(\.state).allSatisfy { $0 == .received })
    }

    /// An author is set back to before its texts were confirmed. They come again as copies, and are confirmed again.
    @Test(arguments: [false, true]) func copiesAreConfirmed(hasReceipts: Bool) throws {
        let world = World()
        world.hasReceipts = hasReceipts
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let create = GroupChange.create(name: "team", metadata: [], members: ["bob"])
        let group = try #require(world.change(create, by: alice)).id
        alice.send("zero", to: "bob")
        world.deliver()
        alice.send("one", to: "bob")
        alice.send("two", in: group)
        let copy = alice.store.copy()
        world.deliver()
        try alice.restore(from: copy)
        world.deliver()
        #expect(alice.history(with: "bob").map(\.state) == [.received, .received])
        #expect(alice.history(in: group).map(\.state) == [.received])
        #expect(bob.texts(with: "alice") == ["zero", "one"] && bob.texts(in: group) == ["two"])
    }

    /// The process ends before the new sessions have begun, and the commit of one of them fails.
    @Test func newSessionsBeginAlsoAfterARestart() throws {
        let world = World()
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        try bob.restore(from: bob.store.copy())
        try bob.restart()
        bob.run([.tick])
        world.deliver()
        alice.send("two", to: "bob")
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two"])
    }

    /// A master device is set back to before it knew carol, who writes in the old session. The phone confirms the text.
    @Test func aTextThatOnlyTheOtherDeviceCouldReadComesAgain() throws {
        let world = World()
        let dave = try world.person("dave")
        let phone = try world.device(of: "dave")
        try world.adopt("dave", by: dave)
        let copy = dave.store.copy()
        let carol = try world.person("carol")
        carol.send("one", to: "dave")
        world.deliver()
        dave.send("hello", to: "carol")
        world.deliver()
        try dave.restore(from: copy)
        world.deliver()
        carol.send("two", to: "dave")
        let calls = carol.attempts
        carol.attempts = calls.filter { if case .send(_, _, phone.id, _) = $0.call { true } else { false } }
        world.deliver()
        #expect(carol.history(with: "dave").filter(\.isOwn).map(\.state) == [.received, .received])
        carol.attempts = calls.filter { if case .send(_, _, dave.id, _) = $0.call { true } else { false } }
        world.deliver()
        #expect(dave.texts(with: "carol") == ["one", "two"])
        #expect(phone.texts(with: "carol") == ["one", "hello", "two"])
    }

    /// A master device that is set back to before it has added the phone begins a session, and tells the phone of it.
    @Test func aDeviceThatARestoredMasterDoesNotKnowIsToldOfItsSession() throws {
        let world = World()
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let copy = alice.store.copy()
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        for device in [alice, phone, alice] {
            device.send("before", to: "bob")
            world.deliver()
        }
        try alice.restore(from: copy)
        world.deliver()
        alice.run([.tick])
        world.deliver()
        phone.send("after", to: "bob")
        world.deliver()
        // What the phone has written comes again, and what this device has written does not.
        #expect(alice.texts(with: "bob") == ["before", "after"])
        #expect(bob.texts(with: "alice") == ["before", "before", "before", "after"])
    }

    /// Each device of a person sends its own messages again, and not those that it has copies of.
    @Test func aTextComesAgainFromItsDeviceAlone() throws {
        let world = World()
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        for device in [alice, phone] {
            device.send("hello", to: "bob")
            world.deliver()
        }
        let copy = bob.store.copy()
        phone.send("lost", to: "bob")
        for call in phone.attempts {
            if case .send(_, "bob", _, _) = call.call { phone.end(call) }
        }
        phone.attempts.removeAll { if case .send(_, "bob", _, _) = $0.call { true } else { false } }
        world.deliver()
        #expect(alice.texts(with: "bob") == ["hello", "hello", "lost"])
        try bob.restore(from: copy)
        world.deliver()
        #expect(bob.texts(with: "alice") == ["hello", "hello", "lost"])
    }

    /// The master device is set back to before it has added a device.
    @Test func aRestoredMasterReadsItsAccountFirst() throws {
        let world = World()
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let copy = alice.store.copy()
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        try alice.restore(from: copy)
        guard case .refused(.keysMissing)? = alice.perform({ .revoke(ticket: $0, phone.id) }) else {
            return fail("an earlier list was changed")
        }
        world.deliver()
        #expect(alice.machine.own.deviceList.identity(of: phone.id) != nil)
        let keys = try PublishedKeys(#require(world.configs["alice"]))
        #expect(Set(keys.devices.map(\.id)) == [alice.id, phone.id])
        bob.send("for both", to: "alice")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["for both"] && phone.texts(with: "bob") == ["for both"])
        alice.perform { .revoke(ticket: $0, phone.id) }
        world.deliver()
        #expect(try PublishedKeys(#require(world.configs["alice"])).devices.map(\.id) == [alice.id])
    }

    /// An added device that is set back gets from the master device what has come since.
    @Test func aRestoredDeviceGetsTheHistoryAgain() throws {
        let world = World()
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        bob.send("one", to: "alice")
        world.deliver()
        let copy = phone.store.copy()
        bob.send("two", to: "alice")
        world.deliver()
        #expect(phone.texts(with: "bob") == ["one", "two"])
        try phone.restore(from: copy)
        world.deliver()
        #expect(phone.texts(with: "bob") == ["one", "two"])
    }

    /// A device that was set back to before it knew a group, and a version of another one.
    @Test(arguments: [1, 2, 3] as [UInt64]) func aRestoredDeviceKnowsItsGroups(_ seed: UInt64) throws {
        let world = World(seed: seed * 50)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        let create = GroupChange.create(name: "first", metadata: [], members: ["bob"])
        let first = try #require(world.change(create, by: alice)).id
        world.deliver()
        let copy = bob.store.copy()
        let second = try #require(world.change(create, by: alice)).id
        #expect(world.change(.rename("renamed"), of: first, by: alice) != nil)
        world.deliver()
        #expect(bob.machine.groups.count == 2)
        try bob.restore(from: copy)
        #expect(bob.machine.groups.map(\.content.name) == ["first"])
        world.deliver()
        #expect(bob.machine.groups.map(\.chain) == alice.machine.groups.map(\.chain))
        for group in [first, second] {
            alice.send("after", in: group)
            world.deliver()
            #expect(bob.texts(in: group) == ["after"])
        }
    }

    /// The master device adds a device, and is set back to before that, as the server is.
    @Test(arguments: [1, 2, 3] as [UInt64]) func aDeviceThatWasAddedInVainAsksAgain(_ seed: UInt64) throws {
        let world = World(seed: seed * 70)
        let alice = try world.person("alice")
        let published = try #require(world.configs["alice"])
        let phone = try world.device(of: "alice")
        let copy = alice.store.copy()
        try world.adopt("alice", by: alice)
        world.configs["alice"] = published
        try alice.restore(from: copy)
        world.deliver()
        #expect(alice.machine.own.deviceList.identity(of: phone.id) == nil)
        world.requests["alice"] = nil
        for _ in 0..<2 { phone.perform { .keys(ticket: $0, published, of: "alice") } }
        world.deliver()
        let request = try #require(world.requests["alice"])
        #expect(alice.machine.isAdded(request) == (false, false))
        try world.adopt("alice", by: alice)
        #expect(alice.machine.isAdded(request) == (true, true))
        // It is the same version of the list as before, so nobody sees a fork.
        #expect(alice.machine.own.deviceList == phone.machine.own.deviceList)
        let keys = try PublishedKeys(#require(world.configs["alice"]))
        #expect(Set(keys.devices.map(\.id)) == [alice.id, phone.id])
        let bob = try world.person("bob")
        bob.send("for both", to: "alice")
        world.deliver()
        for device in [alice, phone] { #expect(device.texts(with: "bob") == ["for both"]) }
    }

    /// The same, and somebody else was told of the device.
    @Test(arguments: [1, 2, 3] as [UInt64]) func aListThatAnotherPersonHasComesBack(_ seed: UInt64) throws {
        let world = World(seed: seed * 80)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("hello", to: "bob")
        world.deliver()
        bob.send("hello", to: "alice")
        world.deliver()
        let published = try #require(world.configs["alice"])
        let phone = try world.device(of: "alice")
        let copy = alice.store.copy()
        try world.adopt("alice", by: alice)
        #expect(bob.machine.own.peer(.services("alice"))?.deviceList.identity(of: phone.id) != nil)
        world.configs["alice"] = published
        try alice.restore(from: copy)
        world.deliver()
        #expect(alice.machine.own.deviceList == phone.machine.own.deviceList)
        let list = try PublishedKeys(#require(world.configs["alice"])).deviceList
        #expect(list == phone.machine.own.deviceList)
        // Nobody waits for keys that are published nowhere.
        bob.send("after", to: "alice")
        world.deliver()
        #expect(alice.texts(with: "bob").last == "after")
        #expect(bob.peerEvents.allSatisfy { !$0.awaitsDecision })
    }

    /// The same with a third device, which shows the lost version of the list to the master device.
    @Test(arguments: [1, 2, 3] as [UInt64]) func aListThatAnotherDeviceHasIsPublished(_ seed: UInt64) throws {
        let world = World(seed: seed * 90)
        let alice = try world.person("alice")
        let tablet = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        let published = try #require(world.configs["alice"])
        let copy = alice.store.copy()
        let phone = try world.device(of: "alice")
        try world.adopt("alice", by: alice)
        #expect(tablet.machine.own.deviceList.identity(of: phone.id) != nil)
        world.configs["alice"] = published
        try alice.restore(from: copy)
        world.deliver()
        #expect(alice.machine.own.deviceList == tablet.machine.own.deviceList)
        let list = try PublishedKeys(#require(world.configs["alice"])).deviceList
        #expect(list == tablet.machine.own.deviceList)
        // Its keys are missing there, until it reads that.
        let now = world.configs["alice"]
        phone.perform { .keys(ticket: $0, now, of: "alice") }
        world.deliver()
        let request = try #require(world.requests["alice"])
        #expect(alice.machine.isAdded(request) == (true, false))
        try world.adopt("alice", by: alice)
        let keys = try PublishedKeys(#require(world.configs["alice"]))
        #expect(Set(keys.devices.map(\.id)) == [alice.id, tablet.id, phone.id])
    }

    /// A device that was not told that its store is an earlier copy: the other side notices when it begins a chain.
    @Test func theOtherSideNoticesAnotherChain() throws {
        let world = World()
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        for (device, text, other) in [(alice, "one", "bob"), (bob, "two", "alice"), (alice, "three", "bob")] {
            device.send(text, to: other)
            world.deliver()
        }
        let copy = bob.store.copy()
        bob.send("four", to: "alice")
        world.deliver()
        try bob.restore(from: copy, isNoted: false)
        bob.send("five", to: "alice")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["one", "two", "three", "four", "five"])
    }
}
