// The participants of a JSON gateway's transactions: the vault, the directory of people's own devices, and their
// mailboxes. Each job is passed to the part that does it.

package import CommitLoop
package import DeviceDirectory
package import Devices
package import DoubleRatchet
package import Envelope
package import Outbox
package import Protection
package import StorePort
package import Vault

/// The state behind the store of a JSON gateway. One thread at a time uses it.
package struct JSONParticipants<Random: RandomSource> {
    package var vault: Vault<Random>
    package var directory: Directory?
    package let directoryCache: DirectoryCache
    package var mailboxes: Mailboxes
    /// The highest message id that was assigned; no id is used twice.
    private var lastMessage: UInt64
    private let traces: RequestTraces
    /// Warnings for the operator, found when the store was opened.
    package private(set) var warnings: [String] = []

    package var store: any Store { vault.store }

    /// Takes over a store.
    ///
    /// - Parameter changes: to be committed before the first job.
    /// - Throws: ``StoreError`` if a device cannot be unsealed or a row is damaged.
    package init(
        network: String, carrier: Carrier = .json, sealer: StorageSealer, store: any Store, latches: LatchTable,
        traces: RequestTraces = RequestTraces(), now: Timestamp, random: Random,
        directory: DirectoryCache = DirectoryCache(), changes: inout [StoreChange]
    ) throws(StoreError) {
        let contents = try store.load()
        var ended: Set<AccountID> = []
        vault = try Vault(
            network: network, carrier: carrier, sealer: sealer, store: store, latches: latches, random: random,
            contents: contents, ended: &ended)
        directoryCache = directory
        mailboxes = try Mailboxes(store: store)
        lastMessage = contents.highestMessage
        self.traces = traces
        warnings = try openDirectory(store, now, &changes)
        for account in ended.sorted() { changes.append(.forgetAccount(account)) }
    }

    /// Assigns an id to a message. Ids rise with time, so that they stay in order even if rows were pruned:
    /// milliseconds times 1024.
    private mutating func nextMessage(_ now: Timestamp) -> MessageID {
        lastMessage = max(lastMessage + 1, UInt64(max(now.wall, 0)) << 10)
        return MessageID(lastMessage)
    }
}

extension JSONParticipants: VaultHolding, MailHolding {
    package typealias Job = JSONJob
    package typealias Reply = JSONReply
    package typealias Closing = Void

    package mutating func prepare(_ job: JSONJob, _ unit: inout Unit, now: Timestamp) {
        switch job {
        case .seal(let job): seal(job, now, &unit)
        case .open(let job): open(job, now, &unit)
        case .refused(let conversation, let message): refused(conversation, message, &unit)
        case .protect(let conversation, let names): protect(conversation, names, now, &unit)
        case .reset(let conversation): reset(conversation, &unit)
        case .challenge(let connection): challenge(connection, nonce: vault.makeNonce(), &unit)
        case .directory(let job): directory(job, now, &unit)
        case .mail(let job):
            unit.failure = (job.connection, .mail(id: job.id, .refused(.store)))
            unit.reply = (job.connection, .mail(id: job.id, mail(job, now, &unit)))
        case .record(let records): unit.changes = records
        case .tick:
            vault.pruneKeys(now, &unit.changes)
            pruneMail(now, &unit)
        }
    }

    private mutating func seal(_ job: SealMessageJob, _ now: Timestamp, _ unit: inout Unit) {
        var failure = SealFailure.store
        do {
            let written = try seal(job, nextMessage(now), now, &unit)
            unit.reply = (job.connection, .sealed(ticket: job.ticket, written))
        } catch {
            unit.cancel(in: &self, now: now)
            unit.shared = []
            failure = error as? SealFailure ?? .store
            unit.reply = (job.connection, .sealFailed(ticket: job.ticket, failure))
        }
        unit.failure = (job.connection, .sealFailed(ticket: job.ticket, failure))
    }

    private mutating func open(_ job: OpenMessagesJob, _ now: Timestamp, _ unit: inout Unit) {
        let directory = directory
        let outcomes = vault.open(
            job, highest: lastMessage, isElsewhere: { directory?.isInUse($0) ?? false }, now)
        for case .text(_, let sender, _, let message) in outcomes where sender != job.reader {
            traces.note(.opened, of: message.value, at: now.wall)
        }
        unit.reply = (job.connection, .opened(ticket: job.ticket, outcomes))
        // Reading does not depend on the rest of the batch.
        unit.failure = unit.reply
    }

    package mutating func close(now: Timestamp) -> (closing: Void, changes: [StoreChange]) { ((), []) }

    package mutating func closed(_: Void, isCommitted: Bool, now: Timestamp) {}

    package mutating func restore(_ kind: RecordKind, name: String) {
        let store = store
        switch kind {
        case .directoryAccount, .directoryDevice: directory?.restore(kind, name: name, from: store)
        case .mailbox, .mailboxEntry, .sharedCiphertext, .sent, .blob: mailboxes.restore(kind, name: name, from: store)
        case .preKey, .ownDevices, .peer, .senderKey, .hold, .network, .policyWithRooms: break
        }
    }

    package mutating func randomBytes(_ count: Int) -> [UInt8] { vault.randomBytes(count) }
}
