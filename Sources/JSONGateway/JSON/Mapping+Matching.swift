package import HTTPCodec
package import JSONCodec

/// The values of a route's names in braces for one request, percent-decoded.
package struct Captures: Equatable, Sendable, ExpressibleByDictionaryLiteral {
    private var pairs: [(name: String, value: String)] = []

    package init() {}

    package init(dictionaryLiteral pairs: (String, String)...) { self.pairs = pairs.map { ($0.0, $0.1) } }

    package init(_ pattern: PathPattern, _ segments: [String]) {
        for (index, segment) in pattern.segments.enumerated() {
            if case .capture(let name) = segment { pairs.append((name, segments[index])) }
        }
    }

    package subscript(_ name: String) -> String? { pairs.first { $0.name == name }?.value }

    /// In the order of the path.
    package var all: [(name: String, value: String)] { pairs }

    package static func == (left: Self, right: Self) -> Bool {
        left.pairs.elementsEqual(right.pairs) { $0 == $1 }
    }
}

/// Values in the target of a request that describe its message.
package struct TargetValues: Equatable, Sendable {
    package let captures: Captures
    package let query: RequestQuery
    /// The conversation of the message that the target names; nil until it is found.
    package var conversationOfMessage: String?

    package init(captures: Captures = Captures(), query: RequestQuery = RequestQuery(nil)) {
        (self.captures, self.query) = (captures, query)
    }

    /// The value of a source in the target; nil for other sources.
    package subscript(_ source: ValueSource) -> String? {
        switch source {
        case .capture(let name): return captures[name]
        case .query(let name):
            guard case .single(let text) = query[name] else { return nil }
            return text
        case .ofMessage: return conversationOfMessage
        case .message, .container, .containerName: return nil
        }
    }
}

/// The route that matches a request.
package struct RouteMatch: Sendable {
    package let route: Mapping.Route
    package var target: TargetValues

    /// The id of the message whose conversation is that of the request; nil if the request names its conversation.
    var messageToFind: String? {
        guard target.conversationOfMessage == nil,
            case .ofMessage(let name)? = route.conversationSource
        else { return nil }
        return target[.capture(name)]
    }

    /// Whether the head alone identifies the recipients of a text.
    var namesRecipients: Bool {
        guard let shape = route.request, shape.recipients == nil, shape.edited == nil,
            !shape.isConfirmed
        else { return false }
        return target[shape.conversation] != nil
    }
}

extension Mapping {
    /// Finds the first route that matches a request, with the values in the target.
    ///
    /// - Returns: nil if none matches, or the request is ambiguous; see ``RequestPath``.
    package func route(for head: RequestHead) -> RouteMatch? {
        guard !Self.isRewritten(head.headers), head.method != "OPTIONS" || !head.announcesBody,
            let path = RequestPath(head.path)
        else { return nil }
        let query = head.query
        var parsed: RequestQuery?
        // Without this the closure copies the mapping each time.
        let routes = routes
        let found = index.first(path.segments) { number in
            let route = routes[number]
            guard route.takes(head.method) else { return false }
            guard !route.query.isEmpty else { return true }
            let conditions = parsed ?? RequestQuery(query)
            parsed = conditions
            return route.query.allSatisfy(conditions.satisfies)
        }
        guard let found else { return nil }
        let captures = Captures(routes[found].path, path.segments)
        return RouteMatch(
            route: routes[found], target: TargetValues(captures: captures, query: parsed ?? RequestQuery(query)))
    }

    /// Whether the conversation of an earlier message is looked for: a request names it in place of its conversation, or
    /// edits it.
    var findsMessages: Bool { index.findsMessages || editsByFrames }

    /// Whether WebSocket messages may carry content of people.
    package var looksAtFrames: Bool { frames.contains { $0.label == .content } }

    /// Whether WebSocket messages of the backend may carry content of people.
    var readsBackendFrames: Bool { frames.contains { $0.direction == .fromBackend && !$0.shapes.isEmpty } }

    /// Finds the first kind of frame that matches a WebSocket message.
    ///
    /// - Returns: nil if none matches, or duplicate names make the message ambiguous.
    package func frame(for document: JSONDocument, _ direction: FrameRoute.Direction) -> FrameRoute? {
        (try? knownFrame(for: document, direction)) ?? nil
    }

    /// Finds the kind like ``frame(for:_:)``, but throws if the message is ambiguous.
    func knownFrame(
        for document: JSONDocument, _ direction: FrameRoute.Direction
    ) throws(JSONMatchError) -> FrameRoute? {
        for index in frames.indices where frames[index].direction == direction {
            if let when = frames[index].when {
                if try !document.places(when).isEmpty { return frames[index] }
            } else {
                guard !document.hasDuplicateNames(document.root) else { throw .duplicateNames(at: 0) }
                return frames[index]
            }
        }
        return nil
    }

    /// Whether a program that ignores the case of names may take a client's WebSocket message for one of another kind.
    ///
    /// - Parameter frame: the kind that matches.
    func isAmbiguous(_ document: JSONDocument, as frame: FrameRoute) -> Bool {
        for case .path(let path) in frame.login?.values.flatMap(\.parts) ?? [] where document.hasLookalike(of: path) {
            return true
        }
        if let when = frame.when { return document.hasLookalike(of: when) }
        return frames.contains { other in
            guard other.direction == frame.direction, let when = other.when else { return false }
            return document.hasLookalike(of: when)
        }
    }

    /// The target of a lookup, with a value inserted for a name in braces.
    package static func target(_ template: String, _ name: String, _ value: String) -> String {
        guard let range = template.firstRange(of: "{\(name)}") else { return template }
        return template[..<range.lowerBound] + PercentCoding.segment(value) + template[range.upperBound...]
    }

    /// Whether fields ask the backend to use another method or path. Some backends do.
    static func isRewritten(_ headers: HeaderFields) -> Bool {
        headers.fields.contains { field in
            guard let first = field.name.utf8.first, first | 0x20 == UInt8(ascii: "x"), field.name.utf8.count >= 13
            else { return false }
            return rewritingFields.contains { HeaderFields.areOneBehindCGI(field.name, $0) }
        }
    }

    private static let rewritingFields = [
        "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url",
    ]
}

extension Mapping.Route {
    /// Whether the route allows a method. GET includes HEAD. RFC 9110 section 9.3.2.
    package func takes(_ method: String) -> Bool {
        methods.isEmpty || methods.contains(method) || method == "HEAD" && methods.contains("GET")
    }
}

extension RequestQuery {
    /// Whether the query meets a condition. An ambiguous value meets none.
    package func satisfies(_ condition: QueryCondition) -> Bool {
        switch (condition.test, self[condition.name]) {
        case (.present, .single), (.absent, .absent): true
        case (.equals(let wanted), .single(let text)): wanted == text
        default: false
        }
    }
}
