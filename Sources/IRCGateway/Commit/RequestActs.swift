// Operators' acts on single requests. A drop or hold stops the sending at once; the change itself takes effect with its
// commit.
//
// A dead request is sent again only if a copy of the recipient's session can open it. The copy is discarded.
//
// If the commit of an act fails, its rollback is the opposite act, because the queue's machine has applied it
// already. The queue stores both as soon as the store accepts changes again.

import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCParticipants {
    /// Loads the stored holds: those of requests from the queue, those of accounts from records.
    mutating func adoptHolds(_ now: Timestamp, _ changes: inout [StoreChange]) throws(StoreError) {
        for request in queue.requests where request.isHeld { _ = outbox.gate.hold(.request(request.id)) }
        for row in try vault.store.records(.hold) {
            switch RequestScope(name: row.name) {
            case .account(let account) where account.isVerified: hold(.account(account), now)
            // Stores before schema 5 keep a request's hold in a record.
            case .request(let id) where queue.request(Request.token(id)) != nil:
                hold(.request(id), now)
                changes.append(.removeRecord(.hold, name: row.name))
            default: changes.append(.removeRecord(.hold, name: row.name))
            }
        }
    }

    /// Holds requests in the queue, where they do not age, and in the gate, so that connections do not send them.
    ///
    /// - Returns: false for a request whose sending has begun; then nothing has changed.
    @discardableResult
    private mutating func hold(_ scope: RequestScope, _ now: Timestamp) -> Bool {
        guard outbox.gate.hold(scope) else { return false }
        queueHold(scope, true, now)
        return true
    }

    private mutating func queueHold(_ scope: RequestScope, _ isHeld: Bool, _ now: Timestamp) {
        switch scope {
        case .request(let id): try? queue.hold(Request.token(id), isHeld, now: now.queueTime)
        case .account(let account): queue.hold(tenant: account.text, isHeld, now: now.queueTime)
        }
    }

    mutating func act(
        _ act: RequestAct, _ now: Timestamp, _ unit: inout Unit
    ) {
        var subject: QueuedRequest?
        let wasHeld = if case .hold(let scope) = act.kind { outbox.gate.holds.contains(scope) } else { false }
        if let refusal = prepare(act.kind, now, &unit, &subject) {
            unit.onCommit { _, _, _ in act.answer(.refused(refusal)) }
            return unit.onRollback { _, _, _, _ in act.answer(.refused(refusal)) }
        }
        unit.changes.append(.audit(act.audit))
        unit.onCommit { [subject] state, replies, _ in state.finish(act, subject, &replies) }
        unit.onRollback { [subject] state, _, _, now in state.takeBack(act, subject, wasHeld: wasHeld, now) }
    }

    /// Answers a committed act and notifies the sender's connection.
    private mutating func finish(_ act: RequestAct, _ subject: QueuedRequest?, _ replies: inout Replies) {
        var isNotified = false
        switch act.kind {
        case .hold, .purge: break
        case .release(let scope): outbox.gate.release(scope)
        case .drop(let id):
            let entry = inFlight[id]
            if let request = subject.flatMap({ Request($0) }) { unreadCounts.note(request) }
            untrack(id)
            outbox.gate.release(.request(id))
            guard let connection = entry?.connection, let target = entry?.request.target else { break }
            replies.append(AddressedReply(connection: connection, reply: .dropped(id: id, target: target)))
            isNotified = true
        case .retry(let id): outbox.gate.undrop(id)
        }
        act.answer(.done(isNotified: isNotified))
    }

    /// Undoes an act that was not committed. The queue has applied it, and stores both the act and its reversal as soon
    /// as it can.
    private mutating func takeBack(_ act: RequestAct, _ subject: QueuedRequest?, wasHeld: Bool, _ now: Timestamp) {
        switch act.kind {
        case .drop(let id):
            outbox.gate.undrop(id)
            guard let subject else { break }
            try? queue.revive(subject, now: now.queueTime)
            if subject.isHeld { try? queue.hold(subject.token, true, now: now.queueTime) }
        case .hold(let scope):
            guard !wasHeld else { break }
            outbox.gate.release(scope)
            queueHold(scope, false, now)
        case .release(let scope): queueHold(scope, true, now)
        case .retry(let id): giveUp(id, subject?.cause ?? Notices.connectionEnded, now)
        case .purge:
            return act.answer(.refused(.later))
        }
        act.answer(.refused(.notStored))
    }

    /// Applies an act to the gate and the queue.
    ///
    /// - Returns: why the act is refused; nil if it is not.
    private mutating func prepare(
        _ kind: RequestAct.Kind, _ now: Timestamp, _ unit: inout Unit, _ subject: inout QueuedRequest?
    ) -> ActRefusal? {
        switch kind {
        case .drop(let id):
            guard isWaiting(id) else { return notWaiting(id) }
            guard outbox.gate.drop(id) else {
                return outbox.gate.hasBegun(id) ? .inFlight(id) : .dropping(id)
            }
            subject = giveUp(id, Notices.droppedReason, now)
        case .hold(let scope):
            if case .request(let id) = scope, !isWaiting(id) { return notWaiting(id) }
            guard hold(scope, now) else {
                if case .request(let id) = scope { return .inFlight(id) }
                return nil
            }
            if case .account = scope {
                unit.changes.append(scope.held(at: now.wall))
            }
        case .release(let scope):
            guard outbox.gate.holds.contains(scope) else {
                switch scope {
                case .request(let id): return isWaiting(id) ? .notHeld(id) : notWaiting(id)
                case .account: return .nothingHeld
                }
            }
            queueHold(scope, false, now)
            if case .account = scope { unit.changes.append(scope.released) }
        case .retry(let id): return retry(id, now, &subject)
        case .purge(let id):
            do {
                try queue.purge(id)
            } catch {
                if case .unknown = error { return notDead(id) }
                return .notDead(id, .pending)
            }
        }
        return nil
    }

    private func isWaiting(_ id: UInt64) -> Bool {
        queue.request(Request.token(id)) != nil && inFlight[id]?.acknowledgedAt == nil
    }

    private func notDead(_ id: UInt64) -> ActRefusal {
        let row: Request?
        do { row = try vault.store.request(id) } catch { return .store(error.message) }
        guard let row else { return .noSuchRequest(id) }
        return .notDead(id, row.state)
    }

    private func notWaiting(_ id: UInt64) -> ActRefusal {
        if inFlight[id] != nil { return .notOpened(id) }
        let row: Request?
        do { row = try vault.store.request(id) } catch { return .store(error.message) }
        switch row?.state {
        case .done: return .done(id)
        case .dead: return .dead(id, cause: row?.reason)
        case .cancelled: return .cancelled(id, cause: row?.reason)
        case .pending, .inFlight: return .lost(id)
        case nil: return .noSuchRequest(id)
        }
    }

    // MARK: Retry

    private mutating func retry(_ id: UInt64, _ now: Timestamp, _ subject: inout QueuedRequest?) -> ActRefusal? {
        let row: QueuedRequest?
        do { row = try vault.store.queueTables.request(Request.token(id)) } catch { return .store(error.message) }
        guard let row, let request = Request(row) else { return .noSuchRequest(id) }
        guard request.state == .dead, queue.request(row.token) == nil else {
            return .notDead(id, request.state == .dead ? .pending : request.state)
        }
        if let reason = whyNotOpened(request) { return .notRepeatable(id, reason) }
        do {
            // Its age counts from now, so that it is not given up for the time that it was dead.
            try queue.revive(row, now: now.queueTime)
        } catch {
            return .notRepeatable(id, .queue(error))
        }
        subject = row
        return nil
    }

    /// Why the recipient would not open these bytes; nil if it would. Changes no state.
    private mutating func whyNotOpened(_ request: Request) -> NotRepeatable? {
        guard !isSidecar else {
            return .keysElsewhere
        }
        guard let bytes = Armour.joined(request.bodies), let envelope = try? Envelope(bytes) else {
            return .malformed
        }
        let (sender, recipient) = (AccountID(text: request.account), AccountID(text: request.peer))
        guard vault.owner(of: envelope.sender) == sender else {
            return .senderKeysGone
        }
        guard let device = vault.device(of: recipient) else {
            return .recipientKeysGone
        }
        let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: recipient)
        guard copies[key] == nil else { return .openedAlready }
        let ends = SessionCache.ends(
            sender: envelope.sender, recipient: device.id, in: vault.sharding.shard(from: sender, to: recipient))
        guard let box = try? vault.session(ends.receiving) else {
            return .noSession
        }
        var state: [UInt8] = []
        var plaintext: [UInt8] = []
        defer {
            state.wipe()
            plaintext.wipe()
        }
        box.sessions.serialize(into: &state)
        for network in vault.networks {
            let associated = vault.associatedData(
                sender, envelope.sender, recipient, device.id, envelope.messageID, network: network)
            do throws(RatchetError) {
                // A copy of the recipient's state is used, and discarded.
                var trial = try SessionRecord(serialized: state.span)
                _ = try trial.decrypt(envelope.ratchetMessage.span, associatedData: associated.span, into: &plaintext)
                return nil
            } catch {
                switch error {
                case .duplicate: return .openedAlready
                case .tooFarAhead: return .tooFarBehind
                default: continue
                }
            }
        }
        return .sessionReplaced
    }
}
