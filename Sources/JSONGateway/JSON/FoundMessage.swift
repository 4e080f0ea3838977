// One message of a document: the positions of its parts, and its metadata.

package import JSONCodec

/// A message that a mapping's shape has found.
package struct FoundMessage: Sendable {
    /// Ours: maximum length of an id or of the name of an account or conversation, in bytes. The longest known have
    /// 255.
    package static let nameLimit = 512

    package let shape: MessageShape
    /// The value that holds the messages of one conversation.
    package let container: JSONPlace
    package let place: JSONPlace
    /// The object that contains text, flag and envelope.
    package let content: JSONPlace
    package let conversation: String
    /// The text; nil if the message consists of other parts only.
    package let text: JSONPlace?
    /// The parts that are sealed together with the text and present in this message.
    package let also: [SealedPart]
    /// Further texts of a request, which are lines of its text.
    package let joined: [JSONPlace]
    package let flag: JSONPlace?
    /// Whether the flag is true, or armour is in the text. Neither is authenticated.
    package let isFlagged: Bool
    /// The field of the envelope; nil if the message has none.
    package let envelopePlace: JSONPlace?
    /// Bytes that may be an envelope, decoded from Base64; nil if the field is not Base64.
    ///
    /// They come from the envelope's field, or from the text if the shape has no such field. Many words are valid
    /// Base64.
    package let envelope: [UInt8]?
    /// Whether the text is HTML.
    package let isHTML: Bool
    package let sender: String?
    /// The recipients; nil if the mapping names none in messages.
    package let recipients: [String]?
    package let remoteID: String?
    package let localID: String?
    /// The id of the earlier message that a request edits; nil if it writes a new one.
    package let edited: String?
}

/// A message that the gateway cannot read, so that its content is unknown.
package struct UnreadMessage: Sendable {
    package let fault: MessageFault
    package let shape: MessageShape
    package let place: JSONPlace
    /// The object that would contain the text; nil if it cannot be found.
    package let content: JSONPlace?
    /// Nil if it cannot be read.
    package let conversation: String?

    init(fault: MessageFault, shape: MessageShape, place: JSONPlace, content: JSONPlace?, conversation: String?) {
        (self.fault, self.shape, self.place) = (fault, shape, place)
        (self.content, self.conversation) = (content, conversation)
    }

    /// Creates one from a readable message that the gateway cannot change as required.
    init(_ message: FoundMessage, _ fault: MessageFault) {
        self.init(
            fault: fault, shape: message.shape, place: message.place, content: message.content,
            conversation: message.conversation)
    }
}

/// A value that is sealed together with the text.
package struct SealedPart: Equatable, Sendable {
    /// The path as written in the mapping, or the path of a member that is sealed because of ``MessageShape/Parts/kept``.
    package let path: String
    package let place: JSONPlace
}

extension MessageShape {
    /// The values of an object that are sealed besides its text.
    package func parts(of object: JSONPlace, in document: JSONDocument) throws(MessageFault) -> [SealedPart] {
        var parts: [SealedPart] = []
        for path in self.also {
            if let place = try document.one(path, from: object) {
                guard !document.isParsed(place) else { throw .conflict }
                parts.append(SealedPart(path: path.text, place: place))
            }
        }
        guard self.kept != nil else { return parts }
        let offset = document.range(object).lowerBound
        guard !document.hasDuplicateNames(object) else { throw .duplicateNames(at: offset) }
        let taken = document.members(of: object, besides: namesOfOthers)
        var names: Set<String> = []
        for place in taken ?? Array(document.children(object)) {
            guard let name = try? document.name(place) else { throw .loneSurrogate(at: offset) }
            // Some parsers treat names that differ only in Unicode composition as equal.
            guard taken != nil || names.insert(name).inserted else { throw .duplicateNames(at: offset) }
            guard name.utf8.count <= FoundMessage.nameLimit else {
                throw .unusableName(path: "a member's name", at: document.range(place).lowerBound)
            }
            guard parts.count < SealedContent.partLimit else { throw .tooManyParts(at: offset) }
            if takesMember(name) { parts.append(SealedPart(path: JSONPath.text(ofMember: name), place: place)) }
        }
        return parts
    }

    /// The path to which an opened value is written; nil if the mapping does not allow this path.
    package func path(ofSealed text: String) -> JSONPath? {
        if let path = self.also.first(where: { $0.text == text }) { return path }
        guard let path = try? JSONPath(text), let names = path.memberNames, names.count == 1, takesMember(names[0])
        else { return nil }
        return path
    }

    /// Whether a member besides the text may hold content: a sealed value, the flag or the envelope.
    func mayHoldContent(in name: String) -> Bool {
        guard name != self.text.firstMember else { return false }
        return self.kept?.contains(name) == false || name == self.flag?.firstMember
            || name == self.envelope?.firstMember
            || (self.also + self.joined).contains { $0.firstMember == name }
    }

    /// Whether a value of the document is sealed with the text; false if the message is only a part of the document.
    package func seals(_ path: JSONPath) -> Bool {
        guard self.containers.memberNames == [], self.messages.memberNames == [], self.content == nil,
            let name = path.firstMember
        else { return false }
        return name == self.text.firstMember || mayHoldContent(in: name)
    }
}

/// The reason why a message cannot be read or changed. Its author or the mapping is at fault.
package enum MessageFault: Error, Equatable, Sendable {
    /// There is no message where the mapping requires one.
    case noMessage
    /// The message has no text.
    case noText(at: Int)
    /// The conversation of the message to which the request refers is not known.
    case unknownMessage
    /// The message that the request edits is in another conversation than the request names.
    case otherConversation
    /// The backend does not confirm that the conversation has this id.
    case unknownConversation
    /// The message's conversation is missing.
    case noConversation(at: Int)
    /// The value at the path has the wrong kind, for instance a number instead of a text.
    case wrongKind(path: String, found: JSONKind, at: Int)
    /// The body is not a form, or programs could read it in different ways.
    case notAForm(at: Int)
    /// A string in which the mapping expects a JSON document holds none.
    case notADocument(path: String, at: Int)
    /// A path for one value finds several.
    case severalValues(path: String)
    /// An object on the path has two members with the same name.
    case duplicateNames(at: Int)
    /// An object has a member whose name differs from one of the mapping in case only: some programs take them for one.
    case similarNames(at: Int)
    /// A text contains half a surrogate pair.
    case loneSurrogate(at: Int)
    /// An id, or the name of an account or conversation, is unusable.
    ///
    /// It is empty, longer than ``FoundMessage/nameLimit``, or contains white space or control characters.
    case unusableName(path: String, at: Int)
    /// More messages than ``MessageReading/messageLimit``.
    case tooManyMessages
    /// More members to seal than ``SealedContent/partLimit``.
    case tooManyParts(at: Int)
    /// The opened content is not in the gateway's format.
    case malformedContent
    /// A value on the path to which an opened value has to be written is not an object.
    case blocked(path: String)
    /// More links than ``LinkForm/limit`` in a text whose links stay in the clear.
    case tooManyLinks
    /// Two edits overlap, because paths of the mapping lead into one another.
    case conflict
}

extension MessageFault: CustomStringConvertible {
    /// The fault in words, with offsets and paths but without content of messages.
    package var description: String {
        switch self {
        case .noMessage: "there is no message where the mapping expects one"
        case .noText(let at): "the message at byte \(at) has no text"
        case .unknownMessage: "the conversation of the message to which it refers is not known"
        case .otherConversation: "the message that it edits is in another conversation than it names"
        case .unknownConversation: "the chat server knows no conversation with this id; name it by its id"
        case .noConversation(let at): "the message at byte \(at) names no conversation"
        case .wrongKind(let path, let found, let at): "\(path) finds \(found.words) at byte \(at)"
        case .notAForm(let at): "the form cannot be read at byte \(at), or programs could read it in different ways"
        case .notADocument(let path, let at): "the string at byte \(at), where \(path) is parsed, is no JSON document"
        case .severalValues(let path): "\(path) finds several values, but only one is allowed"
        case .duplicateNames(let at): "the object at byte \(at) has two members with the same name"
        case .similarNames(let at):
            "the object at byte \(at) has a member whose name differs from one of the mapping in upper and lower case only"
        case .loneSurrogate(let at): "the string at byte \(at) contains half a surrogate pair"
        case .unusableName(let path, let at):
            "\(path) finds a name at byte \(at) that is empty, too long, or has white space in it"
        case .tooManyMessages: "there are more than \(MessageReading.messageLimit) messages"
        case .tooManyParts(let at):
            "the object at byte \(at) has more than \(SealedContent.partLimit) members to be sealed"
        case .malformedContent: "the opened content is not in the gateway's format"
        case .blocked(let path): "cannot write to \(path): a value on the way is not an object"
        case .tooManyLinks: "the text has more than \(LinkForm.limit) links to files"
        case .conflict: "two paths of the mapping lead into one another"
        }
    }
}
