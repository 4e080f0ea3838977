// The vault's requests: the queue's machine, whose changes are committed in the transaction that also has the ratchet states that
// sealed them or opened them. What the queue begins it hands to a connection of its sender, which paces itself, keeps back what an
// operator holds, and says what has become of it.
//
// One queue, driven in two places. A message to IRC is committed with the ratchet states that sealed it and completed
// with those that opened it, so the vault drives a machine of its own whose tables are in the vault's store. Writes to
// a JSON backend have a machine with a thread and a file (`WriteQueue` in `pawl`), which applications can use without a
// gateway.
//
// A newly sealed message goes to the connection that it came over. What a connection gave back when it ended or logged
// out, and what the process before left, goes to the connection that asks for it after its login and to no other, which
// may be in other rooms and under another nick. A request that a connection has not begun has had no attempt. An echo,
// a PONG or an opening in the same vault completes a message, so the machine accepts completions from elsewhere.

import CommitLoop
import Envelope
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCParticipants {
    /// Ours: how long finished requests stay visible, in milliseconds, and how many at most; the same for what the backend calls
    /// messages.
    private static var kept: (time: Int64, rows: Int) { (3_600_000, 50_000) }

    /// Ours: names of recipients of which a sender is told that messages were given up.
    private static var lapsedNames: Int { 100 }

    /// A queue for connections: it has no pauses, no breaker and no bound on what is under way, because connections have theirs.
    static func queueSettings(requestAge: Int64) -> QueueMachine.Settings {
        var settings = QueueMachine.Settings()
        settings.isCarried = true
        // Asked before a ratchet steps; letters with keys come with their message, however many they are.
        settings.limits.requestsPerTenant = .max
        (settings.limits.bytesPerTenant, settings.limits.bytes, settings.limits.requests) = (.max, .max, .max)
        (settings.limits.inFlight, settings.limits.inFlightPerHost) = (.max, .max)
        (settings.limits.inFlightPerTenant, settings.limits.inFlightPerLane) = (.max, .max)
        settings.limits.lookahead = .max
        settings.limits.age = requestAge
        (settings.limits.retention, settings.limits.finished) = kept
        // The sender has been told, and soon the recipient would not open it any more.
        (settings.limits.deadRetention, settings.limits.deadLetters) = kept
        settings.limits.mappings = kept.rows
        return settings
    }

    /// Takes over what the process before has left. What nobody vouches for any more is given up.
    ///
    /// - Returns: accounts without a login, which have ended with their connections.
    mutating func adoptRequests(highestMessage: UInt64, _ now: Moment) throws(StoreError) -> Set<AccountID> {
        queue.restore(try vault.store.queueContents(), now: now.queueTime)
        if highestMessage > queue.highestID { _ = queue.reserveID(atLeast: highestMessage) }
        var ended: Set<AccountID> = []
        for request in queue.requests {
            let account = AccountID(text: request.tenant)
            if !account.isVerified { ended.insert(account) }
            guard !account.isVerified || !AccountID(text: request.lane ?? "").isVerified else { continue }
            giveUp(request.id, Remarks.gone, now)
        }
        return ended
    }

    /// What the ledger says of the queue, which is committed.
    func publishCounts() { desk.ledger.publish(RequestCounts(queue.counts, waiting: queue.depth)) }

    /// The queue's turn. What it gives up for its age is told to its sender when they are back.
    mutating func turnQueue(_ now: Moment) -> QueueBatch {
        let batch = queue.turn(now: now.queueTime)
        for row in batch.expired {
            let account = AccountID(text: row.tenant)
            guard account.isVerified, let request = Request(row), !isLetter(request) else { continue }
            unheard.note(request)
            let target = ExactText(request.target)
            let counts = lapsed[account] ?? [:]
            guard counts.count < Self.lapsedNames || counts[target] != nil else { continue }
            lapsed[account, default: [:]][target, default: 0] += 1
        }
        return batch
    }

    /// Whether it is of a sidecar's own, such as one with the key of a room.
    private func isLetter(_ request: Request) -> Bool {
        devices != nil && request.verb == "NOTICE" && !request.isForRoom
    }

    /// Notifies a connection that has come back of the account's messages that have expired.
    mutating func notifyExpired(_ account: AccountID, _ connection: ConnectionID, _ replies: inout Replies) {
        guard let counts = lapsed.removeValue(forKey: account) else { return }
        for (target, count) in counts.sorted(by: { $0.key < $1.key }) {
            replies.append(AddressedReply(connection: connection, reply: .lapsed(target: target.text, count: count)))
        }
    }

    // MARK: Dispatching

    /// Groups what the queue dispatches by account, without what has just been sealed: its connection has that already.
    func waiting(_ dispatches: [QueueBatch.Dispatch]) -> [AccountID: [QueueBatch.Dispatch]] {
        Dictionary(grouping: dispatches.filter { inFlight[$0.id] == nil }) { AccountID(text: $0.request.tenant) }
    }

    /// The dispatched requests of an account, which the connection sends from now on.
    mutating func takeDispatched(to connection: ConnectionID, _ account: AccountID, _ now: Moment) -> [Request] {
        var requests: [Request] = []
        for dispatch in dispatched.removeValue(forKey: account) ?? [] {
            guard let request = Request(dispatch.request) else {
                giveUp(dispatch.id, "Its bytes are not those of a message.", now)
                continue
            }
            track(request.id, InFlight(connection: connection, account: account, request: request))
            requests.append(request)
        }
        return requests
    }

    // MARK: Ends

    /// A request that will not be done.
    @discardableResult
    mutating func giveUp(_ id: UInt64, _ reason: String, _ now: Moment) -> QueuedRequest? {
        queue.conclude(Request.token(id), RequestOutcome(.failure(status: nil), cause: reason), now: now.queueTime)
    }

    /// A request that is done.
    ///
    /// - Parameter remark: what is to be said of it all the same.
    mutating func complete(_ id: UInt64, remoteID: String? = nil, remark: String? = nil, _ now: Moment) {
        let names = remoteID.map { EntityIdentifier.both(type: Request.message, local: "\(id)", remote: $0) }
        queue.conclude(
            Request.token(id), RequestOutcome(.success(status: 0), cause: remark),
            identifiers: names.map { [$0] } ?? [], now: now.queueTime)
    }
}

extension Moment {
    /// As the queue wants it.
    var queueTime: QueueTime { QueueTime(wall: wall, uptime: monotonic / 1_000_000) }
}
