// The directory's side of the vault: what capable clients prove, publish and ask.
//
// The directory runs on the commit thread: what a device publishes is a row of the store like others, and is
// acknowledged only after the commit.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import Envelope
import Protection
import StorePort

extension Vault {
    /// Opens the directory. The hosted devices are known by then: a published device with the id of one of them goes, and
    /// the hosted one stays with its sessions.
    mutating func openDirectory(_ now: Moment, _ changes: inout [StoreChange]) throws(StoreError) {
        var opened = try Directory(store: store)
        for (account, entry) in opened.accounts.sorted(by: { $0.key < $1.key }) {
            for id in entry.devices.keys.sorted() where keeper.holds(id) {
                opened.remove(id, of: account, &changes)
                let detail = "removed \(Directory.name(id)) of \(account.name): it has the id of a hosted device"
                changes.append(
                    .audit(AuditRow(at: now.wall, actor: "gateway", action: "devices", detail: detail)))
                warnings.append("Directory: \(detail). Its owner has to publish under a new id.")
            }
        }
        // Connections without a login have ended with the process before.
        for account in opened.accounts.keys where !account.isVerified { opened.remove(nil, of: account, &changes) }
        directory = opened
        for (account, entry) in opened.accounts { directoryTable.put(account, entry) }
    }

    /// Shows connections, after the commit, the published devices of an account.
    func show(published account: AccountID, _ unit: inout Unit) {
        unit.onCommit { vault, _, _ in vault.directoryTable.put(account, vault.directory?.accounts[account]) }
    }

    /// Whether a device is published by an account whose devices are in use, and so is none of this vault's.
    func isElsewhere(_ device: DeviceID) -> Bool { directory?.isInUse(device) ?? false }

    /// Something that nobody can have signed before.
    mutating func challenge(_ connection: ConnectionID, _ unit: inout Unit) {
        var nonce = [UInt8](repeating: 0, count: 32)
        nonce.withUnsafeMutableBytes { keeper.random.fill($0) }
        unit.reply = (connection, .directory(id: 0, .challenge(nonce: nonce, account: "")))
    }

    mutating func directory(
        _ job: DirectoryJob, _ now: Moment, _ unit: inout Unit
    ) {
        unit.failure = (
            job.connection, .directory(id: job.id, .refused("the gateway could not store it; try again later"))
        )
        do throws(Directory.Refusal) {
            unit.reply = (job.connection, try answer(job, now, &unit))
        } catch {
            unit.cancel(in: &self, now: now)
            unit.reply = (job.connection, .directory(id: job.id, .refused(error.reason)))
        }
    }

    private mutating func answer(
        _ job: DirectoryJob, _ now: Moment, _ unit: inout Unit
    ) throws(Directory.Refusal) -> VaultReply {
        switch job.request {
        case .publish(let chain, let device, let signature, let nonce):
            guard
                DirectoryMessage.isProof(signature, nonce: nonce, account: job.account.name, chain, device)
            else { throw .init("the proof does not hold for \(job.account.name)") }
            // The id of a hosted device stands in the clear in each of its envelopes.
            guard !keeper.holds(device.id) else {
                throw .init("a device of this gateway has this id already; make a device with a new id")
            }
            show(published: job.account, &unit)
            if let owner = directory?.owner(of: device.id) { show(published: owner, &unit) }
            let startsAgain =
                try directory?.publish(chain, device, of: job.account, now: now, &unit.changes) ?? false
            if startsAgain {
                unit.changes.append(
                    .audit(
                        AuditRow(
                            at: now.wall, actor: job.account.name, action: "devices",
                            detail: "started again: the keys are not those of before")))
            }
            return .proven(id: job.id, device.id, oneTime: device.oneTime.count)
        case .find(let account, let connections):
            show(published: account, &unit)
            guard let (entry, low) = directory?.bundles(of: account, &unit.changes) else {
                return .directory(id: job.id, .found(.legacy))
            }
            if !low.isEmpty {
                unit.onCommit { _, replies, _ in
                    replies += connections.map { AddressedReply(connection: $0, reply: .directory(id: 0, .low)) }
                }
            }
            return .directory(id: job.id, .found(entry))
        case .show(let account):
            guard let entry = directory?.accounts[account], !entry.isBlocked else {
                return .directory(id: job.id, .found(.legacy))
            }
            return .directory(id: job.id, .found(.capable(account: account.name, entry.chain, [])))
        case .replenish(let keys, let device):
            show(published: job.account, &unit)
            let count = try directory?.replenish(keys, of: device, job.account, &unit.changes) ?? 0
            return .directory(id: job.id, .done(oneTime: count))
        case .list(let chain):
            show(published: job.account, &unit)
            try directory?.update(chain, of: job.account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        case .block(let account, let isBlocked):
            show(published: account, &unit)
            directory?.setBlocked(isBlocked, account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        case .remove(let account, let device):
            show(published: account, &unit)
            directory?.remove(device, of: account, &unit.changes)
            return .directory(id: job.id, .done(oneTime: 0))
        }
    }

    mutating func protect(
        _ conversation: ConversationID, _ names: (first: String, second: String), _ now: Moment,
        _ unit: inout Unit
    ) {
        guard latches.latch(of: conversation) < .device else { return }
        conversations.insert(conversation)
        latch(
            .init(
                conversation: conversation, account: conversation.first, peer: conversation.second,
                peerName: names.second, accountName: names.first, protection: .device), now, &unit)
    }
}
