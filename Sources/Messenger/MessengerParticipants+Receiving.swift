// Receiving: an envelope is opened, and what it says is stored, in one unit. The reply after the commit is the
// acknowledgement for the server, so a message is neither lost nor shown twice, whenever the process ends.

import CommitLoop
import DeviceSessions
import Devices
import Envelope
import Protection
import StorePort
import Vault

extension MessengerParticipants {
    mutating func receive(
        _ bytes: [UInt8], from user: String, _ hasKeys: Bool, _ ticket: UInt64, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (ConnectionID(ticket), .refused(.notCommitted))
        let before = checkpoint()
        let outcome: ReceiveOutcome
        do {
            outcome = try receive(bytes, from: user, hasKeys, now, &unit)
        } catch {
            // An authentic message has advanced its session, which stays; all else is taken back.
            goBack(to: before, now, &unit)
            switch error {
            // The store may be read later; the server keeps the message.
            case is StoreError: return unit.reply = unit.failure
            case let error as OpenError: outcome = error.reason == .copy ? .copy : .dropped(error.reason)
            case let error as EnvelopeError: outcome = .dropped(OpenFailure(error))
            default: outcome = .dropped(.notAuthentic)
            }
            if Self.isLostSession(error) { renewSession(of: bytes, from: user, now, &unit) }
        }
        if case .dropped(let reason) = outcome { report(.unreadable(user, reason), &unit) }
        unit.reply = (ConnectionID(ticket), .received(outcome))
    }

    private mutating func receive(
        _ bytes: [UInt8], from user: String, _ hasKeys: Bool, _ now: Timestamp, _ unit: inout Unit
    ) throws -> ReceiveOutcome {
        let envelope = try Envelope(bytes, in: vault.carrier)
        guard envelope.sender != own.id else { return .copy }
        if introducesItself { return try receiveInBand(envelope, from: user, now, &unit) }
        guard envelope.kind == .direct || envelope.kind == .several else { throw OpenError(reason: .malformed) }
        let source = source(user)
        // A device that is not in the pinned list may have been added to it.
        guard let known = own.owner(of: envelope.sender) else {
            guard hasKeys else { return .keysWanted }
            throw OpenError(reason: .unknownSender)
        }
        // The server names another person than the one whose device it is.
        guard source.accounts == [known] else { throw OpenError(reason: .wrongSource) }
        try own.check(source, of: envelope.sender)
        let opened = try open(envelope, now, &unit)
        let owner = try own.owner(of: envelope, from: source)
        if opened.skipped > 0 { report(.gap(user, opened.skipped), &unit) }
        let body = try Body(opened.body)
        if body.kind == .control {
            try receive(try ControlMessage(body.text), of: envelope.sender, source, now, &unit)
        } else {
            let content = try ChatContent(body, now: now.wall)
            try receive(content, envelope, from: owner, now, &unit)
        }
        if owner != .own, own.noteOpened(from: owner, &unit) { try raiseLatch(owner, now, &unit) }
        return .taken
    }

    /// The names under which a message of a person comes.
    func source(_ user: String) -> MessageSource {
        MessageSource(accounts: user.utf8.elementsEqual(account.utf8) ? [.own] : [.services(user)])
    }

    /// Opens an envelope. A session that both ends have begun at the same time is added beside ours, so that each message
    /// in it opens once: edits and reactions have no row that shows a copy.
    private mutating func open(_ envelope: Envelope, _ now: Timestamp, _ unit: inout Unit) throws -> OpenedBody {
        do {
            return try own.open(envelope, crossing: .added(replacingBy: Self.isRenewal), now, in: vault, &unit)
        } catch let error as OpenError where error.reason == .notAuthentic {
            throw UnreadableInSession()
        }
    }

    /// Whether a message begins a session in place of one that its sender has lost.
    private static func isRenewal(_ body: [UInt8]) -> Bool {
        guard let body = try? Body(body), body.kind == .control, case .ready? = try? ControlMessage(body.text) else {
            return false
        }
        return true
    }

    private mutating func receive(
        _ control: ControlMessage, of device: DeviceID, _ source: MessageSource, _ now: Timestamp,
        _ unit: inout Unit
    ) throws {
        switch control {
        case .ready(let list), .acknowledge(let list):
            let (peer, event) = try own.take(shown: list, by: device, from: source, now, in: vault, &unit)
            if case .ready = control { try takeRenewal(by: device, list, of: peer ?? .own, now, &unit) }
            guard let event else { return }
            report(peer == nil ? .ownDevices(list) : .peer(event), &unit)
            // It may have devices without a session.
            want(keysOf: peer?.name ?? account, &unit)
            // The list may be one of this device, which it had not published when it was set back.
            if peer == nil { try found(now, &unit) }
        case .adopted(let list):
            // Devices of this account have signed it, and anybody may show it.
            guard isAdopted, list != own.deviceList, list.continues(own.deviceList) else { return }
            own.take(list, &unit)
            report(.ownDevices(list), &unit)
            want(keysOf: account, &unit)
            try found(now, &unit)
        // Rooms and requests about them belong to other carriers.
        case .senderKey, .senderKeyWanted, .roomRequest: throw OpenError(reason: .malformed)
        }
    }

    // MARK: Content

    mutating func receive(
        _ content: ChatContent, _ envelope: Envelope, from owner: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let isOwn = owner == .own
        if case .signal(let kind) = content.act {
            return receive(content, kind, of: envelope.sender, from: isOwn ? account : owner.name, now, &unit)
        }
        if content.act == .history {
            guard isOwn else { throw OpenError(reason: .notAuthentic) }
            return try receiveHistory(try HistoryMessage(content.text), of: envelope.sender, now, &unit)
        }
        let reference = MessageReference(device: envelope.sender, message: envelope.messageID)
        if let group = content.group {
            return try receive(content, in: group, reference, from: owner, now, &unit)
        }
        // A copy of the person's other device names the chat.
        guard !isOwn || content.recipient != nil else { throw OpenError(reason: .malformed) }
        let chat = isOwn ? AccountID.services(content.recipient ?? account) : owner
        // The person writes sealed messages in this chat, on another device.
        if isOwn { try raiseLatch(chat, now, &unit) }
        switch content.act {
        case .text, .file, .edit, .delete, .react: try receive(content, reference, in: chat, from: owner, now, &unit)
        case .received(let ids): if !isOwn { try take(ids, isRead: false, from: chat, &unit) }
        case .read(let ids):
            if isOwn { try readElsewhere(ids, in: chat, &unit) } else { try take(ids, isRead: true, from: chat, &unit) }
        case .signal, .group, .history: break
        }
    }

    /// Takes what changes the history of a chat.
    mutating func receive(
        _ content: ChatContent, _ reference: MessageReference, in chat: AccountID, from owner: AccountID,
        _ now: Timestamp, _ unit: inout Unit
    ) throws {
        switch content.act {
        case .text, .file: try receiveText(content, reference, in: chat, from: owner, now, &unit)
        case .edit(let target):
            try change(target, ChatChange(.text, reference), in: chat, by: owner, now, &unit) { message in
                guard !message.isDeleted, !message.isFile else { return }
                (message.text, message.isEdited) = (content.text, true)
            }
        case .delete(let target):
            try change(target, ChatChange(.text, reference), in: chat, by: owner, now, &unit) { $0.delete() }
        case .react(let target, let characters):
            try change(target, ChatChange(.reaction, reference), in: chat, by: owner, now, &unit) { message in
                guard !message.isDeleted else { return }
                message.react(by: owner, with: characters)
            }
        case .received, .read, .signal, .group, .history: break
        }
    }

    /// Ours: how far two people's clocks may differ, in milliseconds.
    static let clockTolerance: Int64 = 30_000

    /// Reports a signal after the commit, unless it comes too late.
    private func receive(
        _ content: ChatContent, _ kind: String, of device: DeviceID, from user: String, _ now: Timestamp,
        _ unit: inout Unit
    ) {
        let lifetime = (content.timer ?? 0) * 1000
        guard now.wall - content.writtenAt <= lifetime + Self.clockTolerance else { return }
        let signal = ReceivedSignal(
            user: user, device: device, kind: kind, text: content.text, writtenAt: content.writtenAt)
        report(.signal(signal), &unit)
    }

    private mutating func receiveText(
        _ content: ChatContent, _ reference: MessageReference, in chat: AccountID, from owner: AccountID,
        _ now: Timestamp, _ unit: inout Unit
    ) throws {
        let isOwn = owner == .own
        if var known = try message(reference) {
            guard known.chat == chat, known.owner == owner || known.isOfUnknownAuthor else {
                throw OpenError(reason: .copy)
            }
            guard known.isAwaited else { return try receiveAgain(known, now, &unit) }
            // An edit, a deletion or a reaction has overtaken it.
            if known.isOfUnknownAuthor { known.setAuthor(owner) }
            known.isAwaited = false
            if !known.isEdited, !known.isDeleted { (known.text, known.isFile) = (content.text, content.act == .file) }
            (known.writtenAt, known.timer) = (content.writtenAt, content.timer)
            try put(known, &unit)
            try setTimer(of: known, &unit)
            try note(known, isUnread: !isOwn && !known.isDeleted, &unit)
        } else {
            var message = ChatMessage(
                chat: chat, sequence: ids.next(in: .only, at: now), reference: reference, isOwn: isOwn,
                text: content.text, writtenAt: content.writtenAt, storedAt: now.wall,
                state: isOwn ? .sent : .received, protection: .device)
            (message.timer, message.isFile) = (content.timer, content.act == .file)
            if chat.group != nil, !isOwn { message.author = owner }
            message.isVerified = own.peer(isOwn ? chat : owner)?.isVerified ?? false
            try insert(message, isUnread: !isOwn, &unit)
        }
        if !isOwn { try confirm([reference.message], isRead: false, to: owner, now, &unit) }
    }

    /// Ours: copies of one device's texts that are confirmed in a ``renewalPause``: what a device seals again at once.
    static var copyLimit: Int { 2 * pageLimit }

    /// Confirms a text once more that its device has sealed again: it has no receipt, because the receipt was lost or the
    /// device was set back to an earlier state.
    private mutating func receiveAgain(_ message: ChatMessage, _ now: Timestamp, _ unit: inout Unit) throws {
        guard !message.isOwn else { throw OpenError(reason: .copy) }
        let device = message.reference.device
        var copies = confirmedCopies[device] ?? (now.monotonic, 0)
        if now.monotonic - copies.since >= Self.renewalPause { copies = (now.monotonic, 0) }
        guard copies.count < Self.copyLimit else { throw OpenError(reason: .copy) }
        confirmedCopies[device] = (copies.since, copies.count + 1)
        try confirm([message.reference.message], isRead: false, to: message.owner, now, &unit)
    }

    /// Changes the message that a reference names. One that has not come yet is stored as awaited.
    private mutating func change(
        _ target: MessageReference, _ change: ChatChange, in chat: AccountID, by owner: AccountID, _ now: Timestamp,
        _ unit: inout Unit, _ body: (inout ChatMessage) -> Void
    ) throws {
        // Everybody may react to a message.
        let isAuthor = change.kind == .text
        if var message = try message(target) {
            guard message.chat == chat, !isAuthor || message.owner == owner else {
                throw OpenError(reason: .notAuthentic)
            }
            // It was sealed again for a new session.
            guard !message.has(change) else { return }
            body(&message)
            message.note(change)
            try put(message, &unit)
            if !message.isAwaited { report(.changed(message), &unit) }
            return
        }
        let author = target.device == own.id ? .own : own.owner(of: target.device)
        if let author {
            guard author == .own || author == chat || chat.group != nil, !isAuthor || author == owner else {
                throw OpenError(reason: .notAuthentic)
            }
        } else {
            // A member has read a text of a device that is not known here yet, and has reacted to it.
            guard !isAuthor, chat.group != nil, try unknownAuthors(in: chat) < Self.unknownAuthorLimit else {
                throw OpenError(reason: .notAuthentic)
            }
        }
        // A text of this device that it has lost when it was set back: it does not come.
        guard target.device != own.id else { return }
        var message = ChatMessage(
            chat: chat, sequence: ids.next(in: .only, at: now), reference: target, isOwn: false, text: "",
            writtenAt: now.wall, storedAt: now.wall, state: .received, protection: .device)
        message.isAwaited = true
        if let author { message.setAuthor(author) }
        body(&message)
        message.note(change)
        try insert(message, isUnread: false, &unit)
    }

    /// Ours: awaited messages of unknown devices among the last ones of a group, so that a member who names messages that
    /// do not exist costs little.
    private static let unknownAuthorLimit = 32

    private func unknownAuthors(in chat: AccountID) throws -> Int {
        let rows = try vault.store.records(
            .chatMessage, from: ChatMessage.name(chat, 0), to: ChatMessage.name(chat, .max), last: Self.pageLimit)
        return try rows.count { try message(chat, Self.place($0.name).1)?.isOfUnknownAuthor == true }
    }

    // MARK: Receipts

    /// Notes that a person has stored or read messages. The state of a message only rises.
    mutating func take(_ ids: [MessageID], isRead: Bool, from chat: AccountID, _ unit: inout Unit) throws {
        let state: DeliveryState = isRead ? .read : .received
        for id in ids {
            for device in own.deviceList.current {
                guard var message = try message(MessageReference(device: device.id, message: id)), message.isOwn,
                    message.protection == .device, note(state, of: chat, on: &message)
                else { continue }
                try put(message, &unit)
                if !message.isAwaited { report(.changed(message), &unit) }
            }
        }
    }

    /// Marks a chat as read, and confirms that to the other person and to the person's other devices.
    mutating func markRead(_ name: ChatName, _ now: Timestamp, _ unit: inout Unit) throws {
        let chat = name.id
        var summary = summary(chat)
        guard summary.unread > 0 else { return }
        let rows = try unread(summary)
        summary.unread = 0
        try put(summary, &unit)
        // In a group each member gets the receipts of its own messages.
        for (author, rows) in Dictionary(grouping: rows, by: \.owner).sorted(by: { $0.key < $1.key }) {
            let ids = rows.map(\.reference.message)
            for start in stride(from: 0, to: ids.count, by: ChatContent.receiptLimit) {
                let part = Array(ids[start..<min(start + ChatContent.receiptLimit, ids.count)])
                try confirm(part, isRead: true, to: author, now, &unit)
            }
        }
    }

    /// The unread messages of a chat: the last ones that are not the person's own.
    private func unread(_ summary: ChatSummary) throws -> [ChatMessage] {
        let messages = try messages(with: summary.chat, limit: Self.pageLimit)
        return messages.filter { !$0.isOwn && $0.protection == .device }.suffix(summary.unread)
    }

    /// The person has read messages on another device.
    private mutating func readElsewhere(_ ids: [MessageID], in chat: AccountID, _ unit: inout Unit) throws {
        var summary = summary(chat)
        guard summary.unread > 0 else { return }
        summary.unread = max(summary.unread - ids.count, 0)
        try put(summary, &unit)
    }

    // MARK: Plaintext

    /// Stores an unprotected text, unless the chat is latched: then anybody at the server could have written it.
    mutating func receive(
        _ text: String, _ id: MessageID?, from user: String, _ ticket: UInt64, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (ConnectionID(ticket), .refused(.notCommitted))
        unit.reply = (ConnectionID(ticket), .received(.taken))
        let chat = AccountID.services(user)
        guard !memory.latched.contains(chat) else { return report(.withheld(user), &unit) }
        guard text.utf8.count <= ChatContent.textLimit else {
            return report(.unreadable(user, .malformed), &unit)
        }
        let before = checkpoint()
        do {
            let sequence = ids.next(in: .only, at: now)
            // No device has sealed it, so its reference has the device id that no device has.
            let reference = MessageReference(device: DeviceID(0), message: id ?? MessageID(sequence))
            guard try id == nil || message(reference) == nil else {
                return unit.reply = (ConnectionID(ticket), .received(.copy))
            }
            let message = ChatMessage(
                chat: chat, sequence: sequence, reference: reference, isOwn: false, text: text, writtenAt: now.wall,
                storedAt: now.wall, state: .received, protection: .plaintext)
            try insert(message, isUnread: true, &unit)
        } catch {
            goBack(to: before, now, &unit)
            unit.reply = unit.failure
        }
    }
}
