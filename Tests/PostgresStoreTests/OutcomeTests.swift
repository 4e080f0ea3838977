import Foundation
import PeerKit
import RequestQueue
import StoreConformance
import StorePort
import Synchronization
import TestKit
import TestThreads
import Testing

@testable import PostgresStore

/// The three outcomes of a commit. One that is unknown is settled by raising the epochs first, and then reading what
/// there is.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct OutcomeTests {
    private static let id = StoreConformance.session(1, 2, fence: 0).id

    /// A step: a session and a request that belong together, and a mark that no other bytes show.
    private static func step(_ number: UInt64) -> ChangeGroup {
        let mark = Array("MARK-\(number)-".utf8)
        return ChangeGroup(
            [
                .putSession(StoreConformance.session(1, 2, fence: number, mark)),
                .insert(StoreConformance.request(number * 256)),
            ], in: .shard(.only))
    }

    /// Commits a step by the epochs of the store.
    private static func outcome(_ store: PostgresStore, _ number: UInt64) throws -> CommitOutcome {
        let epoch = try #require(try store.load().epochs.first)
        return store.outcome(of: PreparedCommit([step(number)], by: [epoch]))
    }

    /// Whether a step is stored, whole.
    private static func isStored(_ store: PostgresStore, _ number: UInt64) throws -> Bool {
        let fence = try store.session(id)?.fence
        let request = try store.request(number * 256)
        #expect((fence == number) == (request != nil), "step \(number) is stored in part")
        return request != nil
    }

    /// The connection is cut at places of a commit and of its answer. Whatever is told is true, and the next step follows.
    @Test func cutInsideACommit() throws {
        let database = try Database()
        let tap = try WireTap(backend: database.port)
        let store = try Place().open(database.address(port: tap.port))
        var number: UInt64 = 0
        func next() -> UInt64 {
            number += 1
            return number
        }
        /// Commits a step over a connection of its own, with nothing else: the epochs are known here.
        func commit(_ step: UInt64) -> CommitOutcome {
            let epochs = store.state.withLock { Array($0.epochs.prefix(1)) }
            return store.outcome(of: PreparedCommit([Self.step(step)], by: epochs))
        }
        // How long a connection with one commit is.
        store.writer.close()
        let known = tap.recordings.count
        guard case .done = commit(next()) else {
            Issue.record("the first commit failed")
            return
        }
        var lengths: [(WireTap.Direction, Int)] = []
        try eventually("the bytes of the commit are recorded") {
            let recordings = tap.recordings.dropFirst(known)
            let recording = recordings.max { $0.fromClient.count < $1.fromClient.count }
            lengths = [WireTap.Direction.fromClient, .fromServer].map { ($0, recording?.bytes($0).count ?? 0) }
            return lengths.allSatisfy { $0.1 > 300 }
        }
        var (unknown, committed) = (0, 0)
        for (direction, length) in lengths {
            // The beginning is the start of the connection.
            for place in 1...16 {
                store.writer.close()
                // What the server sends before is what the gateway asks of a new connection.
                let start = direction == .fromServer ? length - 96 : length / 4
                tap.resetAfter(start + (length - start) * place / 16 - 1, of: direction)
                let step = next()
                let outcome = commit(step)
                tap.resetAfter(nil, of: direction)
                store.writer.close()
                switch outcome {
                case .done(let results):
                    #expect(results == [nil])
                    #expect(try Self.isStored(store, step))
                case .failed:
                    #expect(try !Self.isStored(store, step))
                case .unknown:
                    unknown += 1
                    #expect(throws: StoreError.self) { try store.load() }
                    let settled: Bool? = try store.settle()
                    let isCommitted = try #require(settled as Bool?)
                    #expect(try Self.isStored(store, step) == isCommitted)
                    if isCommitted { committed += 1 }
                }
                guard case .done(let results) = try Self.outcome(store, next()) else {
                    Issue.record("no commit follows a cut at \(place) of \(direction)")
                    return
                }
                #expect(results == [nil])
            }
        }
        #expect(unknown >= 4 && committed >= 1, "\(unknown) unknown, \(committed) of them committed")
        #expect(try store.settle() == nil)
    }

    /// A commit waits for a standby that is not there. Its wait is cancelled: the server tells success with a warning.
    @Test(arguments: ["pg_cancel_backend", "pg_terminate_backend"])
    func waitForAStandby(_ function: String) throws {
        let database = try Database()
        let store = try Place().open(database.address())
        guard case .done = try Self.outcome(store, 1) else {
            Issue.record("the first commit failed")
            return
        }
        try database.set("synchronous_standby_names", "nowhere")
        let ended = Mutex<CommitOutcome?>(nil)
        Thread.detachNewThread {
            let outcome = try? Self.outcome(store, 2)
            ended.withLock { $0 = outcome ?? .failed(.fenced) }
        }
        try eventually("the end of a wait for a standby") {
            try database.execute(
                """
                SELECT \(function)(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'WITH %'
                """)
            return ended.withLock { $0 != nil }
        }
        guard case .unknown = ended.withLock({ $0 }) else {
            Issue.record("\(String(describing: ended.withLock { $0 }))")
            return
        }
        // Nothing else is committed until that is settled.
        #expect(throws: StoreError.self) { try store.commit([Self.step(3)], by: []) }
        try database.set("synchronous_standby_names", nil)
        #expect(try store.settle() == true)
        #expect(try Self.isStored(store, 2))
        guard case .done = try Self.outcome(store, 3) else {
            Issue.record("no commit follows")
            return
        }
    }

    /// The database stops at once and starts again: what was acknowledged is there, and the gateway goes on.
    @Test func backendsAreEnded() throws {
        let database = try Database()
        let store = try Place().open(database.address())
        for number in 1...3 as ClosedRange<UInt64> {
            try database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pawl %'")
            switch try Self.outcome(store, number) {
            case .done: break
            case .unknown: _ = try store.settle()
            case .failed(let error): Issue.record("\(error)")
            }
            #expect(try Self.isStored(store, number))
        }
    }
}
