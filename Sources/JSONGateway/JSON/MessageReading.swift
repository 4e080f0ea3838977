// Finds the messages of a request, an answer or a WebSocket message by the shapes of the mapping.

import Envelope
package import JSONCodec

/// The messages of a document, and those that cannot be read.
package struct MessageReading: Sendable {
    /// Ours: maximum messages of one document. An initial synchronisation has some dozens for each room.
    package static let messageLimit = 1 << 15

    /// The readable messages, in the order of the shapes and of the document.
    package private(set) var messages: [FoundMessage] = []
    /// The messages that cannot be read.
    package private(set) var unread: [UnreadMessage] = []
    /// Faults of the document, because of which messages may be missing from both lists.
    package private(set) var obstacles: [MessageFault] = []
    /// All faults. A request with any fault cannot be sealed reliably.
    package var faults: [MessageFault] { unread.map(\.fault) + obstacles }

    private let document: JSONDocument
    private let target: TargetValues
    private let isRequest: Bool
    /// The places of the messages, because two shapes may find the same message.
    private var seen: Set<JSONPlace> = []
    /// Messages that cannot be read because of a value of the wrong kind, unless another shape reads it.
    private var ofWrongKind: [(value: JSONPlace, message: UnreadMessage)] = []

    /// Finds the messages.
    ///
    /// - Parameters:
    ///   - shapes: in a request each shape has to find a message, and each message needs a text; an answer may have
    ///     none.
    ///   - target: the values in the request's target.
    package init(
        _ document: JSONDocument, _ shapes: [MessageShape], target: TargetValues = TargetValues(), isRequest: Bool
    ) {
        self.document = document
        self.target = target
        self.isRequest = isRequest
        for shape in shapes {
            do throws(MessageFault) {
                try read(shape)
            } catch {
                obstacles.append(error)
                if error == .tooManyMessages { return }
            }
        }
        guard !ofWrongKind.isEmpty else { return }
        let texts = messages.map { document.range($0.text ?? $0.content).lowerBound }.sorted()
        unread += ofWrongKind.filter { wrong in
            // A string without a document is noted already.
            !seen.contains(wrong.value) && !texts.hasElement(in: document.range(wrong.value))
        }.map(\.message)
    }

    private mutating func read(_ shape: MessageShape) throws(MessageFault) {
        var count = 0
        for path in shape.parsed { try readUnparsed(path, shape) }
        for container in try search(shape.containers, from: document.root, shape) {
            let places = try search(shape.messages, from: container, shape)
            if messages.isEmpty {
                // Not all of very many need be messages.
                messages.reserveCapacity(min(places.count, 256))
                seen.reserveCapacity(min(places.count, 256))
            }
            for place in places {
                do throws(MessageFault) {
                    guard try !isException(place, shape) else { continue }
                    count += 1
                    guard let message = try message(shape, container, place) else { continue }
                    guard seen.insert(message.text ?? message.content).inserted else { continue }
                    guard messages.count < Self.messageLimit else { throw .tooManyMessages }
                    messages.append(message)
                } catch {
                    guard error != .tooManyMessages, unreadCount < Self.messageLimit else { throw .tooManyMessages }
                    let message = UnreadMessage(
                        fault: error, shape: shape, place: place, content: (try? content(shape, place)) ?? nil,
                        conversation: try? conversation(shape.conversation, container, place))
                    if let value = valueOfWrongKind(shape, place) {
                        ofWrongKind.append((value, message))
                    } else {
                        unread.append(message)
                    }
                }
            }
        }
        if isRequest, count == 0 { throw .noMessage }
    }

    private func isException(_ place: JSONPlace, _ shape: MessageShape) throws(MessageFault) -> Bool {
        for condition in shape.exceptions where try !places(condition, from: place).isEmpty { return true }
        return false
    }

    /// Notes the strings in which messages may be, but no document is.
    private mutating func readUnparsed(_ path: JSONPath, _ shape: MessageShape) throws(MessageFault) {
        for place in try unparsed(path) where seen.insert(place).inserted {
            guard unreadCount < Self.messageLimit else { throw .tooManyMessages }
            let fault = MessageFault.notADocument(path: path.text, at: document.range(place).lowerBound)
            unread.append(
                UnreadMessage(fault: fault, shape: shape, place: place, content: nil, conversation: nil))
        }
    }

    private func unparsed(_ path: JSONPath) throws(MessageFault) -> [JSONPlace] {
        do throws(JSONMatchError) {
            return try document.unparsed(path)
        } catch {
            throw MessageFault(error)
        }
    }

    /// Reads one message; nil if the value in an answer is no message.
    private func message(
        _ shape: MessageShape, _ container: JSONPlace, _ place: JSONPlace
    ) throws(MessageFault) -> FoundMessage? {
        let offset = document.range(place).lowerBound
        guard let content = try content(shape, place), document.kind(content) == .object else {
            if isRequest { throw .noText(at: offset) }
            try refuseWrongKind(shape, place)
            return nil
        }
        if isRequest, hasLookalikes(shape, container, place, content) { throw .similarNames(at: offset) }
        let text = try string(shape.text, in: content)
        if text == nil, !isRequest { try refuseWrongKind(shape, place) }
        let also = try shape.parts(of: content, in: document)
        let flag = try shape.flag.flatMap { path throws(MessageFault) in try one(path, from: content) }
        let envelopePlace = try shape.envelope.flatMap { path throws(MessageFault) in try string(path, in: content) }
        let joined = isRequest ? try self.joined(shape, in: content) : []
        let mayLackText = isRequest && (shape.textIsOptional || !joined.isEmpty)
        if isRequest, text == nil, !mayLackText { throw .noText(at: offset) }
        guard text != nil || envelopePlace != nil || !also.isEmpty || mayLackText else { return nil }
        var edited: String?
        if isRequest, let path = shape.edited {
            edited = try name(path, in: place)
            guard edited != nil else { throw .unknownMessage }
        }
        let written = shape.envelope == nil ? text : envelopePlace
        let armoured = armour(shape, text, written, hasEnvelope: envelopePlace != nil)
        return FoundMessage(
            shape: shape, container: container, place: place, content: content,
            conversation: try conversation(shape.conversation, container, place), text: text, also: also,
            joined: joined, flag: flag,
            isFlagged: armoured?.hasMarker ?? flag.flatMap(document.boolean) ?? false, envelopePlace: envelopePlace,
            envelope: armoured == nil ? written.flatMap(envelope) : armoured?.envelope,
            isHTML: armoured?.isHTML ?? false,
            sender: try shape.sender.flatMap { path throws(MessageFault) in try name(path, in: place) },
            recipients: try shape.recipients.map { path throws(MessageFault) in try names(path, in: place) },
            remoteID: try shape.remoteID.flatMap { path throws(MessageFault) in try name(path, in: place) },
            localID: try shape.localID.flatMap { path throws(MessageFault) in try name(path, in: place) },
            edited: edited)
    }

    /// Whether a program that ignores the case of names may find other parts of the message.
    private func hasLookalikes(
        _ shape: MessageShape, _ container: JSONPlace, _ place: JSONPlace, _ content: JSONPlace
    ) -> Bool {
        func finds(_ paths: [JSONPath?], from start: JSONPlace) -> Bool {
            paths.contains { $0.map { document.hasLookalike(of: $0, from: start) } ?? false }
        }
        if finds([shape.containers] + shape.parsed, from: document.root) { return true }
        if finds([shape.messages], from: container) { return true }
        // What `kept` does not name is sealed in any case.
        if shape.kept == nil || content != place {
            var inMessage: JSONPath?
            if case .message(let path) = shape.conversation { inMessage = path }
            let paths = [shape.content, inMessage, shape.recipients, shape.localID, shape.edited] + shape.exceptions
            if finds(paths, from: place) { return true }
        }
        guard shape.kept == nil else { return false }
        return finds([shape.text, shape.flag, shape.envelope] + shape.also + shape.joined, from: content)
    }

    /// The armour in a message; nil if its envelope is not one in a text.
    private func armour(
        _ shape: MessageShape, _ text: JSONPlace?, _ written: JSONPlace?, hasEnvelope: Bool
    ) -> TextArmour? {
        let isFollowed = shape.links != nil
        if let armour = shape.armour { return TextArmour(written, armour, isFollowed: isFollowed, in: document) }
        guard let other = shape.alternative, !hasEnvelope else { return nil }
        let found = TextArmour(text, other, isFollowed: isFollowed, in: document)
        return found.hasMarker ? found : nil
    }

    /// The texts of a request that are lines of its text.
    private func joined(_ shape: MessageShape, in content: JSONPlace) throws(MessageFault) -> [JSONPlace] {
        var places: [JSONPlace] = []
        for path in shape.joined {
            if let place = try string(path, in: content) { places.append(place) }
        }
        return places
    }

    private var unreadCount: Int { unread.count + ofWrongKind.count }

    /// All values at a path of messages. Notes the values of the wrong kind.
    private mutating func search(
        _ path: JSONPath, from place: JSONPlace, _ shape: MessageShape
    ) throws(MessageFault) -> [JSONPlace] {
        let found: (places: [JSONPlace], ofWrongKind: [JSONPlace])
        do throws(JSONMatchError) { found = try document.search(path, from: place) } catch { throw MessageFault(error) }
        for value in found.ofWrongKind {
            guard unreadCount < Self.messageLimit else { throw .tooManyMessages }
            let fault = MessageFault.wrongKind(
                path: path.text, found: document.kind(value), at: document.range(value).lowerBound)
            let message = UnreadMessage(fault: fault, shape: shape, place: value, content: nil, conversation: nil)
            ofWrongKind.append((value, message))
        }
        return found.places
    }

    private func refuseWrongKind(_ shape: MessageShape, _ place: JSONPlace) throws(MessageFault) {
        guard let value = valueOfWrongKind(shape, place) else { return }
        throw .wrongKind(
            path: (shape.content ?? shape.messages).text, found: document.kind(value),
            at: document.range(value).lowerBound)
    }

    /// A value that may hold texts where the content, or an object on the way to the text, has to be.
    private func valueOfWrongKind(_ shape: MessageShape, _ place: JSONPlace) -> JSONPlace? {
        var content = place
        if let path = shape.content {
            guard let found = try? document.search(path, from: place) else { return nil }
            if let value = found.ofWrongKind.first { return value }
            guard found.places.count == 1 else { return nil }
            content = found.places[0]
        }
        guard document.kind(content) == .object else { return document.mayHoldText(content) ? content : nil }
        return (try? document.search(shape.text, from: content))?.ofWrongKind.first
    }

    // MARK: Parts

    private func content(_ shape: MessageShape, _ place: JSONPlace) throws(MessageFault) -> JSONPlace? {
        guard let path = shape.content else { return place }
        return try one(path, from: place)
    }

    /// The readable string at a path; nil if there is none, or null.
    private func string(_ path: JSONPath, in place: JSONPlace) throws(MessageFault) -> JSONPlace? {
        guard let found = try one(path, from: place), !document.isNull(found) else { return nil }
        let offset = document.range(found).lowerBound
        guard document.kind(found) == .string else {
            throw .wrongKind(path: path.text, found: document.kind(found), at: offset)
        }
        guard document.isText(found) else { throw .loneSurrogate(at: offset) }
        return found
    }

    private func envelope(_ place: JSONPlace) -> [UInt8]? {
        guard document.range(place).count > 2, let text = try? document.utf8(place) else { return nil }
        return Base64.decode(text)
    }

    private func conversation(
        _ source: ValueSource, _ container: JSONPlace, _ place: JSONPlace
    ) throws(MessageFault) -> String {
        guard let name = try value(source, container, place) else {
            if case .ofMessage = source { throw .unknownMessage }
            throw .noConversation(at: document.range(place).lowerBound)
        }
        return name
    }

    private func value(
        _ source: ValueSource, _ container: JSONPlace, _ place: JSONPlace
    ) throws(MessageFault) -> String? {
        switch source {
        case .message(let path): return try name(path, in: place)
        case .container(let path): return try name(path, in: container)
        case .containerName:
            let text: String?
            do throws(JSONReadError) {
                text = try document.name(container)
            } catch {
                throw .loneSurrogate(at: document.range(container).lowerBound)
            }
            return try text.map { text throws(MessageFault) in try usable(text, "the container's name", container) }
        case .capture, .query, .ofMessage:
            return try target[source].map { text throws(MessageFault) in
                try usable(text, "the request's target", place)
            }
        }
    }

    /// A name or id: a string, or a whole number.
    private func name(_ path: JSONPath, in place: JSONPlace) throws(MessageFault) -> String? {
        try one(path, from: place).flatMap { found throws(MessageFault) in try name(path, at: found) }
    }

    private func names(_ path: JSONPath, in place: JSONPlace) throws(MessageFault) -> [String] {
        var names: [String] = []
        for found in try places(path, from: place) {
            if let name = try name(path, at: found) { names.append(name) }
        }
        return names
    }

    private func name(_ path: JSONPath, at place: JSONPlace) throws(MessageFault) -> String? {
        try document.identifier(place, path.text)
    }

    private func usable(_ text: String, _ path: String, _ place: JSONPlace) throws(MessageFault) -> String {
        guard FoundMessage.isUsable(text) else {
            throw .unusableName(path: path, at: document.range(place).lowerBound)
        }
        return text
    }

    private func one(_ path: JSONPath, from place: JSONPlace) throws(MessageFault) -> JSONPlace? {
        try document.one(path, from: place)
    }

    private func places(_ path: JSONPath, from place: JSONPlace) throws(MessageFault) -> [JSONPlace] {
        do throws(JSONMatchError) {
            return try document.places(path, from: place)
        } catch {
            throw MessageFault(error)
        }
    }
}

extension [MessageShape] {
    /// The paths of the strings that hold documents, each once.
    var parsedPaths: [JSONPath] {
        var paths: [JSONPath] = []
        for shape in self {
            for path in shape.parsed where !paths.contains(path) { paths.append(path) }
        }
        return paths
    }
}

extension MessageFault {
    /// The fault of a path that may find several values.
    fileprivate init(_ error: JSONMatchError) {
        self =
            switch error {
            case .duplicateNames(let offset): .duplicateNames(at: offset)
            case .tooManyPlaces: .tooManyMessages
            }
    }
}

extension JSONDocument {
    /// The document with the strings parsed in which these shapes look for messages.
    package func parsing(
        for shapes: [MessageShape], limits: JSONLimits = .standard
    ) throws(JSONError) -> JSONDocument {
        let paths = shapes.parsedPaths
        return paths.isEmpty ? self : try parsing(paths, limits: limits)
    }

    /// The only place to which a path leads; nil if there is none. Throws if there are several.
    package func one(_ path: JSONPath, from place: JSONPlace? = nil) throws(MessageFault) -> JSONPlace? {
        do throws(JSONMatchError) {
            return try self.place(path, from: place)
        } catch {
            switch error {
            case .duplicateNames(let offset): throw .duplicateNames(at: offset)
            case .tooManyPlaces: throw .severalValues(path: path.text)
            }
        }
    }

    /// Reads a name or an id: a string or an integer; nil for null.
    ///
    /// - Parameter path: the path of the value, for the error.
    package func identifier(_ place: JSONPlace, _ path: String) throws(MessageFault) -> String? {
        let offset = range(place).lowerBound
        switch kind(place) {
        case .null: return nil
        case .string:
            guard let text = try? text(place) else { throw .loneSurrogate(at: offset) }
            guard FoundMessage.isUsable(text) else { throw .unusableName(path: path, at: offset) }
            return text
        case .number:
            guard let number = integer(place) else { throw .wrongKind(path: path, found: .number, at: offset) }
            return String(number)
        case let kind: throw .wrongKind(path: path, found: kind, at: offset)
        }
    }
}

extension FoundMessage {
    /// Whether a text is a valid name or id; see ``MessageFault/unusableName(path:at:)``.
    package static func isUsable(_ name: String) -> Bool {
        if name.utf8.allSatisfy({ 0x21..<0x7F ~= $0 }) { return !name.isEmpty && name.utf8.count <= nameLimit }
        return name.utf8.count <= nameLimit
            && name.unicodeScalars.allSatisfy {
                $0.isASCII
                    ? 0x21..<0x7F ~= $0.value
                    : !$0.properties.isWhitespace && $0.properties.generalCategory != .control
            }
    }
}

extension [Int] {
    /// Whether a sorted array has an element in a range.
    fileprivate func hasElement(in range: Range<Int>) -> Bool {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if self[middle] < range.lowerBound { low = middle + 1 } else { high = middle }
        }
        return low < count && self[low] < range.upperBound
    }
}
