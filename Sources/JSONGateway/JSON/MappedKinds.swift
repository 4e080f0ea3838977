// Applies the treatment of each kind of content to the routes of a mapping. Nothing else of the gateway asks for it: a route
// that is refused has the label `refused`, and one that passes has none that seals.

package import JSONCodec
package import Protection

extension Mapping.Route {
    /// A place in a request's body that holds content of a kind, beside others that pass.
    package struct Part: Sendable, Equatable {
        package var path: JSONPath
        package var kind: ContentKind

        package init(path: JSONPath, kind: ContentKind) { (self.path, self.kind) = (path, kind) }
    }

    /// The same route with another label, with its kinds in this order, these parts refused, and these messages looked for.
    private func with(
        _ label: Mapping.Label, _ kinds: [ContentKind], sealing request: MessageShape?, refusing parts: [Part],
        finding response: [MessageShape]
    ) -> Mapping.Route {
        let isSealed = label == .content || label == .upload
        return Mapping.Route(
            methods: methods, path: path, query: query, label: label, request: isSealed ? request : nil,
            response: response, remoteID: isSealed ? remoteID : nil, localID: localID,
            conversation: conversationSource, references: label == .refused ? [] : references, answer: answer,
            chosenMembers: chosenMembers, file: file, kinds: kinds, parts: parts, repeated: repeated)
    }

    /// - Parameter read: the kinds of messages that the mapping finds in answers and frames.
    fileprivate func applying(_ treatments: KindTreatments, read: Set<ContentKind>) -> Mapping.Route {
        let refused = parts.filter { treatments[$0.kind] != .pass }
        let kinds = treatments.strictestFirst(kinds)
        let found = treatments.lookedFor(response)
        var label = kinds.first.map { treatments[$0].label(of: self.label) } ?? self.label
        // An answer in which nothing is looked for is not read.
        if found.isEmpty, !response.isEmpty, label == .history || label == .sync { label = .passthrough }
        let sealed = request.map { $0.of(kinds, read: read) }
        guard label != self.label || refused != parts || found.count != response.count || sealed != request else {
            return self
        }
        return with(label, kinds, sealing: sealed, refusing: refused, finding: found)
    }

    /// Whether requests write keywords by which the backend should notify somebody.
    func writesKeywords(_ method: String) -> Bool {
        kinds.contains(.keywords) && ["PUT", "POST", "PATCH"].contains(method)
    }
}

extension MessageShape {
    /// The shape of a request that carries these kinds, so that its content names the kind when it is sealed.
    ///
    /// If no shape reads messages of the kind, they are read as messages of people.
    fileprivate func of(_ kinds: [ContentKind], read: Set<ContentKind>) -> MessageShape {
        guard kinds.count == 1, read.contains(kinds[0]) else { return self }
        var shape = self
        shape.kind = kinds[0]
        return shape
    }
}

extension KindTreatments {
    /// The kinds with one of the strictest treatment first, by which a refusal is explained.
    fileprivate func strictestFirst(_ kinds: [ContentKind]) -> [ContentKind] {
        let order: [KindTreatment] = [.refuse, .seal, .pass]
        return order.flatMap { treatment in kinds.filter { self[$0] == treatment } }
    }
}

extension KindTreatments {
    /// The shapes whose messages are looked for in answers.
    fileprivate func lookedFor(_ shapes: [MessageShape]) -> [MessageShape] {
        shapes.filter { $0.kind.map { self[$0] == .seal } ?? true }
    }
}

extension KindTreatment {
    /// The label of a route or frame of a kind that is treated so.
    fileprivate func label(of label: Mapping.Label) -> Mapping.Label {
        switch self {
        case .pass: label == .content ? .control : label
        // What no shape describes cannot be sealed.
        case .seal: label == .content ? .content : .refused
        case .refuse: .refused
        }
    }
}

extension Mapping {
    /// Why an operator's treatment of a kind cannot take effect with this mapping.
    package enum KindFault: Sendable, Equatable {
        /// It is to be sealed, and some requests of the kind have no content that could be.
        case unsealable(ContentKind)
        /// The mapping marks no request of the kind.
        case unmarked(ContentKind)
    }

    package func faults(of treatments: KindTreatments) -> [KindFault] {
        ContentKind.allCases.compactMap { kind in
            guard treatments[kind] != kind.standard else { return nil }
            let labels =
                routes.filter { $0.kinds.contains(kind) }.map(\.label)
                + frames.filter { $0.kinds.contains(kind) }.map(\.label)
            let isPart = routes.contains { $0.parts.contains { $0.kind == kind } }
            guard !labels.isEmpty || isPart else { return .unmarked(kind) }
            // A part of another request is refused: its conversation may not exist yet.
            guard treatments[kind] == .seal, labels.isEmpty || labels.contains(where: { $0 != .content }) else {
                return nil
            }
            return .unsealable(kind)
        }
    }

    /// The mapping with what becomes of each kind of content.
    ///
    /// Messages of a kind that is not sealed are not looked for, so that they pass as they are.
    package func applying(_ treatments: KindTreatments) -> Mapping {
        var mapping = self
        let read = Set((routes.flatMap(\.response) + frames.flatMap(\.shapes)).compactMap(\.kind))
        mapping.routes = routes.map { $0.applying(treatments, read: read) }
        mapping.frames = frames.map { frame in
            var frame = frame
            frame.shapes = treatments.lookedFor(frame.shapes)
            frame.kinds = treatments.strictestFirst(frame.kinds)
            if let kind = frame.kinds.first { frame.label = treatments[kind].label(of: frame.label) }
            if frame.direction == .fromClient { frame.shapes = frame.shapes.map { $0.of(frame.kinds, read: read) } }
            if frame.label != .content, frame.direction == .fromClient { frame.shapes = [] }
            if frame.label != .content { frame.acknowledgement = nil }
            return frame
        }
        return mapping
    }
}
