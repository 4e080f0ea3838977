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
            return act.answer(
                .refused("The store could not be written. The request is removed later. Check the disk."))
        }
        act.answer(.refused("The store could not be written, so nothing has changed. Check the disk."))
    }

    /// Applies an act to the gate and the queue.
    ///
    /// - Returns: why the act is refused; nil if it is not.
    private mutating func prepare(
        _ kind: RequestAct.Kind, _ now: Timestamp, _ unit: inout Unit, _ subject: inout QueuedRequest?
    ) -> String? {
        switch kind {
        case .drop(let id):
            guard isWaiting(id) else { return notWaiting(id) }
            guard outbox.gate.drop(id) else {
                return outbox.gate.hasBegun(id) ? Self.begun(id) : "Request \(id) is being dropped already."
            }
            subject = giveUp(id, Notices.droppedReason, now)
        case .hold(let scope):
            if case .request(let id) = scope, !isWaiting(id) { return notWaiting(id) }
            guard hold(scope, now) else {
                if case .request(let id) = scope { return Self.begun(id) }
                return nil
            }
            if case .account = scope {
                unit.changes.append(scope.held(at: now.wall))
            }
        case .release(let scope):
            guard outbox.gate.holds.contains(scope) else {
                switch scope {
                case .request(let id): return isWaiting(id) ? "Request \(id) is not held by itself." : notWaiting(id)
                case .account: return "Nothing of this account is held."
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
                return "Request \(id) still waits: only a dead one can be removed."
            }
        }
        return nil
    }

    private func isWaiting(_ id: UInt64) -> Bool {
        queue.request(Request.token(id)) != nil && inFlight[id]?.acknowledgedAt == nil
    }

    private func notDead(_ id: UInt64) -> String {
        let row: Request?
        do { row = try vault.store.request(id) } catch { return error.message }
        guard let row else { return Notices.noRequest(id) }
        return "Request \(id) is \(row.state.name): only a dead one can be removed."
    }

    private static func begun(_ id: UInt64) -> String {
        "Request \(id) has been sent to the backend, and its answer is awaited: it cannot be taken back."
    }

    private func notWaiting(_ id: UInt64) -> String {
        if inFlight[id] != nil {
            return
                "Request \(id) is with the backend, and its recipient has not opened it yet: it cannot be taken back."
        }
        let row: Request?
        do { row = try vault.store.request(id) } catch { return error.message }
        switch row?.state {
        case .done: return "Request \(id) is done: nothing of it waits."
        case .dead: return "Request \(id) is dead already: \(row?.reason ?? "no reason is known")."
        case .cancelled: return "Request \(id) was cancelled."
        case .pending, .inFlight: return "Request \(id) is not known to this gateway any more; restart it."
        case nil: return Notices.noRequest(id)
        }
    }

    // MARK: Retry

    private mutating func retry(_ id: UInt64, _ now: Timestamp, _ subject: inout QueuedRequest?) -> String? {
        let row: QueuedRequest?
        do { row = try vault.store.queueTables.request(Request.token(id)) } catch { return error.message }
        guard let row, let request = Request(row) else { return Notices.noRequest(id) }
        guard request.state == .dead, queue.request(row.token) == nil else {
            return
                "Request \(id) is \(request.state == .done ? "done" : "still waiting"): only a dead one is sent again."
        }
        if let why = whyNotOpened(request) { return "Request \(id) cannot be sent again: \(why)" }
        do {
            // Its age counts from now, so that it is not given up for the time that it was dead.
            try queue.revive(row, now: now.queueTime)
        } catch {
            return "Request \(id) cannot be sent again: \(error)"
        }
        subject = row
        return nil
    }

    /// Why the recipient would not open these bytes; nil if it would. Changes no state.
    private mutating func whyNotOpened(_ request: Request) -> String? {
        guard !isSidecar else {
            return
                "the recipient's keys are not here, so it is unknown whether they still open it. Write it again."
        }
        guard let bytes = Armour.joined(request.bodies), let envelope = try? Envelope(bytes) else {
            return "its bytes are not those of one message."
        }
        let (sender, recipient) = (AccountID(text: request.account), AccountID(text: request.peer))
        guard vault.owner(of: envelope.sender) == sender else {
            return "its sender's keys are not those that sealed it. A connection without a login ends with its keys."
        }
        guard let device = vault.device(of: recipient) else {
            return "its recipient's keys were deleted. A connection without a login ends with its keys."
        }
        let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: recipient)
        let opened = "its recipient has opened it already."
        guard copies[key] == nil else { return opened }
        let ends = SessionCache.ends(
            sender: envelope.sender, recipient: device.id, in: vault.sharding.shard(from: sender, to: recipient))
        guard let box = try? vault.session(ends.receiving) else {
            return "there is no session between the two any more."
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
                case .duplicate: return opened
                case .tooFarAhead: return "too many messages lie between it and what its recipient has opened."
                default: continue
                }
            }
        }
        return "the session that it was sealed for has been set up anew. Its sender has to write it again."
    }
}
