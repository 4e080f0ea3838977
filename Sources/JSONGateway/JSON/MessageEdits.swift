// Edits the messages of a document in place. All other bytes of the document stay unchanged.

import Envelope
package import JSONCodec
package import NIOCore

/// Collects edits of a document's messages, at most one for each message. A method that throws changes nothing.
package struct MessageEdits: Sendable {
    private enum Change: Sendable {
        case replace(JSONPlace, JSONFragment)
        case remove(JSONPlace)
        case insert(String, JSONFragment, beside: JSONPlace)
        /// Adds a value at a path of names from an object, with the missing objects on the way.
        case add([String], JSONFragment, to: JSONPlace)

        /// The place of the edit.
        package var place: JSONPlace {
            switch self {
            case .replace(let place, _), .remove(let place), .insert(_, _, let place), .add(_, _, let place): place
            }
        }
    }

    private let document: JSONDocument
    private var changes: [Change] = []
    /// Changes that override all others in their place: a message may be inside another one that is removed.
    private var overruling: [Change] = []
    /// The places of these changes, because two shapes may find the same message.
    private var overruled: Set<JSONPlace> = []

    package init(_ document: JSONDocument) { self.document = document }

    /// Replaces the sealed content by an envelope, and sets the flag.
    ///
    /// - Parameter mentions: the mentions to add; nil for none.
    package mutating func seal(
        _ message: FoundMessage, envelope: [UInt8], mentions: JSONFragment? = nil
    ) throws(MessageFault) {
        guard let beside = message.links(in: document) else { throw .tooManyLinks }
        let written: JSONFragment
        if message.shape.armour == nil {
            var base64: [UInt8] = []
            base64.reserveCapacity(Base64.encodedLength(envelope.count))
            Base64.encode(envelope[...], into: &base64)
            written = .base64(base64)
        } else {
            written = .string(String(decoding: Armour.whole(envelope), as: UTF8.self) + beside)
        }
        try wholly { edits throws(MessageFault) in
            var fallback = message.shape.envelope == nil ? [] : message.shape.fallbackParts
            for part in message.also {
                if let index = fallback.firstIndex(where: { $0.path.text == part.path }) {
                    edits.changes.append(.replace(part.place, .string(fallback.remove(at: index).text)))
                } else {
                    edits.changes.append(.remove(part.place))
                }
            }
            for part in fallback { try edits.set(part.path, nil, to: .string(part.text), in: message) }
            for place in message.joined { edits.changes.append(.remove(place)) }
            if let mentions, let path = message.shape.mentions?.object {
                try edits.set(path, nil, to: mentions, in: message)
            }
            if let flag = message.shape.flag { try edits.set(flag, message.flag, to: .boolean(true), in: message) }
            if let path = message.shape.envelope {
                if let text = message.text {
                    edits.changes.append(.replace(text, .string(message.shape.fallback + beside)))
                }
                try edits.set(path, message.envelopePlace, to: written, in: message)
            } else {
                try edits.set(message.shape.text, message.text, to: written, in: message)
            }
        }
    }

    /// Writes the opened content back, and removes flag and envelope.
    ///
    /// Also removes other values at sealed paths, because they are not authenticated.
    package mutating func open(_ message: FoundMessage, _ content: SealedContent) throws(MessageFault) {
        guard let value = content.values.first?.value, content.isOf(message.shape.kind, text: message.shape.text) else {
            throw .malformedContent
        }
        var text = value
        let hasText = text != .null
        if message.isHTML, hasText { text = try .string(TextArmour.html(text, links: message.shape.links)) }
        try wholly { edits throws(MessageFault) in
            if hasText {
                try edits.set(message.shape.text, message.text, to: text, in: message)
            } else if let place = message.text {
                // Where an envelope is the text, clients expect one.
                edits.changes.append(message.envelopePlace == nil ? .replace(place, .string("")) : .remove(place))
            }
            let values = content.values.dropFirst()
            for part in message.also where !values.contains(where: { $0.path == part.path }) {
                edits.reduce(part, to: message.shape.made[part.path] ?? [])
            }
            for (name, value) in values {
                guard let path = message.shape.path(ofSealed: name) else { continue }
                let place = message.also.first { $0.path == name }?.place
                try edits.set(path, place, to: value, in: message, isBesideText: hasText)
            }
            edits.takeEnvelope(message)
        }
    }

    /// Removes the whole message from its array.
    ///
    /// - Returns: false if the message is not in an array.
    package mutating func drop(_ message: FoundMessage) -> Bool {
        guard document.isElement(message.place) else { return false }
        if overruled.insert(message.place).inserted { overruling.append(.remove(message.place)) }
        return true
    }

    /// Replaces the message's text by words of the gateway.
    package mutating func replace(_ message: FoundMessage, with words: String) throws(MessageFault) {
        let words = message.isHTML ? TextArmour.html(words) : words
        try wholly { edits throws(MessageFault) in
            try edits.set(message.shape.text, message.text, to: .string(words), in: message)
            for place in message.also.map(\.place) {
                // A nested content, for instance of an edit, gets the same words. Other values are removed.
                if let inner = try edits.innerText(message, place) {
                    edits.changes.append(.replace(inner, .string(words)))
                    for other in try message.shape.parts(of: place, in: edits.document) {
                        edits.changes.append(.remove(other.place))
                    }
                } else {
                    edits.changes.append(.remove(place))
                }
            }
            edits.takeEnvelope(message)
        }
    }

    /// Inserts words of the gateway before the text, and before all other forms of it.
    ///
    /// - Throws: ``MessageFault`` if nothing can be marked although the message may contain texts.
    package mutating func mark(_ message: FoundMessage, with words: String) throws(MessageFault) {
        try wholly { edits throws(MessageFault) in
            let count = edits.changes.count
            if let text = message.text { try edits.mark(text, words, isHTML: message.isHTML) }
            for part in message.also {
                if edits.isShown(part, message) {
                    try edits.mark(part.place, words)
                } else if edits.document.kind(part.place) == .object {
                    if let inner = try edits.innerText(message, part.place) { try edits.mark(inner, words) }
                    for other in try message.shape.parts(of: part.place, in: edits.document)
                    where edits.isShown(other, message) {
                        try edits.mark(other.place, words)
                    }
                }
            }
            // Content of a kind may be strings that no client shows and an app reads.
            let isOfKind = message.shape.kind != nil
            let unmarked = message.also.first { part in
                isOfKind ? edits.document.mayHoldText(part.place) : edits.mayHoldText(part.place)
            }
            if edits.changes.count == count, let unmarked {
                throw .noText(at: edits.document.range(unmarked.place).lowerBound)
            }
            // What looks like an envelope is none.
            if message.isFlagged || message.envelopePlace != nil { edits.takeEnvelope(message) }
        }
    }

    /// Replaces a message of unknown structure by words of the gateway, and removes all members that may hold content.
    ///
    /// Removes the message if it has no place for words.
    ///
    /// - Throws: the message's own fault if it would have to be removed, but is the whole document.
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
        let shown = message.shape.armour == .html ? TextArmour.html(words) : words
        let text = names.dropFirst().reversed().reduce(JSONFragment.string(shown)) { .object([($1, $0)]) }
        var isReplaced = false
        for place in document.children(content) {
            let name = (try? document.name(place)) ?? nil
            if name == first, !isReplaced {
                overruling.append(.replace(place, text))
                isReplaced = true
            } else if name.map({ $0 == first || message.shape.mayHoldContent(in: $0) }) ?? (message.shape.kept != nil) {
                overruling.append(.remove(place))
            }
        }
        if !isReplaced { overruling.append(.add([first], text, to: content)) }
    }

    /// Applies all changes.
    package func apply() throws(MessageFault) -> ByteBuffer { try changed().bytes }

    /// Applies all changes.
    ///
    /// - Returns: the document, and the ranges of what the changes have written; nil if they are unknown.
    package func changed() throws(MessageFault) -> (bytes: ByteBuffer, written: [Range<Int>]?) {
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
            return try edits.changed()
        } catch {
            if case .duplicateNames(let offset) = error { throw .duplicateNames(at: offset) }
            throw .conflict
        }
    }

    // MARK: Parts

    /// Adds the changes of one message, all or none.
    private mutating func wholly(_ body: (inout Self) throws(MessageFault) -> Void) throws(MessageFault) {
        let count = changes.count
        do throws(MessageFault) {
            try body(&self)
        } catch {
            changes.removeSubrange(count...)
            throw error
        }
    }

    /// All changes, without those inside a place that another change overrides.
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

    /// Sets the value at a path.
    ///
    /// - Parameters:
    ///   - place: the present value at the path; nil if there is none.
    ///   - isBesideText: whether a new value may stand behind the text, which stays.
    private mutating func set(
        _ path: JSONPath, _ place: JSONPlace?, to value: JSONFragment, in message: FoundMessage,
        isBesideText: Bool = true
    ) throws(MessageFault) {
        if let place { return changes.append(.replace(place, value)) }
        guard var names = path.memberNames, !names.isEmpty else { throw .blocked(path: path.text) }
        var object = message.content
        while names.count > 1, let next = document.member(names[0], of: object) {
            object = next
            names.removeFirst()
        }
        guard document.kind(object) == .object else { throw .blocked(path: path.text) }
        if isBesideText, names.count == 1, let text = message.text, document.isMember(text, of: object) {
            // A null, which does not count as text.
            if let old = document.member(names[0], of: object) { return changes.append(.replace(old, value)) }
            return changes.append(.insert(names[0], value, beside: text))
        }
        if names.count == 1, let old = document.member(names[0], of: object) {
            return changes.append(.replace(old, value))
        }
        changes.append(.add(names, value, to: object))
    }

    /// Removes a value that is not authenticated, but for members of its objects that the backend makes itself.
    ///
    /// - Parameter names: these members. A string with white space in it could be words, and is removed all the same.
    private mutating func reduce(_ part: SealedPart, to names: Set<String>) {
        let isList = document.kind(part.place) == .array
        let objects = isList ? Array(document.children(part.place)) : [part.place]
        var removals: [JSONPlace] = []
        var stays = false
        for object in objects {
            let members = document.kind(object) == .object ? Array(document.children(object)) : []
            let others = members.filter { !isMade($0, names) }
            if others.count == members.count {
                removals.append(object)
            } else {
                stays = true
                removals += others
            }
        }
        for place in stays ? removals : [part.place] { changes.append(.remove(place)) }
    }

    private func isMade(_ member: JSONPlace, _ names: Set<String>) -> Bool {
        guard let name = (try? document.name(member)) ?? nil, names.contains(name) else { return false }
        switch document.kind(member) {
        case .number, .boolean: return true
        case .string: return (try? document.text(member)).map { !$0.contains(where: \.isWhitespace) } ?? false
        case .object, .array, .null: return false
        }
    }

    private mutating func takeEnvelope(_ message: FoundMessage) {
        if let flag = message.flag { changes.append(.remove(flag)) }
        if let place = message.envelopePlace { changes.append(.remove(place)) }
    }

    private mutating func mark(
        _ place: JSONPlace, _ words: String, isHTML: Bool = false
    ) throws(MessageFault) {
        guard let text = try? document.text(place) else {
            throw .loneSurrogate(at: document.range(place).lowerBound)
        }
        changes.append(.replace(place, .string(isHTML ? TextArmour.marked(text, words) : words + text)))
    }

    private func mayHoldText(_ place: JSONPlace) -> Bool {
        switch document.kind(place) {
        case .object, .array: true
        case .string, .number, .boolean, .null: false
        }
    }

    /// The text in an object that is sealed as a whole; nil if it has none.
    private func innerText(_ message: FoundMessage, _ object: JSONPlace) throws(MessageFault) -> JSONPlace? {
        guard document.kind(object) == .object, let text = try document.one(message.shape.text, from: object),
            document.kind(text) == .string
        else { return nil }
        return text
    }

    /// Whether a value is a string that clients show to people.
    private func isShown(_ part: SealedPart, _ message: FoundMessage) -> Bool {
        document.kind(part.place) == .string && message.shape.shown?.contains(part.path) != false
    }
}

/// The outermost of several ranges of values in a document. Ranges may be nested.
private struct OutermostRanges {
    private var ranges: [Range<Int>] = []

    init(_ all: [Range<Int>]) {
        // Ranges of values are nested or disjoint: of two with the same start the longer one contains the other.
        let ordered = all.sorted { ($0.lowerBound, -$0.upperBound) < ($1.lowerBound, -$1.upperBound) }
        for range in ordered where range.upperBound > ranges.last?.upperBound ?? -1 { ranges.append(range) }
    }

    /// The last range that starts at or before the start of `range`; the only one that can contain it.
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
