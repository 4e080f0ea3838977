// The history of an account for a device that was added to it. The new device asks its master device for one part after
// the other, each in a ratcheted message, and stores the rows of a part with the place of the next one in one unit.
//
// Only the master device answers, and only its answers are taken: it vouches for what other people have written.

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
    /// Ours: messages of one chat that are handed over, the newest ones.
    static var historyLimit: Int { 10_000 }
    /// Ours: bytes of the items of one part. In Base64, padded and sealed they fit into a gateway's message.
    static var historyPartSize: Int { 30_000 }
    /// Ours: bytes of the name of a chat.
    private static var historyNameLimit: Int { 1024 }
    /// Ours: rows that are read at once.
    private static var historyPage: Int { 32 }
    /// Ours: the pauses before a part is asked for again, doubled each time, in milliseconds. A part is lost if the
    /// server has lost it, or if the master device was offline for longer than the server keeps messages.
    static var historyPause: Int64 { 60_000 }
    private static var longestHistoryPause: Int64 { 86_400_000 }
    /// Ours: a place that is later than the clock of this device by more than this is not taken, in milliseconds.
    private static var historyTolerance: Int64 { 86_400_000 }

    /// Whether parts of the account's history are still to come.
    package var awaitsHistory: Bool { memory.history != nil }

    // MARK: The new device

    mutating func put(_ history: HistoryState?, _ unit: inout Unit) throws {
        memory.history = history
        guard let history else {
            return append(.removeRecord(.ownDevices, name: Self.historyRecord), &unit)
        }
        append(try sealed(.ownDevices, Self.historyRecord, history.bytes), &unit)
    }

    /// Asks the master device for the next part.
    mutating func askForHistory(_ now: Timestamp, _ unit: inout Unit) throws {
        guard let history = memory.history, isAdopted, let master = own.deviceList.master, master != own.id else {
            return
        }
        historyAsked = (now.queueTime.uptime, Self.historyPause)
        try seal(.wanted(history.cursor), for: master, expires: now.wall + Self.historyPause, now, &unit)
    }

    /// Asks again if the last question has had no answer.
    mutating func askAgainForHistory(_ now: Timestamp, _ unit: inout Unit) {
        guard let at = nextHistoryWake, now.queueTime.uptime >= at else { return }
        let pause = min((historyAsked?.pause ?? 0) * 2, Self.longestHistoryPause)
        try? askForHistory(now, &unit)
        historyAsked = (now.queueTime.uptime, max(pause, Self.historyPause))
    }

    /// When the next part is asked for again, in milliseconds of uptime; nil if none is awaited.
    var nextHistoryWake: Int64? {
        guard memory.history != nil, isAdopted else { return nil }
        return historyAsked.map { $0.at + $0.pause } ?? 0
    }

    /// Takes a part, and asks for the next one.
    private mutating func take(_ part: HistoryPart, _ now: Timestamp, _ unit: inout Unit) throws {
        guard var history = memory.history, history.cursor == part.asked else { return }
        var chat: AccountID?
        var changed: [AccountID: ChatSummary] = [:]
        for item in part.items {
            if item.kind == .chat {
                var cursor = ByteCursor(item.bytes)
                guard let timer = try? cursor.uint64(), let name = String(validating: cursor.rest(), as: UTF8.self)
                else { continue }
                let account = AccountID(text: name)
                chat = account
                var summary = changed[account] ?? summary(account)
                if summary.timer == nil, timer > 0, timer < 1_000_000_000 { summary.timer = Int64(timer) }
                changed[account] = summary
                continue
            }
            guard let bytes = Self.whole(item, &history.piece) else { continue }
            switch item.kind {
            case .group: if let group = try? GroupState(bytes) { try take(handedOver: group, now, &unit) }
            case .message:
                guard let chat, let message = try? ChatMessage(chat: chat, sequence: item.sequence, bytes: bytes),
                    let place = try take(handedOver: message, now, &unit)
                else { continue }
                if let last = changed[chat]?.last { changed[chat]?.last = max(last, place) }
            case .chat: break
            }
        }
        for chat in changed.keys.sorted() {
            if let summary = changed[chat], summary.last > 0 { try put(summary, &unit) }
        }
        report(.history(changed.keys.sorted(), isComplete: part.next == nil), &unit)
        guard let next = part.next else { return try put(nil as HistoryState?, &unit) }
        history.cursor = next
        try put(history, &unit)
        try askForHistory(now, &unit)
    }

    /// The bytes of an item that is whole with this piece of it; nil if pieces are missing.
    private static func whole(_ item: HistoryItem, _ piece: inout HistoryState.Piece?) -> [UInt8]? {
        if item.isWhole {
            piece = nil
            return item.bytes
        }
        if item.offset == 0 {
            piece = HistoryState.Piece(kind: item.kind, sequence: item.sequence, bytes: [])
        }
        guard piece?.kind == item.kind, piece?.sequence == item.sequence, piece?.bytes.count == Int(item.offset)
        else {
            piece = nil
            return nil
        }
        piece?.bytes += item.bytes
        guard let bytes = piece?.bytes, bytes.count == Int(item.total) else { return nil }
        piece = nil
        return bytes
    }

    /// Stores a message of the history, unless this device has it already.
    ///
    /// - Returns: its place; nil if it is not stored.
    private mutating func take(
        handedOver original: ChatMessage, _ now: Timestamp, _ unit: inout Unit
    ) throws -> UInt64? {
        var message = original
        (message.isAwaited, message.readers, message.changes) = (false, nil, [])
        if message.isOwn { message.state = max(message.state, .sent) }
        if let at = message.expiresAt, at <= now.wall, !message.isDeleted { return nil }
        guard message.sequence > 0, message.sequence >> 10 <= UInt64(max(now.wall + Self.historyTolerance, 0)) else {
            return nil
        }
        if let known = try self.message(message.reference) {
            // An edit, a deletion or a reaction has come before it.
            guard known.isAwaited, known.chat == message.chat,
                known.owner == message.owner || known.isOfUnknownAuthor
            else { return nil }
            message.sequence = known.sequence
            // A receipt has come before it, too. The state of a text whose author was not known is none of an own one.
            if known.isOwn == message.isOwn { message.state = max(message.state, known.state) }
            message.receipts.merge(known.receipts) { max($0, $1) }
            message.changes = known.changes
            if known.isEdited || known.isDeleted {
                (message.text, message.isEdited, message.isDeleted) = (known.text, known.isEdited, known.isDeleted)
                if known.isDeleted { message.delete() }
            }
            for reaction in known.reactions {
                message.react(by: reaction.isOwn ? .own : reaction.author ?? message.chat, with: reaction.characters)
            }
        } else {
            // The order of the master device, unless this device has a message of its own at this very place.
            while try record(.chatMessage, message.name) != nil { message.sequence += 1 }
            append(try sealed(.chatIndex, message.reference.text, Array(message.name.utf8)), &unit)
        }
        noteUsed(message.sequence)
        try put(message, &unit)
        try setTimer(of: message, &unit)
        if message.protection == .device, message.chat.group == nil { try raiseLatch(message.chat, now, &unit) }
        return message.sequence
    }

    // MARK: The master device

    /// Takes a message about the history, from another device of the person.
    mutating func receiveHistory(
        _ message: HistoryMessage, of device: DeviceID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        switch message {
        case .wanted(let cursor):
            guard isMaster, own.deviceList.identity(of: device) != nil else { return }
            try seal(.part(try part(after: cursor, now)), for: device, now, &unit)
        case .part(let part):
            guard device == own.deviceList.master else { return }
            try take(part, now, &unit)
        }
    }

    private mutating func seal(
        _ message: HistoryMessage, for device: DeviceID, expires: Int64? = nil, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard let box = try own.sessions(with: device, in: vault),
            box.sessions.peerIdentity == own.deviceList.identity(of: device)
        else { return want(keysOf: account, &unit) }
        let content = ChatContent(.history, text: message.text, writtenAt: now.wall)
        let id = MessageID(ids.next(in: .only, at: now))
        try seal(content.body, id, for: [(device, box)], .services(account), nil, expires: expires, now, &unit)
    }

    /// The part of the history after a place.
    private func part(after asked: HistoryCursor, _ now: Timestamp) throws -> HistoryPart {
        var part = HistoryPart(asked: asked)
        var (cursor, room) = (asked, Self.historyPartSize)
        if cursor.mark == 0 { cursor.mark = max(ids.highest, 1) }
        let chats = summaries.keys.sorted()
        while room > 0 {
            if cursor.stage == .groups {
                let name = cursor.name
                let group = groups.first { cursor.before == 0 ? name < $0.id.text : name <= $0.id.text }
                guard let group else {
                    cursor = cursor.beginning(.messages)
                    continue
                }
                if group.id.text != name { cursor = cursor.beginning(group.id.text) }
                if add(.group, 0, group.bytes, to: &part, &cursor, &room) { cursor.before = 0 }
                continue
            }
            let name = AccountID(text: cursor.name)
            let chat = chats.first { cursor.name.isEmpty || (cursor.before == 0 ? name < $0 : name <= $0) }
            guard let chat else {
                if cursor.stage == .late { return part }
                cursor = cursor.beginning(.late)
                continue
            }
            if chat.text != cursor.name { cursor = cursor.beginning(chat.text) }
            try add(chat, to: &part, &cursor, &room, now)
        }
        part.next = cursor
        return part
    }

    /// Adds the next messages of a chat to a part.
    private func add(
        _ chat: AccountID, to part: inout HistoryPart, _ cursor: inout HistoryCursor, _ room: inout Int,
        _ now: Timestamp
    ) throws {
        guard chat.text.utf8.count <= Self.historyNameLimit else { return cursor.before = 0 }
        var header: [UInt8] = []
        header.append(bigEndian: UInt64(bitPattern: summary(chat).timer ?? 0))
        header += Array(chat.text.utf8)
        var hasHeader = false
        let first = cursor.stage == .late ? cursor.mark &+ 1 : 0
        while cursor.count < Self.historyLimit, first < cursor.before {
            let rows = try messageRows(chat, from: first, before: cursor.before, last: Self.historyPage)
            guard !rows.isEmpty else { break }
            for row in rows.reversed() {
                let (sequence, bytes) = try (Self.place(row.name).1, sealer.open(row.value, label: Self.label(row)))
                var message = try ChatMessage(chat: chat, sequence: sequence, bytes: bytes)
                // They belong to requests of this device, and to its sessions.
                (message.isTaken, message.isRefused) = (false, false)
                (message.readers, message.changes) = (nil, [])
                let isExpired = message.expiresAt.map { $0 <= now.wall } ?? false
                guard !message.isAwaited, !isExpired || message.isDeleted else {
                    (cursor.before, cursor.offset) = (sequence, 0)
                    continue
                }
                if !hasHeader {
                    part.items.append(HistoryItem(.chat, header))
                    room -= HistoryItem.overhead + header.count
                    hasHeader = true
                }
                guard room > 0, add(.message, sequence, message.bytes, to: &part, &cursor, &room) else { return }
                (cursor.before, cursor.count) = (sequence, cursor.count + 1)
                guard room > 0 else { return }
            }
        }
        cursor.before = 0
    }

    /// Adds an item, or as much of it as there is room for.
    ///
    /// - Returns: whether the item is complete.
    private func add(
        _ kind: HistoryItem.Kind, _ sequence: UInt64, _ bytes: [UInt8], to part: inout HistoryPart,
        _ cursor: inout HistoryCursor, _ room: inout Int
    ) -> Bool {
        // It may have become shorter since its beginning was handed over.
        let piece = bytes.dropFirst(Int(cursor.offset)).prefix(room)
        var item = HistoryItem(kind, sequence: sequence, bytes)
        (item.offset, item.bytes) = (min(cursor.offset, item.total), Array(piece))
        part.items.append(item)
        room -= HistoryItem.overhead + piece.count
        let end = Int(item.offset) + piece.count
        cursor.offset = end < bytes.count ? UInt32(end) : 0
        return end == bytes.count
    }
}
