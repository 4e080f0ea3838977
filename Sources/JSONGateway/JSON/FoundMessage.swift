// One message of a document: where its parts stand, and what is said about it around the text.

package import JSONCodec

/// A message that a mapping's shape has found.
package struct FoundMessage: Sendable {
    /// Ours: bytes of the name of an account or conversation, or of an id. The longest we know of have 255.
    package static let nameLimit = 512

    package let shape: MessageShape
    /// The value that holds the messages of one conversation.
    package let container: JSONPlace
    package let place: JSONPlace
    /// The object that text, flag and envelope stand in.
    package let content: JSONPlace
    package let conversation: String
    /// The text; nothing in a message that has none, which is one because of its other parts.
    package let text: JSONPlace?
    /// What is sealed together with the text, as far as it is there, by its path.
    package let also: [SealedPart]
    package let flag: JSONPlace?
    /// Whether the flag says so, which proves nothing.
    package let isFlagged: Bool
    /// The envelope's own field, where it has one.
    package let envelopePlace: JSONPlace?
    /// Bytes that may be an envelope: what stands there in Base64, or, without a field of its own, in the place of the
    /// text. Many a word is Base64 by chance.
    package let envelope: [UInt8]?
    package let sender: String?
    /// Whom it is for, where the message says so.
    package let recipients: [String]?
    package let remoteID: String?
    package let localID: String?
}

/// A message that cannot be read, and so may say anything.
package struct UnreadMessage: Sendable {
    /// Why not.
    package let fault: MessageFault
    package let shape: MessageShape
    package let place: JSONPlace
    /// What its text would stand in; nothing where that cannot be found either.
    package let content: JSONPlace?
    /// Nothing where that cannot be told either.
    package let conversation: String?

    init(fault: MessageFault, shape: MessageShape, place: JSONPlace, content: JSONPlace?, conversation: String?) {
        (self.fault, self.shape, self.place) = (fault, shape, place)
        (self.content, self.conversation) = (content, conversation)
    }

    /// A message that could be read, and with which something else cannot be done.
    init(_ message: FoundMessage, _ fault: MessageFault) {
        self.init(
            fault: fault, shape: message.shape, place: message.place, content: message.content,
            conversation: message.conversation)
    }
}

/// Something that is sealed together with a text.
package struct SealedPart: Equatable, Sendable {
    /// As it is written in the mapping; of a member that is sealed because all are, the path to it.
    package let path: String
    package let place: JSONPlace
}

extension MessageShape {
    /// What is sealed of an object besides its text.
    package func parts(of object: JSONPlace, in document: JSONDocument) throws(MessageFault) -> [SealedPart] {
        var parts: [SealedPart] = []
        for path in also {
            if let place = try document.one(path, from: object) {
                parts.append(SealedPart(path: path.text, place: place))
            }
        }
        guard kept != nil else { return parts }
        let offset = document.range(object).lowerBound
        guard !document.hasDuplicateNames(object) else { throw .duplicateNames(at: offset) }
        var names: Set<String> = []
        for place in document.children(object) {
            guard let name = try? document.name(place) else { throw .loneSurrogate(at: offset) }
            // names that differ only in how their letters are composed are one name to some readers
            guard names.insert(name).inserted else { throw .duplicateNames(at: offset) }
            guard name.utf8.count <= FoundMessage.nameLimit else {
                throw .unusableName(path: "a member's name", at: document.range(place).lowerBound)
            }
            guard parts.count < SealedContent.partLimit else { throw .tooManyParts(at: offset) }
            if takesMember(name) { parts.append(SealedPart(path: JSONPath.text(ofMember: name), place: place)) }
        }
        return parts
    }

    /// Where something that was sealed belongs; nothing where the mapping names no such place.
    package func path(ofSealed text: String) -> JSONPath? {
        if let path = also.first(where: { $0.text == text }) { return path }
        guard let path = try? JSONPath(text), let names = path.memberNames, names.count == 1, takesMember(names[0])
        else { return nil }
        return path
    }

    /// Whether a member may hold something of what is said, its text aside.
    func mayBeSaid(in name: String) -> Bool {
        guard name != text.firstMember else { return false }
        return kept?.contains(name) == false || name == flag.firstMember || name == envelope?.firstMember
            || also.contains { $0.firstMember == name }
    }

    /// Whether a member is sealed because all are.
    private func takesMember(_ name: String) -> Bool {
        guard let kept, !kept.contains(name) else { return false }
        return name != text.firstMember && name != flag.firstMember && name != envelope?.firstMember
            && !also.contains { $0.firstMember == name }
    }
}

/// Why a message cannot be read or changed. The fault of whoever wrote it, or of the mapping.
package enum MessageFault: Error, Equatable, Sendable {
    /// There is no message where one has to be.
    case noMessage
    /// It has no text.
    case noText(at: Int)
    /// Nothing says what conversation it belongs to.
    case noConversation(at: Int)
    /// Something else stands where this path leads: a number in the place of a text, and the like.
    case wrongKind(path: String, found: JSONKind, at: Int)
    /// A path that is for one thing finds several.
    case severalValues(path: String)
    /// An object on the way names two of its members alike.
    case duplicateNames(at: Int)
    /// A text with half a surrogate pair in it.
    case loneSurrogate(at: Int)
    /// The name of an account or conversation, or an id, that is empty, longer than ``FoundMessage/nameLimit``, or holds
    /// white space or control characters.
    case unusableName(path: String, at: Int)
    /// More than ``MessageReading/messageLimit``.
    case tooManyMessages
    /// More members to be sealed than ``SealedContent/partLimit``.
    case tooManyParts(at: Int)
    /// What was sealed is not what the gateway seals.
    case malformedContent
    /// Something that is no object stands where a value has to be put back.
    case blocked(path: String)
    /// Edits that stand in each other's way: paths of the mapping that lead into one another.
    case conflict
}

extension MessageFault: CustomStringConvertible {
    /// In words, with places and paths and nothing of what people have said.
    package var description: String {
        switch self {
        case .noMessage: "there is no message where the mapping says that there is one"
        case .noText(let at): "the message at byte \(at) has no text"
        case .noConversation(let at): "nothing says what conversation the message at byte \(at) belongs to"
        case .wrongKind(let path, let found, let at): "\(path) finds \(found.words) at byte \(at)"
        case .severalValues(let path): "\(path) finds several values, and there can be one only"
        case .duplicateNames(let at): "the object at byte \(at) names two of its members alike"
        case .loneSurrogate(let at): "the string at byte \(at) escapes half a character"
        case .unusableName(let path, let at):
            "\(path) finds a name at byte \(at) that is empty, too long, or has white space in it"
        case .tooManyMessages: "there are more than \(MessageReading.messageLimit) messages"
        case .tooManyParts(let at):
            "the object at byte \(at) has more than \(SealedContent.partLimit) members to be sealed"
        case .malformedContent: "what was sealed is not what a gateway seals"
        case .blocked(let path): "nothing can be put at \(path): something that is no object stands in its way"
        case .conflict: "two paths of the mapping lead into one another"
        }
    }
}
