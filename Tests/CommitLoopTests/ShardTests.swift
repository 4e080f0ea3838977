import Envelope
import Protection
import StorePort
import Testing

/// Shards, their ids, and the store that refuses a row of another shard.
@Suite struct ShardTests {
    private let sharding = Sharding.shared
    private let alice = AccountID.services("alice")
    private let bob = AccountID.services("bob")

    @Test func bothEndsOfAConversationAreInOneShard() {
        let shard = sharding.shard(from: alice, to: bob)
        #expect(sharding.shard(from: bob, to: alice) == shard)
        #expect(sharding.shard(of: ConversationID(bob, alice)) == shard)
    }

    @Test func whateverIsWrittenToARoomIsInItsShard() {
        let shard = sharding.shard(of: .ofRoom("#lobby"))
        #expect(sharding.shard(from: alice, to: .room("#lobby")) == shard)
        #expect(sharding.shard(from: bob, to: .room("#lobby")) == shard)
        #expect(sharding.shard(from: bob, to: .room("#lobby", status: "@")) == shard)
    }

    /// The digest is part of the stored form: another one would move all rows.
    @Test func theDigestIsFixed() {
        #expect(sharding.shard(of: ConversationID(alice, bob)) == Shard(136))
        #expect(sharding.shard(of: .ofRoom("#lobby")) == Shard(202))
        #expect(sharding.shard(of: alice) == Shard(227))
    }

    @Test func conversationsAreSpreadOverAllShards() {
        let shards = Set((0..<4096).map { sharding.shard(of: .ofRoom("#\($0)")) })
        #expect(shards.count == 256)
    }

    @Test func anUndividedStoreHasOneShard() {
        let single = Sharding.single
        #expect(single.shard(of: ConversationID(alice, bob)) == .only && single.shard(ofID: .max) == .only)
        var ids = IDSequence(single, after: 7)
        #expect((0..<3).map { _ in ids.next(in: .only) } == [8, 9, 10])
        #expect(ids.next(in: .only, reserving: 4) == 14)
    }

    @Test func idsRiseAndNameTheirShard() {
        var ids = IDSequence(sharding, after: 1000)
        var last: UInt64 = 1000
        for number in [0, 255, 255, 7, 6, 232, 0].map({ Shard($0) }) {
            let id = ids.next(in: number)
            #expect(id > last && id <= last + 256 && sharding.shard(ofID: id) == number)
            last = id
        }
        let block = ids.next(in: Shard(3), reserving: 300)
        #expect(block >= last + 300 && block < last + 300 + 256 && sharding.shard(ofID: block) == Shard(3))
        #expect(ids.highest == block)
    }

    @Test func idsRiseWithTime() {
        var ids = IDSequence(sharding, after: 0)
        let early = ids.next(in: Shard(9), at: Timestamp(monotonic: 0, wall: 50))
        #expect(early == 50 << 10 | 9)
        #expect(ids.next(in: Shard(9), at: Timestamp(monotonic: 0, wall: 40)) == early + 256)
        #expect(ids.next(in: Shard(8), at: Timestamp(monotonic: 0, wall: 51)) == 51 << 10 | 8)
    }

    // MARK: The divided store

    private func delivery(_ sequence: UInt64) -> StoreChange {
        .insertDelivery(DeliveryRow(sequence: sequence, account: bob, sealedLine: []))
    }

    private func session(_ shard: Shard, fence: UInt64) -> StoreChange {
        .putSession(
            SessionRow(
                id: SessionID(owner: DeviceID(1), peer: DeviceID(2), in: shard), fence: fence, sealedState: []))
    }

    private func isRefused(_ changes: [StoreChange], in placement: Placement, by store: InMemoryStore) throws -> Bool {
        let result = try store.commit([ChangeGroup(changes, in: placement)])
        if case .corrupt? = result[0] { return true }
        #expect(result == [nil])
        return false
    }

    @Test func aRowOfAnotherShardIsRefusedWithItsGroup() throws {
        let store = InMemoryStore(.shared)
        #expect(try !isRefused([delivery(256 + 5)], in: .shard(Shard(5)), by: store))
        #expect(try isRefused([delivery(512 + 5), delivery(6)], in: .shard(Shard(5)), by: store))
        #expect(try isRefused([delivery(5)], in: .unsharded, by: store))
        #expect(try isRefused([.forgetAccount(bob)], in: .shard(Shard(5)), by: store))
        #expect(try store.deliveries(of: bob).map(\.sequence) == [256 + 5])
        #expect(try !isRefused([delivery(5), delivery(6), .forgetAccount(alice)], in: .several, by: store))
    }

    @Test func aSessionStaysInItsShard() throws {
        let store = InMemoryStore(.shared)
        #expect(try !isRefused([session(Shard(3), fence: 1)], in: .shard(Shard(3)), by: store))
        #expect(try !isRefused([session(Shard(3), fence: 2)], in: .shard(Shard(3)), by: store))
        #expect(try isRefused([session(Shard(4), fence: 3)], in: .shard(Shard(4)), by: store))
        #expect(try isRefused([session(Shard(3), fence: 3)], in: .shard(Shard(4)), by: store))
    }

    @Test func aRecordStaysInTheShardOfItsGroups() throws {
        let store = InMemoryStore(.shared)
        let row = StoreChange.putRecord(RecordRow(kind: .mailbox, name: "d", value: []))
        #expect(try !isRefused([row], in: .shard(Shard(3)), by: store))
        #expect(try isRefused([row], in: .shard(Shard(4)), by: store))
        #expect(try isRefused([row], in: .unsharded, by: store))
        let audit = StoreChange.audit(AuditRow(at: 1, actor: "a", action: "b", detail: "c"))
        #expect(try !isRefused([audit], in: .unsharded, by: store))
    }

    // MARK: Epochs

    @Test func aTakenShardRefusesTheOldEpochAndNoOther() throws {
        let store = InMemoryStore(.shared)
        let before = OwnedShards(try store.epochs(), in: .shared)
        store.take(Shard(3))
        let three = ChangeGroup([session(Shard(3), fence: 1)], in: .shard(Shard(3)))
        let five = ChangeGroup([delivery(5)], in: .shard(Shard(5)))
        let both = before.commit(of: [five, three])
        #expect(both.epochs.map(\.shard) == [Shard(3), Shard(5)])
        #expect(throws: StoreError.epochLost(Shard(3))) { try store.commit(both.groups, by: both.epochs) }
        #expect(try store.deliveries(of: bob).isEmpty)
        let one = before.commit(of: [five])
        #expect(try store.commit(one.groups, by: one.epochs) == [nil])
        let after = OwnedShards(try store.epochs(), in: .shared).commit(of: [three])
        #expect(after.epochs == [ShardEpoch(Shard(3), 2)])
        #expect(try store.commit(after.groups, by: after.epochs) == [nil])
    }

    @Test func aGroupInSeveralShardsNeedsAllOfThem() throws {
        let store = InMemoryStore(.shared)
        var owned = OwnedShards(try store.epochs(), in: .shared)
        owned.lose(Shard(6))
        #expect(!owned.ownsAll && owned.foreign(.shard(Shard(6))) == Shard(6))
        #expect(owned.foreign(.shard(Shard(5))) == nil && owned.foreign(.several) == nil)
        let audit = StoreChange.audit(AuditRow(at: 1, actor: "a", action: "b", detail: "c"))
        let commit = owned.commit(of: [
            ChangeGroup([delivery(5), delivery(6)], in: .several), ChangeGroup([delivery(256 + 5)], in: .several),
            ChangeGroup([.forgetAccount(bob)], in: .several), ChangeGroup([audit], in: .unsharded),
            ChangeGroup([audit], in: .unsharded, requires: [0]),
        ])
        #expect(commit.epochs.count == 255, "an account has rows in all shards")
        let lost = StoreError.epochLost(Shard(6))
        #expect(try store.commit(commit.groups, by: commit.epochs) == [lost, nil, lost, nil, lost])
        #expect(try store.deliveries(of: bob).map(\.sequence) == [256 + 5])
    }

    @Test func anUndividedStoreRefusesNothing() throws {
        let store = InMemoryStore(.single)
        #expect(try !isRefused([delivery(6), .forgetAccount(alice)], in: .shard(.only), by: store))
    }
}
