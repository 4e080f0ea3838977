// Fills the mentions of a message that is sealed. A backend whose notification rules look for names in the text finds none
// in an envelope; it notifies of the accounts that the message lists beside the text.

package import JSONCodec
import Protection

/// Where a message lists the accounts that it mentions, and how its text names them.
package struct MentionFields: Sendable, Equatable {
    /// A member that says that everyone is mentioned, and the word for it in a text.
    package struct Everyone: Sendable, Equatable {
        package var member: String
        package var word: String

        package init(member: String, word: String) { (self.member, self.word) = (member, word) }
    }

    /// Ours: maximum names of one text that are compared with the members of a conversation.
    package static let limit = 128

    /// The object with the lists, in the object that holds the text.
    package var object: JSONPath
    /// The name of the list of accounts in it.
    package var accounts: String
    /// How the name of an account begins in a text, for instance `@`.
    package var beginning: String
    /// Nil if the backend has no word for everyone.
    package var everyone: Everyone?
    /// Strings besides the text in which accounts are named, in the object that holds the text.
    package var others: [JSONPath]
    /// A message that has a value here repeats an earlier one, and mentions no one anew.
    package var exception: JSONPath?

    package init(
        object: JSONPath, accounts: String, beginning: String, everyone: Everyone? = nil, others: [JSONPath] = [],
        exception: JSONPath? = nil
    ) {
        (self.object, self.accounts, self.beginning) = (object, accounts, beginning)
        (self.everyone, self.others, self.exception) = (everyone, others, exception)
    }

    /// The mentions of a message, empty if it mentions no one; nil if its client has listed them, or it has no text: what
    /// an app has invented comes back as it was.
    ///
    /// - Parameter members: chooses the accounts that are in the conversation.
    package func filled(
        _ document: JSONDocument, _ message: FoundMessage, among members: ([String]) -> [String]
    ) -> JSONFragment? {
        guard message.text != nil else { return nil }
        guard let own = try? document.places(object, from: message.content), own.isEmpty else { return nil }
        guard exception.map({ (try? document.places($0, from: message.content).isEmpty) ?? false }) ?? true else {
            return .object([])
        }
        let places = [message.text] + others.map { try? document.one($0, from: message.content) }
        var names: [String] = []
        for case let place? in places {
            guard document.kind(place) == .string, let text = try? document.text(place) else { continue }
            for name in self.names(in: text) where !names.contains(name) && names.count < Self.limit {
                names.append(name)
            }
        }
        let found = names.isEmpty ? [] : members(names)
        var values: [(name: String, value: JSONFragment)] = []
        if !found.isEmpty { values.append((accounts, .array(found.map { .string($0) }))) }
        if let everyone, names.contains(everyone.word) { values.append((everyone.member, .boolean(true))) }
        return .object(values)
    }

    /// What may be names of accounts in a text or in its links, in their order. At most ``limit``.
    func names(in text: String) -> [String] {
        let bytes = Self.decoded(Array(text.utf8))
        let beginning = Array(beginning.utf8)
        guard let first = beginning.first else { return [] }
        var names: [String] = []
        var index = 0
        while index < bytes.count, names.count < Self.limit {
            guard bytes[index] == first, bytes[index...].starts(with: beginning),
                index == 0 || !Self.isWord(bytes[index - 1])
            else {
                index += 1
                continue
            }
            var end = index + beginning.count
            while end < bytes.count, end - index <= FoundMessage.nameLimit, !Self.isDelimiter(bytes[end]) { end += 1 }
            var name = bytes[index..<end]
            // A sentence may end behind a name.
            while let last = name.last, Self.isPunctuation(last), name.count > beginning.count { name.removeLast() }
            names.append(String(decoding: name, as: UTF8.self))
            index = end
        }
        return names
    }

    /// The bytes with percent-encoded ones decoded, as in links; other percent signs stay.
    private static func decoded(_ bytes: [UInt8]) -> [UInt8] {
        guard bytes.contains(UInt8(ascii: "%")) else { return bytes }
        var decoded: [UInt8] = []
        decoded.reserveCapacity(bytes.count)
        var index = 0
        while index < bytes.count {
            if bytes[index] == UInt8(ascii: "%"), index + 2 < bytes.count, let high = digit(bytes[index + 1]),
                let low = digit(bytes[index + 2])
            {
                decoded.append(high << 4 | low)
                index += 3
            } else {
                decoded.append(bytes[index])
                index += 1
            }
        }
        return decoded
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }

    /// Whether a name cannot begin behind this byte: it is in the middle of a word, for instance of a mail address.
    private static func isWord(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"), 0x80...:
            true
        default: false
        }
    }

    private static func isDelimiter(_ byte: UInt8) -> Bool { byte <= 0x20 || delimiters.contains(byte) }

    private static func isPunctuation(_ byte: UInt8) -> Bool { punctuation.contains(byte) }

    private static let delimiters = Array("<>\"'`()[]{}|,;!?&*\\".utf8)
    private static let punctuation = Array(".:/_~-".utf8)
}

extension OutgoingMessage {
    /// Lists the mentions of the text beside it, if the mapping says where, and the client has not.
    ///
    /// - Parameter members: those of the conversation; nil if unknown, and then no one is listed.
    mutating func fillMentions(_ members: [AccountID]?, besides sender: AccountID) {
        guard let fields = found.shape.mentions else { return }
        mentions = fields.filled(document, found) { names in
            let wanted = Set(names)
            let present = Set((members ?? []).lazy.filter { $0 != sender }.map(\.name).filter(wanted.contains))
            return names.filter(present.contains)
        }
    }
}
