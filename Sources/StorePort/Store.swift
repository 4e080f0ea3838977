// The port to the database: its rows, batches of changes as values, and synchronous reads. A store has one table of each
// kind of row.
//
// Secret fields are sealed by the caller. Request rows hold ciphertext. A delivery row holds the opened line, sealed,
// until the line has been written to the client's socket.

package import Envelope
package import Protection
package import RequestQueue

// MARK: Rows

/// A hosted device: the vault holds its private key.
package struct DeviceRow: Equatable, Sendable {
    package var id: DeviceID
    package var account: AccountID
    /// The identity key pair, sealed under the storage key.
    package var sealedIdentity: [UInt8]
    /// In milliseconds since 1970.
    package var createdAt: Int64

    package init(id: DeviceID, account: AccountID, sealedIdentity: [UInt8], createdAt: Int64) {
        (self.id, self.account, self.sealedIdentity, self.createdAt) = (id, account, sealedIdentity, createdAt)
    }
}

/// Names one side of a session: the owner's device and the peer's, and the shard of their conversation.
package struct SessionID: Hashable, Sendable {
    package var owner: DeviceID
    package var peer: DeviceID
    package var shard: Shard

    package init(owner: DeviceID, peer: DeviceID, in shard: Shard) {
        (self.owner, self.peer, self.shard) = (owner, peer, shard)
    }
}

/// The state of a session.
package struct SessionRow: Equatable, Sendable {
    package var id: SessionID
    /// Rises with each write; a writer with an old fence is rejected.
    package var fence: UInt64
    /// The ratchet state, sealed under the storage key.
    package var sealedState: [UInt8]

    package init(id: SessionID, fence: UInt64, sealedState: [UInt8]) {
        (self.id, self.fence, self.sealedState) = (id, fence, sealedState)
    }
}

/// An opened and committed line that was not yet written to the client's socket.
package struct DeliveryRow: Equatable, Sendable {
    /// The number of the line, in the order of opening.
    package var sequence: UInt64
    package var account: AccountID
    /// The line for the client, sealed under the storage key.
    package var sealedLine: [UInt8]

    package init(sequence: UInt64, account: AccountID, sealedLine: [UInt8]) {
        (self.sequence, self.account, self.sealedLine) = (sequence, account, sealedLine)
    }
}

/// The content key of one message, stored until it expires.
package struct ContentKeyRow: Equatable, Sendable {
    package var message: MessageID
    /// The digest of the whole envelope.
    package var digest: EnvelopeDigest
    /// In milliseconds since 1970; from then on the key is not used.
    package var expiresAt: Int64
    /// Sealed under the storage key, and bound to message, digest, expiry and the conversation, which the row does not
    /// have.
    package var sealedKey: [UInt8]

    package init(message: MessageID, digest: EnvelopeDigest, expiresAt: Int64, sealedKey: [UInt8]) {
        (self.message, self.digest) = (message, digest)
        (self.expiresAt, self.sealedKey) = (expiresAt, sealedKey)
    }
}

/// A conversation whose latch is raised.
package struct ConversationRow: Equatable, Sendable {
    package var id: ConversationID
    package var latch: Protection
    /// In milliseconds since 1970.
    package var since: Int64
    /// The folded nick by which ``ConversationID/first`` knew the other end; then the same for the second account.
    package var peerNameForFirst: String
    package var peerNameForSecond: String

    package init(
        id: ConversationID, latch: Protection, since: Int64, peerNameForFirst: String, peerNameForSecond: String
    ) {
        self.id = id
        self.latch = latch
        self.since = since
        self.peerNameForFirst = peerNameForFirst
        self.peerNameForSecond = peerNameForSecond
    }
}

/// What is known of the clients that an account uses.
package struct EvidenceRow: Equatable, Sendable {
    /// The services account, or the nick if there is none.
    package var name: String
    package var verified: Bool
    /// The client's name and version; empty if unknown.
    package var software: String
    /// Whether it has asked for the capability, which proves nothing.
    package var asked: Bool
    package var firstSeen: Int64
    package var lastSeen: Int64
    package var registrations: Int

    package init(
        name: String, verified: Bool, software: String, asked: Bool, firstSeen: Int64, lastSeen: Int64,
        registrations: Int
    ) {
        self.name = name
        self.verified = verified
        self.software = software
        self.asked = asked
        self.firstSeen = firstSeen
        self.lastSeen = lastSeen
        self.registrations = registrations
    }
}

/// How many messages between two accounts stricter policies would treat differently.
package struct ObservationRow: Equatable, Sendable {
    package var sender: String
    package var target: String
    /// One of ``ObservedRecipient``'s names.
    package var recipient: String
    package var messages: Int
    package var lastSeen: Int64

    package init(sender: String, target: String, recipient: String, messages: Int, lastSeen: Int64) {
        self.sender = sender
        self.target = target
        self.recipient = recipient
        self.messages = messages
        self.lastSeen = lastSeen
    }
}

/// One line of the audit log.
package struct AuditRow: Equatable, Sendable {
    package var at: Int64
    package var actor: String
    package var action: String
    package var detail: String

    package init(at: Int64, actor: String, action: String, detail: String) {
        (self.at, self.actor, self.action, self.detail) = (at, actor, action, detail)
    }
}

/// Messages counted in one hour.
package struct TallyRow: Equatable, Sendable {
    /// Hours since 1970.
    package var hour: Int64
    /// One of ``Tally``'s names.
    package var kind: String
    package var count: Int

    package init(hour: Int64, kind: String, count: Int) { (self.hour, self.kind, self.count) = (hour, kind, count) }
}

// MARK: Changes

/// One change of the store: one that a message causes, or a rare one.
package enum StoreChange: Equatable, Sendable {
    /// Writes a session if its fence is higher than the stored one; otherwise the whole group fails.
    case putSession(SessionRow)
    /// A change of the queue's tables.
    case queue(QueueChange)
    case insertDelivery(DeliveryRow)
    case removeDelivery(sequence: UInt64)
    /// Stores the key of a message until the expiry in the row.
    case putContentKey(ContentKeyRow)
    /// Marks a message id without a request as used.
    case spendMessageID(UInt64)
    case rare(RareChange)
}

/// A change that is not part of every message.
package enum RareChange: Equatable, Sendable {
    case putDevice(DeviceRow)
    /// Removes both sides of every session of a device.
    case removeSessions(device: DeviceID)
    /// Removes the device, the sessions, the conversations and the deliveries of an account that has ceased to exist.
    case forgetAccount(AccountID)
    case putConversation(ConversationRow)
    case removeConversation(ConversationID)
    /// Sets or removes the policy of an account, or of everyone.
    case setPolicy(AccountID?, Policy?)
    case audit(AuditRow)
    case putRecord(RecordRow)
    case removeRecord(RecordKind, name: String)
    /// Removes keys that have expired by a time or belong to messages before one: at most `limit` for each reason.
    case pruneContentKeys(expiredBy: Int64, before: MessageID, limit: Int)
    case addEvidence(EvidenceRow)
    case addObservation(ObservationRow)
    case addTally(TallyRow)
}

/// The rare changes by their own names.
extension StoreChange {
    package static func putDevice(_ row: DeviceRow) -> Self { .rare(.putDevice(row)) }
    package static func removeSessions(device: DeviceID) -> Self { .rare(.removeSessions(device: device)) }
    package static func forgetAccount(_ account: AccountID) -> Self { .rare(.forgetAccount(account)) }
    package static func putConversation(_ row: ConversationRow) -> Self { .rare(.putConversation(row)) }
    package static func removeConversation(_ id: ConversationID) -> Self { .rare(.removeConversation(id)) }
    package static func setPolicy(_ account: AccountID?, _ policy: Policy?) -> Self {
        .rare(.setPolicy(account, policy))
    }
    package static func audit(_ row: AuditRow) -> Self { .rare(.audit(row)) }
    package static func putRecord(_ row: RecordRow) -> Self { .rare(.putRecord(row)) }
    package static func removeRecord(_ kind: RecordKind, name: String) -> Self {
        .rare(.removeRecord(kind, name: name))
    }
    package static func pruneContentKeys(expiredBy time: Int64, before message: MessageID, limit: Int) -> Self {
        .rare(.pruneContentKeys(expiredBy: time, before: message, limit: limit))
    }
    package static func addEvidence(_ row: EvidenceRow) -> Self { .rare(.addEvidence(row)) }
    package static func addObservation(_ row: ObservationRow) -> Self { .rare(.addObservation(row)) }
    package static func addTally(_ row: TallyRow) -> Self { .rare(.addTally(row)) }
}

extension RareChange {
    /// Whether stored sessions are removed, so that sessions written before it in a batch have to be in the table.
    package var removesSessions: Bool {
        switch self {
        case .removeSessions, .forgetAccount: true
        case .putDevice, .putConversation, .removeConversation, .setPolicy, .audit, .putRecord, .removeRecord,
            .pruneContentKeys, .addEvidence, .addObservation, .addTally:
            false
        }
    }

    /// The record that is written or removed; nil for a change of another table.
    package var record: (kind: RecordKind, name: String)? {
        switch self {
        case .putRecord(let row): (row.kind, row.name)
        case .removeRecord(let kind, let name): (kind, name)
        case .putDevice, .removeSessions, .forgetAccount, .putConversation, .removeConversation, .setPolicy, .audit,
            .pruneContentKeys, .addEvidence, .addObservation, .addTally:
            nil
        }
    }
}

// MARK: Placement

extension StoreChange {
    /// Where the key of the changed row tells that it is; nil if only its group names the shard.
    package func placement(in sharding: Sharding) -> Placement? {
        switch self {
        case .putSession(let row): .shard(row.id.shard)
        case .queue(let change): change.placement(in: sharding)
        case .insertDelivery(let row): .shard(sharding.shard(ofID: row.sequence))
        case .removeDelivery(let sequence): .shard(sharding.shard(ofID: sequence))
        case .putContentKey(let row): .shard(sharding.shard(ofID: row.message.value))
        case .spendMessageID(let id): .shard(sharding.shard(ofID: id))
        case .rare(let change): change.placement(in: sharding)
        }
    }
}

extension RareChange {
    fileprivate func placement(in sharding: Sharding) -> Placement? {
        switch self {
        case .putConversation(let row): .shard(sharding.shard(of: row.id))
        case .removeConversation(let id): .shard(sharding.shard(of: id))
        case .putDevice, .setPolicy, .audit, .addEvidence, .addObservation, .addTally: .unsharded
        case .removeSessions, .forgetAccount, .pruneContentKeys: .several
        case .putRecord(let row): row.kind.placement(of: row.name, in: sharding)
        case .removeRecord(let kind, let name): kind.placement(of: name, in: sharding)
        }
    }
}

extension QueueChange {
    fileprivate func placement(in sharding: Sharding) -> Placement? {
        switch self {
        case .insert(let request, _): .shard(sharding.shard(ofID: request.id))
        case .lease(let id, _), .requeue(let id, _, _), .finish(let id, _, _, _, _), .redeliver(let id, _),
            .handled(let id), .forgetResponse(let id), .quarantine(let id, _, _), .hold(let id, _, _),
            .rewrite(let id, _), .revive(let id, _), .remove(let id):
            .shard(sharding.shard(ofID: id))
        // Later requests of other conversations may name the entity too.
        case .map(let mapping, _): .shard(sharding.shard(of: AccountID(text: mapping.tenant)))
        case .session(let tenant, _): .shard(sharding.shard(of: AccountID(text: tenant)))
        case .prune: .several
        }
    }
}

/// Changes that are committed together or not at all.
@usableFromInline
package struct ChangeGroup: Sendable, Equatable {
    package var changes: [StoreChange]
    /// Where all rows of the group are.
    package var placement: Placement
    /// Earlier groups of the batch, by index. If one of them fails, this one fails too: a message is not stored without
    /// the ratchet state that sealed it.
    package var requires: [Int]

    package init(_ changes: [StoreChange], in placement: Placement, requires: [Int] = []) {
        (self.changes, self.placement, self.requires) = (changes, placement, requires)
    }
}

// MARK: The port

/// The contents of the store that a process reads when it starts.
package struct StoreContents: Sendable {
    /// The epoch of each shard, not newer than the other contents: if the owner changes in between, the next commit fails.
    package var epochs: [ShardEpoch] = []
    package var policies: [(account: AccountID?, policy: Policy)] = []
    package var conversations: [ConversationRow] = []
    package var devices: [DeviceRow] = []
    /// The highest ids that were ever used, those of removed rows included; no id is used twice. The queue has the
    /// highest id of requests.
    package var highestMessage: UInt64 = 0
    package var highestDelivery: UInt64 = 0

    package init() {}
}

/// The port to the database. Drivers: SQLite (embedded default), memory (tests).
package protocol Store: Sendable {
    /// How the store is divided.
    var sharding: Sharding { get }

    /// Commits groups of changes in one transaction, synced when this returns. A group fails alone, with the groups
    /// that require it.
    ///
    /// A commit ends in one of three ways: done (this returns), failed (this throws, and nothing has changed), or
    /// unknown (``StoreError/unknown(_:)``).
    ///
    /// What a driver checks, in the transaction of the changes:
    /// - Each named epoch is that of its shard. If one is another, or the shard does not exist, the commit fails as a
    ///   whole with ``StoreError/epochLost(_:)`` for the first such shard. The check locks the rows of the named shards,
    ///   in the order of the shards, until the transaction ends: a change of owner comes before the commit or after it,
    ///   never between check and commit. A read in a transaction of its own, or without the lock, is no check.
    /// - Each shard that a group touches (``ChangeGroup/unnamedShard(in:named:)``) is named. If one is not, the group fails
    ///   alone with ``StoreError/epochLost(_:)``, and writes nothing. Rows in tables that are not divided need no epoch.
    /// - Each row is in the shard of its group, as far as its key tells (``StoreChange/placement(in:)``).
    ///
    /// A store that is not divided has the shard ``Shard/only`` in epoch 1: its lock on the directory lasts as long as the
    /// process, so the check needs no read and no lock. All its groups touch that shard.
    ///
    /// - Parameter epochs: by which the committer owns the shards that it changes; each shard once, in order.
    /// - Returns: for each group nil, or why it failed.
    /// - Throws: ``StoreError`` if the transaction as a whole failed.
    func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?]

    /// The present epoch of each shard, in order.
    func epochs() throws(StoreError) -> [ShardEpoch]

    /// Reads the contents that a process needs to start.
    func load() throws(StoreError) -> StoreContents
    func session(_ id: SessionID) throws(StoreError) -> SessionRow?
    func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow]
    func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow?
    /// All records of a kind, by name.
    func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow]
    /// The last records of a kind whose names are in a range, by name. Names are compared by their UTF-8 bytes.
    ///
    /// - Parameters:
    ///   - from: the first name, included.
    ///   - to: the end, not included.
    func records(
        _ kind: RecordKind, from: String, to: String, last limit: Int
    ) throws(StoreError) -> [RecordRow]

    /// The stored keys of messages, in one read and in any order. Expired keys may be among them.
    func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow]
    /// When the next key expires, and the first message that has one; nil if there are no keys.
    func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)?

    /// Reads of the queue's tables, which see all that is committed.
    var queueTables: any QueueReading { get }

    // Reports.
    /// Requests in the order in which they were accepted. ``RequestState/pending`` includes those in flight.
    func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request]
    func request(_ id: UInt64) throws(StoreError) -> Request?
    /// How many requests are in each state; those in flight are pending.
    func requestCounts() throws(StoreError) -> [RequestState: Int]
    func evidence(limit: Int) throws(StoreError) -> [EvidenceRow]
    func observations(limit: Int) throws(StoreError) -> [ObservationRow]
    func tallies(sinceHour: Int64) throws(StoreError) -> [TallyRow]
    func auditLog(limit: Int) throws(StoreError) -> [AuditRow]
    func conversations(limit: Int) throws(StoreError) -> [ConversationRow]
    /// The accounts of devices, each once, by the bytes of their names. Reads no keys.
    func deviceAccounts(limit: Int) throws(StoreError) -> [AccountID]
}

extension Store {
    package var sharding: Sharding { .single }
    package func epochs() throws(StoreError) -> [ShardEpoch] { [.only] }

    /// Commits groups by the present epochs of all shards, without a check of ownership. For tests and for commands on a store
    /// that no gateway uses; the commit loop names the epochs that it has loaded.
    package func commit(_ groups: [ChangeGroup]) throws(StoreError) -> [StoreError?] {
        try commit(groups, by: epochs())
    }

    /// Commits groups that do not require each other, each with rows of any shard; as ``commit(_:)``.
    package func commit(_ groups: [[StoreChange]]) throws(StoreError) -> [StoreError?] {
        try commit(groups.map { ChangeGroup($0, in: .several) })
    }

    /// Reads the queue's requests, and the backend's ids of messages.
    package func queueContents() throws(StoreError) -> QueueContents {
        do throws(QueueStoreError) { return try queueTables.load() } catch { throw StoreError(error) }
    }

    /// Requests of an account that are not done, in the order in which they were accepted.
    package func waitingRequests(of account: AccountID) throws(StoreError) -> [Request] {
        try requests(states: [.pending], limit: .max).filter { AccountID(text: $0.account) == account }
    }
}

/// A store in front of another one: what it does not implement itself, the other one does.
package protocol ForwardingStore: Store {
    var store: any Store { get }
}

extension ForwardingStore {
    package var sharding: Sharding { store.sharding }
    package func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        try store.commit(groups, by: epochs)
    }
    package func epochs() throws(StoreError) -> [ShardEpoch] { try store.epochs() }
    package func load() throws(StoreError) -> StoreContents { try store.load() }
    package func session(_ id: SessionID) throws(StoreError) -> SessionRow? { try store.session(id) }
    package func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow] {
        try store.deliveries(of: account)
    }
    package func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow? {
        try store.record(kind, name: name)
    }
    package func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] { try store.records(kind) }
    package func records(
        _ kind: RecordKind, from: String, to: String, last limit: Int
    ) throws(StoreError) -> [RecordRow] {
        try store.records(kind, from: from, to: to, last: limit)
    }
    package func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow] {
        try store.contentKeys(of: messages)
    }
    package func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)? {
        try store.oldestContentKeys()
    }
    package var queueTables: any QueueReading { store.queueTables }
    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        try store.requests(states: states, limit: limit)
    }
    package func request(_ id: UInt64) throws(StoreError) -> Request? { try store.request(id) }
    package func requestCounts() throws(StoreError) -> [RequestState: Int] { try store.requestCounts() }
    package func evidence(limit: Int) throws(StoreError) -> [EvidenceRow] { try store.evidence(limit: limit) }
    package func observations(limit: Int) throws(StoreError) -> [ObservationRow] {
        try store.observations(limit: limit)
    }
    package func tallies(sinceHour: Int64) throws(StoreError) -> [TallyRow] { try store.tallies(sinceHour: sinceHour) }
    package func auditLog(limit: Int) throws(StoreError) -> [AuditRow] { try store.auditLog(limit: limit) }
    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        try store.conversations(limit: limit)
    }
    package func deviceAccounts(limit: Int) throws(StoreError) -> [AccountID] {
        try store.deviceAccounts(limit: limit)
    }
}
