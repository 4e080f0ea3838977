/// Codes as text: each character shows two modules, one above the other.
extension QRCode {
    /// Light modules that the standard demands around a code.
    public static let quietZone = 4
    /// Ours: light modules around a code on a small screen. Phones read codes with two; the standard has four.
    public static let narrowQuietZone = 2

    /// The widest quiet zone with which the code has at most this number of lines; the narrow one if none has.
    public func quietZone(fitting rows: Int) -> Int {
        (Self.narrowQuietZone...Self.quietZone).last { (size + 2 * $0 + 1) / 2 <= rows } ?? Self.narrowQuietZone
    }

    /// For a terminal: black on white with explicit colours, so that it is readable on dark and light backgrounds. No
    /// newline at the end.
    public var terminal: String { terminal(quietZone: Self.quietZone) }

    /// The same with another quiet zone.
    public func terminal(quietZone: Int) -> String {
        // From the 256-colour cube: themes change black and white among the first 16.
        let blackOnWhite = "\u{1B}[38;5;16;48;5;231m"
        let reset = "\u{1B}[0m"
        return lines(quietZone, both: "█", upper: "▀", lower: "▄", neither: " ").map { blackOnWhite + $0 + reset }
            .joined(separator: "\n")
    }

    /// Without escape codes, for a file or a pipe. The light modules are drawn, which is right if text is light on
    /// dark. Elsewhere the code appears inverted, which many readers accept. No newline at the end.
    public var plain: String { plain(quietZone: Self.quietZone) }

    /// The same with another quiet zone.
    public func plain(quietZone: Int) -> String {
        lines(quietZone, both: " ", upper: "▄", lower: "▀", neither: "█").joined(separator: "\n")
    }

    /// One character for each pair of modules; the labels name the dark modules of the pair.
    private func lines(
        _ quietZone: Int, both: Character, upper: Character, lower: Character, neither: Character
    ) -> [String] {
        let columns = -quietZone..<size + quietZone
        return stride(from: -quietZone, to: size + quietZone, by: 2).map { row in
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
