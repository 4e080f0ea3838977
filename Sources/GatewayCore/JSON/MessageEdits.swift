// Changes to the messages of a document, made where they lie: every byte that they are not about stays what it was.

import Envelope
package import JSONCodec
package import NIOCore

/// Changes to be made to a document's messages, each message at most once.
package struct MessageEdits: Sendable {
    private let document: JSONDocument
    private var edits: JSONEdits
    /// Members that are to be there, some of them in objects that are not.
    private var additions: [JSONPlace: AddedMembers] = [:]

    package init(_ document: JSONDocument) {
        self.document = document
        edits = JSONEdits(document)
    }

    /// Puts an envelope in the place of what was sealed, and sets the flag.
    package mutating func seal(_ message: FoundMessage, envelope: [UInt8]) throws(MessageFault) {
        guard let text = message.text else { throw .noText(at: document.range(message.place).lowerBound) }
        var base64: [UInt8] = []
        base64.reserveCapacity(Base64.encodedLength(envelope.count))
        Base64.encode(envelope[...], into: &base64)
        for part in message.also { edits.remove(part.place) }
        try set(message.shape.flag, message.flag, to: .boolean(true), in: message)
        if let path = message.shape.envelope {
            edits.replace(text, with: .string(message.shape.fallback))
            try set(path, message.envelopePlace, to: .base64(base64), in: message)
        } else {
            edits.replace(text, with: .base64(base64))
        }
    }

    /// Puts back what was sealed, takes out flag and envelope, and whatever else stands at the paths of what is sealed:
    /// nobody vouches for that.
    package mutating func open(_ message: FoundMessage, _ content: SealedContent) throws(MessageFault) {
        guard let text = content.values.first?.value else { throw .malformedContent }
        try set(message.shape.text, message.text, to: text, in: message)
        let values = content.values.dropFirst()
        for part in message.also where !values.contains(where: { $0.path == part.path }) { edits.remove(part.place) }
        for (name, value) in values {
            guard let path = message.shape.path(ofSealed: name) else { continue }
            try set(path, message.also.first { $0.path == name }?.place, to: value, in: message)
        }
        takeEnvelope(message)
    }

    /// Takes the whole message out of the list that it stands in.
    ///
    /// - Returns: false where it stands in none.
    package mutating func drop(_ message: FoundMessage) -> Bool {
        guard document.isElement(message.place) else { return false }
        edits.remove(message.place)
        return true
    }

    /// Puts words of the gateway in the place of the message.
    package mutating func replace(_ message: FoundMessage, with words: String) throws(MessageFault) {
        try set(message.shape.text, message.text, to: .string(words), in: message)
        for place in message.also.map(\.place) {
            // a whole content in the message, as that of an edit, says the same words; anything else goes
            if let inner = try innerText(message, place) {
                edits.replace(inner, with: .string(words))
                for other in try innerAlso(message, place) { edits.remove(other) }
            } else {
                edits.remove(place)
            }
        }
        takeEnvelope(message)
    }

    /// Puts words of the gateway in front of the text, and of every other form of it.
    package mutating func mark(_ message: FoundMessage, with words: String) throws(MessageFault) {
        if let text = message.text { try mark(text, words) }
        for place in message.also.map(\.place) {
            if document.kind(place) == .string {
                try mark(place, words)
            } else if document.kind(place) == .object {
                if let inner = try innerText(message, place) { try mark(inner, words) }
                for other in try innerAlso(message, place) where document.kind(other) == .string {
                    try mark(other, words)
                }
            }
        }
    }

    /// Makes all changes.
    package func apply() throws(MessageFault) -> ByteBuffer {
        var edits = edits
        for (place, members) in additions {
            for (name, value) in members.fragments { edits.insert(name, value, into: place) }
        }
        do throws(JSONEditError) {
            return try edits.apply()
        } catch {
            if case .duplicateNames(let offset) = error { throw .duplicateNames(at: offset) }
            throw .conflict
        }
    }

    // MARK: Parts

    /// - Parameter place: where the path leads; nothing where there is nothing yet.
    private mutating func set(
        _ path: JSONPath, _ place: JSONPlace?, to value: JSONFragment, in message: FoundMessage
    ) throws(MessageFault) {
        if let place { return edits.replace(place, with: value) }
        guard var names = path.memberNames, !names.isEmpty else { throw .blocked(path: path.text) }
        var object = message.content
        while names.count > 1, let next = document.member(names[0], of: object) {
            object = next
            names.removeFirst()
        }
        guard document.kind(object) == .object else { throw .blocked(path: path.text) }
        if names.count == 1, let text = message.text, document.isMember(text, of: object) {
            // null, which was no text
            if let old = document.member(names[0], of: object) { return edits.replace(old, with: value) }
            return edits.insert(names[0], value, beside: text)
        }
        if names.count == 1, let old = document.member(names[0], of: object) {
            return edits.replace(old, with: value)
        }
        guard additions[object, default: AddedMembers()].add(names[...], value) else { throw .conflict }
    }

    private mutating func takeEnvelope(_ message: FoundMessage) {
        if let flag = message.flag { edits.remove(flag) }
        if let place = message.envelopePlace { edits.remove(place) }
    }

    private mutating func mark(_ place: JSONPlace, _ words: String) throws(MessageFault) {
        guard let text = try? document.text(place) else {
            throw .loneSurrogate(at: document.range(place).lowerBound)
        }
        edits.replace(place, with: .string(words + text))
    }

    /// The text in an object that is sealed as a whole.
    private func innerText(_ message: FoundMessage, _ object: JSONPlace) throws(MessageFault) -> JSONPlace? {
        guard document.kind(object) == .object, let text = try document.one(message.shape.text, from: object),
            document.kind(text) == .string
        else { return nil }
        return text
    }

    private func innerAlso(_ message: FoundMessage, _ object: JSONPlace) throws(MessageFault) -> [JSONPlace] {
        try message.shape.parts(of: object, in: document).map(\.place)
    }
}

/// Members to be added to one object, some of them in objects that are added with them.
private struct AddedMembers: Sendable {
    indirect enum Member: Sendable {
        case value(JSONFragment)
        case object(AddedMembers)

        var fragment: JSONFragment {
            switch self {
            case .value(let value): value
            case .object(let members): .object(members.fragments)
            }
        }
    }

    /// In the order in which they were asked for.
    private var members: [(name: String, member: Member)] = []

    var fragments: [(name: String, value: JSONFragment)] { members.map { ($0.name, $0.member.fragment) } }

    /// - Returns: whether nothing else stands there.
    mutating func add(_ names: ArraySlice<String>, _ value: JSONFragment) -> Bool {
        guard let name = names.first else { return false }
        let rest = names.dropFirst()
        guard let index = members.firstIndex(where: { $0.name == name }) else {
            if rest.isEmpty {
                members.append((name, .value(value)))
                return true
            }
            var inner = AddedMembers()
            let isAdded = inner.add(rest, value)
            members.append((name, .object(inner)))
            return isAdded
        }
        guard !rest.isEmpty, case .object(var inner) = members[index].member else { return false }
        let isAdded = inner.add(rest, value)
        members[index].member = .object(inner)
        return isAdded
    }
}
