import DeviceDirectory
import Devices
import Envelope
import IRCCodec
import IRCGateway
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Testing
import Vault

/// Another gateway takes over a shard: jobs of that shard are refused, each with its reply, and others are done.
@Suite struct LostShardTests {
    private let alice = AccountID.services("alice")
    private let bob = AccountID.services("bob")

    private func shard(_ store: InMemoryStore, _ one: AccountID, _ other: AccountID) -> Shard {
        store.sharding.shard(from: one, to: other)
    }

    private func requests(_ store: InMemoryStore) throws -> Int {
        try store.requests(states: [.pending, .done, .dead], limit: 100).count
    }

    @Test func aMessageOfTheLostShardIsRefusedAndAnotherIsSealed() throws {
        let store = InMemoryStore(.shared)
        let world = try World(.hosted, store: store)
        let people = ["alice", "bob", "carol"].map { world.connect($0, account: $0) }
        for name in ["bob", "carol"] { world.send(people[0], "PRIVMSG \(name) :one") }
        world.advance(seconds: 60)
        let before = try requests(store)
        store.take(shard(store, alice, bob))
        // The store refuses the first commit, and the rest is refused without one.
        for text in ["number two", "number three"] {
            people[0].read = []
            world.send(people[0], "PRIVMSG bob :\(text)")
            #expect(people[0].read.contains { $0.contains(Notices.notCommitted(target: "bob")) })
        }
        world.send(people[0], "PRIVMSG carol :four")
        #expect(people[2].messages.contains { $0.hasSuffix(":four") })
        #expect(!people[1].messages.contains { $0.contains("number ") })
        #expect(try requests(store) == before + 1)
        #expect(!world.canary.contains("number "))
    }

    /// The shard is lost while the envelope is at the backend.
    @Test func anEnvelopeOfTheLostShardIsReportedToItsReader() throws {
        let store = InMemoryStore(.shared)
        let world = try World(.hosted, store: store)
        let people = ["alice", "bob"].map { world.connect($0, account: $0) }
        world.send(people[0], "PRIVMSG bob :one")
        world.advance(seconds: 60)
        let lost = shard(store, alice, bob)
        world.backend.relay = { line in
            if line.contains("?PAWL:") { store.take(lost) }
            return [line]
        }
        world.send(people[0], "PRIVMSG bob :two")
        #expect(!people[1].messages.contains { $0.hasSuffix(":two") })
        // The next try finds that the shard is another gateway's.
        world.advance(seconds: 1)
        #expect(people[1].wasNotified(Notices.failure(.store, from: "alice")))
    }

    @Test func anActOnTheLostShardIsAnswered() throws {
        let store = InMemoryStore(.shared)
        let world = try World(.hosted, store: store)
        world.backend.relay = { _ in [] }
        let people = ["alice", "bob"].map { world.connect($0, account: $0) }
        world.send(people[0], "PRIVMSG bob :one")
        let id = try #require(try world.ids(.pending).first)
        store.take(shard(store, alice, bob))
        for _ in 0..<2 {
            guard case .refused = world.act(.drop(id)) else {
                Issue.record("the act was not refused")
                return
            }
        }
        #expect(try world.ids(.pending) == [id])
    }
}
