/// How hard a code is to read, in the standard's points. Used to choose a mask; readers never see it.
enum Penalty {
    /// For a run of five modules of one colour in a line; each further module costs one more.
    static let run = 3
    /// For each square of four modules of one colour; they may overlap.
    static let square = 3
    /// For a pattern like a finder: 1 1 3 1 1 in a line with four light modules before or after it.
    static let finder = 40
    /// For each whole 5 % between the proportion of dark modules and one half.
    static let imbalance = 10

    static func of(_ matrix: Matrix) -> Int {
        let indices = 0..<matrix.size
        let rows = indices.map { row in indices.map { matrix[row, $0] } }
        let columns = indices.map { column in indices.map { matrix[$0, column] } }
        let lines = (rows + columns).reduce(0) { $0 + runs($1) + finders($1) }
        return lines + squares(rows) + imbalance(rows)
    }

    static func runs(_ line: [Bool]) -> Int {
        var sum = 0
        var length = 0
        for (index, module) in line.enumerated() {
            length = index > 0 && line[index - 1] == module ? length + 1 : 1
            if length == 5 { sum += run } else if length > 5 { sum += 1 }
        }
        return sum
    }

    /// The quiet zone counts as light.
    static func finders(_ line: [Bool]) -> Int {
        let quiet = Array(repeating: false, count: 4)
        let pattern = [true, false, true, true, true, false, true]
        let padded = quiet + line + quiet
        let count = line.indices.dropLast(pattern.count - 1).count { start in
            guard padded[(start + 4)...].starts(with: pattern) else { return false }
            return padded[start...].starts(with: quiet) || padded[(start + 4 + pattern.count)...].starts(with: quiet)
        }
        return finder * count
    }

    static func squares(_ rows: [[Bool]]) -> Int {
        var count = 0
        for (upper, lower) in zip(rows, rows.dropFirst()) {
            for column in upper.indices.dropLast() {
                let module = upper[column]
                if upper[column + 1] == module, lower[column] == module, lower[column + 1] == module { count += 1 }
            }
        }
        return square * count
    }

    static func imbalance(_ rows: [[Bool]]) -> Int {
        let all = rows.reduce(0) { $0 + $1.count }
        let dark = rows.reduce(0) { $0 + $1.count(where: { $0 }) }
        // |dark / all - 1/2| in steps of 1/20.
        return imbalance * (abs(20 * dark - 10 * all) / all)
    }
}
