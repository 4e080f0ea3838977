// A store for tests, with the semantics of the drivers and nothing on disk.

package import Envelope
package import Protection
package import RequestQueue
import Synchronization

/// A store in memory.
package final class InMemoryStore: Store {
    fileprivate struct State {
        package var policies: [AccountID?: Policy] = [:]
        package var devices: [DeviceID: DeviceRow] = [:]
        package var sessions: [SessionID: SessionRow] = [:]
        package var queue = QueueRows()
        package var highestMessage: UInt64 = 0
        package var highestDelivery: UInt64 = 0
        package var deliveries: [UInt64: DeliveryRow] = [:]
        package var conversations: [ConversationID: ConversationRow] = [:]
        package var evidence: [ExactText: EvidenceRow] = [:]
        package var observations: [ExactText: ObservationRow] = [:]
        package var tallies: [String: TallyRow] = [:]
        package var audit: [AuditRow] = []
        package var records: [ExactText: RecordRow] = [:]
        package var contentKeys: [MessageID: [ContentKeyRow]] = [:]
        /// The shard of each row whose key does not tell it.
        package var shards: [ExactText: Shard] = [:]
        /// The epoch of each shard that was taken; 1 for the others.
        package var epochs: [Shard: UInt64] = [:]
        package var failNextCommit = false
        package var loseNextOutcome = false
    }

    package let sharding: Sharding
    fileprivate let state = Mutex(State())

    /// Makes a store. If it is divided, it refuses a row that is not in its group's shard.
    package init(_ sharding: Sharding = .shared) { self.sharding = sharding }

    /// Makes the next commit succeed and throw ``StoreError/unknown(_:)``.
    package func loseNextOutcome() { state.withLock { $0.loseNextOutcome = true } }

    /// Makes the next commit fail as with a full disk.
    package func failNextCommit() { state.withLock { $0.failNextCommit = true } }

    /// A store of its own with what this one has now.
    package func copy() -> InMemoryStore {
        let copy = InMemoryStore(sharding)
        let contents = state.withLock { $0 }
        copy.state.withLock { $0 = contents }
        return copy
    }

    /// Raises the epoch of a shard, as another gateway that takes it over.
    package func take(_ shard: Shard) { state.withLock { $0.epochs[shard] = $0.epoch(of: shard) + 1 } }

    package func epochs() throws(StoreError) -> [ShardEpoch] { state.withLock { $0.epochs(in: sharding) } }

    package func commit(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) throws(StoreError) -> [StoreError?] {
        let result = state.withLock { (state) -> Result<[StoreError?], StoreError> in
            if state.failNextCommit {
                state.failNextCommit = false
                return .failure(.unavailable("The disk is full (pretended)."))
            }
            if let lost = state.lostShard(of: epochs, sharding) { return .failure(.epochLost(lost)) }
            let named = Set(epochs.map(\.shard))
            var results: [StoreError?] = []
            for group in groups {
                let unnamed = group.unnamedShard(in: sharding, named: named).map { StoreError.epochLost($0) }
                results.append(unnamed ?? state.apply(group, after: results, sharding))
            }
            defer { state.loseNextOutcome = false }
            return state.loseNextOutcome
                ? .failure(.unknown("The connection was lost (pretended).")) : .success(results)
        }
        return try result.get()
    }

    package func load() throws(StoreError) -> StoreContents {
        state.withLock { state in
            var contents = StoreContents()
            contents.epochs = state.epochs(in: sharding)
            contents.policies = state.policies.map { ($0.key, $0.value) }
            contents.conversations = Array(state.conversations.values)
            contents.devices = Array(state.devices.values)
            contents.highestMessage = state.highestMessage
            contents.highestDelivery = state.highestDelivery
            return contents
        }
    }

    package func session(_ id: SessionID) throws(StoreError) -> SessionRow? { state.withLock { $0.sessions[id] } }

    package func deliveries(of account: AccountID) throws(StoreError) -> [DeliveryRow] {
        state.withLock { state in
            state.deliveries.values.filter { $0.account == account }.sorted { $0.sequence < $1.sequence }
        }
    }

    package func record(_ kind: RecordKind, name: String) throws(StoreError) -> RecordRow? {
        state.withLock { $0.records[ExactText("\(kind.rawValue) \(name)")] }
    }

    package func records(_ kind: RecordKind) throws(StoreError) -> [RecordRow] {
        state.withLock { $0.records.values.filter { $0.kind == kind }.sorted { $0.name < $1.name } }
    }

    package func records(
        _ kind: RecordKind, from: String, to: String, last limit: Int
    ) throws(StoreError) -> [RecordRow] {
        let range = ExactText(from)..<max(ExactText(from), ExactText(to))
        return state.withLock { state in
            state.records.values.filter { $0.kind == kind && range.contains(ExactText($0.name)) }
                .sorted { ExactText($0.name) < ExactText($1.name) }.suffix(max(limit, 0))
        }
    }

    package func contentKeys(of messages: [MessageID]) throws(StoreError) -> [ContentKeyRow] {
        state.withLock { state in Set(messages).flatMap { state.contentKeys[$0] ?? [] } }
    }

    package func oldestContentKeys() throws(StoreError) -> (expiresAt: Int64, message: MessageID)? {
        state.withLock { state in
            guard let message = state.contentKeys.keys.min(),
                let expiry = state.contentKeys.values.joined().map(\.expiresAt).min()
            else { return nil }
            return (expiry, message)
        }
    }

    package var queueTables: any QueueReading { InMemoryQueueTables(store: self) }

    package func requests(states: [RequestState], limit: Int) throws(StoreError) -> [Request] {
        let states = states + (states.contains(.pending) ? [.inFlight] : [])
        return state.withLock { state in
            state.queue.requests(states: states, limit: limit).compactMap { state.request($0, finishedAt: $1) }
        }
    }

    package func request(_ id: UInt64) throws(StoreError) -> Request? {
        state.withLock { state in
            state.queue.request(Request.token(id)).flatMap { state.request($0, finishedAt: $1) }
        }
    }

    package func requestCounts() throws(StoreError) -> [RequestState: Int] {
        try requests(states: RequestState.allCases, limit: .max).reduce(into: [:]) { $0[$1.state, default: 0] += 1 }
    }

    package func evidence(limit: Int) throws(StoreError) -> [EvidenceRow] {
        state.withLock { Array($0.evidence.values.sorted { $0.lastSeen > $1.lastSeen }.prefix(limit)) }
    }

    package func observations(limit: Int) throws(StoreError) -> [ObservationRow] {
        state.withLock { Array($0.observations.values.sorted { $0.messages > $1.messages }.prefix(limit)) }
    }

    package func tallies(sinceHour: Int64) throws(StoreError) -> [TallyRow] {
        state.withLock { state in
            state.tallies.values.filter { $0.hour >= sinceHour }.sorted { ($0.hour, $0.kind) < ($1.hour, $1.kind) }
        }
    }

    package func auditLog(limit: Int) throws(StoreError) -> [AuditRow] {
        state.withLock { Array($0.audit.suffix(limit)) }
    }

    package func conversations(limit: Int) throws(StoreError) -> [ConversationRow] {
        state.withLock { Array($0.conversations.values.sorted { $0.since < $1.since }.prefix(limit)) }
    }

    package func deviceAccounts(limit: Int) throws(StoreError) -> [AccountID] {
        state.withLock { Array(Set($0.devices.values.map(\.account)).sorted().prefix(limit)) }
    }
}

/// Reads of the queue's tables.
private struct InMemoryQueueTables: QueueReading {
    let store: InMemoryStore

    func load() throws(QueueStoreError) -> QueueContents { store.state.withLock { $0.queue.contents } }

    func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        store.state.withLock { $0.queue.outcome(token) }
    }

    func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        store.state.withLock { $0.queue.request(token)?.request }
    }

    func requests(states: [RequestState], after: UInt64, limit: Int) throws(QueueStoreError) -> [QueuedRequest] {
        store.state.withLock { $0.queue.requests(states: states, after: after, limit: limit).map(\.request) }
    }

    func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? {
        store.state.withLock { $0.queue.finishedAt(id) }
    }
}

extension InMemoryStore.State {
    fileprivate func epoch(of shard: Shard) -> UInt64 { epochs[shard] ?? ShardEpoch.only.epoch }

    fileprivate func epochs(in sharding: Sharding) -> [ShardEpoch] {
        sharding.shards.map { ShardEpoch($0, epoch(of: $0)) }
    }

    /// The first shard whose epoch is not the named one, or that does not exist; nil if there is none.
    fileprivate func lostShard(of named: [ShardEpoch], _ sharding: Sharding) -> Shard? {
        named.first { !sharding.shards.contains($0.shard) || epoch(of: $0.shard) != $0.epoch }?.shard
    }

    /// Applies a group entirely or not at all.
    ///
    /// - Returns: why it failed; nil if it was applied.
    fileprivate mutating func apply(
        _ group: ChangeGroup, after outcomes: [StoreError?], _ sharding: Sharding
    ) -> StoreError? {
        for index in group.requires { if let failure = outcomes[index] { return failure } }
        let before = self
        for change in group.changes {
            if let failure = place(change, group.placement, sharding) ?? apply(change) {
                self = before
                return failure
            }
        }
        return nil
    }

    /// Checks that a row is where its group is, and that a row whose key does not tell its shard stays in one.
    ///
    /// - Returns: nil if it is.
    private mutating func place(_ change: StoreChange, _ group: Placement, _ sharding: Sharding) -> StoreError? {
        guard !sharding.isSingle else { return nil }
        let own = change.placement(in: sharding)
        switch (group, own) {
        case (_, .unsharded): return nil
        case (.shard(let shard), .shard(let other)) where other == shard:
            guard case .putSession(let row) = change else { return nil }
            return stay("session \(row.id.owner.value) \(row.id.peer.value)", in: shard)
        case (.shard(let shard), nil):
            guard case .rare(let change) = change, let record = change.record else { break }
            return stay("record \(record.kind.rawValue) \(record.name)", in: shard)
        case (.several, _):
            // The row may have another place from now on.
            if case .rare(let change) = change, let record = change.record {
                shards[ExactText("record \(record.kind.rawValue) \(record.name)")] = nil
            }
            return nil
        default: break
        }
        return .corrupt("\(change) is in \(own.map { "\($0)" } ?? "no shard"), and its group in \(group).")
    }

    private mutating func stay(_ row: String, in shard: Shard) -> StoreError? {
        guard let earlier = shards.updateValue(shard, forKey: ExactText(row)), earlier != shard else { return nil }
        return .corrupt("\(row) was in shard \(earlier.number), and is now in shard \(shard.number).")
    }

    fileprivate mutating func apply(_ change: StoreChange) -> StoreError? {
        switch change {
        case .putSession(let row):
            if let present = sessions[row.id], present.fence >= row.fence { return .fenced }
            sessions[row.id] = row
        case .queue(let change): queue.apply(change)
        case .insertDelivery(let row):
            deliveries[row.sequence] = row
            highestDelivery = max(highestDelivery, row.sequence)
        case .removeDelivery(let sequence): deliveries[sequence] = nil
        case .putContentKey(let row):
            contentKeys[row.message, default: []].removeAll { $0.digest == row.digest }
            contentKeys[row.message, default: []].append(row)
        case .spendMessageID(let id): highestMessage = max(highestMessage, id)
        case .rare(let change): apply(change)
        }
        return nil
    }

    private mutating func apply(_ change: RareChange) {
        switch change {
        case .putDevice(let row): devices[row.id] = row
        case .removeSessions(let device):
            sessions = sessions.filter { $0.key.owner != device && $0.key.peer != device }
        case .forgetAccount(let account): forget(account)
        case .putConversation(let row): conversations[row.id] = row
        case .removeConversation(let id): conversations[id] = nil
        case .setPolicy(let account, let policy): policies[account] = policy
        case .audit(let row): audit.append(row)
        case .putRecord(let row): records[ExactText("\(row.kind.rawValue) \(row.name)")] = row
        case .removeRecord(let kind, let name): records[ExactText("\(kind.rawValue) \(name)")] = nil
        case .pruneContentKeys(let time, let message, let limit): prune(time, message, limit)
        case .addEvidence(let row):
            let key = ExactText("\(row.verified) \(row.name) \(row.software)")
            if var present = evidence[key] {
                present.lastSeen = max(present.lastSeen, row.lastSeen)
                present.asked = present.asked || row.asked
                present.registrations += row.registrations
                evidence[key] = present
            } else {
                evidence[key] = row
            }
        case .addObservation(let row):
            let key = ExactText("\(row.sender) \(row.target) \(row.recipient)")
            observations[key, default: row].messages = (observations[key]?.messages ?? 0) + row.messages
            observations[key]?.lastSeen = row.lastSeen
        case .addTally(let row):
            let key = "\(row.hour) \(row.kind)"
            tallies[key] = TallyRow(hour: row.hour, kind: row.kind, count: (tallies[key]?.count ?? 0) + row.count)
        }
    }

    private mutating func prune(_ time: Int64, _ message: MessageID, _ limit: Int) {
        let expired = contentKeys.values.joined().filter { $0.expiresAt <= time }
            .sorted { $0.expiresAt < $1.expiresAt }.prefix(limit)
        for row in expired { contentKeys[row.message]?.removeAll { $0 == row } }
        contentKeys = contentKeys.filter { !$0.value.isEmpty }
        let early = contentKeys.values.joined().filter { $0.message < message }
            .sorted { $0.message < $1.message }.prefix(limit)
        for row in early { contentKeys[row.message]?.removeAll { $0 == row } }
        contentKeys = contentKeys.filter { !$0.value.isEmpty }
    }

    private mutating func forget(_ account: AccountID) {
        let gone = Set(devices.values.filter { $0.account == account }.map(\.id))
        devices = devices.filter { !gone.contains($0.key) }
        sessions = sessions.filter { !gone.contains($0.key.owner) && !gone.contains($0.key.peer) }
        conversations = conversations.filter { $0.key.first != account && $0.key.second != account }
        deliveries = deliveries.filter { $0.value.account != account }
    }

    fileprivate func request(_ queued: QueuedRequest, finishedAt: Int64?) -> Request? {
        let message = EntityReference(type: Request.message, local: "\(queued.id)")
        return Request(queued, finishedAt: finishedAt, remoteID: queue.remote(message, tenant: queued.tenant))
    }
}
