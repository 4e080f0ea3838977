// Letters and blobs of people's own devices, committed before they are acknowledged.

import CommitLoop
import DeviceDirectory
import DoubleRatchet
import Envelope
import Protection
import StorePort

extension Vault {
    mutating func mail(
        _ job: MailJob, _ now: Moment, _ unit: inout Unit
    ) {
        unit.failure = (job.connection, .mail(id: job.id, .refused(.store)))
        let answer: MailAnswer
        do {
            answer = try self.answer(job, now, &unit.changes)
        } catch {
            unit.cancel(in: &self, now: now)
            answer = .refused(error as? MailRefusal ?? .store)
        }
        unit.reply = (job.connection, .mail(id: job.id, answer))
    }

    /// - Throws: ``MailRefusal``, or what the store throws.
    private mutating func answer(
        _ job: MailJob, _ now: Moment, _ changes: inout [StoreChange]
    ) throws -> MailAnswer {
        guard mailroom != nil else { throw MailRefusal.notFound }
        let own = job.device ?? DeviceID(0)
        func letter(_ kind: Letter.Kind, _ id: String, _ content: [UInt8] = []) -> Letter {
            Letter(kind: kind, at: now.wall, from: job.account, device: own, id: id, content: content)
        }
        switch job.request {
        case .post(let id, let recipients, let body):
            let unknown = recipients.filter { !isPublished($0.device, of: $0.account) }.map(\.device)
            guard unknown.isEmpty else { throw MailRefusal.unknownDevices(unknown) }
            let letters = recipients.map { (device: $0.device, letter: letter(.message, id, $0.content)) }
            try post(letters, body: body, id: "message \(id)", by: own, &changes)
            return .accepted(recipients.count)
        case .receipt(let kind, let id, let account):
            let devices = published(of: account)
            guard !devices.isEmpty else { throw MailRefusal.notFound }
            let name = "\(kind.name) \(account.text) \(id)"
            try post(devices.map { ($0, letter(kind, id)) }, id: name, by: own, &changes)
            return .accepted(devices.count)
        case .register(let content):
            let devices = published(of: job.account)
            guard !devices.isEmpty else { throw MailRefusal.notFound }
            try mailroom?.post(devices.map { ($0, letter(.registration, "", content)) }, body: [], &changes)
            return .accepted(devices.count)
        case .fetch(let after):
            guard let page = try mailroom?.letters(for: own, after: after, store) else {
                return .letters([], more: false)
            }
            return .letters(page.letters, more: page.more)
        case .acknowledge(let through):
            mailroom?.acknowledge(through, by: own, &changes)
            return .done
        case .publish(let blob):
            var id = [UInt8](repeating: 0, count: 16)
            id.withUnsafeMutableBytes { keeper.random.fill($0) }
            let name = id.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            try mailroom?.withBlobs { shelf throws(MailRefusal) in
                try shelf.publish(blob, as: name, by: job.account, &changes)
            }
            return .published(name)
        case .read(let id):
            guard let blob = try mailroom?.blobs.read(id, store) else { throw MailRefusal.notFound }
            return .blob(blob)
        case .remove(let id):
            try mailroom?.withBlobs { shelf throws(MailRefusal) in try shelf.remove(id, by: job.account, &changes) }
            return .done
        }
    }

    private mutating func post(
        _ letters: [(device: DeviceID, letter: Letter)], body: [UInt8] = [], id: String, by own: DeviceID,
        _ changes: inout [StoreChange]
    ) throws(MailRefusal) {
        guard mailroom?.isRepeated(id, by: own) == false else { return }
        try mailroom?.post(letters, body: body, &changes)
        mailroom?.note(id, by: own, &changes)
    }

    mutating func pruneMail(_ now: Moment, _ unit: inout Unit) {
        guard mailroom != nil, now.monotonic >= prunesMailAt else { return }
        prunesMailAt = now.monotonic + Self.pruneInterval
        let directory = directory
        mailroom?.prune(now: now.wall, &unit.changes) { directory?.owner(of: $0) != nil }
    }

    private func isPublished(_ device: DeviceID, of account: AccountID) -> Bool {
        guard let entry = directory?.accounts[account] else { return false }
        return !entry.isBlocked && entry.devices[device] != nil
    }

    private func published(of account: AccountID) -> [DeviceID] {
        guard let entry = directory?.accounts[account], !entry.isBlocked else { return [] }
        return entry.devices.keys.sorted()
    }
}
