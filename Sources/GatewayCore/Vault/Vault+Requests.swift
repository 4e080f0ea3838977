// What becomes of accounts and of requests in flight: acknowledged, lost, overdue, recovered.

import DoubleRatchet
import Envelope
import RequestQueue

extension Vault {
    mutating func forget(
        _ account: AccountID, _ reason: String, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) {
        keeper.forget(account)
        unheard.forget(account)
        latches.forget(account)
        conversations = conversations.filter { $0.first != account && $0.second != account }
        let gone = inFlight.filter { $0.value.account == account }.keys
        for id in gone { untrack(id) }
        step.counts.kill(gone.count + (waiting.removeValue(forKey: account)?.count ?? 0))
        desk.gate.release(.account(account))
        changes.append(.forgetAccount(account, reason: reason, at: now.wall))
        directory?.remove(nil, of: account, &changes)
        directoryTable.put(account, directory?.accounts[account])
    }

    /// What the backend is not known to have goes out again when the account comes back, with the same bytes; the
    /// recipient's ratchet drops copies.
    mutating func left(
        _ connection: ConnectionID, keepsAcknowledged: Bool, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) {
        let ids = inFlight.filter { $0.value.connection == connection && $0.value.account.isVerified }.keys.sorted()
        for id in ids {
            guard let entry = inFlight[id] else { continue }
            inFlight[id]?.connection = nil
            if entry.acknowledgedAt != nil, keepsAcknowledged { continue }
            if entry.isOpened {
                acknowledged(id, nil, now, &changes, &step)
            } else {
                untrack(id)
                waiting[entry.account, default: []].append(entry.request)
            }
        }
    }

    mutating func acknowledged(
        _ id: UInt64, _ remoteID: String?, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) {
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
        finishIfDone(id, now, &changes, &step)
    }

    /// A request is done when the backend is known to have it and the recipient's device has opened it.
    mutating func finishIfDone(
        _ id: UInt64, _ now: Moment, _ changes: inout [StoreChange], _ step: inout VaultBatch.Step
    ) {
        guard let entry = inFlight[id], entry.isOpened, entry.acknowledgedAt != nil else { return }
        untrack(id)
        step.counts.finish()
        changes.append(.updateRequest(id: id, state: .done, remoteID: entry.remoteID, reason: nil, at: now.wall))
    }

    mutating func expire(
        _ now: Moment, _ changes: inout [StoreChange], _ step: inout VaultBatch.Step
    ) -> [(ConnectionID, VaultReply)] {
        var replies: [(ConnectionID, VaultReply)] = []
        for (id, entry) in inFlight {
            guard let at = entry.acknowledgedAt, now.wall - at > Self.unopenedAge else { continue }
            untrack(id)
            step.counts.finish()
            changes.append(
                .updateRequest(
                    id: id, state: .done, remoteID: entry.remoteID, reason: "the recipient has not opened it",
                    at: now.wall))
            if let connection = entry.connection {
                replies.append((connection, .notSeen(requestID: id, target: entry.request.target)))
            }
        }
        changes += roomDeliveries.expire(openedBefore: now.wall - requestAge).map { .removeDelivery(sequence: $0) }
        for (account, requests) in waiting {
            // What an operator holds is not late through anybody's fault.
            let overdue = requests.filter { now.wall - $0.acceptedAt > requestAge && !desk.gate.isHeld($0) }
            guard !overdue.isEmpty else { continue }
            step.counts.kill(overdue.count)
            let given = Set(overdue.map(\.id))
            for request in overdue {
                changes.append(
                    .updateRequest(
                        id: request.id, state: .dead, remoteID: nil, reason: "its sender did not come back in time",
                        at: now.wall))
            }
            let rest = requests.filter { !given.contains($0.id) }
            waiting[account] = rest.isEmpty ? nil : rest
        }
        return replies
    }

    mutating func recover(
        _ connection: ConnectionID, _ ticket: UInt64, _ account: AccountID, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) {
        let requests = (waiting.removeValue(forKey: account) ?? []).sorted { $0.id < $1.id }
        for request in requests {
            track(
                request.id,
                InFlight(connection: connection, account: account, request: request))
        }
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
        step.reply = (connection, .recovered(ticket: ticket, requests: requests, lines: lines))
        // What is sent again was committed long ago; that marks of deliveries stay is no reason to hold it back.
        step.failure = step.reply
    }
}
