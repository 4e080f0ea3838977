// The machine of a messenger: the person's own device, the history of their chats, and the requests to the server. One
// job is one unit of work: the ratchet step, the rows of messages and the requests are committed together or not at all.
//
// It has no socket, thread, clock or source of randomness of its own. If a commit fails, its owner makes a new machine
// from the store: so nothing here is rolled back in memory, except what a job has done before it fails by itself.

package import CommitLoop
package import DeviceSessions
package import Devices
package import DoubleRatchet
package import Envelope
import Outbox
package import Protection
package import RequestQueue
package import StorePort
package import Vault

extension Carrier {
    /// Apps that carry envelopes by calls of their own. The limits are those of JSON backends.
    package static let app = Carrier(protocolName: "app", maximumLength: Carrier.json.maximumLength)
}

/// The state of a messenger behind its store. One thread at a time uses it.
package struct MessengerParticipants: VaultHolding {
    package typealias Job = MessengerJob
    package typealias Reply = MessengerReply
    package typealias Closing = QueueBatch

    /// The ticket of replies that belong to no job: events and attempts.
    package static let events: UInt64 = 0

    package let vault: Vault
    package let own: OwnDevice
    /// The person's name at the server.
    package let account: String
    let sealer: StorageSealer
    package internal(set) var queue: QueueMachine
    var ids: IDSequence
    /// Whether envelopes for several devices are sent as one. The transport may change it at any time.
    package var sendsSeveral = false
    /// Whether receipts are sealed messages, because the transport has no call for them.
    var sealsReceipts = false
    /// All chats. Most jobs change one, so it is not in ``Memory``: they would copy it. A rollback takes a change back.
    var summaries: [AccountID: ChatSummary] = [:]
    /// What a job that fails by itself leaves as it was.
    struct Memory {
        /// Messages that wait for keys, by chat, in their order.
        var waiting: [AccountID: [UInt64]] = [:]
        /// The requests of messages that have not ended, by the place of the message.
        var open: [UInt64: Set<UInt64>] = [:]
        var lanes = DeviceLanes()
        /// How many versions a person's list had when their keys were last read in this process.
        var checked: [AccountID: Int] = [:]
        /// Chats whose latch is up, uncommitted ones included.
        var latched: Set<AccountID> = []
        var groups: [GroupID: GroupState] = [:]
        /// Versions of groups that have to be read, with the numbers of their rows.
        var wantedGroups: [GroupReference: UInt64] = [:]
        /// Those whose messages have named these versions, by the numbers of the rows; some rows may be removed already.
        var wanters: [UInt64: AccountID] = [:]
        /// Messages that wait for such versions, in their order.
        var held: [HeldMessage] = []
        /// When the text of a message is deleted, by time.
        var expiries: [(at: Int64, chat: AccountID, sequence: UInt64)] = []
        /// The account's keys as they are published.
        var published: PublishedKeys?
        /// The list that this device has asked to be added to; nil if there is none.
        var joining: IdentityKey?
        /// What this device has of the account's history; nil if it waits for none.
        var history: HistoryState?
        /// Whether the store is an earlier copy, and the account's keys were not read since.
        var isRestored = false
        /// Devices that were not told of a new session since then.
        var lost: Set<DeviceID> = []
        /// Rows that the open batch has changed.
        var rows = UncommittedRows()
    }

    var memory = Memory()
    /// Whether the app was told in this process that a fork of the own list is published.
    var hasReportedOwnFork = false
    /// People whose keys the open job needs. They are reported even if the job is refused.
    private var wantedKeys: [String] = []
    /// When this process has asked for a part of the history, in milliseconds of uptime, and the pause after it.
    var historyAsked: (at: Int64, pause: Int64)?
    /// When this process has asked for new sessions after a restore, in milliseconds of uptime, and the pause after it.
    var lostAsked: (at: Int64, pause: Int64)?
    /// When this process has asked to be added to the account, in milliseconds of uptime, and the pause after it.
    var joinAsked: (at: Int64, pause: Int64)?
    /// The version of the own list with which this process has asked for its keys to be published again.
    var registered: Int?
    /// When this process has last asked for a new session with a device, in nanoseconds of uptime.
    var renewals: [DeviceID: Int64] = [:]
    /// When this process has last sent messages again to a device that has lost its session, in nanoseconds of uptime.
    var resent: [DeviceID: [Int64]] = [:]
    /// How many copies of a device's texts this process has confirmed, and since when, in nanoseconds of uptime.
    var confirmedCopies: [DeviceID: (since: Int64, count: Int)] = [:]
    private var dispatches: [QueueBatch.Dispatch] = []
    /// Requests of unprotected texts that are not sent any more. The next tick takes them back.
    var unsendable: Set<UInt64> = []

    /// Takes over a store; makes the device at the first start.
    ///
    /// - Parameters:
    ///   - carrier: ``Carrier/irc`` for transports with keys in band, else ``Carrier/app``.
    ///   - peers: shows people's devices to other threads.
    ///   - changes: to be committed before the first job.
    /// - Throws: ``StoreError``
    package init(
        account: String, carrier: Carrier = .app, sealer: StorageSealer, store: any Store, peers: PeerCache,
        now: Timestamp, random: some RandomSource, settings: QueueMachine.Settings = Self.queueSettings(),
        _ changes: inout [StoreChange]
    ) throws(StoreError) {
        let contents = try store.load()
        var ended: Set<AccountID> = []
        let latches = LatchTable()
        let vault = try Vault(
            network: "", carrier: carrier, sealer: sealer, store: store, latches: latches, random: random,
            contents: contents, ended: &ended)
        (self.account, self.sealer) = (account, sealer)
        let device: HostedDevice
        do {
            device = try vault.ownDevice(now, &changes)
        } catch {
            throw (error as? StoreError) ?? .corrupt("The device of this messenger could not be made: \(error).")
        }
        own = try OwnDevice(device, sealer: sealer, store: vault.store, latches: latches, cache: peers, &changes)
        queue = QueueMachine(settings, lease: vault.randomNumber())
        queue.restore(try store.queueContents(), now: now.queueTime)
        ids = IDSequence(vault.sharding, after: max(contents.highestMessage, queue.highestID))
        for row in contents.conversations where row.id.first == .own || row.id.second == .own {
            memory.latched.insert(row.id.first == .own ? row.id.second : row.id.first)
        }
        self.vault = vault
        do {
            try load(store)
        } catch let error as StoreError {
            throw error
        } catch {
            throw .corrupt("A row of the messenger's history is damaged. Bring back a backup.")
        }
    }

    private mutating func load(_ store: any Store) throws {
        for row in try store.records(.chat) {
            let chat = AccountID(text: row.name)
            let bytes = try sealer.open(row.value, label: Self.label(row))
            summaries[chat] = try ChatSummary(chat: chat, bytes: bytes)
        }
        for row in try store.records(.chatWaiting) {
            let (chat, sequence) = try Self.place(row.name)
            memory.waiting[chat, default: []].append(sequence)
        }
        for row in try store.records(.chatTimer) {
            guard let at = UInt64(hexadecimal: row.name.prefix(16)) else { throw EnvelopeError.malformed }
            let (chat, sequence) = try Self.place(String(row.name.dropFirst(17)))
            memory.expiries.append((Int64(at), chat, sequence))
        }
        for row in try store.records(.chatGroup) { try loadGroup(row) }
        if let row = try store.record(.ownDevices, name: Self.publishedRecord) {
            memory.published = try PublishedKeys(row.value)
        }
        if let row = try store.record(.ownDevices, name: Self.joiningRecord) {
            memory.joining = try IdentityKey(row.value.span)
        }
        memory.isRestored = try store.record(.ownDevices, name: Self.restoredRecord) != nil
        if let row = try store.record(.ownDevices, name: Self.lostRecord) { memory.lost = try Self.devices(row.value) }
        if let row = try store.record(.ownDevices, name: Self.historyRecord) {
            memory.history = try HistoryState(sealer.open(row.value, label: Self.label(row)))
        }
        for request in queue.requests {
            guard let call = QueuedCall(request) else { continue }
            noteUsed(request.id + call.reservedIDs)
            if let lane = request.lane { memory.lanes.begin(call.devices, in: lane) }
            guard let sequence = call.sequence else { continue }
            memory.open[sequence, default: []].insert(request.id)
        }
        for id in summaries.values.map(\.last) { noteUsed(id) }
    }

    mutating func noteUsed(_ id: UInt64) {
        if id > ids.highest { ids = IDSequence(vault.sharding, after: id) }
    }

    /// Ours: how the queue tries. A call of the transport without an end counts as failed after a minute; a message
    /// that no attempt has brought to the server in three weeks has failed.
    package static func queueSettings() -> QueueMachine.Settings {
        var settings = QueueMachine.Settings()
        // One app has one person: nobody else needs a share.
        (settings.limits.requestsPerTenant, settings.limits.bytesPerTenant) = (.max, .max)
        (settings.limits.requests, settings.limits.bytes) = (.max, .max)
        settings.limits.inFlightPerTenant = settings.limits.inFlight
        // The rows of messages have their outcome. Those that are kept are read at the start, with their envelopes.
        (settings.limits.retention, settings.limits.finished) = (60_000, 100)
        (settings.limits.deadRetention, settings.limits.deadLetters) = (60_000, 1000)
        // An app may be ended at any time, also many times while one message is under way. That is no sign that the message
        // is the cause, and nobody would release what is held.
        settings.limits.crashes = .max
        settings.attemptTimeout = 60_000
        settings.backoff = Backoff(base: 500, cap: 60_000)
        return settings
    }

    static let publishedRecord = "published"
    static let joiningRecord = "joining"
    static let historyRecord = "history"

    /// Whether this device may add and remove devices: it has made the account's list.
    package var isMaster: Bool { memory.joining == nil && own.deviceList.root == own.device.identity.publicKey }

    /// Whether the person's own list has this device.
    package var isAdopted: Bool { memory.joining == nil }

    /// Whether this device has published its keys, or has asked to be added to the account.
    package var isRegistered: Bool { memory.published != nil || memory.joining != nil }

    /// People whose keys are needed for messages that wait; the person's own ones if those of another own device are.
    package var waitingUsers: [String] {
        var users = Set(memory.waiting.keys.map(\.name))
        if !users.isEmpty, !hasOwnSessions { users.insert(account) }
        return users.sorted()
    }

    /// Whether all other devices of the person can get copies.
    private var hasOwnSessions: Bool { (try? hasSessions(.own, own.deviceList)) ?? true }

    /// When a ``MessengerJob/tick`` is due at the latest, in milliseconds of uptime; nil if none is.
    package func nextWake(_ now: Timestamp) -> Int64? {
        let expiry = memory.expiries.map(\.at).min().map { now.queueTime.uptime + max($0 - now.wall, 0) }
        let withdrawal = unsendable.isEmpty ? nil : now.queueTime.uptime
        return [queue.nextWake(), expiry, withdrawal, nextHistoryWake, nextLostWake, nextJoinWake]
            .compactMap(\.self).min()
    }

    package var isPublished: (DeviceID) -> Bool { { _ in false } }

    package func placement(of job: MessengerJob) -> Placement { .shard(.only) }

    /// None: a person has few messages, and the jobs see each other's completions.
    package func lookahead(of job: MessengerJob) -> Lookahead { .none }

    package mutating func refuse(_ job: MessengerJob, now: Timestamp) -> Replies { [] }

    package mutating func prepare(_ job: MessengerJob, _ unit: inout Unit, now: Timestamp) {
        switch job {
        case .send(let ticket, let job): send(job, ticket, now, &unit)
        case .signal(let ticket, let job):
            perform(ticket, now, &unit) { state, unit in try state.send(job, now, &unit) }
        case .receive(let ticket, let bytes, let user, let hasKeys):
            receive(bytes, from: user, hasKeys, ticket, now, &unit)
        case .receivePlaintext(let ticket, let text, let user, let id):
            receive(text, id, from: user, ticket, now, &unit)
        case .receipt(let ticket, let message, let user, let isRead):
            perform(ticket, now, &unit) { state, unit in
                try state.take([message], isRead: isRead, from: .services(user), &unit)
            }
        case .lost(let ticket, let device, let user, let count):
            perform(ticket, now, &unit) { state, unit in
                state.report(.gap(user, count), &unit)
                state.renewSession(with: device, of: user, now, &unit)
            }
        case .keys(let ticket, let bytes, let user, let sessions, let oneTime):
            take(bytes, of: user, sessions, oneTime, ticket, now, &unit)
        case .replenish(let ticket, let left):
            answer(ticket, now, &unit) { state, unit in
                .oneTimeKeys(try state.own.oneTimeKeys(left: left, now, random: &state.vault.random, &unit.changes))
            }
        case .restored(let ticket):
            perform(ticket, now, &unit) { state, unit in try state.restored(now, &unit) }
        case .found(let ticket):
            perform(ticket, now, &unit) { state, unit in try state.found(now, &unit) }
        case .join(let ticket, let bytes):
            perform(ticket, now, &unit) { state, unit in try state.join(bytes, now, &unit) }
        case .adopt(let ticket, let bytes):
            perform(ticket, now, &unit) { state, unit in try state.adopt(bytes, now, &unit) }
        case .revoke(let ticket, let device):
            perform(ticket, now, &unit) { state, unit in try state.revoke(device, now, &unit) }
        case .decide(let ticket, let user, let decision):
            perform(ticket, now, &unit) { state, unit in try state.decide(user, decision, now, &unit) }
        case .markRead(let ticket, let user):
            perform(ticket, now, &unit) { state, unit in try state.markRead(user, now, &unit) }
        case .setTimer(let ticket, let user, let seconds):
            perform(ticket, now, &unit) { state, unit in
                var summary = state.summary(user.id)
                summary.timer = seconds
                try state.put(summary, &unit)
            }
        case .history(let ticket, let user, let before, let limit):
            history(user, before: before, limit: limit, ticket, &unit)
        case .chats(let ticket):
            let list = summaries.values.sorted { $0.last > $1.last }
            unit.reply = (ConnectionID(ticket), .chats(list))
        case .proposeGroup(let ticket, let change, let base):
            answer(ticket, now, &unit) { state, _ in .proposal(try state.propose(change, of: base)) }
        case .publishedGroup(let ticket, let proposal, let blob):
            answer(ticket, now, &unit) { state, unit in
                .group(try state.published(proposal, blob, now, &unit))
            }
        case .readGroup(let ticket, let reference, let bytes, let hasKeys):
            answer(ticket, now, &unit) { state, unit in
                try state.read(reference, bytes, hasKeys, now, &unit)
            }
        case .groups(let ticket):
            unit.reply = (ConnectionID(ticket), .groups(groups))
        case .introduce(let ticket): answer(ticket, now, &unit) { state, unit in try state.introduce(now, &unit) }
        case .sendsSeveral(let isOn): sendsSeveral = isOn
        case .authenticated(let isAuthenticated): queue.setSession(account, present: isAuthenticated)
        case .attempted(let id, let lease, let end, let random):
            attempted(id, lease: lease, end, random, now, &unit)
        case .tick:
            withdrawPlaintexts(now, &unit)
            expire(now, &unit)
            askAgainForHistory(now, &unit)
            askAgainToJoin(now, &unit)
            askForLost(now, &unit)
        }
    }

    /// Does a job that is done or refused as a whole.
    private mutating func perform(
        _ ticket: UInt64, _ now: Timestamp, _ unit: inout Unit, _ body: (inout Self, inout Unit) throws -> Void
    ) {
        answer(ticket, now, &unit) { state, unit in
            try body(&state, &unit)
            return .done
        }
    }

    /// Does a job that is done or refused as a whole, and has a reply of its own.
    private mutating func answer(
        _ ticket: UInt64, _ now: Timestamp, _ unit: inout Unit,
        _ body: (inout Self, inout Unit) throws -> MessengerReply
    ) {
        unit.failure = (ConnectionID(ticket), .refused(.notCommitted))
        let before = checkpoint()
        do {
            unit.reply = (ConnectionID(ticket), try body(&self, &unit))
        } catch {
            goBack(to: before, now, &unit)
            unit.reply = (ConnectionID(ticket), .refused((error as? MessengerRefusal) ?? .notCommitted))
        }
    }

    /// The state before a job. Ratchets that a job has advanced stay advanced.
    mutating func checkpoint() -> (Memory, OwnDevice.Checkpoint) {
        wantedKeys = []
        return (memory, own.checkpoint())
    }

    /// Takes back all that a job has done before it failed, except that it needs keys: a later job may succeed with them.
    mutating func goBack(to before: (Memory, OwnDevice.Checkpoint), _ now: Timestamp, _ unit: inout Unit) {
        unit.cancel(in: &self, now: now)
        for request in unit.requests { queue.retract(RequestToken(number: request)) }
        unit.requests = []
        memory = before.0
        own.goBack(to: before.1)
        for user in wantedKeys { report(.keysWanted(user), &unit) }
    }

    /// Asks for the published keys of a person, also if the job is refused.
    mutating func want(keysOf user: String, _ unit: inout Unit) {
        let users = user == account || hasOwnSessions ? [user] : [user, account]
        wantedKeys += users
        for user in users { report(.keysWanted(user), &unit) }
    }

    /// Reports an event after the commit.
    func report(_ event: MessengerEvent, _ unit: inout Unit) {
        unit.onCommit { _, replies, _ in
            replies.append(AddressedReply(connection: ConnectionID(Self.events), reply: .event(event)))
        }
    }

    // MARK: The batch

    package mutating func close(_ units: inout [Unit], now: Timestamp) -> (closing: QueueBatch, group: ChangeGroup) {
        let batch = queue.turn(now: now.queueTime)
        return (batch, ChangeGroup(batch, to: &units))
    }

    package mutating func closed(_ batch: QueueBatch, isCommitted: Bool, now: Timestamp) {
        if isCommitted { dispatches = batch.dispatches } else { _ = queue.failed(batch) }
    }

    package mutating func settled(_ batch: QueueBatch, isCommitted: Bool, now: Timestamp) -> Replies {
        defer { (dispatches, memory.rows) = ([], UncommittedRows()) }
        var replies: Replies = []
        for dispatch in dispatches {
            let queued = QueuedCall(dispatch.request)
            guard let call = call(of: dispatch.request) else {
                if case .plaintext? = queued { unsendable.insert(dispatch.id) }
                continue
            }
            let attempt = Attempt(id: dispatch.id, lease: dispatch.lease, call: call, expires: queued?.expires)
            replies.append(AddressedReply(connection: ConnectionID(Self.events), reply: .attempt(attempt)))
        }
        return replies
    }

    package mutating func restore(_ kind: RecordKind, name: String) {}
}
