// Finds the route of a request.

package import HTTPCodec

/// An index of routes by the segments of their paths.
package struct RouteIndex: Sendable, Equatable {
    /// A node of the tree, reached by a sequence of segments.
    private struct Node: Sendable, Equatable {
        var literals: [String: Int] = [:]
        package var capture: Int?
        /// Routes that end here (`ends`), and routes with `**` here (`rests`).
        package var ends: [Int] = []
        var rests: [Int] = []
    }

    private var nodes = [Node()]
    /// Whether a route names a message in place of its conversation, or edits one.
    private(set) var findsMessages = false

    package init(_ routes: [Mapping.Route]) {
        for (number, route) in routes.enumerated() {
            var node = 0
            var isRest = false
            if case .ofMessage? = route.conversationSource { findsMessages = true }
            if route.request?.edited != nil { findsMessages = true }
            for segment in route.path.segments {
                switch segment {
                case .literal(let text):
                    if let next = nodes[node].literals[text] {
                        node = next
                    } else {
                        nodes[node].literals[text] = nodes.count
                        node = nodes.count
                        nodes.append(Node())
                    }
                case .capture:
                    if let next = nodes[node].capture {
                        node = next
                    } else {
                        nodes[node].capture = nodes.count
                        node = nodes.count
                        nodes.append(Node())
                    }
                case .rest: isRest = true
                }
            }
            if isRest { nodes[node].rests.append(number) } else { nodes[node].ends.append(number) }
        }
    }

    /// Returns the first route whose path matches and for which `fits` is true. Recurses once per segment.
    package func first(_ segments: [String], where fits: (Int) -> Bool) -> Int? {
        var best: Int?
        search(segments, 0, 0, &best, fits)
        return best
    }

    private func search(_ segments: [String], _ position: Int, _ node: Int, _ best: inout Int?, _ fits: (Int) -> Bool) {
        guard position < segments.count else { return take(nodes[node].ends, &best, fits) }
        take(nodes[node].rests, &best, fits)
        if let next = nodes[node].literals[segments[position]] { search(segments, position + 1, next, &best, fits) }
        if let next = nodes[node].capture, !segments[position].isEmpty {
            search(segments, position + 1, next, &best, fits)
        }
    }

    private func take(_ numbers: [Int], _ best: inout Int?, _ fits: (Int) -> Bool) {
        for number in numbers where number < best ?? .max {
            if fits(number) { best = number }
        }
    }
}

extension RouteIndex {
    /// Whether a path matches a pattern.
    package static func fits(_ pattern: PathPattern, _ path: RequestPath) -> Bool {
        let isRest = pattern.segments.last == .rest
        let count = pattern.segments.count
        guard isRest ? path.segments.count >= count : path.segments.count == count else { return false }
        return common(pattern, path) == count
    }

    /// The number of leading segments of a path that match a pattern.
    package static func common(_ pattern: PathPattern, _ path: RequestPath) -> Int {
        zip(pattern.segments, path.segments).prefix { segment, text in
            switch segment {
            case .literal(let literal): literal == text
            case .capture: !text.isEmpty
            case .rest: true
            }
        }.count
    }
}
