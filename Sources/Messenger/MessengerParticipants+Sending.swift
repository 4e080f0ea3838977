// Sending: a message, its ratchet steps and its requests are one unit. One request for each device of the recipient and
// for the person's other devices; or one for all of them, if the transport can do that.

import CommitLoop
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Outbox
import Protection
import RequestQueue
import StorePort
import Vault

extension MessengerParticipants {
    mutating func send(_ job: SendJob, _ ticket: UInt64, _ now: Timestamp, _ unit: inout Unit) {
        unit.failure = (ConnectionID(ticket), .refused(.notCommitted))
        let before = checkpoint()
        do {
            let message = try send(job, now, &unit)
            unit.reply = (ConnectionID(ticket), .accepted(message))
        } catch {
            goBack(to: before, now, &unit)
            unit.reply = (ConnectionID(ticket), .refused((error as? MessengerRefusal) ?? .notCommitted))
        }
    }

    private mutating func send(_ job: SendJob, _ now: Timestamp, _ unit: inout Unit) throws -> ChatMessage {
        let chat = job.chat.id
        let lineLimit = chat.group == nil ? Self.lineTextLimit : Self.lineGroupTextLimit
        guard job.text.utf8.count <= (introducesItself ? lineLimit : ChatContent.textLimit) else {
            throw MessengerRefusal.tooLong
        }
        let id = MessageID(ids.next(in: .only, at: now))
        if let group = chat.group { try checkMembership(in: group) }
        switch job.act {
        case .text, .file: return try sendText(job, chat, id, now, &unit)
        case .edit(let reference), .delete(let reference):
            guard let message = try message(reference), message.chat == chat, message.isOwn, !message.isDeleted else {
                throw MessengerRefusal.unknownMessage
            }
            // A file is deleted, and not edited.
            if case .edit = job.act, message.isFile { throw MessengerRefusal.unknownMessage }
            return try change(message, job, id, now, &unit)
        case .react(let reference, let characters):
            guard let message = try message(reference), message.chat == chat, !message.isDeleted else {
                throw MessengerRefusal.unknownMessage
            }
            guard characters.map({ (1...ChatContent.reactionLimit).contains($0.utf8.count) }) ?? true else {
                throw MessengerRefusal.tooLong
            }
            return try change(message, job, id, now, &unit)
        case .received, .read, .signal, .group, .history: throw MessengerRefusal.unknownMessage
        }
    }

    private mutating func sendText(
        _ job: SendJob, _ chat: AccountID, _ id: MessageID, _ now: Timestamp, _ unit: inout Unit
    ) throws -> ChatMessage {
        var message = ChatMessage(
            chat: chat, sequence: id.value, reference: MessageReference(device: own.id, message: id), isOwn: true,
            text: job.text, writtenAt: now.wall, storedAt: now.wall, state: .queued, protection: .device)
        message.timer = summary(chat).timer
        message.isVerified = own.peer(chat)?.isVerified ?? false
        if job.act == .file {
            guard (try? FileReference(job.text)) != nil else { throw MessengerRefusal.tooLong }
            message.isFile = true
        }
        if let group = chat.group {
            try seal(&message, in: group, now, &unit)
        } else if try isReady(chat), memory.waiting[chat] == nil {
            try seal(&message, now, &unit)
            if memory.open[message.sequence] == nil { message.state = .sent }
        } else if own.peer(chat) == nil, !memory.latched.contains(chat), job.fallback == .refuse {
            want(keysOf: chat.name, &unit)
            throw MessengerRefusal.keysMissing
        } else if own.peer(chat) == nil, !memory.latched.contains(chat), job.fallback == .plaintext, !message.isFile {
            message.protection = .plaintext
            message.timer = nil
            try enqueue(.plaintext(user: chat.name, message: id), now, &unit)
        } else {
            message.state = .waiting
            wait(message.sequence, for: chat, &unit)
        }
        try insert(message, isUnread: false, &unit)
        return message
    }

    /// Edits, deletes or marks a message here and at the other person's.
    private mutating func change(
        _ original: ChatMessage, _ job: SendJob, _ id: MessageID, _ now: Timestamp, _ unit: inout Unit
    ) throws -> ChatMessage {
        var message = original
        switch job.act {
        case .edit: (message.text, message.isEdited) = (job.text, true)
        case .delete: message.delete()
        case .react(_, let characters): message.react(by: .own, with: characters)
        case .text, .file, .received, .read, .signal, .group, .history: break
        }
        if original.state != .waiting, original.protection == .device { noteSealed(job.act, id, of: &message) }
        try put(message, &unit)
        report(.changed(message), &unit)
        let content = ChatContent(job.act, text: job.text, writtenAt: now.wall)
        if original.state == .waiting {
            // Its text is sealed when the keys have come, as it is then. Devices that were added may have it already.
            try sealForOwnDevices(content, id, in: message.chat, now, &unit)
            return message
        }
        if let group = message.chat.group {
            try seal(content, id, about: message, in: group, now, &unit)
            return message
        }
        guard try isReady(message.chat) else {
            want(keysOf: message.chat.name, &unit)
            throw MessengerRefusal.keysMissing
        }
        try seal(content, id, in: message.chat, nil, now, &unit)
        try raiseLatch(message.chat, now, &unit)
        return message
    }

    /// Whether a message to a person can be sealed for all devices that should get it.
    mutating func isReady(_ chat: AccountID) throws -> Bool {
        guard isAdopted else { return false }
        let isComplete = try hasSessions(.own, own.deviceList)
        if chat == .services(account) { return isComplete }
        guard isComplete, let peer = own.peer(chat), peer.offered == nil,
            try !own.recipients(of: chat, in: vault).isEmpty
        else { return false }
        return try hasSessions(chat, peer.deviceList)
    }

    /// Whether all listed devices have a session, or their keys were read since the list has changed.
    func hasSessions(_ account: AccountID, _ list: DeviceList) throws -> Bool {
        // A device without one introduces itself when it is there.
        if introducesItself { return true }
        if memory.checked[account] == list.versions.count { return true }
        for listed in list.current where listed.id != own.id {
            guard try own.sessions(with: listed.id, in: vault)?.sessions.peerIdentity == listed.identity else {
                return false
            }
        }
        return true
    }

    /// Seals the text of a message.
    mutating func seal(_ message: inout ChatMessage, _ now: Timestamp, _ unit: inout Unit) throws {
        noteReaders(of: [message.chat, person], in: &message)
        try seal(message.content, message.reference.message, in: message.chat, message.sequence, now, &unit)
        try raiseLatch(message.chat, now, &unit)
    }

    /// Notes that a text is sealed for the devices that these accounts have. One that gets a session later counts as well,
    /// and one that is listed later does not.
    func noteReaders(of accounts: [AccountID], in message: inout ChatMessage) {
        message.readers = (message.readers ?? []).union(devices(of: accounts))
    }

    /// The devices that these accounts have now, without this one.
    private func devices(of accounts: [AccountID]) -> Set<DeviceID> {
        let lists = accounts.compactMap { knownList(of: $0 == person ? .own : $0) }
        return Set(lists.flatMap { $0.current.map(\.id) }).subtracting([own.id])
    }

    /// Notes a change of this device, and that it is sealed for the devices that the chat has now.
    private func noteSealed(_ act: ChatContent.Act, _ id: MessageID, of message: inout ChatMessage) {
        let kind: ChatChange.Kind = if case .react = act { .reaction } else { .text }
        message.note(ChatChange(kind, MessageReference(device: own.id, message: id)))
        let accounts = message.chat.group == nil ? [message.chat, person] : accounts(having: message)
        let devices = devices(of: accounts)
        if message.reference.device != own.id, message.readers == nil { message.readers = devices }
        message.readers?.formIntersection(devices)
    }

    /// Seals content for all devices of a person, and for the person's other devices.
    ///
    /// - Parameter sequence: the place of the message whose state depends on the requests; nil for none.
    mutating func seal(
        _ content: ChatContent, _ id: MessageID, in chat: AccountID, _ sequence: UInt64?, _ now: Timestamp,
        _ unit: inout Unit
    ) throws {
        let recipients = try recipients(in: chat)
        try sealNews(for: chat, recipients, now, &unit)
        var copy = content
        copy.recipient = chat.name
        if sendsSeveral, recipients.count > 1 {
            return try seal(copy.body, id, for: recipients, chat, sequence, now, &unit)
        }
        for recipient in recipients {
            let isOwn = own.deviceList.identity(of: recipient.device) != nil
            try seal((isOwn ? copy : content).body, id, for: [recipient], chat, sequence, now, &unit)
        }
    }

    /// Seals content of a chat for the person's other devices alone.
    private mutating func sealForOwnDevices(
        _ content: ChatContent, _ id: MessageID, in chat: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        var content = content
        if let group = chat.group {
            content.group = memory.groups[group].map(reference)
        } else {
            content.recipient = chat.name
        }
        for recipient in try recipients(in: .services(account)) {
            try seal(content.body, id, for: [recipient], .services(account), nil, now, &unit)
        }
    }

    /// Seals the person's device list for devices that have an older version of it.
    mutating func sealNews(
        for person: AccountID, _ recipients: [OwnDevice.Recipient], _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard let news = own.news(for: person, &unit.changes) else { return }
        let others = recipients.filter { own.deviceList.identity(of: $0.device) == nil }
        let id = MessageID(ids.next(in: .only, at: now))
        for recipient in others { try seal(news.body, id, for: [recipient], person, nil, now, &unit) }
    }

    mutating func recipients(in chat: AccountID) throws -> [OwnDevice.Recipient] {
        guard chat == .services(account) else { return try own.recipients(of: chat, in: vault) }
        return try own.deviceList.current.compactMap { listed in
            guard listed.id != own.id, let box = try own.sessions(with: listed.id, in: vault),
                box.sessions.peerIdentity == listed.identity
            else { return nil }
            return (listed.id, box)
        }
    }

    /// Seals a body in one envelope and queues it.
    mutating func seal(
        _ body: Body, _ id: MessageID, for recipients: [OwnDevice.Recipient], _ chat: AccountID, _ sequence: UInt64?,
        expires: Int64? = nil, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let padded = try padded(body, besides: own.overhead(of: recipients, in: vault))
        let addressed: [(recipient: OwnDevice.Recipient, name: Attempt.Recipient)] = recipients.map { recipient in
            // Where keys travel in band, each device has a name of its own.
            let isOwn = !introducesItself && own.deviceList.identity(of: recipient.device) != nil
            return (recipient, Attempt.Recipient(user: isOwn ? account : chat.name, device: recipient.device))
        }
        try seal(padded, id, for: addressed[...], sequence, expires: expires, now, &unit)
    }

    /// Seals a padded body in one envelope for each lane of the recipients and queues it.
    mutating func seal(
        _ padded: [UInt8], _ id: MessageID,
        for recipients: ArraySlice<(recipient: OwnDevice.Recipient, name: Attempt.Recipient)>, _ sequence: UInt64?,
        expires: Int64? = nil, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        for (lane, devices) in memory.lanes.lanes(for: recipients.map(\.name.device)) {
            let part = recipients.filter { devices.contains($0.name.device) }
            let envelope = try own.seal(padded, id, for: part.map(\.recipient), in: vault, &unit.shared)
            let call = QueuedCall.envelope(
                envelope.bytes, to: part.map(\.name), message: id, sequence: sequence, expires: expires)
            try enqueue(call, in: lane, now, &unit)
        }
    }

    /// Queues a call; it is sent after the commit.
    ///
    /// - Parameters:
    ///   - lane: that of its devices; nil for calls without.
    ///   - reserved: its id, and so its place in the lane; nil for the end of the lane.
    mutating func enqueue(
        _ call: QueuedCall, in lane: String? = nil, at reserved: UInt64? = nil, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let id = reserved ?? ids.next(in: .only, at: now)
        if reserved == nil { noteUsed(id + call.reservedIDs) }
        let token = RequestToken(number: id)
        _ = try queue.append(call.request(tenant: account, lane: lane), token: token, id: id, now: now.queueTime)
        if let lane { memory.lanes.begin(call.devices, in: lane) }
        unit.requests.append(id)
        if let sequence = call.sequence { memory.open[sequence, default: []].insert(id) }
    }

    /// Raises the latch of a chat in which a message was sealed or opened.
    ///
    /// Unprotected texts of the chat that wait in the queue are taken back. An attempt that is under way counts as sent.
    mutating func raiseLatch(_ chat: AccountID, _ now: Timestamp, _ unit: inout Unit) throws {
        guard chat != .services(account), memory.latched.insert(chat).inserted else { return }
        // After the commit, because a request that has ended does not come back if the job fails.
        unit.onCommit { state, _, _ in state.unsendable.formUnion(state.waitingPlaintexts(to: chat)) }
        let conversation = ConversationID(.own, chat)
        guard vault.noteLatched(conversation) else { return }
        latch(
            RaisedLatch(conversation: conversation, account: .own, peer: chat, protection: .device), now, &unit)
    }

    // MARK: Unprotected texts

    /// The requests of unprotected texts to a person that are not under way.
    private func waitingPlaintexts(to chat: AccountID) -> [UInt64] {
        queue.requests.filter { request in
            guard request.state == .pending, case .plaintext(let user, _)? = QueuedCall(request) else { return false }
            return AccountID.services(user) == chat
        }.map(\.id)
    }

    /// Takes unprotected texts that are not sent any more back from the queue. They wait for keys, and are sealed then.
    mutating func withdrawPlaintexts(_ now: Timestamp, _ unit: inout Unit) {
        guard !unsendable.isEmpty else { return }
        for request in queue.requests where unsendable.contains(request.id) {
            // If its row cannot be read or sealed, it comes again with the next attempt.
            try? withdrawPlaintext(request, now, &unit)
        }
        unsendable = []
    }

    private mutating func withdrawPlaintext(
        _ request: QueuedRequest, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard case .plaintext(let user, let id)? = QueuedCall(request) else { return }
        let chat = AccountID.services(user)
        if var message = try message(chat, id.value) {
            (message.protection, message.state) = (.device, message.isDeleted ? .sent : .waiting)
            try put(message, &unit)
            if message.state == .waiting { wait(id.value, for: chat, &unit) }
            report(.changed(message), &unit)
        }
        memory.open[id.value] = nil
        queue.conclude(
            request.token, RequestOutcome(.aborted, cause: "The text is not sent unprotected."), now: now.queueTime)
    }

    // MARK: Signals

    /// Seals a signal for one device or for all of a person, or for the person's other devices.
    mutating func send(_ job: SignalJob, _ now: Timestamp, _ unit: inout Unit) throws {
        guard job.text.utf8.count <= ChatContent.textLimit, ChatContent.isSignalKind(job.kind) else {
            throw MessengerRefusal.tooLong
        }
        let chat = AccountID.services(job.user)
        let isReady = try isReady(chat)
        let own = chat == .services(account)
        let recipients = try recipients(in: chat).filter { recipient in
            let isOwn = self.own.deviceList.identity(of: recipient.device) != nil
            return isOwn == own && (job.device.map { $0 == recipient.device } ?? true)
        }
        // The person's own other devices may be none.
        guard isReady, !recipients.isEmpty || own else {
            want(keysOf: job.user, &unit)
            throw MessengerRefusal.keysMissing
        }
        // On a carrier of lines a long signal goes in parts. They are queued together, so that none of another signal comes
        // between them.
        let number = UInt32(truncatingIfNeeded: ids.next(in: .only, at: now))
        for part in introducesItself ? SignalParts.parts(of: job, id: number) : [job] {
            let content = ChatContent(
                .signal(kind: part.kind), text: part.text, writtenAt: now.wall, timer: part.lifetime)
            let id = MessageID(ids.next(in: .only, at: now))
            for recipient in recipients {
                try seal(
                    content.body, id, for: [recipient], chat, nil, expires: now.wall + job.lifetime * 1000, now, &unit)
            }
        }
    }

    // MARK: Attempts

    /// The call of a dispatched request; nil if there is nothing to do any more.
    func call(of request: QueuedRequest) -> Attempt.Call? {
        switch QueuedCall(request) {
        case .envelope(let bytes, let recipients, let message, _, _):
            guard recipients.count == 1 else { return .sendSeveral(bytes, to: recipients, message: message) }
            return .send(bytes, user: recipients[0].user, device: recipients[0].device, message: message)
        case .plaintext(let user, let id):
            let chat = AccountID.services(user)
            // The latch may have been raised, or the text deleted, since it was queued.
            guard !memory.latched.contains(chat), let message = try? message(chat, id.value), !message.isDeleted else {
                return nil
            }
            // The queue's tables hold no plaintext: the text is in the sealed row.
            return .plaintext(message.text, user: user, message: id)
        case .receipt(let message, let user, let isRead): return .receipt(message, user: user, isRead: isRead)
        case .publish: return memory.published.map { .publish($0.bytes) }
        case .register(let bytes): return .register(bytes)
        case nil: return nil
        }
    }

    mutating func attempted(
        _ id: UInt64, lease: UInt64, _ end: AttemptEnd, _ random: UInt64, _ now: Timestamp, _ unit: inout Unit
    ) {
        let token = RequestToken(number: id)
        guard let request = queue.request(token), request.lease == lease, let call = QueuedCall(request) else { return }
        switch end {
        case .done:
            queue.reply(
                id, lease: lease, .success(status: 200, headers: [], body: [], identifiers: []), now: now.queueTime,
                random: random)
        case .failed:
            queue.reply(
                id, lease: lease,
                .failure(.network(.networkConnectionLost), retryAfter: nil, headers: [], body: []),
                now: now.queueTime, random: random)
        case .unsupported:
            queue.conclude(
                token, RequestOutcome(.failure(status: nil), cause: "The transport has no such call."),
                now: now.queueTime)
        case .unknownRecipient:
            queue.conclude(
                token, RequestOutcome(.failure(status: nil), cause: "The server does not know the recipient."),
                now: now.queueTime)
        case .refused(let reason):
            queue.conclude(token, RequestOutcome(.failure(status: nil), cause: reason), now: now.queueTime)
        }
        guard queue.request(token) == nil else { return }
        memory.lanes.end(call.devices)
        if case .receipt(let message, let user, let isRead) = call, end == .unsupported {
            sealsReceipts = true
            sealReceipt([message], isRead: isRead, to: .services(user), now, &unit)
        }
        if end == .unknownRecipient { divide(call, id, now, &unit) }
        guard let sequence = call.sequence, var open = memory.open[sequence] else { return }
        open.remove(id)
        memory.open[sequence] = open.isEmpty ? nil : open
        note(end, of: sequence, isLast: open.isEmpty, &unit)
    }

    /// A recipient's list has changed: their keys are read again, and the devices that are still listed get an envelope
    /// for several by themselves, before all that waits behind it.
    private mutating func divide(_ call: QueuedCall, _ id: UInt64, _ now: Timestamp, _ unit: inout Unit) {
        guard case .envelope(let bytes, let recipients, let message, let sequence, let expires) = call else { return }
        for user in Set(recipients.map(\.user)).sorted() { report(.keysWanted(user), &unit) }
        guard recipients.count > 1 else { return }
        for (number, recipient) in recipients.enumerated() {
            guard let lane = memory.lanes.lanes(for: [recipient.device]).first?.lane else { continue }
            let part = QueuedCall.envelope(
                bytes, to: [recipient], message: message, sequence: sequence, expires: expires)
            do {
                try enqueue(part, in: lane, at: id + 1 + UInt64(number), now, &unit)
            } catch {
                // A program before this version has reserved no ids, and another request has this one.
                try? enqueue(part, in: lane, now, &unit)
            }
        }
    }

    /// Notes the end of a request of a message, and after the last one the outcome of all. The row has it, so that a
    /// restart forgets none.
    private mutating func note(_ end: AttemptEnd, of sequence: UInt64, isLast: Bool, _ unit: inout Unit) {
        let reference = MessageReference(device: own.id, message: MessageID(sequence))
        guard let before = try? message(reference), before.state != .failed else { return }
        var message = before
        switch end {
        case .done: message.isTaken = true
        case .unknownRecipient: break
        case .failed, .unsupported, .refused: message.isRefused = true
        }
        if isLast {
            let isAnywhere = message.isTaken || message.state == .sent || isForNobodyElse(message)
            let hasFailed = message.isRefused || !isAnywhere
            // What a recipient has confirmed has arrived.
            if message.state < .received { message.state = hasFailed ? .failed : .sent }
            (message.isTaken, message.isRefused) = (false, false)
        }
        guard message != before, (try? put(message, &unit)) != nil else { return }
        if message.state != before.state { report(.changed(message), &unit) }
    }

    /// Whether a message is in a group whose other members, if there are any, still wait for it.
    private func isForNobodyElse(_ message: ChatMessage) -> Bool {
        guard let group = message.chat.group.flatMap({ memory.groups[$0] }) else { return false }
        return group.content.members.allSatisfy { member in
            member.account == person || memory.waiting[member.account]?.contains(message.sequence) == true
        }
    }

    // MARK: Receipts

    /// Confirms messages of a person, by the transport's call or, if it has none, by a sealed message.
    mutating func confirm(
        _ messages: [MessageID], isRead: Bool, to chat: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard !sealsReceipts else { return sealReceipt(messages, isRead: isRead, to: chat, now, &unit) }
        for message in messages {
            try enqueue(.receipt(message, user: chat.name, isRead: isRead), now, &unit)
        }
    }

    /// A receipt that cannot be sealed is left out: it is no promise.
    private mutating func sealReceipt(
        _ messages: [MessageID], isRead: Bool, to chat: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) {
        guard (try? isReady(chat)) == true else { return }
        let id = MessageID(ids.next(in: .only, at: now))
        let content = ChatContent(isRead ? .read(messages) : .received(messages), writtenAt: now.wall)
        try? seal(content, id, in: chat, nil, now, &unit)
    }
}
