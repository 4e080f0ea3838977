import JSONGateway

/// The key of a route: `GET|POST /v(1|2)/sync?since&!full&order=asc`.
///
///     key    = methods SP path [ "?" test *( "&" test ) ]
///     method = *( "|" ) capitals / "*"                   * is any method
///     path   = as PathPattern, with alternatives in parentheses anywhere in it
///     test   = name / "!" name / name "=" value          present, absent, has this value
struct RouteKey {
    let methods: [String]
    /// One path for each combination of alternatives.
    let paths: [PathPattern]
    let query: [QueryCondition]

    struct Fault: Error {
        /// The end of a sentence that begins with the route.
        let words: String

        init(_ words: String) { self.words = words }
    }

    /// Ours: maximum number of paths that one key stands for.
    static let pathLimit = 64

    init(_ text: String) throws(Fault) {
        let words = text.split(separator: " ", omittingEmptySubsequences: false)
        guard words.count == 2 else {
            throw Fault("expected a method, a space and a path, for example `POST /messages`")
        }
        methods = try Self.methods(words[0])
        let parts = words[1].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        var paths: [PathPattern] = []
        for text in try Self.alternatives(String(parts[0])) {
            do throws(PathPatternError) {
                paths.append(try PathPattern(text))
            } catch {
                throw Fault(error.reason)
            }
        }
        self.paths = paths
        query = parts.count < 2 ? [] : try Self.query(parts[1])
    }

    private static func methods(_ text: Substring) throws(Fault) -> [String] {
        if text == "*" { return [] }
        let methods = text.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
        guard
            methods.allSatisfy({ method in
                !method.isEmpty && method.utf8.allSatisfy { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 || $0 == 0x2D }
            })
        else {
            throw Fault("a method is written in capitals, several as `GET|POST`, any as `*`")
        }
        return methods
    }

    private static func alternatives(_ text: String) throws(Fault) -> [String] {
        guard let open = text.firstIndex(of: "("), let close = text[open...].firstIndex(of: ")") else {
            guard !text.contains("("), !text.contains(")") else {
                throw Fault("a parenthesis is not closed; alternatives are written `(v1|v2)`")
            }
            return [text]
        }
        let words = text[text.index(after: open)..<close].split(separator: "|", omittingEmptySubsequences: false)
        guard words.count > 1, !words.contains(where: { $0.contains("(") || $0.contains("/") }) else {
            throw Fault("parentheses hold alternatives for one segment: `(v1|v2)`")
        }
        let rest = try alternatives(String(text[text.index(after: close)...]))
        guard words.count * rest.count <= pathLimit else {
            throw Fault("the alternatives stand for more than \(pathLimit) paths")
        }
        return words.flatMap { word in rest.map { text[..<open] + word + $0 } }
    }

    private static func query(_ text: Substring) throws(Fault) -> [QueryCondition] {
        var conditions: [QueryCondition] = []
        for part in text.split(separator: "&", omittingEmptySubsequences: false) {
            let isAbsent = part.hasPrefix("!")
            let sides = part.dropFirst(isAbsent ? 1 : 0).split(
                separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = sides.first, !name.isEmpty, !isAbsent || sides.count == 1 else {
                throw Fault("expected `name`, `!name` or `name=value` after the question mark, joined by &")
            }
            let test: QueryCondition.Test = isAbsent ? .absent : sides.count == 1 ? .present : .equals(String(sides[1]))
            conditions.append(QueryCondition(String(name), test))
        }
        return conditions
    }
}

/// The value of a route: `content written -> echoed`.
struct LabelText {
    let label: Mapping.Label
    /// The names of messages in the request, and of those in the answer.
    let request: [String]
    let response: [String]
}

extension Mapping.Route {
    /// Whether every request that matches the other route matches this one.
    func covers(_ other: Mapping.Route) -> Bool {
        guard methods.isEmpty || !other.methods.isEmpty && Set(methods).isSuperset(of: other.methods) else {
            return false
        }
        return query.allSatisfy(other.query.contains) && Self.covers(path.segments[...], other.path.segments[...])
    }

    private static func covers(
        _ segments: ArraySlice<PathPattern.Segment>, _ other: ArraySlice<PathPattern.Segment>
    ) -> Bool {
        guard let first = segments.first, let second = other.first else { return segments.isEmpty && other.isEmpty }
        switch (first, second) {
        case (.rest, _): return true
        case (_, .rest): return false
        case (.literal(let left), .literal(let right)): guard left == right else { return false }
        case (.capture, .literal(let right)): guard !right.isEmpty else { return false }
        case (.capture, .capture): break
        case (.literal, .capture): return false
        }
        return covers(segments.dropFirst(), other.dropFirst())
    }
}
