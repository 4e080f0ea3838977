/// Codes as text: two modules one above the other in each character.
extension QRCode {
    /// Light modules that a reader wants around a code.
    package static let quietZone = 4

    /// For a terminal, black on white in colours of its own, so that it can be read from a dark and a light one. No
    /// newline at the end.
    package var terminal: String {
        // from the colour cube of 256: themes move black and white among the first 16
        let blackOnWhite = "\u{1B}[38;5;16;48;5;231m"
        let reset = "\u{1B}[0m"
        return lines(both: "█", upper: "▀", lower: "▄", neither: " ").map { blackOnWhite + $0 + reset }
            .joined(separator: "\n")
    }

    /// Without escape codes, for a file or a pipe. It is the light modules that are drawn, which is right wherever text
    /// is light on dark, and inverted elsewhere; many readers take it inverted as well. No newline at the end.
    package var plain: String {
        lines(both: " ", upper: "▄", lower: "▀", neither: "█").joined(separator: "\n")
    }

    /// One character for each pair of modules, named by which of the two is dark.
    private func lines(both: Character, upper: Character, lower: Character, neither: Character) -> [String] {
        let columns = -Self.quietZone..<size + Self.quietZone
        return stride(from: -Self.quietZone, to: size + Self.quietZone, by: 2).map { row in
            String(
                columns.map { column in
                    switch (isDark(row: row, column: column), isDark(row: row + 1, column: column)) {
                    case (true, true): both
                    case (true, false): upper
                    case (false, true): lower
                    case (false, false): neither
                    }
                })
        }
    }
}
