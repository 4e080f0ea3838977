// Mailbox entries and blobs of people's own devices, committed before they are acknowledged.

package import CommitLoop
import Devices
import DoubleRatchet
import Envelope
package import Protection
import StorePort

/// Participants that contain mailboxes.
package protocol MailHolding: DirectoryHolding {
    /// The devices that have mailboxes.
    var directory: GatewayDirectory { get }
    var mailboxes: Mailboxes { get set }
    /// Fresh random bytes, for the names of blobs.
    mutating func randomBytes(_ count: Int) -> [UInt8]
}

extension MailHolding {
    /// Carries out a call about mailboxes or blobs.
    ///
    /// - Returns: the answer, to be sent after the commit.
    package mutating func mail(_ job: MailJob, _ now: Timestamp, _ unit: inout Unit) -> MailAnswer {
        do {
            return try answer(job, now, &unit.changes)
        } catch {
            unit.cancel(in: &self, now: now)
            return .refused(error as? MailRefusal ?? .store)
        }
    }

    /// - Throws: ``MailRefusal``, or what the store throws.
    private mutating func answer(
        _ job: MailJob, _ now: Timestamp, _ changes: inout [StoreChange]
    ) throws -> MailAnswer {
        let own = job.device ?? DeviceID(0)
        func mailboxEntry(_ kind: MailboxEntry.Kind, _ id: String, _ content: [UInt8] = []) -> MailboxEntry {
            MailboxEntry(kind: kind, at: now.wall, from: job.account, device: own, id: id, content: content)
        }
        switch job.request {
        case .post(let id, let recipients, let body):
            let name = "message \(id)"
            // The answer to the first call may have been lost, and a recipient removed since.
            guard !mailboxes.isRepeated(name, by: own) else { return .accepted(recipients.count) }
            let unknown = recipients.filter { !directory.isListed($0.device, by: $0.account) }.map(\.device)
            guard unknown.isEmpty else { throw MailRefusal.unknownDevices(unknown) }
            let entries = recipients.map { (device: $0.device, mailboxEntry: mailboxEntry(.message, id, $0.content)) }
            try post(entries, body: body, id: name, by: own, &changes)
            return .accepted(recipients.count)
        case .receipt(let kind, let id, let account):
            let devices = published(of: account)
            guard !devices.isEmpty else { throw MailRefusal.notFound }
            let name = "\(kind.name) \(account.text) \(id)"
            try post(devices.map { ($0, mailboxEntry(kind, id)) }, id: name, by: own, &changes)
            return .accepted(devices.count)
        case .register(let content):
            let devices = published(of: job.account)
            guard !devices.isEmpty else { throw MailRefusal.notFound }
            try mailboxes.post(devices.map { ($0, mailboxEntry(.registration, "", content)) }, body: [], &changes)
            return .accepted(devices.count)
        case .fetch(let after, _):
            let page = try mailboxes.entries(for: own, after: after, store)
            return .entries(page.entries, more: page.more)
        case .acknowledge(let through):
            mailboxes.acknowledge(through, by: own, &changes)
            return .done
        case .publish(let blob):
            let name = randomBytes(16).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            try mailboxes.withBlobs { blobs throws(MailRefusal) in
                try blobs.publish(blob, as: name, by: job.account, &changes)
            }
            return .published(name)
        case .read(let id):
            guard let blob = try mailboxes.blobs.read(id, store) else { throw MailRefusal.notFound }
            return .blob(blob)
        case .remove(let id):
            try mailboxes.withBlobs { blobs throws(MailRefusal) in try blobs.remove(id, by: job.account, &changes) }
            return .done
        case .publishConfig(let config):
            guard let entry = directory[job.account], !entry.isBlocked,
                entry.deviceList.identity(of: own) == entry.deviceList.root
            else { throw MailRefusal.notMaster }
            changes.append(PublishedConfigs.row(config, of: job.account))
            return .done
        case .readConfig(let account):
            guard directory[account]?.isBlocked == false, let config = try PublishedConfigs.read(account, store) else {
                throw MailRefusal.notFound
            }
            return .config(config)
        case .setPushToken(let token):
            mailboxes.setPushToken(token, of: own, &changes)
            return .done
        case .dropPushToken(let token):
            if mailboxes.pushTokens.all[own] == token { mailboxes.setPushToken(nil, of: own, &changes) }
            return .done
        }
    }

    private mutating func post(
        _ entries: [(device: DeviceID, mailboxEntry: MailboxEntry)], body: [UInt8] = [], id: String, by own: DeviceID,
        _ changes: inout [StoreChange]
    ) throws(MailRefusal) {
        guard !mailboxes.isRepeated(id, by: own) else { return }
        try mailboxes.post(entries, body: body, &changes)
        mailboxes.note(id, by: own, &changes)
    }

    package mutating func pruneMail(_ now: Timestamp, _ unit: inout Unit) {
        let directory = directory
        mailboxes.pruneIfDue(now, &unit.changes) { directory.isListed($0) }
    }

    /// The devices that get receipts and registrations: none that has never been online, so that these cannot fill its
    /// mailbox, which would refuse them for the others as well.
    private func published(of account: AccountID) -> [DeviceID] {
        guard let entry = directory[account], !entry.isBlocked else { return [] }
        return entry.devices.keys.sorted()
    }
}
