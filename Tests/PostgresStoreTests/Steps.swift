import Foundation
import PeerKit
import StoreConformance
import StorePort
import Synchronization
import TestKit

@testable import PostgresStore

/// Steps of one session, each with a request: what a message commits.
enum Steps {
    static let id = StoreConformance.session(2, 4, fence: 0).id

    static func group(_ number: UInt64) -> ChangeGroup {
        ChangeGroup(
            [
                .putSession(StoreConformance.session(2, 4, fence: number)),
                .insert(StoreConformance.request(number * 256)),
            ], in: .shard(.only))
    }

    /// Commits a step by the epochs of the store.
    static func commit(_ number: UInt64, _ store: PostgresStore) -> CommitOutcome {
        let epochs = store.state.withLock { Array($0.epochs.prefix(1)) }
        return store.outcome(of: PreparedCommit([group(number)], by: epochs))
    }

    static func isStored(_ number: UInt64, _ store: PostgresStore) throws -> Bool {
        try store.request(number * 256) != nil
    }
}

/// A gateway's commits, one after the other, on a thread of its own. What is unknown is settled before the next one.
final class Traffic: Sendable {
    private struct State {
        var acknowledged: [UInt64] = []
        var settled = 0
        var last: String?
        var isStopped = false
        var hasEnded = false
    }

    private let state = Mutex(State())

    init(_ store: PostgresStore) {
        Thread.detachNewThread { [self] in
            var number: UInt64 = 0
            while state.withLock({ !$0.isStopped }) {
                number += 1
                switch Steps.commit(number, store) {
                case .done(let results) where results == [nil]: state.withLock { $0.acknowledged.append(number) }
                case .done(let results): state.withLock { $0.last = "\(results)" }
                case .failed(let error):
                    state.withLock { $0.last = error.message }
                    usleep(20_000)
                case .unknown:
                    // The database may be away for a while.
                    while state.withLock({ !$0.isStopped }), (try? store.settle()) == nil { usleep(50_000) }
                    state.withLock { $0.settled += 1 }
                }
            }
            state.withLock { $0.hasEnded = true }
        }
    }

    var acknowledged: [UInt64] { state.withLock { $0.acknowledged } }

    func wait(for count: Int) throws {
        let before = acknowledged.count
        try eventually("\(count) more commits, after: \(state.withLock { $0.last ?? "" })") {
            acknowledged.count >= before + count
        }
    }

    /// - Returns: the steps that were acknowledged.
    func stop() throws -> [UInt64] {
        state.withLock { $0.isStopped = true }
        try eventually("the end of the traffic") { state.withLock { $0.hasEnded } }
        return acknowledged
    }
}
