// What becomes of accounts and of requests in flight: acknowledged, lost, overdue, recovered.

import DeviceDirectory
import DoubleRatchet
import Envelope
import Outbox
package import Protection
import RequestQueue
package import StorePort

extension Vault {
    package mutating func forget(
        _ account: AccountID, _ reason: String, _ now: Moment, _ changes: inout [StoreChange]
    ) {
        keeper.forget(account)
        unheard.forget(account)
        latches.forget(account)
        conversations = conversations.filter { $0.first != account && $0.second != account }
        for request in queue.requests(of: account.text) {
            untrack(request.id)
            giveUp(request.id, reason, now)
            desk.gate.release(.request(request.id))
        }
        queue.hold(tenant: account.text, false, now: now.queueTime)
        lapsed[account] = nil
        desk.gate.release(.account(account))
        changes.append(.forgetAccount(account))
        directory?.remove(nil, of: account, &changes)
        directoryTable.put(account, directory?.accounts[account])
    }

    /// What the backend is not known to have goes out again when the account comes back, with the same bytes; the
    /// recipient's ratchet drops copies.
    package mutating func left(_ connection: ConnectionID, keepsAcknowledged: Bool, _ now: Moment) {
        let ids = inFlight.filter { $0.value.connection == connection && $0.value.account.isVerified }.keys.sorted()
        for id in ids {
            guard let entry = inFlight[id] else { continue }
            inFlight[id]?.connection = nil
            if entry.acknowledgedAt != nil, keepsAcknowledged { continue }
            if entry.isOpened {
                acknowledged(id, nil, now)
            } else {
                queue.giveBack(
                    Request.token(id), isBegun: desk.gate.hasBegun(id),
                    cause: "Its sender's connection ended before the backend had confirmed it.", now: now.queueTime)
                untrack(id)
            }
        }
        unrecovered = unrecovered.filter { $0.value != connection }
    }

    /// A connection speaks for an account no longer. What it has not begun waits for the account's next login; what it has begun
    /// stays its own, for the backend may have it.
    package mutating func loggedOut(_ connection: ConnectionID, _ account: AccountID, _ now: Moment) {
        let ids = inFlight.filter { $0.value.connection == connection && $0.value.account == account }.keys.sorted()
        for id in ids where !desk.gate.hasBegun(id) && inFlight[id]?.acknowledgedAt == nil {
            queue.giveBack(Request.token(id), isBegun: false, cause: "", now: now.queueTime)
            untrack(id)
        }
    }

    package mutating func acknowledged(_ id: UInt64, _ remoteID: String?, _ now: Moment) {
        guard var entry = inFlight[id] else { return }
        entry.acknowledgedAt = now.wall
        desk.traces.note(.acknowledged, of: id, at: now.wall)
        entry.remoteID = remoteID
        entry.saidAt = entry.saidAt ?? rooms.time
        if devices != nil {
            // Its readers open it elsewhere.
            entry.isOpened = true
        } else if isReadByNobody(entry) {
            if !entry.isOpened { unheard.note(entry.request) }
            entry.isOpened = true
        }
        inFlight[id] = entry
        finishIfDone(id, now)
    }

    /// A request is done when the backend is known to have it and the recipient's device has opened it.
    mutating func finishIfDone(_ id: UInt64, _ now: Moment) {
        guard let entry = inFlight[id], entry.isOpened, entry.acknowledgedAt != nil else { return }
        untrack(id)
        complete(id, remoteID: entry.remoteID, now)
    }

    /// What its recipient has not opened in time; what waits too long for its sender is the queue's to give up.
    package mutating func expire(_ now: Moment, _ changes: inout [StoreChange]) -> [(ConnectionID, VaultReply)] {
        var replies: [(ConnectionID, VaultReply)] = []
        for (id, entry) in inFlight {
            guard let at = entry.acknowledgedAt, now.wall - at > Self.unopenedAge else { continue }
            untrack(id)
            complete(id, remoteID: entry.remoteID, remark: "the recipient has not opened it", now)
            if let connection = entry.connection {
                replies.append((connection, .notSeen(requestID: id, target: entry.request.target)))
            }
        }
        for (_, connection) in unrecovered { replies.append((connection, .recall)) }
        unrecovered = [:]
        changes += roomDeliveries.expire(openedBefore: now.wall - requestAge).map { .removeDelivery(sequence: $0) }
        return replies
    }

    package mutating func recover(
        _ connection: ConnectionID, _ ticket: UInt64, _ account: AccountID, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) {
        unrecovered[account] = nil
        queue.unpark(account.text)
        step.recovers = account
        var lines: [RecoveredLine] = []
        if recoveredAccounts.insert(account).inserted {
            for row in (try? store.deliveries(of: account)) ?? [] where row.sequence <= lastOldDelivery {
                if wasDelivered(row.sequence) {
                    changes.append(.removeDelivery(sequence: row.sequence))
                } else if let line = keeper.open(line: row.sealedLine, sequence: row.sequence) {
                    lines.append(RecoveredLine(sequence: row.sequence, line: line))
                }
            }
        }
        lines += roomDeliveries.missing(account) { !rooms.verifiedAccounts(in: $0).contains(account) }
        // The requests come with the commit that says who has them.
        step.reply = (connection, .recovered(ticket: ticket, requests: [], lines: lines))
        // That marks of deliveries stay is no reason to hold the lines back.
        step.failure = step.reply
    }
}
