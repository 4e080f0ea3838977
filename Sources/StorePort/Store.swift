// The port to the database: batches of changes as values, and synchronous reads.

package import Envelope
package import Protection
package import RequestQueue

/// One change of the store.
package enum StoreChange: Equatable, Sendable {
    case putDevice(DeviceRow)
    /// Writes a session if its fence is higher than the stored one; otherwise the whole group fails.
    case putSession(SessionRow)
    /// Removes both sides of every session of a device.
    case removeSessions(device: DeviceID)
    /// A change of the queue's tables.
    case queue(QueueChange)
    case insertDelivery(DeliveryRow)
    case removeDelivery(sequence: UInt64)
    case putConversation(ConversationRow)
    case removeConversation(ConversationID)
    /// Removes the device, the sessions, the conversations and the deliveries of an account that has ceased to exist.
    case forgetAccount(AccountID)
    case addEvidence(EvidenceRow)
    case addObservation(ObservationRow)
    case addTally(TallyRow)
    /// Sets or removes the policy of an account, or of everyone.
    case setPolicy(AccountID?, Policy?)
    case audit(AuditRow)
    case putRecord(RecordRow)
    case removeRecord(RecordKind, name: String)
    /// Stores the key of a message until the expiry in the row.
    case putContentKey(ContentKeyRow)
    /// Removes keys that have expired by a time or belong to messages before one: at most `limit` for each reason.
    case pruneContentKeys(expiredBy: Int64, before: MessageID, limit: Int)
    /// Marks a message id without a request as used.
    case spendMessageID(UInt64)
}

/// Changes that are committed together or not at all.
package struct ChangeGroup: Sendable, Equatable {
    package var changes: [StoreChange]
    /// Earlier groups of the batch, by index. If one of them fails, this one fails too: a message is not stored without
    /// the ratchet state that sealed it.
    package var requires: [Int]

    package init(_ changes: [StoreChange], requires: [Int] = []) { (self.changes, self.requires) = (changes, requires) }
}

/// Why a store cannot be opened, read or written. Each case has its own repair.
package enum StoreError: Error, Equatable, Sendable {
    /// Another process has it open.
    case locked(String)
    /// Either the storage key or the store is missing.
    case missing(String)
    /// It cannot be read.
    case corrupt(String)
    /// It was sealed under another storage key.
    case wrongKey(String)
    /// The storage key exists and cannot be used.
    case unusableKey(String)
    /// The store was replaced by an older state of it.
    case rolledBack(String)
    /// A newer version of the program has written it.
    case tooNew(found: Int, known: Int)
    /// It could not be written.
    case unavailable(String)
    /// It is unknown whether a transaction was committed, such as after a lost connection. Nothing that depends on it
    /// may be answered; the process restarts from the stored state.
    case unknown(String)
    /// Another gateway has written a session since it was read.
    case fenced

    package var message: String {
        switch self {
        case .locked(let text), .missing(let text), .corrupt(let text), .wrongKey(let text), .unusableKey(let text),
            .rolledBack(let text), .unavailable(let text), .unknown(let text):
            text
        case .tooNew(let found, let known):
            """
            The store has schema \(found); this program knows schemas up to \(known). Start the newer pawl that wrote \
            it, or bring back the backup that was made before the upgrade: pawl restore FILE --force --data with this \
            directory.
            """
        case .fenced: "Another gateway has taken this session over."
        }
    }
}

/// The contents of the store that a process reads when it starts.
package struct StoreContents: Sendable {
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
    /// Commits groups of changes in one transaction, synced when this returns. A group fails alone, with the groups
    /// that require it.
    ///
    /// A commit ends in one of three ways: done (this returns), failed (this throws, and nothing has changed), or
    /// unknown (``StoreError/unknown(_:)``).
    ///
    /// - Returns: for each group nil, or why it failed.
    /// - Throws: ``StoreError`` if the transaction as a whole failed.
    func commit(_ groups: [ChangeGroup]) throws(StoreError) -> [StoreError?]

    /// Reads the contents that a process needs to start.
    func load() throws(StoreError) -> StoreContents
    /// Reads the queue's requests, and the backend's ids of messages.
    func queueContents() throws(StoreError) -> QueueContents
    func session(_ id: SessionID) throws(StoreError) -> SessionRow?
    func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow]
    func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow?
    /// All records of a kind, by name.
    func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow]

    /// The stored keys of messages, in one read and in any order. Expired keys may be among them.
    func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow]
    /// When the next key expires, and the first message that has one; nil if there are no keys.
    func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)?

    /// Reads of the queue's tables, which see all that is committed.
    var queueTables: any QueueReading { get }
    /// The queue's row of a request, finished or not.
    func queuedRequest(_ id: UInt64) throws(StoreError) -> QueuedRequest?

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
}

extension Store {
    /// Commits groups that do not require each other.
    package func commit(_ groups: [[StoreChange]]) throws(StoreError) -> [StoreError?] {
        try commit(groups.map { ChangeGroup($0) })
    }

    /// Requests of an account that are not done, in the order in which they were accepted.
    package func waitingRequests(of account: AccountID) throws(StoreError) -> [Request] {
        try requests(states: [.pending], limit: .max).filter { AccountID(text: $0.account) == account }
    }
}
