// What a message says, inside its envelope: the text as the body's text, all else as client-only tags. So a text of a
// messenger is a text for a sidecar, and a receipt or a reaction is a line without a text, which clients ignore.

package import Envelope

/// Names a message of a chat: the device that has sealed it, and the id that this device gave it.
package struct MessageReference: Hashable, Sendable {
    package var device: DeviceID
    package var message: MessageID

    package init(device: DeviceID, message: MessageID) { (self.device, self.message) = (device, message) }

    /// 32 hexadecimal digits: the device, then the message.
    package var text: String { device.name + message.name }

    /// Reads ``text`` and no other form.
    package init?(_ text: String) {
        guard text.utf8.count == 32, let device = UInt64(hexadecimal: text.prefix(16)),
            let message = UInt64(hexadecimal: text.suffix(16))
        else { return nil }
        self.init(device: DeviceID(device), message: MessageID(message))
    }
}

extension MessageID {
    /// The text form: 16 hexadecimal digits.
    package var name: String { DeviceID(value).name }

    /// Reads ``name`` and no other form.
    package init?(name: String) {
        guard let value = UInt64(hexadecimal: name[...]) else { return nil }
        self.init(value)
    }
}

extension UInt64 {
    /// Reads 16 lowercase hexadecimal digits.
    package init?(hexadecimal text: Substring) {
        let isValid = text.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
        guard isValid, text.utf8.count == 16, let value = UInt64(text, radix: 16) else { return nil }
        self = value
    }
}

/// The content of one message of a chat.
///
/// Tags, each at most once; others are ignored:
///
///     +pawl/at=MILLISECONDS        when the sender wrote it, since 1970
///     +pawl/to=BASE64              the name of the other person of the chat; only for the sender's other devices
///     +pawl/timer=SECONDS          the text is deleted this long after it was sent
///     +pawl/file=1                 the text is a file; see ``FileReference``. Clients without files ignore it
///     +pawl/edit=REFERENCE         the text replaces that of an earlier message
///     +pawl/delete=REFERENCE       an earlier message is deleted
///     +pawl/react=REFERENCE        a reaction, its characters in +pawl/with=BASE64, or none to take it back
///     +pawl/received=IDS           ids of the recipient's messages, separated by commas
///     +pawl/read=IDS
///     +pawl/signal=KIND            the text is for the app's code and not for people; the timer is its lifetime
///     +pawl/history=1              the text is a part of the history for the sender's other device, or asks for one; see
///                                  ``HistoryMessage``
///     +pawl/group=BASE64           the message belongs to a group in this version; see ``GroupReference``. Alone: the
///                                  version is new
package struct ChatContent: Equatable, Sendable {
    /// Ours: bytes of all tags; sixteen ids of receipts and all other tags fit.
    static let tagLimit = 1024
    /// Ours: ids in one receipt.
    package static let receiptLimit = 16
    /// Ours: bytes of one reaction. A family of emoji has 25.
    package static let reactionLimit = 64
    /// Ours: bytes of the kind of a signal: letters, digits and hyphens.
    package static let signalKindLimit = 16
    /// Ours: bytes of one text. A padded body with its tags has a length of two bytes.
    package static let textLimit = 60_000

    package enum Act: Equatable, Sendable {
        case text
        /// A file: the text is that of a ``FileReference``.
        case file
        case edit(MessageReference)
        case delete(MessageReference)
        /// Nil takes the reaction back.
        case react(MessageReference, with: String?)
        case received([MessageID])
        case read([MessageID])
        /// For the other side's code: it is not kept in the history, and people do not see it.
        case signal(kind: String)
        /// A version of the group, and nothing else.
        case group
        /// About the history of the account: the text is that of a ``HistoryMessage``.
        case history
    }

    package var act: Act
    package var text: String
    /// In milliseconds since 1970, by the sender's clock.
    package var writtenAt: Int64
    /// Nil except in copies for the sender's other devices.
    package var recipient: String?
    /// In seconds; nil for a text that stays.
    package var timer: Int64?
    /// The group and the version in which it was written; nil in chats of two.
    package var group: GroupReference?

    package init(_ act: Act, text: String = "", writtenAt: Int64, recipient: String? = nil, timer: Int64? = nil) {
        (self.act, self.text, self.writtenAt) = (act, text, writtenAt)
        (self.recipient, self.timer) = (recipient, timer)
    }

    // MARK: Body

    /// The body, not padded.
    package var body: Body {
        var tags = ["at=\(writtenAt)"]
        if let recipient { tags.append("to=\(Self.base64(recipient))") }
        if let timer { tags.append("timer=\(timer)") }
        switch act {
        case .text: break
        case .file: tags.append("file=1")
        case .edit(let reference): tags.append("edit=\(reference.text)")
        case .delete(let reference): tags.append("delete=\(reference.text)")
        case .react(let reference, let characters):
            tags.append("react=\(reference.text)")
            if let characters { tags.append("with=\(Self.base64(characters))") }
        case .received(let ids): tags.append("received=\(Self.list(ids))")
        case .read(let ids): tags.append("read=\(Self.list(ids))")
        case .signal(let kind): tags.append("signal=\(kind)")
        case .group: break
        case .history: tags.append("history=1")
        }
        if let group { tags.append("group=\(Base64.text(group.bytes))") }
        return Body(
            kind: hasText ? .text : .tagsOnly, tags: Array(tags.map { "+pawl/" + $0 }.joined(separator: ";").utf8),
            text: Array(text.utf8))
    }

    /// Whether people see a text.
    private var hasText: Bool {
        switch act {
        case .text, .edit: true
        case .file, .delete, .react, .received, .read, .signal, .group, .history: false
        }
    }

    /// Whether the body has text that people do not see.
    private var hasHiddenText: Bool {
        switch act {
        case .signal, .file, .history: true
        default: false
        }
    }

    /// Whether a text names a kind of signals.
    package static func isSignalKind(_ text: some StringProtocol) -> Bool {
        (1...signalKindLimit).contains(text.utf8.count)
            && text.utf8.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2D }
    }

    private static func list(_ ids: [MessageID]) -> String { ids.map(\.name).joined(separator: ",") }

    private static func base64(_ text: String) -> String { Base64.text(Array(text.utf8)) }

    /// Reads a body that is no control message.
    ///
    /// - Parameter now: the time of a text without one, as from a sidecar, in milliseconds since 1970.
    /// - Throws: ``EnvelopeError/malformed``
    package init(_ body: Body, now: Int64) throws(EnvelopeError) {
        guard body.tags.count <= Self.tagLimit else { throw .malformed }
        try self.init(unbounded: body, now: now)
    }

    /// Reads the ``body`` of a content that has come. It can be longer than what has come: it always has a time.
    ///
    /// - Throws: ``EnvelopeError/malformed``
    init(stored body: Body) throws(EnvelopeError) { try self.init(unbounded: body, now: 0) }

    private init(unbounded body: Body, now: Int64) throws(EnvelopeError) {
        guard body.kind != .control, body.text.count <= Self.textLimit,
            let text = String(validating: body.joinedText, as: UTF8.self)
        else { throw .malformed }
        let tags = try Tags(body.tags)
        var acts: [Act] = []
        if tags["file"] != nil {
            _ = try FileReference(text)
            acts.append(.file)
        }
        if let value = tags["edit"] { acts.append(.edit(try Self.reference(value))) }
        if let value = tags["delete"] { acts.append(.delete(try Self.reference(value))) }
        if let value = tags["react"] {
            let characters = try tags["with"].map { value throws(EnvelopeError) in try Self.text(value) }
            guard characters.map({ (1...Self.reactionLimit).contains($0.utf8.count) }) ?? true else {
                throw .malformed
            }
            acts.append(.react(try Self.reference(value), with: characters))
        }
        if let value = tags["received"] { acts.append(.received(try Self.ids(value))) }
        if let value = tags["read"] { acts.append(.read(try Self.ids(value))) }
        if let value = tags["signal"] {
            guard Self.isSignalKind(value) else { throw .malformed }
            acts.append(.signal(kind: value))
        }
        if tags["history"] != nil { acts.append(.history) }
        let group = try tags["group"].map { value throws(EnvelopeError) in
            guard let bytes = Base64.decode(value.utf8) else { throw .malformed }
            return try GroupReference(bytes)
        }
        if group != nil, acts.isEmpty, body.kind == .tagsOnly { acts.append(.group) }
        guard acts.count <= 1 else { throw .malformed }
        switch acts.first {
        case .received, .read, .signal, .history: guard group == nil else { throw .malformed }
        default: break
        }
        self.init(acts.first ?? .text, text: text, writtenAt: now)
        guard hasText == body.isText, hasText || hasHiddenText || text.isEmpty else { throw .malformed }
        self.group = group
        if let value = tags["at"] { writtenAt = try Self.number(value) }
        recipient = try tags["to"].map { value throws(EnvelopeError) in try Self.text(value) }
        timer = try tags["timer"].map { value throws(EnvelopeError) in try Self.number(value) }
    }

    private static func reference(_ value: String) throws(EnvelopeError) -> MessageReference {
        guard let reference = MessageReference(value) else { throw .malformed }
        return reference
    }

    private static func ids(_ value: String) throws(EnvelopeError) -> [MessageID] {
        let names = value.split(separator: ",", omittingEmptySubsequences: false)
        let ids = names.prefix(receiptLimit).compactMap { MessageID(name: String($0)) }
        guard ids.count == names.count else { throw .malformed }
        return ids
    }

    private static func text(_ value: String) throws(EnvelopeError) -> String {
        guard let bytes = Base64.decode(value.utf8), let text = String(validating: bytes, as: UTF8.self) else {
            throw .malformed
        }
        return text
    }

    /// A number of at most 15 digits, so that sums of times do not overflow.
    private static func number(_ value: String) throws(EnvelopeError) -> Int64 {
        guard (1...15).contains(value.utf8.count), value.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            let number = Int64(value)
        else { throw .malformed }
        return number
    }

    /// The tags of a body whose names begin with `+pawl/`.
    private struct Tags {
        private var values: [String: String] = [:]

        init(_ bytes: [UInt8]) throws(EnvelopeError) {
            for tag in bytes.split(separator: UInt8(ascii: ";")) {
                let parts = tag.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
                guard let name = String(validating: parts[0], as: UTF8.self), name.utf8.starts(with: "+pawl/".utf8)
                else { continue }
                guard let value = String(validating: parts.count > 1 ? parts[1] : [], as: UTF8.self),
                    values.updateValue(value, forKey: String(name.dropFirst(6))) == nil
                else { throw .malformed }
            }
        }

        subscript(name: String) -> String? { values[name] }
    }
}
