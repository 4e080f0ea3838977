// The rows of chats: messages, their index by reference, summaries, messages that wait for keys, and timers. All are
// sealed, each for its kind and name; the names of rows are in clear.

import CommitLoop
import Devices
import Envelope
import Protection
import RequestQueue
import StorePort
import Vault

extension MessengerParticipants {
    /// Ours: messages of one page of history.
    package static var pageLimit: Int { 200 }

    static func label(_ row: RecordRow) -> String { label(row.kind, row.name) }
    private static func label(_ kind: RecordKind, _ name: String) -> String { "\(kind) \(name)" }

    /// The chat and the place that ``ChatMessage/name(_:_:)`` has put together.
    static func place(_ name: String) throws(EnvelopeError) -> (AccountID, UInt64) {
        guard let space = name.lastIndex(of: " "), let sequence = UInt64(hexadecimal: name[name.index(after: space)...])
        else { throw .malformed }
        return (AccountID(text: String(name[..<space])), sequence)
    }

    mutating func sealed(_ kind: RecordKind, _ name: String, _ bytes: [UInt8]) throws -> StoreChange {
        let value = try sealer.seal(bytes, label: Self.label(kind, name), random: &vault.random)
        return .putRecord(RecordRow(kind: kind, name: name, value: value))
    }

    // MARK: Messages

    /// A row with the changes of the open batch.
    func record(_ kind: RecordKind, _ name: String) throws -> RecordRow? {
        try memory.rows[kind, name] ?? vault.store.record(kind, name: name)
    }

    func message(_ chat: AccountID, _ sequence: UInt64) throws -> ChatMessage? {
        guard let row = try record(.chatMessage, ChatMessage.name(chat, sequence)) else { return nil }
        return try ChatMessage(chat: chat, sequence: sequence, bytes: sealer.open(row.value, label: Self.label(row)))
    }

    /// The message that a reference names; nil if none has come.
    func message(_ reference: MessageReference) throws -> ChatMessage? {
        guard let row = try record(.chatIndex, reference.text) else { return nil }
        let name = String(decoding: try sealer.open(row.value, label: Self.label(row)), as: UTF8.self)
        let (chat, sequence) = try Self.place(name)
        return try message(chat, sequence)
    }

    /// Stores a message, in place of its earlier state.
    mutating func put(_ message: ChatMessage, _ unit: inout Unit) throws {
        append(try sealed(.chatMessage, message.name, message.bytes), &unit)
    }

    /// Stores a new message with its index, its timer and the summary of its chat.
    mutating func insert(_ message: ChatMessage, isUnread: Bool, _ unit: inout Unit) throws {
        try put(message, &unit)
        append(try sealed(.chatIndex, message.reference.text, Array(message.name.utf8)), &unit)
        try setTimer(of: message, &unit)
        guard !message.isAwaited else { return }
        try note(message, isUnread: isUnread, &unit)
    }

    /// Counts a message that is shown from now on.
    mutating func note(_ message: ChatMessage, isUnread: Bool, _ unit: inout Unit) throws {
        var summary = summary(message.chat)
        summary.last = max(summary.last, message.sequence)
        if isUnread { summary.unread += 1 }
        try put(summary, &unit)
        report(.message(message), &unit)
    }

    mutating func setTimer(of message: ChatMessage, _ unit: inout Unit) throws {
        guard let at = message.expiresAt, !message.isDeleted, !message.isAwaited else { return }
        append(try sealed(.chatTimer, Self.timerName(at, message), []), &unit)
        memory.expiries.append((at, message.chat, message.sequence))
    }

    private static func timerName(_ at: Int64, _ message: ChatMessage) -> String {
        DeviceID(UInt64(at)).name + " " + message.name
    }

    /// Deletes the texts whose time has come.
    mutating func expire(_ now: Timestamp, _ unit: inout Unit) {
        for expiry in memory.expiries where expiry.at <= now.wall {
            guard var message = try? message(expiry.chat, expiry.sequence) else { continue }
            append(.removeRecord(.chatTimer, name: Self.timerName(expiry.at, message)), &unit)
            guard !message.isDeleted else { continue }
            message.delete()
            guard (try? put(message, &unit)) != nil else { continue }
            report(.changed(message), &unit)
        }
        memory.expiries.removeAll { $0.at <= now.wall }
    }

    // MARK: Summaries

    func summary(_ chat: AccountID) -> ChatSummary { summaries[chat] ?? ChatSummary(chat: chat) }

    mutating func put(_ summary: ChatSummary, _ unit: inout Unit) throws {
        let before = summaries.updateValue(summary, forKey: summary.chat)
        unit.onRollback { state, _, _, _ in state.summaries[summary.chat] = before }
        append(try sealed(.chat, summary.chat.text, summary.bytes), &unit)
        report(.chat(summary), &unit)
    }

    // MARK: Waiting for keys

    /// Notes that a message, or the notice of a group, waits for the keys of a person.
    mutating func wait(_ sequence: UInt64, for person: AccountID, _ unit: inout Unit) {
        let name = ChatMessage.name(person, sequence)
        append(.putRecord(RecordRow(kind: .chatWaiting, name: name, value: [])), &unit)
        memory.waiting[person, default: []].append(sequence)
        want(keysOf: person.name, &unit)
    }

    mutating func stopWaiting(_ sequence: UInt64, for person: AccountID, _ unit: inout Unit) {
        append(.removeRecord(.chatWaiting, name: ChatMessage.name(person, sequence)), &unit)
        memory.waiting[person]?.removeAll { $0 == sequence }
        if memory.waiting[person]?.isEmpty == true { memory.waiting[person] = nil }
    }

    // MARK: History

    /// Replies with messages of a chat, in their order, after the commit: so they include those of the same batch.
    ///
    /// - Parameter before: a place; nil for the end of the chat.
    mutating func history(_ chat: ChatName, before: UInt64?, limit: Int, _ ticket: UInt64, _ unit: inout Unit) {
        unit.failure = (ConnectionID(ticket), .refused(.notCommitted))
        unit.onCommit { state, replies, _ in
            let messages = try? state.messages(with: chat.id, before: before, limit: limit)
            replies.append(
                AddressedReply(
                    connection: ConnectionID(ticket),
                    reply: messages.map { .history($0) } ?? .refused(.notCommitted)))
        }
    }

    /// The last messages of a chat before a place, in their order, with the changes of the open batch.
    ///
    /// Awaited ones do not count: a peer can make any number of them.
    ///
    /// - Parameters:
    ///   - before: a place; nil for the end of the chat.
    ///   - limit: at most ``pageLimit`` count.
    func messages(with chat: AccountID, before: UInt64? = nil, limit: Int) throws -> [ChatMessage] {
        let limit = min(max(limit, 0), Self.pageLimit)
        var (messages, end, page) = ([ChatMessage](), before ?? .max, limit)
        while messages.count < limit {
            let rows = try messageRows(chat, from: 0, before: end, last: page)
            let read = try rows.map { row in
                try ChatMessage(
                    chat: chat, sequence: Self.place(row.name).1,
                    bytes: sealer.open(row.value, label: Self.label(row)))
            }
            messages = read.filter { !$0.isAwaited } + messages
            guard rows.count == page, let first = read.first else { break }
            (end, page) = (first.sequence, Self.pageLimit)
        }
        return messages.suffix(limit)
    }

    /// The last rows of a chat in a range, with the changes of the open batch.
    func messageRows(
        _ chat: AccountID, from first: UInt64, before end: UInt64, last limit: Int
    ) throws -> [RecordRow] {
        let (from, to) = (ChatMessage.name(chat, first), ChatMessage.name(chat, end))
        let stored = try vault.store.records(.chatMessage, from: from, to: to, last: limit)
        let changed = memory.rows.rows(.chatMessage) { row in
            !row.name.utf8.lexicographicallyPrecedes(from.utf8) && row.name.utf8.lexicographicallyPrecedes(to.utf8)
        }
        guard !changed.isEmpty else { return stored }
        var rows = Dictionary(stored.map { (ExactText($0.name), $0) }, uniquingKeysWith: { first, _ in first })
        for row in changed { rows[ExactText(row.name)] = row }
        let all = rows.values.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
        return Array(all.suffix(limit))
    }

    /// Adds a change to a unit, and shows it to the later units of the batch.
    mutating func append(_ change: StoreChange, _ unit: inout Unit) {
        unit.changes.append(change)
        memory.rows.note(change)
    }
}

/// Rows of chats that the units of the open batch have changed and the store does not have yet.
struct UncommittedRows {
    private var rows: [RecordKind: [ExactText: RecordRow]] = [:]

    subscript(kind: RecordKind, name: String) -> RecordRow? { rows[kind]?[ExactText(name)] }

    mutating func note(_ change: StoreChange) {
        guard case .rare(let change) = change, let record = change.record else { return }
        if case .putRecord(let row) = change {
            rows[record.kind, default: [:]][ExactText(record.name)] = row
        } else {
            rows[record.kind]?[ExactText(record.name)] = nil
        }
    }

    /// The changed rows of a kind that fit.
    func rows(_ kind: RecordKind, where fits: (RecordRow) -> Bool) -> [RecordRow] {
        rows[kind]?.values.filter(fits) ?? []
    }

    mutating func removeAll() { rows = [:] }
}
