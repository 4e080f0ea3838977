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
    /// Keeps the key of a message for as long as the row says.
    case putContentKey(ContentKeyRow)
    /// Removes keys that have expired by a time or belong to messages before one: up to so many for each reason.
    case pruneContentKeys(expiredBy: Int64, before: MessageID, limit: Int)
    /// An id of a message that no request has: it is not used again.
    case spendMessageID(UInt64)
}

/// Changes that are committed together or not at all.
package struct ChangeGroup: Sendable, Equatable {
    package var changes: [StoreChange]
    /// Earlier groups of the batch, by index. If one of them fails, this one fails too: what was sealed under a ratchet state
    /// is not stored without it.
    package var requires: [Int]

    package init(_ changes: [StoreChange], requires: [Int] = []) { (self.changes, self.requires) = (changes, requires) }
}

/// Why a store refuses to be opened, or to do something. Each has its own repair.
package enum StoreError: Error, Equatable, Sendable {
    /// Another process has it open.
    case locked(String)
    /// The key is there and the store is not, or the other way round.
    case missing(String)
    /// It cannot be read.
    case corrupt(String)
    /// It was sealed under another storage key.
    case wrongKey(String)
    /// The storage key is there and cannot be used.
    case unusableKey(String)
    /// An older state of it has been copied back.
    case rolledBack(String)
    /// A newer program has written it.
    case tooNew(found: Int, known: Int)
    /// It could not be written.
    case unavailable(String)
    /// It is not known whether a transaction was committed, such as after a lost connection. Nothing that depends on it may be
    /// answered; the process starts again from what is stored.
    case unknown(String)
    /// A session was written by somebody else since it was read.
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

/// What stands in the store when a process starts.
package struct StoreContents: Sendable {
    package var policies: [(account: AccountID?, policy: Policy)] = []
    package var conversations: [ConversationRow] = []
    package var devices: [DeviceRow] = []
    /// The highest ids that were ever used, by rows that are gone as well; no id is used twice. That of requests stands in the
    /// queue.
    package var highestMessage: UInt64 = 0
    package var highestDelivery: UInt64 = 0

    package init() {}
}

/// The port. Drivers: SQLite (embedded default), memory (tests).
package protocol Store: Sendable {
    /// Commits groups of changes in one transaction, synced when this returns. Each group fails alone, and with it those that
    /// require it.
    ///
    /// A commit ends in one of three ways: done (this returns), refused (this throws, and nothing has changed), or unknown
    /// (``StoreError/unknown(_:)``).
    ///
    /// - Returns: for each group nil, or why it failed.
    /// - Throws: ``StoreError`` if the transaction as a whole failed.
    func commit(_ groups: [ChangeGroup]) throws(StoreError) -> [StoreError?]

    /// Reads what a process needs to start.
    func load() throws(StoreError) -> StoreContents
    /// Reads what the queue needs to go on: the requests, and what the backend calls messages.
    func queueContents() throws(StoreError) -> QueueContents
    func session(_ id: SessionID) throws(StoreError) -> SessionRow?
    func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow]
    func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow?
    /// All records of a kind, by name.
    func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow]

    /// The keys of messages that are kept, in one read and in any order. Expired ones may be among them.
    func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow]
    /// When the next key expires, and the first message that has one; nothing where none is kept.
    func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)?

    /// A request, finished or not, as the queue has it.
    func queuedRequest(_ id: UInt64) throws(StoreError) -> QueuedRequest?

    // Reports.
    /// In the order in which they were accepted. With ``RequestState/pending`` come those that are under way.
    func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request]
    func request(_ id: UInt64) throws(StoreError) -> Request?
    /// By state; those that are under way are pending.
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
