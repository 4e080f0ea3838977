// A message of a chat, as it is stored: one sealed row each, in the transaction of the ratchet step that brought it.

import Devices
package import Envelope
package import Protection

/// How far a message of the person has come. Only rises, except to ``failed``.
package enum DeliveryState: UInt8, Sendable, Comparable {
    /// It waits for the keys of its recipient.
    case waiting = 0
    /// It is sealed and waits for the server.
    case queued = 1
    /// The server has it for all devices of the recipient.
    case sent = 2
    /// A device of the recipient has stored it.
    case received = 3
    /// The recipient has read it.
    case read = 4
    /// The server has refused it, or it has expired.
    case failed = 5

    package static func < (left: DeliveryState, right: DeliveryState) -> Bool { left.rawValue < right.rawValue }
}

/// One person's reaction to a message.
package struct ChatReaction: Equatable, Sendable {
    /// Whether it is the person's own.
    package var isOwn: Bool
    package var characters: String
    /// In groups, the member that has reacted; nil for the person, and in chats of two.
    package var author: AccountID?

    package init(isOwn: Bool, characters: String, author: AccountID? = nil) {
        (self.isOwn, self.characters, self.author) = (isOwn, characters, author)
    }
}

/// A change of a message that a device has sealed.
package struct ChatChange: Equatable, Sendable {
    package enum Kind: UInt8, Sendable {
        /// An edit or a deletion.
        case text = 0
        case reaction = 1
    }

    package var kind: Kind
    /// Names the change as messages are named. The ids of one device rise.
    package var reference: MessageReference

    package init(_ kind: Kind, _ reference: MessageReference) { (self.kind, self.reference) = (kind, reference) }
}

extension GroupID {
    /// The chat of the group.
    package var chat: AccountID { .room(text) }
}

extension AccountID {
    /// The group whose chat this is; nil for the chat with a person.
    package var group: GroupID? { roomName.flatMap { GroupID($0) } }
}

/// A message of a chat with one person or of a group.
package struct ChatMessage: Equatable, Sendable {
    /// Ours: people whose reactions one message has, and those whose receipts. A group has fewer members, but those that
    /// have left count as well. The form has room for 255.
    package static let personLimit = 64
    /// Ours: changes that one message notes, for a text and a reaction of as many people. The form has room for 255.
    private static let changeLimit = 2 * personLimit

    /// The other person, or the chat of a group.
    package var chat: AccountID
    /// The place in the chat: the order in which messages were stored on this device.
    package var sequence: UInt64
    package var reference: MessageReference
    /// Whether the person has written it, on this device or on another.
    package var isOwn: Bool
    package var text: String
    /// In milliseconds since 1970, by the clock of its sender.
    package var writtenAt: Int64
    /// In milliseconds since 1970, by the clock of this device.
    package var storedAt: Int64
    package var state: DeliveryState
    /// How it was protected on its way here; for an own message, on its way to its recipient.
    package var protection: Protection
    /// Whether the other person's safety number was compared when it was stored.
    package var isVerified = false
    package var isEdited = false
    package var isDeleted = false
    /// Whether it is known only from an edit, a deletion or a reaction that overtook it. It is not shown.
    package var isAwaited = false
    /// Whether the text is that of a ``FileReference``. Empty once it was deleted.
    package var isFile = false
    /// Whether the server has it for a recipient, and whether it has refused it for one, while others are open.
    var (isTaken, isRefused) = (false, false)
    /// How long the text stays, in seconds; nil for good.
    package var timer: Int64?
    /// At most one of each person; see ``personLimit``.
    package var reactions: [ChatReaction] = []
    /// In groups, the member that has written it; nil for the person, and in chats of two.
    package var author: AccountID?
    /// In groups, what members have confirmed of an own message: ``DeliveryState/received`` or ``DeliveryState/read``.
    package var receipts: [AccountID: DeliveryState] = [:]
    /// In messages of this device, the devices for which it was sealed: those that were listed then. Nil if that is not
    /// known: programs up to November 2026 have not noted it. In messages of others, the devices for which this device has
    /// sealed its changes. Devices for which a later change was not sealed are no readers any more.
    package var readers: Set<DeviceID>?
    /// The last change of each kind by each device, so that one which comes again changes nothing. Those of this device are
    /// sealed again for ``readers``.
    package var changes: [ChatChange] = []

    /// The account that has written it: ``Protection/AccountID/own`` for the person.
    var owner: AccountID { isOwn ? .own : author ?? chat }

    /// Whether it is awaited, in a group, from a device that is not known.
    var isOfUnknownAuthor: Bool { isAwaited && !isOwn && author == nil && chat.group != nil }

    /// Sets who has written a message that was awaited.
    mutating func setAuthor(_ owner: AccountID) {
        isOwn = owner == .own
        if isOwn { state = .sent }
        author = isOwn || chat.group == nil ? nil : owner
    }

    package init(
        chat: AccountID, sequence: UInt64, reference: MessageReference, isOwn: Bool, text: String, writtenAt: Int64,
        storedAt: Int64, state: DeliveryState, protection: Protection
    ) {
        (self.chat, self.sequence, self.reference, self.isOwn) = (chat, sequence, reference, isOwn)
        (self.text, self.writtenAt, self.storedAt) = (text, writtenAt, storedAt)
        (self.state, self.protection) = (state, protection)
    }

    /// What is sealed for its recipients.
    var content: ChatContent { ChatContent(isFile ? .file : .text, text: text, writtenAt: writtenAt, timer: timer) }

    /// When the text is deleted, in milliseconds since 1970; nil for never.
    package var expiresAt: Int64? { timer.map { storedAt + $0 * 1000 } }

    /// Sets or removes a reaction of an account, ``Protection/AccountID/own`` for the person.
    ///
    /// Beyond the limit the oldest one of another person is dropped.
    package mutating func react(by owner: AccountID, with characters: String?) {
        let author = owner == .own || chat.group == nil ? nil : owner
        reactions.removeAll { $0.isOwn == (owner == .own) && $0.author == author }
        if let characters {
            reactions.append(ChatReaction(isOwn: owner == .own, characters: characters, author: author))
        }
        while reactions.count > Self.personLimit, let oldest = reactions.firstIndex(where: { !$0.isOwn }) {
            reactions.remove(at: oldest)
        }
    }

    /// Notes what a member of a group has confirmed.
    ///
    /// - Parameter isMember: whether an account is a member still. Beyond the limit, receipts of others are dropped.
    package mutating func note(_ state: DeliveryState, of member: AccountID, isMember: (AccountID) -> Bool) {
        receipts[member] = state
        if receipts.count > Self.personLimit { receipts = receipts.filter { isMember($0.key) } }
    }

    /// Whether a change, or a later one of the same device, was made before.
    func has(_ change: ChatChange) -> Bool {
        changes.contains {
            $0.kind == change.kind && $0.reference.device == change.reference.device
                && $0.reference.message >= change.reference.message
        }
    }

    /// Notes a change in place of the last one of the same device. Beyond the limit the oldest one is dropped.
    package mutating func note(_ change: ChatChange) {
        changes.removeAll { $0.kind == change.kind && $0.reference.device == change.reference.device }
        changes.append(change)
        if changes.count > Self.changeLimit { changes.removeFirst() }
    }

    /// Removes the text. The row stays, so that a copy that comes later is not shown.
    mutating func delete() {
        (text, isDeleted, isEdited, reactions, changes) = ("", true, false, [], [])
    }

    // MARK: Rows

    /// The name of the row: the chat, then the place as 16 hexadecimal digits, so that names sort by place.
    package static func name(_ chat: AccountID, _ sequence: UInt64) -> String {
        chat.text + " " + DeviceID(sequence).name
    }

    package var name: String { Self.name(chat, sequence) }

    /// The form of a row, before it is sealed:
    ///
    ///     form 1 (1 B) | flags (1 B) | state (1 B) | protection (1 B) | device (8 B) | message (8 B) | written (8 B) |
    ///     stored (8 B) | timer (8 B, 0 for none) | reactions (1 B) | each: own (1 B), characters (2 B length) |
    ///     text (2 B length)
    ///
    /// The form of messages in groups is 2: each reaction has its author (2 B length, empty for the person), and after
    /// the text follow
    ///
    ///     author (2 B length) | receipts (1 B) | each: member (2 B length), state (1 B)
    ///
    /// Messages with ``readers`` have a form that is greater by 2, and at the end
    ///
    ///     readers (2 B length) | each: device (8 B)
    ///
    /// Messages with ``changes`` have a form that is greater by 4, and at the end
    ///
    ///     changes (1 B) | each: kind (1 B), device (8 B), message (8 B)
    package var bytes: [UInt8] {
        var output = bytesOfContent
        if let readers {
            output[0] += 2
            var devices: [UInt8] = []
            for device in readers.sorted().prefix(Int(UInt16.max) / 8) { devices.append(bigEndian: device.value) }
            output.append(field: devices)
        }
        guard !changes.isEmpty else { return output }
        output[0] += 4
        let listed = changes.suffix(Int(UInt8.max))
        output.append(UInt8(listed.count))
        for change in listed {
            output.append(change.kind.rawValue)
            output.append(bigEndian: change.reference.device.value)
            output.append(bigEndian: change.reference.message.value)
        }
        return output
    }

    /// What all forms have.
    private var bytesOfContent: [UInt8] {
        let isGroup = chat.group != nil
        let flags = [isOwn, isVerified, isEdited, isDeleted, isAwaited, isFile, isTaken, isRefused].enumerated()
            .reduce(UInt8(0)) { $0 | ($1.element ? 1 << UInt8($1.offset) : 0) }
        var output: [UInt8] = [isGroup ? 2 : 1, flags, state.rawValue, protection.rawValue]
        output.append(bigEndian: reference.device.value)
        output.append(bigEndian: reference.message.value)
        for number in [writtenAt, storedAt, timer ?? 0] { output.append(bigEndian: UInt64(bitPattern: number)) }
        let listed = reactions.suffix(Int(UInt8.max))
        output.append(UInt8(listed.count))
        for reaction in listed {
            output.append(reaction.isOwn ? 1 : 0)
            output.append(field: Array(reaction.characters.utf8))
            if isGroup { output.append(field: Array((reaction.author?.text ?? "").utf8)) }
        }
        output.append(field: Array(text.utf8))
        guard isGroup else { return output }
        output.append(field: Array((author?.text ?? "").utf8))
        let members = receipts.sorted(by: { $0.key < $1.key }).prefix(Int(UInt8.max))
        output.append(UInt8(members.count))
        for (member, state) in members {
            output.append(field: Array(member.text.utf8))
            output.append(state.rawValue)
        }
        return output
    }

    /// - Throws: ``EnvelopeError`` if the row is damaged.
    package init(chat: AccountID, sequence: UInt64, bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        let isGroup = chat.group != nil
        guard (1...8).contains(form), form.isMultiple(of: 2) == isGroup else { throw .unsupportedVersion(form) }
        let (hasReaders, hasChanges) = ((form - 1) & 2 != 0, (form - 1) & 4 != 0)
        let flags = try cursor.byte()
        guard let state = DeliveryState(rawValue: try cursor.byte()),
            let protection = Protection(rawValue: try cursor.byte())
        else { throw .malformed }
        let device = DeviceID(try cursor.uint64())
        let reference = MessageReference(device: device, message: MessageID(try cursor.uint64()))
        let writtenAt = Int64(bitPattern: try cursor.uint64())
        let storedAt = Int64(bitPattern: try cursor.uint64())
        let timer = Int64(bitPattern: try cursor.uint64())
        var reactions: [ChatReaction] = []
        for _ in 0..<(try cursor.byte()) {
            let isOwn = try cursor.byte() == 1
            let characters = try Self.text(&cursor)
            let author = isGroup ? try Self.author(&cursor) : nil
            reactions.append(ChatReaction(isOwn: isOwn, characters: characters, author: author))
        }
        let text = try Self.text(&cursor)
        let author = isGroup ? try Self.author(&cursor) : nil
        var receipts: [AccountID: DeliveryState] = [:]
        for _ in 0..<(isGroup ? try cursor.byte() : 0) {
            guard let member = try Self.author(&cursor), let state = DeliveryState(rawValue: try cursor.byte()) else {
                throw .malformed
            }
            receipts[member] = state
        }
        var readers: Set<DeviceID>?
        if hasReaders {
            var devices = ByteCursor(try cursor.field())
            readers = []
            while !devices.isAtEnd { readers?.insert(DeviceID(try devices.uint64())) }
        }
        var changes: [ChatChange] = []
        for _ in 0..<(hasChanges ? try cursor.byte() : 0) {
            guard let kind = ChatChange.Kind(rawValue: try cursor.byte()) else { throw .malformed }
            let device = DeviceID(try cursor.uint64())
            changes.append(
                ChatChange(kind, MessageReference(device: device, message: MessageID(try cursor.uint64()))))
        }
        guard cursor.isAtEnd else { throw .malformed }
        self.init(
            chat: chat, sequence: sequence, reference: reference, isOwn: flags & 1 != 0, text: text,
            writtenAt: writtenAt, storedAt: storedAt, state: state, protection: protection)
        (isVerified, isEdited) = (flags & 2 != 0, flags & 4 != 0)
        (isDeleted, isAwaited, isFile) = (flags & 8 != 0, flags & 16 != 0, flags & 32 != 0)
        (isTaken, isRefused) = (flags & 64 != 0, flags & 128 != 0)
        self.timer = timer == 0 ? nil : timer
        (self.reactions, self.author, self.receipts) = (reactions, author, receipts)
        (self.readers, self.changes) = (readers, changes)
    }

    /// An account; nil for an empty field.
    private static func author(_ cursor: inout ByteCursor) throws(EnvelopeError) -> AccountID? {
        let text = try text(&cursor)
        return text.isEmpty ? nil : AccountID(text: text)
    }

    private static func text(_ cursor: inout ByteCursor) throws(EnvelopeError) -> String {
        guard let text = String(validating: try cursor.field(), as: UTF8.self) else { throw .malformed }
        return text
    }
}

/// A chat, for lists.
package struct ChatSummary: Equatable, Sendable {
    /// The other person, or the chat of a group.
    package var chat: AccountID
    /// The place of its last message.
    package var last: UInt64
    /// Messages of others that the person has not read.
    package var unread: Int
    /// How long new texts of the person stay, in seconds; nil for good.
    package var timer: Int64?

    package init(chat: AccountID, last: UInt64 = 0, unread: Int = 0, timer: Int64? = nil) {
        (self.chat, self.last, self.unread, self.timer) = (chat, last, unread, timer)
    }

    /// The form of a row, before it is sealed: `1 | last (8 B) | unread (4 B) | timer (8 B, 0 for none)`.
    package var bytes: [UInt8] {
        var output: [UInt8] = [1]
        output.append(bigEndian: last)
        output.append(bigEndian: UInt32(clamping: unread))
        output.append(bigEndian: UInt64(bitPattern: timer ?? 0))
        return output
    }

    /// - Throws: ``EnvelopeError`` if the row is damaged.
    package init(chat: AccountID, bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == 1 else { throw .unsupportedVersion(form) }
        let last = try cursor.uint64()
        let unread = Int(try cursor.uint32())
        let timer = Int64(bitPattern: try cursor.uint64())
        guard cursor.isAtEnd else { throw .malformed }
        self.init(chat: chat, last: last, unread: unread, timer: timer == 0 ? nil : timer)
    }
}
