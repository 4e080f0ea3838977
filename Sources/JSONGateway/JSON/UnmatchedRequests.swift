// Statistics of requests that the mapping does not cover, for the operator who writes it.

import RequestQueue
import Synchronization

/// Requests since the start that matched no route, by method and shape of path.
package final class UnmatchedRequests: Sendable {
    /// Requests of one shape.
    package struct Row: Sendable, Equatable {
        /// The method as received; `frame` for a WebSocket message.
        package var method: String
        /// The path without the query, with `*` for segments that look like names or ids.
        package var path: String
        package var count: Int
        /// In milliseconds since 1970.
        package var lastSeen: Int64

        package init(method: String, path: String, count: Int, lastSeen: Int64) {
            self.method = method
            self.path = path
            self.count = count
            self.lastSeen = lastSeen
        }
    }

    /// Ours: maximum number of shapes. Further ones are counted under ``others``.
    package static let limit = 200
    /// Ours: stored characters of a method and of a path.
    private static let length = (method: 16, path: 120)
    /// The path under which shapes beyond ``limit`` are counted.
    package static let others = "(other paths)"

    private let rows = Mutex<[ExactText: Row]>([:])

    package init() {}

    package func note(_ method: String, _ path: String, at time: Int64) {
        let method = String(method.prefix(Self.length.method))
        let shape = String(Self.shape(of: path).prefix(Self.length.path))
        rows.withLock { rows in
            var row = Row(method: method, path: shape, count: 0, lastSeen: time)
            if rows.count >= Self.limit, rows[row.name] == nil { (row.method, row.path) = ("", Self.others) }
            row.count = (rows[row.name]?.count ?? 0) + 1
            rows[row.name] = row
        }
    }

    /// All rows, the most frequent first.
    package var all: [Row] {
        rows.withLock { $0.values.sorted { ($1.count, $0.path, $0.method) < ($0.count, $1.path, $1.method) } }
    }

    /// The method and the shape of the path of a request without a route.
    package static func name(_ method: String, _ path: String) -> String {
        "\(method.prefix(length.method)) \(shape(of: path).prefix(length.path))"
    }

    /// Returns the path with `*` for each segment that looks like a name or id.
    ///
    /// Such a segment is longer than 32 bytes, or has other characters than letters and `-_.`. Versions (`v3`, `r0`)
    /// and names that begin like a domain (`org.matrix.msc3575`) stay.
    private static func shape(of path: String) -> String {
        path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { segment in
            let isWord = segment.count <= 32 && segment.allSatisfy(isLetter)
            return isWord || isVersion(segment) || isDomain(segment) ? String(Substring(segment)) : "*"
        }.joined(separator: "/")
    }

    private static func isVersion(_ segment: Substring.UTF8View) -> Bool {
        guard let first = segment.first, first == UInt8(ascii: "v") || first == UInt8(ascii: "r") else { return false }
        return (2...3).contains(segment.count) && segment.dropFirst().allSatisfy(isDigit)
    }

    private static func isDomain(_ segment: Substring.UTF8View) -> Bool {
        let labels = segment.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard labels.count >= 2, segment.count <= 64, (2...4).contains(labels[0].count) else { return false }
        return labels[0].allSatisfy(isLetter) && labels[1].first.map(isLetter) == true
            && segment.allSatisfy { isLetter($0) || isDigit($0) }
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private static func isLetter(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "-"),
            UInt8(ascii: "_"), UInt8(ascii: "."):
            true
        default: false
        }
    }
}

extension UnmatchedRequests.Row {
    fileprivate var name: ExactText { ExactText("\(method) \(path)") }
}
