// Requests of IRC. Changes of the queue machine are committed in one transaction with the ratchet states that sealed or
// opened the messages. The queue dispatches a request to a connection of its sender, which paces itself, does not send
// held requests, and reports the outcome.
//
// The machine is that of the library for applications, which drive it with a thread and a file of its own. Here its
// tables are in the store, and each change is in the transaction of the ratchet step that caused it.
//
// A newly sealed message is sent by the connection that submitted it. Requests that a connection returned when it ended
// or logged out, and requests of an earlier process, are sent only by the connection that asks for them after its
// login:
// other connections may be in other rooms and under another nick. A request that a connection has not begun has had no
// attempt. An echo, a PONG or an opening in the same vault completes a message, so the machine accepts completions from
// other sources than the sending connection.

import CommitLoop
import Envelope
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCParticipants {
    /// Ours: how long finished requests stay visible, in milliseconds, and how many at most; the same for the backend's
    /// ids of messages.
    private static var kept: (time: Int64, rows: Int) { (3_600_000, 50_000) }

    /// Ours: for how many recipients a sender is notified of expired messages.
    private static var expiredNames: Int { 100 }

    /// Settings without pauses, breaker and bounds on requests in flight, because connections have their own.
    static func queueSettings(requestAge: Int64) -> QueueMachine.Settings {
        var settings = QueueMachine.Settings()
        settings.isCarried = true
        // `pendingLimit` is checked before a ratchet steps; control messages with keys are accepted with their
        // message.
        settings.limits.requestsPerTenant = .max
        (settings.limits.bytesPerTenant, settings.limits.bytes, settings.limits.requests) = (.max, .max, .max)
        (settings.limits.inFlight, settings.limits.inFlightPerHost) = (.max, .max)
        (settings.limits.inFlightPerTenant, settings.limits.inFlightPerLane) = (.max, .max)
        settings.limits.lookahead = .max
        settings.limits.age = requestAge
        (settings.limits.retention, settings.limits.finished) = kept
        // The sender has been notified, and the recipient's session will soon not open the message any more.
        (settings.limits.deadRetention, settings.limits.deadLetters) = kept
        settings.limits.mappings = kept.rows
        return settings
    }

    /// Takes over the requests of an earlier process. Requests of or to an account without a login are given up.
    ///
    /// - Returns: accounts without a login, which have ended with their connections.
    mutating func adoptRequests(_ now: Timestamp) throws(StoreError) -> Set<AccountID> {
        queue.restore(try vault.store.queueContents(), now: now.queueTime)
        requestIDs = IDSequence(vault.sharding, after: max(requestIDs.highest, queue.highestID))
        var ended: Set<AccountID> = []
        for request in queue.requests {
            let account = AccountID(text: request.tenant)
            if !account.isVerified { ended.insert(account) }
            guard !account.isVerified || !AccountID(text: request.lane ?? "").isVerified else { continue }
            giveUp(request.id, Notices.connectionEnded, now)
        }
        return ended
    }

    /// Publishes the counts of the committed queue in the ledger.
    func publishCounts() { outbox.counters.publish(RequestCounts(queue.counts, waiting: queue.depth)) }

    /// Runs the queue's turn. The sender of an expired request is notified after the next login.
    mutating func turnQueue(_ now: Timestamp) -> QueueBatch {
        let batch = queue.turn(now: now.queueTime)
        for row in batch.expired {
            let account = AccountID(text: row.tenant)
            guard account.isVerified, let request = Request(row), !isControlMessage(request) else { continue }
            unreadCounts.note(request)
            let target = ExactText(request.target)
            let counts = expired[account] ?? [:]
            guard counts.count < Self.expiredNames || counts[target] != nil else { continue }
            expired[account, default: [:]][target, default: 0] += 1
        }
        return batch
    }

    /// Whether a request is a sidecar's control message, such as one with the key of a room.
    private func isControlMessage(_ request: Request) -> Bool {
        isSidecar && request.verb == "NOTICE" && !request.isForRoom
    }

    /// Notifies a connection that has come back of the account's messages that have expired.
    mutating func notifyExpired(_ account: AccountID, _ connection: ConnectionID, _ replies: inout Replies) {
        guard let counts = expired.removeValue(forKey: account) else { return }
        for (target, count) in counts.sorted(by: { $0.key < $1.key }) {
            replies.append(AddressedReply(connection: connection, reply: .expired(target: target.text, count: count)))
        }
    }

    // MARK: Dispatching

    /// Groups dispatched requests by account, without newly sealed ones, which their connection has already.
    func waiting(_ dispatches: [QueueBatch.Dispatch]) -> [AccountID: [QueueBatch.Dispatch]] {
        Dictionary(grouping: dispatches.filter { inFlight[$0.id] == nil }) { AccountID(text: $0.request.tenant) }
    }

    /// The dispatched requests of an account, which the connection sends from now on.
    mutating func takeDispatched(to connection: ConnectionID, _ account: AccountID, _ now: Timestamp) -> [Request] {
        var requests: [Request] = []
        for dispatch in dispatched.removeValue(forKey: account) ?? [] {
            // It may have ended during the commit: its recipient has opened it.
            guard queue.request(dispatch.request.token) != nil else { continue }
            guard let request = Request(dispatch.request) else {
                giveUp(dispatch.id, "Its bytes are not those of a message.", now)
                continue
            }
            track(request.id, InFlight(connection: connection, account: account, request: request))
            requests.append(request)
        }
        return requests
    }

    /// Returns the dispatched requests that no connection has taken; the next one that asks gets them.
    mutating func giveBackDispatched(_ now: Timestamp) {
        for dispatch in dispatched.values.joined() {
            queue.giveBack(dispatch.request.token, isBegun: false, cause: "", now: now.queueTime)
        }
        dispatched = [:]
    }

    // MARK: Ends

    /// Ends a request as failed.
    @discardableResult
    mutating func giveUp(_ id: UInt64, _ reason: String, _ now: Timestamp) -> QueuedRequest? {
        queue.conclude(Request.token(id), RequestOutcome(.failure(status: nil), cause: reason), now: now.queueTime)
    }

    /// Ends a request as done.
    ///
    /// - Parameter cause: a text to store with the finished request.
    mutating func complete(_ id: UInt64, remoteID: String? = nil, cause: String? = nil, _ now: Timestamp) {
        let names = remoteID.map { EntityIdentifier.both(type: Request.message, local: "\(id)", remote: $0) }
        queue.conclude(
            Request.token(id), RequestOutcome(.success(status: 0), cause: cause),
            identifiers: names.map { [$0] } ?? [], now: now.queueTime)
    }
}
