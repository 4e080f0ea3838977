// What an operator who writes a mapping wants to know of it: which requests it says nothing of.

import RequestQueue
import Synchronization

/// Requests that fitted no route since the start, by method and shape of path.
package final class UnmatchedRequests: Sendable {
    /// Requests of one shape.
    package struct Row: Sendable, Equatable {
        /// As it stood in the request; of a frame what it came over.
        package var method: String
        /// Segments that look like somebody's or something's name are `*`; without the query.
        package var path: String
        package var count: Int
        /// In milliseconds since 1970.
        package var lastSeen: Int64
    }

    /// Ours: shapes that are kept. A flood of new ones is counted under ``others``.
    package static let limit = 200
    /// Ours: characters of a method and of a path that are kept.
    private static let length = (method: 16, path: 120)
    /// The path of what finds no place.
    package static let others = "(other paths)"

    private let rows = Mutex<[ExactText: Row]>([:])

    package init() {}

    func note(_ method: String, _ path: String, at time: Int64) {
        let method = String(method.prefix(Self.length.method))
        let shape = String(Self.shape(of: path).prefix(Self.length.path))
        rows.withLock { rows in
            var row = Row(method: method, path: shape, count: 0, lastSeen: time)
            if rows.count >= Self.limit, rows[row.name] == nil { (row.method, row.path) = ("", Self.others) }
            row.count = (rows[row.name]?.count ?? 0) + 1
            rows[row.name] = row
        }
    }

    /// The most frequent first.
    package var all: [Row] {
        rows.withLock { $0.values.sorted { ($1.count, $0.path, $0.method) < ($0.count, $1.path, $1.method) } }
    }

    /// A path with `*` for each segment that holds a digit, a percent sign or other signs than words have, or is long.
    private static func shape(of path: String) -> String {
        path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { segment in
            let isWord = segment.count <= 32 && segment.allSatisfy(isLetter)
            return isWord ? String(Substring(segment)) : "*"
        }.joined(separator: "/")
    }

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
