import Devices
import DoubleRatchet
import Messenger
import StorePort
import Synchronization
import Testing

@testable import PawlMessenger

/// What the engine does when its machine is made again from the store.
@Suite struct EngineTests {
    /// The outcome of a commit is unknown: a message that was stored asks for its keys again.
    @Test func aMachineThatIsMadeAgainAsksForTheKeysThatItNeeds() async throws {
        let store = InMemoryStore(.single)
        let engine = try MessengerEngine { carrier throws(StoreError) in
            var changes: [StoreChange] = []
            let participants = try MessengerParticipants(
                account: "alice", carrier: carrier, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)),
                store: store, peers: PeerCache(), now: SystemTime.now(), random: SystemRandomSource(), &changes)
            _ = try store.commit([changes])
            return participants
        }
        let wanted = Mutex<[String]>([])
        let collect: @Sendable (MessengerEvent) -> Void = { event in
            if case .keysWanted(let user) = event { wanted.withLock { $0.append(user) } }
        }
        engine.start(onEvent: collect, onAttempt: { _ in })
        _ = try await engine.perform { .found(ticket: $0) }
        store.loseNextOutcome()
        await #expect(throws: MessengerRefusal.notCommitted) {
            _ = try await engine.perform { .send(ticket: $0, SendJob(to: "bob", text: "one")) }
        }
        #expect(try await engine.read { $0.waitingUsers } == ["bob"])
        #expect(wanted.withLock { $0 } == ["bob"])
        engine.close()
        engine.waitUntilClosed()
    }
}
