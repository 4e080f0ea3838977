import Envelope
import IRCCodec
import IRCGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Testing

/// A client that writes faster than its messages can be sent waits; messages are refused only if waiting does not help.
@Suite struct BackPressureTests {
    private static func paste(_ count: Int) -> [UInt8] {
        Array((1...count).map { "PRIVMSG bob :line \($0)\r\n" }.joined().utf8)
    }

    private static func texts(_ count: Int) -> [String] { (1...count).map { "line \($0)" } }

    private static func isRefused(_ client: World.Client) -> Bool {
        client.read.contains { $0.contains(Notices.tooManyPending) }
    }

    @Test(arguments: OutageTests.backends) func aLongPasteIsSlowedAndNothingIsRefused(_ offers: [String]?) throws {
        let world = try World(.hosted, offers: offers) { $0.flood = Pacer.Limit(burst: 6, linesPerSecond: 20) }
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, bytes: Self.paste(600))
        #expect(alice.machine.isCongested(at: world.now))
        // The rest is not accepted, so it cannot become too old either.
        #expect(try world.store.requestCounts()[.pending] ?? 0 <= 70)
        world.advance(seconds: 200)
        #expect(bob.texts == Self.texts(600))
        #expect(!Self.isRefused(alice) && !alice.machine.isCongested(at: world.now))
        #expect(!alice.machine.hasPendingLines)
    }

    /// Without a pace the store is what a client waits for.
    @Test func aSlowStoreSlowsItsClients() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.isStoreSlow = true
        world.send(alice, bytes: Self.paste(1000))
        #expect(alice.machine.isCongested(at: world.now) && world.pendingJobs.count <= 200)
        world.isStoreSlow = false
        world.settle()
        #expect(bob.texts == Self.texts(1000) && !Self.isRefused(alice))
    }

    /// Nobody knows when the backend is back.
    @Test func inAnOutageWhatIsTooMuchIsRefused() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, "PRIVMSG bob :before")
        world.backendDies()
        world.send(alice, bytes: Self.paste(400))
        #expect(Self.isRefused(alice) && !alice.machine.isCongested(at: world.now))
        world.send(alice, "PING :still there")
        #expect(alice.read.last?.hasSuffix("still there") == true)
    }

    /// The client that waits is read when the outage begins.
    @Test func anOutageEndsTheWait() throws {
        let world = try World(.hosted) { $0.flood = Pacer.Limit(burst: 6, linesPerSecond: 1) }
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, bytes: Self.paste(400))
        #expect(alice.machine.isCongested(at: world.now) && !Self.isRefused(alice))
        world.backendDies()
        #expect(!alice.machine.isCongested(at: world.now) && Self.isRefused(alice))
    }

    /// A backend that has lost answers does not silence its clients for good.
    @Test func answersThatNeverComeAreWaitedForOnlySoLong() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, "PRIVMSG bob :before")
        world.backend.isStalled = true
        world.send(alice, bytes: Self.paste(200))
        #expect(alice.machine.isCongested(at: world.now))
        world.advance(seconds: 70)
        #expect(!alice.machine.isCongested(at: world.now))
    }

    @Test func atTheEndTheRestIsNamed() throws {
        let world = try World(.hosted) { $0.flood = Pacer.Limit(burst: 6, linesPerSecond: 1) }
        let alice = world.connect("alice")
        world.connect("bob")
        world.send(alice, bytes: Self.paste(400))
        #expect(!alice.machine.isSettled)
        let seen = alice.read.count
        world.run(alice) { alice.machine.stop($0) }
        let notices = alice.read.dropFirst(seen).joined(separator: "\n")
        #expect(notices.contains(Notices.unreadAtStop))
        let lost = notices.firstMatch(of: /send (\d+) messages of yours to bob/).flatMap { Int($0.1) } ?? 0
        #expect((350...400).contains(lost), "\(notices)")
    }
}
