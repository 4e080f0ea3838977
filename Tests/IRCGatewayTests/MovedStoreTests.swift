import Envelope
import IRCCodec
import IRCGateway
import Protection
import RequestQueue
import StorePort
import Testing

/// A store that was not divided is moved into one that is: the ids of messages under way do not tell their shards.
@Suite struct MovedStoreTests {
    /// The same rows in a divided store, with the sessions in the shards of their conversations.
    private func moved(_ store: InMemoryStore) throws -> InMemoryStore {
        let contents = try store.load()
        var changes: [StoreChange] = contents.devices.map { .putDevice($0) }
        changes += contents.conversations.map { .putConversation($0) }
        for one in contents.devices {
            for other in contents.devices {
                guard let row = try store.session(SessionID(owner: one.id, peer: other.id, in: .only)) else { continue }
                let shard = Sharding.shared.shard(from: one.account, to: other.account)
                let id = SessionID(owner: one.id, peer: other.id, in: shard)
                changes.append(.putSession(SessionRow(id: id, fence: row.fence, sealedState: row.sealedState)))
            }
        }
        for request in try store.queueContents().requests {
            changes.append(.queue(.insert(request, form: RequestForm.encode(request))))
        }
        let new = InMemoryStore(.shared)
        #expect(try new.commit([changes]) == [nil])
        return new
    }

    @Test func messagesUnderWayAreOpened() throws {
        let store = InMemoryStore(.single)
        let world = try World(.hosted, store: store)
        let people = ["alice", "bob"].map { world.connect($0, account: $0) }
        world.send(people[0], "PRIVMSG bob :one")
        #expect(people[1].messages.contains { $0.hasSuffix(":one") })
        world.backend.relay = { _ in [] }
        let texts = (2...5).map { "number \($0)" }
        for text in texts { world.send(people[0], "PRIVMSG bob :\(text)") }
        let waiting = try store.queueContents().requests
        #expect(waiting.count == texts.count)

        let later = try World(.hosted, store: moved(store), seed: 2)
        let again = ["bob", "alice"].map { later.connect($0, account: $0) }
        later.advance(seconds: 120)
        for text in texts {
            #expect(again[0].messages.contains { $0.hasSuffix(":\(text)") }, "\(text): \(again[0].messages)")
        }
        #expect(try later.store.queueContents().requests.isEmpty)
    }
}
