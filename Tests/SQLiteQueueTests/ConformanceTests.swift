import QueueConformance
import RequestQueue
import Testing

@testable import SQLiteQueue

@Suite struct ConformanceTests {
    @Test(arguments: QueueConformance.checks)
    func memory(_ check: QueueConformance.Check) throws { try check.run(.memory()) }

    @Test(arguments: QueueConformance.checks)
    func sqlite(_ check: QueueConformance.Check) throws { try check.run(QueuePlace().subject) }

    /// Ten thousand changes, those included that no queue would make, and a new process now and then.
    @Test(arguments: [1, 2] as [UInt64])
    func theTwinAndTheDriverAgree(_ seed: UInt64) throws {
        let place = try QueuePlace()
        let twin = InMemoryQueueStore()
        var driver: SQLiteQueueStore? = try place.open()
        var changes = RandomChanges(seed: seed)
        var (count, batches) = (0, 0)
        while count < 10_000 {
            let batch = changes.batch()
            try twin.commit(batch)
            try driver?.commit(batch)
            count += batch.count
            batches += 1
            if changes.number(0...30) == 0, let row = try twin.load().requests.randomElement(using: &changes.random) {
                twin.damage(row.token)
                try driver?.execute("UPDATE queue_request SET form = x'01' WHERE id = \(row.id)")
            }
            guard batches % 50 == 0 else { continue }
            driver = nil
            let opened = try place.open()
            driver = opened
            try QueueConformance.expectEqual(twin, opened, "seed \(seed), batch \(batches)")
        }
        let finished = try #require(try driver?.load().finished.count)
        #expect(finished > 20)
    }

    /// Whatever is asked while requests come and go, no table is read from one end to the other.
    @Test(arguments: [
        QueueReader.byToken, QueueReader.one, QueueReader.response, QueueReader.highest, QueueStatement.finish.sql,
        QueueStatement.requeue.sql, QueueStatement.lease.sql, QueueStatement.pruneRequests.sql,
        QueueStatement.pruneResponses.sql, QueueStatement.pruneProgress.sql, QueueStatement.pruneMappings.sql,
        QueueStatement.raiseHighest.sql,
    ])
    func nothingIsScanned(_ sql: String) throws {
        let place = try QueuePlace()
        let store = try place.open()
        let plan = try store.plan(sql.replacing(#/\?\d/#, with: "1"))
        // The table of one row, and what a query has made itself.
        let scans = plan.filter { $0.hasPrefix("SCAN") }
            .filter { !["SCAN queue_meta", "SCAN part", "SCAN CONSTANT ROW"].contains($0) }
        #expect(scans.isEmpty, "\(plan)")
        #expect(!plan.contains { $0.contains("TEMP B-TREE") }, "\(plan)")
    }

    /// Who starts, or wants a report, reads the small table in its order, and sorts nothing.
    @Test(arguments: [
        QueueReader.live, QueueReader.finished, QueueReader.report, QueueReader.waiting, QueueReader.underWay,
    ])
    func onlyTheSmallTableIsScanned(_ sql: String) throws {
        let place = try QueuePlace()
        let plan = try place.open().plan(sql.replacing(#/\?\d/#, with: "1"))
        #expect(plan.allSatisfy { $0 == "SCAN p" || $0.hasPrefix("SEARCH") || $0.hasPrefix("CORRELATED") }, "\(plan)")
    }
}
