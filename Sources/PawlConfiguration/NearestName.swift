/// Finds the known name that is closest to an unknown one.
package enum NearestName {
    /// The longest word that is compared, in bytes. No name is that long, and long comparisons are slow.
    package static let wordLimit = 64

    /// Returns the closest of `names` to `word`, or `nil` if none is close enough to suggest.
    ///
    /// A word of one part is also compared with the last part of each name, so that `burst` finds
    /// `upstream.flood.burst`. If both are equally close, the match of the whole name wins.
    package static func of(_ word: String, among names: some Sequence<String>) -> String? {
        guard word.utf8.count <= self.wordLimit else { return nil }
        let word = word.lowercased()
        var best: (name: String, rank: (Int, Int))?
        for name in names {
            var candidates = [name]
            if !word.contains("."), let last = name.split(separator: ".").last { candidates.append(String(last)) }
            for (index, candidate) in candidates.enumerated() {
                let distance = self.distance(Array(word.utf8), Array(candidate.lowercased().utf8))
                guard distance <= self.tolerance(candidate) else { continue }
                if let best, best.rank <= (distance, index) { continue }
                best = (name, (distance, index))
            }
        }
        return best?.name
    }

    /// The greatest distance that counts as close: one edit per three bytes, at most three.
    private static func tolerance(_ name: String) -> Int {
        min(3, name.utf8.count / 3)
    }

    /// The number of bytes to insert, delete, replace or swap with their neighbour (optimal string alignment).
    package static func distance(_ a: [UInt8], _ b: [UInt8]) -> Int {
        var beforeLast = [Int](repeating: 0, count: b.count + 1)
        var last = Array(0...b.count)
        for i in a.indices {
            var row = [i + 1]
            for j in b.indices {
                var least = min(row[j] + 1, last[j + 1] + 1, last[j] + (a[i] == b[j] ? 0 : 1))
                if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { least = min(least, beforeLast[j - 1] + 1) }
                row.append(least)
            }
            (beforeLast, last) = (last, row)
        }
        return last[b.count]
    }
}
