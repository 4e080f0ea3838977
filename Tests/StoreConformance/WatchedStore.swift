// A store that is looked at while a vault uses it, and that fails when it is told to.

package import Envelope
package import Protection
package import RequestQueue
package import StorePort
import Synchronization

/// Any store, watched.
package final class WatchedStore: Store {
    private struct State {
        var keyReads = 0
        var failsCommits = false
        var failsReads = false
    }

    private let store: any Store
    private let state = Mutex(State())

    package init(_ store: any Store) { self.store = store }

    /// How often keys were asked for.
    package var keyReads: Int { state.withLock { $0.keyReads } }

    package var failsCommits: Bool {
        get { state.withLock { $0.failsCommits } }
        set { state.withLock { $0.failsCommits = newValue } }
    }

    package var failsReads: Bool {
        get { state.withLock { $0.failsReads } }
        set { state.withLock { $0.failsReads = newValue } }
    }

    package func commit(_ groups: [ChangeGroup]) throws(StoreError) -> [StoreError?] {
        if failsCommits { throw .unavailable("The disk is full (pretended).") }
        return try store.commit(groups)
    }

    package func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow] {
        if failsReads { throw .unavailable("The disk does not answer (pretended).") }
        state.withLock { $0.keyReads += 1 }
        return try store.contentKeys(of: messages)
    }

    package func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)? {
        try store.oldestContentKeys()
    }

    package func load() throws(StoreError) -> StoreContents { try store.load() }
    package func session(_ id: SessionID) throws(StoreError) -> SessionRow? { try store.session(id) }
    package func queueContents() throws(StoreError) -> QueueContents { try store.queueContents() }
    package var queueTables: any QueueReading { store.queueTables }
    package func queuedRequest(_ id: UInt64) throws(StoreError) -> QueuedRequest? { try store.queuedRequest(id) }
    package func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow] {
        try store.deliveries(of: account)
    }
    package func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow? {
        try store.record(kind, name: name)
    }
    package func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] { try store.records(kind) }
    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        try store.requests(states: states, limit: limit)
    }
    package func request(_ id: UInt64) throws(StoreError) -> Request? { try store.request(id) }
    package func requestCounts() throws(StoreError) -> [RequestState: Int] { try store.requestCounts() }
    package func evidence(limit: Int) throws(StoreError) -> [EvidenceRow] { try store.evidence(limit: limit) }
    package func observations(limit: Int) throws(StoreError) -> [ObservationRow] {
        try store.observations(limit: limit)
    }
    package func tallies(sinceHour: Int64) throws(StoreError) -> [TallyRow] {
        try store.tallies(sinceHour: sinceHour)
    }
    package func auditLog(limit: Int) throws(StoreError) -> [AuditRow] { try store.auditLog(limit: limit) }
    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        try store.conversations(limit: limit)
    }
}
