// What the service and the admin commands need of a chat protocol's gateway. Each protocol implements it once; commands do
// not ask which protocol it is.

import DeviceDirectory
import Outbox
import Protection
import StorePort

/// One chat protocol's side of a running gateway.
protocol ChatFront: Sendable {
    /// Jobs that wait for the commit thread.
    var waitingJobs: Int { get }
    /// Hands over what time and reports bring: due work, and changes that need no answer.
    func tick(_ records: [StoreChange])
    func record(_ changes: [StoreChange])
    /// The latch of a conversation has been lowered in the store.
    func reset(_ conversation: ConversationID)
    /// Changes the directory; the changes are committed in the same order.
    func change(_ job: DirectoryJob, _ records: [StoreChange])
    /// Shows a notice to the people behind connections.
    func notify(_ connections: [ConnectionID], _ text: String)
    /// Refuses what the proofs of these connections allowed.
    func revokeProofs(of connections: [ConnectionID], _ reason: String)

    /// Carries out an act on queued messages, audits it, and waits until it is stored.
    ///
    /// - Returns: why it was not done; nil if it was.
    func carryOut(_ kind: RequestAct.Kind, on gateway: Gateway) async throws -> String?
    /// The ids of all dead requests.
    func deadRequests() throws -> [UInt64]
    /// Sends all dead requests again, and audits it.
    ///
    /// - Returns: how many wait again, and how many stay dead.
    func retryDead(on gateway: Gateway) async throws -> (retried: Int, refused: Int)
    /// Ends the pauses of waiting requests.
    ///
    /// - Returns: how many pauses there were.
    func endPauses() async throws -> Int
    /// Removes all dead requests, and audits it.
    ///
    /// - Returns: how many.
    func purgeDead(on gateway: Gateway) async throws -> Int

    /// Waits until all jobs are done.
    func drain() async throws
    func stop() async
}
