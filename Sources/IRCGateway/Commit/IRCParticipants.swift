// The vault as the participants of the commit loop: each job goes to the part that does it.

package import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Outbox
package import Protection
package import RequestQueue
package import StorePort

extension Vault: Participants {
    package typealias Job = VaultJob
    package typealias Reply = VaultReply
    package typealias SharedRow = SessionID
    package typealias Closing = QueueBatch

    package mutating func prepare(_ job: VaultJob, _ unit: inout Unit, now: Moment) {
        switch job {
        case .seal(let job): seal(job, now, &unit)
        case .open(let job): open(job, now, &unit)
        case .write(let job): write(job, now, &unit)
        case .read(let job): read(job, now, &unit)
        case .acknowledged(let id, let remoteID): acknowledged(id, remoteID, now)
        case .failed(let id, let reason):
            if let entry = inFlight[id] { unheard.note(entry.request) }
            untrack(id)
            giveUp(id, reason, now)
        case .delivered(let sequences): for sequence in sequences { delivered(sequence, &unit.changes) }
        case .recover(let connection, let ticket, let account): recover(connection, ticket, account, &unit)
        case .left(let connection): left(connection, keepsAcknowledged: true, now)
        case .loggedOut(let connection, let account): loggedOut(connection, account, now)
        case .lost(let connection): left(connection, keepsAcknowledged: false, now)
        case .forget(let account, let reason): forget(account, reason, now, &unit)
        case .reset(let conversation):
            conversations.remove(conversation)
            unit.changes.append(.removeConversation(conversation))
        case .introduce(let connection, let ticket, let capacity):
            introduce(connection, ticket, capacity, now, &unit)
        case .decide(let name, let decision): decide(name, decision, &unit)
        case .revoke(let device): revoke(device, &unit)
        case .askRoom(let job): ask(job, now, &unit)
        case .challenge(let connection): challenge(connection, &unit)
        case .directory(let job): directory(job, now, &unit)
        case .mail(let job): mail(job, now, &unit)
        case .refused(let conversation, let message): refused(conversation, message, &unit)
        case .protect(let conversation, let names): protect(conversation, names, now, &unit)
        case .publish(let connection, let nonce, let account): publish(connection, nonce, account, now, &unit)
        case .replenish(let connection): replenish(connection, now, &unit)
        case .found(let job): found(job, now, &unit)
        case .act(let job): act(job, now, &unit)
        case .record(let records): unit.changes = records
        case .tick:
            openedMessages.expire(now: now.monotonic)
            pruneKeys(now, &unit.changes)
            pruneMail(now, &unit)
            expire(now, &unit)
        }
    }

    package mutating func close(now: Moment) -> (closing: QueueBatch, changes: [StoreChange]) {
        let batch = turnQueue(now)
        return (batch, batch.changes.map(StoreChange.queue))
    }

    package mutating func sharedChanges() throws -> [(row: SessionID, change: StoreChange)] {
        try keeper.takeChanges()
    }

    package mutating func closed(_ batch: QueueBatch, isCommitted: Bool, now: Moment) {
        guard isCommitted else {
            _ = queue.failed(batch)
            return
        }
        publishCounts()
        dispatched = waiting(batch.dispatches)
    }

    package mutating func drop(_ rows: some Sequence<SessionID>) { keeper.drop(rows) }

    package mutating func restore(_ kind: RecordKind, name: String) {
        let store = store
        switch kind {
        case .directoryAccount, .directoryDevice: directory?.restore(kind, name: name, from: store)
        case .mailbox, .letter, .parcel, .sent, .blob: mailroom?.restore(kind, name: name, from: store)
        case .preKey, .ownDevices, .peer, .senderKey: devices?.restore(kind, name: name, from: store)
        case .hold, .network, .policyWithRooms: break
        }
    }
}
