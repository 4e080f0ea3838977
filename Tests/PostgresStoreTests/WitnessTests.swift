import Foundation
import PeerKit
import RequestQueue
import StoreConformance
import StorePort
import TestKit
import TestThreads
import Testing

@testable import PostgresStore
@testable import StoreBase

/// A database that knows less than the gateway has been told is refused, until an operator accepts it.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct WitnessTests {
    private func commit(_ steps: ClosedRange<UInt64>, _ store: PostgresStore) {
        for step in steps {
            guard case .done(let results) = Steps.commit(step, store), results == [nil] else {
                Issue.record("step \(step)")
                return
            }
        }
    }

    private func accept(_ address: StoreAddress, _ place: Place) throws {
        try DatabaseRollback.accept(
            address, directory: place.data, key: .file(place.key), actor: "operator", now: 1_700_000_000_000)
    }

    @Test func aBaseCopyThatWasRestored() throws {
        let database = try Database()
        let place = try Place()
        var store: PostgresStore? = try place.open(database.address())
        commit(1...3, try #require(store))
        let copy = try Database(copyOf: database)
        // Rows of no shard count too.
        let device = ChangeGroup([.putDevice(StoreConformance.device(2, "alice"))], in: .unsharded)
        #expect(try store?.commit([device], by: []) == [nil])
        commit(4...5, try #require(store))
        store = nil
        let refusal = place.refusal(try copy.address())
        #expect(refusal?.code == "store-rolled-back", "\(String(describing: refusal))")
        #expect(refusal?.message.contains("pawl restore --accept-rollback --database") == true)
        #expect(try copy.number("SELECT count(*)::int8 FROM pawl.session") == 1)
        // The newest one is as good as before.
        store = try place.open(database.address())
        #expect(try store.map { try Steps.isStored(5, $0) } == true)
        store = nil
        #expect(
            throws: StoreError.nothingToAccept(place.data), performing: { try accept(database.address(), place) })
        try accept(copy.address(), place)
        let accepted = try place.open(copy.address())
        #expect(try accepted.session(Steps.id) == nil)
        #expect(try accepted.request(256)?.state == .dead)
        #expect(try accepted.auditLog(limit: 10).map(\.action) == ["store.rollback_accepted"])
        #expect(try accepted.queueContents().highest > 3 * 256 + StoreLimits.idGap - 1)
        commit(1_000_000_000...1_000_000_000, accepted)
    }

    /// What was acknowledged and is only on the machine that fails is lost. The running gateway notices it.
    @Test func anAsynchronousStandbyThatWasBehind() throws {
        let primary = try Database()
        let standby = try Database(copyOf: primary, isStandby: true)
        let place = try Place()
        var store: PostgresStore? = try place.open(primary.address(or: standby))
        commit(1...3, try #require(store))
        let last = try primary.number("SELECT (pg_current_wal_lsn() - '0/0')::int8")
        try eventually("the standby has the first steps") {
            try standby.number(
                "SELECT CASE WHEN pg_last_wal_replay_lsn() - '0/0' >= \(last) THEN 1 ELSE 0 END::int8",
                anyServer: true) == 1
        }
        standby.stop()
        commit(4...6, try #require(store))
        primary.stop()
        try standby.start()
        try standby.promote()
        try eventually("the gateway refuses the new primary") {
            guard let store else { return false }
            switch Steps.commit(7, store) {
            case .failed(.rolledBack): return true
            case .done, .failed: return false
            // It has not noticed the end of the connection before it has sent the commit.
            case .unknown:
                do { _ = try store.settle() } catch { return (error as? StoreError)?.code == "store-rolled-back" }
                return false
            }
        }
        #expect(throws: StoreError.self) { try store?.session(Steps.id) }
        store = nil
        #expect(place.refusal(try primary.address(or: standby))?.code == "store-rolled-back")
        try accept(primary.address(or: standby), place)
        let accepted = try place.open(primary.address(or: standby))
        #expect(try accepted.session(Steps.id) == nil)
        commit(100...100, accepted)
    }

    /// Through a pooler the server may change without a reconnect: the commit's own condition fails.
    @Test func aCommitNoticesLowerNumbers() throws {
        let database = try Database()
        let place = try Place()
        let store = try place.open(database.address())
        commit(1...3, store)
        try database.execute("UPDATE pawl.shard SET commits = commits - 1 WHERE id = 0")
        guard case .failed(.rolledBack) = Steps.commit(4, store) else {
            Issue.record("the commit was not refused")
            return
        }
        #expect(try database.number("SELECT max(fence) FROM pawl.session") == 3)
    }

    /// A file that is damaged or missing, and a directory that has none of its own.
    @Test func theFile() throws {
        let database = try Database()
        let place = try Place()
        var store: PostgresStore? = try place.open(database.address())
        commit(1...2, try #require(store))
        let path = Witness.path(place.data)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)).count == Witness.size)
        #expect(Witness.size < 4200)
        let known = store?.witness.knowledge
        #expect(known?.shards[0].commits == 2 && known?.shards[255].epoch == 1)
        store = nil
        try Data("x".utf8).write(to: URL(fileURLWithPath: path))
        #expect(place.refusal(try database.address())?.code == "store-damaged")
        try accept(database.address(), place)
        commit(100...100, try place.open(database.address()))
        try FileManager.default.removeItem(atPath: path)
        commit(101...101, try place.open(database.address()))
    }
}
