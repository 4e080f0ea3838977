package import JSONCodec

/// The names of the members on which the decision about a client's WebSocket message depends while nothing is protected.
struct FrameNames: Sendable, Equatable {
    /// Those of conditions, and of all parts of a message but its text and the ids below. The values decide.
    private(set) var deciding: Set<[UInt8]> = []
    /// Those of local ids and of edited messages, which need only be ids.
    private(set) var ids: Set<[UInt8]> = []

    /// - Returns: nil if a path follows all members of an object.
    init?(_ frames: [FrameRoute]) {
        for frame in frames where frame.direction == .fromClient {
            guard add(frame.when) else { return nil }
            for part in frame.login?.values.flatMap(\.parts) ?? [] {
                if case .path(let path) = part, !add(path) { return nil }
            }
            for shape in frame.shapes {
                let paths = [shape.containers, shape.messages] + shape.also + shape.parsed + shape.joined
                for path in paths + shape.exceptions where !add(path) { return nil }
                let others = [shape.content, shape.flag, shape.envelope, shape.sender, shape.recipients]
                for path in others where !add(path) { return nil }
                guard add(shape.remoteID), add(shape.text, isLastOpen: true), add(shape.localID, isLastOpen: true),
                    add(shape.edited, isLastOpen: true), add(shape.conversation)
                else { return nil }
                for path in [shape.localID, shape.edited] { if let name = path?.lastName { ids.insert(name) } }
            }
        }
    }

    private mutating func add(_ path: JSONPath?, isLastOpen: Bool = false) -> Bool {
        guard let path else { return true }
        guard let names = path.decidingNames(isLastOpen: isLastOpen) else { return false }
        deciding.formUnion(names)
        return true
    }

    private mutating func add(_ source: ValueSource) -> Bool {
        switch source {
        case .message(let path), .container(let path): add(path)
        case .capture, .query, .containerName, .ofMessage: true
        }
    }
}

extension Mapping {
    /// The messages of a client about which the decision is the same as about one of them, while nothing is protected.
    ///
    /// - Parameters:
    ///   - frame: its kind.
    ///   - text: the text in it; nil if the kind has none.
    /// - Returns: nil if these are not to be told by their form.
    package func template(of document: JSONDocument, _ frame: FrameRoute, _ text: FoundMessage?) -> JSONTemplate? {
        // The text of other messages decides too.
        let isPlain = frame.shapes.allSatisfy { $0.armour == nil && $0.alternative == nil && $0.parsed.isEmpty }
        guard isPlain, frame.login == nil, text == nil || text?.isFlagged == false && frame.shapes.count == 1,
            let names = frameNames
        else { return nil }
        return JSONTemplate(document, fixed: names.deciding, ids: names.ids)
    }
}
