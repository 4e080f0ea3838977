// A batch of changes, folded to the last state of each row, so that one statement can write it: no statement may change a
// row twice. Groups fail here, before anything is sent, as they would fail one after the other in the tables.

import Envelope
import Protection
import RequestQueue
import SQLiteQueue
import StorePort

/// The rows that a batch writes and removes, each once. A removed row is nil.
struct Batch {
    /// What an accepted request never changes, except its form.
    struct Accepted {
        var request: QueuedRequest
        var form: [UInt8]
    }

    struct Response {
        var headers: [UInt8]
        var body: [UInt8]
    }

    struct Mapping {
        var remote: String
        var at: Int64
        var place: Int64
    }

    struct RecordName: Hashable {
        let kind: RecordKind
        let name: ExactText
    }

    struct EvidenceName: Hashable {
        let isVerified: Bool
        let name: ExactText
        let software: ExactText
    }

    struct ObservationName: Hashable {
        let sender: ExactText
        let target: ExactText
        let recipient: ExactText
    }

    struct TallyName: Hashable {
        let hour: Int64
        let kind: ExactText
    }

    /// The highest ids that the batch uses in a shard.
    struct Highest {
        var request: UInt64 = 0
        var message: UInt64 = 0
        var delivery: UInt64 = 0
    }

    private(set) var sessions: [SessionID: SessionRow?] = [:]
    /// Sessions that the batch removes and then writes, whatever fence is stored.
    private(set) var replaced: Set<SessionID> = []
    /// The first fence of each session whose stored fence is not known here: all groups that write it depend on that one.
    private(set) var firstFences: [SessionID: UInt64] = [:]
    private(set) var devices: [DeviceID: DeviceRow?] = [:]
    private(set) var deliveries: [UInt64: DeliveryRow?] = [:]
    private(set) var contentKeys: [ContentKeyName: ContentKeyRow?] = [:]
    private(set) var conversations: [ConversationID: ConversationRow?] = [:]
    private(set) var policies: [AccountID?: Policy?] = [:]
    private(set) var records: [RecordName: RecordRow?] = [:]
    private(set) var audit: [(n: Int64, row: AuditRow)] = []
    private(set) var evidence: [EvidenceName: EvidenceRow] = [:]
    private(set) var observations: [ObservationName: ObservationRow] = [:]
    private(set) var tallies: [TallyName: TallyRow] = [:]
    private(set) var requests: [UInt64: Accepted?] = [:]
    /// New forms of requests that are stored.
    private(set) var forms: [UInt64: [UInt8]] = [:]
    private(set) var progress: [UInt64: Progress?] = [:]
    private(set) var responses: [UInt64: Response?] = [:]
    private(set) var mappings: [MappingName: Mapping?] = [:]
    private(set) var queueSessions: [ExactText: [UInt8]?] = [:]
    private(set) var highest: [Shard: Highest] = [:]
    /// The numbers of the last audit line and of the last mapping.
    private(set) var counters: Counters

    private let reads: BatchReads
    private let sharding: Sharding

    /// - Parameters:
    ///   - reads: the stored rows that the changes depend on.
    ///   - counters: those of the batch before.
    init(_ reads: BatchReads, in sharding: Sharding, after counters: Counters) {
        (self.reads, self.sharding, self.counters) = (reads, sharding, counters)
    }

    /// Folds groups.
    ///
    /// - Parameter failures: why groups fail whatever the rows are; nil for those that do not.
    /// - Returns: why each group fails; nil if it does not.
    mutating func apply(_ groups: [ChangeGroup], _ failures: [StoreError?]) -> [StoreError?] {
        var outcomes: [StoreError?] = []
        outcomes.reserveCapacity(groups.count)
        for (group, failure) in zip(groups, failures) {
            let required = group.requires.lazy.compactMap { outcomes[$0] }.first
            outcomes.append(required ?? failure ?? apply(group.changes))
        }
        return outcomes
    }

    /// Folds a group entirely or not at all.
    private mutating func apply(_ changes: [StoreChange]) -> StoreError? {
        // Only an old fence fails a group.
        if changes.contains(where: { $0.removesSessions }) {
            let before = self
            for change in changes where !apply(change) {
                self = before
                return .fenced
            }
            return nil
        }
        var own: [SessionID: UInt64] = [:]
        for case .putSession(let row) in changes {
            if let fence = own[row.id] ?? fence(row.id), fence >= row.fence { return .fenced }
            own[row.id] = row.fence
        }
        for change in changes { _ = apply(change) }
        return nil
    }

    /// The fence of a session; nil if there is none, or if it is not known here.
    private func fence(_ id: SessionID) -> UInt64? {
        if let change = sessions[id] { return change?.fence }
        return reads.fences?[id]
    }

    /// - Returns: false if a fence is not higher than the one before it.
    private mutating func apply(_ change: StoreChange) -> Bool {
        switch change {
        case .putSession(let row):
            if let fence = fence(row.id), fence >= row.fence { return false }
            switch sessions[row.id] {
            case .some(.none): replaced.insert(row.id)
            case .none: if reads.fences == nil { firstFences[row.id] = row.fence }
            case .some(.some): break
            }
            sessions[row.id] = row
        case .queue(let change): apply(change)
        case .insertDelivery(let row):
            deliveries[row.sequence] = row
            raise(sharding.shard(ofID: row.sequence)) { $0.delivery = max($0.delivery, row.sequence) }
        case .removeDelivery(let sequence): deliveries.updateValue(nil, forKey: sequence)
        case .putContentKey(let row):
            contentKeys[ContentKeyName(message: row.message, digest: row.digest)] = row
        case .spendMessageID(let id): raise(sharding.shard(ofID: id)) { $0.message = max($0.message, id) }
        case .rare(let change): apply(change)
        }
        return true
    }

    private mutating func raise(_ shard: Shard, _ body: (inout Highest) -> Void) {
        body(&highest[shard, default: Highest()])
    }

    // MARK: Rare changes

    private mutating func apply(_ change: RareChange) {
        switch change {
        case .putDevice(let row): devices[row.id] = row
        case .removeSessions(let device): removeSessions([device])
        case .forgetAccount(let account): forget(account)
        case .putConversation(let row): conversations[row.id] = row
        case .removeConversation(let id): conversations.updateValue(nil, forKey: id)
        case .setPolicy(let account, let policy): policies.updateValue(policy, forKey: account)
        case .audit(let row): audit.append((counters.nextAudit(), row))
        case .putRecord(let row): records[RecordName(kind: row.kind, name: ExactText(row.name))] = row
        case .removeRecord(let kind, let name):
            records.updateValue(nil, forKey: RecordName(kind: kind, name: ExactText(name)))
        case .pruneContentKeys(let time, let message, let limit): prune(time, message, limit)
        case .addEvidence(let row): add(row)
        case .addObservation(let row): add(row)
        case .addTally(let row):
            let name = TallyName(hour: row.hour, kind: ExactText(row.kind))
            tallies[name, default: TallyRow(hour: row.hour, kind: row.kind, count: 0)].count += row.count
        }
    }

    private mutating func removeSessions(_ removed: Set<DeviceID>) {
        let stored = reads.sessions.filter { removed.contains($0.owner) || removed.contains($0.peer) }
        let own = sessions.keys.filter { removed.contains($0.owner) || removed.contains($0.peer) }
        for id in stored + own { sessions.updateValue(nil, forKey: id) }
    }

    private mutating func forget(_ account: AccountID) {
        var gone = Set(reads.devices[account] ?? [])
        for (id, change) in devices {
            guard let row = change else { continue }
            if row.account == account { gone.insert(id) } else { gone.remove(id) }
        }
        removeSessions(gone)
        for id in gone { devices.updateValue(nil, forKey: id) }
        let ownConversations = conversations.keys.filter { $0.first == account || $0.second == account }
        for id in (reads.conversations[account] ?? []) + ownConversations {
            conversations.updateValue(nil, forKey: id)
        }
        let ownDeliveries = deliveries.values.compactMap { $0 }.filter { $0.account == account }.map(\.sequence)
        for sequence in (reads.deliveries[account] ?? []) + ownDeliveries {
            deliveries.updateValue(nil, forKey: sequence)
        }
    }

    private mutating func prune(_ time: Int64, _ message: MessageID, _ limit: Int) {
        let stored = reads.prunedKeys[.init(time: time, message: message, limit: limit)] ?? ([], [])
        let own = contentKeys.compactMap { $1 }
        func remove(_ stored: [ContentKeyName], _ own: [ContentKeyRow]) {
            let names =
                stored.filter { contentKeys[$0] == nil }
                + own.map { ContentKeyName(message: $0.message, digest: $0.digest) }
            for name in names.prefix(max(limit, 0)) { contentKeys.updateValue(nil, forKey: name) }
        }
        remove(stored.expired, own.filter { $0.expiresAt <= time })
        remove(
            stored.early, own.filter { Int64(bitPattern: $0.message.value) < Int64(bitPattern: message.value) })
    }

    private mutating func add(_ row: EvidenceRow) {
        let name = EvidenceName(
            isVerified: row.verified, name: ExactText(row.name), software: ExactText(row.software))
        guard var present = evidence[name] else {
            evidence[name] = row
            return
        }
        present.asked = present.asked || row.asked
        present.lastSeen = max(present.lastSeen, row.lastSeen)
        present.registrations += row.registrations
        evidence[name] = present
    }

    private mutating func add(_ row: ObservationRow) {
        let name = ObservationName(
            sender: ExactText(row.sender), target: ExactText(row.target), recipient: ExactText(row.recipient))
        var sum = row
        sum.messages += observations[name]?.messages ?? 0
        observations[name] = sum
    }

    // MARK: Queue

    /// Changes the progress of a request, if there is such a request.
    private mutating func change(_ id: UInt64, _ body: (inout Progress) -> Void) {
        guard var row = progress[id] ?? reads.progress[id] else { return }
        let before = row
        body(&row)
        if row != before { progress[id] = row }
    }

    private mutating func apply(_ change: QueueChange) {
        switch change {
        case .insert(let request, let form):
            requests[request.id] = Accepted(request: request, form: form)
            progress[request.id] = Progress(request)
            raise(sharding.shard(ofID: request.id)) { $0.request = max($0.request, request.id) }
        case .lease(let id, let lease): self.change(id) { $0.lease(lease) }
        case .requeue(let id, let lease, let wait): self.change(id) { $0.requeue(lease, wait) }
        case .finish(let id, let lease, let outcome, let keeping, let at):
            finish(id, lease, outcome, keeping, at)
        case .redeliver(let id, let times):
            self.change(id) { if $0.undelivered != nil { $0.undelivered = Int64(times) } }
        case .handled(let id): self.change(id) { $0.undelivered = nil }
        case .forgetResponse(let id):
            var isForgotten = false
            self.change(id) { row in
                guard row.hasResponse else { return }
                row.hasResponse = false
                row.result = row.result.map { $0 | OutcomeColumns.cut }
                isForgotten = true
            }
            if isForgotten { responses.updateValue(nil, forKey: id) }
        case .quarantine(let id, let cause, let at): self.change(id) { $0.quarantine(cause, at: at) }
        case .map(let mapping, let at): map(mapping, at)
        case .hold(let id, let isHeld, let at): self.change(id) { $0.hold = isHeld ? 1 : -at }
        case .rewrite(let id, let form): rewrite(id, form)
        case .revive(let id, let at):
            var isRevived = false
            self.change(id) { row in
                guard row.revive(at: at) else { return }
                row.hasResponse = false
                isRevived = true
            }
            if isRevived { responses.updateValue(nil, forKey: id) }
        case .session(let tenant, let sealed): queueSessions.updateValue(sealed, forKey: ExactText(tenant))
        case .remove(let id): remove(id)
        case .prune(let before, let below, let names): prune(before: before, below: below, names: names ?? before)
        }
    }

    private mutating func finish(
        _ id: UInt64, _ lease: UInt64?, _ outcome: RequestOutcome, _ keeping: QueueChange.Keeping, _ at: Int64
    ) {
        let hasResponse = keeping != .result && (!outcome.headers.isEmpty || !outcome.body.isEmpty)
        var isFinished = false
        change(id) { row in
            isFinished = row.finish(lease, outcome, keeping, at: at)
            if isFinished, hasResponse { row.hasResponse = true }
        }
        guard isFinished, hasResponse else { return }
        responses[id] = Response(headers: RequestForm.encode(outcome.headers), body: outcome.body)
    }

    private mutating func map(_ mapping: IdentifierMapping, _ at: Int64) {
        let name = MappingName(
            tenant: ExactText(mapping.tenant), type: ExactText(mapping.reference.type),
            local: ExactText(mapping.reference.local))
        mappings[name] = Mapping(remote: mapping.remote, at: at, place: counters.nextPlace())
    }

    private mutating func rewrite(_ id: UInt64, _ form: [UInt8]) {
        switch requests[id] {
        case .some(.some(var accepted)):
            accepted.form = form
            requests[id] = accepted
        case .some(.none): break
        case .none: forms[id] = form
        }
    }

    private mutating func remove(_ id: UInt64) {
        requests.updateValue(nil, forKey: id)
        progress.updateValue(nil, forKey: id)
        responses.updateValue(nil, forKey: id)
        forms[id] = nil
    }

    private mutating func prune(before: Int64, below: UInt64, names: Int64) {
        let stored = (reads.pruned[.init(before: before, below: below)] ?? []).filter { progress[$0] == nil }
        let own = progress.filter { id, row in
            Int64(bitPattern: id) < Int64(clamping: below) && row?.isPruned(before: before) == true
        }
        for id in stored + own.keys { remove(id) }
        let storedNames = (reads.prunedMappings[names] ?? []).filter { mappings[$0] == nil }
        let ownNames = mappings.filter { $1.map { $0.at < names } ?? false }.keys
        for name in storedNames + ownNames { mappings.updateValue(nil, forKey: name) }
    }
}

/// The numbers of the last audit line and of the last mapping; they rise.
struct Counters {
    var audit: Int64 = 0
    var place: Int64 = 0

    mutating func nextAudit() -> Int64 {
        audit += 1
        return audit
    }

    mutating func nextPlace() -> Int64 {
        place += 1
        return place
    }
}

extension StoreChange {
    fileprivate var removesSessions: Bool { if case .rare(let change) = self { change.removesSessions } else { false } }
}
