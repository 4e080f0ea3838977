import Glibc

/// A table, printed as Markdown.
struct MarkdownTable {
    private let title: String
    private let header: [String]
    private var rows: [[String]] = []
    private var notes: [String] = []

    init(_ title: String, _ header: [String]) {
        self.title = title
        self.header = header
    }

    /// Adds a row.
    mutating func add(_ cells: [String]) {
        precondition(cells.count == self.header.count)
        self.rows.append(cells)
    }

    /// Adds a line below the table; once, however often it is said.
    mutating func note(_ words: String) {
        let text = words.split(whereSeparator: \.isNewline).joined(separator: " ")
        if !self.notes.contains(text) { self.notes.append(text) }
    }

    /// Prints all of it.
    func print() {
        var lines = ["", "### \(self.title)", "", Self.line(self.header)]
        lines.append("|---|" + String(repeating: "---:|", count: self.header.count - 1))
        lines += self.rows.map(Self.line)
        if !self.notes.isEmpty {
            lines += [""] + self.notes.map { "- \($0)" }
        }
        Swift.print(lines.joined(separator: "\n"))
        flushOutput()
    }

    private static func line(_ cells: [String]) -> String {
        "| " + cells.joined(separator: " | ") + " |"
    }
}

extension Double {
    /// With this many digits behind the point, and thousands separated; a dash for what was not measured.
    func text(_ places: Int = 0) -> String {
        guard self.isFinite else { return "–" }
        let scale = pow(10, Double(places))
        let scaled = Int((abs(self) * scale).rounded())
        var whole = String(scaled / Int(scale))
        var start = whole.endIndex
        while let comma = whole.index(start, offsetBy: -3, limitedBy: whole.startIndex), comma > whole.startIndex {
            whole.insert(",", at: comma)
            start = comma
        }
        let fraction = String(scaled % Int(scale))
        let padding = String(repeating: "0", count: max(0, places - fraction.count))
        return (self < 0 && scaled > 0 ? "-" : "") + whole + (places > 0 ? ".\(padding)\(fraction)" : "")
    }
}

extension Array where Element == Double {
    /// The middle value; not a number where there is none.
    var median: Double {
        let sorted = self.filter(\.isFinite).sorted()
        guard !sorted.isEmpty else { return .nan }
        let middle = sorted.count / 2
        return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
    }
}
