import DeviceSessions
import Devices
import Envelope
import Messenger
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
