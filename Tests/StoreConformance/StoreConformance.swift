// One suite that every driver of the port passes. Each check gets a closure that makes an empty store.

import Envelope
import Protection
import RequestQueue
package import StorePort
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
    package static let checks: [Check] = [
        Check(name: "what is committed is read back", run: readsBack),
        Check(name: "a group fails alone", run: groupFailsAlone),
        Check(name: "a group fails with one that it requires", run: requiredGroup),
        Check(name: "a fence lets a session move forwards only", run: fence),
        Check(name: "one session many times in one batch", run: repeatedSession),
        Check(name: "a failed group's session does not count", run: failedGroupsSession),
        Check(name: "sessions go in the middle of a batch", run: removalInsideBatch),
        Check(name: "the life of a request", run: requestLife),
        Check(name: "ids are not used again", run: highestIDs),
        Check(name: "deliveries come in order and go", run: deliveries),
        Check(name: "an account is forgotten", run: forgottenAccount),
        Check(name: "evidence, observations and tallies add up", run: sums),
        Check(name: "policies and conversations", run: policies),
        Check(name: "records", run: records),
        Check(name: "names", run: names),
        Check(name: "keys of messages come and go", run: contentKeys),
        Check(name: "the audit log keeps its order", run: audit),
        Check(name: "text and bytes of every kind", run: oddValues),
    ]

    // MARK: Rows

    package static func session(_ owner: UInt64, _ peer: UInt64, fence: UInt64, _ state: [UInt8] = [7]) -> SessionRow {
        SessionRow(id: SessionID(owner: DeviceID(owner), peer: DeviceID(peer)), fence: fence, sealedState: state)
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
