// The vault owns hosted devices and their sessions and is the only part that touches private keys. It turns jobs into
// changes of the store and answers that hold after the commit. It knows no thread, no clock and no socket.

package import DeviceDirectory
package import Devices
package import DoubleRatchet
package import Envelope
package import Outbox
package import Protection
import Reports
package import RequestQueue
package import StorePort

/// The changes of some jobs, and what to answer when they are committed.
package struct VaultBatch: Sendable {
    package struct Step: Sendable {
        package var sessions: [SessionID] = []
        var madeDevices: [AccountID] = []
        package var reply: (connection: ConnectionID, reply: VaultReply)?
        package var failure: (connection: ConnectionID, reply: VaultReply)?
        package var latched: Latched?
        /// A conversation that is not protected any more once the step is committed.
        var unlatched: ConversationID?
        /// The requests that the step has inserted.
        package var requests: [UInt64] = []
        /// Peers that have changed, and prekeys that were used.
        package var peers: Set<AccountID> = []
        var touchesDevices = false
        var touchesMail = false
        /// Accounts whose published devices have changed.
        package var published: Set<AccountID> = []
        /// The folded nick that somebody known has been seen under.
        package var alias: (nick: String, peer: AccountID)?
        /// The line that others wait for, and what they get.
        package var line: OpenedMessages.Line?
        package var message: OpenedMessage?
        /// The account whose waiting requests the reply is to bring.
        var recovers: AccountID?
        /// The key of the message that the step has written.
        package var contentKey: ContentKey?
        /// The request that the step has found opened.
        package var opened: UInt64?
        /// An operator's act, why it is not done, and what stood there before it.
        package var act: RequestAct?
        package var refusal: String?
        var wasHeld = false
        package var subject: QueuedRequest?
    }

    /// A conversation that is protected once the step is committed.
    package struct Latched: Sendable {
        package var conversation: ConversationID
        package var account: AccountID
        package var peer: AccountID
        var peerName: String
        var accountName: String
        package var protection = Protection.gateway
    }

    /// Groups of changes for ``Store/commit(_:)``: the sessions first, then one group a step, then the queue's.
    package fileprivate(set) var groups: [[StoreChange]] = []
    fileprivate var sessionGroups: [SessionID] = []
    fileprivate(set) var steps: [Step] = []
    /// What the queue changes, and what it hands out when that is committed.
    fileprivate(set) var queued = QueueBatch()
    package var also: [(connection: ConnectionID, reply: VaultReply)] = []
    /// Sessions whose record was found unreadable in this batch, each once in the life of a process.
    package fileprivate(set) var unreadable: [SessionID] = []
}

/// An answer with its address.
package struct AddressedReply: Sendable {
    package var connection: ConnectionID
    package var reply: VaultReply

    package init(connection: ConnectionID, reply: VaultReply) { (self.connection, self.reply) = (connection, reply) }
}

/// The vault. One thread at a time uses it.
package struct Vault<Random: RandomSource> {
    /// Ours: how long a message that the backend has may remain unopened before its sender is told. In milliseconds.
    package static var unopenedAge: Int64 { 20_000 }
    /// Ours: opened envelopes remembered, so that other connections of the account get their copy.
    static var copyLimit: Int { 2048 }
    /// Bytes that a message of an established session is longer than its plaintext, at most: see the wire format of
    /// DoubleRatchet.
    static var ratchetOverhead: Int { Session.maximumOverhead }

    package struct InFlight {
        package var connection: ConnectionID?
        package var account: AccountID
        /// As it was committed, to be sent again by another connection of the account.
        package var request: Request
        package var acknowledgedAt: Int64?
        package var remoteID: String?
        var isOpened = false
        /// For a message to a room, in the count of ``RoomTable``: when it was sealed, and by when the backend had it.
        package var sealedAt: UInt64 = 0
        var saidAt: UInt64?
    }

    package struct CopyKey: Hashable {
        package let sender: DeviceID
        package let message: MessageID
        package let recipient: AccountID
    }

    package let network: String
    /// Names that the network had before; what was sealed under them is still opened.
    package var earlierNetworks: [String] = []
    /// How the chat protocol carries envelopes; its name is bound to each of them.
    package let carrier: Carrier
    package let store: any Store
    package let latches: LatchTable
    package let rooms: RoomTable
    package let openedMessages: OpenedMessages
    package let desk: RequestDesk
    /// How long a request may wait for its sender or its recipient, in milliseconds.
    package let requestAge: Int64
    /// How many requests of one account may wait at a time; more are refused.
    package let pendingLimit: Int
    /// The requests.
    package var queue: QueueMachine
    /// Accounts that could not be given what waits, with the connection that had asked.
    var unrecovered: [AccountID: ConnectionID] = [:]
    /// How many messages were given up for their age while nobody could be told, by sender and by name of the recipient.
    package var lapsed: [AccountID: [ExactText: Int]] = [:]
    /// How many lines a sealed message may take; a longer one is refused.
    package var messageLines = Armour.maximumFragments
    /// How long the keys of what was written are kept, in milliseconds; at zero they are kept in memory only.
    package var historyRetention: Int64 = 365 * 86_400_000
    /// Keys of messages that were written or read last.
    package var contentKeys = RememberedKeys()
    /// When the store is to be asked next for keys that are due, in monotonic nanoseconds.
    var prunesKeysAt: Int64 = 0
    /// Whether a delivery of before this start is known to have been written to a client's socket.
    package let wasDelivered: @Sendable (UInt64) -> Bool
    package let sealer: StorageSealer
    package var keeper: SessionKeeper<Random>
    package var conversations: Set<ConversationID> = []
    /// The message that has protected a conversation, as long as nothing else was sealed there.
    var firstMessages: [ConversationID: MessageID] = [:]
    package var inFlight: [UInt64: InFlight] = [:]
    var recoveredAccounts: Set<AccountID> = []
    let lastOldDelivery: UInt64
    var lastDelivery: UInt64
    package var copies: [CopyKey: OpenedMessage] = [:]
    var copyOrder: [CopyKey] = []
    /// The person's own device; nothing where the vault holds other people's.
    package var devices: DeviceKeeper?
    /// The public keys of people's own devices; nothing in a sidecar.
    package var directory: Directory?
    /// Letters and blobs of their devices.
    var mailroom: Mailroom?
    /// When the next look at what has waited for too long is due, in monotonic nanoseconds.
    var prunesMailAt: Int64 = 0
    /// What connections see of it.
    let directoryTable: DirectoryTable
    /// Sessions that the present job has replaced, in case it fails.
    var replacedSessions: [(SessionID, SessionBox?)] = []
    /// The room whose key the present job has moved on, in case it fails.
    var openedRoomKey: String?
    /// What connections see of ``devices``.
    let peerTable: PeerTable
    var roomDeliveries = RoomDeliveries()
    var unheard = UnheardCounts()
    package var said = SaidTimes()
    /// Sessions with devices elsewhere whose record cannot be read, and those of them that nobody has been told about.
    package var unreadable: Set<SessionID> = []
    var unreadableFound: [SessionID] = []
    /// What an operator has to know of the store, found when it was opened.
    package internal(set) var warnings: [String] = []

    /// Takes over a store.
    ///
    /// - Parameters:
    ///   - peers: given where the vault holds a person's own device, for what connections see of it.
    ///   - directory: given in a front gateway, for what connections see of published devices.
    ///   - changes: what is to be committed before the first job: accounts of ended connections are forgotten, and the queue goes
    ///     on.
    /// - Throws: ``StoreError`` where a device cannot be unsealed.
    package init(
        network: String, carrier: Carrier, sealer: StorageSealer, store: any Store, latches: LatchTable,
        rooms: RoomTable,
        openedMessages: OpenedMessages, desk: RequestDesk = RequestDesk(), requestAge: Int64,
        pendingLimit: Int = 256, now: Moment, random: Random, peers: PeerTable? = nil, directory: DirectoryTable? = nil,
        wasDelivered: @escaping @Sendable (UInt64) -> Bool, changes: inout [StoreChange]
    ) throws(StoreError) {
        peerTable = peers ?? PeerTable()
        directoryTable = directory ?? DirectoryTable()
        self.network = network
        self.carrier = carrier
        self.sealer = sealer
        self.store = store
        self.latches = latches
        self.rooms = rooms
        self.openedMessages = openedMessages
        self.desk = desk
        (self.requestAge, self.pendingLimit) = (requestAge, pendingLimit)
        self.wasDelivered = wasDelivered
        keeper = SessionKeeper(sealer: sealer, store: store, random: random)
        queue = QueueMachine(
            Self.queueSettings(requestAge: requestAge), lease: keeper.randomNumber())
        let contents = try store.load()
        lastDelivery = contents.highestDelivery
        lastOldDelivery = contents.highestDelivery
        try keeper.adopt(contents.devices.filter { $0.account.isVerified })
        if directory != nil { try openDirectory(now, &changes) }
        if directory != nil { mailroom = try Mailroom(store: store) }
        if peers != nil { try holdOwnDevice(sealer, now, &changes) }
        for room in contents.devices.map(\.account) where room.roomName != nil {
            for row in try store.deliveries(of: room) { adopt(row, now, &changes) }
        }
        var ended = Set(contents.devices.map(\.account).filter { !$0.isVerified })
        for row in contents.conversations {
            guard row.id.first.isVerified, row.id.second.isVerified else {
                ended.formUnion([row.id.first, row.id.second].filter { !$0.isVerified })
                continue
            }
            conversations.insert(row.id)
            latches.raise(row.id, to: row.latch)
            latches.remember(name: row.peerNameForFirst, of: row.id.second, for: row.id.first)
            latches.remember(name: row.peerNameForSecond, of: row.id.first, for: row.id.second)
        }
        ended.formUnion(try adoptRequests(highestMessage: contents.highestMessage, now))
        try adoptHolds(now, &changes)
        for account in ended.sorted() {
            changes.append(.forgetAccount(account))
        }
        changes += turnQueue(now).changes.map(StoreChange.queue)
        publishCounts()
    }

    // MARK: Jobs

    /// Does jobs in their order. Nothing of it counts before ``settle(_:committed:)``.
    package mutating func perform(_ jobs: [VaultJob], now: Moment) -> VaultBatch {
        var batch = VaultBatch()
        var stepGroups: [[StoreChange]] = []
        for job in jobs {
            var changes: [StoreChange] = []
            var step = VaultBatch.Step()
            switch job {
            case .seal(let job): seal(job, now, &changes, &step)
            case .open(let job): open(job, now, &changes, &step)
            case .write(let job): write(job, now, &changes, &step)
            case .read(let job): read(job, now, &step)
            case .acknowledged(let id, let remoteID): acknowledged(id, remoteID, now)
            case .failed(let id, let reason):
                if let entry = inFlight[id] { unheard.note(entry.request) }
                untrack(id)
                giveUp(id, reason, now)
            case .delivered(let sequences): for sequence in sequences { delivered(sequence, &changes) }
            case .recover(let connection, let ticket, let account):
                recover(connection, ticket, account, &changes, &step)
            case .left(let connection): left(connection, keepsAcknowledged: true, now)
            case .loggedOut(let connection, let account): loggedOut(connection, account, now)
            case .lost(let connection): left(connection, keepsAcknowledged: false, now)
            case .forget(let account, let reason): forget(account, reason, now, &changes)
            case .reset(let conversation):
                conversations.remove(conversation)
                changes.append(.removeConversation(conversation))
            case .introduce(let connection, let ticket, let capacity):
                introduce(connection, ticket, capacity, now, &changes, &step)
            case .decide(let name, let decision): decide(name, decision, &changes, &step)
            case .revoke(let device): revoke(device, &changes, &step)
            case .askRoom(let job): ask(job, now, &changes, &step)
            case .challenge(let connection): challenge(connection, &step)
            case .directory(let job): directory(job, now, &changes, &batch, &step)
            case .mail(let job): mail(job, now, &changes, &step)
            case .refused(let conversation, let message): refused(conversation, message, &changes, &step)
            case .protect(let conversation, let names): protect(conversation, names, now, &changes, &step)
            case .publish(let connection, let nonce, let account):
                publish(connection, nonce, account, now, &changes, &step)
            case .replenish(let connection): replenish(connection, now, &changes, &step)
            case .found(let job): found(job, now, &changes, &step)
            case .act(let job): act(job, now, &changes, &step)
            case .record(let records): changes = records
            case .tick:
                openedMessages.expire(now: now.monotonic)
                pruneKeys(now, &changes)
                pruneMail(now, &changes, &step)
                for (connection, reply) in expire(now, &changes) {
                    batch.steps.append(.init(reply: (connection, reply)))
                    stepGroups.append([])
                }
            }
            batch.steps.append(step)
            stepGroups.append(changes)
            // Answers to others go out with the step that caused them.
            for also in batch.also {
                batch.steps.append(.init(reply: also))
                stepGroups.append([])
            }
            batch.also = []
        }
        batch.queued = turnQueue(now)
        (batch.unreadable, unreadableFound) = (unreadableFound, [])
        do {
            for (id, change) in try keeper.takeChanges() {
                batch.sessionGroups.append(id)
                batch.groups.append([change])
            }
        } catch {
            // Sealing under a key in memory does not fail; if it did, nothing of this batch may count.
            for step in batch.steps.indices {
                batch.steps[step].reply = batch.steps[step].failure
                batch.steps[step].message = nil
                batch.steps[step].contentKey = nil
            }
            stepGroups = stepGroups.map { _ in [] }
            _ = queue.failed(batch.queued)
            batch.queued = QueueBatch()
        }
        batch.groups += stepGroups
        batch.groups.append(batch.queued.changes.map(StoreChange.queue))
        return batch
    }

    /// Takes the outcome of the commit and gives the answers.
    ///
    /// - Parameter committed: what ``Store/commit(_:)`` returned, or nothing where it threw.
    package mutating func settle(_ batch: VaultBatch, committed: [StoreError?]?, now: Moment) -> [AddressedReply] {
        var replies: [AddressedReply] = []
        guard let committed else {
            _ = queue.failed(batch.queued)
            for step in batch.steps {
                undo(step)
                notRecovered(step)
                answer(step, step.failure, nil, now, &replies)
                if let act = step.act { replies += finish(act, step, now, isCommitted: false) }
            }
            return replies
        }
        publishCounts()
        let lost = Set(zip(batch.sessionGroups, committed).filter { $0.1 != nil }.map(\.0))
        keeper.drop(lost)
        let outcomes = committed.dropFirst(batch.sessionGroups.count)
        var handedOut = handOut(batch)
        for (step, failure) in zip(batch.steps, outcomes) {
            guard failure == nil, lost.isDisjoint(with: step.sessions) else {
                undo(step)
                // Its sessions are another gateway's, and so are the requests that they sealed.
                for id in step.requests { giveUp(id, Remarks.gone, now) }
                answer(step, step.failure, nil, now, &replies)
                if let act = step.act { replies += finish(act, step, now, isCommitted: false) }
                continue
            }
            if let conversation = step.unlatched { latches.reset(conversation) }
            if let latched = step.latched {
                latches.raise(latched.conversation, to: latched.protection)
                latches.remember(name: latched.peerName, of: latched.peer, for: latched.account)
                latches.remember(name: latched.accountName, of: latched.account, for: latched.peer)
            }
            note(step, now)
            if let key = step.contentKey { contentKeys.remember(key) }
            if let act = step.act { replies += finish(act, step, now, isCommitted: true) }
            for account in step.published { directoryTable.put(account, directory?.accounts[account]) }
            for name in step.peers { peerTable[name] = devices?.peers[name] }
            if let alias = step.alias { latches.remember(name: alias.nick, of: alias.peer, for: .own) }
            if step.touchesDevices { peerTable.own = devices.map { OwnDevices(chain: $0.chain, device: $0.device.id) } }
            tellLapsed(step, &replies)
            answer(step, reply(to: step, &handedOut, now), step.message, now, &replies)
        }
        return replies
    }

    /// The answer to a step, and what comes of it for those who wait for the same message.
    private func answer(
        _ step: VaultBatch.Step, _ reply: (connection: ConnectionID, reply: VaultReply)?, _ message: OpenedMessage?,
        _ now: Moment, _ replies: inout [AddressedReply]
    ) {
        if let reply { replies.append(AddressedReply(connection: reply.connection, reply: reply.reply)) }
        guard let line = step.line else { return }
        for waiter in openedMessages.finish(line, message, now: now.monotonic) {
            replies.append(
                AddressedReply(connection: waiter.connection, reply: .copied(ticket: waiter.ticket, message)))
        }
    }

    /// Writes down what is committed, for reports.
    private func note(_ step: VaultBatch.Step, _ now: Moment) {
        for id in step.requests { desk.traces.note(.committed, of: id, at: now.wall) }
        if let id = step.opened { desk.traces.note(.opened, of: id, at: now.wall) }
    }

    private mutating func undo(_ step: VaultBatch.Step) {
        keeper.drop(step.sessions)
        for account in step.madeDevices { keeper.drop(device: account) }
        if let latched = step.latched {
            conversations.remove(latched.conversation)
            firstMessages[latched.conversation] = nil
        }
        if let conversation = step.unlatched { conversations.insert(conversation) }
        if !step.published.isEmpty { directory = (try? Directory(store: store)) ?? directory }
        if step.touchesMail { mailroom = (try? Mailroom(store: store)) ?? mailroom }
        if step.touchesDevices {
            let store = store
            devices?.reload(store)
        }
        for request in step.requests { untrack(request) }
    }

    mutating func track(_ id: UInt64, _ entry: InFlight) {
        var entry = entry
        entry.sealedAt = rooms.time
        inFlight[id] = entry
    }

    mutating func untrack(_ id: UInt64) {
        desk.gate.end(id)
        guard let entry = inFlight.removeValue(forKey: id) else { return }
        if entry.request.isForRoom { said.note(id, entry.saidAt ?? rooms.time) }
    }
}
