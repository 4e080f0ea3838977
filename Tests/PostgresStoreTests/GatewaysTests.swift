import Foundation
import Ownership
import PeerKit
import StoreBase
import StoreConformance
import StorePort
import Synchronization
import TestKit
import TestThreads
import Testing

@testable import PostgresStore

/// Several gateways on one database, in one process: one owns the shards, the others stand by.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct GatewaysTests {
    /// A gateway's directory with the key of another one.
    private static func place(like other: Place) throws -> Place {
        let place = try Place()
        try FileManager.default.createDirectory(atPath: place.data, withIntermediateDirectories: true)
        try FileManager.default.copyItem(atPath: other.key, toPath: place.key)
        return place
    }

    private static func join(_ database: Database, _ place: Place, _ name: String) throws -> Membership {
        try Membership.join(
            database.address(), directory: place.data, key: .file(place.key), name: name, program: "pawl test")
    }

    /// What a gateway was told.
    private final class Calls: Sendable {
        let asked = Mutex(0)
        let endings = Mutex<[String]>([])

        init(_ membership: Membership) {
            var watch = Membership.Watch()
            watch.asked = { [self] in asked.withLock { $0 += 1 } }
            watch.ended = { [self] ending in endings.withLock { $0.append(ending.error.code) } }
            membership.follow(watch)
        }
    }

    private static func states(_ membership: Membership) -> [String: GatewayEntry.State] {
        Dictionary(membership.gateways().map { ($0.name, $0.state) }) { one, _ in one }
    }

    private static func epochs(_ database: Database) throws -> Int64 {
        try database.number("SELECT sum(epoch)::int8 FROM pawl.shard")
    }

    /// A standby takes over from one that stops, and the third one goes on standing by.
    @Test func aStandbyTakesOver() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let store = try PostgresStore(first, StoreLimits())
        let others = try ["two", "three"].map { try Self.join(database, Self.place(like: place), $0) }
        for other in others {
            try eventually("it sees the first one's beat") {
                other.runningOwner == "one" && other.gateways().count == 3
            }
            #expect(
                Self.states(other) == ["one": .serving, "two": .standingBy, "three": .standingBy] && !other.isOwner)
            #expect(other.shardEntries().allSatisfy { $0.name == "one" && $0.epoch == 1 })
            // One that is not to stand by is refused.
            let strict = try Self.place(like: place)
            #expect(strict.refusal(try database.address())?.code == "store-locked")
        }
        guard case .done(let results) = Steps.commit(1, store) else {
            Issue.record("no commit")
            return
        }
        #expect(results == [nil] && first.isFresh)
        first.freeze()
        try eventually("one of them takes over") { others.contains(where: \.isOwner) }
        let (owners, waiting) = (others.filter(\.isOwner), others.filter { !$0.isOwner })
        let heir = try #require(owners.first)
        let rest = try #require(waiting.first)
        #expect(heir.takenHow?.from == "one")
        let later = try PostgresStore(heir, StoreLimits())
        // The heir has ended its connections.
        store.writer.close()
        #expect(throws: StoreError.epochLost(.only)) {
            try store.commit([Steps.group(2)], by: store.state.withLock { Array($0.epochs.prefix(1)) })
        }
        guard case .done(let more) = Steps.commit(2, later) else {
            Issue.record("the heir does not commit")
            return
        }
        #expect(try more == [nil] && Steps.isStored(1, later) && Steps.isStored(2, later))
        try eventually("the third one sees the second one") { rest.serving == heir.name && rest.gateways().count == 2 }
        #expect(!rest.isOwner)
        rest.leave()
    }

    /// A gateway that is asked to drain hands over without a suspicion, and one that stands by just leaves.
    @Test func aGatewayIsDrained() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let calls = Calls(first)
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        try eventually("the second one sees the first one") { second.runningOwner == "one" }
        let listed = second.gateways().filter { $0.name == "one" }
        let row = try #require(listed.first)
        // A row whose beat rises is not removed.
        #expect(try second.forget(row.id) == nil)
        #expect(try second.ask(row.id))
        try eventually("the first one reads it") { calls.asked.withLock { $0 } == 1 }
        first.drain()
        try eventually("others see it") { Self.states(second)["one"] == .draining }
        // It still has its shards, until its store is closed.
        guard case .done(let results) = Steps.commit(1, store) else {
            Issue.record("no commit while it drains")
            return
        }
        #expect(results == [nil] && !second.isOwner)
        store.leave()
        try eventually("the second one takes over") { second.isOwner }
        #expect(second.takenHow.map { $0.from == nil } == true)
        #expect(calls.endings.withLock { $0 }.isEmpty)
        #expect(try PostgresStore(second, StoreLimits()).request(256) != nil)
        try eventually("its row is removed") { try database.number("SELECT count(*)::int8 FROM pawl.gateway") <= 1 }
    }

    /// What a takeover reads of a table of any size is not read over the connection of the beat.
    @Test func aTakeoverReadsWhileTheBeatGoesOn() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        try eventually("the second one sees the first one") { second.runningOwner == "one" }
        let lock = try database.lock("pawl.queue_mapping, pawl.audit", "ACCESS EXCLUSIVE")
        store.leave()
        try eventually("the second one owns the shards") { second.isOwner }
        func beat() throws -> Int64 { try database.number("SELECT beat FROM pawl.gateway WHERE name = 'two'") }
        let before = try beat()
        try eventually("its beat rises") { try beat() >= before + 2 }
        try lock.end(commits: false, timeout: 60_000)
        #expect(try PostgresStore(second, StoreLimits()).load().epochs.count == Schema.shards)
    }

    /// A gateway that was stopped and runs again may not act on what it knew, and ends.
    @Test func aSilentGatewayRunsAgain() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let calls = Calls(first)
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        try eventually("the second one sees the first one") { second.runningOwner == "one" }
        // Its control connection is in use for so long.
        let isHeld = Mutex(true)
        let held = DispatchGroup()
        held.enter()
        Thread.detachNewThread {
            try? first.joining.control.use { (_) throws(StoreError) in
                while isHeld.withLock({ $0 }) { usleep(10_000) }
            }
            held.leave()
        }
        try eventually("the second one takes over") { second.isOwner }
        #expect(!first.isFresh)
        guard case .failed(.epochLost) = Steps.commit(1, store) else {
            Issue.record("it commits")
            return
        }
        isHeld.withLock { $0 = false }
        held.wait()
        try eventually("it learns it") { calls.endings.withLock { $0 } == ["store-locked"] }
        #expect(!first.isFresh && !first.isOwner)
        let heir = try PostgresStore(second, StoreLimits())
        guard case .done(let results) = Steps.commit(1, heir) else {
            Issue.record("the heir does not commit")
            return
        }
        #expect(results == [nil])
    }

    /// A gateway that beats again after it was suspected keeps the shards and its connections; without its row, or under the
    /// beat that was read, they are taken.
    @Test func aSuspectThatBeatsAgainIsNotTakenFrom() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let store = try PostgresStore(first, StoreLimits())
        guard case .done = Steps.commit(1, store) else {
            Issue.record("no commit")
            return
        }
        let backends =
            "SELECT count(*)::int8 FROM pg_stat_activity WHERE application_name = "
            + "'\(Joining.name(of: first.joining.gateway))'"
        let count = try database.number(backends)
        let link = Link(try database.address(), name: "a test", check: { (_, _) throws(StoreError) in })
        let taker = ClusterStatements(control: link, gateway: 7)
        try taker.join(name: "taker", program: "")
        let reading = try taker.read()
        let row = try #require(reading.gateway(first.joining.gateway))
        try eventually("it beats again") { try taker.read().gateway(row.id)?.beat ?? 0 > row.beat }
        let suspect = Suspect(id: GatewayID(row: row.id), beat: UInt64(bitPattern: row.beat))
        func outcome(_ suspect: Suspect) throws -> String {
            switch try taker.take(taker.read().shards.map(\.epoch), from: suspect) {
            case .success(let marks): "taken: \(marks.count)"
            case .failure(.refused(.divisionByZero, _)): "refused"
            case .failure(let failure): "\(failure)"
            }
        }
        #expect(try outcome(suspect) == "refused")
        // It has a row, so nothing is taken as from a gateway without one.
        #expect(try outcome(Suspect(id: suspect.id, beat: nil)) == "refused")
        #expect(try database.number(backends) == count && taker.read().gateway(row.id) != nil)
        guard case .done(let results) = Steps.commit(2, store) else {
            Issue.record("no commit after a refused take")
            return
        }
        #expect(results == [nil] && first.isOwner)
        first.freeze()
        let last = try #require(try taker.read().gateway(row.id)?.beat)
        #expect(try outcome(Suspect(id: suspect.id, beat: UInt64(bitPattern: last))) == "taken: 256")
        #expect(try database.number("SELECT count(*)::int8 FROM pawl.gateway") == 1)
        // The row is gone by now: what demands it is refused, and the next view has none.
        #expect(try outcome(Suspect(id: suspect.id, beat: UInt64(bitPattern: last))) == "refused")
        #expect(try outcome(Suspect(id: suspect.id, beat: nil)) == "taken: 256")
    }

    /// A reading that ends a gateway lets nothing pass that was held until then.
    @Test func theReadingOfALossMakesNobodyFresh() throws {
        let database = try Database()
        let first = try Self.join(database, Place(), "one")
        let store = try PostgresStore(first, StoreLimits())
        let opened = Mutex<[Bool]>([])
        let isEnded = Mutex(false)
        var watch = Membership.Watch()
        watch.fresh = { opened.withLock { $0.append(first.shardEntries().first?.owner == first.id) } }
        watch.ended = { _ in isEnded.withLock { $0 = true } }
        first.follow(watch)
        try eventually("it is fresh") { opened.withLock { !$0.isEmpty } }
        try database.execute("UPDATE pawl.shard SET owner = 7, epoch = epoch + 1")
        try eventually("it has read it, and ends") { isEnded.withLock { $0 } }
        #expect(!opened.withLock { $0.contains(false) } && !first.isFresh)
        store.leave()
    }

    /// A gateway that is asked to drain while it stands by takes nothing, although nobody owns the shards.
    @Test func anAskedStandbyTakesNothing() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        let calls = Calls(second)
        try eventually("the second one sees the first one") { second.runningOwner == "one" }
        #expect(try first.ask(second.id))
        try eventually("it reads it") { calls.asked.withLock { $0 } == 1 }
        try eventually("its row says it") {
            try database.number("SELECT draining FROM pawl.gateway WHERE name = 'two'") == 1
        }
        store.leave()
        func beat() throws -> Int64 { try database.number("SELECT beat FROM pawl.gateway WHERE name = 'two'") }
        let before = try beat()
        try eventually("it reads that nobody owns the shards, several times") {
            try beat() >= before + 3 && second.shardEntries().first?.epoch == 1
        }
        #expect(!second.isOwner && second.shardEntries().allSatisfy { $0.owner == nil })
        second.leave()
    }

    /// While the database is away nobody is suspected, and nobody is fresh. Afterwards all is as before.
    @Test func theDatabaseIsAway() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let calls = Calls(first)
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        try eventually("the second one sees the first one") { second.runningOwner == "one" }
        let epochs = try Self.epochs(database)
        database.stop()
        try eventually("it is not fresh any more") { !first.isFresh }
        // Longer than a suspicion takes.
        Thread.sleep(forTimeInterval: 3)
        #expect(!first.isFresh && !second.isOwner)
        try database.start()
        try eventually("it is fresh again") { first.isFresh }
        try eventually("the other one reads again") { second.isFresh }
        #expect(first.isOwner && !second.isOwner && calls.endings.withLock { $0 }.isEmpty)
        #expect(try Self.epochs(database) == epochs)
        try eventually("it commits") {
            if case .unknown = Steps.commit(1, store) { _ = try store.settle() }
            return try Steps.isStored(1, store)
        }
        second.leave()
    }

    /// A database of version 1 gets the columns of version 2, also while a program of version 1 runs on it.
    @Test func anEarlierVersion() throws {
        let database = try Database()
        let place = try Place()
        do { _ = try place.open(database.address()) }
        try database.execute(
            """
            ALTER TABLE pawl.gateway DROP COLUMN draining, DROP COLUMN asked, DROP COLUMN connections,
                DROP COLUMN program;
            ALTER TABLE pawl.cluster DROP COLUMN generation, DROP COLUMN rolled_back;
            UPDATE pawl.cluster SET version = 1;
            INSERT INTO pawl.gateway (id, name, beat, commits, knows) VALUES (7, 'of before', 1, 0, 1);
            UPDATE pawl.shard SET owner = 7
            """)
        let isRunning = Mutex(true)
        let ended = DispatchGroup()
        ended.enter()
        Thread.detachNewThread {
            while isRunning.withLock({ $0 }) {
                try? database.execute("UPDATE pawl.gateway SET beat = beat + 1 WHERE id = 7")
                usleep(100_000)
            }
            ended.leave()
        }
        let next = try Self.join(database, place, "next")
        #expect(try database.number("SELECT version FROM pawl.cluster") == 2)
        try eventually("it stands by") { next.runningOwner == "of before" }
        isRunning.withLock { $0 = false }
        ended.wait()
        try eventually("it takes over") { next.isOwner }
        let store = try PostgresStore(next, StoreLimits())
        #expect(try store.load().epochs.count == Schema.shards)
        next.leave()
        // What a program of version 1 says to these tables, this one says to newer ones.
        try database.execute("UPDATE pawl.cluster SET version = version + 1")
        #expect(try Self.place(like: place).refusal(try database.address())?.code == "store-too-new")
    }

    /// A gateway that finds the database rolled back stops all of them, until the operator accepts it.
    @Test func oneStopsAllAfterARollback() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let calls = Calls(first)
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        let others = Calls(second)
        try eventually("the second one sees the first one") { second.runningOwner == "one" }
        for step in 1...2 as ClosedRange<UInt64> {
            guard case .done = Steps.commit(step, store) else {
                Issue.record("no commit")
                return
            }
        }
        for gateway in [first, second] {
            try eventually("both commits are read") { gateway.shardEntries().first?.commits == 2 }
        }
        try database.execute("UPDATE pawl.shard SET commits = commits - 1 WHERE id = 0")
        for calls in [calls, others] {
            try eventually("it is stopped") { calls.endings.withLock { $0 } == ["store-rolled-back"] }
        }
        #expect(!first.isFresh && !second.isFresh)
        store.leave()
        second.leave()
        let next = try Self.place(like: place)
        #expect(next.refusal(try database.address())?.code == "store-rolled-back")
        try DatabaseRollback.accept(
            database.address(), directory: next.data, key: .file(next.key), actor: "operator", now: 1)
        #expect(try next.open(database.address()).load().epochs.count == Schema.shards)
    }

    /// The row of a gateway that stood by and was killed.
    @Test func aGatewayIsForgotten() throws {
        let database = try Database()
        let place = try Place()
        let first = try Self.join(database, place, "one")
        let store = try PostgresStore(first, StoreLimits())
        let second = try Self.join(database, Self.place(like: place), "two")
        let row = try database.number("SELECT id FROM pawl.gateway WHERE name = 'two'")
        second.freeze()
        try eventually("it is silent") { Self.states(first)["two"] == .silent }
        #expect(try first.forget(UInt64(bitPattern: row)) == true)
        #expect(try first.ask(UInt64(bitPattern: row)) == false)
        try eventually("it is not listed") { first.gateways().count == 1 }
        _ = store
    }
}
