import Foundation
import PeerKit
import StoreConformance
import StorePort
import Synchronization
import TestKit
import TestThreads
import Testing

@testable import PostgresStore

/// What a database does to its clients, with a real one. Nothing that was acknowledged is lost, and the gateway goes on.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct FailureTests {
    private func expectStored(_ steps: [UInt64], _ store: PostgresStore) throws {
        for step in steps { #expect(try Steps.isStored(step, store), "step \(step) was acknowledged, and is lost") }
    }

    /// It ends without writing anything more, as `pg_ctl stop -m immediate` and a power failure do.
    @Test func theDatabaseStopsAtOnce() throws {
        let database = try Database()
        let store = try Place().open(database.address())
        let traffic = Traffic(store)
        for _ in 0..<2 {
            try traffic.wait(for: 20)
            database.stop()
            try database.start()
        }
        try traffic.wait(for: 20)
        try expectStored(traffic.stop(), store)
        #expect(try store.settle() == nil)
    }

    /// The gateway finds the new primary by the second host of its address, and the witness has no objection.
    @Test func aSynchronousStandbyIsPromoted() throws {
        let primary = try Database()
        let standby = try Database(copyOf: primary, isStandby: true)
        try primary.set("synchronous_standby_names", "*")
        try eventually("the standby is synchronous") {
            try primary.number("SELECT count(*)::int8 FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
        }
        let store = try Place().open(primary.address(or: standby))
        let traffic = Traffic(store)
        try traffic.wait(for: 20)
        primary.stop()
        try standby.promote()
        try traffic.wait(for: 20)
        try expectStored(traffic.stop(), store)
        #expect(try standby.number("SELECT count(*)::int8 FROM pawl.gateway") == 1)
    }

    /// The first host gives no answer: the second one is reached in the time of a beat, and is tried first from then on.
    @Test func theFirstHostIsSilent() throws {
        let silent = try SilentServer()
        let database = try Database()
        let link = Link(try silent.address(or: database), name: "a test", check: { (_, _) throws(StoreError) in })
        func exchange() -> Int64? {
            try? link.exchange(
                "SELECT 7::int8", [], timeout: ClusterStatements.beatTimeout,
                connectTimeout: ClusterStatements.connectTimeout
            ) { $0.number(0, 0) }.get()
        }
        try eventually("an answer of the second host") { exchange() == 7 }
        let tried = silent.connections()
        #expect(tried > 0)
        for _ in 0..<2 {
            link.close()
            #expect(exchange() == 7)
        }
        #expect(silent.connections() == tried)
        // The writer, and the beat of a gateway.
        let store = try Place().open(silent.address(or: database))
        guard case .done(let results) = Steps.commit(1, store) else {
            Issue.record("no commit")
            return
        }
        #expect(results == [nil])
        try eventually("it is fresh") { store.membership.isFresh }
        // A host that is tried first and has no power is left for the other one, wherever it stands.
        var first = 1
        let turned = try StoreAddress("postgresql://pawl@127.0.0.1:\(database.port),127.0.0.1:\(silent.port)/postgres")
        _ = try Connection.open(turned, name: "a test", timeout: 4000, first: &first)
        #expect(first == 0)
    }

    /// A gateway that drains and whose database is away does not wait for it as long as one that serves.
    @Test func aDrainingGatewayHasLessTime() throws {
        let database = try Database()
        let store = try Place().open(database.address())
        store.membership.drain()
        let silent = try SilentServer()
        let address = try StoreAddress("postgresql://pawl@127.0.0.1:\(silent.port)/postgres")
        let link = Link(address, name: "a test", check: { (_, _) throws(StoreError) in })
        link.hasten()
        for (link, isSilent) in [(link, true), (store.writer, false)] {
            do throws(StoreError) {
                try link.read("SELECT 1") { _ in }
                #expect(!isSilent)
            } catch {
                #expect(isSilent && error.message.contains("within 2 s"), "\(error)")
            }
            #expect(link.connectionTime == ClusterStatements.connectTimeout)
        }
    }

    /// The role has no connection left for the writer. The beat keeps its own.
    @Test func tooManyConnections() throws {
        let database = try Database()
        try database.execute("CREATE ROLE gate LOGIN; GRANT CREATE ON DATABASE postgres TO gate")
        let store = try Place().open(
            StoreAddress("postgresql://gate@127.0.0.1:\(database.port)/postgres"))
        guard case .done = Steps.commit(1, store) else {
            Issue.record("the first commit failed")
            return
        }
        try database.execute("ALTER ROLE gate CONNECTION LIMIT 1")
        store.writer.close()
        guard case .failed(let error) = Steps.commit(2, store) else {
            Issue.record("a commit without a connection did not fail")
            return
        }
        #expect(error.code == "store-unavailable" && error.message.contains("too many connections"), "\(error)")
        func beat() throws -> Int64 { try database.number("SELECT max(beat) FROM pawl.gateway") }
        let before = try beat()
        try eventually("the beat rises") { try beat() > before }
        try database.execute("ALTER ROLE gate CONNECTION LIMIT 3")
        guard case .done(let results) = Steps.commit(2, store) else {
            Issue.record("no commit follows")
            return
        }
        #expect(results == [nil])
    }

    /// What the server refuses has not happened. What another transaction has caused is repeated.
    @Test func errorsByCode() throws {
        let database = try Database()
        let store = try Place().open(database.address())
        try database.execute(
            """
            CREATE TABLE trouble (code text); CREATE SEQUENCE tries;
            CREATE FUNCTION make_trouble() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    IF EXISTS (SELECT 1 FROM trouble) AND nextval('tries') % 3 <> 0 THEN
                        RAISE EXCEPTION 'trouble' USING ERRCODE = (SELECT code FROM trouble);
                    END IF;
                    RETURN NEW;
                END $$;
            CREATE TRIGGER trouble BEFORE INSERT ON pawl.queue_request FOR EACH ROW EXECUTE FUNCTION make_trouble()
            """)
        var step: UInt64 = 0
        let codes = [("40001", true), ("40P01", true), ("57014", false), ("53300", false), ("25006", false)]
        for (code, isRepeated) in codes {
            try database.execute(
                "DELETE FROM trouble; INSERT INTO trouble VALUES ('\(code)'); SELECT setval('tries', 3)")
            step += 1
            switch Steps.commit(step, store) {
            case .done(let results): #expect(isRepeated && results == [nil], "\(code): \(results)")
            case .failed(let error):
                #expect(!isRepeated && error.code == "store-unavailable" && error.message.contains(code), "\(error)")
            case .unknown(let error): Issue.record("\(code): \(error)")
            }
            #expect(try Steps.isStored(step, store) == isRepeated, "\(code)")
            try database.execute("DELETE FROM trouble")
            guard case .done(let results) = Steps.commit(step + 1, store), results == [nil] else {
                Issue.record("no commit follows \(code)")
                return
            }
            step += 1
        }
        // Nobody has written a step twice.
        let commits = try database.number("SELECT commits FROM pawl.shard WHERE id = 0")
        #expect(store.state.withLock { $0.commits[.only] } == commits)
    }

    /// The log has no room: PostgreSQL ends itself. With room it starts again, and has all that was acknowledged.
    @Test(.enabled(if: SmallFileSystem.obstacle == nil, "no right to make a small file system"))
    func theDiskIsFull() throws {
        let small = try SmallFileSystem(megabytes: 40)
        let database = try Database(log: small.path)
        let store = try Place().open(database.address())
        let traffic = Traffic(store)
        try traffic.wait(for: 5)
        try small.fill()
        // What is written now needs new segments of the log.
        try eventually("the database ends, or refuses") {
            _ = try? database.execute(
                """
                CREATE TABLE IF NOT EXISTS filler (t text);
                INSERT INTO filler SELECT repeat('x', 900) FROM generate_series(1, 20000)
                """)
            return !database.isRunning || (try? database.execute("SELECT 1")) == nil
        }
        small.empty()
        try eventually("the database runs again") {
            if !database.isRunning { try database.start() }
            return (try? database.execute("SELECT 1")) != nil
        }
        try traffic.wait(for: 5)
        try expectStored(traffic.stop(), store)
    }
}
