// Sealing and opening: ratchet step, request or delivery, and ids are one group of changes.

import CommitLoop
import DeviceDirectory
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

/// Why a message is not sealed although nothing has failed.
enum SealRefusal: Error { case tooLong, keysMissing }

extension IRCParticipants {
    // MARK: Seal

    mutating func seal(
        _ job: SealJob, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (job.connection, .sealFailed(ticket: job.ticket, .notCommitted))
        guard queue.depth(of: job.sender.text) < pendingLimit else {
            unit.failure = (job.connection, .sealFailed(ticket: job.ticket, .tooManyPending))
            unit.reply = unit.failure
            return
        }
        switch role {
        case .front:
            do {
                let id = nextMessage(job, now)
                let plaintext = try padded(job.body, besides: Vault.ratchetOverhead, capacity: job.capacity)
                let envelope = try seal(plaintext, from: job.sender, to: job.recipient, id, now, &unit)
                try take(envelope, of: job, keys: [], now, &unit)
            } catch {
                cancel(job, error, now, &unit)
            }
        case .sidecar(let own):
            let before = own.checkpoint()
            do {
                let keys = try distributions(job, own, now, &unit)
                let id = nextMessage(job, now)
                let envelope =
                    if let room = job.recipient.roomName { try roomEnvelope(job, room, id, own, &unit) } else {
                        try deviceEnvelope(job, id, own, &unit)
                    }
                try take(envelope, of: job, keys: keys, now, &unit)
            } catch {
                cancel(job, error, now, &unit)
                own.goBack(to: before)
            }
        }
    }

    /// Assigns an id to a message.
    private mutating func nextMessage(_ job: SealJob, _ now: Timestamp) -> MessageID {
        let shard = vault.sharding.shard(from: job.sender, to: job.recipient)
        return MessageID(requestIDs.next(in: shard, at: now))
    }

    /// Queues a sealed message and replies.
    ///
    /// - Parameter keys: requests with keys for its readers, to be sent first.
    private mutating func take(
        _ envelope: Envelope, of job: SealJob, keys: [Request], _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let request = try insert(envelope, job, now, &unit)
        let isFirst = latch(job, now, &unit)
        unit.reply = (job.connection, .sealed(ticket: job.ticket, request, firstOfConversation: isFirst, keys: keys))
    }

    /// Cancels a message that could not be sealed. Nothing of it stays.
    private mutating func cancel(_ job: SealJob, _ error: any Error, _ now: Timestamp, _ unit: inout Unit) {
        unit.cancel(in: &self, now: now)
        unit.shared = []
        switch error as? SealRefusal {
        case .tooLong: unit.failure = (job.connection, .sealFailed(ticket: job.ticket, .tooLong))
        case .keysMissing: unit.failure = (job.connection, .sidecar(.keysMissing(ticket: job.ticket)))
        case nil: break
        }
        unit.reply = unit.failure
    }

    /// Queues an envelope as a request.
    mutating func insert(
        _ envelope: Envelope, _ job: SealJob, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Request {
        let id = envelope.messageID.value
        guard let bodies = Armour.split(envelope.bytes, id: UInt32(truncatingIfNeeded: id), capacity: job.capacity)
        else { throw EnvelopeError.malformed }
        let request = Request(
            id: id, account: job.sender.text, peer: job.recipient.text, target: job.target, verb: job.verb,
            bodies: bodies, acceptedAt: now.wall)
        _ = try queue.append(request.queued, token: Request.token(id), id: id, now: now.queueTime)
        unit.requests.append(id)
        unit.onCommit { state, _, now in state.outbox.traces.note(.committed, of: id, at: now.wall) }
        unit.onRollback { state, cause, _, now in
            state.untrack(id)
            switch cause {
            case .cancelled, .ahead: state.queue.retract(Request.token(id))
            case .unit: state.queue.discard(Request.token(id), now: now.queueTime)
            // The queue has rolled it back with its turn.
            case .batch: break
            }
        }
        track(id, InFlight(connection: job.connection, account: job.sender, request: request))
        return request
    }

    /// The body, padded so that the last line is full.
    ///
    /// - Parameter overhead: bytes of the envelope besides header and body.
    /// - Throws: ``SealRefusal/tooLong`` if the message needs too many lines.
    func padded(_ body: Body, besides overhead: Int, capacity: Int) throws -> [UInt8] {
        let fixed = Envelope.headerLength + overhead
        guard let lines = Armour.lines(for: fixed + body.length, capacity: capacity, limit: messageLines) else {
            throw SealRefusal.tooLong
        }
        return body.bytes(paddedTo: max(Armour.capacity(lines: lines, of: capacity) - fixed, body.length))
    }

    private mutating func latch(
        _ job: SealJob, _ now: Timestamp, _ unit: inout Unit
    ) -> Bool {
        if let name = job.recipient.roomName {
            guard !isSidecar || job.latchesRoom else { return false }
            return latch(.room(name), custody, now, &unit)
        }
        let conversation = ConversationID(job.sender, job.recipient)
        guard vault.noteLatched(conversation) else { return false }
        let latched = RaisedLatch(
            conversation: conversation, account: job.sender, peer: job.recipient, peerName: job.recipientName,
            accountName: job.senderName, protection: custody)
        latch(latched, now, &unit)
        return true
    }

    // MARK: Open

    mutating func open(
        _ job: OpenJob, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (job.connection, .openFailed(ticket: job.ticket, .notCommitted))
        openedMessage = nil
        let outcome =
            switch role {
            case .front(let directory): outcome(of: job, directory, now, &unit)
            case .sidecar(let own): openOnDevice(job, own, now, &unit)
            }
        var failure: OpenFailure?
        switch outcome {
        case .success(let opened): unit.reply = (job.connection, .opened(ticket: job.ticket, opened))
        case .failure(let error):
            if error.reason.isOfMessage { failure = error.reason }
            unit.reply = (job.connection, .openFailed(ticket: job.ticket, error.reason))
            trace(error.reason, job.envelope, now)
        }
        guard let line = job.line else { return }
        let message = openedMessage
        unit.onCommit { [failure] state, replies, now in state.answer(line, message, failure, &replies, now) }
        unit.onRollback { state, cause, replies, now in
            if cause != .ahead { state.answer(line, nil, nil, &replies, now) }
        }
    }

    /// Answers the connections that wait for the same line.
    ///
    /// - Parameter failure: why no connection can open it; nil if each has to try for itself.
    func answer(
        _ line: OpenedMessages.Line, _ message: OpenedMessage?, _ failure: OpenFailure?,
        _ replies: inout Replies, _ now: Timestamp
    ) {
        for waiter in openedMessages.finish(line, message, now: now.monotonic) {
            let reply: IRCReply =
                if let failure { .copyFailed(ticket: waiter.ticket, failure) } else {
                    .copied(ticket: waiter.ticket, message)
                }
            replies.append(AddressedReply(connection: waiter.connection, reply: reply))
        }
    }

    private func noteOpened(_ id: UInt64, _ unit: inout Unit) {
        unit.onCommit { state, _, now in state.outbox.traces.note(.opened, of: id, at: now.wall) }
    }

    /// Notes why a message was not opened, unless the message itself is fine.
    private func trace(_ failure: OpenFailure, _ envelope: [UInt8], _ now: Timestamp) {
        switch failure {
        case .copy, .notRecipient, .forgotten: return
        default: break
        }
        // In a sidecar, senders choose their own ids, which may equal ours.
        guard !isSidecar, let envelope = try? Envelope(envelope) else { return }
        outbox.traces.note(.notOpened(failure), of: envelope.messageID.value, at: now.wall)
    }

    private mutating func outcome(
        of job: OpenJob, _ directory: GatewayDirectory, _ now: Timestamp, _ unit: inout Unit
    ) -> Result<Opened, OpenError> {
        guard let envelope = try? Envelope(job.envelope) else { return .failure(.init(reason: .malformed)) }
        if let outcome = known(job, envelope, now, &unit) { return outcome }
        guard let sender = vault.owner(of: envelope.sender) else {
            return .failure(.init(reason: directory.isInUse(envelope.sender) ? .wrongSource : .unknownSender))
        }
        guard job.senders.contains(sender) else { return .failure(.init(reason: .wrongSource)) }
        var reason = OpenFailure.notAuthentic
        for recipient in job.recipients {
            let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: recipient)
            if copies[key]?.ratchetMessage == envelope.ratchetMessage {
                return copy(job, envelope, sender, recipient, now, &unit)
            }
            do throws(StoreError) {
                switch try open(envelope, from: sender, to: recipient, &unit) {
                case .opened(let plaintext, let skipped):
                    guard let body = try? Body(plaintext) else { return .failure(.init(reason: .malformed)) }
                    return accept(job, envelope, sender, recipient, body, skipped, now, &unit)
                case .duplicate:
                    // An entry with the same bytes would have been found above; this one has other bytes.
                    guard copies[key] != nil else { return copy(job, envelope, sender, recipient, now, &unit) }
                case .failed(let failure): reason = failure ?? reason
                }
            } catch {
                return .failure(.init(reason: OpenFailure(error)))
            }
        }
        return .failure(.init(reason: reason))
    }

    /// Accepts an opened message and stores its line.
    mutating func accept(
        _ job: OpenJob, _ envelope: Envelope, _ sender: AccountID, _ recipient: AccountID, _ body: Body,
        _ skipped: Int, _ now: Timestamp, _ unit: inout Unit,
        protection: Protection = .gateway, isVerified: Bool = false
    ) -> Result<Opened, OpenError> {
        guard let relayedAt = relayedAt(of: envelope.messageID, from: sender, by: job, for: recipient) else {
            return .failure(.init(reason: .forgotten))
        }
        let unread = unreadCounts.count(from: sender, in: recipient)
        var gap =
            skipped > 0 ? max(0, skipped - coming(from: sender, to: recipient, besides: envelope.messageID)) : 0
        if recipient.roomName != nil { gap = unreadCounts.gap(gap, from: sender, in: recipient) }
        var opened = Opened(body: body, sequence: nil, sender: sender, gap: gap, protection: protection)
        opened.isVerified = isVerified
        opened.message = envelope.messageID.value
        var sequences: [AccountID: UInt64] = [:]
        let lines = shownLines(of: body, after: job.lineHead)
        if body.isText, recipient.roomName != nil {
            guard
                let made = deliver(
                    lines, from: sender, to: recipient, job, by: relayedAt, now, &unit.changes)
            else {
                return .failure(.init(reason: .store))
            }
            sequences = made
            opened.sequence = made[job.account]
        } else if body.isText, recipient.isVerified {
            let sequence = deliveryIDs.next(in: vault.sharding.shard(from: sender, to: recipient))
            guard let sealed = try? vault.seal(line: lines, sequence: sequence) else {
                return .failure(.init(reason: .store))
            }
            unit.changes.append(
                .insertDelivery(DeliveryRow(sequence: sequence, account: recipient, sealedLine: sealed)))
            opened.sequence = sequence
        }
        let (message, key) = remember(job, envelope, recipient, opened, sequences, relayedAt)
        openedMessage = message
        let row = sequences.isEmpty ? nil : deliveryIDs.highest
        let entry = markOpened(envelope.messageID, from: sender, now, &unit)
        unit.onRollback { state, cause, _, _ in
            if let entry { state.takeBack(entry, cause) }
            if let row { state.roomDeliveries.remove(row) }
            // Later units of a committed batch have counted on.
            if cause != .unit { state.unreadCounts.restore(unread, from: sender, in: recipient) }
            // The envelope is opened again when it comes again.
            state.copies.remove(key)
        }
        return .success(opened)
    }

    /// The stored lines of a text, for a client that was not shown it: without tags, with CR LF between two.
    private func shownLines(of body: Body, after head: [UInt8]) -> [UInt8] {
        let texts = body.kind == .lines ? body.separateLines(mark: nil) : [body.text]
        return Array(texts.map { head + LineBreaker.clean($0) }.joined(separator: [0x0D, 0x0A]))
    }

    /// How many other messages of a conversation are on their way. One that was overtaken over another connection is
    /// not lost.
    private func coming(from sender: AccountID, to recipient: AccountID, besides message: MessageID) -> Int {
        inFlight.count {
            $0.value.account == sender && $0.value.request.peer == recipient.text && !$0.value.isOpened
                && $0.key != message.value
        }
    }

    /// Notes that the recipient's device has opened a message of this state.
    ///
    /// The caller has proof: the body was opened just now, or the same bytes were opened before. An id in an envelope
    /// is only a claim: a backend could drop a message, send an older envelope with its id, and have it reported as read.
    ///
    /// - Returns: what ``takeBack(_:_:)`` needs if the unit is rolled back.
    private mutating func markOpened(
        _ message: MessageID, from sender: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) -> InFlight? {
        // Messages to remote devices are opened there, and ids of other senders may equal ours.
        guard !isSidecar else { return nil }
        let id = message.value
        if let entry = inFlight[id] {
            guard entry.account == sender else { return nil }
            noteOpened(id, &unit)
            var opened = entry
            opened.isOpened = true
            update(id, opened, now)
            return entry
        } else if let request = queue.request(Request.token(id)), AccountID(text: request.tenant) == sender {
            noteOpened(id, &unit)
            // Its sender's connection ended before the backend's acknowledgement. The message need not be sent again.
            complete(id, now)
        }
        return nil
    }

    /// Restores the entry of a message that was opened ahead, and is opened again. The queue keeps the end of the request.
    private mutating func takeBack(_ entry: InFlight, _ cause: RollbackCause) {
        if cause == .ahead { inFlight[entry.request.id] = entry }
    }

    // MARK: Copies

    /// The result for an envelope that was opened before: a copy for a connection that has not shown it, else a
    /// failure.
    mutating func copy(
        _ job: OpenJob, _ envelope: Envelope, _ sender: AccountID, _ recipient: AccountID, _ now: Timestamp,
        _ unit: inout Unit
    ) -> Result<Opened, OpenError> {
        let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: recipient)
        // An envelope with other bytes than the opened ones is no copy, although it has the same id.
        if let message = copies[key], message.ratchetMessage != envelope.ratchetMessage {
            return .failure(.init(reason: .notAuthentic))
        }
        if copies[key] != nil || isAsSealed(envelope),
            let entry = markOpened(envelope.messageID, from: sender, now, &unit)
        {
            unit.onRollback { state, cause, _, _ in state.takeBack(entry, cause) }
        }
        guard let message = copies[key] else { return .failure(.init(reason: .forgotten)) }
        switch message.copy(for: job.connection, of: job.account, job.presence) {
        case .shown: return .failure(.init(reason: .copy))
        case .notReader: return .failure(.init(reason: .notRecipient))
        case .message(let opened):
            openedMessage = message
            let connection = job.connection
            unit.onRollback { _, _, _, _ in message.takeBack(from: connection) }
            return .success(opened)
        }
    }

    /// Whether an envelope has the bytes that this vault has sealed under its id. A ratchet that reports these bytes as
    /// a duplicate has opened this message and no other.
    private func isAsSealed(_ envelope: Envelope) -> Bool {
        let id = envelope.messageID.value
        let request = inFlight[id]?.request ?? queue.request(Request.token(id)).flatMap { Request($0) }
        return request.map { Armour.joined($0.bodies) == envelope.bytes } ?? false
    }

    private mutating func remember(
        _ job: OpenJob, _ envelope: Envelope, _ recipient: AccountID, _ opened: Opened,
        _ sequences: [AccountID: UInt64], _ relayedAt: UInt64
    ) -> (OpenedMessage, OpenedCopies.Key) {
        let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: recipient)
        var shownTo: Set = [job.connection]
        var audience: OpenedMessage.Audience?
        if let room = recipient.roomName {
            audience = self.audience(job, of: recipient, room, opened.sender, sequences, relayedAt)
            // The sending connection shows its own message already.
            if let writer = inFlight[envelope.messageID.value]?.connection { shownTo.insert(writer) }
        }
        let message = OpenedMessage(
            ratchetMessage: envelope.ratchetMessage, origin: isSidecar ? Self.origin(of: job) : [], opened: opened,
            sequences: sequences, shownTo: shownTo, audience: audience)
        copies.put(message, for: key)
        return (message, key)
    }
}

extension OpenFailure {
    /// Whether the message itself is the reason, so that it is the same for every reader.
    fileprivate var isOfMessage: Bool {
        switch self {
        case .notAuthentic, .malformed, .tooFarAhead, .olderVersion, .newerVersion: true
        case .copy, .unknownSender, .tooManyPeers, .ownListForked, .wrongSource, .keyMissing, .beforeJoining,
            .notInRoom, .store, .notCommitted, .notRecipient, .forgotten:
            false
        }
    }

    /// Whether the store can be asked again.
    init(_ error: StoreError) {
        switch error {
        case .unavailable, .unknown, .fenced: self = .notCommitted
        default: self = .store
        }
    }
}
