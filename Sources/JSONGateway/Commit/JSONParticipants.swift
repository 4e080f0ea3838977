// The participants of a JSON gateway's transactions: the vault, the queue of writes, the directory of people's own
// devices, and their mailboxes. Each job is passed to the part that does it.

import CallSignalling
package import CommitLoop
package import DeviceDirectory
package import Devices
package import DoubleRatchet
package import Envelope
import JSONCodec
package import Outbox
package import Protection
package import RequestQueue
package import StorePort
package import Vault

/// The state behind the store of a JSON gateway. One thread at a time uses it.
package struct JSONParticipants {
    package let vault: Vault
    package let directory: GatewayDirectory
    package var mailboxes: Mailboxes
    var messageIDs: IDSequence
    var requestIDs: IDSequence
    private let traces: RequestTraces
    package var queue: QueueMachine
    let writes: WriteTables
    /// The sealed credentials of accounts that the queue has stored.
    package private(set) var storedSessions: [ExactText: [UInt8]] = [:]
    /// The answers that wait for the end of the batch.
    var answers: [QueueAnswer] = []
    /// The writes that the open batch queues, with the ratchet states that sealed them. An answer about one of them is
    /// as uncommitted as the write itself.
    var batchWrites: [RequestToken: [SessionID]] = [:]
    /// Writes whose units were rejected in the batch that is being completed.
    var discarded: Set<RequestToken> = []
    /// When the queue last said that it has something to do next, in milliseconds of uptime.
    var announcedWake: Int64?
    /// Ours: waiting calls of one device, and of an account that waits for calls on its devices.
    private static var waitersOfDevice: Int { 4 }
    private static var waitersOfAccount: Int { 16 }
    /// The calls that wait for mailbox entries.
    var mailWaiters = MailWaiters<DeviceID>(limit: waitersOfDevice)
    /// Signalling between devices without keys. In memory only, so a failed commit changes nothing about it.
    var callRelay = CallRelay<JSONFragment>()
    /// The notices for devices that are not connected; nil without a push hook.
    private let push: PushNotices?
    var relayWaiters = MailWaiters<AccountID>(limit: waitersOfAccount)
    /// Warnings for the operator, found when the store was opened.
    package var warnings: [String] { directory.warnings }

    /// Takes over a store.
    ///
    /// - Parameters:
    ///   - held: accounts whose writes an operator holds.
    ///   - changes: to be committed before the first job.
    /// - Throws: ``StoreError`` if a device cannot be unsealed or a row is damaged.
    package init(
        network: String, carrier: Carrier = .json, sealer: StorageSealer, store: any Store, latches: LatchTable,
        traces: RequestTraces = RequestTraces(), writes: WriteTables, queue settings: QueueMachine.Settings,
        historyRetention: Int64, held: [AccountID] = [], now: Timestamp, random: some RandomSource,
        directory: DirectoryCache = DirectoryCache(), push: PushNotices? = nil, changes: inout [StoreChange]
    ) throws(StoreError) {
        let contents = try store.load()
        var ended: Set<AccountID> = []
        let vault = try Vault(
            network: network, carrier: carrier, sealer: sealer, store: store, latches: latches, random: random,
            contents: contents, ended: &ended)
        vault.historyRetention = historyRetention
        mailboxes = try Mailboxes(store: vault.store, above: contents.highestDelivery)
        self.push = push
        for (device, token) in mailboxes.pushTokens.all { push?.setToken(token, of: device) }
        push?.wait(mailboxes.devices(withEntriesSince: now.wall - PushQueue.life), now: now.monotonic)
        messageIDs = IDSequence(vault.sharding, after: contents.highestMessage)
        self.traces = traces
        self.writes = writes
        queue = QueueMachine(settings, lease: vault.randomNumber())
        for account in held { queue.hold(tenant: account.text, true, now: now.queueTime) }
        let queued = try store.queueContents()
        _ = queue.takeForgottenKeys()
        queue.restore(queued, now: now.queueTime)
        requestIDs = IDSequence(vault.sharding, after: queue.highestID)
        for request in queued.requests { writes.waiting.begin(request) }
        writes.known.insert(queue.knownKeys)
        storedSessions = queued.sessions
        if try store.oldestContentKeys() != nil { writes.heldKeys.note() }
        self.directory = try GatewayDirectory(
            store: vault.store, cache: directory, isHosted: { vault.holds($0) }, now, &changes)
        self.vault = vault
        for account in ended.sorted() { changes.append(.forgetAccount(account)) }
    }
}

extension JSONParticipants: VaultHolding, MailHolding {
    package typealias Job = JSONJob
    package typealias Reply = JSONReply
    package typealias Closing = QueueClosing

    package func placement(of job: JSONJob) -> Placement {
        let sharding = vault.sharding
        guard !sharding.isSingle else { return .shard(.only) }
        switch job {
        case .seal(let job): return .shard(sharding.shard(from: job.sender, to: job.conversation))
        case .write(let job): return .shard(sharding.shard(from: job.write.account, to: job.write.conversation))
        case .sealFile(let job): return .shard(sharding.shard(of: job.account))
        case .refused(let conversation, _), .protect(let conversation, _), .reset(let conversation):
            return .shard(sharding.shard(of: conversation))
        case .directory(let job): return job.owner.map { .shard(sharding.shard(of: $0)) } ?? .several
        case .mail(let job): return job.owner.map { .shard(sharding.shard(of: $0)) } ?? .several
        case .challenge, .callRelay: return .unsharded
        // Why each touches several shards, and the units into which it divides if the store has several owners:
        // - A lookup knows the key of a write only, and writes nothing. The shard of the key's first request could be part
        //   of the key's row in the account's shard; then a lookup is one unit there and one in the request's shard.
        // - A page of history has messages of many conversations. It reads stored keys, which needs no owner; only keys in
        //   memory of the open batch are the owner's. One unit for each shard of the page that has uncommitted keys.
        // - An event of the queue concerns the request of its token, and may end others that depend on it; all of a lane
        //   are in one conversation. One unit in the request's shard. `wake` has a turn for each shard.
        // - Recorded counts are in tables that are not divided. `record` may carry others, so it is not `.unsharded`.
        // - A tick removes old keys and mailbox entries everywhere. Each owner has its own, for its shards.
        // - A file names the key with which it is opened. The shard of its id is the one, and nothing is written.
        case .find, .open, .openFile, .queue, .wake, .record, .tick: return .several
        }
    }

    package mutating func refuse(_ job: JSONJob, now: Timestamp) -> Replies {
        switch job {
        case .seal(let job):
            return [.init(connection: job.connection, reply: .sealFailed(ticket: job.ticket, .store))]
        case .write(let job):
            writes.waiters.drop(job.token)
            return [.init(connection: job.connection, reply: job.reply(.failure(.notQueued(.unavailable))))]
        case .sealFile(let job): return [.init(connection: job.connection, reply: Self.noFileKey)]
        case .openFile(let job): return [.init(connection: job.connection, reply: Self.noFileKey)]
        case .directory(let job): return [failure(of: job)]
        case .mail(let job): return [.init(connection: job.connection, reply: .mail(id: job.id, .refused(.store)))]
        case .callRelay(let job):
            return [.init(connection: job.connection, reply: .callRelay(id: job.id, .unavailable))]
        case .refused, .protect, .reset, .challenge, .find, .open, .queue, .wake, .record, .tick: return []
        }
    }

    package func lookahead(of job: JSONJob) -> Lookahead {
        switch job {
        case .seal, .find, .write, .open, .sealFile, .openFile: .repeated
        case .record: .lasting
        // An event may end requests, and one that ends here must not be one that the earlier batch has queued or leased:
        // the queue could not undo that.
        case .queue, .wake: .none
        case .refused, .protect, .reset, .challenge, .directory, .mail, .callRelay, .tick: .none
        }
    }

    package mutating func prepare(_ job: JSONJob, _ unit: inout Unit, now: Timestamp) {
        switch job {
        case .seal(let job): seal(job, now, &unit)
        case .find(let job): find(job, now, &unit)
        case .write(let job): write(job, now, &unit)
        case .queue(let event): pass(event, now)
        case .wake: announcedWake = nil
        case .open(let job): open(job, now, &unit)
        case .sealFile(let job): makeKey(job, now, &unit)
        case .openFile(let job): findKey(job, now, &unit)
        case .refused(let conversation, let message): refused(conversation, message, &unit)
        case .protect(let conversation, let names): protect(conversation, names, now, &unit)
        case .reset(let conversation): reset(conversation, &unit)
        case .challenge(let connection): challenge(connection, nonce: vault.makeNonce(), &unit)
        case .directory(let job):
            let before = directory.devices(atRiskBy: job)
            perform(job, in: directory, now, &unit)
            let taken = before.filter { directory.account(of: $0.key) != $0.value }
            removeMail(of: taken.keys.sorted(), &unit)
        case .mail(let job):
            unit.failure = (job.connection, .mail(id: job.id, .refused(.store)))
            let answer = mail(job, now, &unit)
            unit.reply = (job.connection, .mail(id: job.id, answer))
            waitForMail(job, answer, &unit)
            notePush(job, answer, now, &unit)
        case .callRelay(let job): callRelay(job, now, &unit)
        case .record(let records): unit.changes = records
        case .tick:
            vault.pruneKeys(now, &unit.changes)
            let tokens = mailboxes.pushTokens.all
            pruneMail(now, &unit)
            if mailboxes.pushTokens.all.count < tokens.count {
                for device in tokens.keys where mailboxes.pushTokens.all[device] == nil {
                    push?.setToken(nil, of: device)
                }
            }
            callRelay.prune(now)
            wakeCalls(&unit)
        }
    }

    /// Seals a text under an id of its own.
    mutating func sealNext(
        _ job: SealMessageJob, _ now: Timestamp, _ unit: inout Unit
    ) throws -> SealedEnvelope {
        let shard = vault.sharding.shard(from: job.sender, to: job.conversation)
        let sealed = try seal(job, MessageID(messageIDs.next(in: shard, at: now)), now, &unit)
        unit.onCommit { state, _, _ in state.writes.heldKeys.note() }
        return sealed
    }

    private mutating func seal(_ job: SealMessageJob, _ now: Timestamp, _ unit: inout Unit) {
        var failure = SealFailure.store
        do {
            let written = try sealNext(job, now, &unit)
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
            job, highest: messageIDs.highest, isElsewhere: { directory.isInUse($0) }, now)
        for case .text(_, let sender, _, let message) in outcomes where sender != job.reader {
            traces.note(.opened, of: message.value, at: now.wall)
        }
        unit.reply = (job.connection, .opened(ticket: job.ticket, outcomes))
        // Reading does not depend on the rest of the batch.
        unit.failure = unit.reply
    }

    // MARK: Files

    /// The reply if the store fails.
    private static var noFileKey: JSONReply { .fileKey(.failure(OpenError(reason: .store))) }

    private mutating func makeKey(_ job: SealFileJob, _ now: Timestamp, _ unit: inout Unit) {
        unit.failure = (job.connection, Self.noFileKey)
        do {
            let id = MessageID(messageIDs.next(in: vault.sharding.shard(of: job.account), at: now))
            let key = try makeFileKey(id, now, &unit)
            unit.reply = (job.connection, .fileKey(.success(key)))
            unit.onCommit { state, _, _ in state.writes.heldKeys.note() }
        } catch {
            unit.cancel(in: &self, now: now)
            unit.reply = (job.connection, Self.noFileKey)
        }
    }

    private mutating func findKey(_ job: OpenFileJob, _ now: Timestamp, _ unit: inout Unit) {
        let highest = messageIDs.highest
        let found = Result { () throws(OpenError) in try vault.fileKey(job.header, highest: highest, now) }
        unit.reply = (job.connection, .fileKey(found))
        // Reading does not depend on the rest of the batch.
        unit.failure = unit.reply
    }

    package mutating func close(
        _ units: inout [Unit], now: Timestamp
    ) -> (closing: QueueClosing, group: ChangeGroup) {
        let batch = queue.turn(now: now.queueTime)
        defer { (answers, batchWrites) = ([], [:]) }
        return (QueueClosing(batch: batch, answers: answers), ChangeGroup(batch, to: &units))
    }

    package mutating func closed(_ closing: QueueClosing, isCommitted: Bool, now: Timestamp) {
        if !isCommitted { _ = queue.failed(closing.batch) }
    }

    package mutating func settled(_ closing: QueueClosing, isCommitted: Bool, now: Timestamp) -> Replies {
        writes.known.remove(queue.takeForgottenKeys())
        // A write may end in the batch that queues it; if its unit was rejected, it has never been.
        if isCommitted { record(closing.batch.results.filter { !discarded.contains($0.request.token) }) }
        guard let turn = reply(to: closing, isCommitted: isCommitted, now) else { return [] }
        return [AddressedReply(connection: Self.sender, reply: .turn(turn))]
    }

    package mutating func restore(_ kind: RecordKind, name: String) {
        let store = store
        switch kind {
        case .directoryAccount, .directoryDevice: directory.restore(kind, name: name, from: store)
        case .mailbox, .mailboxEntry, .sharedCiphertext, .sent, .blob, .pushToken:
            mailboxes.restore(kind, name: name, from: store)
        case .preKey, .ownDevices, .peer, .senderKey, .hold, .network, .policyWithRooms, .chat, .chatMessage,
            .chatIndex, .chatWaiting, .chatTimer, .chatGroup, .publishedConfig:
            break
        }
    }

    /// Keeps a call that waits for entries, or answers those that wait for what this job stores.
    private mutating func waitForMail(_ job: MailJob, _ answer: MailAnswer, _ unit: inout Unit) {
        switch (job.request, answer) {
        case (.fetch(_, waits: true), .entries(let entries, more: false)) where entries.isEmpty:
            guard let device = job.device else { return }
            mailWaiters.add(job.connection, job.id, for: device)
        case (.post(_, let recipients, _), .accepted): wake(recipients.map(\.device), &unit)
        case (.receipt(_, _, let account), .accepted): wake(directory[account]?.devices.keys.map(\.self) ?? [], &unit)
        case (.register, .accepted): wake(directory[job.account]?.devices.keys.map(\.self) ?? [], &unit)
        default: break
        }
    }

    /// Removes what waits for devices that are not their accounts' any more: another account may publish their ids at once.
    private mutating func removeMail(of devices: [DeviceID], _ unit: inout Unit) {
        for device in devices { mailboxes.remove(device, &unit.changes) }
        guard let push, !devices.isEmpty else { return }
        unit.onCommit { _, _, _ in
            for device in devices { push.setToken(nil, of: device) }
        }
    }

    /// Tells the push queue what waits for devices, and what they have fetched.
    private func notePush(_ job: MailJob, _ answer: MailAnswer, _ now: Timestamp, _ unit: inout Unit) {
        guard let push else { return }
        let tokens = mailboxes.pushTokens.all
        switch (job.request, answer) {
        case (.post(_, let recipients, _), .accepted):
            let devices = recipients.map(\.device).filter { tokens[$0] != nil }
            guard !devices.isEmpty else { return }
            unit.onCommit { _, _, _ in push.wait(devices, now: now.monotonic) }
        case (.register, .accepted):
            let devices = (directory[job.account]?.devices.keys.map(\.self) ?? []).filter { tokens[$0] != nil }
            unit.onCommit { _, _, _ in push.wait(devices, now: now.monotonic) }
        case (.fetch, .entries): job.device.map { push.fetched($0) }
        case (.setPushToken(let token), .done):
            guard let device = job.device else { return }
            unit.onCommit { _, _, _ in push.setToken(token, of: device) }
        case (.dropPushToken, .done):
            guard let device = job.device, tokens[device] == nil else { return }
            unit.onCommit { _, _, _ in push.setToken(nil, of: device) }
        default: break
        }
    }

    private func wake(_ devices: [DeviceID], _ unit: inout Unit) {
        guard mailWaiters.holds(devices) else { return }
        unit.onCommit { state, replies, _ in
            replies += state.mailWaiters.take(devices).map { waiter in
                AddressedReply(
                    connection: waiter.connection, reply: .mail(id: waiter.call, .entries([], more: true)))
            }
        }
    }

    // MARK: Calls between devices without keys

    private mutating func callRelay(_ job: CallRelayJob, _ now: Timestamp, _ unit: inout Unit) {
        let answer: CallRelayAnswer
        switch job.request {
        case .post(let message):
            do throws(CallRelayRefusal) {
                try callRelay.post(message, from: job.device, now: now)
                answer = .accepted
            } catch {
                answer = .refused(error)
            }
            wakeCalls(&unit)
        case .fetch(let after, let waits):
            let page = callRelay.entries(for: job.device, after: after, now: now)
            // Before this call waits itself.
            wakeCalls(&unit)
            if waits, page.entries.isEmpty { relayWaiters.add(job.connection, job.id, for: job.device.account) }
            answer = .entries(page.entries, more: page.more)
        }
        unit.reply = (job.connection, .callRelay(id: job.id, answer))
        // It depends on nothing in the store.
        unit.failure = unit.reply
    }

    /// Answers the calls that wait for what the relay has now. It is in memory, so it is there without the commit too.
    private mutating func wakeCalls(_ unit: inout Unit) {
        let woken = relayWaiters.take(callRelay.takeWoken().sorted()).map { waiter in
            AddressedReply(
                connection: waiter.connection, reply: JSONReply.callRelay(id: waiter.call, .entries([], more: true)))
        }
        guard !woken.isEmpty else { return }
        unit.onCommit { _, replies, _ in replies += woken }
        unit.onRollback { _, _, replies, _ in replies += woken }
    }

    package var isPublished: (DeviceID) -> Bool { { [directory] in directory.isPublished($0) } }

    package mutating func randomBytes(_ count: Int) -> [UInt8] { vault.randomBytes(count) }
}
