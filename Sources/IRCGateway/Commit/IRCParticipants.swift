// The participants of an IRC gateway's transactions: the vault, the request queue, opened lines that were not yet
// shown, and by role the directory or the person's own device. Each job is passed to the part that does it.

package import CommitLoop
import DeviceDirectory
import DeviceSessions
package import Devices
package import DoubleRatchet
package import Envelope
package import Outbox
package import Protection
package import RequestQueue
package import StorePort
package import Vault

/// What the participants of a gateway are, with the state that only this role has.
///
/// Both states are objects, so that a switch over the role copies no state.
enum ParticipantRole {
    /// In front of a backend, with the directory of people's own devices.
    case front(GatewayDirectory)
    /// Beside one person's client, with the person's own device.
    case sidecar(OwnDevice)
}

/// The state behind the store of an IRC gateway. One thread at a time uses it.
package struct IRCParticipants {
    /// Ours: how long a message may remain unopened before its sender is notified. In milliseconds.
    package static var unopenedAge: Int64 { 20_000 }

    package struct InFlight {
        /// What never changes. All copies share it, because an entry is copied several times until its request is done.
        private final class Content {
            let account: AccountID
            let request: Request

            init(_ account: AccountID, _ request: Request) { (self.account, self.request) = (account, request) }
        }

        package var connection: ConnectionID?
        private let content: Content
        package var account: AccountID { content.account }
        /// The committed request, which another connection of the account may send again.
        package var request: Request { content.request }
        package var acknowledgedAt: Int64?
        package var remoteID: String?
        var isOpened = false
        /// For a message to a room, in the count of ``RoomTable``: when it was sealed, and when the backend had it at
        /// the latest.
        package var sealedAt: UInt64 = 0
        var relayedAt: UInt64?

        init(connection: ConnectionID?, account: AccountID, request: Request) {
            (self.connection, content) = (connection, Content(account, request))
        }
    }

    package let vault: Vault
    let rooms: RoomTable
    let openedMessages: OpenedMessages
    let outbox: OutboxTables
    /// How long a request may wait for its sender or its recipient, in milliseconds.
    let requestAge: Int64
    /// How many requests of one account may wait at a time; more are rejected.
    let pendingLimit: Int
    var queue: QueueMachine
    /// Connections that have asked for their requests in the open batch and still want them, with their last ticket.
    var recoveries: [ConnectionID: UInt64] = [:]
    /// Accounts whose waiting requests could not be returned, with the connection that asked for them.
    var unrecovered: [AccountID: ConnectionID] = [:]
    /// How many messages expired while their sender was away, by sender and by name of the recipient.
    var expired: [AccountID: [ExactText: Int]] = [:]
    /// How many lines a sealed message may take; a longer one is rejected.
    package var messageLines = Armour.maximumFragments
    /// Whether a delivery from before this start is known to have been written to a client's socket.
    let wasDelivered: @Sendable (UInt64) -> Bool
    var inFlight: [UInt64: InFlight] = [:]
    var recoveredAccounts: Set<AccountID> = []
    /// The numbers of requests, which are message ids too.
    var requestIDs: IDSequence
    let lastOldDelivery: UInt64
    var deliveryIDs: IDSequence
    var copies = OpenedCopies()
    let role: ParticipantRole
    /// Requests that the queue dispatched in the batch whose outcome is being handled, by account.
    var dispatched: [AccountID: [QueueBatch.Dispatch]] = [:]
    /// The message that the current job has opened, for connections that wait for the same line.
    var openedMessage: OpenedMessage?
    var roomDeliveries = RoomDeliveries()
    var unreadCounts = UnreadCounts()
    var relayTimes = RelayTimes()
    /// Called with a description of each job that is for the other role and was refused. No part of a gateway submits one.
    package var onOtherRole: @Sendable (String) -> Void = { _ in }

    /// Warnings for the operator, found when the store was opened.
    package var warnings: [String] {
        switch role {
        case .front(let directory): directory.warnings
        case .sidecar: []
        }
    }

    /// Sessions of the person's own device whose record cannot be read.
    package var unreadable: Set<SessionID> {
        switch role {
        case .front: []
        case .sidecar(let own): own.unreadable
        }
    }

    /// Sets what is called once in the life of a process for each session whose record cannot be read.
    package func reportUnreadable(to report: @escaping @Sendable (SessionID) -> Void) {
        if case .sidecar(let own) = role { own.onUnreadable = report }
    }

    /// The protection of messages that this vault seals: by keys of the gateway or of the person's device.
    var custody: Protection {
        switch role {
        case .front: .gateway
        case .sidecar: .device
        }
    }

    /// Whether this vault holds the person's own device.
    var isSidecar: Bool {
        switch role {
        case .front: false
        case .sidecar: true
        }
    }

    /// Takes over a store.
    ///
    /// - Parameters:
    ///   - role: with what connections see of people's own devices.
    ///   - changes: to be committed before the first job: removed accounts of ended connections, and the queue's turn.
    /// - Throws: ``StoreError`` if a device cannot be unsealed.
    package init(
        network: String, carrier: Carrier, sealer: StorageSealer, store: any Store, latches: LatchTable,
        rooms: RoomTable, openedMessages: OpenedMessages, outbox: OutboxTables = OutboxTables(), requestAge: Int64,
        pendingLimit: Int, now: Timestamp, random: some RandomSource, role: IRCRole,
        wasDelivered: @escaping @Sendable (UInt64) -> Bool, changes: inout [StoreChange]
    ) throws(StoreError) {
        let contents = try store.load()
        var ended: Set<AccountID> = []
        let vault = try Vault(
            network: network, carrier: carrier, sealer: sealer, store: store, latches: latches, random: random,
            contents: contents, ended: &ended)
        (self.rooms, self.openedMessages, self.outbox) = (rooms, openedMessages, outbox)
        (self.requestAge, self.pendingLimit) = (requestAge, pendingLimit)
        self.wasDelivered = wasDelivered
        queue = QueueMachine(Self.queueSettings(requestAge: requestAge), lease: vault.randomNumber())
        requestIDs = IDSequence(vault.sharding, after: contents.highestMessage)
        deliveryIDs = IDSequence(vault.sharding, after: contents.highestDelivery)
        lastOldDelivery = contents.highestDelivery
        switch role {
        case .front(let cache):
            self.role = .front(
                try GatewayDirectory(store: store, cache: cache, isHosted: { vault.holds($0) }, now, &changes))
        case .sidecar(let cache):
            self.role = .sidecar(
                try OwnDevice(
                    Self.ownDevice(vault, now, &changes), sealer: sealer, store: vault.store, latches: latches,
                    cache: cache, &changes))
        }
        self.vault = vault
        for room in contents.devices.map(\.account) where room.roomName != nil {
            for row in try store.deliveries(of: room) { adopt(row, now, &changes) }
        }
        ended.formUnion(try adoptRequests(now))
        try adoptHolds(now, &changes)
        for account in ended.sorted() { changes.append(.forgetAccount(account)) }
        changes += turnQueue(now).changes.map(StoreChange.queue)
        publishCounts()
    }

    /// Loads the person's own device, or makes it.
    private static func ownDevice(
        _ vault: Vault, _ now: Timestamp, _ changes: inout [StoreChange]
    ) throws(StoreError) -> HostedDevice {
        do {
            return try vault.ownDevice(now, &changes)
        } catch let error as StoreError {
            throw error
        } catch {
            throw .corrupt("The device of this sidecar could not be made: \(error).")
        }
    }

    // MARK: Requests in flight

    mutating func track(_ id: UInt64, _ entry: InFlight) {
        var entry = entry
        entry.sealedAt = rooms.time
        inFlight[id] = entry
    }

    mutating func untrack(_ id: UInt64) {
        outbox.gate.end(id)
        guard let entry = inFlight.removeValue(forKey: id) else { return }
        if entry.request.isForRoom { relayTimes.note(id, entry.relayedAt ?? rooms.time) }
    }
}

extension IRCParticipants {
    /// The shard that the id names, which is that of the conversation. The ids of a store that was not divided, and was moved
    /// into one that is, name any shard: what they change is in two.
    private func placement(of job: OpenJob, _ envelope: Envelope) -> Placement {
        let sharding = vault.sharding
        let named = sharding.shard(ofID: envelope.messageID.value)
        guard let sender = vault.owner(of: envelope.sender) else { return .shard(named) }
        return job.recipients.contains { sharding.shard(from: sender, to: $0) == named } ? .shard(named) : .several
    }
}

extension IRCParticipants: VaultHolding, DirectoryHolding {
    package typealias Job = IRCJob
    package typealias Reply = IRCReply
    package typealias Closing = QueueBatch

    package func placement(of job: IRCJob) -> Placement {
        let sharding = vault.sharding
        // The usual store, and that of a person's own device.
        guard !sharding.isSingle else { return .shard(.only) }
        switch job {
        case .seal(let job): return .shard(sharding.shard(from: job.sender, to: job.recipient))
        case .open(let job): return (try? Envelope(job.envelope)).map { placement(of: job, $0) } ?? .unsharded
        case .acknowledged(let id, _), .failed(let id, _): return .shard(sharding.shard(ofID: id))
        case .reset(let conversation), .protect(let conversation, _):
            return .shard(sharding.shard(of: conversation))
        case .act(let act):
            switch act.kind {
            case .drop(let id), .retry(let id), .purge(let id), .hold(.request(let id)), .release(.request(let id)):
                return .shard(sharding.shard(ofID: id))
            case .hold(.account(let account)), .release(.account(let account)):
                return .shard(sharding.shard(of: account))
            }
        case .front(.directory(let job)): return job.owner.map { .shard(sharding.shard(of: $0)) } ?? .several
        case .front(.challenge): return .unsharded
        // Why each touches several shards, and the units into which it divides if the store has several owners:
        // - Delivered lines of one connection are of many conversations. One unit for each shard of the sequences.
        // - A login takes over the requests and lines of its account in all conversations, and a connection that leaves
        //   gives them back. One unit in each shard that has some; the reply joins them.
        // - The end of an account without a login removes its rows in all conversations. One unit in each shard.
        // - Recorded counts are in tables that are not divided. `record` may carry others, so it is not `.unsharded`.
        // - A tick ends old requests and lines everywhere. Each owner has its own, for its shards.
        case .delivered, .recover, .left, .loggedOut, .lost, .forget, .record, .tick: return .several
        // Jobs of a person's own device, whose store is not divided.
        case .sidecar: return .several
        }
    }

    /// Answers a job of another gateway's shard. The end of a request is not recorded: the shard's owner sends it again.
    package mutating func refuse(_ job: IRCJob, now: Timestamp) -> Replies {
        switch job {
        case .seal(let job):
            return [.init(connection: job.connection, reply: .sealFailed(ticket: job.ticket, .notCommitted))]
        case .open(let job):
            var replies = [
                AddressedReply(connection: job.connection, reply: IRCReply.openFailed(ticket: job.ticket, .store))
            ]
            if let line = job.line { answer(line, nil, nil, &replies, now) }
            return replies
        case .act(let act):
            act.answer(.refused(.otherOwner))
            return []
        case .front(.directory(let job)): return [failure(of: job)]
        case .acknowledged, .failed, .reset, .protect, .front(.challenge), .delivered, .recover, .left, .loggedOut,
            .lost, .forget, .record, .tick, .sidecar:
            return []
        }
    }

    /// The jobs of each message are prepared ahead. A person's own device has few messages, and all its state in memory.
    package func lookahead(of job: IRCJob) -> Lookahead {
        guard !isSidecar else { return .none }
        switch job {
        case .seal, .open, .acknowledged: return .repeated
        case .delivered, .record: return .lasting
        case .failed, .recover, .left, .loggedOut, .lost, .forget, .reset, .front, .sidecar, .protect, .act, .tick:
            return .none
        }
    }

    package mutating func prepare(_ job: IRCJob, _ unit: inout Unit, now: Timestamp) {
        switch job {
        case .seal(let job): seal(job, now, &unit)
        case .open(let job): open(job, now, &unit)
        case .acknowledged(let id, let remoteID): acknowledged(id, remoteID, now)
        case .failed(let id, let reason):
            if let entry = inFlight[id] { unreadCounts.note(entry.request) }
            untrack(id)
            giveUp(id, reason, now)
        case .delivered(let sequences): for sequence in sequences { delivered(sequence, &unit.changes) }
        case .recover(let connection, let ticket, let account): recover(connection, ticket, account, &unit)
        case .left(let connection): left(connection, keepsAcknowledged: true, now)
        case .loggedOut(let connection, let account): loggedOut(connection, account, now)
        case .lost(let connection): left(connection, keepsAcknowledged: false, now)
        case .forget(let account, let reason): forget(account, reason, now, &unit)
        case .reset(let conversation): reset(conversation, &unit)
        case .front(let job):
            switch role {
            case .front(let directory): perform(job, in: directory, now, &unit)
            case .sidecar: refuse(job.refusal, "the directory of a gateway in front", &unit)
            }
        case .sidecar(let job):
            switch role {
            case .front: refuse(job.refusal, "a person's own device", &unit)
            case .sidecar(let own): perform(job, own, now, &unit)
            }
        case .protect(let conversation, let names): protect(conversation, names, now, &unit)
        case .act(let job): act(job, now, &unit)
        case .record(let records): unit.changes = records
        case .tick:
            openedMessages.expire(now: now.monotonic)
            expire(now, &unit)
        }
    }

    private mutating func perform(
        _ job: IRCFrontJob, in directory: GatewayDirectory, _ now: Timestamp, _ unit: inout Unit
    ) {
        switch job {
        case .challenge(let connection): challenge(connection, nonce: vault.makeNonce(), &unit)
        case .directory(let job): perform(job, in: directory, now, &unit)
        }
    }

    /// Answers a job that is for the other role, and reports it.
    private func refuse(
        _ reply: (connection: ConnectionID, reply: IRCReply)?, _ owner: String, _ unit: inout Unit
    ) {
        (unit.reply, unit.failure) = (reply, reply)
        onOtherRole(owner)
    }

    /// Whether a remote device is published under an id; hosted devices get other ids.
    package var isPublished: (DeviceID) -> Bool {
        switch role {
        case .front(let directory): { directory.isPublished($0) }
        case .sidecar: { _ in false }
        }
    }

    package mutating func close(
        _ units: inout [Unit], now: Timestamp
    ) -> (closing: QueueBatch, group: ChangeGroup) {
        let batch = turnQueue(now)
        // The turn's other changes concern requests of all shards, in one group: the queue's machine takes the outcome of
        // a turn as a whole. With several owners there is a machine for each shard that is owned, and so a turn and a
        // group for each.
        return (batch, ChangeGroup(batch, to: &units))
    }

    package mutating func closed(_ batch: QueueBatch, isCommitted: Bool, now: Timestamp) {
        guard isCommitted else {
            _ = queue.failed(batch)
            return
        }
        dispatched = waiting(batch.dispatches)
    }

    package mutating func settled(_: QueueBatch, isCommitted: Bool, now: Timestamp) -> Replies {
        giveBackDispatched(now)
        if isCommitted { publishCounts() }
        return []
    }

    package mutating func restore(_ kind: RecordKind, name: String) {
        let store = vault.store
        switch kind {
        case .directoryAccount, .directoryDevice:
            if case .front(let directory) = role { directory.restore(kind, name: name, from: store) }
        case .preKey, .ownDevices, .peer, .senderKey:
            if case .sidecar(let own) = role { own.restore(kind, name: name, from: store) }
        case .mailbox, .mailboxEntry, .sharedCiphertext, .sent, .blob, .hold, .network, .policyWithRooms, .chat,
            .chatMessage, .chatIndex, .chatWaiting, .chatTimer, .chatGroup, .publishedConfig, .pushToken:
            break
        }
    }
}
