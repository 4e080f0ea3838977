// Changes to the messages of a document, made where they lie: every byte that they are not about stays what it was.

import Envelope
package import JSONCodec
package import NIOCore

/// Changes to be made to a document's messages, each message at most once. A change that throws has changed nothing.
package struct MessageEdits: Sendable {
    private enum Change: Sendable {
        case replace(JSONPlace, JSONFragment)
        case remove(JSONPlace)
        case insert(String, JSONFragment, beside: JSONPlace)
        /// A member that is to be there, by the names that lead to it from an object, some of them to objects that are not.
        case add([String], JSONFragment, to: JSONPlace)

        /// The place that it is about.
        package var place: JSONPlace {
            switch self {
            case .replace(let place, _), .remove(let place), .insert(_, _, let place), .add(_, _, let place): place
            }
        }
    }

    private let document: JSONDocument
    private var changes: [Change] = []
    /// Those that count whatever else is to happen there: a message may stand in another one that goes.
    private var overruling: [Change] = []
    /// The messages that they are about, which two shapes may have found.
    private var overruled: Set<JSONPlace> = []

    package init(_ document: JSONDocument) { self.document = document }

    /// Puts an envelope in the place of what was sealed, and sets the flag.
    package mutating func seal(_ message: FoundMessage, envelope: [UInt8]) throws(MessageFault) {
        guard let text = message.text else { throw .noText(at: document.range(message.place).lowerBound) }
        var base64: [UInt8] = []
        base64.reserveCapacity(Base64.encodedLength(envelope.count))
        Base64.encode(envelope[...], into: &base64)
        try wholly { edits throws(MessageFault) in
            for part in message.also { edits.changes.append(.remove(part.place)) }
            try edits.set(message.shape.flag, message.flag, to: .boolean(true), in: message)
            if let path = message.shape.envelope {
                edits.changes.append(.replace(text, .string(message.shape.fallback)))
                try edits.set(path, message.envelopePlace, to: .base64(base64), in: message)
            } else {
                edits.changes.append(.replace(text, .base64(base64)))
            }
        }
    }

    /// Puts back what was sealed, takes out flag and envelope, and whatever else stands at the paths of what is sealed:
    /// nobody vouches for that.
    package mutating func open(_ message: FoundMessage, _ content: SealedContent) throws(MessageFault) {
        guard let text = content.values.first?.value else { throw .malformedContent }
        try wholly { edits throws(MessageFault) in
            try edits.set(message.shape.text, message.text, to: text, in: message)
            let values = content.values.dropFirst()
            for part in message.also where !values.contains(where: { $0.path == part.path }) {
                edits.changes.append(.remove(part.place))
            }
            for (name, value) in values {
                guard let path = message.shape.path(ofSealed: name) else { continue }
                try edits.set(path, message.also.first { $0.path == name }?.place, to: value, in: message)
            }
            edits.takeEnvelope(message)
        }
    }

    /// Takes the whole message out of the list that it stands in, with all that stands in it.
    ///
    /// - Returns: false where it stands in none.
    package mutating func drop(_ message: FoundMessage) -> Bool {
        guard document.isElement(message.place) else { return false }
        if overruled.insert(message.place).inserted { overruling.append(.remove(message.place)) }
        return true
    }

    /// Puts words of the gateway in the place of the message.
    package mutating func replace(_ message: FoundMessage, with words: String) throws(MessageFault) {
        try wholly { edits throws(MessageFault) in
            try edits.set(message.shape.text, message.text, to: .string(words), in: message)
            for place in message.also.map(\.place) {
                // a whole content in the message, as that of an edit, says the same words; anything else goes
                if let inner = try edits.innerText(message, place) {
                    edits.changes.append(.replace(inner, .string(words)))
                    for other in try edits.innerAlso(message, place) { edits.changes.append(.remove(other)) }
                } else {
                    edits.changes.append(.remove(place))
                }
            }
            edits.takeEnvelope(message)
        }
    }

    /// Puts words of the gateway in front of the text, and of every other form of it.
    ///
    /// - Throws: ``MessageFault`` where nothing can be marked, and texts may stand in what is there.
    package mutating func mark(_ message: FoundMessage, with words: String) throws(MessageFault) {
        try wholly { edits throws(MessageFault) in
            let count = edits.changes.count
            if let text = message.text { try edits.mark(text, words) }
            for place in message.also.map(\.place) {
                if edits.document.kind(place) == .string {
                    try edits.mark(place, words)
                } else if edits.document.kind(place) == .object {
                    if let inner = try edits.innerText(message, place) { try edits.mark(inner, words) }
                    for other in try edits.innerAlso(message, place) where edits.document.kind(other) == .string {
                        try edits.mark(other, words)
                    }
                }
            }
            guard edits.changes.count == count, let part = message.also.first(where: { edits.mayHoldText($0.place) })
            else { return }
            throw .noText(at: edits.document.range(part.place).lowerBound)
        }
    }

    /// Puts words of the gateway in the place of a message of which not even the parts are known: all goes that may say something.
    /// Where words can stand nowhere, the message goes.
    ///
    /// - Throws: the message's own fault, where it is the whole document.
    package mutating func blank(_ message: UnreadMessage, with words: String) throws(MessageFault) {
        let names = message.shape.text.memberNames ?? []
        guard let content = message.content, document.kind(content) == .object, !document.hasDuplicateNames(content),
            let first = names.first
        else {
            guard message.place != document.root else { throw message.fault }
            if overruled.insert(message.place).inserted { overruling.append(.remove(message.place)) }
            return
        }
        guard overruled.insert(content).inserted else { return }
        let text = names.dropFirst().reversed().reduce(JSONFragment.string(words)) { .object([($1, $0)]) }
        var isSaid = false
        for place in document.children(content) {
            let name = (try? document.name(place)) ?? nil
            if name == first, !isSaid {
                overruling.append(.replace(place, text))
                isSaid = true
            } else if name.map({ $0 == first || message.shape.mayBeSaid(in: $0) }) ?? (message.shape.kept != nil) {
                overruling.append(.remove(place))
            }
        }
        if !isSaid { overruling.append(.add([first], text, to: content)) }
    }

    /// Makes all changes.
    package func apply() throws(MessageFault) -> ByteBuffer {
        var edits = JSONEdits(document)
        var additions: [JSONPlace: AddedMembers] = [:]
        for change in lasting {
            switch change {
            case .replace(let place, let value): edits.replace(place, with: value)
            case .remove(let place): edits.remove(place)
            case .insert(let name, let value, let place): edits.insert(name, value, beside: place)
            case .add(let names, let value, let object):
                guard additions[object, default: AddedMembers()].add(names[...], value) else { throw .conflict }
            }
        }
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

    /// Makes the changes to one message, all or none.
    private mutating func wholly(_ body: (inout Self) throws(MessageFault) -> Void) throws(MessageFault) {
        let count = changes.count
        do throws(MessageFault) {
            try body(&self)
        } catch {
            changes.removeSubrange(count...)
            throw error
        }
    }

    /// The changes without those to what goes anyway.
    private var lasting: [Change] {
        guard !overruling.isEmpty else { return changes }
        let gone = OutermostRanges(
            overruling.compactMap { change in
                if case .add = change { nil } else { document.range(change.place) }
            })
        return changes.filter { !gone.hold(document.range($0.place)) }
            + overruling.filter { change in
                if case .add = change { return !gone.hold(document.range(change.place)) }
                return gone.hasExactly(document.range(change.place))
            }
    }

    /// - Parameter place: where the path leads; nothing where there is nothing yet.
    private mutating func set(
        _ path: JSONPath, _ place: JSONPlace?, to value: JSONFragment, in message: FoundMessage
    ) throws(MessageFault) {
        if let place { return changes.append(.replace(place, value)) }
        guard var names = path.memberNames, !names.isEmpty else { throw .blocked(path: path.text) }
        var object = message.content
        while names.count > 1, let next = document.member(names[0], of: object) {
            object = next
            names.removeFirst()
        }
        guard document.kind(object) == .object else { throw .blocked(path: path.text) }
        if names.count == 1, let text = message.text, document.isMember(text, of: object) {
            // null, which was no text
            if let old = document.member(names[0], of: object) { return changes.append(.replace(old, value)) }
            return changes.append(.insert(names[0], value, beside: text))
        }
        if names.count == 1, let old = document.member(names[0], of: object) {
            return changes.append(.replace(old, value))
        }
        changes.append(.add(names, value, to: object))
    }

    private mutating func takeEnvelope(_ message: FoundMessage) {
        if let flag = message.flag { changes.append(.remove(flag)) }
        if let place = message.envelopePlace { changes.append(.remove(place)) }
    }

    private mutating func mark(_ place: JSONPlace, _ words: String) throws(MessageFault) {
        guard let text = try? document.text(place) else {
            throw .loneSurrogate(at: document.range(place).lowerBound)
        }
        changes.append(.replace(place, .string(words + text)))
    }

    private func mayHoldText(_ place: JSONPlace) -> Bool {
        switch document.kind(place) {
        case .object, .array: true
        case .string, .number, .boolean, .null: false
        }
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

/// Ranges of values in a document, of which one may stand in another. Those that stand in none.
private struct OutermostRanges {
    private var ranges: [Range<Int>] = []

    init(_ all: [Range<Int>]) {
        // Values do not cross: of two that begin in the same place the longer one holds the other.
        let ordered = all.sorted { ($0.lowerBound, -$0.upperBound) < ($1.lowerBound, -$1.upperBound) }
        for range in ordered where range.upperBound > ranges.last?.upperBound ?? -1 { ranges.append(range) }
    }

    /// The one that could hold a range.
    private func last(before range: Range<Int>) -> Range<Int>? {
        var (low, high) = (0, ranges.count)
        while low < high {
            let middle = (low + high) / 2
            if ranges[middle].lowerBound <= range.lowerBound { low = middle + 1 } else { high = middle }
        }
        return low > 0 ? ranges[low - 1] : nil
    }

    package func hold(_ range: Range<Int>) -> Bool { (last(before: range)?.upperBound ?? -1) >= range.upperBound }

    func hasExactly(_ range: Range<Int>) -> Bool { last(before: range) == range }
}
