// One suite that every driver of the port passes. Each check gets a closure that makes an empty store.

import Envelope
import Protection
import RequestQueue
package import StorePort
import Synchronization
import Testing

/// What every ``Store`` does.
package enum StoreConformance {
    /// Makes an empty store.
    package typealias Make = () throws -> any Store

    /// A check with a name for people.
    package struct Check: Sendable, CustomTestStringConvertible {
        package let name: String
        package let run: @Sendable (Make) throws -> Void

        package var testDescription: String { name }
    }

    /// All of it, for a parameterized test.
    package static let checks = groupChecks + rowChecks

    /// The kinds of changes that the checks do not commit.
    ///
    /// - Parameter make: makes an empty store.
    package static func uncheckedChanges(_ make: @escaping Make) throws -> Set<ChangeKind> {
        let kinds = Mutex(Set<ChangeKind>())
        for check in checks {
            try check.run {
                RecordingStore(try make()) { changes in
                    kinds.withLock { kinds in kinds.formUnion(changes.map { ChangeKind($0) }) }
                }
            }
        }
        return Set(ChangeKind.allCases).subtracting(kinds.withLock { $0 })
    }

    // MARK: Rows

    package static func session(_ owner: UInt64, _ peer: UInt64, fence: UInt64, _ state: [UInt8] = [7]) -> SessionRow {
        let id = SessionID(owner: DeviceID(owner), peer: DeviceID(peer), in: .only)
        return SessionRow(id: id, fence: fence, sealedState: state)
    }

    package static func request(_ id: UInt64, _ account: String = "alice", peer: String = "bob") -> Request {
        Request(
            id: id, account: account, peer: peer, target: "Bob", verb: "PRIVMSG", bodies: [[1, 2], [], [3]],
            acceptedAt: 1000 + Int64(id))
    }

    package static func delivery(_ sequence: UInt64, _ account: String = "bob") -> DeliveryRow {
        DeliveryRow(
            sequence: sequence, account: AccountID(text: account), sealedLine: [UInt8(truncatingIfNeeded: sequence)])
    }

    package static func device(_ id: UInt64, _ account: String) -> DeviceRow {
        DeviceRow(id: DeviceID(id), account: AccountID(text: account), sealedIdentity: [1, 2, 3], createdAt: 5)
    }

    package static func conversation(_ one: String, _ other: String, since: Int64 = 1) -> ConversationRow {
        ConversationRow(
            id: ConversationID(AccountID(text: one), AccountID(text: other)), latch: .gateway, since: since,
            peerNameForFirst: other, peerNameForSecond: one)
    }

    /// Commits groups that must all succeed.
    package static func commit(_ store: any Store, _ groups: [StoreChange]...) throws {
        #expect(try store.commit(groups) == groups.map { _ in nil })
    }
}

/// A store that hands on what is committed.
private final class RecordingStore: ForwardingStore {
    let store: any Store
    private let record: @Sendable ([StoreChange]) -> Void

    init(_ store: any Store, _ record: @escaping @Sendable ([StoreChange]) -> Void) {
        (self.store, self.record) = (store, record)
    }

    func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        record(groups.flatMap(\.changes))
        return try store.commit(groups, by: epochs)
    }
}
