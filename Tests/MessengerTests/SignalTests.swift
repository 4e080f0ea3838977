import Envelope
import Messenger
import Protection
import Testing

/// Signals: sealed messages for the other side's code, which are not kept.
@Suite struct SignalTests {
    private let world = World()

    private func signals(_ device: World.Device) -> [ReceivedSignal] {
        device.events.compactMap { event in if case .signal(let signal) = event { signal } else { nil } }
    }

    private func signal(_ device: World.Device, _ job: SignalJob) -> MessengerReply? {
        device.perform { .signal(ticket: $0, job) }
    }

    private func isDone(_ reply: MessengerReply?) -> Bool { if case .done? = reply { true } else { false } }

    private func refusal(_ reply: MessengerReply?) -> MessengerRefusal? {
        if case .refused(let refusal)? = reply { refusal } else { nil }
    }

    /// Alice and Bob, who have exchanged keys.
    private func couple() throws -> (World.Device, World.Device) {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("hello", to: "bob")
        world.deliver()
        return (alice, bob)
    }

    @Test func aSignalComesAndIsNotKept() throws {
        let (alice, bob) = try couple()
        let text = #"{"sdp": "v=0\r\n"}"#
        #expect(isDone(signal(alice, SignalJob(to: "bob", kind: "call", text: text, lifetime: 30))))
        world.deliver()
        let found = try #require(signals(bob).first)
        #expect(signals(bob).count == 1)
        #expect((found.user, found.device, found.kind, found.text) == ("alice", alice.id, "call", text))
        #expect(alice.texts(with: "bob") == ["hello"])
        #expect(bob.texts(with: "alice") == ["hello"])
    }

    @Test func aSignalForOneDeviceReachesNoOther() throws {
        let (alice, bob) = try couple()
        let second = try world.device(of: "bob")
        try world.adopt("bob", by: bob)
        alice.send("again", to: "bob")
        world.deliver()
        #expect(isDone(signal(alice, SignalJob(to: "bob", device: second.id, kind: "call", text: "1", lifetime: 30))))
        world.deliver()
        #expect(signals(bob).isEmpty)
        #expect(signals(second).map(\.text) == ["1"])
        #expect(isDone(signal(alice, SignalJob(to: "bob", kind: "call", text: "2", lifetime: 30))))
        world.deliver()
        #expect(signals(bob).map(\.text) == ["2"])
        #expect(signals(second).map(\.text) == ["1", "2"])
        #expect(isDone(signal(bob, SignalJob(to: "bob", kind: "call", text: "3", lifetime: 30))))
        world.deliver()
        #expect(signals(second).last.map { [$0.user, $0.text] } == ["bob", "3"])
        #expect(signals(alice).isEmpty)
    }

    @Test func aSignalWithoutKeysIsRefused() throws {
        let alice = try world.person("alice")
        #expect(refusal(signal(alice, SignalJob(to: "bob", kind: "call", text: "", lifetime: 30))) == .keysMissing)
        let (carol, bob) = try couple()
        let unknown = DeviceID(77)
        let job = SignalJob(to: "bob", device: unknown, kind: "call", text: "", lifetime: 30)
        #expect(refusal(signal(carol, job)) == .keysMissing)
        world.deliver()
        #expect(signals(bob).isEmpty)
    }

    @Test func aSignalThatIsTooLongOrHasAnotherKindIsRefused() throws {
        let (alice, _) = try couple()
        for kind in ["", "Call", "a;b", String(repeating: "a", count: 17)] {
            #expect(refusal(signal(alice, SignalJob(to: "bob", kind: kind, text: "", lifetime: 30))) == .tooLong)
        }
        let long = String(repeating: "a", count: ChatContent.textLimit + 1)
        #expect(refusal(signal(alice, SignalJob(to: "bob", kind: "call", text: long, lifetime: 30))) == .tooLong)
    }

    @Test func aSignalIsNotDeliveredLate() throws {
        let (alice, bob) = try couple()
        #expect(isDone(signal(alice, SignalJob(to: "bob", kind: "call", text: "late", lifetime: 30))))
        let attempt = try #require(alice.nextCall())
        #expect(attempt.expires == alice.now.wall + 30_000)
        guard case .send(let bytes, _, _, _) = attempt.call else { return fail("no message") }
        bob.now.wall += 61_000
        guard case .received(.taken)? = bob.receive(bytes, from: "alice") else { return fail("it was not taken") }
        #expect(signals(bob).isEmpty)
    }

    /// The expiry is in the queue's row, so it survives the process.
    @Test func aRestartKeepsTheExpiry() throws {
        let (alice, _) = try couple()
        #expect(isDone(signal(alice, SignalJob(to: "bob", kind: "call", text: "1", lifetime: 30))))
        let expires = try #require(alice.nextCall()).expires
        try alice.restart()
        #expect(try #require(alice.nextCall()).expires == expires)
    }
}
