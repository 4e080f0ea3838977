// The vault's requests: the queue's machine, whose changes are committed in the transaction that also has the ratchet states that
// sealed them or opened them. What the queue begins it hands to a connection of its sender, which paces itself, keeps back what an
// operator holds, and says what has become of it.

import Envelope
import RequestQueue

extension Vault {
    /// Ours: how long finished requests stay visible, in milliseconds, and how many at most; the same for what the backend calls
    /// messages.
    private static var kept: (time: Int64, rows: Int) { (3_600_000, 50_000) }

    /// A queue for connections: it has no pauses, no breaker and no bound on what is under way, because connections have theirs.
    static func queueSettings(requestAge: Int64, pendingLimit: Int) -> QueueMachine.Settings {
        var settings = QueueMachine.Settings()
        settings.handsOutHeld = true
        settings.limits.requestsPerTenant = pendingLimit
        (settings.limits.inFlight, settings.limits.inFlightPerHost) = (.max, .max)
        (settings.limits.inFlightPerTenant, settings.limits.inFlightPerLane) = (.max, .max)
        settings.limits.lookahead = .max
        // A copy does no harm: the recipient's ratchet drops it.
        settings.limits.crashes = settings.limits.attempts
        settings.limits.age = requestAge
        (settings.limits.retention, settings.limits.finished) = kept
        settings.limits.mappings = kept.rows
        return settings
    }

    /// Takes over what the process before has left. What nobody vouches for any more is given up.
    ///
    /// - Returns: accounts without a login, which have ended with their connections.
    mutating func adoptRequests(highestMessage: UInt64, _ now: Moment) throws(StoreError) -> Set<AccountID> {
        queue.restore(try store.queueContents(), now: now.queueTime)
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

    // MARK: Senders

    /// A connection can send for an account from now on.
    mutating func attach(_ connection: ConnectionID, to account: AccountID) {
        guard senders.add(connection, for: account) else { return }
        queue.setSession(account.text, present: true)
    }

    /// A connection can send nothing any more.
    mutating func detach(_ connection: ConnectionID) {
        for account in senders.remove(connection) { queue.setSession(account.text, present: false) }
    }

    /// What the queue hands out beside what has just been sealed, which is known already, by account: it waited for its sender.
    mutating func handOut(_ batch: VaultBatch, _ now: Moment) -> [AccountID: [Request]] {
        var handedOut: [AccountID: [Request]] = [:]
        for dispatch in batch.queued.dispatches where inFlight[dispatch.id] == nil {
            let account = AccountID(text: dispatch.request.tenant)
            guard let connection = senders[account] else { continue }
            guard let request = Request(dispatch.request) else {
                giveUp(dispatch.id, "Its bytes are not those of a message.", now)
                continue
            }
            track(request.id, InFlight(connection: connection, account: account, request: request))
            handedOut[account, default: []].append(request)
        }
        return handedOut
    }

    /// The answer to a step, with what waited for the account that has come.
    func reply(
        to step: VaultBatch.Step, _ handedOut: inout [AccountID: [Request]]
    ) -> (connection: ConnectionID, reply: VaultReply)? {
        guard let account = step.recovers, case (let connection, .recovered(let ticket, _, let lines))? = step.reply,
            senders[account] == connection
        else { return step.reply }
        let requests = handedOut.removeValue(forKey: account) ?? []
        return (connection, .recovered(ticket: ticket, requests: requests, lines: lines))
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

/// The connections that can send for an account, the last that came first.
struct Senders: Sendable {
    private var connections: [AccountID: [ConnectionID]] = [:]
    private var accounts: [ConnectionID: Set<AccountID>] = [:]

    subscript(account: AccountID) -> ConnectionID? { connections[account]?.last }

    /// - Returns: whether it is the first of its account.
    mutating func add(_ connection: ConnectionID, for account: AccountID) -> Bool {
        guard accounts[connection, default: []].insert(account).inserted else { return false }
        connections[account, default: []].append(connection)
        return connections[account]?.count == 1
    }

    /// - Returns: the accounts that have no connection any more.
    mutating func remove(_ connection: ConnectionID) -> [AccountID] {
        (accounts.removeValue(forKey: connection) ?? []).filter { account in
            connections[account]?.removeAll { $0 == connection }
            guard connections[account]?.isEmpty == true else { return false }
            connections[account] = nil
            return true
        }
    }

    /// Nobody sends for an account any more.
    mutating func remove(_ account: AccountID) {
        for connection in connections.removeValue(forKey: account) ?? [] {
            accounts[connection]?.remove(account)
            if accounts[connection]?.isEmpty == true { accounts[connection] = nil }
        }
    }
}
