// Queued writes: sealing, content key and request are one unit of work, and the end of a request is recorded with its
// outcome.
//
// An outcome is due to no handler that outlives the process: clients that wait for it are notified at once, and others
// find it in the store. So its commit is the last one of a write.

import CommitLoop
import Envelope
import Outbox
package import Protection
import Reports
package import RequestQueue
import StorePort
import Vault

extension JSONParticipants {
    /// The addressee of ``JSONReply/turn(_:)``. Connections have other ids.
    package static var sender: ConnectionID { ConnectionID(0) }

    /// Ours: milliseconds until an attempt fails if its answer does not come.
    package static var attemptTimeout: Int64 { 60_000 }

    /// The queue's settings besides the limits of an operator.
    package static func queueSettings(host: String) -> QueueMachine.Settings {
        var settings = QueueMachine.Settings()
        (settings.host, settings.attemptTimeout) = (host, attemptTimeout)
        (settings.keepsOutcomes, settings.deliversOutcomes) = (true, false)
        settings.createsAllEntities = true
        return settings
    }

    // MARK: Finding

    mutating func find(_ job: FindWriteJob, _ now: Timestamp, _ unit: inout Unit) {
        // A queue that cannot be read accepts no write either.
        let match = (try? match(job.key, of: job.account, job.mark, now)) ?? .new(job.key)
        let known: KnownWrite? = if case .known(let known) = match { known } else { nil }
        unit.reply = (job.connection, .foundWrite(known))
        unit.failure = unit.reply
        guard let known, let states = batchWrites[known.token] else { return }
        unit.shared = states
        unit.failure = (job.connection, .foundWrite(nil))
    }

    /// Looks up an earlier write. One that is done under another credential is not the same write.
    private mutating func match(
        _ key: WriteKey, of account: AccountID, _ mark: String, _ now: Timestamp
    ) throws -> WriteMatch {
        guard let first = queue.token(idempotencyKey: key.name, tenant: account.text) else { return .new(key) }
        guard let request = try request(first) else { return .known(.endedInBatch(first)) }
        guard request.state == .done, request.mark != mark else { return .known(known(request, now)) }
        let own = writes.keys.own(key, mark: mark)
        guard let second = queue.token(idempotencyKey: own.name, tenant: account.text) else { return .new(own) }
        return .known(try self.request(second).map { known($0, now) } ?? .endedInBatch(second))
    }

    /// A write that the queue knows; nil if it has ended in the open batch, which has queued it.
    private func request(_ token: RequestToken) throws -> QueuedRequest? {
        try queue.request(token) ?? store.queueTables.request(token)
    }

    /// Describes an earlier write. A dead one is sent again.
    private mutating func known(_ request: QueuedRequest, _ now: Timestamp) -> KnownWrite {
        var isLost = request.state == .cancelled
        if request.state == .dead { isLost = !revive(request, now) }
        return KnownWrite(
            token: request.token, localID: request.creates.map(\.local).first(where: LocalMessageID.isOne),
            isLost: isLost)
    }

    /// Queues a dead write again.
    ///
    /// - Returns: whether the queue has accepted it.
    private mutating func revive(_ request: QueuedRequest, _ now: Timestamp) -> Bool {
        do throws(QueueActError) { try queue.revive(request, now: now.queueTime) } catch { return false }
        writes.waiting.begin(request)
        writes.waiters.forget(request.token)
        return true
    }

    // MARK: Queueing

    mutating func write(_ job: WriteJob, _ now: Timestamp, _ unit: inout Unit) {
        do throws(ExchangeRefusal) {
            let known = try queued(job, now, &unit)
            // The client of a new request gets its outcome, unless it is answered at once.
            if known.token != job.token || job.write.answersAtOnce || job.write.frame != nil {
                unit.reply = (job.connection, job.reply(.success(known)))
            }
            unit.failure = (job.connection, job.reply(.failure(.notQueued(.unavailable))))
        } catch {
            unit.cancel(in: &self, now: now)
            unit.shared = []
            unit.reply = (job.connection, job.reply(.failure(error)))
            unit.failure = unit.reply
            dropWaiter(of: job, &unit)
        }
    }

    private mutating func queued(
        _ job: WriteJob, _ now: Timestamp, _ unit: inout Unit
    ) throws(ExchangeRefusal) -> KnownWrite {
        var write = job.write
        // Of equal writes at the same time the first one is queued.
        if let key = write.key {
            let found: WriteMatch
            do { found = try match(key, of: write.account, job.mark, now) } catch { throw .notQueued(.unavailable) }
            switch found {
            case .known(let first):
                dropWaiter(of: job, &unit)
                unit.shared = batchWrites[first.token] ?? []
                return first
            case .new(let key): write.key = key
            }
        }
        let message = try seal(&write, now, &unit)
        let localID = write.answersAtOnce ? message.map(LocalMessageID.text) : nil
        let creates = write.creates(localID, token: job.token.description)
        let converted: NewRequest?
        do throws(MessageFault) {
            converted = try write.request(
                mark: job.mark, creates: creates, token: job.token, connection: job.connection)
        } catch {
            throw .unreadable(error)
        }
        guard let request = converted else { throw .notQueued(.unavailable) }
        do throws(QueueError) {
            let id = requestIDs.next(in: vault.sharding.shard(from: write.account, to: write.conversation))
            // A write with the same key was found above.
            guard case .accepted = try queue.append(request, token: job.token, id: id, now: now.queueTime) else {
                throw QueueError.keyReused
            }
            unit.requests.append(id)
            if let key = write.key { writes.known.insert(key.token) }
        } catch {
            throw .notQueued(WriteRefusal(error))
        }
        batchWrites[job.token] = unit.shared
        let known = KnownWrite(token: job.token, localID: localID, isLost: false)
        track(known, write, creates, message, job.connection, &unit)
        return known
    }

    /// Forgets a write that is not queued, because it is another one or was refused, and its client, when its job has
    /// ended.
    private func dropWaiter(of job: WriteJob, _ unit: inout Unit) {
        unit.onCommit { state, _, _ in state.writes.waiters.drop(job.token) }
        unit.onRollback { state, cause, _, _ in
            if cause != .ahead { state.writes.waiters.drop(job.token) }
        }
    }

    /// Replaces the text of a write by an envelope.
    ///
    /// - Returns: the sealed message; nil if the write has no text to seal.
    private mutating func seal(
        _ write: inout QueuedWrite, _ now: Timestamp, _ unit: inout Unit
    ) throws(ExchangeRefusal) -> MessageID? {
        guard let text = write.text else { return nil }
        let sealed: SealedEnvelope
        do {
            let job = SealMessageJob(
                connection: Self.sender, ticket: 0, sender: write.account, conversation: text.conversation,
                plaintext: text.plaintext, maximumLength: text.message.longestEnvelope)
            sealed = try sealNext(job, now, &unit)
        } catch {
            throw ExchangeRefusal(error as? SealFailure ?? .store, of: text.message)
        }
        do throws(MessageFault) { write.body = try text.message.sealed(sealed.bytes) } catch {
            throw .unreadable(error)
        }
        return sealed.message
    }

    /// Keeps the shared tables in step with a write that was appended.
    private func track(
        _ known: KnownWrite, _ write: QueuedWrite, _ creates: [String], _ message: MessageID?,
        _ connection: ConnectionID, _ unit: inout Unit
    ) {
        let (token, account, lane) = (known.token, write.account.text, write.lane)
        let isFrame = write.frame != nil
        writes.waiting.begin(account, in: lane, creates)
        unit.onCommit { state, replies, now in
            state.writes.traces.stored(token, message, at: now.wall)
            if message != nil { state.writes.tally.add(.sentGateway) }
            // A client whose credential was refused before its write was stored has missed that. It does not miss the
            // outcome of a write that has ended in its batch. WebSocket messages have no credential of their own.
            guard state.writes.waiters.stored(token, message, of: account), state.queue.request(token) != nil, !isFrame
            else { return }
            replies.append(.init(connection: connection, reply: .queued(token, .success(known))))
        }
        unit.onRollback { state, cause, _, now in
            state.writes.waiting.end(account, in: lane, creates)
            if cause != .ahead { state.writes.waiters.drop(token) }
            switch cause {
            case .ahead:
                state.queue.retract(token)
                state.batchWrites[token] = nil
            // Nothing fails while the job is prepared once the write is in the queue.
            case .cancelled: break
            case .unit:
                state.queue.discard(token, now: now.queueTime)
                state.discarded.insert(token)
            // The queue has rolled it back with its turn.
            case .batch: break
            }
        }
    }

    // MARK: Turns

    mutating func pass(_ event: MachineEvent, _ now: Timestamp) {
        if let answer = event(&queue, now.queueTime) { answers.append(answer) }
    }

    /// Records the outcomes of a committed batch, and notifies the clients that wait for them.
    mutating func record(_ results: [QueueBatch.Result]) {
        for result in results {
            let request = result.request
            if result.deliveries == nil {
                writes.waiting.end(request)
            } else {
                // It ended in an earlier process, of a version that stored outcomes for delivery.
                queue.handled(request.id)
            }
            let localIDs = request.creates.filter { LocalMessageID.isOne($0.local) }
            let account = AccountID(text: request.tenant)
            for reference in localIDs {
                switch result.outcome.result {
                case .success:
                    guard let remoteID = queue.remoteIdentifier(of: reference, tenant: request.tenant) else { continue }
                    let merge = MessageMerge(localID: reference.local, remoteID: remoteID)
                    writes.sockets.notify(account, .merged(merge))
                case .aborted: writes.sockets.notify(account, .lost(localID: reference.local, reason: nil))
                case .failure(let status):
                    let reason =
                        status.map { "The host answered with status \($0)." } ?? result.outcome.cause
                        ?? "It could not be sent."
                    writes.sockets.notify(account, .lost(localID: reference.local, reason: reason))
                }
            }
            writes.waiters.end(request.token, result.outcome)
        }
    }

    /// The reply to a turn; nil if there is nothing to do and the time of the next turn is unchanged.
    mutating func reply(to closing: QueueClosing, isCommitted: Bool, _ now: Timestamp) -> QueueTurn? {
        let failure = isCommitted ? nil : QueueStoreError("The store could not be written.")
        // After a failed commit the queue's changes are offered again.
        var wake = isCommitted ? queue.nextWake() : now.queueTime.uptime + Self.pauseAfterFailure
        var batch = closing.batch
        if !discarded.isEmpty {
            batch.withhold(discarded)
            discarded = []
            // What waited behind them may begin.
            wake = now.queueTime.uptime
        }
        // Outcomes are recorded already.
        let hasWork = !batch.dispatches.isEmpty || !batch.withdrawn.isEmpty || !closing.answers.isEmpty
        guard hasWork || wake != announcedWake else { return nil }
        announcedWake = wake
        return QueueTurn(
            batch: isCommitted ? batch : nil, answers: QueueAnswers(closing.answers, failure), wake: wake)
    }

    /// Ours: milliseconds until the queue's changes are offered again after a failed commit.
    private static var pauseAfterFailure: Int64 { 1_000 }
}

/// Whether the queue knows a write.
private enum WriteMatch {
    case known(KnownWrite)
    /// The write is new, and has to be queued with this key.
    case new(WriteKey)
}

extension KnownWrite {
    /// A write that has ended in the batch that queues it. Its client waits for the outcome, which comes with the commit.
    fileprivate static func endedInBatch(_ token: RequestToken) -> KnownWrite {
        KnownWrite(token: token, localID: nil, isLost: false)
    }
}

extension WaitingWrites {
    /// Notes a write that an earlier process has left, or that is sent again.
    package func begin(_ request: QueuedRequest) {
        begin(request.tenant, in: request.lane ?? "", request.creates.map(\.local))
    }

    package func end(_ request: QueuedRequest) {
        end(request.tenant, in: request.lane ?? "", request.creates.map(\.local))
    }
}

extension WriteRefusal {
    init(_ error: QueueError) {
        self =
            switch error {
            case .tenantFull, .full: .full
            case .unknownDependency, .failedDependency: .unknownReference
            case .keyReused, .tooLarge, .malformed, .unavailable, .closed: .unavailable
            }
    }
}
