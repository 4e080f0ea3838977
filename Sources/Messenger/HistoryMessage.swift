// What an added device of a person and the master device say to each other about the history of the chats. The new
// device asks for the part after a place; the master device answers with that part and the place of the next one. The
// master device keeps nothing about it, so either process may end at any time.

package import Envelope

/// A place in the history of an account, as its master device hands it over: groups, then the messages of each chat, the
/// newest first, then those that have come meanwhile.
///
///     stage (1 B) | before (8 B) | offset (4 B) | mark (8 B) | count (4 B) | name (2 B length)
package struct HistoryCursor: Equatable, Sendable {
    package enum Stage: UInt8, Sendable {
        case groups = 0
        case messages = 1
        /// Messages that were stored after the first part was made.
        case late = 2
    }

    package var stage = Stage.groups
    /// The group or the chat; empty for the first one.
    package var name = ""
    /// Messages of the chat before this place follow. 0 if the group or the chat is done.
    package var before = UInt64.max
    /// Bytes of the next item that were handed over already.
    package var offset: UInt32 = 0
    /// The highest place when the first part was made; 0 before.
    package var mark: UInt64 = 0
    /// Messages of the chat that were handed over.
    package var count: UInt32 = 0

    package init() {}

    /// The beginning of a stage.
    func beginning(_ stage: Stage) -> HistoryCursor {
        var cursor = HistoryCursor()
        (cursor.stage, cursor.mark) = (stage, mark)
        return cursor
    }

    /// The beginning of a group or a chat.
    func beginning(_ name: String) -> HistoryCursor {
        var cursor = beginning(stage)
        cursor.name = name
        return cursor
    }

    var bytes: [UInt8] {
        var output: [UInt8] = [stage.rawValue]
        output.append(bigEndian: before)
        output.append(bigEndian: offset)
        output.append(bigEndian: mark)
        output.append(bigEndian: count)
        output.append(field: Array(name.utf8))
        return output
    }

    init(_ cursor: inout ByteCursor) throws(EnvelopeError) {
        guard let stage = Stage(rawValue: try cursor.byte()) else { throw .malformed }
        self.stage = stage
        before = try cursor.uint64()
        offset = try cursor.uint32()
        mark = try cursor.uint64()
        count = try cursor.uint32()
        guard let name = String(validating: try cursor.field(), as: UTF8.self) else { throw .malformed }
        self.name = name
    }
}

/// A group, a chat or a message in a part of the history, or a piece of a long one.
///
///     kind (1 B) | sequence (8 B) | offset (4 B) | total (4 B) | bytes (2 B length)
package struct HistoryItem: Equatable, Sendable {
    package enum Kind: UInt8, Sendable {
        /// A ``GroupState``.
        case group = 0
        /// The chat of the messages that follow: its timer in seconds (8 B, 0 for none), and its name.
        case chat = 1
        /// A ``ChatMessage``.
        case message = 2
    }

    /// Ours: bytes of a group or a message.
    static let sizeLimit = 80_000
    /// Bytes of an item besides its own.
    static let overhead = 19

    package var kind: Kind
    /// The place of a message at the master device.
    package var sequence: UInt64 = 0
    package var offset: UInt32 = 0
    /// Bytes of the whole.
    package var total: UInt32
    package var bytes: [UInt8]

    /// A whole item.
    init(_ kind: Kind, sequence: UInt64 = 0, _ bytes: [UInt8]) {
        (self.kind, self.sequence, self.bytes) = (kind, sequence, bytes)
        total = UInt32(bytes.count)
    }

    var isWhole: Bool { offset == 0 && bytes.count == Int(total) }

    fileprivate func append(to output: inout [UInt8]) {
        output.append(kind.rawValue)
        output.append(bigEndian: sequence)
        output.append(bigEndian: offset)
        output.append(bigEndian: total)
        output.append(field: bytes)
    }

    fileprivate init(_ cursor: inout ByteCursor) throws(EnvelopeError) {
        guard let kind = Kind(rawValue: try cursor.byte()) else { throw .malformed }
        self.kind = kind
        sequence = try cursor.uint64()
        (offset, total) = (try cursor.uint32(), try cursor.uint32())
        bytes = try cursor.field()
        guard total <= Self.sizeLimit, Int(offset) + bytes.count <= Int(total), kind != .chat || isWhole else {
            throw .malformed
        }
    }
}

/// A part of the history.
package struct HistoryPart: Equatable, Sendable {
    /// The place after which it was asked for.
    package var asked: HistoryCursor
    /// The place of the next part; nil if there is none.
    package var next: HistoryCursor?
    package var items: [HistoryItem] = []
}

/// The text of a message of ``ChatContent/Act/history``, in Base64:
///
///     1 | cursor                                               asks for the part after a place
///     2 | cursor | has next (1 B) | next, if any | items       that part
package enum HistoryMessage: Equatable, Sendable {
    case wanted(HistoryCursor)
    case part(HistoryPart)

    package var text: String {
        var bytes: [UInt8]
        switch self {
        case .wanted(let cursor): bytes = [1] + cursor.bytes
        case .part(let part):
            bytes = [2] + part.asked.bytes + [part.next == nil ? 0 : 1] + (part.next?.bytes ?? [])
            for item in part.items { item.append(to: &bytes) }
        }
        return Base64.text(bytes)
    }

    /// Reads ``text``.
    ///
    /// - Throws: ``EnvelopeError``
    package init(_ text: String) throws(EnvelopeError) {
        guard text.utf8.count <= ChatContent.textLimit, let bytes = Base64.decode(text.utf8) else { throw .malformed }
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        let asked = try HistoryCursor(&cursor)
        switch form {
        case 1: self = .wanted(asked)
        case 2:
            var part = HistoryPart(asked: asked)
            switch try cursor.byte() {
            case 0: break
            case 1: part.next = try HistoryCursor(&cursor)
            default: throw .malformed
            }
            while !cursor.isAtEnd { part.items.append(try HistoryItem(&cursor)) }
            self = .part(part)
        default: throw .unsupportedVersion(form)
        }
        guard cursor.isAtEnd else { throw .malformed }
    }
}

/// How far this device has the history of its account: a row, before it is sealed.
///
///     1 | cursor | has a piece (1 B) | kind (1 B) | sequence (8 B) | bytes of the piece
struct HistoryState: Equatable, Sendable {
    /// The beginning of an item whose rest comes with the next part.
    struct Piece: Equatable, Sendable {
        var kind: HistoryItem.Kind
        var sequence: UInt64
        var bytes: [UInt8]
    }

    var cursor = HistoryCursor()
    var piece: Piece?

    init() {}

    var bytes: [UInt8] {
        var output: [UInt8] = [1] + cursor.bytes
        guard let piece else { return output + [0] }
        output += [1, piece.kind.rawValue]
        output.append(bigEndian: piece.sequence)
        return output + piece.bytes
    }

    init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form == 1 else { throw .unsupportedVersion(form) }
        self.cursor = try HistoryCursor(&cursor)
        switch try cursor.byte() {
        case 0: guard cursor.isAtEnd else { throw .malformed }
        case 1:
            guard let kind = HistoryItem.Kind(rawValue: try cursor.byte()) else { throw .malformed }
            piece = Piece(kind: kind, sequence: try cursor.uint64(), bytes: cursor.rest())
        default: throw .malformed
        }
    }
}
