// The ends of accounts and of requests in flight: acknowledged, lost, overdue, recovered.
//
// In a sidecar a request is done when the backend has acknowledged it: whether the recipient's device has opened it is
// not known here.
//
// A message that the server of a sidecar has acknowledged is not sent again if that server dies, although the server may
// have relayed it to no client. The recipient is notified of the gap, and its sender has to write it again. A message
// sent again by guess would arrive before its reader is back (401, although it may have been read), would reach members
// who joined later and do not have the room's key, and would be a second copy for a client that has reconnected.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import Envelope
import Outbox
import Protection
import RequestQueue
import StorePort
import Vault

extension IRCParticipants {
    mutating func forget(
        _ account: AccountID, _ reason: String, _ now: Timestamp, _ unit: inout Unit
    ) {
        vault.forget(account)
        unreadCounts.forget(account)
        for request in queue.requests(of: account.text) {
            untrack(request.id)
            giveUp(request.id, reason, now)
            outbox.gate.release(.request(request.id))
        }
        queue.hold(tenant: account.text, false, now: now.queueTime)
        expired[account] = nil
        outbox.gate.release(.account(account))
        unit.changes.append(.forgetAccount(account))
        if case .front(let directory) = role { directory.remove(account, &unit) }
    }

    /// Returns the requests of an ended connection to the queue, unless the backend is known to have them.
    ///
    /// They are sent again with the same bytes after the account's next login; the recipient's ratchet drops copies.
    mutating func left(_ connection: ConnectionID, keepsAcknowledged: Bool, _ now: Timestamp) {
        let ids = inFlight.filter { $0.value.connection == connection && $0.value.account.isVerified }.keys.sorted()
        for id in ids {
            guard let entry = inFlight[id] else { continue }
            inFlight[id]?.connection = nil
            if entry.acknowledgedAt != nil, keepsAcknowledged { continue }
            if entry.isOpened {
                acknowledged(id, nil, now)
            } else {
                queue.giveBack(
                    Request.token(id), isBegun: outbox.gate.hasBegun(id),
                    cause: "Its sender's connection ended before the backend had confirmed it.", now: now.queueTime)
                untrack(id)
            }
        }
        recoveries[connection] = nil
        unrecovered = unrecovered.filter { $0.value != connection }
    }

    /// Returns the requests that a connection has not begun when it logs out of an account.
    ///
    /// They wait for the account's next login. Requests that it has begun stay with it, because the backend may have
    /// them.
    mutating func loggedOut(_ connection: ConnectionID, _ account: AccountID, _ now: Timestamp) {
        recoveries[connection] = nil
        let ids = inFlight.filter { $0.value.connection == connection && $0.value.account == account }.keys.sorted()
        for id in ids where !outbox.gate.hasBegun(id) && inFlight[id]?.acknowledgedAt == nil {
            queue.giveBack(Request.token(id), isBegun: false, cause: "", now: now.queueTime)
            untrack(id)
        }
    }

    mutating func acknowledged(_ id: UInt64, _ remoteID: String?, _ now: Timestamp) {
        guard var entry = inFlight[id] else { return }
        entry.acknowledgedAt = now.wall
        outbox.traces.note(.acknowledged, of: id, at: now.wall)
        entry.remoteID = remoteID
        entry.relayedAt = entry.relayedAt ?? rooms.time
        if isSidecar {
            // Its readers do not open it in this vault.
            entry.isOpened = true
        } else if isReadByNobody(entry) {
            if !entry.isOpened { unreadCounts.note(entry.request) }
            entry.isOpened = true
        }
        update(id, entry, now)
    }

    /// Replaces the entry of a request. If the backend has acknowledged it and the recipient's device has opened it, it
    /// ends.
    mutating func update(_ id: UInt64, _ entry: InFlight, _ now: Timestamp) {
        inFlight[id] = entry
        guard entry.isOpened, entry.acknowledgedAt != nil else { return }
        untrack(id)
        complete(id, remoteID: entry.remoteID, now)
    }

    /// Ends requests that their recipient has not opened in time. The queue expires those that wait for their sender.
    mutating func expire(_ now: Timestamp, _ unit: inout Unit) {
        var new: Replies = []
        for (id, entry) in inFlight {
            guard let at = entry.acknowledgedAt, now.wall - at > Self.unopenedAge else { continue }
            untrack(id)
            complete(id, remoteID: entry.remoteID, cause: "the recipient has not opened it", now)
            if let connection = entry.connection {
                let reply = IRCReply.unopened(requestID: id, target: entry.request.target)
                new.append(AddressedReply(connection: connection, reply: reply))
            }
        }
        for connection in unrecovered.values {
            new.append(AddressedReply(connection: connection, reply: .requestsWaiting))
        }
        unrecovered = [:]
        unit.onCommit { [new] _, replies, _ in replies += new }
        unit.changes += roomDeliveries.expire(openedBefore: now.wall - requestAge).map { .removeDelivery(sequence: $0) }
    }

    mutating func recover(
        _ connection: ConnectionID, _ ticket: UInt64, _ account: AccountID, _ unit: inout Unit
    ) {
        unrecovered[account] = nil
        recoveries[connection] = ticket
        queue.unpark(account.text)
        var lines: [RecoveredLine] = []
        if recoveredAccounts.insert(account).inserted {
            let rows: [DeliveryRow]
            do {
                rows = try vault.store.deliveries(of: account)
            } catch {
                // The lines stay in the store, and the connection asks again at the next tick.
                rows = []
                recoveredAccounts.remove(account)
                unit.onCommit { state, _, _ in state.unrecovered[account] = connection }
            }
            for row in rows where row.sequence <= lastOldDelivery {
                if wasDelivered(row.sequence) {
                    unit.changes.append(.removeDelivery(sequence: row.sequence))
                } else if let line = vault.open(line: row.sealedLine, sequence: row.sequence) {
                    lines.append(RecoveredLine(sequence: row.sequence, line: line))
                }
            }
        }
        lines += roomDeliveries.missing(account) { !rooms.verifiedAccounts(in: $0).contains(account) }
        // The requests are sent after the commit of their dispatch to this connection, unless it has ended, lost its
        // backend or logged out in the same batch.
        unit.onCommit { [lines] state, replies, now in
            state.notifyExpired(account, connection, &replies)
            var requests: [Request] = []
            if state.recoveries[connection] == ticket {
                state.recoveries[connection] = nil
                requests = state.takeDispatched(to: connection, account, now)
            }
            replies.append(
                AddressedReply(
                    connection: connection, reply: .recovered(ticket: ticket, requests: requests, lines: lines)))
        }
        // If only the removal of delivered rows fails, the lines are shown all the same.
        unit.failure = (connection, .recovered(ticket: ticket, requests: [], lines: lines))
        // The connection asks again at the next tick.
        unit.onRollback { state, _, _, _ in
            state.recoveries[connection] = nil
            state.queue.park(account.text)
            state.unrecovered[account] = connection
        }
    }
}
