import Devices
import DoubleRatchet
import Envelope
import Messenger
import Protection
import StorePort
import Testing

/// Sessions that begin with one-time prekeys, and devices that have lost them.
@Suite struct OneTimePreKeyTests {
    private let world = World()

    /// The one-time prekeys that a device has in its store.
    private func kept(by device: World.Device) throws -> Set<String> {
        Set(try device.store.records(.preKey).map(\.name).filter { $0.hasPrefix("o") })
    }

    /// Removes rows of one-time prekeys, as if the device were set back to a state before they were made.
    private func loseOneTimeKeys(of device: World.Device) throws {
        let changes = try kept(by: device).map { StoreChange.removeRecord(.preKey, name: $0) }
        _ = try device.store.commit([changes])
        try device.restart()
    }

    @Test func aSessionUsesUpItsPrekey() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        world.replenish(bob)
        let before = try kept(by: bob)
        #expect(world.oneTime[bob.id]?.count == before.count && before.count == PreKeyLimits().published)
        alice.send("one", to: "bob")
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one"])
        #expect(try before.subtracting(kept(by: bob)).count == 1)
        #expect(world.oneTime[bob.id]?.count == before.count - 1)
        bob.send("two", to: "alice")
        world.deliver()
        alice.send("three", to: "bob")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["one", "two", "three"])
        #expect(try before.subtracting(kept(by: bob)).count == 1)
    }

    @Test func prekeysAreMadeOnlyIfFewAreLeft() throws {
        let bob = try world.person("bob")
        guard case .oneTimeKeys(let none)? = bob.perform({ .replenish(ticket: $0, left: 25) }),
            case .oneTimeKeys(let some)? = bob.perform({ .replenish(ticket: $0, left: 24) })
        else { return fail("no keys") }
        #expect(none.isEmpty && some.count == 26)
    }

    /// The prekeys are stored before they are published, or they are not published at all.
    @Test func prekeysThatAreNotStoredAreNotPublished() throws {
        let bob = try world.person("bob")
        bob.store.failNextCommit()
        guard case .refused? = bob.perform({ .replenish(ticket: $0, left: 0) }) else { return fail("published") }
        #expect(try kept(by: bob).isEmpty)
    }

    /// A device that was set back to an earlier state cannot open the first message. It begins a new session, and what
    /// it could not read comes again, in both orders of the two identity keys.
    @Test(arguments: 1...6) func aLostPrekeyIsRecovered(_ seed: UInt64) throws {
        let world = World(seed: seed * 100)
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        world.replenish(bob)
        try loseOneTimeKeys(of: bob)
        alice.send("one", to: "bob")
        alice.send("two", to: "bob")
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two"])
        #expect(alice.history(with: "bob").map(\.state) == [.received, .received])
        bob.send("three", to: "alice")
        world.deliver()
        alice.send("four", to: "bob")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["one", "two", "three", "four"])
        #expect(bob.texts(with: "alice") == ["one", "two", "three", "four"])
        let unreadable = bob.events.count { if case .unreadable = $0 { true } else { false } }
        #expect(unreadable > 0, "the person is told that a message could not be read")
    }

    /// Forged messages under the id of a known device do not use up prekeys without end.
    @Test func forgedMessagesBringOneRenewal() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        world.replenish(alice)
        alice.send("one", to: "bob")
        world.deliver()
        let left = world.oneTime[alice.id]?.count
        for number in 0..<20 {
            let forged = Envelope(
                kind: .direct, sender: alice.id, messageID: MessageID(UInt64(number)),
                ratchetMessage: [0x20] + [UInt8](repeating: UInt8(number), count: 200))
            bob.receive(forged.bytes, from: "alice")
            world.deliver()
        }
        #expect((left ?? 0) - (world.oneTime[alice.id]?.count ?? 0) <= 1)
        alice.send("two", to: "bob")
        world.deliver()
        #expect(bob.texts(with: "alice") == ["one", "two"])
        bob.send("three", to: "alice")
        world.deliver()
        #expect(alice.texts(with: "bob") == ["one", "two", "three"])
    }
}
